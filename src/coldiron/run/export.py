"""A private data directory for a bare ansible-runner: what a CI system, AWX or a cron job can run."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import yaml

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.run import survey
from coldiron.run.artifacts import ABOUT
from coldiron.run.catalog import SITE, Catalog
from coldiron.run.reducer import no_header
from coldiron.run.session import versions
from coldiron.run.store import DIRECTORY
from coldiron.secrets.password import PASSWORD_FILE

_VAULT_PROGRAM = f"""\
#!/bin/sh
# Prints the vault password: that of the file COLDIRON_VAULT_PASSWORD_FILE names, else the inventory's own.
cd "$(dirname "$0")" || exit 1
file="${{COLDIRON_VAULT_PASSWORD_FILE:-../inventory/{PASSWORD_FILE}}}"
[ -r "$file" ] || {{ echo "there is no vault password in $file: set COLDIRON_VAULT_PASSWORD_FILE" >&2; exit 1; }}
exec head -n 1 "$file"
"""
_CONFIG = """\
[defaults]
forks = 32
host_key_checking = true
inject_facts_as_vars = false
interpreter_python = /usr/bin/python3
nocows = true
timeout = 20
vault_password_file = ./vault-password

[inventory]
enable_plugins = coldiron.cluster.cluster, yaml, ini
any_unparsed_is_failed = true

[ssh_connection]
pipelining = true
ssh_args = -o ControlMaster=auto -o ControlPersist=120s
"""


def export(
    directory: Path, inventory: Path, *, limit: Sequence[str] = (), check: bool = False, copy: bool = False
) -> list[str]:
    """Write ``directory`` for ``inventory``; returns what a person may type then.

    Neither the vault password nor what coldiron recorded goes into a copy. Raises ColdironError.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ColdironError(f"{shown_path(directory)} is there already; name a new or an empty directory")
    catalog = Catalog()
    plays = catalog.plays([SITE])
    seen = survey.ask(inventory, limit, [play.hosts for play in plays])
    source = inventory if inventory.is_dir() else inventory.parent
    try:
        (directory / "project").mkdir(parents=True)
        (directory / "env").mkdir(mode=0o700)
        if copy:
            left_out = shutil.ignore_patterns(DIRECTORY, ".rack", PASSWORD_FILE, ".git")
            shutil.copytree(source, directory / "inventory", ignore=left_out)
        else:
            link = os.path.relpath(source.resolve(), directory.resolve())
            (directory / "inventory").symlink_to(link, target_is_directory=True)
        _write(directory / "project" / "ansible.cfg", _CONFIG)
        program = directory / "project" / "vault-password"
        _write(program, _VAULT_PROGRAM)
        program.chmod(0o755)
        _write(directory / "project" / "site.yml", catalog.one_playbook(catalog.stages))
        for stage in catalog.stages:
            _write(directory / "project" / f"{stage}.yml", catalog.one_playbook([stage]))
        flags = ["--diff", *(["--check"] if check else []), *(["--limit", ",".join(limit)] if limit else [])]
        _write(directory / "env" / "cmdline", " ".join(flags) + "\n")
        # Without this ansible-runner switches the check of host keys off, whatever ansible.cfg says.
        variables = {"ANSIBLE_HOST_KEY_CHECKING": "True", "ANSIBLE_NOCOLOR": "1"}
        _write(directory / "env" / "envvars", yaml.safe_dump(variables))
        header = no_header()
        header.verb, header.cluster, header.inventory = "apply", seen.cluster, str(inventory)
        header.plain = f"ansible-runner run {directory} -p site.yml"
        header.command = ["ansible-runner", "run", str(directory), "-p", "site.yml"]
        header.stages = list(dict.fromkeys(play.stage for play in plays))
        header.hosts, header.limit, header.check, header.diff = seen.hosts, list(limit), check, True
        header.versions = versions()
        takes_part = {
            stage: [
                host
                for host in seen.hosts
                if any(host in seen.patterns[play.hosts] for play in plays if play.stage == stage)
            ]
            for stage in header.stages
        }
        about = {
            "header": dataclasses.asdict(header),
            "plays": [{"name": play.name, "stage": play.stage} for play in plays],
            "takes_part": takes_part,
        }
        _write(directory / ABOUT, json.dumps(about, indent=1) + "\n")
    except OSError as error:
        raise ColdironError(
            f"{shown_path(directory)} cannot be written: {error.strerror or error}", ExitCode.ENVIRONMENT
        ) from None
    where = shown_path(directory)
    return [f"ansible-runner run {where} -p site.yml", f"coldiron report {where}"]


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
