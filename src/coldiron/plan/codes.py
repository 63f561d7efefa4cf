"""The pages behind `coldiron explain`: what a code means, why it matters, a wrong and a right example."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

# What the first letters of a code stand for, in the order in which the codes are listed.
FAMILIES = {
    "CI": "cluster.yml",
    "CR": "options of roles",
    "CS": "secrets",
    "CH": "a node's hardware",
    "CP": "electricity and heat",
    "CU": "racks and space",
    "CL": "networks and fabrics",
    "CV": "versions and features",
    "CA": "what would be better",
    "CN": "nodes, while a run is on",
    "EX": "exit codes",
}


@dataclass(frozen=True)
class Page:
    """One code. ``type`` says what to type or do; ``wrong`` and ``right`` may be empty.

    ``whole``: the examples are whole files, else blocks that stand in a sound one, which ``base`` names where there are
    several. ``source`` says where the rule comes from, for rules of the field.
    """

    code: str
    title: str
    means: str
    why: str
    type: str
    wrong: str = ""
    right: str = ""
    whole: bool = False
    base: str = ""
    source: str = ""

    @property
    def family(self) -> str:
        """The letters that the code begins with."""
        return self.code.rstrip("0123456789")


@cache
def pages() -> dict[str, Page]:
    """Every page by its code, in the order of the families."""
    here = resources.files("coldiron.plan")
    files = [
        here.joinpath("codes.yml"),
        *sorted(here.joinpath("pages").iterdir(), key=lambda file: file.name),
    ]
    found = [
        Page(code=code, **content)
        for file in files
        for code, content in (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).items()
    ]
    order = list(FAMILIES)
    return {page.code: page for page in sorted(found, key=lambda page: (order.index(page.family), page.code))}
