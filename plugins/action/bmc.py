"""Work on a machine through its BMC: the thin half; coldiron.provision.bmc_* knows what to ask, and when it is done."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.coldiron.cluster.plugins.module_utils.controller import lacks_coldiron

STATES = (
    "facts",
    "on",
    "off",
    "cycled",
    "booted_once",
    "boots_from_disk",
    "configured",
    "events",
    "sensors",
    "console",
    "trusted",
)
# How the BMC is reached, and which machine it has to be of: the same at every task.
REACH: dict[str, dict[str, Any]] = {
    "address": {"type": "str", "required": True},
    "protocol": {"type": "str", "choices": ["redfish", "ipmi"], "default": "redfish"},
    "port": {"type": "int", "default": 0},
    "user": {"type": "str", "default": ""},
    "password": {"type": "str", "default": "", "no_log": True},
    "credentials": {"type": "str", "default": ""},
    "ca": {"type": "str", "default": ""},
    "known": {"type": "dict", "default": {}},
    "serial": {"type": "str", "default": ""},
    "mac": {"type": "str", "default": ""},
    "firmware": {"type": "str", "choices": ["uefi", "bios"], "default": "uefi"},
    "cipher_suite": {"type": "int", "default": 3},
    "timeout_seconds": {"type": "int", "default": 30},
    "retries": {"type": "int", "default": 3},
}
SPEC: dict[str, dict[str, Any]] = {
    "state": {"type": "str", "required": True, "choices": list(STATES)},
    "node": {"type": "str", "required": True},
    "bmc": {"type": "dict", "required": True, "options": REACH},
    "grace_seconds": {"type": "int", "default": 120},
    "power_seconds": {"type": "int", "default": 60},
    "proof_seconds": {"type": "int", "default": 60},
    "force": {"type": "bool", "default": False},
    "target": {"type": "str", "default": ""},
    "cycle": {"type": "bool", "default": True},
    "attributes": {"type": "dict", "default": {}},
    "boot_order": {"type": "list", "elements": "str", "default": []},
    "may_reboot": {"type": "bool", "default": False},
    "directory": {"type": "str", "default": ""},
    "known_file": {"type": "str", "default": ""},
    "fingerprint": {"type": "str", "default": ""},
    "console_file": {"type": "str", "default": ""},
    "console_seconds": {"type": "int", "default": 10},
}


class Hidden(str):
    """A password: Ansible's debug log prints a module's arguments by their repr."""

    def __repr__(self) -> str:
        return "'…'"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Reads the task, hands over to coldiron.provision, and runs the kept modules for it."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(argument_spec=SPEC)
        # Plain values: what Ansible has tagged, YAML cannot write and Redfish need not know.
        given = json.loads(json.dumps({**asked, **asked["bmc"]}))
        self._variables = task_vars or {}
        try:
            from coldiron.errors import ColdironError
            from coldiron.provision import bmc_task
        except ImportError as error:
            raise AnsibleActionFail(lacks_coldiron("coldiron.cluster.bmc", error)) from None
        try:
            # The whole task runs with its own wishes about check mode; a module that reads is run in any case.
            found = bmc_task.run(given, self._call, self._around, check=bool(self._task.check_mode))
        except ColdironError as error:
            return {"failed": True, "changed": False, "msg": error.message}
        done = found.done
        result: dict[str, Any] = {
            "changed": done.changed,
            "msg": found.msg,
            "bmc": found.facts,
            "waits": list(done.waits),
            **({"proof": dataclasses.asdict(done.proof)} if done.proof else {}),
            **({"files": found.files} if found.files else {}),
            **({"warnings": found.warnings} if found.warnings else {}),
        }
        if self._task.diff and done.changed and (done.before or done.after):
            result["diff"] = {
                "before": _text(done.before),
                "after": _text(done.after),
                "before_header": f"{given['node']} (BMC)",
                "after_header": f"{given['node']} (BMC)",
            }
        return result

    def _call(self, module: str, arguments: dict[str, Any], reads: bool) -> Mapping[str, Any]:
        """Run a kept module; one that only reads runs in check mode too, since its answer is what is compared."""
        task = self._task
        hidden = {name: Hidden(arguments[name]) for name in ("password", "url_password") if name in arguments}
        before = task.check_mode
        task.check_mode = before and not reads
        try:
            result: Mapping[str, Any] = self._execute_module(
                module_name=module, module_args={**arguments, **hidden}, task_vars=self._variables
            )
        finally:
            task.check_mode = before
        return result

    @contextlib.contextmanager
    def _around(self, environment: dict[str, str]) -> Iterator[None]:
        """Run modules with these environment variables: a BMC is never asked through the site's web proxy."""
        before = self._task.environment
        self._task.environment = [*(before or []), environment]
        try:
            yield
        finally:
            self._task.environment = before


def _text(values: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(dict(values), sort_keys=True, allow_unicode=True))
