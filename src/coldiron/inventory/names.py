"""Names of hosts, by the standard library alone: machines without a virtual environment check them too."""

from __future__ import annotations

import re

from coldiron.inventory.findings import shown

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Wrong(ValueError):
    """A value that cannot be meant; the text says what to write instead."""


def check_host_name(name: str) -> None:
    """Refuse what DNS, ssh or Slurm would not take as a node's name, with a Wrong that says why."""
    if name != name.lower():
        raise Wrong(f"`{shown(name)}` has capitals, which DNS ignores; write {shown(name.lower())}")
    if "_" in name:
        better = shown(name.replace("_", "-"))
        raise Wrong(f"`{shown(name)}` has an underscore, which no host name may; write {better}")
    if "." in name:
        raise Wrong(f"`{shown(name)}` has a dot; write the short name, the cluster's domain is added to it")
    if not LABEL.fullmatch(name) or name.isdigit():
        raise Wrong(
            f"`{shown(name)}` is no host name; write up to 63 lower-case letters, digits and inner "
            "hyphens, with a letter among them"
        )
