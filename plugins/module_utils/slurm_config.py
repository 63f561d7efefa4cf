"""Slurm's files from data: settings, nodes, devices, partitions. Pure functions, standard library only."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_layout

#: Partition options in words, and what slurm.conf(5) calls them.
PARTITION_KEYS: dict[str, str] = {
    "default": "Default",
    "max_time": "MaxTime",
    "default_time": "DefaultTime",
    "state": "State",
    "priority": "PriorityTier",
    "max_nodes": "MaxNodes",
    "allow_accounts": "AllowAccounts",
    "allow_groups": "AllowGroups",
    "allow_qos": "AllowQos",
    "qos": "QOS",
    "oversubscribe": "OverSubscribe",
    "hidden": "Hidden",
}

_RANGE = re.compile(r"^(?P<head>[^\[\]]*)\[(?P<ranges>[0-9,\-]+)\](?P<tail>.*)$")


class SlurmDataError(ValueError):
    """Declared data that Slurm could not run with; the message says where and what to write."""


def render(value: Any) -> str:
    """Return a value as slurm.conf writes it: yes/no, lists with commas, the rest as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ",".join(render(item) for item in value)
    return str(value)


def merge(*layers: Mapping[str, Any]) -> dict[str, str]:
    """Merge settings, later layers over earlier ones, keys in any case; null takes a key out."""
    merged: dict[str, str] = {}
    spelling: dict[str, str] = {}
    for layer in layers:
        for key, value in layer.items():
            name = spelling.setdefault(key.lower(), key)
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = render(value)
    return {key: value for key, value in merged.items() if value != ""}


def expand(expression: str) -> list[str]:
    """Expand "gpu[01-03,07],cpu1" to its names, in the order written; SlurmDataError when it is none."""
    names: list[str] = []
    for part in re.split(r"\s*,\s*(?![^\[]*\])", expression.strip()):
        match = _RANGE.match(part)
        if match is None:
            if not part or "[" in part or "]" in part:
                raise SlurmDataError(f"{expression!r} is no node range such as gpu[01-03,07]")
            names.append(part)
            continue
        for piece in match["ranges"].split(","):
            first, dash, last = piece.partition("-")
            if not first or (dash and (not last or int(last) < int(first))):
                raise SlurmDataError(f"{expression!r} is no node range such as gpu[01-03,07]")
            for number in range(int(first), int(last or first) + 1):
                names.extend(
                    expand("{}{}{}".format(match["head"], str(number).zfill(len(first)), match["tail"]))
                )
    return names


def cpus(node: Mapping[str, Any]) -> int:
    """Return a node's hardware threads."""
    hardware = node["hardware"]
    return int(hardware["sockets"]) * int(hardware["cores_per_socket"]) * int(hardware["threads_per_core"])


def real_memory(node: Mapping[str, Any], headroom_mib: int, headroom_percent: int) -> int:
    """Return RealMemory in MiB: what is installed less the larger of the two headrooms.

    A node whose kernel shows less than RealMemory is drained, and no kernel shows all that is installed.
    """
    installed = int(node["hardware"]["memory_mib"])
    left = installed - max(headroom_mib, installed * headroom_percent // 100)
    if left <= 0:
        raise SlurmDataError(
            f"node {node['name']} has {installed} MiB of memory and the headroom leaves none of it: correct"
            " memory_mib of its hardware, or lower slurm_controller_memory_headroom_mib"
        )
    return left


def node_lines(nodes: Iterable[Mapping[str, Any]], headroom_mib: int, headroom_percent: int) -> list[str]:
    """Return slurm.conf's line of each node, in the order given.

    Addresses are written out, so that Slurm goes on when name service does not.
    """
    lines: list[str] = []
    for node in nodes:
        hardware = node["hardware"]
        words = [
            f"NodeName={node['name']}",
            f"NodeAddr={node['address']}",
            f"Sockets={int(hardware['sockets'])}",
            f"CoresPerSocket={int(hardware['cores_per_socket'])}",
            f"ThreadsPerCore={int(hardware['threads_per_core'])}",
            f"RealMemory={real_memory(node, headroom_mib, headroom_percent)}",
        ]
        gpus = hardware.get("gpus")
        if gpus:
            words.append(f"Gres={_of(node, gpu_layout.gres)}")
        words += [f"{key}={render(value)}" for key, value in sorted((node.get("options") or {}).items())]
        lines.append(" ".join([*words, "State=UNKNOWN"]))
    return lines


def default_memory_per_cpu(
    nodes: Sequence[Mapping[str, Any]], headroom_mib: int, headroom_percent: int
) -> int:
    """Return the MiB a CPU that fit on every node: a job without --mem leaves its neighbours theirs."""
    return min(
        (real_memory(node, headroom_mib, headroom_percent) // cpus(node) for node in nodes),
        default=0,
    )


def _of(node: Mapping[str, Any], function: Callable[[Mapping[str, Any]], Any]) -> Any:
    """What a function of gpu_layout says of a node's GPUs. Raises SlurmDataError, which names the node."""
    try:
        return function(node["hardware"]["gpus"])
    except gpu_layout.GpuDataError as error:
        raise SlurmDataError("node {}: {}".format(node["name"], error)) from error


def gres_lines(nodes: Iterable[Mapping[str, Any]], autodetect: str) -> list[str]:
    """Return gres.conf: AutoDetect for all, and of every node with GPUs how slurmd finds them.

    A node's own ``detect`` goes before ``autodetect``. Where nothing is detected, the device files are named.
    """
    lines = [f"AutoDetect={autodetect}"]
    for node in nodes:
        gpus = node["hardware"].get("gpus")
        if not gpus:
            continue
        detect = str(gpus.get("detect") or autodetect)
        name, count = node["name"], int(gpus["count"])
        if detect != "off":
            if detect != autodetect:
                lines.append(f"NodeName={name} AutoDetect={detect}")
        elif gpus.get("mig"):
            raise SlurmDataError(
                f"node {name}: slurmd finds divided GPUs (mig) by NVML only: say `gpus: managed` in the features of"
                " cluster.yml, or set slurm_controller_gres_autodetect to nvml"
            )
        else:
            devices = "/dev/nvidia0" if count == 1 else f"/dev/nvidia[0-{count - 1}]"
            lines.append("NodeName={} Name=gpu Type={} File={}".format(name, gpus["type"], devices))
        shared = _of(node, gpu_layout.shares)
        if shared:
            lines.append("NodeName={} Name={} Count={}".format(name, *shared))
    return lines


def shared(nodes: Sequence[Mapping[str, Any]], sharing: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the nodes, each with what its GPUs are shared as; SlurmDataError where a rule fits no GPUs."""
    found: list[dict[str, Any]] = [dict(node) for node in nodes]
    with_gpus = [node["name"] for node in nodes if node["hardware"].get("gpus")]
    for rule in sharing:
        option = "slurm_controller_gpu_sharing"
        meant = _nodes(rule.get("nodes", "all"), with_gpus, f"{option} (nodes with GPUs)", option)
        names = with_gpus if meant == "ALL" else meant.split(",")
        for node in found:
            if node["name"] in names:
                hardware = dict(node["hardware"])
                hardware["gpus"] = {**hardware["gpus"], "sharing": rule}
                node["hardware"] = hardware
    return found


def gres_types(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return GresTypes: ``gpu``, and what GPUs are shared as."""
    found: dict[str, None] = {}
    for node in nodes:
        if node["hardware"].get("gpus"):
            found["gpu"] = None
            shared = _of(node, gpu_layout.shares)
            if shared:
                found[shared[0]] = None
    return list(found)


def constrained(task_plugins: Sequence[str], cgroup: Mapping[str, Any]) -> bool:
    """Say whether jobs see the devices that they were given and no others, by slurm.conf and cgroup.conf."""
    words = {str(key).lower(): render(value).lower() for key, value in cgroup.items()}
    return (
        "cgroup" in task_plugins
        and words.get("cgroupplugin") != "disabled"
        and words.get("constraindevices") in ("yes", "true")
    )


def mixture_problems(nodes: Iterable[Mapping[str, Any]], is_constrained: bool) -> list[str]:
    """Return what speaks against whole and divided GPUs in one node where nothing keeps a job to its devices.

    Slurm numbers the devices that it hands out; CUDA numbers those that a job sees. With instances among them the
    numbers mean different GPUs: jobs for three whole ones were seen to get the divided one.
    """
    if is_constrained:
        return []
    return [
        f"Node {node['name']} has whole and divided GPUs (mig), and here jobs are not kept to their devices: a job"
        " that asks for whole ones could get the divided one. Divide all of its GPUs or none, or let cgroups"
        " constrain devices (slurm_controller_task_plugins with cgroup, ConstrainDevices in"
        " slurm_controller_cgroup_config)."
        for node in nodes
        if node["hardware"].get("gpus") and _of(node, gpu_layout.mixed)
    ]


def partition_nodes(partition: Mapping[str, Any], known: Sequence[str]) -> str:
    """Return a partition's Nodes=: ALL, or the names that its ranges and patterns (gpu*) stand for."""
    name = "partition {}".format(partition["name"])
    return _nodes(partition.get("nodes", "all"), known, name, "slurm_controller_partitions")


def _nodes(given: Any, known: Sequence[str], who: str, option: str) -> str:
    """Return ALL, or the ``known`` names that ranges and patterns stand for; SlurmDataError where one fits none."""
    if isinstance(given, str) and given.lower() == "all":
        return "ALL"
    names: list[str] = []
    for expression in [given] if isinstance(given, str) else given:
        if any(sign in expression for sign in "*?"):
            found = [name for name in known if fnmatch.fnmatchcase(name, expression)]
        else:
            found = expand(expression)
        if not found:
            raise SlurmDataError(f"{who}: no node's name matches {expression!r}")
        names += [name for name in found if name not in names]
    unknown = [name for name in names if name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, 1)
        hint = f", did you mean {near[0]}" if near else ""
        raise SlurmDataError(
            f"{who} names {', '.join(unknown)}, which is no worker of this cluster{hint}: correct {option}"
        )
    return ",".join(names)


def partition_lines(partitions: Sequence[Mapping[str, Any]], known: Sequence[str]) -> list[str]:
    """Return slurm.conf's line of each partition; SlurmDataError for what Slurm would trip over."""
    lines: list[str] = []
    seen: list[str] = []
    for partition in partitions:
        name = partition["name"]
        if name in seen:
            raise SlurmDataError(f"partition {name} is declared twice in slurm_controller_partitions")
        seen.append(name)
        words = [f"PartitionName={name}", f"Nodes={partition_nodes(partition, known)}"]
        for word, key in PARTITION_KEYS.items():
            if partition.get(word) is not None:
                value = partition[word]
                words.append(
                    "{}={}".format(
                        key, render(value).upper() if word in ("default", "state") else render(value)
                    )
                )
        words += [f"{key}={render(value)}" for key, value in sorted((partition.get("options") or {}).items())]
        lines.append(" ".join(words))
    defaults = [partition["name"] for partition in partitions if partition.get("default")]
    if len(defaults) > 1:
        raise SlurmDataError(
            "partitions {} are all the default one: only one can be".format(", ".join(defaults))
        )
    return lines


def parse(text: str) -> dict[str, Any]:
    """Read a slurm.conf as this module writes it: {settings, nodes, partitions}, values as text.

    Nodes and partitions map a name to its whole line. Comments and continued lines are understood.
    """
    settings: dict[str, str] = {}
    nodes: dict[str, str] = {}
    partitions: dict[str, str] = {}
    for written in re.sub(r"\\\n", " ", text).splitlines():
        line = re.sub(r"\s+#.*$|^#.*$", "", written).strip()
        key, equals, value = line.partition("=")
        if not equals:
            continue
        if key.lower() == "nodename":
            for name in expand(value.split()[0]):
                nodes[name] = line
        elif key.lower() == "partitionname":
            partitions[value.split()[0]] = line
        else:
            # SlurmctldHost is the one key that stands there more than once.
            before = settings.get(key.strip())
            settings[key.strip()] = f"{before},{value.strip()}" if before else value.strip()
    return {"settings": settings, "nodes": nodes, "partitions": partitions}
