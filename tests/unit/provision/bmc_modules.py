"""Tasks on a BMC by the kept modules, in this process: what Ansible would do in one process each."""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from coldiron.provision import bmc_task
from coldiron.provision.bmc_task import Found
from coldiron.provision.bmc_work import Patience
from tests.unit.provision.bmc_server import PASSWORD, USER, Served

DEFAULTS: dict[str, Any] = {
    "protocol": "redfish", "credentials": "bmc_credentials", "known": {}, "serial": "", "mac": "",
    "firmware": "uefi", "cipher_suite": 3, "timeout_seconds": 5, "retries": 2, "grace_seconds": 1,
    "power_seconds": 1, "proof_seconds": 1, "force": False, "target": "", "cycle": True, "attributes": {},
    "boot_order": [], "may_reboot": False, "directory": "", "known_file": "", "fingerprint": "",
    "console_file": "", "console_seconds": 1,
}  # fmt: skip
Do = Callable[..., Found]


def call(module: str, arguments: dict[str, Any], reads: bool) -> Mapping[str, Any]:
    """Run a module of Ansible or of a collection; its result, in which the password must not be."""
    assert arguments["validate_certs"] is True
    del reads
    path = module.replace("ansible.builtin", "ansible.modules").replace(
        "community.general", "ansible_collections.community.general.plugins.modules"
    )
    said: list[str] = []
    with patch_module_args(arguments), pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *words, **_: said.append(str(words[0])))
        try:
            importlib.import_module(path).main()
        except SystemExit:
            pass
        except Exception as error:
            # Ansible gives a module that dies back as one that failed.
            return {"failed": True, "msg": "MODULE FAILURE", "exception": repr(error)}
    assert PASSWORD not in "".join(said)
    result: dict[str, Any] = json.loads(said[-1])
    return result


@contextlib.contextmanager
def around(environment: dict[str, str]) -> Iterator[None]:
    """Modules see these environment variables within the block."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


def doing(served: Served, **always: Any) -> Do:
    """What does a task on the BMC that is ``served``: ``do(state, …)``."""

    def do(state: str, *, check: bool = False, **given: Any) -> Found:
        arguments = {
            **DEFAULTS, "node": "gpu01", "address": "127.0.0.1", "port": served.port, "user": USER,
            "password": PASSWORD, "ca": str(served.ca), "state": state, **always, **given,
        }  # fmt: skip
        # Nobody waits for a machine that switches at once.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bmc_task, "Patience", functools.partial(Patience, pause=0.05, backoff=0.05))
            return bmc_task.run(arguments, call, around, check=check)

    return do
