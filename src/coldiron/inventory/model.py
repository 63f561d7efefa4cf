"""What may stand in a cluster.yml, key by key. What the keys mean together is checked in ``check``.

Each class is one block of the file, each field one key; descriptions and examples feed the JSON schema, the
messages and docs/reference/cluster.md. The building is in ``facility``, the wires in ``wiring``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from coldiron.inventory.facility import Feed, Pdu, RackGroup, Room, Site
from coldiron.inventory.functions import FunctionName, Kind
from coldiron.inventory.names import Wrong, check_host_name
from coldiron.inventory.values import (
    AddressRange,
    Block,
    CatalogName,
    Counts,
    DomainName,
    FileBeside,
    Macs,
    NodeNames,
    NodesThere,
    Numbers,
    Text,
    Texts,
    ThingNames,
    Version,
    Word,
)
from coldiron.inventory.wiring import Fabric, Network, SwitchGroup

PLUGIN = "coldiron.cluster.cluster"

Platform = Literal["container", "machine", "metal"]
Distribution = Literal["debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "rocky-9", "rhel-9"]
Scheduler = Literal["slurm", "kubernetes", "none"]
HomeBackend = Literal["nfs", "provided"]
GpuBackend = Literal["managed", "provided"]
ContainerEngine = Literal["podman", "apptainer", "docker", "enroot", "containerd"]
Mpi = Literal["none", "openmpi", "mpich"]
WorkerLogins = Literal["anybody", "with_job"]
Monitoring = Literal["none", "prometheus"]
Logging = Literal["none", "elasticsearch"]
Dashboards = Literal["none", "grafana"]
LogViewer = Literal["none", "kibana"]
Workload = Literal["llm", "vision", "hpc", "inference", "interactive"]
Cage = Literal["rj45", "sfp28", "qsfp28", "qsfp56", "qsfp112", "qsfp-dd", "osfp", "osfp-flat", "osfp-2x"]
CardCooling = Literal["passive", "active", "blower", "open", "liquid"]


class MigLayout(Block):
    """How some GPUs of a node are divided into instances."""

    gpus: Numbers | None = Field(
        default=None, description="Which of the node's GPUs, counted from 1; all if absent.", examples=["1-4"]
    )
    profiles: list[Annotated[Text, Field(pattern=r"^[1-7]g\.[0-9]+gb(\+me|\+gfx|\+me\.all|-me)?$")]] = Field(
        min_length=1,
        max_length=7,
        description="Profiles of one GPU's instances, as nvidia-smi names them.",
        examples=[["3g.40gb", "3g.40gb"]],
    )


class Gpus(Block):
    """The accelerators of one node. ``type`` or ``model`` names them."""

    type: Annotated[Text, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")] | None = Field(
        default=None,
        description="Name in lower case, as Slurm's GRES calls it; made from the model if absent.",
        examples=["h100"],
    )
    model: CatalogName | None = Field(
        default=None,
        description="Name in the catalog; see `coldiron catalog list gpus`.",
        examples=["h100-sxm5-80gb"],
    )
    count: int = Field(ge=1, le=32, description="GPUs in one node.", examples=[8])
    mig: list[MigLayout] | None = Field(
        default=None, description="How GPUs are divided (MIG); absent where all are whole."
    )


class PowerSupplies(Block):
    """A machine's power supplies."""

    count: int | None = Field(default=None, ge=1, le=16, description="How many.", examples=[2])
    watts: float | None = Field(default=None, gt=0, le=20_000, description="What one gives.", examples=[2000])
    min_active: int | None = Field(
        default=None, ge=1, le=16, description="How many must live for it to run at full load.", examples=[1]
    )
    inlet: Literal["c14", "c20", "busbar"] | None = Field(
        default=None, description="The plug on its cord: c14 goes into C13, c20 into C19.", examples=["c20"]
    )
    efficiency: Literal["gold", "platinum", "titanium"] | None = Field(
        default=None, description="Its 80 PLUS grade.", examples=["titanium"]
    )
    inrush_amps: float | None = Field(
        default=None, gt=0, le=1000, description="Peak of one when it is switched on.", examples=[35]
    )
    spike_watts: float | None = Field(
        default=None,
        gt=0,
        le=40_000,
        description="Most that one gives for a moment; its watts if unknown, twice as much by ATX 3.",
        examples=[3200],
    )
    cables_8pin: int | None = Field(
        default=None,
        ge=0,
        le=64,
        description="Separate 8-pin (150 W) cables for GPUs, of all supplies together.",
        examples=[12],
    )
    cables_16pin: int | None = Field(
        default=None,
        ge=0,
        le=64,
        description="12V-2x6 (12VHPWR, 600 W) cables for GPUs, of all supplies together.",
        examples=[4],
    )


class PortGroup(Block):
    """Network ports of one kind in a machine."""

    count: int = Field(ge=1, le=64, description="How many.", examples=[2])
    gbit_per_s: float = Field(gt=0, le=10_000, description="Speed of one.", examples=[25])
    nic: CatalogName | None = Field(
        default=None, description="The adapter's name in the catalog.", examples=["connectx-7-osfp"]
    )
    cage: Cage | None = Field(default=None, description="What is plugged into it.", examples=["sfp28"])


class Slot(Block):
    """A PCI Express slot that a GPU may sit in."""

    position: int = Field(
        ge=1, le=32, description="Which slot bracket of the chassis, counted from 1.", examples=[1]
    )
    lanes: Literal[1, 4, 8, 16] = Field(
        default=16, description="Lanes that are wired when all slots are used.", examples=[8]
    )


class StorageServed(Block):
    """What a storage node gives to the others."""

    read_gib_per_s: float | None = Field(
        default=None, gt=0, le=100_000, description="Reading, GiB a second, of one node.", examples=[40]
    )
    write_gib_per_s: float | None = Field(
        default=None, gt=0, le=100_000, description="Writing, GiB a second, of one node.", examples=[20]
    )
    capacity_tb: float | None = Field(
        default=None, gt=0, le=1_000_000, description="Usable capacity of one node, in TB.", examples=[240]
    )


class Hardware(Block):
    """One node's hardware. What is absent is taken from the catalog where the node group names a `model`."""

    sockets: int | None = Field(
        default=None, ge=1, le=16, description="Processor sockets; 1 if unknown.", examples=[2]
    )
    cores_per_socket: int | None = Field(
        default=None, ge=1, le=512, description="Cores a socket.", examples=[56]
    )
    threads_per_core: int | None = Field(
        default=None, ge=1, le=8, description="Hardware threads a core; 1 if unknown.", examples=[2]
    )
    memory_gib: float | None = Field(
        default=None, gt=0, le=65536, description="Memory, in GiB.", examples=[2048]
    )
    gpus: Gpus | None = Field(default=None, description="GPUs; absent where there are none.")
    form: Literal["rack", "tower", "desktop"] | None = Field(
        default=None, description="What kind of chassis it is.", examples=["tower"]
    )
    height_u: float | None = Field(default=None, gt=0, le=60, description="Height in U.", examples=[4])
    depth_mm: float | None = Field(default=None, gt=0, le=3000, description="Depth.", examples=[737])
    weight_kg: float | None = Field(default=None, gt=0, le=2000, description="Weight.", examples=[36])
    cooling: Literal["air", "liquid", "both"] | None = Field(
        default=None, description="What takes its heat.", examples=["air"]
    )
    liquid_share: float | None = Field(
        default=None, ge=0, le=1, description="Share of the heat that liquid takes.", examples=[0.8]
    )
    draw_watts: float | None = Field(
        default=None,
        gt=0,
        le=200_000,
        description="Most watts at the wall, of the whole machine.",
        examples=[10200],
    )
    base_watts: float | None = Field(
        default=None,
        gt=0,
        le=100_000,
        description="Most watts of all but the GPUs, behind the supply; for machines without a figure of the whole.",
        examples=[450],
    )
    supplies: PowerSupplies | None = Field(default=None, description="Power supplies.")
    ports: list[PortGroup] | None = Field(default=None, description="Network ports.")
    cpu_lanes: int | None = Field(
        default=None,
        ge=4,
        le=512,
        description="PCI Express lanes of all processors, for slots.",
        examples=[128],
    )
    gpu_slots_on: Literal["cpu", "switch"] | None = Field(
        default=None,
        description="What the GPUs' slots hang on: the processors or a PCIe switch.",
        examples=["cpu"],
    )
    slots: list[Slot] | None = Field(default=None, description="Slots for GPUs.")
    brackets: int | None = Field(
        default=None, ge=1, le=64, description="Slot brackets of the chassis, used or not.", examples=[8]
    )
    card_length_max_mm: float | None = Field(
        default=None, gt=0, le=1000, description="Longest card that the chassis takes.", examples=[330]
    )
    card_height_max_mm: float | None = Field(
        default=None, gt=0, le=500, description="Highest card that the chassis takes.", examples=[140]
    )
    cools_passive_cards: bool | None = Field(
        default=None, description="Whether its fans push air through cards without fans.", examples=[True]
    )
    storage: StorageServed | None = Field(default=None, description="What a storage node serves.")


class Bmc(Block):
    """The node's management controller."""

    address: AddressRange = Field(
        description="Its address: the first of the range, or a range of the same length.",
        examples=["10.78.0.31"],
    )
    mac: Macs | None = Field(
        default=None, description="Its MAC address; for a range a list.", examples=["52:54:00:aa:00:01"]
    )
    credentials: Annotated[Text, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")] | None = Field(
        default=None,
        description="The variable with its user and password, in the vault; never the secret itself.",
        examples=["bmc_credentials"],
    )
    protocol: Literal["redfish", "ipmi"] = Field(
        default="redfish",
        description="What it is spoken to with; IPMI where it has only that.",
        examples=["ipmi"],
    )


class BmcOwn(Block):
    """What one node's management controller has of its own."""

    address: AddressRange | None = Field(
        default=None, description="Its address; the range's if absent.", examples=["10.78.0.77"]
    )
    mac: Macs | None = Field(
        default=None, description="Its MAC address; for a range a list.", examples=["52:54:00:aa:00:77"]
    )
    credentials: Annotated[Text, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")] | None = Field(
        default=None,
        description="The variable with its user and password, in the vault.",
        examples=["bmc_credentials"],
    )
    protocol: Literal["redfish", "ipmi"] | None = Field(
        default=None, description="What it is spoken to with; the range's if absent.", examples=["ipmi"]
    )


class Boot(Block):
    """How the machine starts from the network."""

    firmware: Literal["uefi", "bios"] = Field(
        default="uefi", description="What its firmware is set to.", examples=["bios"]
    )
    path: Literal["pxe", "http"] = Field(
        default="pxe",
        description="How the firmware fetches its first program: PXE (TFTP), or UEFI HTTP boot.",
        examples=["http"],
    )


class Disk(Block):
    """A disk by a rule that finds it: its serial, its WWN, or its size and model."""

    use: Literal["system", "swap", "scratch", "data"] = Field(
        description="What it is for. Two for system are mirrored.", examples=["system"]
    )
    serial: Texts | None = Field(
        default=None,
        description="Serial number; for a range a list in the nodes' order.",
        examples=["S6XNNE0T100001"],
    )
    wwn: Texts | None = Field(
        default=None, description="World wide name; for a range a list.", examples=["0x5002538f00000001"]
    )
    size_gb: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="Size, in 10^9 bytes; 5 % off is the same.",
        examples=[960],
    )
    model: Text | None = Field(
        default=None, description="Model, as the disk says it.", examples=["SAMSUNG MZ1L2960"]
    )
    count: int = Field(default=1, ge=1, le=128, description="How many disks the rule finds.", examples=[2])


class Power(Block):
    """What the node may draw, and where it is plugged in."""

    gpu_cap_watts: float | None = Field(
        default=None, gt=0, le=5000, description="Power limit of each GPU.", examples=[300]
    )
    fit_circuit: bool = Field(
        default=False,
        description="The highest cap at which every circuit holds, as the plan reckons it.",
        examples=[True],
    )
    pdus: list[Text] | None = Field(
        default=None,
        description="The rack's PDU of each supply, in their order; all PDUs in turn if absent.",
        examples=[["a", "a", "b", "b"]],
    )


class Software(Block):
    """What runs beneath the jobs on nodes with GPUs. The roles take it from here."""

    kernel: Version | None = Field(default=None, description="Kernel.", examples=["6.12.107"])
    driver: Version | None = Field(default=None, description="NVIDIA driver.", examples=["580.95.05"])
    kernel_module: Literal["open", "proprietary"] | None = Field(
        default=None, description="Flavour of the driver's modules.", examples=["open"]
    )
    cuda: list[Version] = Field(default_factory=list, description="CUDA toolkits.", examples=[["12.9"]])
    fabric_manager: Version | None = Field(
        default=None, description="Fabric manager; the driver's version if absent.", examples=["580.95.05"]
    )


class Defaults(Block):
    """What a node group has when it does not say otherwise. A group's own value replaces the whole of it."""

    platform: Platform | None = Field(default=None, description="See nodes.", examples=["metal"])
    distribution: Distribution | None = Field(default=None, description="See nodes.", examples=["debian-13"])
    hardware: Hardware | None = Field(default=None, description="See nodes.")
    power: Power | None = Field(default=None, description="What it may draw, and where it is plugged in.")
    software: Software | None = Field(default=None, description="Kernel, driver and CUDA.")
    disks: list[Disk] | None = Field(default=None, description="Disks by the rules that find them.")
    boot: Boot | None = Field(default=None, description="How it starts from the network.")


class NodeOwn(Block):
    """What one node of a range has of its own; see nodes."""

    address: AddressRange | None = Field(default=None, description="See nodes.", examples=["10.77.0.31"])
    addresses: dict[str, AddressRange] | None = Field(
        default=None, description="See nodes.", examples=[{"storage": "10.79.0.31"}]
    )
    mac: Macs | None = Field(default=None, description="See nodes.", examples=["52:54:00:12:34:56"])
    serial: Texts | None = Field(default=None, description="See nodes.", examples=["1660224000123"])
    bmc: BmcOwn | None = Field(default=None, description="What its management controller has of its own.")
    rack: ThingNames | None = Field(default=None, description="See nodes.", examples=["r01"])
    u: Counts | None = Field(default=None, description="See nodes.", examples=[9])
    platform: Platform | None = Field(default=None, description="See nodes.", examples=["metal"])
    distribution: Distribution | None = Field(default=None, description="See nodes.", examples=["debian-13"])
    hardware: Hardware | None = Field(default=None, description="See nodes.")
    power: Power | None = Field(default=None, description="See nodes.")
    software: Software | None = Field(default=None, description="See nodes.")
    disks: list[Disk] | None = Field(default=None, description="See nodes.")
    boot: Boot | None = Field(default=None, description="See nodes.")


class NodeGroup(Defaults):
    """One node, or a range of nodes that are alike."""

    name: NodeNames = Field(
        description="A node or a range, in ClusterShell's notation.", examples=["gpu[01-12]"]
    )
    kind: Kind = Field(description="What the nodes are for; gives them their functions.", examples=["gpu"])
    model: CatalogName | None = Field(
        default=None,
        description="The machine's name in the catalog; `hardware` says what differs.",
        examples=["dgx-h100"],
    )
    address: AddressRange = Field(
        description="Address on the network `cluster`: the first node's (the others follow by their number), "
        "or a range of the same length.",
        examples=["10.77.0.31", "10.77.0.[31-33]"],
    )
    addresses: dict[str, AddressRange] = Field(
        default_factory=dict,
        description="Addresses on other networks, by the network's name, as `address` is written.",
        examples=[{"storage": "10.79.0.31"}],
    )
    mac: Macs | None = Field(
        default=None,
        description="MAC address on the network `cluster`; for a range a list in the nodes' order.",
        examples=["52:54:00:12:34:56"],
    )
    serial: Texts | None = Field(
        default=None,
        description="Serial number of the chassis; for a range a list in the nodes' order.",
        examples=["1660224000123"],
    )
    bmc: Bmc | None = Field(default=None, description="Management controllers, one a node.")
    rack: ThingNames | None = Field(
        default=None,
        description="The rack, or a range of racks over which the nodes are spread evenly in their order; `auto` lets "
        "the plan choose.",
        examples=["r[01-03]"],
    )
    u: Counts | None = Field(
        default=None,
        description="The lowest U that the first node of each rack takes, the next stand above it; or a list, one a "
        "node of a rack. The plan chooses if absent.",
        examples=[1],
    )
    workload: Workload | None = Field(
        default=None,
        description="What its GPUs mostly do, which says how much memory they need.",
        examples=["llm"],
    )
    functions: list[FunctionName] | None = Field(
        None, description="Replaces the functions that the kind gives.", examples=[["slurm_worker"]]
    )
    overrides: dict[NodesThere, NodeOwn] = Field(
        default_factory=dict,
        description="What single nodes of the range have of their own, by their name or a range of them.",
        examples=[{"gpu03": {"serial": "1660224000777"}}],
    )


class Features(Block):
    """What the cluster has."""

    scheduler: Scheduler = Field(default="slurm", description="Workload manager.")
    home_backend: HomeBackend = Field(
        default="nfs",
        description="nfs: the home server exports /home. provided: something outside puts it on every node.",
    )
    gpus: GpuBackend = Field(
        default="managed",
        description="managed: driver, MIG, limits and CUDA of nodes with GPUs are coldiron's. provided: are there.",
    )
    containers: list[ContainerEngine] = Field(
        default_factory=list,
        description="What runs containers on workers and login nodes; see docs/containers.md.",
        examples=[["podman", "apptainer"]],
    )
    mpi: Mpi = Field(
        default="none",
        description="MPI on workers and, with its compilers, on login nodes; see docs/slurm.md.",
        examples=["openmpi"],
    )
    worker_logins: WorkerLogins = Field(
        default="anybody",
        description="Who may log in to Slurm's workers by ssh. with_job: administrators, and who has a job there.",
        examples=["with_job"],
    )
    monitoring: Monitoring = Field(
        default="none",
        description="prometheus: every node tells of itself, the head watches; see docs/monitoring.md.",
        examples=["prometheus"],
    )
    logging: Logging = Field(
        default="none",
        description="elasticsearch: every node ships its log, the head or who says so keeps it; see docs/logging.md.",
        examples=["elasticsearch"],
    )
    dashboards: Dashboards = Field(
        default="none",
        description="grafana: the head, or who says so, shows what the nodes tell; see docs/dashboards.md.",
        examples=["grafana"],
    )
    log_viewer: LogViewer = Field(
        default="none",
        description="kibana: the head, or who says so, shows the logs; wants logging. See docs/logging.md.",
        examples=["kibana"],
    )


class PluginOptions(Block):
    """Ansible's own options of any inventory plugin that can cache; see docs/inventory.md."""

    cache: bool | None = Field(default=None, description="Keep the parsed inventory in Ansible's cache.")
    cache_plugin: Text | None = Field(default=None, description="Which cache plugin.", examples=["jsonfile"])
    cache_timeout: int | None = Field(
        default=None, ge=0, description="Seconds that a cached inventory lives."
    )
    cache_connection: Text | None = Field(default=None, description="Where the cache plugin keeps its data.")
    cache_prefix: Text | None = Field(default=None, description="Prefix of the cache plugin's entries.")


class ClusterFile(PluginOptions):
    """A whole cluster.yml."""

    plugin: Literal["coldiron.cluster.cluster"] = Field(
        description="Says that this inventory plugin reads the file.", examples=[PLUGIN]
    )
    name: Word = Field(description="The cluster's name.", examples=["hopper"])
    domain: DomainName = Field(description="DNS domain of the nodes.", examples=["hopper.internal"])
    site: Site | None = Field(default=None, description="The place, its prices, its own catalog.")
    feeds: dict[str, Feed] = Field(
        default_factory=dict,
        description="The building's independent supplies of electricity, by name.",
        examples=[{"A": {"volts": 400, "phases": 3, "amps": 250}}],
    )
    rooms: dict[str, Room] = Field(
        default_factory=dict, description="Rooms by name.", examples=[{"hall1": {"cooling": {"air_kw": 120}}}]
    )
    racks: list[RackGroup] = Field(
        default_factory=list, description="The racks.", examples=[[{"name": "r[01-04]", "units": 48}]]
    )
    networks: dict[str, Network] = Field(
        description="Networks by name; `cluster` is one of them.",
        examples=[{"cluster": {"subnet": "10.77.0.0/24"}}],
    )
    fabrics: dict[str, Fabric] = Field(
        default_factory=dict,
        description="InfiniBand and RoCE fabrics by name.",
        examples=[{"compute": {"link_layer": "infiniband", "gbit_per_s": 400, "rails": 8}}],
    )
    switches: list[SwitchGroup] = Field(
        default_factory=list,
        description="The switches.",
        examples=[[{"name": "leaf[01-04]", "model": "qm9700", "function": "leaf", "fabric": "compute"}]],
    )
    features: Features = Field(default_factory=Features, description="What the cluster has.")
    defaults: Defaults = Field(default_factory=Defaults, description="What every node group has.")
    nodes: list[NodeGroup] = Field(
        min_length=1,
        description="The nodes.",
        examples=[[{"name": "head01", "kind": "head", "address": "10.77.0.1"}]],
    )
    nodes_csv: FileBeside | None = Field(
        default=None,
        description="A CSV file beside cluster.yml with MACs, serials and places of single nodes.",
        examples=["nodes.csv"],
    )


__all__ = [
    "PLUGIN",
    "Block",
    "Bmc",
    "BmcOwn",
    "Boot",
    "ClusterFile",
    "Defaults",
    "Disk",
    "Fabric",
    "Features",
    "Feed",
    "Gpus",
    "Hardware",
    "MigLayout",
    "Network",
    "NodeGroup",
    "NodeOwn",
    "Pdu",
    "PluginOptions",
    "PortGroup",
    "Power",
    "PowerSupplies",
    "RackGroup",
    "Room",
    "Site",
    "Slot",
    "Software",
    "StorageServed",
    "SwitchGroup",
    "Wrong",
    "check_host_name",
]
