"""A node's network as the files of the daemon that its distribution has.

    render({"interfaces": [{"name": "lan", "mac": "52:54:00:12:34:56", "addresses": ["10.77.0.31/24"],
                            "gateway": "10.77.0.254"}]}, "networkd")

returns paths and texts; ``mode_of`` is how each is to be readable. Cards are found by their MAC alone.

Sources: systemd.network(5), systemd.netdev(5), netplan's reference of its YAML, nm-settings-keyfile(5).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import yaml

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision.network_model import Address, Interface, Spec, parse

Backend = Literal["networkd", "netplan", "networkmanager"]
BACKENDS: tuple[str, ...] = get_args(Backend)

HEADER = "# Written by coldiron (network). Changes are lost on the next run.\n"
NETWORKD = "/etc/systemd/network"
NETPLAN = "/etc/netplan/90-coldiron.yaml"
KEYFILES = "/etc/NetworkManager/system-connections"
# What is ours among the files of a node, and nothing else is ever removed.
OWNED: dict[str, tuple[str, ...]] = {
    "networkd": (f"{NETWORKD}/[12]0-coldiron-*.netdev", f"{NETWORKD}/[12]0-coldiron-*.network"),
    "netplan": (NETPLAN,),
    "networkmanager": (f"{KEYFILES}/coldiron-*.nmconnection",),
}
# By distribution, as cluster.yml writes it before the dash.
OF_DISTRIBUTION: dict[str, Backend] = {
    "debian": "networkd",
    "ubuntu": "netplan",
    "rocky": "networkmanager",
    "rhel": "networkmanager",
    "alma": "networkmanager",
}
# A connection's UUID follows from its name, so that what refers to it needs no look at the node.
_NAMESPACE = uuid.UUID("6c3f2d1e-98a4-5b0c-8d35-0c01d1f00006")


def backend_of(distribution: str) -> Backend:
    """The daemon of a distribution such as ``debian-13``. Raises ColdironError for one that is not known."""
    name = distribution.partition("-")[0]
    if name not in OF_DISTRIBUTION:
        known = ", ".join(OF_DISTRIBUTION)
        raise ColdironError(
            f"network: nothing is known of {distribution!r}; there are {known}", ExitCode.USAGE
        )
    return OF_DISTRIBUTION[name]


def render(spec: Mapping[str, Any], backend: str) -> dict[str, str]:
    """The files for ``spec``: their text by their path. Raises ColdironError (bad input) with all that is wrong."""
    if backend not in BACKENDS:
        raise ColdironError(
            f"network: backend {backend!r}; write one of {', '.join(BACKENDS)}", ExitCode.USAGE
        )
    known = parse(spec)
    if known.match == "current" and backend == "networkmanager":
        raise ColdironError(
            "network: NetworkManager finds a card by its burnt-in MAC only; write match: permanent",
            ExitCode.USAGE,
        )
    if backend == "networkd":
        return _networkd(known)
    return _netplan(known) if backend == "netplan" else _keyfiles(known)


def mode_of(backend: str) -> str:
    """The files' mode, in octal digits. netplan and NetworkManager want theirs for root's eyes."""
    return "0644" if backend == "networkd" else "0600"


def wanted_state(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the kernel shall say of each interface, in plain JSON types; ``files`` holds what concerns it."""
    known = parse(spec)
    return [
        {
            "name": one.name,
            "kind": one.kind,
            "mac": one.mac,
            "match": known.match,
            "addresses": [str(at) for at in one.addresses],
            "gateway": str(one.gateway or ""),
            "metric": one.metric,
            "mtu": one.mtu or _mtu_of_bond(known, one.name),
            "routes": [{"to": str(way.to), "via": str(way.via), "metric": way.metric} for way in one.routes],
            "members": list(one.members),
            "mode": one.mode if one.kind == "bond" else "",
            "bond": known.master_of(one.name),
            "parent": one.parent,
            "vlan": one.vlan,
        }
        for one in known.interfaces
    ]


def interfaces_of(
    address: str,
    networks: Mapping[str, Mapping[str, Any]],
    addresses: Mapping[str, str] | None = None,
    mac: str = "",
    cards: Mapping[str, Sequence[str]] | None = None,
    mode: str = "active-backup",
) -> list[dict[str, Any]]:
    """The interfaces that an inventory describes: one for each network whose cards are known.

    ``address`` and ``mac`` are the node's on the network ``cluster``; ``addresses`` its others by the network's
    name; ``networks`` as in cluster.yml. ``cards`` names MACs by network where there are others, or several: two or
    more are a bond in ``mode``. A network with ``port_of`` is a VLAN on that network's card or bond. The gateway of
    ``cluster`` is the node's way out; other networks have none. What has neither card nor ``port_of`` is left out.
    """
    macs: dict[str, list[str]] = {"cluster": [mac] if mac else []}
    macs |= {name: list(found) for name, found in (cards or {}).items() if found}
    own = {"cluster": address, **(addresses or {})}
    found: list[dict[str, Any]] = []
    carrier: dict[str, str] = {}
    for name in own:
        here = macs.get(name) or []
        if name not in networks or not here:
            continue
        base = _label(name)
        if len(here) == 1:
            carrier[name] = base
            found.append({"name": base, "mac": here[0]})
        else:
            carrier[name] = f"bond{sum(1 for one in found if one.get('kind') == 'bond')}"
            members = [f"{base}{number}" for number in range(len(here))]
            found += [{"name": one, "mac": at} for one, at in zip(members, here, strict=True)]
            found.append({"name": carrier[name], "kind": "bond", "members": members, "mode": mode})
        found[-1] |= _on(name, own[name], networks[name])
    for name, at in own.items():
        parent = carrier.get(str(networks.get(name, {}).get("port_of") or ""))
        number = networks.get(name, {}).get("vlan")
        if name in carrier or parent is None or not number:
            continue
        vlan = {"name": f"vlan{number}", "kind": "vlan", "parent": parent, "vlan": number}
        found.append(vlan | _on(name, at, networks[name]))
    return found


def _label(network: str) -> str:
    """A network's name as an interface's: shorter, so that a number fits behind it."""
    return network.lower().replace("_", "-")[:12]


def _on(name: str, address: str, network: Mapping[str, Any]) -> dict[str, Any]:
    prefix = str(network["subnet"]).partition("/")[2]
    found: dict[str, Any] = {"addresses": [f"{address}/{prefix}"]}
    if network.get("mtu"):
        found["mtu"] = network["mtu"]
    gateway = network.get("gateway")
    # A node may be the gateway itself.
    if name == "cluster" and gateway and gateway != address:
        found["gateway"] = gateway
    return found


def _mtu_of_bond(spec: Spec, name: str) -> int | None:
    master = spec.master_of(name)
    return next((one.mtu for one in spec.interfaces if one.name == master), None) if master else None


def _mac_of(spec: Spec, bond: Interface) -> str:
    """What a bond answers by: its first card's MAC, so that DHCP and switches know it before and after."""
    return bond.mac or next(one.mac for one in spec.interfaces if one.name == bond.members[0])


# ---- systemd-networkd


def _section(name: str, *lines: str) -> str:
    body = [line for line in lines if line]
    return f"\n[{name}]\n" + "".join(f"{line}\n" for line in body) if body else ""


def _networkd(spec: Spec) -> dict[str, str]:
    files: dict[str, str] = {}
    for one in spec.interfaces:
        if one.kind != "ethernet":
            files[f"{NETWORKD}/10-coldiron-{one.name}.netdev"] = _netdev(spec, one)
        # The first file that matches wins: bonds and VLANs, which carry a card's MAC, before the cards.
        number = 20 if one.kind == "ethernet" else 10
        files[f"{NETWORKD}/{number}-coldiron-{one.name}.network"] = _network(spec, one)
    return files


def _netdev(spec: Spec, one: Interface) -> str:
    head = [f"Name={one.name}", f"Kind={one.kind}"]
    if one.kind == "bond":
        head.append(f"MACAddress={_mac_of(spec, one)}")
    # The MTU is the .network's to say: what changes here wants the interface made anew.
    text = HEADER + _section("NetDev", *head)
    if one.kind == "vlan":
        return text + _section("VLAN", f"Id={one.vlan}")
    lacp = one.mode == "802.3ad"
    hashed = one.mode in ("802.3ad", "balance-xor")
    return text + _section(
        "Bond",
        f"Mode={one.mode}",
        f"MIIMonitorSec={one.monitor_ms}ms",
        "LACPTransmitRate=fast" if lacp else "",
        "TransmitHashPolicy=layer3+4" if hashed else "",
    )


def _network(spec: Spec, one: Interface) -> str:
    master = spec.master_of(one.name)
    if one.kind != "ethernet":
        match = f"Name={one.name}"
    elif spec.match == "permanent":
        # A member of a bond has the bond's MAC; the burnt-in one stays its own.
        match = f"PermanentMACAddress={one.mac}"
    else:
        match = f"MACAddress={one.mac}"
    link = [f"MTUBytes={one.mtu}" if one.mtu and not master else ""]
    link.append("RequiredForOnline=no" if master or not one.required else "")
    talks = one.name == spec.speaker()
    network = [
        f"Bond={master}" if master else "",
        *(f"VLAN={vlan.name}" for vlan in spec.vlans_on(one.name)),
        *(f"Address={at}" for at in one.addresses),
        *(f"DNS={at}" for at in (spec.resolvers if talks else ())),
        f"Domains={' '.join(spec.search)}" if talks and spec.search else "",
        "DHCP=no",
        "IPv6AcceptRA=no",
        "LinkLocalAddressing=no" if master or not one.addresses else "",
    ]
    text = HEADER + _section("Match", match) + _section("Link", *link) + _section("Network", *network)
    if one.gateway:
        text += _section(
            "Route", f"Gateway={one.gateway}", f"Metric={one.metric}" if one.metric is not None else ""
        )
    for way in one.routes:
        metric = f"Metric={way.metric}" if way.metric is not None else ""
        text += _section("Route", f"Destination={way.to}", f"Gateway={way.via}", metric)
    return text


# ---- netplan


def _netplan(spec: Spec) -> dict[str, str]:
    groups: dict[str, dict[str, Any]] = {"ethernets": {}, "bonds": {}, "vlans": {}}
    for one in spec.interfaces:
        groups[f"{one.kind}s"][one.name] = _planned(spec, one)
    network: dict[str, Any] = {"version": 2, "renderer": "networkd"}
    network |= {name: found for name, found in groups.items() if found}
    return {NETPLAN: HEADER + yaml.safe_dump({"network": network}, sort_keys=False)}


def _planned(spec: Spec, one: Interface) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if one.kind == "ethernet":
        found["match"] = {"macaddress": one.mac}
    elif one.kind == "bond":
        parameters: dict[str, Any] = {"mode": one.mode, "mii-monitor-interval": one.monitor_ms}
        if one.mode == "802.3ad":
            parameters["lacp-rate"] = "fast"
        if one.mode in ("802.3ad", "balance-xor"):
            parameters["transmit-hash-policy"] = "layer3+4"
        found |= {"interfaces": list(one.members), "macaddress": _mac_of(spec, one), "parameters": parameters}
    else:
        found |= {"id": one.vlan, "link": one.parent}
    found |= {"dhcp4": False, "dhcp6": False, "accept-ra": False}
    if spec.master_of(one.name) or not one.addresses:
        found["link-local"] = []
    if not one.required:
        found["optional"] = True
    if one.mtu and not spec.master_of(one.name):
        found["mtu"] = one.mtu
    if one.addresses:
        found["addresses"] = [str(at) for at in one.addresses]
    routes = [_way("default", one.gateway, one.metric)] if one.gateway else []
    routes += [_way(str(way.to), way.via, way.metric) for way in one.routes]
    if routes:
        found["routes"] = routes
    if one.name == spec.speaker() and (spec.resolvers or spec.search):
        servers: dict[str, list[str]] = {}
        if spec.search:
            servers["search"] = list(spec.search)
        if spec.resolvers:
            servers["addresses"] = [str(at) for at in spec.resolvers]
        found["nameservers"] = servers
    return found


def _way(to: str, via: Address, metric: int | None) -> dict[str, Any]:
    return {"to": to, "via": str(via), **({"metric": metric} if metric is not None else {})}


# ---- NetworkManager


def connection_uuid(name: str) -> str:
    """The UUID of an interface's connection, the same on every node and run."""
    return str(uuid.uuid5(_NAMESPACE, name))


def _keyfiles(spec: Spec) -> dict[str, str]:
    return {f"{KEYFILES}/coldiron-{one.name}.nmconnection": _keyfile(spec, one) for one in spec.interfaces}


def _keyfile(spec: Spec, one: Interface) -> str:
    master = spec.master_of(one.name)
    connection = [
        f"id=coldiron-{one.name}",
        f"uuid={connection_uuid(one.name)}",
        f"type={one.kind}",
        f"interface-name={one.name}" if one.kind != "ethernet" else "",
        "autoconnect=true",
        # Over what an installer has left for the same card.
        "autoconnect-priority=100",
        "autoconnect-slaves=1" if one.kind == "bond" else "",
        *((f"master={connection_uuid(master)}", "slave-type=bond") if master else ()),
    ]
    text = HEADER + _section("connection", *connection)
    mtu = f"mtu={one.mtu}" if one.mtu and not master else ""
    if one.kind == "ethernet":
        text += _section("ethernet", f"mac-address={one.mac.upper()}", mtu)
    elif one.kind == "bond":
        text += _section("ethernet", f"cloned-mac-address={_mac_of(spec, one).upper()}", mtu)
        lacp = one.mode == "802.3ad"
        hashed = one.mode in ("802.3ad", "balance-xor")
        text += _section(
            "bond",
            f"mode={one.mode}",
            f"miimon={one.monitor_ms}",
            "lacp_rate=fast" if lacp else "",
            "xmit_hash_policy=layer3+4" if hashed else "",
        )
    else:
        text += _section("ethernet", mtu)
        text += _section("vlan", f"id={one.vlan}", f"parent={connection_uuid(one.parent)}", "flags=1")
    return text if master else text + _family(spec, one, 4) + _family(spec, one, 6)


def _family(spec: Spec, one: Interface, version: int) -> str:
    addresses = [at for at in one.addresses if at.version == version]
    if not addresses:
        idle = "link-local" if version == 6 and one.addresses else "disabled"
        return _section(f"ipv{version}", f"method={idle}")
    lines = ["method=manual"]
    lines += [f"address{number}={at}" for number, at in enumerate(addresses, 1)]
    if one.gateway and one.gateway.version == version:
        lines.append(f"gateway={one.gateway}")
        lines.append(f"route-metric={one.metric}" if one.metric is not None else "")
    ways = [way for way in one.routes if way.via.version == version]
    for number, way in enumerate(ways, 1):
        metric = f",{way.metric}" if way.metric is not None else ""
        lines.append(f"route{number}={way.to},{way.via}{metric}")
    if one.name == spec.speaker():
        servers = [str(at) for at in spec.resolvers if at.version == version]
        lines.append(f"dns={';'.join(servers)};" if servers else "")
        lines.append(f"dns-search={';'.join(spec.search)};" if spec.search else "")
    return _section(f"ipv{version}", *lines)


__all__ = [
    "BACKENDS", "KEYFILES", "NETPLAN", "NETWORKD", "OWNED",
    "Backend", "backend_of", "connection_uuid", "interfaces_of", "mode_of", "parse", "render", "wanted_state",
]  # fmt: skip
