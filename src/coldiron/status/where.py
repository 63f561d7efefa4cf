"""Which servers watch over an inventory's cluster, and how they are spoken to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError
from coldiron.inventory.findings import shown_path
from coldiron.status.client import Source
from coldiron.testing.site import Site

#: Who looks for people, in the servers' lists of users.
_PERSON = "coldiron"


@dataclass(frozen=True)
class Watch:
    """A cluster, its nodes in the inventory's order, and its servers."""

    cluster: str
    nodes: list[str]
    prometheus: Source
    alertmanager: Source | None


def watch_of(inventory: Path) -> Watch:
    """Return what watches over the cluster of ``inventory``, as the roles' options say it.

    Raises ColdironError where it has no Prometheus, or its secrets cannot be opened.
    """
    # Ansible looks for what is relative beside the playbooks.
    site = Site((inventory.resolve(),))
    hosts = site.hosts_of_role("prometheus")
    if not hosts:
        where = shown_path(inventory)
        raise ColdironError(
            f"{where} has no Prometheus to ask: write `monitoring: prometheus` to features in cluster.yml, "
            f"then coldiron apply -i {where}"
        )
    names = site.hosts()
    cluster = (
        next((str(site.hostvars(name).get("coldiron_cluster") or "") for name in names), "") or "cluster"
    )
    managers = site.hosts_of_role("alertmanager")
    return Watch(
        cluster,
        names,
        source(site, hosts[0], "prometheus"),
        source(site, managers[0], "alertmanager") if managers else None,
    )


def source(site: Site, host: str, role: str) -> Source:
    """How the server of ``role`` on ``host`` is spoken to."""

    def option(name: str) -> Any:
        return site.resolve(host, role, f"{role}_{name}")

    users: Mapping[str, str] = option("users") or {}
    user = _PERSON if _PERSON in users else next(iter(users), "")
    certificate = str.__str__(option("tls_certificate"))
    # The nodes' certificates are of the site's own authority.
    authority = str.__str__(site.resolve(host, None, "coldiron_ca_certificate")) if certificate else ""
    return Source(
        address=f"{'https' if certificate else 'http'}://{option('address')}:{option('port')}",
        ca=authority,
        user=user,
        password=str.__str__(users[user]) if user else "",
    )
