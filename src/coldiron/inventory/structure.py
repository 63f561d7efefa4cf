"""Racks and switches of a cluster.yml, one by one, and whether every name in the file names something."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from coldiron.catalog.load import Catalog
from coldiron.inventory.cluster import AUTO, Node, Rack, SwitchUnit
from coldiron.inventory.findings import shown
from coldiron.inventory.judge import Judge
from coldiron.inventory.members import absent, spread
from coldiron.inventory.model import Fabric, Feed, Network, NodeGroup, RackGroup, Room, Site, SwitchGroup
from coldiron.inventory.ranges import MAX_NODES, RangeError, expand
from coldiron.inventory.source import KeyPath

_THING = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")


class Parts(Protocol):
    """The blocks of the file that are sound by themselves."""

    groups: list[tuple[int, NodeGroup]]
    rack_groups: list[tuple[int, RackGroup]]
    switch_groups: list[tuple[int, SwitchGroup]]
    networks: Mapping[str, Network]
    feeds: Mapping[str, Feed]
    rooms: Mapping[str, Room]
    fabrics: Mapping[str, Fabric]
    site: Site


class Structure:
    """``racks`` and ``switches`` one by one, in the file's order."""

    def __init__(self, judge: Judge, parts: Parts, catalog: Catalog) -> None:
        self.judge = judge
        self.parts = parts
        self.catalog = catalog
        self.racks: tuple[Rack, ...] = tuple(self._racks())
        self.switches: tuple[SwitchUnit, ...] = tuple(self._switches())

    def _racks(self) -> Iterable[Rack]:
        total = 0
        for index, group in self.parts.rack_groups:
            path: KeyPath = ("racks", index)
            names = expand(group.name)
            total += len(names)
            if total > MAX_NODES:
                self.judge.find((*path, "name"), f"more than {MAX_NODES} racks in all; write fewer", "CI108")
                return
            if AUTO in names:
                self.judge.find((*path, "name"), "`auto` lets the plan choose; call the rack r01", "CI208")
            self.judge.once((*path, "name"), "rack", names, "name each rack once")
            for order, name in enumerate(names):
                yield Rack(name, group, path, group.position + order if group.position else None)

    def _switches(self) -> Iterable[SwitchUnit]:
        total = 0
        racks = {rack.name: None for rack in self.racks}
        for index, group in self.parts.switch_groups:
            path: KeyPath = ("switches", index)
            names = expand(group.name)
            total += len(names)
            if total > MAX_NODES:
                self.judge.find(
                    (*path, "name"), f"more than {MAX_NODES} switches in all; write fewer", "CI108"
                )
                return
            self.judge.once((*path, "name"), "node", names, "name each node and switch once")
            model = self.catalog.switches.get(group.model)
            if model is None:
                absent(self.judge, (*path, "model"), "switch", group.model, self.catalog.switches)
            in_rack: list[str | None] = [None] * len(names)
            units: list[int | None] = [None] * len(names)
            if group.rack is not None:
                height = int(-(-(model.height_u or 1) // 1)) if model else 1
                spread(
                    self.judge, path, group.rack, group.u, height, racks, in_rack, units, range(len(names))
                )
            elif group.u is not None:
                self.judge.find((*path, "u"), "`u` says nothing without a rack; write `rack` too", "CI218")
            for order, name in enumerate(names):
                yield SwitchUnit(name, group, path, order, model, in_rack[order], units[order])

    def references(self, nodes: Sequence[Node]) -> None:
        """Note every name that names nothing."""
        self._feeds_and_rooms()
        names = {node.name for node in nodes}
        self._fabrics(names)
        self._shared_ports()
        switches = {switch.name for switch in self.switches}
        for index, group in self.parts.switch_groups:
            path: KeyPath = ("switches", index)
            if group.fabric is not None:
                self.judge.known((*path, "fabric"), "fabric", group.fabric, self.parts.fabrics)
            for position, name in enumerate(group.networks):
                self.judge.known((*path, "networks", position), "network", name, self.parts.networks)
            if group.fabric is None and not group.networks:
                self.judge.find(
                    path, f"{group.name} carries nothing; write its `fabric` or its `networks`", "CI223"
                )
            for position, plug in enumerate(group.plugs or ()):
                self._there((*path, "plugs", position, "to"), plug.to, names | switches, "node or switch")
                if plug.network is not None:
                    self.judge.known(
                        (*path, "plugs", position, "network"),
                        "network of this switch",
                        plug.network,
                        group.networks,
                    )
                if plug.cable is not None and plug.cable not in self.catalog.cables:
                    absent(
                        self.judge,
                        (*path, "plugs", position, "cable"),
                        "cable",
                        plug.cable,
                        self.catalog.cables,
                    )
        self._pdus(nodes)

    def _feeds_and_rooms(self) -> None:
        for block, names in (
            ("feeds", self.parts.feeds),
            ("rooms", self.parts.rooms),
            ("fabrics", self.parts.fabrics),
        ):
            for name in names:
                if not _THING.fullmatch(name):
                    self.judge.find(
                        (block, name),
                        f"`{shown(name)}` is no name; write up to 32 letters, digits, - and _, beginning with a letter",
                        "CI106",
                    )
        for index, group in self.parts.rack_groups:
            path: KeyPath = ("racks", index)
            if group.room is not None:
                self.judge.known((*path, "room"), "room", group.room, self.parts.rooms)
            seen: set[str] = set()
            for position, pdu in enumerate(group.pdus):
                where = (*path, "pdus", position)
                if pdu.feed is not None:
                    self.judge.known((*where, "feed"), "feed", pdu.feed, self.parts.feeds)
                if pdu.name in seen:
                    self.judge.find(
                        (*where, "name"), f"the rack has two PDUs `{pdu.name}`; name each once", "CI205"
                    )
                seen.add(pdu.name)
                circuits = [circuit.name for circuit in pdu.circuits or ()]
                if len(set(circuits)) < len(circuits):
                    self.judge.find(
                        (*where, "circuits"), "two circuits have one name; name each once", "CI205"
                    )
                if pdu.circuits and pdu.outlets is not None:
                    self.judge.find(
                        (*where, "outlets"),
                        "each outlet is on a circuit; write `outlets` under the circuits only",
                        "CI223",
                    )
        for name in self.parts.site.prices:
            if name not in self.catalog.entries() and self.catalog.servers:
                absent(self.judge, ("site", "prices", name), "entry", name, self.catalog.entries())

    def _shared_ports(self) -> None:
        """Note networks that share the ports of one that has none of its own."""
        networks = self.parts.networks
        for name, network in networks.items():
            path: KeyPath = ("networks", name, "port_of")
            if network.port_of is None or not self.judge.known(path, "network", network.port_of, networks):
                continue
            if networks[network.port_of].port_of is not None:
                self.judge.find(
                    path,
                    f"`{network.port_of}` has no ports of its own; write the network that has them",
                    "CI223",
                )

    def _fabrics(self, names: set[str]) -> None:
        for name, fabric in self.parts.fabrics.items():
            path: KeyPath = ("fabrics", name)
            if fabric.nodes is not None:
                self._there((*path, "nodes"), fabric.nodes, names, "node")
            for position, network in enumerate(fabric.networks):
                self.judge.known((*path, "networks", position), "network", network, self.parts.networks)
            if len(fabric.networks) not in (0, 1, fabric.rails):
                self.judge.find(
                    (*path, "networks"),
                    f"{len(fabric.networks)} networks for {fabric.rails} rails; write one for all, or one a rail",
                    "CI223",
                )

    def _there(self, path: KeyPath, text: str, known: set[str], what: str) -> None:
        try:
            names = expand(text)
        except RangeError as error:
            self.judge.find(path, str(error), "CI108")
            return
        for name in names:
            if name not in known:
                self.judge.known(path, what, name, known)
                return

    def _pdus(self, nodes: Sequence[Node]) -> None:
        of_rack = {rack.name: [pdu.name for pdu in rack.group.pdus] for rack in self.racks}
        seen: set[tuple[KeyPath, str]] = set()
        for node in nodes:
            if node.power.pdus is None or node.rack not in of_rack or (node.path, node.rack) in seen:
                continue
            seen.add((node.path, node.rack))
            for name in node.power.pdus:
                if not self.judge.known(
                    (*node.path, "power", "pdus"), f"PDU in rack {node.rack}", name, of_rack[node.rack]
                ):
                    break
