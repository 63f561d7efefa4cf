"""Checks of what the cluster has: its scheduler, homes, platforms and management controllers."""

from __future__ import annotations

from collections.abc import Iterator

from coldiron.inventory.ranges import fold
from coldiron.plan.design import Check, Design, Result


def kubernetes(design: Design) -> Iterator[Result]:
    """CV115: a scheduler that no stage of this release installs."""
    if design.cluster.features.scheduler == "kubernetes":
        yield design.warn(
            "CV115",
            ("features", "scheduler"),
            "no stage of this release installs Kubernetes: a run sets up the base and the storage, and no scheduler",
            "go on if that is what you want, or write `scheduler: slurm`",
            subject="scheduler",
        )


def quorum(design: Design) -> Iterator[Result]:
    """CV116 and CV117: control planes that no majority can be made of, or only one."""
    nodes = [node for node in design.cluster.nodes if "kube_control_plane" in node.functions]
    planes = [node.name for node in nodes]
    if planes and len(planes) % 2 == 0:
        yield design.refuse(
            "CV116",
            nodes[0].path,
            f"{len(planes)} control planes, {len(planes) // 2 + 1} of which must live: no more may fail than of "
            f"{len(planes) - 1}",
            f"have {len(planes) + 1} or {len(planes) - 1}; `functions` says which nodes are a `kube_control_plane`",
            hosts=fold(planes),
            subject="control planes",
            control_planes=len(planes),
        )
    elif len(planes) == 1:
        yield design.advise(
            "CV117",
            nodes[0].path,
            "one control plane: while it is down, nothing in the cluster can change",
            "have three, on nodes of their own",
            hosts=planes[0],
            subject="control planes",
            control_planes=1,
        )


def homes(design: Design) -> Iterator[Result]:
    """CV118: homes over NFS on nodes that are containers."""
    if design.cluster.features.home_backend != "nfs":
        return
    users = [
        node.name
        for node in design.cluster.nodes
        if node.platform == "container" and {"nfs_server", "nfs_client"} & set(node.functions)
    ]
    if users:
        yield design.warn(
            "CV118",
            ("features", "home_backend"),
            "homes over NFS, which containers can neither mount nor export on every kernel",
            "write `home_backend: provided`, or `platform: machine`",
            hosts=fold(users),
            subject="home_backend",
        )


# A feature, what carries it out, and what stays undone where no node has that function.
_CARRIED = (
    ("monitoring", "prometheus", "every node tells of itself, and nobody asks or is told"),
    ("logging", "elasticsearch", "every node ships its log, and no node takes it"),
    ("dashboards", "grafana", "no node shows any"),
    ("log_viewer", "kibana", "no node shows the logs"),
)


def carried(design: Design) -> Iterator[Result]:
    """CV123: a feature that is on, where nodes name their functions and none of them is the one that does it."""
    for feature, function, undone in _CARRIED:
        if getattr(design.cluster.features, feature) != function:
            continue
        if not any(function in node.functions for node in design.cluster.nodes):
            yield design.warn(
                "CV123",
                ("features", feature),
                f"no node has the function `{function}`: {undone}",
                f"write `{function}` to the `functions` of a node, or `{feature}: none`",
                subject=feature,
            )


def controllers(design: Design) -> Iterator[Result]:
    """CV119 and CV120: management controllers of nodes that have none, and those that nobody can log in to."""
    for kind in design.kinds:
        with_bmc = [node for node in kind.nodes if node.bmc_address is not None]
        soft = [node for node in with_bmc if node.platform == "container"]
        locked = [node for node in with_bmc if node.platform != "container" and node.bmc_credentials is None]
        if soft:
            yield design.warn(
                "CV119",
                (*kind.path, "bmc"),
                "containers have no management controller",
                "remove `bmc`, or write the `platform` that they are",
                hosts=fold([node.name for node in soft]),
            )
        if locked:
            yield design.advise(
                "CV120",
                (*kind.path, "bmc"),
                "nothing says with which password the management controllers are reached",
                "write `credentials: NAME`, and the user and password under that name in the vault",
                hosts=fold([node.name for node in locked]),
            )


CHECKS: tuple[Check, ...] = (kubernetes, quorum, homes, carried, controllers)
