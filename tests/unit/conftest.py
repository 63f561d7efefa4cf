"""For all unit tests: Ansible's own way of importing a collection, before anything imports one without it.

A module of a collection that Python alone has imported lacks what Ansible has to know of it, in this process for good.
"""

from __future__ import annotations

from ansible.plugins.loader import init_plugin_loader

init_plugin_loader([])
