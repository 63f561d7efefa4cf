# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What a node's GPU driver is, and what is to be done about it: nothing here touches the node."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field, replace

VERSION = re.compile(r"\b([0-9]{3,}(?:\.[0-9]+){1,2})\b")
KERNEL = re.compile(r"[0-9]+|[^0-9]+")


@dataclass(frozen=True)
class Facts:
    """What was read.

    ``nature``: machine, stand-in (a unit stands for the modules), container, or image (a root that nothing has
    booted). ``built``: each kernel's version of its modules.
    ``loaded`` and ``user_space`` are versions, empty where there is none. ``boots``: the kernel that a boot would take.
    ``users``: processes that hold a GPU, as ``name (pid)``. ``why``: the reason that a kernel's build gave.
    """

    nature: str
    loaded: str = ""
    loaded_flavour: str = ""
    user_space: str = ""
    running: str = ""
    boots: str = ""
    built: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    users: tuple[str, ...] = ()
    nouveau: bool = False
    secure_boot: bool = False
    enrolled: bool = True
    gpus: int = 0


@dataclass(frozen=True)
class Verdict:
    """``action``: none, load, reload or reboot. ``problems``: what keeps the node from working; ``notes``: the rest."""

    action: str
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def flavour_of(text: str) -> str:
    """open or proprietary, by /proc/driver/nvidia/version."""
    return "open" if "Open Kernel Module" in text else "proprietary" if "Kernel Module" in text else ""


def version_of(text: str) -> str:
    """The driver's version in /proc/driver/nvidia/version, a file name or modinfo's answer; empty without one."""
    lines = [line for line in text.splitlines() if "NVRM" in line] or [text]
    match = VERSION.search(lines[0])
    return match[1] if match else ""


def kernel_order(name: str) -> tuple[tuple[int, str], ...]:
    """A key by which kernels sort as their versions do: 6.12.107 after 6.12.94."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in KERNEL.findall(name))


def matches(version: str, wanted: str) -> bool:
    """Whether a version is the wanted one; a branch, such as 580, takes any of it."""
    return version == wanted or ("." not in wanted and version.split(".")[0] == wanted)


def judge(facts: Facts, version: str, flavour: str) -> Verdict:
    """Compare what is with what is wanted."""
    if facts.nature == "container":
        return _container(facts, version)
    if facts.nature == "image":
        return Verdict("none", tuple(_kernels(facts, version)))
    problems, notes = list(_kernels(facts, version)), []
    if not facts.user_space:
        problems.append("NVML (libnvidia-ml.so.1) is not installed")
    elif not matches(facts.user_space, version):
        problems.append(f"user space is driver {facts.user_space}, and {version} is wanted")
    if facts.secure_boot and not facts.enrolled:
        problems.append(
            "Secure Boot is on and does not know the key that signs the modules: run `mokutil --import "
            "/var/lib/dkms/mok.pub` on the node, choose a password, boot it, and at its console, which waits ten "
            "seconds for a key, choose `Enroll MOK` and type that password. It has to be done once for each node"
        )
    if facts.nouveau:
        notes.append("nouveau is loaded and holds the GPUs: it is off from the next boot on")
        return Verdict("reboot", tuple(problems), tuple(notes))
    if not facts.loaded:
        ready = facts.nature == "stand-in" or matches(facts.built.get(facts.running, ""), version)
        return Verdict("load" if ready and facts.gpus else "none", tuple(problems), tuple(notes))
    stale = not matches(facts.loaded, facts.user_space if matches(facts.user_space, version) else version)
    wrong = facts.nature == "machine" and facts.loaded_flavour not in ("", flavour)
    if not stale and not wrong:
        return Verdict("none", tuple(problems), tuple(notes))
    said = f"the kernel runs the modules of driver {facts.loaded}"
    said += f" ({facts.loaded_flavour})" if wrong else ""
    notes.append(f"{said}, and {version} ({flavour}) is installed")
    if problems:
        return Verdict("none", tuple(problems), tuple(notes))
    if facts.users:
        notes.append(f"the GPUs are in use by {', '.join(facts.users)}")
        return Verdict("reboot", (), tuple(notes))
    return Verdict("reload", (), tuple(notes))


def _container(facts: Facts, version: str) -> Verdict:
    """A container runs its host's kernel: nothing is loaded from here, and user space has to follow the host."""
    notes = ["this node is a container: its kernel, and so the driver's modules, are its host's"]
    if facts.loaded and facts.user_space and facts.loaded != facts.user_space:
        return Verdict(
            "none",
            (
                f"the host runs the modules of driver {facts.loaded}, and user space here is {facts.user_space}: "
                f"install driver {version} on the host, or take {facts.loaded} here",
            ),
            tuple(notes),
        )
    return Verdict("none", (), tuple(notes))


def unbuilt(facts: Facts, version: str) -> list[str]:
    """Kernels for which DKMS has tried to build the modules and could not, with the compiler's reason."""
    tried = {kernel: why for kernel, why in facts.why.items() if why}
    return _kernels(replace(facts, built={**facts.built, **dict.fromkeys(tried, "")}), version, tried)


def _kernels(facts: Facts, version: str, only: Container[str] | None = None) -> list[str]:
    """Kernels without modules: the running one, and the one that a boot would take."""
    if facts.nature not in ("machine", "image"):
        return []
    found = []
    for kernel in dict.fromkeys(name for name in (facts.running, facts.boots) if name):
        built = facts.built.get(kernel, "")
        if matches(built, version) or (only is not None and kernel not in only):
            continue
        which = "the running kernel" if kernel == facts.running else "the next boot's kernel"
        which = "the image's kernel" if facts.nature == "image" else which
        has = f"has modules of driver {built}" if built else "has no modules"
        why = facts.why.get(kernel, "")
        reason = f": they do not build ({why})" if why else ""
        found.append(
            f"{which}, {kernel}, {has} and driver {version} is wanted{reason}; take a driver that builds on it "
            f"(`coldiron explain matrix` knows some), or keep an older kernel"
        )
    return found
