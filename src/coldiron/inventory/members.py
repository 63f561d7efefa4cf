"""From a node group to its nodes: what the range says, then what single nodes have of their own over it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Generic, TypeVar

from coldiron.catalog.load import Catalog
from coldiron.inventory.cluster import AUTO, Node
from coldiron.inventory.findings import nearest, shown
from coldiron.inventory.functions import FUNCTIONS, all_groups
from coldiron.inventory.hardware import Build, merge
from coldiron.inventory.judge import Judge
from coldiron.inventory.model import (
    Boot,
    Defaults,
    Disk,
    Features,
    Hardware,
    NodeGroup,
    NodeOwn,
    Power,
    check_host_name,
)
from coldiron.inventory.ranges import Names, RangeError, expand, expand_addresses, expand_names
from coldiron.inventory.source import KeyPath

# What a node is when neither its group nor `defaults` says so.
DEFAULT_PLATFORM = "metal"
DEFAULT_DISTRIBUTION = "debian-13"

_RESERVED = {"all", "ungrouped", "localhost", "none"}
_T = TypeVar("_T")


class Column(Generic[_T]):
    """One value a node, and the place that says it."""

    def __init__(self, number: int, path: KeyPath, value: _T) -> None:
        self.values: list[_T] = [value] * number
        self.paths: list[KeyPath] = [path] * number

    def fill(self, values: Sequence[_T], path: KeyPath, at: Sequence[int] | None = None) -> None:
        """Put ``values`` at the positions ``at``, or at all, said by ``path``."""
        positions = range(len(self.values)) if at is None else at
        for position, value in zip(positions, values, strict=False):
            self.values[position] = value
            self.paths[position] = path

    def by_path(self) -> dict[KeyPath, list[_T]]:
        """The values that are there, by the place that says them."""
        found: dict[KeyPath, list[_T]] = {}
        last: KeyPath | None = None
        here: list[_T] = []
        for value, path in zip(self.values, self.paths, strict=True):
            if value is None:
                continue
            if path is not last:
                here = found.setdefault(path, [])
                last = path
            here.append(value)
        return found


@dataclass(frozen=True)
class Own:
    """What some nodes of a range have of their own: where it says so, which ones, and what."""

    path: KeyPath
    positions: tuple[int, ...]
    names: Names
    values: NodeOwn


class Members:
    """Makes nodes of groups. ``extra`` are a CSV file's rows by the node's name: the row's path and its values."""

    def __init__(
        self,
        judge: Judge,
        defaults: Defaults,
        features: Features,
        catalog: Catalog,
        racks: Iterable[str],
        extra: Mapping[str, tuple[KeyPath, NodeOwn]],
        last_lines: Mapping[int, int],
    ) -> None:
        self.judge = judge
        self.defaults = defaults
        self.features = features
        self.catalog = catalog
        self.racks = dict.fromkeys(racks)
        self.extra = extra
        self.last_lines = last_lines
        self._builds: dict[tuple[int, str | None], Build] = {}
        self._groups = set(all_groups())

    def nodes(
        self, index: int, group: NodeGroup, names: Names, functions: Sequence[tuple[str, ...]]
    ) -> list[Node]:
        """The nodes of ``group``, which is the file's number ``index``."""
        path: KeyPath = ("nodes", index)
        number = len(names.names)
        self._names((*path, "name"), names)
        owns = list(self._owns(index, group, names))
        address = self._addresses((*path, "address"), group.address, names, "cluster", number)
        bmc: Column[IPv4Address | None] = Column(number, (*path, "bmc", "address"), None)
        bmc_mac: Column[str | None] = Column(number, (*path, "bmc", "mac"), None)
        credentials: Column[str | None] = Column(number, (*path, "bmc", "credentials"), None)
        protocol = Column(number, (*path, "bmc", "protocol"), "redfish")
        if group.bmc is not None:
            protocol.fill([group.bmc.protocol] * number, (*path, "bmc", "protocol"))
            bmc = self._addresses((*path, "bmc", "address"), group.bmc.address, names, "bmc", number)
            self._listed(bmc_mac, (*path, "bmc", "mac"), group.bmc.mac, names)
            credentials.fill([group.bmc.credentials] * number, (*path, "bmc", "credentials"))
        mac: Column[str | None] = Column(number, (*path, "mac"), None)
        self._listed(mac, (*path, "mac"), group.mac, names)
        serial: Column[str | None] = Column(number, (*path, "serial"), None)
        self._listed(serial, (*path, "serial"), group.serial, names)
        more = {
            name: self._addresses((*path, "addresses", name), text, names, name, number)
            for name, text in group.addresses.items()
            if self.judge.known((*path, "addresses", name), "network", name, self.judge.subnets)
        }
        whole = self._whole(group, number, path)
        for own in owns:
            self._own(own, address, bmc, bmc_mac, credentials, protocol, mac, serial, more, whole)
        builds = self._built(group, path, whole["hardware"])
        rack, unit = self._placed(group, path, owns, builds)
        disks = self._disks(path, whole["disks"], names)
        self._unique(address, bmc, bmc_mac, mac, serial, more)
        self._functions((*path, "functions"), group, names)
        self._hardware(path, group, whole["hardware"], builds, functions)
        for own in owns:
            self._contradictions(own.path, own.values)
        self._contradictions(path, group)
        self._boots(whole["boot"])
        line, last = self.judge.document.line(path), self.last_lines.get(index, 0)
        found = []
        for position, name in enumerate(names.names):
            where = address.values[position]
            if where is None:
                continue
            written = whole["hardware"].values[position] is not None or group.model is not None
            found.append(
                Node(
                    name=name,
                    kind=group.kind,
                    address=where,
                    mac=mac.values[position],
                    bmc_address=bmc.values[position],
                    platform=whole["platform"].values[position] or DEFAULT_PLATFORM,
                    distribution=whole["distribution"].values[position] or DEFAULT_DISTRIBUTION,
                    functions=functions[position],
                    hardware=builds[position].hardware if written else None,
                    group=group.name,
                    line=line,
                    last_line=last or line,
                    path=path,
                    build=builds[position],
                    model=group.model,
                    serial=serial.values[position],
                    addresses={
                        network: value
                        for network, column in more.items()
                        if (value := column.values[position]) is not None
                    },
                    bmc_mac=bmc_mac.values[position],
                    bmc_credentials=credentials.values[position],
                    rack=rack[position],
                    u=unit[position],
                    workload=group.workload,
                    power=whole["power"].values[position] or _NO_POWER,
                    software=whole["software"].values[position],
                    disks=disks[position],
                    bmc_protocol=protocol.values[position],
                    boot=whole["boot"].values[position] or _DEFAULT_BOOT,
                )
            )
        return found

    def _owns(self, index: int, group: NodeGroup, names: Names) -> Iterator[Own]:
        """The overrides of the group and the CSV file's rows of its nodes, the file's own over the CSV's."""
        places = {name: position for position, name in enumerate(names.names)} if group.overrides else {}
        if self.extra:
            for position, name in enumerate(names.names):
                if name in self.extra:
                    row, values = self.extra[name]
                    yield Own(row, (position,), Names((name,), (0,)), values)
        seen: dict[str, str] = {}
        for text, values in group.overrides.items():
            path: KeyPath = ("nodes", index, "overrides", text)
            try:
                subset = expand_names(text)
            except RangeError as error:
                self.judge.find(path, str(error), "CI108")
                continue
            known = [name for name in subset.names if name in places]
            if len(known) < len(subset.names):
                absent = next(name for name in subset.names if name not in places)
                self.judge.find(
                    path, f"{absent} is not one of {group.name}; name nodes of this range only", "CI219"
                )
                continue
            for name in known:
                if name in seen:
                    self.judge.find(
                        path, f"{name} is in the override `{seen[name]}` too; put it into one", "CI205"
                    )
                    break
                seen[name] = text
            yield Own(path, tuple(places[name] for name in known), subset, values)

    def _own(
        self,
        own: Own,
        address: Column[IPv4Address | None],
        bmc: Column[IPv4Address | None],
        bmc_mac: Column[str | None],
        credentials: Column[str | None],
        protocol: Column[str],
        mac: Column[str | None],
        serial: Column[str | None],
        more: dict[str, Column[IPv4Address | None]],
        whole: dict[str, Column],  # type: ignore[type-arg]
    ) -> None:
        path, at, names, values = own.path, own.positions, own.names, own.values
        if values.address is not None:
            found = self._addresses((*path, "address"), values.address, names, "cluster", len(at))
            address.fill(found.values, (*path, "address"), at)
        for network, text in (values.addresses or {}).items():
            where = (*path, "addresses", network)
            if self.judge.known(where, "network", network, self.judge.subnets):
                found = self._addresses(where, text, names, network, len(at))
                more.setdefault(network, Column(len(address.values), where, None)).fill(
                    found.values, where, at
                )
        if values.bmc is not None:
            if values.bmc.address is not None:
                where = (*path, "bmc", "address")
                found = self._addresses(where, values.bmc.address, names, "bmc", len(at))
                bmc.fill(found.values, where, at)
            self._listed(bmc_mac, (*path, "bmc", "mac"), values.bmc.mac, names, at)
            if values.bmc.credentials:
                credentials.fill([values.bmc.credentials] * len(at), (*path, "bmc"), at)
            if values.bmc.protocol:
                protocol.fill([values.bmc.protocol] * len(at), (*path, "bmc"), at)
        self._listed(mac, (*path, "mac"), values.mac, names, at)
        self._listed(serial, (*path, "serial"), values.serial, names, at)
        for name, column in whole.items():
            value = getattr(values, name)
            if value is not None:
                column.fill([value] * len(at), (*path, name), at)

    def _whole(self, group: NodeGroup, number: int, path: KeyPath) -> dict[str, Column]:  # type: ignore[type-arg]
        """What a group says as a whole, or the defaults say."""
        found: dict[str, Column] = {}  # type: ignore[type-arg]
        for name in ("platform", "distribution", "hardware", "power", "software", "disks", "boot"):
            value = getattr(group, name)
            # A model is the hardware, so that the defaults' is another machine's.
            if value is None and not (name == "hardware" and group.model is not None):
                value = getattr(self.defaults, name)
            found[name] = Column(number, (*path, name), value)
        return found

    def _addresses(
        self, path: KeyPath, text: str, names: Names, network: str, number: int
    ) -> Column[IPv4Address | None]:
        column: Column[IPv4Address | None] = Column(number, path, None)
        try:
            addresses = expand_addresses(text, names)
        except RangeError as error:
            self.judge.find(
                path, f"`{_key(path)}`: {error}", "CI207" if " addresses for " in str(error) else "CI109"
            )
            return column
        self.judge.inside(path, addresses, network)
        column.fill(addresses, path)
        return column

    def _listed(
        self,
        column: Column[str | None],
        path: KeyPath,
        values: tuple[str, ...] | None,
        names: Names,
        at: Sequence[int] | None = None,
    ) -> None:
        """Fill ``column`` from a list in the nodes' order."""
        if values is None:
            return
        if len(values) != len(names.names):
            self.judge.find(
                path,
                f"`{_key(path)}`: {len(values)} for {len(names.names)} nodes; list one a node, in the names' order",
                "CI207",
            )
        column.fill(values, path, at)

    def _unique(
        self,
        address: Column[IPv4Address | None],
        bmc: Column[IPv4Address | None],
        bmc_mac: Column[str | None],
        mac: Column[str | None],
        serial: Column[str | None],
        more: Mapping[str, Column[IPv4Address | None]],
    ) -> None:
        for addresses in (address, bmc, *more.values()):
            for path, found in addresses.by_path().items():
                self.judge.once(path, "address", map(str, found), "give each its own")
        for macs in (mac, bmc_mac):
            for path, texts in macs.by_path().items():
                self.judge.twice(
                    path, "MAC", [str(text) for text in texts], "every card has its own; check the label"
                )
        for path, texts in serial.by_path().items():
            self.judge.twice(
                path, "serial", [str(text) for text in texts], "every machine has its own; check the label"
            )

    def _built(self, group: NodeGroup, path: KeyPath, hardware: Column[Hardware | None]) -> list[Build]:
        """The machine of each node; nodes that are alike share one."""
        server = self.catalog.servers.get(group.model) if group.model else None
        if group.model and server is None:
            self._absent((*path, "model"), "server", group.model, self.catalog.servers)
        found: list[Build] = []
        checked: set[int] = set()
        for written, where in zip(hardware.values, hardware.paths, strict=True):
            key = (id(written), group.model)
            if key not in self._builds:
                self._builds[key] = merge(written, server, self.catalog.gpus)
            if id(written) not in checked:
                checked.add(id(written))
                self._models(where, written)
            found.append(self._builds[key])
        return found

    def _models(self, path: KeyPath, hardware: Hardware | None) -> None:
        if hardware is None:
            return
        gpus = hardware.gpus
        if gpus is not None and gpus.model is not None and gpus.model not in self.catalog.gpus:
            self._absent((*path, "gpus", "model"), "GPU", gpus.model, self.catalog.gpus)
        for position, port in enumerate(hardware.ports or ()):
            if port.nic is not None and port.nic not in self.catalog.nics:
                self._absent((*path, "ports", position, "nic"), "adapter", port.nic, self.catalog.nics)

    def _absent(self, path: KeyPath, what: str, name: str, known: Iterable[str]) -> None:
        absent(self.judge, path, what, name, known)

    def _placed(
        self, group: NodeGroup, path: KeyPath, owns: Sequence[Own], builds: Sequence[Build]
    ) -> tuple[list[str | None], list[int | None]]:
        number = len(builds)
        racks: list[str | None] = [None] * number
        units: list[int | None] = [None] * number
        if group.rack is not None:
            height = builds[0].height_u or 1
            spread(self.judge, path, group.rack, group.u, height, self.racks, racks, units, range(number))
        elif group.u is not None:
            self.judge.find((*path, "u"), "`u` says nothing without a rack; write `rack` too", "CI218")
        for own in owns:
            if own.values.rack is not None:
                height = builds[own.positions[0]].height_u or 1
                for position in own.positions:
                    units[position] = None
                spread(
                    self.judge,
                    own.path,
                    own.values.rack,
                    own.values.u,
                    height,
                    self.racks,
                    racks,
                    units,
                    own.positions,
                )
            elif own.values.u is not None:
                if any(racks[position] in (None, AUTO) for position in own.positions):
                    self.judge.find(
                        (*own.path, "u"), "`u` says nothing without a rack; write `rack` too", "CI218"
                    )
                elif len(own.values.u) not in (1, len(own.positions)):
                    self.judge.find((*own.path, "u"), "`u`: write one a node", "CI218")
                for position, unit in zip(own.positions, own.values.u, strict=False):
                    units[position] = unit
        return racks, units

    def _disks(
        self, path: KeyPath, column: Column[list[Disk] | None], names: Names
    ) -> list[tuple[Disk, ...]]:
        """The disks of each node, each with its own serials."""
        found: list[tuple[Disk, ...]] = [()] * len(names.names)
        alike: dict[int, list[int]] = {}
        for position, disks in enumerate(column.values):
            if disks:
                alike.setdefault(id(disks), []).append(position)
        for positions in alike.values():
            disks, where = column.values[positions[0]] or [], column.paths[positions[0]]
            for number, disk in enumerate(disks):
                self._disk((*where, number), disk, len(positions))
            if all(disk.serial is None and disk.wwn is None for disk in disks):
                for position in positions:
                    found[position] = tuple(disks)
                continue
            for order, position in enumerate(positions):
                found[position] = tuple(
                    disk.model_copy(
                        update={
                            "serial": _share(disk.serial, order, disk),
                            "wwn": _share(disk.wwn, order, disk),
                        }
                    )
                    for disk in disks
                )
        return found

    def _disk(self, path: KeyPath, disk: Disk, nodes: int) -> None:
        for key in ("serial", "wwn"):
            listed: tuple[str, ...] | None = getattr(disk, key)
            if listed is None:
                continue
            if len(listed) != nodes * disk.count:
                self.judge.find(
                    (*path, key),
                    f"`{key}`: {len(listed)} for {nodes * disk.count} disks; list one a disk, in the nodes' order",
                    "CI207",
                )
            self.judge.twice((*path, key), "disk", listed, "every disk has its own; check the label")
        if disk.serial is None and disk.wwn is None and disk.size_gb is None:
            self.judge.find(
                path, "this rule finds no certain disk; write its `serial`, `wwn` or `size_gb`", "CI223"
            )

    def _contradictions(self, path: KeyPath, values: NodeGroup | NodeOwn) -> None:
        power = values.power
        if power is not None and power.fit_circuit and power.gpu_cap_watts is not None:
            self.judge.find(
                (*path, "power"),
                "`gpu_cap_watts` and `fit_circuit` both set the cap; keep one of them",
                "CI223",
            )
        gpus = values.hardware.gpus if values.hardware else None
        named = isinstance(values, NodeGroup) and values.model is not None
        if gpus is not None and gpus.model is None and gpus.type is None and not named:
            self.judge.find(
                (*path, "hardware", "gpus"),
                "the GPUs have no name; write `model` (see `coldiron catalog list gpus`) or `type`",
                "CI223",
            )
        for number, layout in enumerate(gpus.mig or () if gpus else ()):
            if gpus and layout.gpus and max(layout.gpus) > gpus.count:
                self.judge.find(
                    (*path, "hardware", "gpus", "mig", number),
                    f"GPU {max(layout.gpus)} of {gpus.count}; number them from 1 to {gpus.count}",
                    "CI223",
                )

    def _boots(self, column: Column[Boot | None]) -> None:
        for path, boots in column.by_path().items():
            if any(boot is not None and boot.firmware == "bios" and boot.path == "http" for boot in boots):
                self.judge.find(
                    path, "a BIOS cannot boot over HTTP; write `path: pxe`, or `firmware: uefi`", "CI223"
                )

    def _names(self, path: KeyPath, names: Names) -> None:
        for name in names.names:
            try:
                check_host_name(name)
            except ValueError as error:
                self.judge.find(path, f"`name`: {error}", "CI107")
                break
            if name in self._groups:
                self.judge.find(
                    path, f"`name`: {name} is also a group; number the node, e.g. {name}01", "CI208"
                )
            elif name in _RESERVED:
                self.judge.find(
                    path, f"`name`: {name} has a meaning in Ansible; number the node, e.g. node01", "CI208"
                )
        self.judge.once(path, "node", names.names, "name each node once")

    def _functions(self, path: KeyPath, group: NodeGroup, names: Names) -> None:
        scheduler = self.features.scheduler
        for position, name in enumerate(group.functions or ()):
            function = FUNCTIONS[name]
            item = (*path, position)
            if function.scheduler not in (None, scheduler):
                self.judge.find(
                    item,
                    f"`{name}` belongs to the scheduler {function.scheduler}, and it is {scheduler} here; "
                    f"remove it, or write `scheduler: {function.scheduler}` under `features`",
                    "CI210",
                )
            if function.single:
                if len(names.names) > 1:
                    self.judge.find(
                        item, f"`{name}` can be on one node only, not on {group.name}; name one node", "CI211"
                    )
                self.judge.once(item, "function", [name], "one node can have it; remove one of them")

    def _hardware(
        self,
        path: KeyPath,
        group: NodeGroup,
        hardware: Column[Hardware | None],
        builds: Sequence[Build],
        functions: Sequence[tuple[str, ...]],
    ) -> None:
        works = any("slurm_worker" in own or "kube_worker" in own for own in functions)
        seen: set[int] = set()
        for written, build, own_path in zip(hardware.values, builds, hardware.paths, strict=True):
            if id(build) in seen:
                continue
            seen.add(id(build))
            # The block that says it is the line to mend; without one, the node group.
            said = written is not None and (own_path != (*path, "hardware") or group.hardware is not None)
            where = own_path if said else path
            if written is None and group.model is None:
                if works:
                    self.judge.find(
                        path,
                        f"{group.name} runs jobs, so the scheduler must know its `hardware`; write e.g. "
                        "`hardware: {sockets: 2, cores_per_socket: 56, memory_gib: 2048}`",
                        "CI212",
                    )
                continue
            self._complete(where, group, build, works or group.model is None)
            has = build.hardware.gpus
            if group.kind == "gpu" and has is None:
                self.judge.find(
                    where,
                    f"{group.name} is of kind gpu and its hardware has no `gpus`; write e.g. "
                    "`gpus: {type: h100, count: 8}`, or `kind: cpu`",
                    "CI213",
                )
            elif group.kind == "cpu" and has is not None:
                self.judge.find(
                    where,
                    f"{group.name} is of kind cpu and its hardware has `gpus`; write `kind: gpu`",
                    "CI213",
                )

    def _complete(self, where: KeyPath, group: NodeGroup, build: Build, wanted: bool) -> None:
        for name, example in (("cores_per_socket", 56), ("memory_gib", 2048)) if wanted else ():
            if getattr(build.hardware, name) is not None:
                continue
            if group.model is not None:
                text = (
                    f"the catalog does not know `{name}` of {shown(group.model)}; write it under `hardware`"
                )
                self.judge.find(where, f"{text}, e.g. `{name}: {example}`", "CI212")
            else:
                self.judge.find(where, f"`{name}` is missing here; write e.g. `{name}: {example}`", "CI102")


_NO_POWER = Power()
_DEFAULT_BOOT = Boot()


def absent(judge: Judge, path: KeyPath, what: str, name: str, known: Iterable[str]) -> None:
    """Note that the catalog has no ``what`` of this name."""
    near = nearest(name, known)
    advice = (
        f"did you mean `{near}`?"
        if near
        else "`coldiron catalog list` shows what there is, and a file under `site.catalog` adds to it"
    )
    judge.find(path, f"the catalog has no {what} `{shown(name)}`; {advice}", "CI220")


def spread(
    judge: Judge,
    path: KeyPath,
    text: str,
    unit: tuple[int, ...] | None,
    height: int,
    known: Mapping[str, None],
    racks: list[str | None],
    units: list[int | None],
    positions: Sequence[int],
) -> None:
    """Spread things over the racks of ``text``, evenly and in order, into ``racks`` and ``units`` at ``positions``."""
    number = len(positions)
    if text == AUTO:
        if unit is not None:
            judge.find((*path, "u"), "`rack: auto` places these nodes; remove `u`, or name the rack", "CI218")
        for position in positions:
            racks[position] = AUTO
        return
    names = expand(text)
    for name in names:
        if not judge.known((*path, "rack"), "rack", name, known):
            return
    each = -(-number // len(names))
    for order, position in enumerate(positions):
        racks[position] = names[order // each]
    if unit is None:
        return
    if len(unit) not in (1, each, number):
        judge.find(
            (*path, "u"),
            f"`u`: {len(unit)} for {number} nodes, {each} a rack; write the lowest one's, or one a node of a rack",
            "CI218",
        )
        return
    for order, position in enumerate(positions):
        if len(unit) == 1:
            units[position] = unit[0] + (order % each) * height
        else:
            units[position] = unit[order if len(unit) == number else order % each]


def _share(values: tuple[str, ...] | None, order: int, disk: Disk) -> tuple[str, ...] | None:
    """The part of a list that is one node's."""
    return None if values is None else values[order * disk.count : (order + 1) * disk.count]


def _key(path: KeyPath) -> str:
    """How a message names the value: its key; one of a nested block with the block."""
    words = [part for part in path if isinstance(part, str)]
    return ".".join(words[-2:]) if words[-2:-1] and words[-2] in ("bmc", "addresses") else words[-1]
