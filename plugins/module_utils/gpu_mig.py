"""Bring a node's GPUs to a layout of instances (MIG): a plan from what nvidia-smi says, and the few calls that make it.

Module gpu_mig plans and makes a layout in a run; role gpu_mig also installs this file as it is, for a unit that makes
the layout anew at boot, as most GPUs forget it:

    gpu_mig.py /etc/coldiron/gpu-mig.json

Only GPUs that differ are touched, and none that is in use. Standard library only.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

#: Runs a command: its words to exit status, standard output, standard error.
Run = Callable[[Sequence[str]], tuple[int, str, str]]

_QUERY = (
    "nvidia-smi",
    "--query-gpu=index,uuid,mig.mode.current,mig.mode.pending",
    "--format=csv,noheader",
)
_PROCESSES = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
_GPU_INSTANCE = re.compile(r"^\|\s+(\d+)\s+MIG\s+(\S+)\s+\d+\s+(\d+)\s+\d+:\d+\s+\|", re.MULTILINE)
_COMPUTE_INSTANCE = re.compile(
    r"^\|\s+(\d+)\s+(\d+)\s+MIG\s+(\S+)\s+\d+\*?\s+\d+\s+\d+:\d+\s+\|", re.MULTILINE
)
#: Slurm's states in which no job can start on a node.
CLOSED = ("DRAIN", "DOWN", "FAIL")


class MigError(Exception):
    """A layout that cannot be made now; the message says why and what helps."""


class Gpu(NamedTuple):
    """One GPU. ``mode`` is enabled, disabled, or empty where it cannot be divided.

    ``instances`` are the profiles of instances that are complete, ``broken`` says that there are others.
    """

    index: int
    uuid: str
    mode: str
    pending: str
    instances: tuple[str, ...] = ()
    broken: bool = False
    processes: tuple[int, ...] = ()


class Change(NamedTuple):
    """What one GPU differs in, and the commands that make it right."""

    index: int
    why: str
    commands: tuple[tuple[str, ...], ...]


class Slurm(NamedTuple):
    """What Slurm says of the node: its state, empty where it knows none, and the jobs on it."""

    state: str
    jobs: tuple[str, ...]


def read_gpus(ask: Run) -> list[Gpu]:
    """Ask nvidia-smi for the node's GPUs, in the driver's order. Raises MigError."""
    code, out, error = ask(_QUERY)
    if code != 0:
        said = (error or out).strip().splitlines()
        raise MigError(f"nvidia-smi says: {said[0] if said else f'exit status {code}'}")
    code, apps, _ = ask(_PROCESSES)
    used = [line.split(",") for line in apps.splitlines() if code == 0 and line.count(",") == 1]
    rows = [[word.strip() for word in line.split(",")] for line in out.splitlines() if line.strip()]
    divided = any(row[2].lower() == "enabled" for row in rows)
    whole_table = ask(("nvidia-smi", "mig", "-lgi"))[1] if divided else ""
    part_table = ask(("nvidia-smi", "mig", "-lci"))[1] if divided else ""
    found = []
    for row in rows:
        index, mode, pending = int(row[0]), row[2].lower(), row[3].lower()
        instances, broken = _instances(index, whole_table, part_table)
        processes = tuple(int(pid) for uuid, pid in used if uuid.strip() == row[1])
        known = mode if mode in ("enabled", "disabled") else ""
        found.append(Gpu(index, row[1], known, pending if known else "", instances, broken, processes))
    return found


def _instances(index: int, whole: str, part: str) -> tuple[tuple[str, ...], bool]:
    """Profiles of a GPU's instances that one compute instance fills, and whether there are others."""
    names = {number: name for gpu, name, number in _GPU_INSTANCE.findall(whole) if int(gpu) == index}
    parts: dict[str, list[str]] = {}
    for gpu, instance, name in _COMPUTE_INSTANCE.findall(part):
        if int(gpu) == index:
            parts.setdefault(instance, []).append(name)
    complete = [name for number, name in names.items() if parts.get(number) == [name]]
    return tuple(sorted(complete)), len(complete) < len(names)


def plan(gpus: Sequence[Gpu], layout: Sequence[Sequence[str]]) -> list[Change]:
    """Return what it takes to bring GPUs to a layout: one list of profiles for each, empty for a whole one.

    A GPU that is as it shall be is not named. Raises MigError.
    """
    if len(gpus) != len(layout):
        raise MigError(
            f"{len(gpus)} of {len(layout)} GPUs are there: look at `nvidia-smi -L` and cluster.yml"
        )
    found = []
    for gpu, profiles in zip(gpus, layout):
        if profiles and not gpu.mode:
            raise MigError(f"GPU {gpu.index + 1} cannot be divided: take it out of `mig` in cluster.yml")
        wanted = "enabled" if profiles else "disabled"
        one = ("nvidia-smi", "-i", str(gpu.index))
        mig = ("nvidia-smi", "mig", "-i", str(gpu.index))
        commands: list[tuple[str, ...]] = []
        why = []
        different = gpu.broken or sorted(profiles) != sorted(gpu.instances)
        if gpu.mode == "enabled" and different and (gpu.instances or gpu.broken):
            commands += [(*mig, "-dci"), (*mig, "-dgi")]
        if gpu.mode and (gpu.mode != wanted or gpu.pending != wanted):
            why.append(f"MIG {wanted}, was {gpu.mode}")
            commands.append((*one, "-mig", "1" if profiles else "0"))
        if different and gpu.mode:
            there = ", ".join(gpu.instances) or "no instances"
            why.append(f"{', '.join(profiles) or 'whole'}, was {there}{' and unfinished ones' * gpu.broken}")
            if profiles:
                commands.append((*mig, "-cgi", ",".join(profiles), "-C"))
        if why:
            found.append(Change(gpu.index, f"GPU {gpu.index + 1}: {'; '.join(why)}", tuple(commands)))
    return found


def refusals(node: str, changes: Sequence[Change], gpus: Iterable[Gpu], slurm: Slurm | None) -> list[str]:
    """Return what speaks against making changes now. ``slurm`` is None where there is none on the node."""
    if not changes:
        return []
    found = []
    if slurm is not None and slurm.jobs:
        found.append(f"{node} runs {', '.join(slurm.jobs)}: a GPU is divided only when no job is on its node")
    if slurm is not None and slurm.state and not any(word in slurm.state.upper() for word in CLOSED):
        found.append(
            f"{node} takes jobs ({slurm.state.lower()}): drain it first,"
            f" scontrol update NodeName={node} State=DRAIN Reason='other MIG layout'"
        )
    touched = {change.index for change in changes}
    for gpu in gpus:
        if gpu.index in touched and gpu.processes:
            pids = ", ".join(str(pid) for pid in gpu.processes)
            found.append(f"process {pids} uses GPU {gpu.index + 1}: end it, or wait")
    return found


def read_slurm(node: str, ask: Run) -> Slurm | None:
    """Ask Slurm for the node's state and jobs; None where no Slurm is on the node. Raises MigError.

    A node without scontrol, or one that slurmctld does not know, cannot have jobs.
    """
    try:
        code, out, error = ask(("scontrol", "--oneliner", "show", "node", node))
    except FileNotFoundError:
        return None
    if code != 0:
        if "not found" in (out + error).lower():
            return Slurm("", ())
        if ask(("systemctl", "--quiet", "is-active", "slurmd.service"))[0] != 0:
            return None
        said = (error or out).strip().splitlines()
        raise MigError(f"slurmctld does not say whether jobs run on {node}: {said[0] if said else code}")
    state = re.search(r"\bState=(\S+)", out)
    words = ("squeue", "--noheader", "--nodelist", node, "--states=R,CG,S,CF,SO,SI", "--format=job %A of %u")
    jobs = ask(words)[1]
    return Slurm(state[1] if state else "", tuple(line.strip() for line in jobs.splitlines() if line.strip()))


def make(changes: Iterable[Change], ask: Run) -> None:
    """Make changes, one GPU after the other. Raises MigError at the first that fails."""
    for change in changes:
        for command in change.commands:
            code, out, error = ask(command)
            if code != 0:
                said = (error or out).strip().splitlines()
                raise MigError(f"`{' '.join(command)}`: {said[0] if said else f'exit status {code}'}")
            if "-mig" in command:
                _settle(change.index, ask)


def _settle(index: int, ask: Run) -> None:
    """Reset a GPU whose new mode waits for that, as before Hopper."""
    gpu = next(one for one in read_gpus(ask) if one.index == index)
    if gpu.mode == gpu.pending:
        return
    code, out, error = ask(("nvidia-smi", "--gpu-reset", "-i", str(index)))
    if code != 0:
        said = (error or out).strip().splitlines()
        raise MigError(
            f"GPU {index + 1} takes its MIG mode from a reset, which fails ({said[0] if said else code}):"
            " reboot the node"
        )


def bring(
    layout: Sequence[Sequence[str]], node: str, ask: Run, act: bool, slurm: bool = True
) -> list[Change]:
    """Compare, refuse, make and look again; return the changes. Raises MigError."""
    gpus = read_gpus(ask)
    changes = plan(gpus, layout)
    wrong = refusals(node, changes, gpus, read_slurm(node, ask) if slurm and changes else None)
    if wrong:
        raise MigError("; ".join(wrong))
    if act and changes:
        make(changes, ask)
        left = plan(read_gpus(ask), layout)
        if left:
            raise MigError("made, and still not so: " + "; ".join(change.why for change in left))
    return changes


def run(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command. Raises FileNotFoundError."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def main(arguments: Sequence[str]) -> int:
    """Make the layout of a file at boot, before anything uses the GPUs."""
    if len(arguments) != 1:
        print("usage: gpu_mig.py FILE", file=sys.stderr)
        return 2
    with open(arguments[0], encoding="utf-8") as stream:
        wanted: Mapping[str, list[list[str]]] = json.load(stream)
    try:
        for change in bring(wanted["layout"], "this node", run, act=True, slurm=False):
            print(change.why)
    except FileNotFoundError:
        print("nvidia-smi is not there", file=sys.stderr)
        return 1
    except MigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
