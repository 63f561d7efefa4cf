"""Checks of versions and features; their codes begin with CV. Here: driver, kernel, CUDA and fabric manager."""

from __future__ import annotations

from collections.abc import Iterator

from coldiron.inventory.ranges import fold
from coldiron.inventory.source import KeyPath
from coldiron.plan.checks import software_features, software_mig, software_storage
from coldiron.plan.design import Check, Design, Kind, Result
from coldiron.plan.matrix import Stack, first_driver, judge


def stacks(design: Design) -> Iterator[Result]:
    """CV101 to CV108: what is meant to run on each kind of node with GPUs, against what is known of it."""
    for kind in design.kinds:
        if not kind.build.gpu_count:
            continue
        gpu = kind.build.gpu
        told: dict[Stack, list[str]] = {}
        for node in kind.nodes:
            software = node.software
            if software is not None:
                stack = Stack(
                    software.driver,
                    software.kernel,
                    software.kernel_module,
                    tuple(software.cuda),
                    software.fabric_manager,
                    node.distribution,
                )
                told.setdefault(stack, []).append(node.name)
        for stack, hosts in told.items():
            for reason in judge(gpu, stack):
                yield design.finding(
                    reason.code,
                    reason.severity,
                    _path(design, kind, hosts[0], reason.key),
                    reason.what,
                    reason.advice,
                    hosts=fold(hosts),
                )
            if stack.driver is None:
                continue
            if gpu is None:
                path = (*kind.path, "hardware", "gpus")
                yield design.unknown(
                    kind.label, "hardware.gpus.model", "whether the driver knows its GPUs", path
                )
            elif first_driver(gpu) is None:
                yield design.unknown(gpu.name, "driver_branch_min", "whether the driver knows it", kind.path)


def _path(design: Design, kind: Kind, host: str, key: tuple[str | int, ...]) -> KeyPath:
    """The line that says it: the node's own, its group's, or everybody's."""
    lines = design.cluster.document.lines
    for own in kind.group.overrides:
        path = (*kind.path, "overrides", own, "software", *key)
        if path in lines and host in design.nodes and _names(own, host):
            return path
    path = (*kind.path, "software", *key)
    return path if path in lines else ("defaults", "software", *key)


def _names(text: str, host: str) -> bool:
    from coldiron.inventory.ranges import expand

    return host in expand(text)


CHECKS: tuple[Check, ...] = (
    stacks,
    *software_mig.CHECKS,
    *software_features.CHECKS,
    *software_storage.CHECKS,
)
