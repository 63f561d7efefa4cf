"""For all tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes is the machine's affair: a test that bounds its own time says so.
settings.register_profile("coldiron", deadline=None)
settings.load_profile("coldiron")
