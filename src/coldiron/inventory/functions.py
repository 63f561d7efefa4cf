"""What a node can do for the cluster. A function is a group of the same name; a stage maps it to a role.

The tables here are the only place that knows the functions. A new one is a line in FUNCTIONS, and one in
BY_KIND when some kind of node has it without being told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["head", "login", "storage", "cpu", "gpu"]
FunctionName = Literal[
    "dns_server",
    "time_server",
    "home_server",
    "nfs_server",
    "nfs_client",
    "netboot_server",
    "netboot_cache",
    "mariadb",
    "slurm_controller",
    "slurm_dbd",
    "slurm_worker",
    "slurm_login",
    "kube_control_plane",
    "kube_worker",
    "gpu_node",
    "podman",
    "apptainer",
    "docker",
    "enroot",
    "containerd",
    "mpi",
    "slurm_pam",
    "elasticsearch",
    "log_shipper",
    "kibana",
    "node_exporter",
    "prometheus",
    "alertmanager",
    "blackbox_exporter",
    "slurm_exporter",
    "grafana",
]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class Function:
    """``single``: at most one node has it. ``scheduler``: only clusters with that scheduler have it."""

    name: FunctionName
    single: bool = False
    scheduler: str | None = None


FUNCTIONS: dict[str, Function] = {
    function.name: function
    for function in (
        Function("dns_server"),
        Function("time_server"),
        Function("home_server", single=True),
        Function("nfs_server"),
        Function("nfs_client"),
        # Only where there are machines for it: see provisioner.
        Function("netboot_server"),
        # It serves images to the machines of its rack.
        Function("netboot_cache"),
        # The database is there for Slurm's accounting.
        Function("mariadb", single=True, scheduler="slurm"),
        Function("slurm_controller", single=True, scheduler="slurm"),
        Function("slurm_dbd", single=True, scheduler="slurm"),
        Function("slurm_worker", scheduler="slurm"),
        Function("slurm_login", scheduler="slurm"),
        Function("kube_control_plane", scheduler="kubernetes"),
        Function("kube_worker", scheduler="kubernetes"),
        # Driver, fabric manager, MIG, power limits and CUDA are coldiron's here.
        Function("gpu_node"),
        Function("podman"),
        Function("apptainer"),
        Function("docker"),
        Function("enroot", scheduler="slurm"),
        Function("containerd"),
        Function("mpi", scheduler="slurm"),
        # ssh to a worker is for those who have a job there.
        Function("slurm_pam", scheduler="slurm"),
        # Logs: every node ships its own, the servers keep them.
        Function("elasticsearch"),
        Function("log_shipper"),
        # Only where it is asked for: it comes from its maker's repository.
        Function("kibana", single=True),
        # Monitoring: every node tells of itself; the head asks, and says what is wrong.
        Function("node_exporter"),
        Function("prometheus"),
        Function("alertmanager"),
        Function("blackbox_exporter"),
        Function("slurm_exporter", scheduler="slurm"),
        # Only where it is asked for: it comes from its maker's repository.
        Function("grafana", single=True),
    )
}

BY_KIND: dict[str, tuple[FunctionName, ...]] = {
    "head": ("dns_server", "time_server", "mariadb", "slurm_controller", "slurm_dbd", "kube_control_plane"),
    "login": ("slurm_login",),
    "storage": ("home_server",),
    "cpu": ("slurm_worker", "kube_worker"),
    "gpu": ("slurm_worker", "kube_worker"),
}

# Kinds of nodes that people run containers and MPI programs on.
WITH_PEOPLE = ("login", "cpu", "gpu")
# What watches the others, on the first head unless a node names it.
WATCHERS: tuple[FunctionName, ...] = ("prometheus", "alertmanager", "blackbox_exporter")

# Groups that are neither a kind nor a function.
BARE_METAL = "bare_metal"
# Those of them whose BMC speaks IPMI alone.
BMC_IPMI = "bmc_ipmi"
# Nodes without a BMC whose cards are coldiron's to configure too; a site's own inventory file names them.
NETWORK_MANAGED = "network_managed"
OTHER_GROUPS = ("cluster", "virtual_rack", BARE_METAL, BMC_IPMI, NETWORK_MANAGED)


def kind_group(kind: str) -> str:
    """The group of all nodes of ``kind``."""
    return f"kind_{kind}"


def all_groups() -> list[str]:
    """Every group that a cluster has, empty or not."""
    return [*OTHER_GROUPS, *(kind_group(kind) for kind in KINDS), *FUNCTIONS]


@dataclass(frozen=True)
class Wanted:
    """What one node group says: its kind, its number of nodes and, where it says so, its functions."""

    kind: str
    functions: tuple[str, ...] | None


def assign(
    nodes: list[Wanted],
    scheduler: str,
    home_backend: str,
    gpus: str = "provided",
    extras: Iterable[str] = (),
    worker_logins: str = "anybody",
    monitoring: str = "none",
    logging: str = "none",
    dashboards: str = "none",
    log_viewer: str = "none",
) -> list[tuple[str, ...]]:
    """The functions of each of ``nodes``, in FUNCTIONS' order.

    A node has what it says, else what its kind has. A function that only one node can have goes to the first
    node of the kind, and to none when some node claims it by name. Homes are on the first storage node, else
    on the first head. With NFS homes the home server exports and every node that does not serve mounts. With
    ``managed`` GPUs every node of kind gpu is a gpu_node; what people want on workers and login nodes
    (``extras``: container engines, mpi) is there. ``worker_logins`` says who may log in to a worker.
    With ``logging`` every node ships its log, to the first head unless some node claims to be a server.
    With ``monitoring`` every node tells of itself, and the first head watches what no other node claims.
    With ``dashboards`` the first head shows them, with ``log_viewer`` it shows the logs.
    """
    claimed = {name for node in nodes for name in node.functions or ()}
    taken = {name for name in claimed if FUNCTIONS[name].single}
    result: list[set[str]] = []
    for node in nodes:
        if node.functions is not None:
            result.append(set(node.functions))
            continue
        own: set[str] = set()
        for name in BY_KIND[node.kind]:
            function = FUNCTIONS[name]
            if function.scheduler not in (None, scheduler) or name in taken:
                continue
            if function.single:
                taken.add(name)
            own.add(name)
        if node.kind == "gpu" and gpus == "managed":
            own.add("gpu_node")
        if node.kind in WITH_PEOPLE:
            own.update(name for name in extras if FUNCTIONS[name].scheduler in (None, scheduler))
        if worker_logins == "with_job" and "slurm_worker" in own:
            own.add("slurm_pam")
        result.append(own)
    if "home_server" not in taken:
        for node, own in zip(nodes, result, strict=True):
            if node.kind == "head" and node.functions is None:
                own.add("home_server")
                break
    if home_backend == "nfs":
        if not any("nfs_server" in own for own in result):
            for own in result:
                if "home_server" in own:
                    own.add("nfs_server")
        for own in result:
            if "nfs_server" not in own:
                own.add("nfs_client")
    if monitoring == "prometheus":
        _watch(nodes, result, claimed)
    if logging == "elasticsearch":
        _log(nodes, result, claimed)
    if dashboards == "grafana":
        _once("grafana", nodes, result, claimed)
    if log_viewer == "kibana":
        _once("kibana", nodes, result, claimed)
    return [ordered(own) for own in result]


def _once(name: str, nodes: list[Wanted], result: list[set[str]], claimed: Collection[str]) -> None:
    """Give the first head the function ``name``, unless some node claims it."""
    heads = (
        own for node, own in zip(nodes, result, strict=True) if node.kind == "head" and node.functions is None
    )
    if name not in claimed and (own := next(heads, None)) is not None:
        own.add(name)


def _watch(nodes: list[Wanted], result: list[set[str]], claimed: Collection[str]) -> None:
    """Give every node of ``result`` what it has for monitoring."""
    for own in result:
        own.add("node_exporter")
        # Slurm is asked where its controller is.
        if "slurm_controller" in own and "slurm_exporter" not in claimed:
            own.add("slurm_exporter")
    for node, own in zip(nodes, result, strict=True):
        if node.kind == "head" and node.functions is None:
            own.update(name for name in WATCHERS if name not in claimed)
            break


def _log(nodes: list[Wanted], result: list[set[str]], claimed: Collection[str]) -> None:
    """Give every node of ``result`` what it has for logs."""
    for own in result:
        own.add("log_shipper")
    if "elasticsearch" not in claimed:
        for node, own in zip(nodes, result, strict=True):
            if node.kind == "head" and node.functions is None:
                own.add("elasticsearch")
                break


def provisioner(kinds: list[str], own: list[bool], functions: list[tuple[str, ...]]) -> int | None:
    """The position of the node that becomes the ``netboot_server`` of a cluster with machines; None if one is named.

    It is the first head that does not name its functions itself; ``own`` says which nodes do.
    """
    if any("netboot_server" in having for having in functions):
        return None
    heads = (at for at, kind in enumerate(kinds) if kind == "head" and not own[at])
    return next(heads, None)


def ordered(functions: Iterable[str]) -> tuple[str, ...]:
    """``functions`` in the table's order."""
    having = set(functions)
    return tuple(name for name in FUNCTIONS if name in having)
