"""The plan of a run: all findings, and the steps if there is a cluster to speak of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldiron.inventory import Cluster, InventoryError, find, load
from coldiron.inventory.findings import shown_path
from coldiron.plan import options, vault
from coldiron.plan.findings import Finding, Severity, of_inventory, one_line
from coldiron.plan.resolved import Resolved, is_vault
from coldiron.plan.steps import Step, steps
from coldiron.testing.stages import find_collection, read_plays


@dataclass
class Plan:
    """``hosts`` are the nodes within the limit. ``complete``: everything could be looked at."""

    inventory: Path
    cluster: Cluster | None = None
    hosts: tuple[str, ...] = ()
    limit: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    complete: bool = True

    @property
    def refused(self) -> bool:
        """Whether a run must not begin."""
        return any(finding.severity is Severity.REFUSE for finding in self.findings)

    def as_data(self) -> dict[str, Any]:
        """The plan as JSON types."""
        return {
            "inventory": shown_path(self.inventory),
            "cluster": self.cluster.name if self.cluster else None,
            "limit": list(self.limit),
            "nodes": list(self.hosts),
            "refused": self.refused,
            "complete": self.complete,
            "findings": [finding.as_data() for finding in self.findings],
            "steps": [{"stage": s.stage, "role": s.role, "nodes": list(s.hosts)} for s in self.steps],
        }


def make(inventory: Path, limit: Sequence[str] = (), password_file: Path | None = None) -> Plan:
    """The plan of the inventory at ``inventory`` (its directory, or its cluster.yml). No node is contacted.

    Raises ColdironError where there is no inventory at all, or no node within ``limit``.
    """
    from ansible.errors import AnsibleError

    plan = Plan(inventory, limit=tuple(limit))
    file = find(inventory)
    try:
        cluster = plan.cluster = load(file)
    except InventoryError as error:
        plan.findings = [of_inventory(finding) for finding in error.findings]
        plan.complete = False
        return plan
    secrets = vault.look(cluster, password_file)
    plan.findings += secrets.findings
    playbooks = find_collection() / "playbooks"
    try:
        resolved = Resolved(
            cluster.directory,
            playbooks,
            password=secrets.password,
            locked=secrets.locked,
            stand_ins=vault.stand_ins(),
            limit=limit,
        )
    except AnsibleError as error:
        plan.findings.append(_unresolved(cluster, error))
        plan.complete = False
        return plan
    plan.hosts = tuple(resolved.hosts("cluster"))
    plan.steps = steps(read_plays(playbooks / "site.yml"), resolved.hosts)
    broken = options.unreadable(resolved.files())
    plan.findings += broken
    if broken:
        plan.complete = False
        return plan
    if not secrets.locked:
        plan.findings += vault.missing(cluster, resolved.given(plan.hosts[0]))
    plain = [path for path in resolved.files() if not is_vault(path)]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in plain]
    found = options.check(resolved, [*texts, secrets.text])
    plan.findings += [finding.without(secrets.values) for finding in found]
    return plan


def _unresolved(cluster: Cluster, error: Exception) -> Finding:
    message = one_line(str(getattr(error, "message", "") or error))
    return Finding("CR105", Severity.REFUSE, shown_path(cluster.directory), message, "mend the file it names")
