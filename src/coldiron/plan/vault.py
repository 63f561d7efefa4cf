"""The cluster's secrets as a plan sees them: whether they are there, open and sound. No value leaves here."""

from __future__ import annotations

import os
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path

from coldiron.errors import ColdironError
from coldiron.inventory import Cluster
from coldiron.inventory.findings import shown_path
from coldiron.plan.findings import Finding, Severity
from coldiron.plan.resolved import is_vault
from coldiron.secrets.password import find_password
from coldiron.secrets.table import CA_CERTIFICATE, CA_KEY, SECRETS, VAULT_FILE, check, make_missing

# What Ansible reads variables from.
_READ = ("", ".yml", ".yaml", ".json")


@dataclass
class Vault:
    """``password`` opens the vault files, if there are any and it is known; ``locked`` if it is not.

    ``values`` are all secrets in them: to look for, never to show.
    """

    findings: list[Finding] = field(default_factory=list)
    password: bytes | None = None
    locked: bool = False
    values: list[str] = field(default_factory=list)


def look(cluster: Cluster, password_file: Path | None = None) -> Vault:
    """Look at the secrets of ``cluster``'s inventory; ``password_file`` as `coldiron secrets` takes it."""
    vault = Vault()
    directory = cluster.directory
    files = [
        path
        for path in sorted(directory.glob("*_vars/**/*"))
        if path.is_file() and path.suffix in _READ and is_vault(path)
    ]
    own = directory / VAULT_FILE
    if not files and not own.exists():
        return vault
    where = shown_path(own if own.exists() else files[0])
    # Ansible takes its settings when it is imported: whoever plans may have to make them first.
    from coldiron.secrets.store import Store

    try:
        password = find_password(directory, password_file, os.environ, may_generate=False, new=False)
        for path in [own] * own.exists() + [path for path in files if path != own]:
            where = shown_path(path)
            values = Store(directory, password, path).values()
            vault.values += _leaves(values)
            vault.findings += [_placeholder(where, fault) for fault in check(values)]
    except ColdironError as error:
        what, _, advice = error.message.removeprefix(f"{where} ").partition("; ")
        vault.findings.append(Finding("CS101", Severity.REFUSE, where, what, advice))
        vault.locked = True
        return vault
    vault.password = password
    return vault


def stand_ins() -> dict[str, str]:
    """Secrets made up, in memory, in place of those that are not there: the rest can be checked with them."""
    return make_missing({})


def missing(cluster: Cluster, known: Container[str]) -> list[Finding]:
    """The finding about secrets that the cluster needs and that are not among the variables ``known``."""
    machines = any(node.bare_metal for node in cluster.nodes)
    monitored = cluster.features.monitoring != "none"
    logged = cluster.features.logging != "none"
    shown = cluster.features.dashboards != "none"
    looked_at = cluster.features.log_viewer != "none"
    needs = {
        "slurm": cluster.features.scheduler == "slurm",
        "machines": machines,
        "monitoring": monitored,
        "logging": logged,
        "dashboards": shown,
        "log_viewer": looked_at,
    }
    needed = [secret.key for secret in SECRETS if needs[secret.needed_for]]
    # Each node's certificate is the site's authority's.
    needed += [
        key
        for key in (CA_KEY, CA_CERTIFICATE)
        if (monitored or logged or shown or looked_at) and key not in needed
    ]
    names = [key for key in needed if key not in known]
    if not names:
        return []
    where = shown_path(cluster.directory / VAULT_FILE)
    advice = f"type: coldiron secrets init -i {shown_path(cluster.directory)}"
    if len(names) == len(needed):
        # A design is planned long before it is built; a run asks for them by itself.
        what = "the cluster has no secrets yet, which a run needs"
        return [Finding("CS102", Severity.WARN, where, what, advice)]
    return [Finding("CS102", Severity.REFUSE, where, f"no {', '.join(names)}", advice)]


def _placeholder(where: str, fault: str) -> Finding:
    what, _, advice = fault.partition("; ")
    return Finding("CS103", Severity.REFUSE, where, what, advice)


def _leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in _leaves(inner)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in _leaves(inner)]
    return [str(value)] if value is not None else []
