"""What the roles' variables say of the cluster, against what cluster.yml says it is; their codes begin with CV2.

``check`` is pure. ``of`` fetches what it reads out of an inventory that Ansible has resolved.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coldiron.inventory.cluster import Node
from coldiron.inventory.findings import did_you_mean, shown
from coldiron.inventory.ranges import RangeError, expand, fold
from coldiron.inventory.source import KeyPath
from coldiron.plan.design import Design
from coldiron.plan.findings import Finding, Severity
from coldiron.plan.resolved import Resolved
from coldiron.testing.site import plain
from coldiron.testing.stages import find_collection, load_yaml

_PREFIX = "slurm_controller_"
_PARTITIONS = f"{_PREFIX}partitions"
_HEADROOM = (f"{_PREFIX}memory_headroom_mib", f"{_PREFIX}memory_headroom_percent")
_GRES_LINES = f"{_PREFIX}gres_lines"
_AUTODETECT = f"{_PREFIX}gres_autodetect"
_VERSION = "slurm_common_version"
# Where limits may name a type of GPU, and how Slurm writes it there.
_LIMITS = (_PARTITIONS, f"{_PREFIX}qos", f"{_PREFIX}accounts", f"{_PREFIX}account_users", f"{_PREFIX}config")
_TYPED = re.compile(r"\b(?:gres/)?gpu:([A-Za-z_][A-Za-z0-9_.-]*)")
_KEY = re.compile(r"(\w+)=(\S+)")
_DEVICES = re.compile(r"\[([0-9,-]+)\]$")
# Where Slurm's packages have the plugin that asks the driver for its GPUs; the topology says the same.
_WITH_NVML = ("debian-12", "debian-13")
_NAMES = (*_LIMITS, *_HEADROOM, _GRES_LINES, _AUTODETECT, _VERSION)
# Per cent of memory that a kernel keeps for itself, and never shows.
_UNSEEN_PERCENT = 2


@dataclass(frozen=True)
class Policy:
    """``values`` are variables of Slurm's roles, worked out, with the roles' defaults; those in error are absent.

    ``written`` are those that the site itself sets. ``places`` says where (``FILE:LINE``), by the variable, or by the
    variable and the name of one of its items. ``releases`` are the Slurm releases that distributions package.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    written: frozenset[str] = frozenset()
    places: Mapping[tuple[str, str], str] = field(default_factory=dict)
    releases: Mapping[str, str] = field(default_factory=dict)

    def rows(self, name: str) -> list[Mapping[str, Any]]:
        """A list of mappings; empty where it is none, which the check of the role's options says."""
        value = self.values.get(name)
        return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []

    def count(self, name: str) -> int | None:
        """A number; None where it is none."""
        value = self.values.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def place(self, name: str, item: str = "") -> str:
        """Where the variable, or one item of it, is written."""
        return self.places.get((name, item)) or self.places.get((name, ""), "group_vars")


def of(design: Design, resolved: Resolved) -> Policy:
    """The policy of a cluster with Slurm, as its controller is told; of another one what is written in vain."""
    from ansible.errors import AnsibleError
    from ansible.template import Templar

    nodes = design.cluster.nodes
    controller = next((node.name for node in nodes if "slurm_controller" in node.functions), None)
    host = controller or nodes[0].name
    values = dict(defaults())
    try:
        variables = resolved.variables(host)
    except AnsibleError:
        # The check of the roles' options says so, here and below.
        return Policy(values, releases=releases())
    templar = Templar(loader=resolved.loader, variables=variables)
    for name in _NAMES:
        if name in variables:
            values.pop(name, None)
            with contextlib.suppress(AnsibleError):
                values[name] = plain(templar.template(variables[name]))
    written = {name: place for name in _NAMES if (place := resolved.place(host, name))}
    places = {(name, ""): place for name, place in written.items()}
    for row in Policy(values).rows(_PARTITIONS) if _PARTITIONS in written else ():
        places[_PARTITIONS, str(row.get("name"))] = resolved.place(
            host, _PARTITIONS, item=str(row.get("name"))
        )
    return Policy(values, frozenset(written), places, releases())


@functools.cache
def defaults() -> Mapping[str, Any]:
    """What the roles take for the variables that nobody sets."""
    roles = find_collection() / "roles"
    return {
        **load_yaml(roles / "slurm_common" / "defaults" / "main.yml"),
        **load_yaml(roles / "slurm_controller" / "defaults" / "main.yml"),
    }


@functools.cache
def releases() -> Mapping[str, str]:
    """The Slurm release that each distribution packages, as the role slurm_common knows it."""
    found = load_yaml(find_collection() / "roles" / "slurm_common" / "vars" / "main.yml")
    return dict(found["__slurm_common_releases"])


def check(design: Design, policy: Policy) -> list[Finding]:
    """Everything that the policy and the cluster contradict each other in."""
    if design.cluster.features.scheduler != "slurm":
        return list(_in_vain(design, policy))
    return [
        *_releases(design, policy),
        *_partitions(design, policy),
        *_divided(design, policy),
        *_types(design, policy),
        *_gres_lines(design, policy),
        *_memory(design, policy),
    ]


def told_already(finding: Finding, told: Sequence[Finding]) -> bool:
    """Whether ``finding``, of a role's options, says what one of ``told`` says with its place."""
    twice = finding.code == "CR103" and finding.what.startswith(
        "role slurm_common: The hosts of this cluster run"
    )
    return twice and any(one.code == "CV201" for one in told)


def _in_vain(design: Design, policy: Policy) -> Iterator[Finding]:
    names = [name for name in (_PARTITIONS, f"{_PREFIX}accounts", f"{_PREFIX}qos") if name in policy.written]
    if names:
        yield Finding(
            "CV209",
            Severity.ADVICE,
            policy.place(names[0]),
            f"{' and '.join(names)} say what Slurm does, and the scheduler is {design.cluster.features.scheduler}",
            "remove them, or write `scheduler: slurm` under `features`",
            subject="scheduler",
        )


def _releases(design: Design, policy: Policy) -> Iterator[Finding]:
    """CV201 and CV202: one release for all, and one that can be had."""
    by_release: dict[str, list[Node]] = {}
    for node in design.cluster.nodes:
        release = policy.releases.get(node.distribution)
        if release and any(name == "mariadb" or name.startswith("slurm_") for name in node.functions):
            by_release.setdefault(release, []).append(node)
    pin = policy.values.get(_VERSION)
    if isinstance(pin, str) and pin:
        wrong = [node for release, nodes in by_release.items() if not _is(pin, release) for node in nodes]
        if wrong:
            has = ", ".join(
                sorted({f"{node.distribution} {policy.releases[node.distribution]}" for node in wrong})
            )
            yield Finding(
                "CV202",
                Severity.WARN,
                policy.place(_VERSION),
                f"Slurm {shown(pin)} is not what these nodes' distribution packages ({has})",
                "have it in a repository of your own that all nodes reach, or correct the version",
                fold([node.name for node in wrong]),
                _VERSION,
            )
    elif len(by_release) > 1:
        # The others are to be like the controller.
        most = next(
            (
                nodes
                for nodes in by_release.values()
                if any("slurm_controller" in one.functions for one in nodes)
            ),
            max(by_release.values(), key=len),
        )
        few = [node for nodes in by_release.values() if nodes is not most for node in nodes]
        text = " and ".join(
            f"{nodes[0].distribution} {release}" for release, nodes in sorted(by_release.items())
        )
        yield Finding(
            "CV201",
            Severity.REFUSE,
            design.where(_distribution(design, few[0])),
            f"two Slurm releases in one cluster: {text}"
            if len(by_release) == 2
            else f"Slurm releases: {text}",
            f"give all of Slurm's nodes one distribution, or pin a release of a repository of your own with {_VERSION}",
            fold([node.name for node in few]),
            "Slurm's release",
        )


def _is(pin: str, release: str) -> bool:
    """Whether a package version such as ``24.11.5-4`` or ``24.*`` may be of a release such as ``24.11``."""
    start = re.split(r"[*?]", pin.rpartition(":")[2])[0]
    return start.startswith(release) or release.startswith(start)


def _distribution(design: Design, node: Node) -> KeyPath:
    """The line that gives a node its distribution."""
    lines = design.cluster.document.lines
    for path in (
        *((*node.path, "overrides", own, "distribution") for own in _overrides(design, node)),
        (*node.path, "distribution"),
        ("defaults", "distribution"),
    ):
        if path in lines:
            return path
    return node.path


def _overrides(design: Design, node: Node) -> list[str]:
    group = next(kind.group for kind in design.kinds if kind.path == node.path)
    return [own for own in group.overrides if node.name in expand(own)]


def _workers(design: Design) -> list[Node]:
    return [node for node in design.cluster.nodes if "slurm_worker" in node.functions]


def _partitions(design: Design, policy: Policy) -> Iterator[Finding]:
    """CV203 and CV204: partitions of nodes that are there, and every worker in one."""
    known = {node.name: None for node in _workers(design)}
    covered: set[str] = set()
    seen: set[str] = set()
    first_default = ""
    sound = True
    for row in policy.rows(_PARTITIONS):
        name = str(row.get("name", ""))
        where = policy.place(_PARTITIONS, name)
        names, fault, advice = _members(row.get("nodes", "all"), known)
        covered |= names
        if not fault and name in seen:
            fault, advice = "it is declared twice", "give each partition a name of its own"
        elif not fault and row.get("default") is True:
            if first_default:
                fault, advice = f"it is the default one, and so is {first_default}", "keep one default"
            first_default = first_default or shown(name)
        seen.add(name)
        if fault:
            sound = False
            yield Finding(
                "CV203",
                Severity.REFUSE,
                where,
                f"partition {shown(name)}: {fault}",
                advice,
                subject=f"partition {shown(name)}",
            )
    outside = [name for name in known if name not in covered]
    if outside and sound and policy.rows(_PARTITIONS):
        yield Finding(
            "CV204",
            Severity.WARN,
            policy.place(_PARTITIONS),
            f"{len(outside)} of {len(known)} workers are in no partition, so that no job can run there",
            "name them in a partition, or take `slurm_worker` from their `functions`",
            fold(outside),
            "partitions",
            (("workers", len(known)), ("outside", len(outside))),
        )


def _members(given: object, known: Mapping[str, None]) -> tuple[set[str], str, str]:
    """The workers that a partition's ``nodes`` stand for, and what is wrong with them and what to write, or nothing."""
    if isinstance(given, str) and given.lower() == "all":
        return set(known), "", ""
    found: set[str] = set()
    parts = [given] if isinstance(given, str) else given
    for part in parts if isinstance(parts, list) else []:
        text = str(part)
        if any(sign in text for sign in "*?"):
            matches = fnmatch.filter(known, text)
            if not matches:
                return (
                    found,
                    f"no worker's name matches `{shown(text)}`",
                    did_you_mean(text.strip("*?"), known),
                )
            found.update(matches)
            continue
        try:
            names = expand(text)
        except RangeError as error:
            what, _, advice = str(error).partition("; ")
            return found, what, advice
        for name in names:
            if name not in known:
                return found, f"`{shown(name)}` is no worker of this cluster", did_you_mean(name, known)
        found.update(names)
    return found, "", ""


def _divided(design: Design, policy: Policy) -> Iterator[Finding]:
    """CV205: divided GPUs that slurmd has no way to find."""
    for kind in design.kinds:
        gpus = kind.build.hardware.gpus
        if gpus is None or not gpus.mig or policy.values.get(_AUTODETECT) == "nvml":
            continue
        blind = [
            node
            for node in kind.nodes
            if "slurm_worker" in node.functions
            and not ("gpu_node" in node.functions and node.distribution in _WITH_NVML)
        ]
        if not blind:
            continue
        managed = all("gpu_node" in node.functions for node in blind)
        yield design.refuse(
            "CV205",
            (*kind.path, "hardware", "gpus", "mig"),
            "slurmd finds divided GPUs by NVML only, and here it does not ask",
            f"leave the GPUs whole, or give the nodes one of {', '.join(_WITH_NVML)}: {blind[0].distribution} packages"
            " no NVML plugin for Slurm"
            if managed
            else "write `gpus: managed` to the features, or `slurm_controller_gres_autodetect: nvml` to the group_vars",
            hosts=fold([node.name for node in blind]),
        )


def _gpu_types(design: Design) -> dict[str, None]:
    """What Slurm calls the GPUs of its workers."""
    return {
        str(gpus["type"]): None
        for kind in design.kinds
        if any("slurm_worker" in node.functions for node in kind.nodes)
        and (gpus := kind.nodes[0].hostvars().get("coldiron_hardware", {}).get("gpus"))
    }


def _types(design: Design, policy: Policy) -> Iterator[Finding]:
    """CV206: limits that name a type of GPU that no node has."""
    known = _gpu_types(design)
    for name in _LIMITS:
        asked = dict.fromkeys(_TYPED.findall(_text(policy.values.get(name))))
        for one in asked:
            if one not in known:
                yield Finding(
                    "CV206",
                    Severity.WARN,
                    policy.place(name),
                    f"{name} names GPUs of type {shown(one)}, and "
                    + (f"the nodes have {', '.join(known)}" if known else "no worker has GPUs"),
                    did_you_mean(one, known) if known else "remove it",
                    subject=f"{name} {shown(one)}",
                )


def _text(value: object) -> str:
    """All words in a value."""
    if isinstance(value, dict):
        return " ".join(_text(item) for pair in value.items() for item in pair)
    if isinstance(value, list):
        return " ".join(_text(item) for item in value)
    return str(value)


def _gres_lines(design: Design, policy: Policy) -> Iterator[Finding]:
    """CV207: lines of gres.conf that give a node another number of GPUs than its hardware has."""
    lines = policy.values.get(_GRES_LINES)
    extra: dict[str, int] = {}
    for line in lines if isinstance(lines, list) else []:
        keys = {key.lower(): value for key, value in _KEY.findall(str(line))}
        if keys.get("name", "").lower() != "gpu" or "nodename" not in keys:
            continue
        try:
            for host in expand(keys["nodename"]):
                extra[host] = extra.get(host, 0) + _devices(keys)
        except (RangeError, ValueError):
            continue
    # Without AutoDetect the role writes a line for the GPUs that each node has.
    own = policy.values.get(_AUTODETECT) == "off"
    wrong: dict[tuple[int, int], list[str]] = {}
    for host, count in extra.items():
        node = design.nodes.get(host)
        if node is not None:
            declared = node.build.gpu_count
            total = count + (declared if own else 0)
            if total != declared:
                wrong.setdefault((total, declared), []).append(host)
    for (total, declared), hosts in wrong.items():
        yield Finding(
            "CV207",
            Severity.REFUSE,
            policy.place(_GRES_LINES),
            f"gres.conf comes to {total} GPUs a node, and cluster.yml and slurm.conf to {declared}",
            f"remove the lines of {_GRES_LINES}: the role writes those of the GPUs in cluster.yml",
            fold(hosts),
            _GRES_LINES,
            (("gres_conf", total), ("declared", declared)),
        )


def _devices(keys: Mapping[str, str]) -> int:
    """GPUs of one line of gres.conf. Raises ValueError."""
    if "count" in keys:
        return int(keys["count"])
    listed = _DEVICES.search(keys.get("file", ""))
    if listed is None:
        return 1
    ends = [part.partition("-") for part in listed[1].split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


def _memory(design: Design, policy: Policy) -> Iterator[Finding]:
    """CV208: memory that Slurm is promised and the kernel does not show, or none that is left."""
    mib, percent = (policy.count(name) for name in _HEADROOM)
    if mib is None or percent is None:
        return
    where = next((policy.place(name) for name in _HEADROOM if name in policy.written), "")
    for kind in design.kinds:
        workers = [node.name for node in kind.nodes if "slurm_worker" in node.functions]
        installed = kind.nodes[0].memory_mib
        if not workers or not installed:
            continue
        kept = max(mib, installed * percent // 100)
        figures = (("installed_mib", installed), ("kept_mib", kept))
        if kept >= installed:
            yield Finding(
                "CV208",
                Severity.REFUSE,
                where or design.place(kind, "hardware", "memory_gib"),
                f"of {installed} MiB of memory {kept} are kept from jobs, so that none is left",
                f"correct `memory_gib`, or lower {_HEADROOM[0]}",
                fold(workers),
                figures=figures,
            )
        elif kept < installed * _UNSEEN_PERCENT // 100:
            yield Finding(
                "CV208",
                Severity.WARN,
                where or design.place(kind, "hardware", "memory_gib"),
                f"of {installed} MiB of memory only {kept} are kept from jobs, and a kernel shows about "
                f"{_UNSEEN_PERCENT} % less than is installed: Slurm drains such a node",
                f"raise {_HEADROOM[0]} or {_HEADROOM[1]}",
                fold(workers),
                figures=figures,
            )
