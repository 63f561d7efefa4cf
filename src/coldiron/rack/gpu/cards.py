"""From an entry of the catalog to what a simulated card of that model says of itself.

What the catalog knows is taken from it. What it does not know and NVML reports all the same (multiprocessors, clocks,
idle power) is set here, and is a figure of the simulation, not of the card.
"""

from __future__ import annotations

import configparser
import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from coldiron.catalog.model import Gpu, MigProfile
from coldiron.errors import ColdironError

MARKER = "etc/coldiron/simulated-gpu"
CARDS = "etc/coldiron/simulated-gpu.ini"
# How many the library's tables hold.
MAX_GPUS = 16
_ARCHITECTURES = {
    "volta": 5, "turing": 6, "ampere": 7, "ada": 8, "hopper": 9, "blackwell": 10, "blackwell-ultra": 10,
}  # fmt: skip
_NVLINK_VERSIONS = {1: 1, 2: 2, 3: 4, 4: 6, 5: 7}
_NVLINK_GB_PER_S = {2: 50, 3: 50, 4: 50, 5: 100}
_BRAND = 14
_ID_BY_SHAPE = {"1": 19, "1+me": 20, "1x2": 15, "2+me": 16, "2": 14, "3": 9, "4": 5, "7": 0}
_KIND_BY_SHAPE = {"1": 0, "2": 1, "3": 2, "4": 3, "7": 4, "1+me": 7, "2+me": 8, "1x2": 9}
# The bus numbers of a board of eight, as those of the H100 in its usual server.
_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF, 0x0F, 0x2D, 0x38, 0x7A, 0x84, 0x97, 0xA8, 0xB9)


@dataclass(frozen=True)
class _Silicon:
    """What NVML says of a chip and the catalog does not."""

    multiprocessors: int
    cores: int
    clock_sm_mhz: int
    clock_memory_mhz: int
    device_id: int


_SILICON = {
    "volta": _Silicon(80, 5120, 1530, 877, 0x1DB5),
    "turing": _Silicon(40, 2560, 1590, 5001, 0x1EB8),
    "ampere": _Silicon(108, 6912, 1410, 1593, 0x20B2),
    "ada": _Silicon(142, 18176, 2520, 9001, 0x26B9),
    "hopper": _Silicon(132, 16896, 1980, 2619, 0x2330),
    "blackwell": _Silicon(148, 18944, 1965, 3996, 0x2901),
    "blackwell-ultra": _Silicon(160, 20480, 1965, 3996, 0x3182),
}


def product(model: Gpu) -> str:
    """The product's name, which says that it is simulated. Slurm makes a type of it: no brackets."""
    if model.form_factor.mount == "sxm" and model.memory_gb:
        plain = re.sub(r" SXM\d?\b.*", "", model.title)
        return f"{plain} {model.memory_gb:g}GB {model.memory_kind or 'HBM'} SIMULATED"
    return f"{model.title} SIMULATED"


def _shape(profile: MigProfile, unit_gb: float) -> str:
    """What a profile is called apart from its memory: its slices, and what is added to them."""
    memory = float(profile.name.partition(".")[2].partition("gb")[0])
    added = "+me" if "+me" in profile.name else ""
    wide = "x2" if profile.slices == 1 and not added and memory > 1.5 * unit_gb else ""
    return f"{profile.slices}{added}{wide}"


def _profiles(model: Gpu) -> list[dict[str, str]]:
    silicon = _SILICON[model.architecture or "hopper"]
    slices = model.mig.memory_slices or 8
    listed = model.mig.profiles or ()
    smallest = min((float(one.name.partition(".")[2].partition("gb")[0]) for one in listed), default=1.0)
    found = []
    for one in listed:
        shape = _shape(one, smallest)
        if shape not in _KIND_BY_SHAPE:
            continue
        memory_gb = float(one.name.partition(".")[2].partition("gb")[0])
        width = one.placements.size if one.placements else max(1, round(memory_gb / smallest))
        width = {3: 4, 7: 8}.get(width, width)
        starts = one.placements.starts if one.placements else tuple(range(0, slices - width + 1, width))
        if not one.placements and width == 1:
            starts = tuple(range(one.count))
        whole = model.mig.instances or 7
        found.append(
            {
                "name": one.name,
                "kind": str(_KIND_BY_SHAPE[shape]),
                "id": str(one.id if one.id is not None else _ID_BY_SHAPE[shape]),
                "slices": str(one.slices),
                "count": str(one.count),
                "size": str(width),
                "starts": " ".join(str(start) for start in starts),
                "multiprocessors": str(
                    silicon.multiprocessors
                    if one.slices == whole
                    else silicon.multiprocessors // 8 * one.slices
                ),
                "copy_engines": str(one.slices),
                "decoders": str(one.slices),
                "jpeg": str(one.slices),
                "ofa": str(int("+me" in one.name or one.slices == whole)),
                "memory_mib": str(round(memory_gb * 1024 * 0.985)),
            }
        )
    return found


def _card(model: Gpu) -> dict[str, str]:
    silicon = _SILICON[model.architecture or "hopper"]
    most = model.power_limit_max_watts or model.tdp_watts or 300
    default = min(model.tdp_watts or most, most)
    least = model.power_limit_min_watts or round(most * 2 / 7)
    generation = model.nvlink.generation if model.nvlink.supported else None
    per_link = _NVLINK_GB_PER_S.get(generation or 0)
    links = round(model.nvlink.gb_per_s / per_link) if per_link and model.nvlink.gb_per_s else 0
    major, _, minor = (model.compute_capability or "9.0").partition(".")
    values = {
        "name": product(model),
        "vbios": "SIMULATED",
        "part_number": "SIMULATED",
        "brand": _BRAND,
        "architecture": _ARCHITECTURES.get(model.architecture or "", 0xFFFFFFFF),
        "capability_major": major,
        "capability_minor": minor,
        "memory_mib": int((model.memory_gb or 80) * 1024 * 0.9956),
        "multiprocessors": silicon.multiprocessors,
        "cores": silicon.cores,
        "pci_device_id": silicon.device_id << 16 | 0x10DE,
        "pci_subsystem_id": 0x16C110DE,
        "power_idle_mw": round(most * 100),
        "power_min_mw": round(least * 1000),
        "power_max_mw": round(most * 1000),
        "power_default_mw": round(default * 1000),
        "clock_sm_max_mhz": silicon.clock_sm_mhz,
        "clock_sm_idle_mhz": 345,
        "clock_memory_mhz": silicon.clock_memory_mhz,
        "pcie_generation": model.pcie.generation or 4,
        "pcie_lanes": model.pcie.lanes or 16,
        "nvlink_links": links,
        "nvlink_version": _NVLINK_VERSIONS.get(generation or 0, 0),
        "nvlink_mb_per_s": {4: 26562, 5: 53125}.get(generation or 0, 25781),
        "slowdown_celsius": 87,
        "shutdown_celsius": 92,
        "mig": int(bool(model.mig.supported and model.mig.profiles)),
        "mig_slices": model.mig.instances or 0,
        "mig_memory_slices": model.mig.memory_slices or 8,
    }
    return {key: str(value) for key, value in values.items()}


def _gpu(model: Gpu, card: Mapping[str, str], seed: str, index: int) -> dict[str, str]:
    digest = hashlib.sha256(f"{seed}/{index}".encode()).hexdigest()
    values = {
        # The prefix says to whoever reads a log that this is none.
        "uuid": f"GPU-51300000-{digest[:4]}-4{digest[4:7]}-8{digest[7:10]}-{digest[10:22]}",
        "serial": f"SIM{int(digest[:10], 16) % 10**10:010d}",
        "faults": "",
        "pci_bus": _BUSES[index],
        "module_id": index + 1,
        "numa": 0,
        "lost": 0,
        "hidden": 0,
        "persistence": 0,
        "compute_mode": 0,
        "mig_mode": 0,
        "mig_pending": 0,
        "ecc_mode": 1,
        "ecc_pending": 1,
        "power_limit_mw": card["power_default_mw"],
        "temperature_celsius": 34,
        "memory_temperature_celsius": 41,
        "clock_sm_mhz": card["clock_sm_max_mhz"],
        "clock_memory_mhz": card["clock_memory_mhz"],
        "locked_min_mhz": 0,
        "locked_max_mhz": 0,
        "slow": 0,
        "pcie_generation": card["pcie_generation"],
        "pcie_lanes": card["pcie_lanes"],
        "pcie_replays": 0,
        "nvlink_down": "",
        "nvlink_errors": 0,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "ecc_corrected_total": 0,
        "ecc_uncorrected_total": 0,
        "remapped_corrected": 0,
        "remapped_uncorrected": 0,
        "remap_pending": 0,
        "remap_failed": 0,
    }
    return {key: str(value) for key, value in values.items()}


def description(model: Gpu, count: int, seed: str) -> str:
    """The cards of a node as sections of `key = value`, which its simulated driver starts from.

    ``seed`` makes their UUIDs and serials: the same for the same node of the same rack. Raises ColdironError for
    more cards than the simulation holds.
    """
    if not 1 <= count <= MAX_GPUS:
        raise ColdironError(f"{count} GPUs in one node: the simulation holds 1 to {MAX_GPUS}")
    card = _card(model)
    parser = configparser.ConfigParser(interpolation=None)
    parser["card"] = card
    for number, profile in enumerate(_profiles(model)):
        parser[f"profile {number}"] = profile
    for index in range(count):
        parser[f"gpu {index}"] = _gpu(model, card, seed, index)
    text = io.StringIO()
    text.write("# SIMULATED GPUs: what the rack says that this node's cards are.\n")
    parser.write(text)
    return text.getvalue()


def marker(model: Gpu, count: int) -> str:
    """What says on a node that its GPUs are simulated, for roles, reports and a real cluster's preflight."""
    return (
        json.dumps(
            {"simulated": True, "model": model.name, "product": product(model), "count": count}, indent=2
        )
        + "\n"
    )
