"""What Ansible itself makes of an inventory before a run: hosts, patterns, configuration and secrets.

Asked in a process of its own (``python -m coldiron.run.survey -i INVENTORY``, the question on standard input):
Ansible keeps its configuration and its words to the user in globals that would stay with the command line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import FILE_NAMES
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.secrets.password import PASSWORD_FILE
from coldiron.testing.secret import is_secret_name, leaves

_SECONDS = 120
_PLUGIN = "coldiron.cluster.cluster"
_WILD = set("*?[]~:!&@,")
# What a site run needs of an ansible.cfg. This checkout has it; in another directory there may be none.
_NEEDED = {
    "INVENTORY_ANY_UNPARSED_IS_FAILED": ("ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED", "True"),
    "DEFAULT_FORKS": ("ANSIBLE_FORKS", "32"),
    "INJECT_FACTS_AS_VARS": ("ANSIBLE_INJECT_FACT_VARS", "False"),
    "DEFAULT_TIMEOUT": ("ANSIBLE_TIMEOUT", "20"),
    "ANSIBLE_PIPELINING": ("ANSIBLE_PIPELINING", "True"),
    "INTERPRETER_PYTHON": ("ANSIBLE_PYTHON_INTERPRETER", "/usr/bin/python3"),
}


@dataclass(frozen=True)
class Survey:
    """``hosts`` are those within the limit, ``patterns`` the hosts of each pattern among them, in order.

    ``environment`` is what ansible-playbook needs beside the user's own, ``secrets`` what must never be shown.
    ``address`` is the first Slurm controller's, empty where there is none.
    """

    cluster: str
    hosts: list[str]
    patterns: dict[str, list[str]]
    groups: list[str]
    everyone: list[str]
    address: str
    environment: dict[str, str]
    secrets: list[str] = field(repr=False)


def ask(inventory: Path, limit: Sequence[str] = (), patterns: Sequence[str] = ()) -> Survey:
    """Look at ``inventory`` as ansible-playbook would. Raises ColdironError when that could not use it."""
    question = {"limit": list(limit), "patterns": list(patterns)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "coldiron.run.survey", "-i", os.path.abspath(inventory)],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ColdironError(
            f"{shown_path(inventory)} could not be read in {_SECONDS} s: is its file system, or a vault password "
            "program, hanging?",
            ExitCode.ENVIRONMENT,
        ) from None
    except OSError as error:
        raise ColdironError(
            f"{sys.executable} cannot be started: {error.strerror}", ExitCode.ENVIRONMENT
        ) from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise ColdironError(
            f"{shown_path(inventory)} cannot be looked at with Ansible: {last}", ExitCode.ENVIRONMENT
        ) from None
    if "error" in answer:
        raise ColdironError(answer["error"], ExitCode(answer["code"]))
    return Survey(**answer)


def settings(inventory_dir: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that ansible-playbook needs where no ansible.cfg and no variable says it already."""
    from ansible.config.manager import ConfigManager

    config = ConfigManager()

    def value(name: str) -> tuple[Any, bool]:
        found, origin = config.get_config_value_and_origin(name)
        return found, origin == "default"

    wanted: dict[str, str] = {}
    for name, (variable, text) in _NEEDED.items():
        if value(name)[1]:
            wanted[variable] = text
    # ansible-runner would switch it off where it is not said: only the user may.
    wanted["ANSIBLE_HOST_KEY_CHECKING"] = str(bool(value("HOST_KEY_CHECKING")[0]))
    plugins, default = value("INVENTORY_ENABLED")
    if default:
        wanted["ANSIBLE_INVENTORY_ENABLED"] = f"{_PLUGIN},yaml,ini"
    elif _PLUGIN not in plugins:
        wanted["ANSIBLE_INVENTORY_ENABLED"] = ",".join([_PLUGIN, *plugins])
    if not value("DEFAULT_VAULT_PASSWORD_FILE")[0] and not value("DEFAULT_VAULT_IDENTITY_LIST")[0]:
        named = environment.get("COLDIRON_VAULT_PASSWORD_FILE")
        file = Path(named).expanduser() if named else inventory_dir / PASSWORD_FILE
        if file.exists() or named:
            wanted["ANSIBLE_VAULT_PASSWORD_FILE"] = os.path.abspath(file)
    return wanted


def _look(inventory: Path, limit: list[str], patterns: list[str]) -> dict[str, Any]:
    directory = inventory if inventory.is_dir() else inventory.parent
    environment = settings(directory, os.environ)
    os.environ.update(environment)

    from ansible.errors import AnsibleError
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader()
    loader = DataLoader()
    secrets = _secrets(directory, loader)
    try:
        manager = InventoryManager(loader, sources=[str(inventory)])
    except AnsibleError as error:
        raise ColdironError(_first(str(error)) or f"{shown_path(inventory)} is no inventory") from None
    everyone = [host.name for host in manager.get_hosts("all")]
    groups = [name for name in manager.groups if name not in ("all", "ungrouped")]
    for word in (word for text in limit for word in text.split(",")):
        name = word.lstrip("!&")
        if name and not _WILD & set(name) and name not in (*everyone, *groups, "all", "localhost"):
            raise ColdironError(
                f"--limit: {shown_path(inventory)} has no node or group `{shown(name)}`; "
                + did_you_mean(name, [*everyone, *groups])
            )
    try:
        manager.subset(",".join(limit) or None)
        hosts = [host.name for host in manager.get_hosts("all")]
        found = {pattern: [host.name for host in manager.get_hosts(pattern)] for pattern in patterns}
    except AnsibleError as error:
        raise ColdironError(f"--limit: {_first(str(error))}") from None
    if not hosts:
        where = f" within --limit {','.join(limit)}" if limit else ""
        raise ColdironError(f"{shown_path(inventory)} has no host{where}")
    manager.subset(None)
    variables = manager.groups["all"].get_vars()
    controllers = manager.groups.get("slurm_controller")
    first = next(iter(controllers.get_hosts()), None) if controllers else None
    own = first.get_vars() if first else {}
    address = str(own.get("ansible_host") or own.get("coldiron_address") or (first.name if first else ""))
    name = variables.get("coldiron_cluster") or own.get("coldiron_cluster") or directory.resolve().name
    return {
        "cluster": str(name),
        "hosts": hosts,
        "patterns": found,
        "groups": groups,
        "everyone": everyone,
        "address": address,
        "environment": environment,
        "secrets": secrets,
    }


def _secrets(directory: Path, loader: Any) -> list[str]:
    """Every text of the inventory's variables that is encrypted, or whose name is a secret's."""
    from ansible.cli import CLI
    from ansible.errors import AnsibleError
    from ansible.parsing.vault import VaultLib

    files = [
        path
        for folder in ("group_vars", "host_vars")
        for path in sorted((directory / folder).rglob("*"))
        if path.is_file() and path.suffix in ("", ".yml", ".yaml", ".json") and not path.name.startswith(".")
    ]
    try:
        texts = {path: path.read_bytes() for path in files}
    except OSError as error:
        raise ColdironError(
            f"{shown_path(Path(error.filename))} cannot be read: {error.strerror}", ExitCode.ENVIRONMENT
        ) from None
    locked = [path for path, text in texts.items() if VaultLib.is_encrypted(text) or b"!vault" in text]
    said = io.StringIO()
    if locked:
        with contextlib.redirect_stderr(said):
            try:
                loader.set_vault_secrets(CLI.setup_vault_secrets(loader, vault_ids=[], auto_prompt=False))
            except AnsibleError as error:
                raise locked_out(directory, locked[0], _first(str(error))) from None
    found: set[str] = set()
    for path in files:
        try:
            data = loader.load_from_file(str(path), cache="none")
            found.update(secret_texts(data, path in locked and VaultLib.is_encrypted(texts[path])))
        except AnsibleError as error:
            if path in locked:
                raise locked_out(directory, path, "") from None
            raise ColdironError(f"{shown_path(path)}: {_first(str(error))}") from None
    return sorted(found)


def secret_texts(value: Any, secret: bool) -> set[str]:
    """Every text in ``value`` that is encrypted or named as a secret; all of them where ``secret``."""
    from ansible.parsing.vault import EncryptedString

    if isinstance(value, EncryptedString):
        return {str(value)}
    if isinstance(value, Mapping):
        return {
            text
            for name, item in value.items()
            for text in secret_texts(item, secret or is_secret_name(str(name)))
        }
    if isinstance(value, list | tuple):
        return {text for item in value for text in secret_texts(item, secret)}
    return {str(text) for text in leaves(value)} if secret else set()


def locked_out(directory: Path, file: Path, why: str = "") -> ColdironError:
    """The error of a vault ``file`` that does not open with what the inventory in ``directory`` has."""
    own = shown_path(directory / PASSWORD_FILE)
    there = os.path.exists(directory / PASSWORD_FILE)
    problem = (
        "does not open with this vault password" if there else f"needs a vault password, and {own} is missing"
    )
    return ColdironError(
        f"{shown_path(file)} {problem}{f' ({why})' if why and there else ''}; put the right one into {own}, "
        "or name its file in COLDIRON_VAULT_PASSWORD_FILE",
        ExitCode.ENVIRONMENT,
    )


def _first(text: str) -> str:
    """What an error of Ansible says, on one line."""
    return " ".join(text.split())[:400]


def main() -> None:
    """Answer one question: JSON in, JSON out; the words that Ansible has for a person go to standard error."""
    inventory = Path(sys.argv[sys.argv.index("-i") + 1])
    question = json.load(sys.stdin)
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = _look(inventory, question["limit"], question["patterns"])
        except ColdironError as error:
            answer = {"error": error.message, "code": int(error.exit_code)}
    json.dump(answer, out)


def has_cluster_file(inventory: Path) -> bool:
    """Whether ``inventory`` is, or holds, a cluster.yml; a hand-written inventory does not."""
    if inventory.is_dir():
        return any((inventory / name).exists() for name in FILE_NAMES)
    return inventory.name in FILE_NAMES


if __name__ == "__main__":
    main()
