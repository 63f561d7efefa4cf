"""What an edit of Slurm's configuration needs: a table, and pure functions over it.

The table follows slurm.conf(5), gres.conf(5) and scontrol(1) of the packaged releases. Since 23.11
``scontrol reconfigure`` starts each daemon's successor with the new files, so that little is left which only
a restart can change. Before, every key that the manual names wanted one.

Standard library only: it runs on nodes (Python 3.9) as well as on the controller.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# What an edit needs, from the mildest to the strongest.
NONE = "none"
#: ``scontrol reconfigure``; no daemon's unit restarts, jobs go on.
RECONFIGURE = "reconfigure"
#: slurmctld's unit restarts; slurmd goes on, jobs go on.
RESTART_CONTROLLER = "restart_controller"
#: slurmctld restarts, then every slurmd; jobs go on (slurmstepd holds them).
RESTART_DAEMONS = "restart_daemons"
#: No job may run and none may start while daemons with the old and the new value meet.
STOP_FIRST = "stop_first"

CLASSES = (NONE, RECONFIGURE, RESTART_CONTROLLER, RESTART_DAEMONS, STOP_FIRST)

#: The release whose ``scontrol reconfigure`` replaces the processes.
REEXEC_RELEASE = (23, 11)

#: Not keys of slurm.conf, but edited like them.
NODES = "NodeName"
NODES_REMOVED = "NodeName removed"
PARTITIONS = "PartitionName"
GRES = "gres.conf"
GRES_CORES = "gres.conf Cores"
CGROUP = "cgroup.conf"


class Edit(NamedTuple):
    """What an edit of one key needs, before REEXEC_RELEASE and since."""

    before: str
    since: str
    why: str


EDITS: dict[str, Edit] = {
    # Who is who: daemons that disagree refuse each other, or lose what the others wrote.
    "AuthType": Edit(STOP_FIRST, STOP_FIRST, "daemons and commands refuse each other's messages"),
    "AuthInfo": Edit(RESTART_DAEMONS, RESTART_DAEMONS, "reconfigure does not change the authentication"),
    "AuthAltTypes": Edit(RESTART_CONTROLLER, RESTART_CONTROLLER, "plugins of slurmctld's authentication"),
    "AuthAltParameters": Edit(RESTART_CONTROLLER, RESTART_CONTROLLER, "read with AuthAltTypes"),
    "CredType": Edit(STOP_FIRST, STOP_FIRST, "running jobs' credentials can no longer be checked"),
    "ClusterName": Edit(STOP_FIRST, STOP_FIRST, "slurmctld refuses another cluster's saved state"),
    "SlurmUser": Edit(STOP_FIRST, STOP_FIRST, "the saved state and the units belong to the old user"),
    "SlurmdUser": Edit(STOP_FIRST, STOP_FIRST, "slurmd's spool and units belong to the old user"),
    "StateSaveLocation": Edit(STOP_FIRST, STOP_FIRST, "all jobs are known from the old directory alone"),
    "SlurmdSpoolDir": Edit(STOP_FIRST, STOP_FIRST, "running steps are found through the old directory"),
    "SwitchType": Edit(STOP_FIRST, STOP_FIRST, "records of running jobs may be lost"),
    "TLSType": Edit(STOP_FIRST, STOP_FIRST, "daemons that disagree cannot talk"),
    # Listening ports: reconfigure keeps the old sockets, in every release.
    "SlurmctldPort": Edit(RESTART_DAEMONS, RESTART_DAEMONS, "a listening port"),
    "SlurmdPort": Edit(RESTART_DAEMONS, RESTART_DAEMONS, "a listening port"),
    # Named by slurm.conf(5) of the releases before 23.11.
    "AccountingStorageEnforce": Edit(RESTART_CONTROLLER, RECONFIGURE, "read at start before 23.11"),
    "CoreSpecPlugin": Edit(RESTART_DAEMONS, RECONFIGURE, "a plugin of slurmd"),
    "GresTypes": Edit(RESTART_DAEMONS, RECONFIGURE, "plugins of both daemons"),
    "JobContainerType": Edit(RESTART_DAEMONS, RECONFIGURE, "a plugin of both daemons"),
    "MaxJobCount": Edit(RESTART_CONTROLLER, RECONFIGURE, "sizes slurmctld's tables"),
    "PluginDir": Edit(RESTART_DAEMONS, RECONFIGURE, "where both daemons load from"),
    "PowerPlugin": Edit(RESTART_CONTROLLER, RECONFIGURE, "a plugin of slurmctld"),
    "ProctrackType": Edit(RESTART_DAEMONS, RECONFIGURE, "a plugin; running steps keep theirs"),
    "JobAcctGatherType": Edit(RESTART_DAEMONS, RECONFIGURE, "a plugin; running steps keep theirs"),
    "TaskPlugin": Edit(RESTART_DAEMONS, RECONFIGURE, "a plugin; running steps keep theirs"),
    "SchedulerType": Edit(RESTART_CONTROLLER, RECONFIGURE, "a plugin of slurmctld"),
    "SelectType": Edit(RESTART_DAEMONS, RECONFIGURE, "a plugin of both daemons"),
    "SelectTypeParameters": Edit(RESTART_CONTROLLER, RECONFIGURE, "read by a plugin at its start"),
    "SlurmctldHost": Edit(RESTART_DAEMONS, RECONFIGURE, "who the controllers are"),
    "SlurmctldParameters": Edit(RESTART_CONTROLLER, RECONFIGURE, "enable_configless is read at start"),
    # Nodes, partitions and devices.
    NODES: Edit(RESTART_DAEMONS, RECONFIGURE, "every daemon must know every node"),
    PARTITIONS: Edit(RECONFIGURE, RECONFIGURE, "policy of slurmctld"),
    GRES: Edit(RESTART_DAEMONS, RECONFIGURE, "slurmd looks for its devices at start"),
    GRES_CORES: Edit(RESTART_DAEMONS, RESTART_CONTROLLER, "slurmctld binds cores at its start"),
    CGROUP: Edit(RECONFIGURE, RECONFIGURE, "steps to come read it"),
}

_BY_LOWER = {key.lower(): key for key in EDITS}


def parse_release(release: str) -> tuple[int, int]:
    """Return ``(24, 11)`` for "24.11", "24.11.5" or "24.11.5-4"; ValueError when it is none of them."""
    match = re.match(r"(\d+)\.(\d+)", str(release))
    if match is None:
        raise ValueError(f"{release!r} is no Slurm release such as 24.11")
    return int(match.group(1)), int(match.group(2))


def edit_class(key: str, release: str) -> str:
    """Return what an edit of ``key`` needs with Slurm ``release``: one of CLASSES.

    Keys that the table does not name need a reconfigure, as slurm.conf(5) says for all others.
    """
    known = _BY_LOWER.get(key.lower())
    if known is None:
        return RECONFIGURE
    edit = EDITS[known]
    return edit.since if parse_release(release) >= REEXEC_RELEASE else edit.before


def strongest(classes: Iterable[str]) -> str:
    """Return the strongest of several needs, NONE of nothing."""
    return max(classes, key=CLASSES.index, default=NONE)


def canonical(key: str) -> str:
    """Return the table's spelling of a key, as slurm.conf takes keys in any case."""
    return _BY_LOWER.get(key.lower(), key)


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the keys that two settings (whose keys slurm.conf takes in any case) differ in, sorted."""
    before = {key.lower(): str(value) for key, value in old.items()}
    after = {key.lower(): str(value) for key, value in new.items()}
    spelling = {key.lower(): key for key in list(old) + list(new)}
    return sorted(
        canonical(spelling[key]) for key in set(before) | set(after) if before.get(key) != after.get(key)
    )


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8")).hexdigest()[:16]


def start_lines(
    settings: Mapping[str, Any],
    release: str,
    daemon: str,
    nodes: Sequence[str] = (),
    gres: Sequence[str] = (),
) -> list[str]:
    """Return the lines ``Key=value`` that only a start of ``daemon`` (slurmctld or slurmd) takes up, sorted.

    Written to a file that restarts the daemon's unit when it changes; nothing else does. Nodes and devices
    (their lines in slurm.conf and gres.conf) stand there as digests, with the releases that want that.
    """
    wanted = {
        "slurmctld": {RESTART_CONTROLLER, RESTART_DAEMONS, STOP_FIRST},
        "slurmd": {RESTART_DAEMONS, STOP_FIRST},
    }[daemon]
    cores = [line for line in gres if re.search(r"\bcores?=", line, re.IGNORECASE)]
    everything = dict(settings)
    for key, lines in ((NODES, nodes), (GRES, gres), (GRES_CORES, cores)):
        if lines:
            everything[key] = _digest(lines)
    return sorted(
        f"{canonical(key)}={value}" for key, value in everything.items() if edit_class(key, release) in wanted
    )


def parse_start_lines(text: str) -> dict[str, str]:
    """Read back what ``start_lines`` gave, from comments: "# Key=value"."""
    pairs = (line[2:].split("=", 1) for line in text.splitlines() if re.match(r"# [A-Za-z. ]+=", line))
    return dict(pairs)


class Job(NamedTuple):
    """A job as squeue knows it; ``nodes`` is empty while it waits."""

    ident: str
    partition: str
    nodes: tuple[str, ...]


class Live(NamedTuple):
    """What slurmctld says. None of it where it does not answer."""

    jobs: Sequence[Job]
    #: Nodes that take no new work: drained or down, each with nothing running.
    idle_nodes: Sequence[str]
    nodes: Sequence[str]


class Verdict(NamedTuple):
    """What an edit needs, what it touches, and why it must not be now (empty: it may)."""

    need: str
    changed: list[str]
    refusals: list[str]


def _shape(line: str) -> str:
    """Return what of a node's line running jobs stand on: all but its address, memory and state."""
    return " ".join(
        word
        for word in line.split()
        if word.split("=")[0].lower()
        not in ("nodeaddr", "nodehostname", "state", "reason", "weight", "realmemory")
    )


def judge(old: Mapping[str, Any], new: Mapping[str, Any], release: str, live: Live | None) -> Verdict:
    """Compare the configuration in place with the one to come: {settings, nodes, partitions}, and for the old
    one ``started``, the start lines that were last declared.

    Refused is what would end or lose a job: a declared key of the class STOP_FIRST that changes while anything
    runs or could start, a node that goes or changes its shape under a job, a partition that goes from under one.
    """
    edited = changes(old["settings"], new["settings"])
    for kind, name in ((NODES, "nodes"), (PARTITIONS, "partitions")):
        if old[name] != new[name]:
            edited.append(kind)
    fixed = {key: value for key, value in new["settings"].items() if edit_class(key, release) == STOP_FIRST}
    started = {key: value for key, value in old["started"].items() if edit_class(key, release) == STOP_FIRST}
    # What somebody wrote into the file by hand is put right whatever runs: the daemons never were told of it.
    stopping = changes(started, fixed) if started else []
    refusals = [why for key in stopping for why in _at_work(key, live)]
    for job in live.jobs if live else ():
        for node in job.nodes:
            if node in old["nodes"] and node not in new["nodes"]:
                refusals.append(f"node {node} goes while job {job.ident} runs on it")
            elif node in old["nodes"] and _shape(old["nodes"][node]) != _shape(new["nodes"][node]):
                refusals.append(f"node {node} changes its shape while job {job.ident} runs on it")
        for partition in job.partition.split(","):
            if partition in old["partitions"] and partition not in new["partitions"]:
                refusals.append(f"partition {partition} goes while job {job.ident} uses it")
    need = strongest(edit_class(key, release) for key in edited + stopping)
    return Verdict(need, sorted(set(edited + stopping)), sorted(set(refusals)))


def _at_work(key: str, live: Live | None) -> list[str]:
    """Return why a key that wants every slurmd stopped cannot change now; nothing when all of them rest."""
    if live is None:
        return [f"{key} changes and slurmctld does not answer, so nobody knows which jobs run"]
    running = [job.ident for job in live.jobs if job.nodes]
    if running:
        return [f"{key} changes ({_why(key)}) while jobs run: {', '.join(running[:5])}"]
    free = sorted(set(live.nodes) - set(live.idle_nodes))
    if free:
        return [f"{key} changes ({_why(key)}) while jobs can start on {', '.join(free[:5])}"]
    return []


def _why(key: str) -> str:
    return EDITS[canonical(key)].why
