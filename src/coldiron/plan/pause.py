"""Python's search for cycles, paused while much is made that stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Within, nothing is searched for cycles: a large design is walked again and again for nothing otherwise.

    That is a third of the time at 10,000 nodes; the peak of memory stays the same.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
