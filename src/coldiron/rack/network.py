"""A rack's network: one bridge with the gateway's address, one cable a node, nothing that leaves the host."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.host import Host

NODE_INTERFACE = "eth0"
_DEFAULT_MTU = 1500


@dataclass(frozen=True)
class Route:
    """A destination that the host already reaches, and through which interface."""

    network: IPv4Network
    interface: str


def parse_links(text: str) -> dict[str, dict[str, Any]]:
    """Interfaces by name, from ``ip -json link``."""
    return {link["ifname"]: link for link in json.loads(text or "[]") if link}


def parse_routes(text: str) -> list[Route]:
    """Routes of all tables but the default one, from ``ip -json route show table all``."""
    routes = []
    for route in json.loads(text or "[]"):
        destination = route.get("dst", "default")
        if destination == "default" or ":" in destination or route.get("type") in {"multicast", "broadcast"}:
            continue
        routes.append(Route(IPv4Network(destination, strict=False), route.get("dev", "?")))
    return routes


def uplink_mtu(routes: str, links: str) -> int:
    """The MTU in bytes of the interface that the default route leaves by; 1500 where there is none."""
    for route in json.loads(routes or "[]"):
        if route.get("dst") == "default":
            return int(parse_links(links).get(route.get("dev", ""), {}).get("mtu", _DEFAULT_MTU))
    return _DEFAULT_MTU


def overlap(subnet: IPv4Network, routes: list[Route], own: str) -> Route | None:
    """The first route, not our own bridge's, into which ``subnet`` reaches."""
    for route in routes:
        if route.interface not in {own, "lo"} and route.network.overlaps(subnet):
            return route
    return None


def bridge_commands(bridge: str, alias: str, address: IPv4Interface, mtu: int) -> str:
    """``ip -batch`` input that makes the bridge. No spanning tree: ports forward at once."""
    return (
        f"link add name {bridge} mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n"
        f"link set dev {bridge} alias {alias}\n"
        f"addr add {address} dev {bridge}\n"
        f"link set dev {bridge} up\n"
    )


@dataclass(frozen=True)
class Cable:
    """A node's way into the bridge: its namespace, both ends, its addresses, and what else is on the bridge."""

    netns: str
    veth: str
    mac: str
    address: IPv4Interface
    beyond: tuple[str, ...] = ()


def cable_commands(bridge: str, cable: Cable, mtu: int) -> str:
    """``ip -batch`` input for the host's side of a node: its namespace and its cable into the bridge."""
    return (
        f"netns add {cable.netns}\n"
        f"link add name {cable.veth} mtu {mtu} master {bridge} up type veth "
        f"peer name {NODE_INTERFACE} address {cable.mac} mtu {mtu} netns {cable.netns}\n"
    )


def node_commands(address: IPv4Interface, beyond: Sequence[str] = ()) -> str:
    """``ip -batch`` input for the node's side. No default route: what is not in the rack fails at once.

    ``beyond`` are addresses on the bridge that are in another subnet, such as the BMCs'.
    """
    others = [one for one in beyond if IPv4Address(one) not in address.network]
    return (
        "link set dev lo up\n"
        f"addr add {address} brd + dev {NODE_INTERFACE}\n"
        f"link set dev {NODE_INTERFACE} up\n"
        + "".join(f"route add {one}/32 dev {NODE_INTERFACE}\n" for one in others)
    )  # fmt: skip


class Network:
    """The host's network, as far as racks go."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def links(self) -> dict[str, dict[str, Any]]:
        return parse_links(self.host.run(["ip", "-json", "link", "show"]).stdout)

    def mtu(self) -> int:
        """The MTU that traffic leaves this host with, in bytes."""
        routes = self.host.run(["ip", "-4", "-json", "route", "show"]).stdout
        return uplink_mtu(routes, self.host.run(["ip", "-json", "link", "show"]).stdout)

    def refuse_overlap(self, subnet: IPv4Network, own: str, where: str) -> None:
        """Raise ColdironError if the host already reaches part of ``subnet`` in some other way."""
        text = self.host.run(["ip", "-4", "-json", "route", "show", "table", "all"]).stdout
        if taken := overlap(subnet, parse_routes(text), own):
            raise ColdironError(
                f"{where}: subnet {subnet} of networks.cluster meets {taken.network}, which this machine has "
                f"on {taken.interface}; write another subnet",
                ExitCode.REFUSED,
            )

    def make_bridge(self, bridge: str, alias: str, address: IPv4Interface, mtu: int) -> None:
        commands = bridge_commands(bridge, alias, address, mtu)
        self.host.run(["ip", "-batch", "-"], stdin=commands, what=f"bridge {bridge}")

    def connect(self, bridge: str, cable: Cable, mtu: int) -> None:
        """Give a node its namespace, its cable and its address."""
        commands = cable_commands(bridge, cable, mtu)
        self.host.run(["ip", "-batch", "-"], stdin=commands, what=f"cable {cable.veth}")
        inside = ["ip", "-n", cable.netns, "-batch", "-"]
        self.host.run(
            inside, stdin=node_commands(cable.address, cable.beyond), what=f"address {cable.address}"
        )

    def remove_link(self, name: str) -> None:
        """Remove an interface if it is there."""
        if name in self.links():
            # It may go by itself in between: a namespace's end takes its cable along.
            self.host.run(["ip", "link", "delete", "dev", name], check=False)

    def remove_netns(self, name: str) -> None:
        self.host.run(["ip", "netns", "delete", name], check=False)
