"""What a run does: which stage applies which role to which nodes, read from the stage playbooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coldiron.testing.stages import Play

_PREFIX = "stage_"


@dataclass(frozen=True)
class Step:
    """One role in one stage. ``hosts`` are in the inventory's order; a role without any is left out."""

    stage: str
    role: str
    hosts: tuple[str, ...]


def steps(plays: Sequence[Play], hosts_of: Callable[[str], Sequence[str]]) -> list[Step]:
    """The steps of ``plays`` in their order; ``hosts_of`` gives the hosts that a play's pattern matches."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for play in plays:
        stage = play.playbook.stem.removeprefix(_PREFIX)
        for use in play.roles:
            found.setdefault((stage, use.role), {}).update(dict.fromkeys(hosts_of(play.hosts)))
    return [Step(stage, role, tuple(hosts)) for (stage, role), hosts in found.items() if hosts]
