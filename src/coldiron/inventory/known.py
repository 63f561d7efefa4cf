"""What the inventory plugin has read in this process: the variables of every node, kept once and not with each host.

Ansible's forks inherit it. A process that took its inventory from elsewhere, as a script's output, has nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_hostvars: dict[str, Mapping[str, Mapping[str, Any]]] = {}


def keep(file: str, hostvars: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep the variables of every node of the cluster.yml at ``file``, by the node's name."""
    _hostvars[file] = hostvars


def hosts(files: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
    """The variables of every node of ``files``, as far as they have been read; of two with one name the last."""
    read = [_hostvars.get(file, {}) for file in files]
    if len(read) == 1:
        # It is asked for at each task, and copying ten thousand nodes takes a while.
        return read[0]
    return {name: variables for one in read for name, variables in one.items()}
