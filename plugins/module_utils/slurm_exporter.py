"""Serve what Slurm says of itself to Prometheus: nodes, jobs, accounts, the scheduler, controllers, accounting.

    python3 -IB /usr/lib/coldiron/slurm-exporter /etc/coldiron/slurm-exporter/config.json

Role slurm_exporter installs this file and exporter_http.py as they are. It asks by Slurm's own commands, as a user
without rights; their text has stayed the same over many releases, which neither their JSON nor slurmrestd's has.
However many ask and however often, Slurm is asked once in the configured time. Five questions go to slurmctld (nodes,
jobs, partitions, sdiag, ping), each one message; accounting is asked once a minute.
docs/decisions/0003-slurm-exporter.md has the figures.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.message import Message

from .exporter_http import Sample, patience, render, serve

#: Seconds that a command may take, or fewer where Prometheus says that it waits less: slurmctld's clients try for half
#: a minute to reach one that is away, and an answer that comes too late is none.
PATIENCE = 8.0
#: How often accounting is asked.
ACCOUNTING_SECONDS = 60.0

METRICS: dict[str, tuple[str, str]] = {
    "slurm_up": ("gauge", "Whether slurmctld has answered."),
    "slurm_scrape_seconds": ("gauge", "How long a question took."),
    "slurm_controller_up": ("gauge", "Whether the controller answers."),
    "slurm_controller_active": ("gauge", "Whether the controller is the one in command."),
    "slurm_dbd_up": ("gauge", "Whether accounting answers."),
    "slurm_dbd_queue_size": ("gauge", "Messages that wait for slurmdbd."),
    "slurm_nodes": ("gauge", "Nodes by state."),
    "slurm_node_state": ("gauge", "The node's state."),
    "slurm_node_reason_timestamp_seconds": ("gauge", "Since when the node has a reason not to take jobs."),
    "slurm_node_cpus": ("gauge", "CPUs of the node."),
    "slurm_node_cpus_allocated": ("gauge", "CPUs of the node that jobs have."),
    "slurm_node_memory_bytes": ("gauge", "Memory of the node that jobs may have."),
    "slurm_node_memory_allocated_bytes": ("gauge", "Memory of the node that jobs have."),
    "slurm_node_gpus": ("gauge", "GPUs of the node."),
    "slurm_node_gpus_allocated": ("gauge", "GPUs of the node that jobs have."),
    "slurm_partition_up": ("gauge", "Whether the partition takes and starts jobs."),
    "slurm_partition_nodes": ("gauge", "Nodes of the partition."),
    "slurm_partition_cpus": ("gauge", "CPUs of the partition."),
    "slurm_jobs": ("gauge", "Jobs by state; each task of an array counts."),
    "slurm_jobs_pending_by_reason": ("gauge", "Waiting jobs by what they wait for."),
    "slurm_job_pending_seconds_max": (
        "gauge",
        "The longest wait of a job that waits for its turn or for room.",
    ),
    "slurm_account_jobs": ("gauge", "Jobs of the account."),
    "slurm_account_cpus_running": ("gauge", "CPUs that the account's jobs have."),
    "slurm_account_gpus_running": ("gauge", "GPUs that the account's jobs have."),
    "slurm_account_memory_bytes_running": ("gauge", "Memory that the account's jobs have."),
    "slurm_user_gpus_running": ("gauge", "GPUs that the user's jobs have."),
    "slurm_job_gpu": ("gauge", "GPUs of a job on one of its nodes; taken as the same on each."),
    "slurm_scheduler_threads": ("gauge", "Threads of slurmctld that serve somebody."),
    "slurm_scheduler_agent_queue_size": ("gauge", "Messages that wait to be sent to nodes."),
    "slurm_scheduler_jobs_total": ("counter", "Jobs since midnight (UTC) or since slurmctld was started."),
    "slurm_scheduler_cycle_seconds": ("gauge", "How long the last look at the queue took."),
    "slurm_scheduler_cycle_seconds_max": ("gauge", "How long the longest one took."),
    "slurm_scheduler_backfill_cycle_seconds": ("gauge", "How long the last backfill took."),
    "slurm_scheduler_cycles_total": ("counter", "Looks at the queue."),
    "slurm_rpcs_total": ("counter", "Messages that slurmctld has answered."),
    "slurm_rpc_seconds_total": ("counter", "Time that it has taken for them."),
}


Samples = Iterator[Sample]


def run(words: Sequence[str], seconds: float = PATIENCE) -> str:
    """What a command prints. Raises OSError or SubprocessError where it fails or takes too long."""
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", timeout=seconds, check=True,
    )  # fmt: skip
    return done.stdout


_FIELD = re.compile(r"(?:^| )([\w:]+)=(\S*)")
_NOTHING = ("(null)", "N/A")


def fields(line: str) -> dict[str, str]:
    """The words of a line of scontrol's that say something; not those from the reason on, which may hold anything."""
    found = _FIELD.findall(line.partition(" Reason=")[0])
    return {key: value for key, value in found if value not in _NOTHING}


_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def tres(text: str) -> tuple[float, float, float]:
    """CPUs, bytes of memory and GPUs in a list such as ``cpu=2,mem=4G,gres/gpu=1,gres/gpu:h100=1``."""
    found = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    memory = re.fullmatch(r"([\d.]+)([KMGTP]?)", found.get("mem", "0"))
    size = float(memory[1]) * _UNITS[memory[2]] if memory else 0.0
    # MIG's instances have a line for each type, and the whole beside them.
    return float(found.get("cpu", 0)), size, float(found.get("gres/gpu", 0))


def state(text: str) -> str:
    """One word for a node's state, such as ``IDLE+DRAIN`` or ``DOWN*``."""
    base, *flags = re.sub(r"[^A-Z_+]", "", text.upper()).split("+")
    if "DRAIN" in flags or base in ("DRAIN", "DRAINED", "DRAINING"):
        busy = base in ("ALLOCATED", "MIXED", "DRAINING") or "COMPLETING" in flags
        return "draining" if busy else "drained"
    for flag, name in (
        ("FAIL", "fail"), ("MAINTENANCE", "maint"), ("MAINT", "maint"), ("POWERED_DOWN", "powered_down"),
        ("POWERING_DOWN", "powered_down"), ("COMPLETING", "completing"), ("RESERVED", "reserved"),
        ("PLANNED", "planned"),
    ):  # fmt: skip
        if base == "DOWN":
            break
        # Work that goes on says more than what is planned for afterwards.
        if (flag in flags or flag == base) and not (
            base in ("ALLOCATED", "MIXED") and flag in ("PLANNED", "RESERVED")
        ):
            return name
    return base.lower() or "unknown"


STATES = ("idle", "allocated", "mixed", "completing", "draining", "drained", "down", "fail", "maint", "reserved",
          "planned", "powered_down", "unknown")  # fmt: skip


def nodes(text: str) -> Samples:
    """What ``scontrol -o show node`` says."""
    counted = Counter(dict.fromkeys(STATES, 0))
    for line in text.splitlines():
        said = fields(line)
        name = said.get("NodeName")
        if not name:
            continue
        now, node = state(said.get("State", "")), {"node": name}
        counted[now] += 1
        yield Sample("slurm_node_state", 1, {**node, "state": now})
        gpus = [tres(said.get(key, ""))[2] for key in ("CfgTRES", "AllocTRES")]
        mebi = [float(said.get(key) or 0) * 2**20 for key in ("RealMemory", "AllocMem")]
        for metric, value in (
            ("slurm_node_cpus", float(said.get("CPUTot") or 0)),
            ("slurm_node_cpus_allocated", float(said.get("CPUAlloc") or 0)),
            ("slurm_node_memory_bytes", mebi[0]),
            ("slurm_node_memory_allocated_bytes", mebi[1]),
            *((("slurm_node_gpus", gpus[0]), ("slurm_node_gpus_allocated", gpus[1])) if gpus[0] else ()),
        ):
            yield Sample(metric, value, node)
        why = re.search(r" Reason=(.*) \[([^@\]]+)@([\dT:-]+)\]", line)
        if why and now in ("drained", "draining", "down", "fail"):
            labels = {**node, "reason": why[1].strip()[:80], "by": why[2]}
            yield Sample("slurm_node_reason_timestamp_seconds", moment(why[3]), labels)
    for name, count in counted.items():
        yield Sample("slurm_nodes", count, {"state": name})


def moment(text: str) -> float:
    """The time that Slurm writes as the machine's own; 0 where it is none."""
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return 0.0


def partitions(text: str) -> Samples:
    """What ``scontrol -o show partition`` says."""
    for line in text.splitlines():
        said = fields(line)
        if "PartitionName" in said:
            labels = {"partition": said["PartitionName"]}
            yield Sample("slurm_partition_up", float(said.get("State") == "UP"), labels)
            yield Sample("slurm_partition_nodes", float(said.get("TotalNodes") or 0), labels)
            yield Sample("slurm_partition_cpus", float(said.get("TotalCPUs") or 0), labels)


#: What is asked of each job, and how many letters of it are enough.
JOB_FIELDS = {"JobArrayID": 256, "State": 16, "Partition": 128, "Account": 64, "UserName": 64, "Reason": 48,
              "EligibleTime": 24, "tres-alloc": 256, "NodeList": 4096}  # fmt: skip
QUEUE = ("squeue", "--all", "--noheader", "--states=PD,R,S,CG,CF", "--Format="
         + ",".join(f"{name}:{size}|" for name, size in JOB_FIELDS.items()))  # fmt: skip
#: Reasons of jobs that could start if there were room.
READY = ("Resources", "Priority", "None", "Nodes required for job are DOWN", "ReqNodeNotAvail", "Cleaning")


def tasks(job: str) -> int:
    """How many jobs an id stands for: ``7_[1-10:2%3]`` is five of them."""
    found = re.search(r"_\[([\d,:%-]+)", job)
    if not found:
        return 1
    count = 0
    for part in found[1].split("%")[0].split(","):
        ends = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if ends:
            count += (int(ends[2] or ends[1]) - int(ends[1])) // int(ends[3] or 1) + 1
    return count or 1


def expand(hosts: str) -> list[str]:
    """The names in a list such as ``gpu[01-03,7],head01``."""
    found: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*", hosts):
        names = [""]
        for plain, ranges in re.findall(r"([^\[\]]+)|\[([^\]]*)\]", part):
            if plain:
                names = [name + plain for name in names]
                continue
            ends = []
            for one in ranges.split(","):
                low, _, high = one.partition("-")
                ends += [str(at).zfill(len(low)) for at in range(int(low), int(high or low) + 1)]
            names = [name + end for name in names for end in ends]
        found += names
    return found


def jobs(text: str, now: float) -> Samples:
    """What ``squeue`` says."""
    by_state: Counter[tuple[str, str]] = Counter()
    by_account: Counter[tuple[str, str]] = Counter()
    by_reason: Counter[tuple[str, str]] = Counter()
    waits: dict[str, float] = {}
    used: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    users: Counter[tuple[str, str]] = Counter()
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) < len(JOB_FIELDS):
            continue
        job, status, where, account, user, reason, eligible, allocated, hosts = parts[: len(JOB_FIELDS)]
        # A job that names several partitions waits in all of them, and is counted in the first.
        partition, status, many = where.split(",")[0], status.lower(), tasks(job)
        by_state[partition, status] += many
        by_account[account, status] += many
        if status == "pending":
            by_reason[partition, reason] += many
            if reason.split(",")[0] in READY and moment(eligible):
                waits[partition] = max(waits.get(partition, 0.0), now - moment(eligible))
        elif status == "running":
            cpus, memory, gpus = tres(allocated)
            used[account] = [old + new for old, new in zip(used[account], (cpus, memory, gpus))]
            if gpus:
                users[user, account] += int(gpus)
                names = expand(hosts)
                about = {"job_id": job, "user": user, "account": account, "partition": partition}
                for name in names:
                    yield Sample("slurm_job_gpu", gpus / len(names), {"node": name, **about})
    for (partition, status), count in by_state.items():
        yield Sample("slurm_jobs", count, {"partition": partition, "state": status})
    for (partition, reason), count in by_reason.items():
        yield Sample("slurm_jobs_pending_by_reason", count, {"partition": partition, "reason": reason})
    for partition, seconds in waits.items():
        yield Sample("slurm_job_pending_seconds_max", max(seconds, 0.0), {"partition": partition})
    for (account, status), count in by_account.items():
        yield Sample("slurm_account_jobs", count, {"account": account, "state": status})
    for account, (cpus, memory, gpus) in used.items():
        yield Sample("slurm_account_cpus_running", cpus, {"account": account})
        yield Sample("slurm_account_memory_bytes_running", memory, {"account": account})
        yield Sample("slurm_account_gpus_running", gpus, {"account": account})
    for (user, account), count in users.items():
        yield Sample("slurm_user_gpus_running", count, {"user": user, "account": account})


def scheduler(text: str) -> Samples:
    """What ``sdiag`` says."""

    def number(key: str, part: str = text) -> float | None:
        found = re.search(rf"^\s*{re.escape(key)}:\s+(\d+)", part, re.MULTILINE)
        return float(found[1]) if found else None

    main, _, rest = text.partition("Backfilling stats")
    for metric, value, unit in (
        ("slurm_scheduler_threads", number("Server thread count"), 1),
        ("slurm_scheduler_agent_queue_size", number("Agent queue size"), 1),
        ("slurm_dbd_queue_size", number("DBD Agent queue size"), 1),
        ("slurm_scheduler_cycle_seconds", number("Last cycle", main), 1e-6),
        ("slurm_scheduler_cycle_seconds_max", number("Max cycle", main), 1e-6),
        ("slurm_scheduler_cycles_total", number("Total cycles", main), 1),
        ("slurm_scheduler_backfill_cycle_seconds", number("Last cycle", rest), 1e-6),
    ):
        if value is not None:
            yield Sample(metric, round(value * unit, 6))
    for event in ("submitted", "started", "completed", "canceled", "failed"):
        value = number(f"Jobs {event}")
        if value is not None:
            yield Sample("slurm_scheduler_jobs_total", value, {"event": event})
    kinds = rest.partition("by message type")[2].partition("by user")[0]
    for kind, count, total in re.findall(
        r"^\s+(\w+)\s+\(\s*\d+\) count:(\d+)\s.*total_time:(\d+)", kinds, re.MULTILINE
    ):
        yield Sample("slurm_rpcs_total", float(count), {"type": kind})
        yield Sample("slurm_rpc_seconds_total", int(total) / 1e6, {"type": kind})


def controllers(text: str) -> Samples:
    """What ``scontrol ping`` says. The first that answers is in command."""
    active = True
    for role, host, answer in re.findall(r"^Slurmctld\((\w+)\) at (\S+) is (\w+)", text, re.MULTILINE):
        labels = {"host": host, "role": "primary" if role == "primary" else "backup"}
        up = answer == "UP"
        yield Sample("slurm_controller_up", float(up), labels)
        yield Sample("slurm_controller_active", float(up and active), labels)
        active = active and not up


def questions() -> dict[str, tuple[Sequence[str], Callable[[str], Samples]]]:
    """What is asked each time: a command, and who reads its answer."""
    return {
        "nodes": (("scontrol", "--oneliner", "show", "node"), nodes),
        "partitions": (("scontrol", "--oneliner", "show", "partition"), partitions),
        "jobs": (QUEUE, lambda text: jobs(text, time.time())),
        "sdiag": (("sdiag",), scheduler),
        "ping": (("scontrol", "ping"), controllers),
    }


class Collector:
    """Asks Slurm, at most once in ``seconds``, and keeps the text in between."""

    def __init__(self, seconds: float, ask: Callable[[Sequence[str], float], str] = run) -> None:
        self.seconds, self._ask, self.patience = seconds, ask, PATIENCE
        self._lock = threading.Lock()
        self._text, self._at = "", float("-inf")
        self._dbd, self._dbd_at = 0.0, float("-inf")

    def _one(self, source: str) -> tuple[list[Sample], float, bool]:
        command, reader = questions()[source]
        begin = time.monotonic()
        try:
            found, well = list(reader(self._asked(command))), True
        except (OSError, subprocess.SubprocessError):
            found, well = [], False
        return found, time.monotonic() - begin, well

    def _accounting(self) -> float:
        if time.monotonic() - self._dbd_at >= ACCOUNTING_SECONDS:
            try:
                self._dbd = float(
                    bool(self._asked(("sacctmgr", "--noheader", "show", "cluster", "format=cluster")).strip())
                )
            except (OSError, subprocess.SubprocessError):
                self._dbd = 0.0
            self._dbd_at = time.monotonic()
        return self._dbd

    def _asked(self, words: Sequence[str]) -> str:
        return self._ask(words, self.patience)

    def answer(self, path: str, query: str, headers: Message) -> tuple[int, str]:
        """What who may ask is told at ``/metrics``, and nowhere else; Prometheus says how long it waits."""
        self.patience = min(PATIENCE, patience(headers) or PATIENCE)
        return (200, self.text()) if path == "/metrics" else (404, "metrics are at /metrics\n")

    def text(self) -> str:
        """All metrics, asked for now or a moment ago."""
        with self._lock:
            if time.monotonic() - self._at < self.seconds:
                return self._text
            names = list(questions())
            with ThreadPoolExecutor(len(names) + 1) as pool:
                accounting = pool.submit(self._accounting)
                answers = dict(zip(names, pool.map(self._one, names)))
            samples = [sample for found, _, _ in answers.values() for sample in found]
            samples += [Sample("slurm_scrape_seconds", round(took, 4), {"source": name})
                        for name, (_, took, _) in answers.items()]  # fmt: skip
            samples.append(Sample("slurm_up", float(answers["nodes"][2])))
            samples.append(Sample("slurm_dbd_up", accounting.result()))
            self._text, self._at = render(METRICS, samples), time.monotonic()
            return self._text


def main(path: str) -> None:
    """Serve until the process is ended."""
    serve(path, lambda config: Collector(config["seconds"]).answer)
