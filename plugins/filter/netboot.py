"""Filters of role netboot: what its options come to, and what speaks against them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from ansible.errors import AnsibleFilterError

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def netboot_range(subnet: str) -> dict[str, str]:
    """Return a subnet as dnsmasq's dhcp-range takes it: its ``first`` address, which is its name, and its ``mask``."""
    try:
        network = IPv4Network(subnet)
    except ValueError as error:
        raise AnsibleFilterError(f"{subnet} is no subnet in CIDR notation: {error}") from error
    return {"first": str(network.network_address), "mask": str(network.netmask)}


def netboot_problems(
    machines: Sequence[Mapping[str, Any]],
    subnets: Sequence[Mapping[str, Any]],
    dhcp: str,
    mirrors: Sequence[Mapping[str, Any]] = (),
) -> list[str]:
    """Return what an argument spec cannot say of role netboot's options, a sentence each."""
    problems: list[str] = []
    networks = [
        network for one in subnets if (network := _network(one["subnet"], "netboot_subnets", problems))
    ]
    for mirror in mirrors:
        _network(mirror["subnet"], "netboot_mirrors", problems)
    if dhcp != "none" and machines and not subnets:
        problems.append("netboot_subnets is empty: no machine would be answered; write the machines' subnet.")
    seen: dict[str, str] = {}
    for machine in machines:
        name, mac, address = machine["name"], str(machine["mac"]).lower(), str(machine["address"])
        if not _MAC.fullmatch(mac):
            problems.append(f"{name} has mac {mac}, which is none; write it as 02:00:00:00:00:01.")
        for what in (mac, address):
            if seen.setdefault(what, name) != name:
                problems.append(f"{name} and {seen[what]} both have {what}; a machine is known by it.")
        try:
            inside = any(IPv4Address(address) in network for network in networks)
        except ValueError:
            problems.append(f"{name} has address {address}, which is no IPv4 address.")
            continue
        if dhcp == "serve" and networks and not inside:
            problems.append(f"{name} has address {address}, which is in none of netboot_subnets.")
    return problems


def _network(subnet: Any, option: str, problems: list[str]) -> IPv4Network | None:
    try:
        return IPv4Network(str(subnet))
    except ValueError as error:
        problems.append(f"{option} has {subnet}, which is no subnet: {error}.")
        return None


def netboot_machines(machines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return those of ``machines`` whose hardware address is known, with what role netboot takes of them."""
    return [
        {"name": one["name"], "mac": one["mac"], "address": one["address"]} for one in machines if one["mac"]
    ]


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "netboot_machines": netboot_machines,
            "netboot_problems": netboot_problems,
            "netboot_range": netboot_range,
        }
