"""Look at the whole site offline, before any node is contacted: what `coldiron plan` says of cluster.yml."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.coldiron.cluster.plugins.module_utils.controller import lacks_coldiron

display = Display()


class ActionModule(ActionBase):  # type: ignore[misc]
    """A thin adapter: coldiron.plan finds, this class tells Ansible."""

    _requires_connection = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset()

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        files = _files(task_vars or {})
        if not files:
            return {**result, "skipped": True, "changed": False, "skip_reason": "no cluster.yml"}
        try:
            from coldiron.errors import ColdironError
            from coldiron.inventory import load
            from coldiron.inventory.findings import shown_path
            from coldiron.plan.checks import CHECKS
            from coldiron.plan.data import refused, verdict
            from coldiron.plan.design import Design, run
            from coldiron.plan.pause import without_collector
            from coldiron.plan.show import shown_refusal
        except ImportError as error:
            raise AnsibleActionFail(lacks_coldiron("the plan", error)) from None
        verdicts: list[str] = []
        for file in files:
            try:
                with without_collector():
                    found = run(Design(load(file)), CHECKS)
            except ColdironError as error:
                raise AnsibleActionFail(error.message) from None
            where = shown_path(file.parent)
            said = verdict(found)
            if refused(found):
                # As lines of their own: Ansible prints a result as one blob.
                display.error(shown_refusal(found), wrap_text=False)
                return {
                    **result,
                    "failed": True,
                    "msg": f"{where} is {said}; no node was contacted",
                    "hint": f"coldiron plan -i {where}",
                }
            if found:
                display.display(f"{said}; to read: coldiron plan -i {where}")
            verdicts.append(said)
        return {**result, "changed": False, "msg": "\n".join(verdicts)}


def _files(task_vars: dict[str, Any]) -> list[Path]:
    """Each cluster.yml of the run's inventories that is this collection's."""
    named = [str(source) for source in task_vars.get("ansible_inventory_sources") or []]
    named.append(str(task_vars.get("inventory_file") or ""))
    found: dict[Path, None] = {}
    for name in named:
        places = (os.path.join(name, file) for file in ("cluster.yml", "cluster.yaml"))
        for place in places if os.path.isdir(name) else [name]:
            path = Path(place)
            if path.name in ("cluster.yml", "cluster.yaml") and path.is_file() and _ours(path):
                found[path.resolve()] = None
    return list(found)


def _ours(path: Path) -> bool:
    from coldiron.inventory.model import PLUGIN

    with path.open("rb") as file:
        return PLUGIN.encode() in file.read(64 * 1024)
