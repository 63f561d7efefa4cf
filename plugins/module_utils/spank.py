"""What modules know of Slurm's plugins: for which release one is built, and which release a node runs."""

from __future__ import annotations

import re


def release_of(header: str) -> str:
    """The release of slurm_version.h, such as 24.11.5; empty where the text does not say it."""
    found = re.search(r"^#define\s+SLURM_VERSION_NUMBER\s+0x([0-9a-fA-F]{6})\b", header, re.MULTILINE)
    if not found:
        return ""
    number = int(found[1], 16)
    return f"{number >> 16}.{number >> 8 & 255:02d}.{number & 255}"


def release_said(answer: str) -> str:
    """The release out of the answer of ``sinfo --version``, such as 24.11.5."""
    found = re.match(r"slurm\S*\s+(\d+)\.(\d+)\.(\d+)", answer.strip())
    return f"{found[1]}.{int(found[2]):02d}.{found[3]}" if found else ""


def branch(release: str) -> str:
    """What has to be the same of a plugin and its Slurm: 24.11 of 24.11.5. Slurm loads no other SPANK plugin."""
    return ".".join(release.split(".")[:2])


def misfit(built_slurm: str, built_machine: str, slurm: str, machine: str) -> str:
    """Why a plugin cannot be loaded by the node's Slurm, as one sentence; empty if it can."""
    if not slurm:
        return "Slurm's commands are not there: role slurm_common installs them before."
    if built_machine != machine:
        return (
            f"the plugin is built for {built_machine} and this node is {machine}: run the nodes of each kind by "
            "themselves (--limit), with a pyxis_builder of that kind."
        )
    if branch(built_slurm) != branch(slurm):
        return (
            f"the plugin is built for Slurm {built_slurm} and this node runs {slurm}, which would refuse it and every "
            "job with it: bring the builder and the node to one release; slurm_common_version pins it."
        )
    return ""
