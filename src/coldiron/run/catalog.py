"""Which stages there are, which plays belong to them, and what to run for some of them: read from the playbooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError
from coldiron.inventory.findings import did_you_mean, shown
from coldiron.run.reducer import CHECK_STAGE
from coldiron.testing.stages import COLLECTION, Play, find_collection, load_yaml, read_plays

SITE = f"{COLLECTION}.site"
_STAGE_PREFIX = "stage_"
_PROVISION = "provision"
_SPECIAL_TAGS = frozenset({"all", "always", "never", "tagged", "untagged"})


@dataclass(frozen=True)
class PlayOf:
    """A play by its name: its stage and its pattern of hosts."""

    name: str
    stage: str
    hosts: str


class Catalog:
    """The collection's stages, in the site's order."""

    def __init__(self, collection: Path | None = None) -> None:
        self.collection = collection or find_collection()

    @cached_property
    def stages(self) -> list[str]:
        """The names of the stages."""
        found = dict.fromkeys(play.stage for play in self.plays(["site"]))
        return [stage for stage in found if stage != CHECK_STAGE]

    def plays(self, playbooks: Iterable[str]) -> list[PlayOf]:
        """The plays of the collection's playbooks (``site``, ``node_add``), each with its stage."""
        plays: list[Play] = []
        for playbook in playbooks:
            name = playbook.removeprefix(f"{COLLECTION}.")
            plays += read_plays(self.collection / "playbooks" / f"{name}.yml")
        return [PlayOf(play.name, stage_of(play.playbook), play.hosts) for play in plays]

    def chosen(self, wanted: Sequence[str]) -> list[str]:
        """The stages that are asked for, in the site's order, all where none is. Raises ColdironError."""
        for name in wanted:
            if name not in self.stages:
                raise ColdironError(f"there is no stage `{shown(name)}`; {did_you_mean(name, self.stages)}")
        return [stage for stage in self.stages if not wanted or stage in wanted]

    def playbooks(self, stages: Sequence[str]) -> list[str]:
        """The names of the playbooks that do ``stages``: one for all of them, else one each."""
        if list(stages) == self.stages:
            return [SITE]
        return [f"{COLLECTION}.{stage}" for stage in stages]

    def one_playbook(self, stages: Sequence[str]) -> str:
        """A playbook that does ``stages`` in one go, as site.yml does all: the first look once, and hosts that
        fail in a stage keep no other host from the next one."""
        names = ["validate", *(f"{_STAGE_PREFIX}{stage}" for stage in stages)]
        # The first look does not ask machines that are about to be installed.
        later = {"validate": "  vars:\n    coldiron_provisions: true\n"} if _PROVISION in stages else {}
        entries = (
            f"- name: {name}\n  ansible.builtin.import_playbook: {COLLECTION}.{name}\n{later.get(name, '')}"
            for name in names
        )
        return "---\n# Made by coldiron for one run.\n" + "".join(entries)

    def check_tags(self, tags: Sequence[str]) -> None:
        """Raise ColdironError for a tag that no play and no task of the stages has."""
        known = set(_SPECIAL_TAGS)
        for path in [*self._files("playbooks"), *self._files("roles")]:
            known |= _tags(load_yaml(path))
        for tag in tags:
            if tag not in known:
                choices = sorted(known - _SPECIAL_TAGS)
                raise ColdironError(
                    f"--tags: nothing has the tag `{shown(tag)}`; {did_you_mean(tag, choices)}"
                )

    def _files(self, folder: str) -> list[Path]:
        pattern = "*.yml" if folder == "playbooks" else "*/tasks/**/*.yml"
        return sorted((self.collection / folder).glob(pattern))


def stage_of(playbook: Path) -> str:
    """The stage that the plays of a file belong to."""
    name = playbook.stem
    if name == "validate":
        return CHECK_STAGE
    return name.removeprefix(_STAGE_PREFIX).removeprefix("node_").removeprefix("repair_")


def _tags(value: Any) -> set[str]:
    if isinstance(value, list):
        return {tag for item in value for tag in _tags(item)}
    if not isinstance(value, dict):
        return set()
    own = value.get("tags", [])
    named = {str(tag) for tag in (own if isinstance(own, list) else str(own).split(","))}
    blocks = ("tasks", "pre_tasks", "post_tasks", "handlers", "roles", "block", "rescue", "always")
    return named | {tag for key in blocks for tag in _tags(value.get(key))}
