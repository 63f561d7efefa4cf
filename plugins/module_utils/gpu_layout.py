"""What a node's GPUs are to those who hand them out: whole ones or instances (MIG), in Slurm's and Kubernetes' words.

Every name of a GPU comes from here, made from one declaration: ``{type: h100, count: 4, mig: [{gpus: [1],
profiles: [3g.40gb, 3g.40gb]}]}``. GPUs are counted from 1 there, as people do, and from 0 by the driver. Pure
functions, standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

#: As nvidia-smi names instance profiles: compute slices, memory, and what else one has.
PROFILE = re.compile(r"^([1-7])g\.([0-9]+)gb((?:\+|-)[a-z.]+)?$")
#: No GPU has more compute slices.
SLICES = 7
#: What Slurm's shared GPUs are called, and what stands for a whole one where nothing else is said.
SHARES = {"mps": 100, "shard": 1}


class GpuDataError(ValueError):
    """A declaration that no GPU could follow; the message says what to write."""


def size(profile: str) -> tuple[int, int]:
    """Return a profile's compute slices and GB of memory. Raises GpuDataError."""
    match = PROFILE.match(profile)
    if match is None:
        raise GpuDataError(f"{profile!r} is no MIG profile: write one that `nvidia-smi mig -lgip` lists")
    return int(match[1]), int(match[2])


def layout(gpus: Mapping[str, Any]) -> list[list[str]]:
    """Return the profiles of each GPU, the driver's number 0 first; a whole GPU has none.

    The largest instances come first: made in another order, some do not find a place.
    Raises GpuDataError.
    """
    count = int(gpus["count"])
    found: list[list[str]] = [[] for _ in range(count)]
    for part in gpus.get("mig") or ():
        profiles = sorted((str(name) for name in part["profiles"]), key=lambda name: (size(name), name))[::-1]
        slices = sum(size(name)[0] for name in profiles)
        if slices > SLICES:
            raise GpuDataError(
                "profiles {} take {} of a GPU's {} slices: write fewer".format(
                    ", ".join(profiles), slices, SLICES
                )
            )
        for number in part.get("gpus") or range(1, count + 1):
            if not 1 <= int(number) <= count:
                raise GpuDataError(f"GPU {number} of {count}: number them from 1 to {count}")
            if found[int(number) - 1]:
                raise GpuDataError(f"GPU {number} is divided twice: name it once in mig")
            found[int(number) - 1] = profiles
    return found


def types(gpus: Mapping[str, Any]) -> dict[str, int]:
    """Return what Slurm's users ask for and how many of each a node has: whole GPUs first, then instances.

    slurmd's NVML plugin finds an instance as ``nvidia_h100_80gb_hbm3_3g.40gb`` or like that; Slurm takes a type
    that is a part of the name it finds. Raises GpuDataError.
    """
    found: dict[str, int] = {}
    divided = layout(gpus)
    whole = sum(not profiles for profiles in divided)
    if whole:
        found[str(gpus["type"])] = whole
    names = [name for profiles in divided for name in profiles]
    for name in sorted(set(names), key=lambda name: (size(name), name), reverse=True):
        found[name] = names.count(name)
    return found


def mixed(gpus: Mapping[str, Any]) -> bool:
    """Say whether some of a node's GPUs are whole and some divided. Raises GpuDataError."""
    divided = layout(gpus)
    return any(divided) and not all(divided)


def shares(gpus: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return what the node's whole GPUs are shared as, ``mps`` or ``shard``, and how many of them the node has.

    Raises GpuDataError: an instance is what it is, and shared no further by Slurm.
    """
    sharing = gpus.get("sharing")
    if not sharing:
        return None
    if gpus.get("mig"):
        raise GpuDataError("divided GPUs (mig) are not shared as well: remove one of mig and sharing")
    kind = str(sharing["kind"])
    return kind, int(gpus["count"]) * int(sharing.get("per_gpu") or SHARES[kind])


def gres(gpus: Mapping[str, Any]) -> str:
    """Return a node's GPUs as slurm.conf's Gres= has them. Raises GpuDataError."""
    words = [f"gpu:{name}:{count}" for name, count in types(gpus).items()]
    shared = shares(gpus)
    if shared:
        words.append("{}:{}".format(*shared))
    return ",".join(words)


def tres(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what the accounting has to count so that every type of GPU is told apart. Raises GpuDataError."""
    known: dict[str, None] = {}
    for node in nodes:
        gpus = node["hardware"].get("gpus")
        if gpus:
            known["gres/gpu"] = None
            known.update({f"gres/gpu:{name}": None for name in types(gpus)})
            shared = shares(gpus)
            if shared:
                known[f"gres/{shared[0]}"] = None
    return list(known)


def kubernetes(gpus: Mapping[str, Any]) -> dict[str, int]:
    """Return the resources that NVIDIA's device plugin offers, by their names, strategy ``mixed``.

    A ``+`` cannot stand in such a name; the plugin writes a dot. Raises GpuDataError.
    """
    found: dict[str, int] = {}
    divided = layout(gpus)
    for profiles in divided:
        for name in [f"mig-{profile}" for profile in profiles] or ["gpu"]:
            resource = "nvidia.com/" + name.replace("+", ".")
            found[resource] = found.get(resource, 0) + 1
    return found
