"""A page a role: its README, every option, and what breaks it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from coldiron.docs_gen import options
from coldiron.docs_gen.page import Page
from coldiron.docs_gen.tables import TABLE, cell


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None


def _drop_options(readme: str) -> str:
    """Return a README without its options table, which the page has in full."""
    return TABLE.sub("", readme).rstrip() + "\n"


def _entry_points(role: Path, plugins: Mapping[str, str]) -> str:
    specs = _load(role / "meta" / "argument_specs.yml")["argument_specs"]
    defaults = _load(role / "defaults" / "main.yml") or {}
    text = ""
    for name, spec in specs.items():
        title = "Options" if name == "main" else f"Options of `tasks_from: {name}`"
        said = spec.get("options") or {}
        # Only one entry point's rows can have the plain anchors.
        prefix = "" if name == "main" else f"{name}: "
        table = options.table(said, defaults if name == "main" else {}, plugins, prefix=prefix)
        text += f"\n## {title}\n\n"
        if name != "main":
            text += f"{spec['short_description']}.\n\n"
        text += table or "This role has no options.\n"
    return text


def _sabotage(role: Path) -> str:
    breaks = _load(role / "tests" / "sabotage.yml") or []
    if not breaks:
        return ""
    lines = "\n".join(f"| {cell(item['name'])} | `{item['red']}` |" for item in breaks)
    return (
        "\n## What is proven\n\n"
        "Each of these breaks of a converged node turns the named test red, and the role heals it"
        " ([how](../../docs/testing.md#sabotage)).\n\n"
        f"| break | test that sees it |\n|---|---|\n{lines}\n"
    )


def page(role: Path, plugins: Mapping[str, str]) -> Page:
    """Return the page of a role's folder. Its relative links are those of roles/ROLE/README.md."""
    readme = (role / "README.md").read_text(encoding="utf-8")
    text = _drop_options(readme) + _entry_points(role, plugins) + _sabotage(role)
    return Page(f"roles/{role.name}.md", text, f"roles/{role.name}/README.md")


def stage_of(root: Path) -> dict[str, tuple[str, str]]:
    """Return for each role the stage that runs it and the hosts of its plays, in the order of the site."""
    found: dict[str, tuple[str, str]] = {}
    imported = [item["ansible.builtin.import_playbook"] for item in _load(root / "playbooks" / "site.yml")]
    for name in imported:
        path = root / "playbooks" / name
        for play in _load(path) if name.startswith("stage_") else ():
            for role in re.findall(r"coldiron\.cluster\.(\w+)", yaml.safe_dump(play, sort_keys=False)):
                if (root / "roles" / role).is_dir():
                    stage, hosts = found.get(role, (path.stem.removeprefix("stage_"), ""))
                    patterns = [*hosts.split(), str(play["hosts"])]
                    found[role] = (stage, " ".join(dict.fromkeys(patterns)))
    return found


def summary(role: Path) -> str:
    """Return the first sentence of a role's README."""
    body = (role / "README.md").read_text(encoding="utf-8").split("\n", 1)[1].strip()
    paragraph = " ".join(body.split("\n\n", 1)[0].split())
    return re.split(r"(?<=[.!?])\s+", paragraph)[0]


def index(root: Path, roles: list[Path]) -> Page:
    """Return the list of roles, by stage, in the order of the site."""
    stages = stage_of(root)
    text = (
        "# Roles\n\nOne function each. An option is a variable of that name in the inventory's `group_vars/`; a wrong"
        " one is refused\nbefore any node is touched. What the cluster's shape says (addresses, controllers,"
        " workers) is filled in by\n[topology.yml](../playbooks/group_vars/all/topology.yml) and needs no"
        " line of yours.\n"
    )
    order = {name: number for number, name in enumerate(stages)}
    said = None
    for role in sorted(roles, key=lambda role: order.get(role.name, len(order))):
        stage, hosts = stages.get(role.name, ("", ""))
        if stage != said:
            said = stage
            title = f"Stage {stage}" if stage else "In no stage"
            text += f"\n## {title}\n\n| role | what it does |\n|---|---|\n"
        where = f" On {', '.join(f'`{pattern}`' for pattern in hosts.split())}." if hosts else ""
        text += f"| [{role.name}]({role.name}/README.md) | {cell(summary(role))}{where} |\n"
    return Page("roles/index.md", text, "roles/README.md")
