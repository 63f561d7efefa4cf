"""One step of a node's repair in its journal on the controller. No node is spoken to."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.coldiron.cluster.plugins.module_utils.controller import lacks_coldiron

_MINE = frozenset(
    {"do", "state", "outcome", "reason", "node", "files", "kind", "consent", "stop_when_unclear"}
)


class ActionModule(ActionBase):  # type: ignore[misc]
    """A thin adapter: coldiron.repair.steps does the step, this class tells Ansible."""

    _requires_connection = False
    _supports_check_mode = False
    _VALID_ARGS = _MINE

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        if result.get("skipped"):
            return result
        try:
            from coldiron.errors import ColdironError
        except ImportError as error:
            raise AnsibleActionFail(lacks_coldiron("a repair", error)) from None
        try:
            return {**result, "changed": False, **self._step(dict(task_vars or {}))}
        except (ColdironError, ValueError) as error:
            raise AnsibleActionFail(getattr(error, "message", str(error))) from None

    def _step(self, variables: dict[str, Any]) -> dict[str, Any]:
        from coldiron.repair import keep, steps
        from coldiron.repair.machine import Kind, Outcome, State
        from coldiron.run.mask import Mask
        from coldiron.run.survey import secret_texts

        args = self._task.args
        node = str(args.get("node") or variables["inventory_hostname"])
        repairs = keep.prepare(Path(str(variables["inventory_dir"])))
        do = str(args.get("do", "begin"))
        if do == "open":
            wanted = steps.Wanted(
                Kind(str(args.get("kind", "repair"))),
                [str(serial) for serial in args.get("consent") or []],
                str(args.get("stop_when_unclear", False)).lower() in ("true", "yes", "1"),
            )
            own = {
                name: self._templar.template(variables[name])
                for name in ("coldiron_platform", "coldiron_disks")
                if name in variables
            }
            return steps.open_repair(repairs, node, wanted, own, shlex.join(sys.argv), os.getppid())
        if do == "where":
            return steps.where(repairs, node)
        if do == "judge":
            kept = {
                name: value
                for name, value in variables.items()
                if name not in ("hostvars", "groups", "vars") and not name.startswith("ansible_facts")
            }
            mask = Mask(secret_texts(kept, False))
            files = {str(name): str(text) for name, text in _mapping(args.get("files")).items()}
            about = {
                "node": node,
                "cluster": str(variables.get("coldiron_cluster", "")),
                "model": str(variables.get("coldiron_model") or ""),
                "serial": str(variables.get("coldiron_serial") or ""),
                "rack": str(variables.get("coldiron_rack_name") or ""),
            }
            return steps.judge(repairs, node, files, about, mask.text)
        state = State(str(args["state"]))
        if do == "end":
            outcome = Outcome(str(args.get("outcome", "ok")))
            return steps.end(repairs, node, state, outcome, str(args.get("reason") or ""))
        return steps.begin(repairs, node, state)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
