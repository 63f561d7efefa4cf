"""What the catalog says of a piece of hardware. Units stand in the names; None means that no source was found.

GB is what the maker prints on the data sheet; bandwidths are 10^9 bytes a second (``gb_per_s``), network speeds
10^9 bits a second (``gbit_per_s``). NVLink figures are the sum of both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=0, le=1_000_000)]
Amount = Annotated[float, Field(gt=0, le=1_000_000)]
Version = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+){0,3}$")]
Cage = Literal["rj45", "sfp28", "qsfp28", "qsfp56", "qsfp112", "qsfp-dd", "osfp", "osfp-flat", "osfp-2x"]
LinkLayer = Literal["ethernet", "infiniband"]


class Record(BaseModel):
    """Plain data that nobody changes, without a key that the model does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Source(Record):
    """Where figures come from: a text that was opened, and when.

    ``what`` names the fields it covers (``tdp_watts``; ``form_factor`` for all within). ``by`` says whose words they
    are: the maker's own, a copy of the maker's text, somebody else's, or the site's own measurement.
    """

    what: Annotated[tuple[str, ...], Field(min_length=1)]
    title: Annotated[str, Field(min_length=1)]
    url: str | None = None
    read: date
    by: Literal["maker", "copy", "other", "site"]


class Entry(Record):
    """What every family shares: a name to type, a title to read, and the sources."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]
    title: Annotated[str, Field(min_length=1)]
    sources: tuple[Source, ...] = ()

    def figures(self) -> Iterator[tuple[str, object]]:
        """Yield every figure with its dotted name, in the order of the model; those without a source as None."""
        for name in type(self).model_fields:
            if name not in IDENTITY:
                yield from _figures(name, getattr(self, name))

    def source_of(self, figure: str) -> Source | None:
        """Return the source that covers the figure of this dotted name."""
        return next((source for source in self.sources if covers(source.what, figure)), None)


# What names an entry rather than says something of it.
IDENTITY = ("name", "title", "sources")


def covers(what: tuple[str, ...], figure: str) -> bool:
    """Return whether one of the names in ``what`` is ``figure`` or something around it."""
    return any(figure == name or figure.startswith(f"{name}.") for name in what)


def _figures(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Record):
        for inner in type(value).model_fields:
            yield from _figures(f"{name}.{inner}", getattr(value, inner))
    else:
        yield name, value


class Pcie(Record):
    """A PCI Express link: its generation and how many lanes."""

    generation: Annotated[int, Field(ge=1, le=7)] | None = None
    lanes: Literal[1, 2, 4, 8, 16, 32] | None = None


class FormFactor(Record):
    """How a GPU is built in. ``slots``: how many card slots it hides; None for a module."""

    mount: Literal["pcie", "sxm", "superchip"] | None = None
    slots: Annotated[float, Field(ge=1, le=5)] | None = None
    length_mm: Amount | None = None
    height_mm: Amount | None = None
    weight_kg: Amount | None = None
    cooling: Literal["passive", "active", "blower", "open", "liquid"] | None = None
    power_connectors: tuple[str, ...] | None = None


class Nvlink(Record):
    """NVLink of one GPU: both directions of all links together, and how many GPUs a bridge joins."""

    supported: bool | None = None
    generation: Annotated[int, Field(ge=1, le=6)] | None = None
    gb_per_s: Amount | None = None
    bridged_gpus: Count | None = None


class Placements(Record):
    """Where instances of a MIG profile may lie: how many memory slices one takes, and the first slice of each place."""

    size: Literal[1, 2, 4, 8]
    starts: Annotated[tuple[Annotated[int, Field(ge=0, le=7)], ...], Field(min_length=1)]

    def places(self) -> tuple[range, ...]:
        """Return the memory slices of each place."""
        return tuple(range(start, start + self.size) for start in self.starts)


class MigProfile(Record):
    """A MIG profile. ``slices`` counts compute slices, ``placements`` count memory slices.

    ``id`` is the number that ``nvidia-smi mig -cgi`` takes; None where the maker publishes none.
    """

    name: Annotated[str, Field(pattern=r"^[1-7]g\.[0-9]+gb(\+me|\+gfx|\+me\.all|-me)?$")]
    id: Count | None = None
    slices: Annotated[int, Field(ge=1, le=7)]
    count: Annotated[int, Field(ge=1, le=7)]
    placements: Placements | None = None


class Mig(Record):
    """Multi-Instance GPU: whether there is any, in how many memory slices, and with what profiles."""

    supported: bool | None = None
    instances: Annotated[int, Field(ge=1, le=7)] | None = None
    memory_slices: Literal[4, 8] | None = None
    driver_min: Version | None = None
    profiles: tuple[MigProfile, ...] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Mig:
        """Refuse what no GPU can be divided into."""
        names = [profile.name for profile in self.profiles or ()]
        if len(set(names)) < len(names):
            raise ValueError("two profiles have one name")
        for profile in self.profiles or ():
            self._check(profile)
        return self

    def _check(self, profile: MigProfile) -> None:
        if profile.slices != int(profile.name[0]):
            raise ValueError(f"{profile.name}: {profile.slices} slices, but the name says {profile.name[0]}")
        if self.instances and profile.count > self.instances:
            raise ValueError(
                f"{profile.name}: {profile.count} at once, of {self.instances} instances at most"
            )
        if profile.placements is None:
            return
        if self.memory_slices is None:
            raise ValueError(f"{profile.name} has placements; write memory_slices, which they count")
        size, starts = profile.placements.size, profile.placements.starts
        for start in starts:
            if start % size or start + size > self.memory_slices:
                raise ValueError(
                    f"{profile.name}: size {size} at {start} does not lie on {self.memory_slices} memory"
                    " slices; a start is a multiple of the size"
                )
        if len(set(starts)) < len(starts):
            raise ValueError(f"{profile.name}: two placements have one start")
        # One that takes the only media engines (+me) has more places than instances.
        if profile.count > len(starts):
            raise ValueError(f"{profile.name}: {profile.count} at once, but {len(starts)} placements")


class Expected(Record):
    """What a sound GPU is seen to do. NCCL figures are bus bandwidth of an all-reduce over ``nccl_gpus`` GPUs."""

    gemm_bf16_tflops: Amount | None = None
    memory_gb_per_s: Amount | None = None
    host_to_device_gb_per_s: Amount | None = None
    nccl_all_reduce_gb_per_s: Amount | None = None
    nccl_gpus: Count | None = None


class Gpu(Entry):
    """A GPU.

    ``kernel_module``: whether the open flavour of the driver's modules must be used, may be, or cannot be.
    ``fabric``: the services that its NVLink fabric needs; an empty list is a GPU that needs none.
    ``spike_watts`` is the most that was measured of a card at its ``tdp_watts``, for less than 20 ms.
    ``memory_gb_per_s`` and ``peak_bf16_tflops`` (dense) are the data sheet's; ``expected`` is what is measured.
    """

    architecture: (
        Literal["volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-ultra"] | None
    ) = None
    compute_capability: Version | None = None
    memory_gb: Amount | None = None
    memory_kind: str | None = None
    memory_gb_per_s: Amount | None = None
    peak_bf16_tflops: Amount | None = None
    tdp_watts: Amount | None = None
    power_limit_min_watts: Amount | None = None
    power_limit_max_watts: Amount | None = None
    spike_watts: Amount | None = None
    form_factor: FormFactor = FormFactor()
    pcie: Pcie = Pcie()
    nvlink: Nvlink = Nvlink()
    mig: Mig = Mig()
    kernel_module: Literal["open_required", "open_allowed", "open_impossible"] | None = None
    driver_branch_min: Count | None = None
    cuda_min: Version | None = None
    cuda_max: Version | None = None
    fabric: tuple[Literal["fabric_manager", "nvlsm", "imex"], ...] | None = None
    expected: Expected = Expected()

    @model_validator(mode="after")
    def _ordered(self) -> Gpu:
        """Refuse a least figure above the greatest."""
        least, most = self.power_limit_min_watts, self.power_limit_max_watts
        if least and most and least > most:
            raise ValueError("power_limit_min_watts is above power_limit_max_watts")
        if self.cuda_min and self.cuda_max and _parts(self.cuda_min) > _parts(self.cuda_max):
            raise ValueError("cuda_min is above cuda_max")
        return self


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


class Supplies(Record):
    """Power supplies. ``min_active``: how many must run for it to run at full load.

    ``inrush_amps`` is one supply's peak, ``spike_watts`` the most that it gives for a moment; ``cables_8pin`` and
    ``cables_16pin`` are the separate cables for GPUs, of all supplies together.
    """

    count: Count | None = None
    watts: Amount | None = None
    min_active: Count | None = None
    inlet: Literal["c14", "c20", "busbar"] | None = None
    efficiency: Literal["gold", "platinum", "titanium"] | None = None
    inrush_amps: Amount | None = None
    spike_watts: Amount | None = None
    cables_8pin: Count | None = None
    cables_16pin: Count | None = None

    @model_validator(mode="after")
    def _enough(self) -> Supplies:
        """Refuse a machine that needs more supplies than it has."""
        if self.count is not None and self.min_active is not None and self.min_active > self.count:
            raise ValueError(f"min_active {self.min_active} of {self.count} supplies")
        return self


class Ports(Record):
    """Network ports of one kind on a machine. ``nic`` is an adapter of the catalog."""

    nic: str | None = None
    count: Count
    gbit_per_s: Amount
    cage: Cage | None = None


class CardSlot(Record):
    """A slot that a GPU may sit in: its bracket in the chassis, from 1, and the lanes wired when all are used."""

    position: Annotated[int, Field(ge=1, le=32)]
    lanes: Literal[1, 4, 8, 16]


class Server(Entry):
    """A server. ``gpu`` is a GPU of the catalog; ``gpu_slots_on`` says what the GPUs' PCIe links end at.

    ``draw_max_watts`` is the whole machine at the wall; ``base_watts`` all but the GPUs, behind the supplies.
    ``memory_gib`` is what it is sold with, where it is sold so.
    """

    function: Literal["gpu", "head", "login", "storage", "edge"] | None = None
    form: Literal["rack", "tower", "desktop"] | None = None
    sockets: Annotated[int, Field(ge=1, le=16)] | None = None
    cores_per_socket: Annotated[int, Field(ge=1, le=512)] | None = None
    threads_per_core: Annotated[int, Field(ge=1, le=8)] | None = None
    memory_gib: Amount | None = None
    cpu_lanes: Count | None = None
    slots: tuple[CardSlot, ...] | None = None
    brackets: Annotated[int, Field(ge=1, le=64)] | None = None
    card_length_max_mm: Amount | None = None
    card_height_max_mm: Amount | None = None
    cools_passive_cards: bool | None = None
    base_watts: Amount | None = None
    liquid_share: Annotated[float, Field(ge=0, le=1)] | None = None
    height_u: Amount | None = None
    width_mm: Amount | None = None
    depth_mm: Amount | None = None
    weight_kg: Amount | None = None
    gpu: str | None = None
    gpu_count: Count | None = None
    gpu_slots_on: Literal["cpu", "switch"] | None = None
    x16_slots: Count | None = None
    supplies: Supplies = Supplies()
    draw_max_watts: Amount | None = None
    heat_max_watts: Amount | None = None
    airflow: Literal["front-to-rear", "rear-to-front"] | None = None
    cooling: Literal["air", "liquid", "both"] | None = None
    ports: tuple[Ports, ...] | None = None
    bmc: str | None = None


class Nic(Entry):
    """A network adapter."""

    link_layers: tuple[LinkLayer, ...] | None = None
    ports: Count | None = None
    gbit_per_s: Amount | None = None
    cage: Cage | None = None
    pcie: Pcie = Pcie()
    mount: Literal["pcie", "ocp3", "onboard"] | None = None
    draw_max_watts: Amount | None = None


class Switch(Entry):
    """A switch. ``ports`` counts logical ports of ``gbit_per_s``; a cage may hold two of them.

    ``uplink_ports`` are those of another speed beside them, which join it to other switches; their cages are numbered
    after the others.
    """

    link_layer: LinkLayer | None = None
    ports: Count | None = None
    ports_per_cage: Annotated[int, Field(ge=1, le=8)] | None = None
    gbit_per_s: Amount | None = None
    cage: Cage | None = None
    uplink_ports: Count | None = None
    uplink_gbit_per_s: Amount | None = None
    uplink_cage: Cage | None = None
    cage_max_watts: Amount | None = None
    managed: bool | None = None
    height_u: Amount | None = None
    depth_mm: Amount | None = None
    weight_kg: Amount | None = None
    airflow: Literal["front-to-rear", "rear-to-front"] | None = None
    supplies: Supplies = Supplies()
    draw_max_watts: Amount | None = None


class Cable(Entry):
    """A cable, or a transceiver with the fibre it may have. ``ends``: one end, and what the other splits into."""

    kind: Literal["dac", "acc", "aoc", "transceiver"] | None = None
    link_layers: tuple[LinkLayer, ...] | None = None
    gbit_per_s: Amount | None = None
    end: Cage | None = None
    other_end: Cage | None = None
    other_ends: Count | None = None
    reach_max_m: Amount | None = None
    lengths_m: tuple[Amount, ...] | None = None
    draw_max_watts: Amount | None = None
