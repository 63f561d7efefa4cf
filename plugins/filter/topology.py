"""Filters that playbooks/group_vars/all/topology.yml builds roles' options with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def host_values(hosts: list[str], hostvars: Mapping[str, Mapping[str, Any]], *names: str) -> dict[str, Any]:
    """Map each host to the first of the inventory variables ``names`` that it has.

    Only inventory variables are read, never facts, so hosts outside ``--limit`` and unreachable ones count
    like any other.
    """
    values: dict[str, Any] = {}
    for host in hosts:
        variables = hostvars[host]
        for name in names:
            if name in variables:
                values[host] = variables[name]
                break
        else:
            raise AnsibleFilterError(
                f"host {host} has none of {', '.join(names)}: write one of them to the inventory"
            )
    return values


def records(addresses: Mapping[str, str], hosts: list[str]) -> list[dict[str, Any]]:
    """Return ``hosts`` as the records that role dns takes: name, address, no aliases."""
    return [{"name": host, "address": addresses[host], "aliases": []} for host in hosts]


def bmc_records(hostvars: Mapping[str, Mapping[str, Any]], hosts: list[str]) -> list[dict[str, Any]]:
    """Return the records of the management controllers that ``hosts`` have, each as NAME-bmc."""
    return [
        {"name": f"{host}-bmc", "address": hostvars[host]["coldiron_bmc_address"], "aliases": []}
        for host in hosts
        if hostvars[host].get("coldiron_bmc_address")
    ]


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"host_values": host_values, "records": records, "bmc_records": bmc_records}
