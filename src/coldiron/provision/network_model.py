"""A node's network as data: what may be said of it, and what is wrong with what was said.

An interface is a card, found by its MAC, a bond of cards, or a VLAN on one of these. Everything else (which file,
which daemon) is ``network``'s to render.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Any, Literal, get_args

from coldiron.errors import ColdironError, ExitCode

Kind = Literal["ethernet", "bond", "vlan"]
Match = Literal["permanent", "current"]
Mode = Literal[
    "active-backup", "802.3ad", "balance-xor", "balance-rr", "broadcast", "balance-tlb", "balance-alb"
]
Address = IPv4Address | IPv6Address
AddressInside = IPv4Interface | IPv6Interface
Subnet = IPv4Network | IPv6Network

KINDS: tuple[str, ...] = get_args(Kind)
MODES: tuple[str, ...] = get_args(Mode)
MATCHES: tuple[str, ...] = get_args(Match)
# IFNAMSIZ is 16 with the closing zero; the signs are those that every backend takes unquoted in a file's name.
NAME = re.compile(r"[a-z][a-z0-9_.-]{0,14}")
MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
# IPv6 wants 1280 (RFC 8200), IPv4 576; no common card does more than 9216.
MTU_LEAST, MTU_MOST = 576, 9216
METRIC_MOST = 4_294_967_295

_SPEC_KEYS = ("interfaces", "resolvers", "search", "match")
_KEYS: dict[str, tuple[str, ...]] = {
    "ethernet": ("mac",),
    "bond": ("members", "mode", "mac", "monitor_ms"),
    "vlan": ("parent", "vlan"),
}
_COMMON_KEYS = ("name", "kind", "addresses", "gateway", "metric", "mtu", "routes", "required")
_ROUTE_KEYS = ("to", "via", "metric")


@dataclass(frozen=True)
class Route:
    """A way to the network ``to`` by the address ``via``. ``metric`` None leaves the choice to the kernel."""

    to: Subnet
    via: Address
    metric: int | None = None


@dataclass(frozen=True)
class Interface:
    """One interface. ``mtu`` in bytes, None for as it is; ``monitor_ms`` is how often a bond looks at its links.

    ``mac`` finds a card, and is what a bond answers by. ``required``: a boot waits for it.
    """

    name: str
    kind: Kind
    mac: str = ""
    addresses: tuple[AddressInside, ...] = ()
    gateway: Address | None = None
    metric: int | None = None
    mtu: int | None = None
    routes: tuple[Route, ...] = ()
    required: bool = True
    members: tuple[str, ...] = ()
    mode: str = "active-backup"
    monitor_ms: int = 100
    parent: str = ""
    vlan: int = 0


@dataclass(frozen=True)
class Spec:
    """A node's whole network. ``match``: cards are found by their burnt-in MAC, or by the one they have now."""

    interfaces: tuple[Interface, ...]
    resolvers: tuple[Address, ...] = ()
    search: tuple[str, ...] = ()
    match: Match = "permanent"

    def master_of(self, name: str) -> str:
        """The bond that the interface is a member of; empty where it is none's."""
        return next((one.name for one in self.interfaces if name in one.members), "")

    def vlans_on(self, name: str) -> list[Interface]:
        """The VLANs on an interface, in the spec's order."""
        return [one for one in self.interfaces if one.kind == "vlan" and one.parent == name]

    def speaker(self) -> str:
        """The interface that name servers are told at: the one with the gateway, else the first with an address."""
        ways = [one.name for one in self.interfaces if one.gateway] or [
            one.name for one in self.interfaces if one.addresses
        ]
        return ways[0] if ways else ""


class _Reader:
    """Reads a spec and keeps what is wrong, so that a person is told all of it at once."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def spec(self, data: Mapping[str, Any]) -> Spec:
        self.keys("network", data, _SPEC_KEYS)
        given = self.items("interfaces", data.get("interfaces"))
        if not given:
            self.wrong.append("interfaces: is empty; write at least the one that the node is reached by")
        match = str(data.get("match") or "permanent")
        self.choice("match", match, MATCHES)
        interfaces = [one for number, item in enumerate(given, 1) if (one := self.interface(number, item))]
        resolvers = [
            found for text in self.items("resolvers", data.get("resolvers"))
            if (found := self.address(f"resolvers: {text}", text))
        ]  # fmt: skip
        search = [str(text) for text in self.items("search", data.get("search"))]
        self.wrong += [f"search: {name!r} is no domain" for name in search if not DOMAIN.fullmatch(name)]
        spec = Spec(
            tuple(interfaces),
            tuple(resolvers),
            tuple(search),
            "current" if match == "current" else "permanent",
        )
        if not self.wrong:
            self.wrong += list(_contradictions(spec))
        # What was written may have broken lines in it.
        self.wrong = [" ".join(sentence.split()) for sentence in self.wrong]
        return spec

    def interface(self, number: int, item: object) -> Interface | None:
        if not isinstance(item, Mapping):
            self.wrong.append(f"interfaces: item {number} is no mapping; write {{name: …, mac: …}}")
            return None
        data = {key: value for key, value in item.items() if value is not None}
        name, kind = str(data.get("name", "")), str(data.get("kind", "ethernet"))
        where = name or f"interfaces: item {number}"
        if not NAME.fullmatch(name):
            self.wrong.append(
                f"{where}: `name` wants a letter and up to 14 letters, digits, dots or dashes, in lower case"
            )
            return None
        if not self.choice(f"{where}: kind", kind, KINDS):
            return None
        self.keys(where, data, (*_COMMON_KEYS, *_KEYS[kind]), what=f" of kind {kind}")
        addresses = [
            found for text in self.items(f"{where}: addresses", data.get("addresses"))
            if (found := self.inside(where, text))
        ]  # fmt: skip
        routes = [
            route for entry in self.items(f"{where}: routes", data.get("routes"))
            if (route := self.route(where, entry))
        ]  # fmt: skip
        gateway = self.address(f"{where}: gateway", data["gateway"]) if data.get("gateway") else None
        mode = str(data.get("mode", "active-backup"))
        self.choice(f"{where}: mode", mode, MODES)
        one = Interface(
            name=name,
            kind="bond" if kind == "bond" else "vlan" if kind == "vlan" else "ethernet",
            mac=self.mac(where, data.get("mac"), needed=kind == "ethernet"),
            addresses=tuple(addresses),
            gateway=gateway,
            metric=self.number(f"{where}: metric", data.get("metric"), 0, METRIC_MOST),
            mtu=self.number(f"{where}: mtu", data.get("mtu"), MTU_LEAST, MTU_MOST),
            routes=tuple(routes),
            required=data.get("required", True) is not False,
            members=tuple(str(one) for one in self.items(f"{where}: members", data.get("members"))),
            mode=mode,
            monitor_ms=self.number(f"{where}: monitor_ms", data.get("monitor_ms"), 1, 10_000) or 100,
            parent=str(data.get("parent", "")),
            vlan=self.number(f"{where}: vlan", data.get("vlan"), 1, 4094) or 0,
        )
        if kind == "vlan" and not one.vlan and "vlan" not in data:
            self.wrong.append(f"{where}: has no `vlan`; write its number, 1 to 4094")
        return one

    def keys(self, where: str, data: Mapping[str, Any], known: Sequence[str], what: str = "") -> None:
        for key in data:
            if key not in known:
                self.wrong.append(f"{where}: `{key}` is no key{what}; there are {', '.join(known)}")

    def choice(self, where: str, value: str, known: Sequence[str]) -> bool:
        if value not in known:
            self.wrong.append(f"{where}: {value!r}; write one of {', '.join(known)}")
        return value in known

    def items(self, where: str, value: object) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, (list, tuple)):
            self.wrong.append(f"{where}: wants a list, in brackets or with dashes")
            return []
        return list(value)

    def number(self, where: str, value: object, least: int, most: int) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not re.fullmatch(r"[0-9]+", str(value)):
            self.wrong.append(f"{where}: {value!r} is no number")
            return None
        found = int(str(value))
        if not least <= found <= most:
            self.wrong.append(f"{where}: {found} is not within {least} to {most}")
            return None
        return found

    def mac(self, where: str, value: object, needed: bool) -> str:
        text = str(value or "").lower().replace("-", ":")
        if not text and not needed:
            return ""
        if not MAC.fullmatch(text):
            said = f"{text!r} is no MAC" if text else "has no `mac`, and a card is never guessed"
            self.wrong.append(f"{where}: {said}; write six pairs, such as 52:54:00:12:34:56")
        return text

    def address(self, where: str, value: object) -> Address | None:
        try:
            return ip_address(str(value))
        except ValueError:
            self.wrong.append(f"{where}: {str(value)!r} is no address")
            return None

    def inside(self, where: str, value: object) -> AddressInside | None:
        text = str(value)
        try:
            if "/" not in text:
                raise ValueError
            found = ip_interface(text)
        except ValueError:
            self.wrong.append(f"{where}: {text!r} is no address with its prefix, such as 10.77.0.31/24")
            return None
        ends = {found.network.network_address, found.network.broadcast_address}
        if found.version == 4 and found.network.prefixlen < 31 and found.ip in ends:
            self.wrong.append(f"{where}: {text} is its subnet's own address, no host's")
        return found

    def route(self, where: str, item: object) -> Route | None:
        if not isinstance(item, Mapping):
            self.wrong.append(f"{where}: a route is a mapping: {{to: 10.9.0.0/16, via: 10.77.0.254}}")
            return None
        self.keys(f"{where}: routes", item, _ROUTE_KEYS)
        via = self.address(f"{where}: routes: via", item.get("via", ""))
        try:
            to: Subnet | None = ip_network(str(item.get("to", "")))
        except ValueError:
            self.wrong.append(
                f"{where}: routes: to: {str(item.get('to', ''))!r} is no network; write its first address "
                "and prefix, such as 10.9.0.0/16"
            )
            to = None
        metric = self.number(f"{where}: routes: metric", item.get("metric"), 0, METRIC_MOST)
        if to is None or via is None:
            return None
        if to.version != via.version:
            self.wrong.append(f"{where}: routes: {to} cannot be reached by {via}, of another IP version")
        if to.prefixlen == 0:
            self.wrong.append(f"{where}: routes: {to} is the default route; write it as `gateway`")
        return Route(to, via, metric)


def _contradictions(spec: Spec) -> Iterable[str]:
    by_name: dict[str, Interface] = {}
    for one in spec.interfaces:
        if one.name in by_name:
            yield f"{one.name}: is there twice; names are for one interface each"
        by_name[one.name] = one
    yield from _twice("MAC", ((one.mac, one.name) for one in spec.interfaces if one.kind == "ethernet"))
    yield from _twice("address", ((str(at.ip), one.name) for one in spec.interfaces for at in one.addresses))
    for one in spec.interfaces:
        if one.kind == "bond":
            yield from _bond(one, by_name, spec)
        elif one.kind == "vlan":
            yield from _vlan(one, by_name, spec)
        yield from _ways(one)
    yield from _twice("bond member", ((name, one.name) for one in spec.interfaces for name in one.members))
    yield from _overlaps(spec.interfaces)
    yield from _defaults(spec.interfaces)


def _twice(what: str, pairs: Iterable[tuple[str, str]]) -> Iterable[str]:
    seen: dict[str, str] = {}
    for value, name in pairs:
        if value in seen:
            yield f"{name}: {what} {value} is {seen[value]}'s already"
        seen.setdefault(value, name)


def _bond(bond: Interface, by_name: Mapping[str, Interface], spec: Spec) -> Iterable[str]:
    if not bond.members:
        yield f"{bond.name}: a bond without members; list the names of its cards"
    if spec.match == "current":
        yield f"{bond.name}: members of a bond change their MAC: match must be `permanent`"
    for name in bond.members:
        member = by_name.get(name)
        if member is None or member.kind != "ethernet":
            said = "is no interface here" if member is None else f"is a {member.kind}"
            yield f"{bond.name}: member {name} {said}; members are interfaces of kind ethernet"
            continue
        if member.addresses or member.gateway or member.routes:
            yield f"{name}: is a member of {bond.name}, which has the addresses and routes; write them there"
        if spec.vlans_on(name):
            yield f"{name}: is a member of {bond.name}; put VLAN {spec.vlans_on(name)[0].name} on {bond.name}"
        if member.mtu is not None and member.mtu != bond.mtu:
            yield f"{name}: MTU {member.mtu}, but {bond.name} gives its members its own; write it there"


def _vlan(vlan: Interface, by_name: Mapping[str, Interface], spec: Spec) -> Iterable[str]:
    parent = by_name.get(vlan.parent)
    if parent is None or parent.kind == "vlan":
        said = f"{vlan.parent} is a VLAN itself" if parent else f"there is no interface {vlan.parent!r}"
        yield f"{vlan.name}: {said}; `parent` names the card or bond that it is on"
        return
    same = [other.name for other in spec.vlans_on(vlan.parent) if other.vlan == vlan.vlan]
    if same[0] != vlan.name:
        yield f"{vlan.name}: VLAN {vlan.vlan} is on {vlan.parent} already, as {same[0]}"
    if vlan.mtu is not None and vlan.mtu > (parent.mtu or 1500):
        had = f"{parent.mtu}" if parent.mtu else "1500, as none is written"
        yield f"{vlan.name}: MTU {vlan.mtu} is more than its parent {parent.name} has ({had})"


def _ways(one: Interface) -> Iterable[str]:
    """What an interface says of gateways: they must be in one of its own subnets, and not the node itself."""
    said = [("gateway", one.gateway)] if one.gateway else []
    said += [(f"route to {route.to}", route.via) for route in one.routes]
    for what, via in said:
        own = [at for at in one.addresses if via in at.network]
        if not own:
            inside = ", ".join(str(at.network) for at in one.addresses) or "no address"
            yield f"{one.name}: {what}: {via} is outside its subnet ({inside})"
        elif any(at.ip == via for at in own):
            yield f"{one.name}: {what}: {via} is the node's own address"


def _overlaps(interfaces: Sequence[Interface]) -> Iterable[str]:
    known = [(one, at) for one in interfaces for at in one.addresses]
    for number, (one, at) in enumerate(known):
        for other, there in known[:number]:
            if one.name != other.name and at.version == there.version and at.network.overlaps(there.network):
                yield (
                    f"{one.name}: {at.network} overlaps {there.network} of {other.name}: "
                    "answers would leave by the wrong one"
                )


def _defaults(interfaces: Sequence[Interface]) -> Iterable[str]:
    seen: dict[tuple[int, int | None], str] = {}
    for one in interfaces:
        if one.gateway is None:
            continue
        key = (one.gateway.version, one.metric)
        if key in seen:
            yield f"{one.name}: {seen[key]} has a gateway already; leave one, or give each its `metric`"
        seen.setdefault(key, one.name)


def problems(data: Mapping[str, Any]) -> list[str]:
    """What is wrong with a spec, a sentence each; empty where nothing is."""
    reader = _Reader()
    reader.spec(data)
    return reader.wrong


def parse(data: Mapping[str, Any]) -> Spec:
    """The spec that ``data`` says. Raises ColdironError (bad input) with all that is wrong, in one line."""
    reader = _Reader()
    spec = reader.spec(data)
    if reader.wrong:
        raise ColdironError("network: " + "; ".join(reader.wrong), ExitCode.USAGE)
    return spec
