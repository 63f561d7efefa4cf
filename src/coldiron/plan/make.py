"""The plan of a run: all findings, and the steps if there is a cluster to speak of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coldiron.inventory import Cluster, InventoryError, find, load
from coldiron.inventory.findings import shown_path
from coldiron.plan import options, placeholders, policy, vault
from coldiron.plan.checks import CHECKS
from coldiron.plan.data import Plan
from coldiron.plan.design import Design, run
from coldiron.plan.findings import ORDER, Finding, Severity, of_inventory, one_line
from coldiron.plan.pause import without_collector
from coldiron.plan.resolved import Resolved
from coldiron.plan.steps import steps
from coldiron.testing.stages import find_collection, read_plays


def make(
    inventory: Path, limit: Sequence[str] = (), password_file: Path | None = None, *, strict: bool = False
) -> Plan:
    """The plan of the inventory at ``inventory`` (its directory, or its cluster.yml). No node is contacted.

    ``limit`` narrows what a run would do and whose options are checked; the site is always looked at as a whole.
    ``strict`` lets warnings refuse. Raises ColdironError where there is no inventory at all, or no node within
    ``limit``.
    """
    plan = Plan(inventory, limit=tuple(limit), strict=strict)
    file = find(inventory)
    try:
        with without_collector():
            plan.cluster = load(file)
            plan.design = Design(plan.cluster)
            plan.findings = run(plan.design, CHECKS)
    except InventoryError as error:
        plan.findings = [of_inventory(finding) for finding in error.findings]
        plan.complete = False
        return plan
    _options(plan, plan.cluster, password_file)
    plan.findings.sort(key=lambda finding: ORDER.index(finding.severity))
    return plan


def _options(plan: Plan, cluster: Cluster, password_file: Path | None) -> None:
    """What there is to say of secrets and of the roles' options, and what a run would do."""
    from ansible.errors import AnsibleError

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
            limit=plan.limit,
        )
    except AnsibleError as error:
        plan.findings.append(_unresolved(cluster, error))
        plan.complete = False
        return
    plan.hosts = tuple(resolved.hosts("cluster"))
    plan.steps = steps(read_plays(playbooks / "site.yml"), resolved.hosts)
    broken = options.unreadable(resolved.files())
    plan.findings += broken
    if broken:
        plan.complete = False
        return
    plan.findings += placeholders.look(cluster.directory, resolved.files())
    if not secrets.locked:
        plan.findings += vault.missing(cluster, resolved.given(plan.hosts[0]))
    told = [] if plan.design is None else policy.check(plan.design, policy.of(plan.design, resolved))
    found = [*told, *(one for one in options.check(resolved) if not policy.told_already(one, told))]
    plan.findings += [finding.without(secrets.values) for finding in found]


def _unresolved(cluster: Cluster, error: Exception) -> Finding:
    message = one_line(str(getattr(error, "message", "") or error))
    return Finding("CR105", Severity.REFUSE, shown_path(cluster.directory), message, "mend the file it names")
