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
    """Return ``hosts`` as roles take them: name and address."""
    return [{"name": host, "address": addresses[host]} for host in hosts]


def bmc_records(hostvars: Mapping[str, Mapping[str, Any]], hosts: list[str]) -> list[dict[str, Any]]:
    """Return the records of the management controllers that ``hosts`` have, each as NAME-bmc."""
    return [
        {"name": f"{host}-bmc", "address": hostvars[host]["coldiron_bmc_address"]}
        for host in hosts
        if hostvars[host].get("coldiron_bmc_address")
    ]


def distinct(hostvars: Mapping[str, Mapping[str, Any]], hosts: list[str], name: str) -> list[Any]:
    """Return the different values that ``hosts`` have of the inventory variable ``name``, sorted."""
    return sorted({hostvars[host][name] for host in hosts if hostvars[host].get(name)})


def workers(
    addresses: Mapping[str, str], hosts: list[str], hostvars: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return ``hosts`` as the nodes that role slurm_controller takes: name, address and declared hardware."""
    return [
        {"name": host, "address": addresses[host], "hardware": hardware}
        for host, hardware in host_values(hosts, hostvars, "coldiron_hardware").items()
    ]


def database_users(
    addresses: Mapping[str, str], clients: list[str], server: str, password: str
) -> list[dict[str, Any]]:
    """Return slurmdbd's database users on ``server``: one for each host in ``clients``."""
    return [
        {
            "name": "slurm",
            "host": "localhost" if client == server else addresses[client],
            "password": password,
            "privileges": "slurm_acct_db.*:ALL",
        }
        for client in clients
    ]


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "bmc_records": bmc_records,
            "database_users": database_users,
            "distinct": distinct,
            "host_values": host_values,
            "records": records,
            "workers": workers,
        }
