# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a node's network lacks, and what to do about it: pure functions over files and what ``ip -json`` says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

Link = Mapping[str, Any]
Wanted = Mapping[str, Any]

STATE = "/var/lib/coldiron/network"
# After a reload, until the daemon has dropped what it had set.
SETTLE_SECONDS = 2
# Kinds that borrow a card's MAC, and are never the card.
BORROWERS = ("bond", "vlan", "bridge", "macvlan", "macvtap", "ipvlan", "team")
# What the kernel makes a bond with.
BOND_MTU = 1500


@dataclass(frozen=True)
class Facts:
    """What is there: our files with their texts, links and routes as ``ip -json -details`` gives them."""

    files: Mapping[str, str]
    links: Sequence[Link]
    routes: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Plan:
    """What to do. ``reconfigure`` are interfaces, ``delete`` virtual ones that go or are made anew.

    ``why`` are sentences for a person; empty where nothing is to be done.
    """

    write: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()
    reconfigure: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    why: tuple[str, ...] = ()


@dataclass
class _Wishes:
    delete: list[str] = field(default_factory=list)
    reconfigure: list[str] = field(default_factory=list)
    why: list[str] = field(default_factory=list)


def kind_of(link: Link) -> str:
    """What the kernel made the link as: bond, vlan, veth …; empty for a card."""
    return str((link.get("linkinfo") or {}).get("info_kind") or "")


def find(wanted: Wanted, links: Sequence[Link]) -> Link | None:
    """The link that an interface is: a card by its MAC, all else by its name."""
    if wanted["kind"] != "ethernet":
        return next((link for link in links if link.get("ifname") == wanted["name"]), None)
    for link in links:
        if kind_of(link) in BORROWERS or link.get("link_type") != "ether":
            continue
        # iproute2 says the burnt-in address only where the present one is another.
        burnt_in = link.get("permaddr") or link.get("address")
        mac = link.get("address") if wanted["match"] == "current" else burnt_in
        if str(mac).lower() == wanted["mac"]:
            return link
    return None


def missing_cards(wanted: Iterable[Wanted], links: Sequence[Link]) -> list[str]:
    """A sentence for each card that the node does not have."""
    there = ", ".join(
        f"{link['ifname']} {link.get('permaddr') or link.get('address')}"
        for link in links
        if link.get("link_type") == "ether" and kind_of(link) not in BORROWERS
    )
    return [
        f"{one['name']}: no card has the MAC {one['mac']}; there are {there or 'none'}"
        for one in wanted
        if one["kind"] == "ethernet" and find(one, links) is None
    ]


def narrow_cards(wanted: Sequence[Wanted], links: Sequence[Link]) -> list[str]:
    """A sentence for each card that cannot have the MTU that it is to have, by itself or by its bond.

    A bond gives its cards its own, and the kernel leaves out a card that refuses it.
    """
    mtus = {str(link.get("ifname")): int(link["mtu"]) for link in links if link.get("mtu")}
    found = []
    for one in wanted:
        link = find(one, links) if one["kind"] == "ethernet" else None
        # 0 is the kernel's word for no limit.
        most = int((link or {}).get("max_mtu") or 0)
        wants = one["mtu"] or (mtus.get(one["bond"], BOND_MTU) if one["bond"] else 0)
        if not most or wants <= most:
            continue
        says = "" if one["mtu"] else f", and {one['bond']}, for which no MTU is written, has {wants}"
        found.append(
            f"{one['name']}: its card takes packets of at most {most} bytes{says or f', not {wants}'}; "
            f"write `mtu: {most}` for the network, or for {one['bond'] or one['name']}"
        )
    return found


def names_of(wanted: Sequence[Wanted], links: Sequence[Link]) -> dict[str, str]:
    """Each interface's name in the kernel; what is not there yet has its own."""
    found = {one["name"]: find(one, links) for one in wanted}
    return {name: str(link["ifname"]) if link else name for name, link in found.items()}


def deviations(one: Wanted, wanted: Sequence[Wanted], facts: Facts) -> list[str]:
    """What the kernel does not have of an interface, each in a few words; empty where all is as it shall be."""
    link = find(one, facts.links)
    if link is None:
        return ["is not there"]
    names = names_of(wanted, facts.links)
    found = []
    if "UP" not in (link.get("flags") or ()):
        found.append("is down")
    if one["mtu"] and link.get("mtu") != one["mtu"]:
        found.append(f"has MTU {link.get('mtu')}, not {one['mtu']}")
    if one["bond"] and link.get("master") != one["bond"]:
        found.append(f"is not in {one['bond']}")
    data = (link.get("linkinfo") or {}).get("info_data") or {}
    if one["mode"] and data.get("mode") != one["mode"]:
        found.append(f"is a bond of mode {data.get('mode')}, not {one['mode']}")
    if one["vlan"] and (data.get("id"), link.get("link")) != (one["vlan"], names.get(one["parent"])):
        found.append(f"is VLAN {data.get('id')} on {link.get('link')}, not {one['vlan']} on {one['parent']}")
    had = {f"{at['local']}/{at['prefixlen']}" for at in link.get("addr_info") or ()}
    found += [f"lacks {at}" for at in one["addresses"] if at not in had]
    found += _ways(one, str(link["ifname"]), facts.routes)
    return found


def _ways(one: Wanted, name: str, routes: Sequence[Mapping[str, Any]]) -> list[str]:
    here = {(_network(way.get("dst")), way.get("gateway")) for way in routes if way.get("dev") == name}
    wanted = [("default", one["gateway"])] if one["gateway"] else []
    wanted += [(way["to"], way["via"]) for way in one["routes"]]
    return [f"has no route to {to} by {via}" for to, via in wanted if (_network(to), via) not in here]


def _network(text: Any) -> str:
    """A destination as ip writes it, with its prefix: one without is a single address."""
    return "default" if text in (None, "default") else str(ip_network(str(text), strict=False))


def netdevs(files: Mapping[str, str]) -> dict[str, str]:
    """The virtual interfaces that networkd's files make: the file's text by the interface's name."""
    found = {}
    for path, text in files.items():
        name = re.search(r"^Name=(.+)$", text, re.MULTILINE)
        if path.endswith(".netdev") and name:
            found[name[1]] = text
    return found


def plan(files: Mapping[str, str], wanted: Sequence[Wanted], facts: Facts, made: Iterable[str] = ()) -> Plan:
    """What leads from ``facts`` to ``files`` and ``wanted``; ``made`` are virtual interfaces of an earlier run."""
    write = [path for path, text in files.items() if facts.files.get(path) != text]
    remove = [path for path in facts.files if path not in files]
    there = {str(link["ifname"]): link for link in facts.links}
    virtual = [one["name"] for one in wanted if one["kind"] != "ethernet"]
    before, after = netdevs(facts.files), netdevs(files)
    wishes = _Wishes()
    for name in dict.fromkeys((*before, *made)):
        if name in there and (name not in virtual or (name in before and before[name] != after.get(name))):
            wishes.delete.append(name)
    for one in wanted:
        found = deviations(one, wanted, facts)
        if not found:
            continue
        wishes.why.append(f"{one['name']} " + ", ".join(found))
        link = find(one, facts.links)
        if link is not None and any(word.startswith(("is a bond", "is VLAN")) for word in found):
            wishes.delete.append(one["name"])
        elif link is not None:
            wishes.reconfigure.append(str(link["ifname"]))
        elif one["kind"] == "vlan":
            # networkd makes a VLAN when it configures the interface below it.
            wishes.reconfigure.append(names_of(wanted, facts.links)[one["parent"]])
    delete = dict.fromkeys(wishes.delete)
    touched = {name for name in wishes.reconfigure if name in there and name not in delete}
    # The members of what is made anew, and what carries it, have to be told again.
    for one in wanted:
        link = find(one, facts.links)
        under = [other["parent"] for other in wanted if other["name"] in delete and other["kind"] == "vlan"]
        if link is not None and (one["bond"] in delete or one["name"] in under):
            touched.add(str(link["ifname"]))
    why = [*(f"{path} differs" for path in write), *(f"{path} goes" for path in remove), *wishes.why]
    fresh = [name for name in virtual if name not in there or name in delete]
    return Plan(
        tuple(write), tuple(remove), tuple(delete), tuple(sorted(touched - set(delete))), tuple(fresh), tuple(why)
    )  # fmt: skip


def touched(todo: Plan, wanted: Sequence[Wanted], facts: Facts) -> list[str]:
    """The interfaces that are there and that a plan concerns, by the kernel's names; what it deletes aside."""
    changed = {*todo.write, *todo.remove}
    names = names_of(wanted, facts.links)
    found = {*todo.reconfigure}
    for name in names:
        # netplan has one file for all.
        own = [path for path in changed if f"-{name}." in path or path.endswith("/90-coldiron.yaml")]
        if own:
            found.add(names[name])
    for one in wanted:
        if {one["bond"], one["parent"]} & {*todo.delete, *todo.made}:
            found.add(names[one["name"]])
    return sorted({str(link["ifname"]) for link in facts.links} & found - {*todo.delete})


def switch_commands(backend: str, delete: Sequence[str], reconfigure: Sequence[str]) -> str:
    """What makes the daemon take the files in place: the shell's lines. Only what is named is touched."""
    quoted = [shlex.quote(name) for name in delete]
    lines = [f"ip link delete dev {name}" for name in quoted]
    if backend == "networkmanager":
        lines.append("nmcli connection reload")
        lines += [f"nmcli device reapply {shlex.quote(name)} || nmcli device connect {shlex.quote(name)}"
                  for name in reconfigure]  # fmt: skip
        # What is new has no device to be named by.
        lines.append("for file in /etc/NetworkManager/system-connections/coldiron-*.nmconnection; do")
        lines.append(
            '  nmcli connection up filename "$file" || nmcli connection up "$(basename "$file" .nmconnection)"'
        )
        lines.append("done")
        return "".join(f"{line}\n" for line in lines)
    if backend == "netplan":
        lines.append("netplan generate")
    again = "".join(f" {shlex.quote(name)}" for name in reconfigure)
    # A card whose event udev has lost, on a machine that was too slow at its start, is left alone by networkd for ever.
    lines.append("if systemctl --quiet is-active systemd-udevd.service; then")
    lines.append(f"  for name in{again}; do")
    lines.append('    at=$(cat "/sys/class/net/$name/ifindex" 2>/dev/null) || continue')
    lines.append('    [ -e "/run/udev/data/n$at" ] ||')
    lines.append('      timeout 20 udevadm trigger --settle --action=add "/sys/class/net/$name"')
    lines += ["  done", "fi"]
    lines.append("if systemctl --quiet is-active systemd-networkd.service; then")
    lines += ["  networkctl reload", *([f"  networkctl reconfigure{again}"] if again else [])]
    # A daemon that starts reads all; at a boot, which the way back comes before, nobody waits for it.
    lines += ["else", "  systemctl --no-block start systemd-networkd.service", "fi"]
    return "".join(f"{line}\n" for line in lines)


def kernel_commands(facts: Facts, names: Iterable[str]) -> str:
    """What gives interfaces back what the kernel had of them, which may be in no file: the shell's lines."""
    lines = []
    for link in facts.links:
        name = str(link["ifname"])
        if name not in names:
            continue
        device = f"dev {shlex.quote(name)}"
        lines.append(f"ip link set {device} mtu {int(link['mtu'])}")
        if "UP" in (link.get("flags") or ()):
            lines.append(f"ip link set {device} up")
        for at in link.get("addr_info") or ():
            if at.get("scope") == "global":
                lines.append(f"ip address replace {at['local']}/{at['prefixlen']} {device}")
        for way in facts.routes:
            if way.get("dev") == name and way.get("gateway"):
                metric = f" metric {int(way['metric'])}" if way.get("metric") else ""
                family = "-6" if ":" in way["gateway"] else "-4"
                lines.append(
                    f"ip {family} route replace {way['dst']} via {way['gateway']} {device}{metric} proto static"
                )
    return "".join(f"{line}\n" for line in lines)


def restore_commands(saved: str, kept: Sequence[str], new: Sequence[str], switch: str, kernel: str) -> str:
    """What puts the old files back: those in ``kept`` lie below ``saved``, those in ``new`` were not there.

    ``kernel`` comes last, for what no file says: the daemon lets go of what it no longer has a file for.
    """
    lines = [f"rm -f -- {shlex.quote(path)}" for path in new]
    lines += [f"cp -a -- {shlex.quote(saved + path)} {shlex.quote(path)}" for path in kept]
    before = "".join(f"{line}\n" for line in lines)
    return f"{before}{switch}sleep {SETTLE_SECONDS}\n{kernel}" if kernel else before + switch


def probes_of(wanted: Iterable[Wanted], more: Iterable[str] = ()) -> list[str]:
    """The addresses that have to answer before a change is kept: every gateway, and those that a site names."""
    gateways = [one["gateway"] for one in wanted if one["gateway"]]
    gateways += [way["via"] for one in wanted for way in one["routes"]]
    return list(dict.fromkeys([*gateways, *more]))


def is_near(address: str, wanted: Iterable[Wanted]) -> bool:
    """Whether an address is in a subnet of the node's own, so that it shows a MAC even where it answers no ping."""
    where = ip_address(address)
    return any(where in ip_interface(at).network for one in wanted for at in one["addresses"])


def rivals(texts: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """A sentence for each interface that ifupdown configures as well; ``texts`` are its files by their path."""
    found = []
    for name in names:
        for path, text in texts.items():
            if re.search(rf"^\s*iface\s+{re.escape(name)}\s", text, re.MULTILINE):
                found.append(
                    f"{path} configures {name} as well: take its lines out (its addresses stay until the next boot)"
                )
    return found
