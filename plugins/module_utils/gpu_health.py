"""Say whether a node's GPUs are fit for work; around jobs, drain the node that has others. Ends and resets nothing.

Role gpu_health installs this file as it is, for slurmd to run as root before and after each job:

    gpu_health.py prolog|epilog   judge; drain the node with the reason; a prolog fails if the job's own GPUs are meant
    gpu_health.py check           judge, print what is found, exit with 1 if there is anything

NVML is asked directly: a job waits for the answer. Xids come from the kernel's log.
Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

CONFIG = "/etc/coldiron/gpu-health.json"
MEMORY = "/var/lib/coldiron/gpu-health.json"
BOOT = "/proc/sys/kernel/random/boot_id"
GPUS = "/proc/driver/nvidia/gpus"
#: What a drain by this program begins with.
REASON = "coldiron gpu: "
#: Slurm's tables and mails take a longer reason badly; all of it is in slurmd's log.
REASON_LENGTH = 200
#: Some explain themselves at length; what else was found needs room too.
XID_LENGTH = 60
#: A driver that hangs must not hold up slurmd.
DRIVER_SECONDS = 10.0
#: A process that was killed leaves its GPU a moment later.
LEAVE_SECONDS = 3.0

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:]+?)(?:\.[0-9a-fA-F])?\): (\d+),? ?(.*)")
#: Bits of nvmlDeviceGetCurrentClocksThrottleReasons, of which none belongs to a sound machine.
_SLOWDOWNS = {0x40: "slowed down by heat", 0x80: "slowed down by its power supply"}

_SUCCESS, _NOT_SUPPORTED, _GPU_IS_LOST = 0, 3, 15


class Card(NamedTuple):
    """What one GPU says. ``number`` is N of /dev/nvidiaN, ``error`` what NVML said where it gave no answer."""

    number: int
    uuid: str = ""
    bus: str = ""
    error: str = ""
    divided: bool = False
    uncorrected: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    clocks: int = 0
    processes: tuple[int, ...] = ()


class Xid(NamedTuple):
    """An error that the driver told the kernel's log of. ``sequence`` counts the log's records since boot."""

    sequence: int
    bus: str
    code: int
    text: str


class Facts(NamedTuple):
    """What the node says: ``error`` where the driver as a whole does not answer, ``names`` of processes by number.

    ``buses`` maps PCI addresses to GPUs' numbers, also those of GPUs that no longer say theirs.
    """

    error: str = ""
    cards: tuple[Card, ...] = ()
    xids: tuple[Xid, ...] = ()
    names: Mapping[int, str] = {}
    buses: Mapping[str, int] = {}


class Finding(NamedTuple):
    """Something that speaks against a GPU; ``number`` is None where it speaks against all of them."""

    number: int | None
    text: str


def bus_of(text: str) -> str:
    """Return a PCI address as the kernel's log writes it, ``0000:9d:00``, from any of its spellings."""
    domain, bus, device = text.lower().split(".")[0].split(":")
    return f"{domain[-4:]}:{bus}:{device}"


def xids(log: Iterable[str]) -> Iterator[Xid]:
    """Yield the Xids in records of /dev/kmsg: ``priority,sequence,microseconds,flags;text``."""
    for record in log:
        head, semicolon, text = record.partition(";")
        found = _XID.search(text)
        fields = head.split(",")
        if semicolon and found and len(fields) > 1 and fields[1].isdigit():
            yield Xid(int(fields[1]), bus_of(found[1]), int(found[2]), found[3].strip())


def judge(
    facts: Facts, wanted: Mapping[str, Any], memory: Mapping[str, Any], job_gpus: Iterable[int]
) -> tuple[list[Finding], dict[str, Any]]:
    """Return what speaks against the node, worst first, and what is to be remembered once that was told.

    An Xid and an uncorrected error count once; what lasts (a lost GPU, rows to remap) counts each time. ``wanted``:
    ``gpus`` declared, ``ignored_xids``, ``leftovers`` and ``allowed_processes``. ``job_gpus`` are those whose
    processes have to be gone.
    """
    found: list[Finding] = []
    if facts.error:
        found.append(Finding(None, facts.error))
    elif len(facts.cards) < int(wanted["gpus"]):
        found.append(Finding(None, f"{len(facts.cards)} of {wanted['gpus']} GPUs are there"))
    known = {**facts.buses, **{card.bus: card.number for card in facts.cards if card.bus}}
    last = int(memory.get("sequence", -1))
    logged = [
        _logged(one, known)
        for one in facts.xids
        if one.sequence > last and one.code not in wanted["ignored_xids"]
    ]
    # Why a GPU does not answer is in the log once, and is told for as long as it does not.
    causes = {int(number): str(text) for number, text in memory.get("causes", {}).items()}
    causes.update({one.number: one.text for one in logged if one.number is not None})
    silent = [card for card in facts.cards if card.error]
    for card in silent:
        if card.number in causes:
            found.append(Finding(card.number, causes[card.number]))
        found.append(Finding(card.number, card.error))
    found += [one for one in logged if one not in found]
    errors: dict[str, int] = {}
    for card in facts.cards:
        found += _card(card, int(memory.get("uncorrected", {}).get(card.uuid, 0)))
        errors[card.uuid] = card.uncorrected
    if wanted["leftovers"]:
        found += _leftovers(facts, set(wanted["allowed_processes"]), set(job_gpus))
    sequence = max([last, *(one.sequence for one in facts.xids)])
    kept = {str(card.number): causes[card.number] for card in silent if card.number in causes}
    return found, {"sequence": sequence, "uncorrected": errors, "causes": kept}


def _logged(one: Xid, known: Mapping[str, int]) -> Finding:
    """What the log says, of the GPU with that number where its place is known."""
    where = known.get(one.bus)
    place = "" if where is not None else f" at {one.bus}"
    text = one.text if len(one.text) <= XID_LENGTH else one.text[: XID_LENGTH - 2] + " …"
    return Finding(where, f"Xid {one.code}{place}, {text}" if text else f"Xid {one.code}{place}")


def _card(card: Card, before: int) -> Iterator[Finding]:
    """What one GPU's own counters say. ``before`` is how many uncorrected errors have been told of."""
    if card.uncorrected > before:
        count = card.uncorrected - before
        yield Finding(card.number, f"{count} new uncorrected memory error{'s' if count > 1 else ''}")
    if card.remap_failed:
        yield Finding(card.number, "no spare memory row was left to remap: replace the GPU")
    elif card.remap_pending:
        yield Finding(card.number, "a memory row waits to be remapped: reset the GPU or reboot")
    for bit, text in _SLOWDOWNS.items():
        if card.clocks & bit:
            yield Finding(card.number, text)


def _leftovers(facts: Facts, allowed: set[str], job_gpus: set[int]) -> Iterator[Finding]:
    """Processes on the job's whole GPUs. Those of a divided one may be another job's, in another instance."""
    for card in facts.cards:
        if card.number in job_gpus and not card.divided:
            for process in card.processes:
                name = facts.names.get(process, "")
                if name not in allowed:
                    yield Finding(
                        card.number, f"process {process} ({name or 'gone or hidden'}) of no job uses it"
                    )


def told(findings: Iterable[Finding]) -> str:
    """Return findings as one reason, short enough for Slurm."""
    words = [text if number is None else f"nvidia{number}: {text}" for number, text in findings]
    reason = REASON + "; ".join(words)
    return reason if len(reason) <= REASON_LENGTH else reason[: REASON_LENGTH - 2] + " …"


def concerns(findings: Iterable[Finding], job_gpus: Iterable[int]) -> bool:
    """Say whether a job on these GPUs would meet what was found."""
    mine = set(job_gpus)
    return bool(mine) and any(number is None or number in mine for number, _ in findings)


def numbers(text: str) -> list[int]:
    """Return the GPUs of SLURM_JOB_GPUS: "0,2-3"; of an instance ("1:0", "MIG-…") the GPU, where it says it."""
    found: list[int] = []
    for word in text.split(","):
        match = re.match(r"^(\d+)(?:-(\d+))?", word.strip())
        if match:
            found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


class _Pci(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "device_id", "subsystem_id")),
        ("text", ctypes.c_char * 32),
    )


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class NvmlError(Exception):
    """NVML's answer in its own words; ``code`` is its number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Nvml:
    """The few calls of NVML that are wanted here."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        self.call("nvmlInit_v2")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises NvmlError."""
        code = getattr(self.library, name)(*arguments)
        if code != _SUCCESS:
            raise NvmlError(code, self.library.nvmlErrorString(code).decode())

    def number(self, name: str, *arguments: Any, kind: Any = ctypes.c_uint) -> int:
        """Return the one number that a function hands back, 0 where this GPU has no such thing. Raises NvmlError."""
        value = kind()
        try:
            self.call(name, *arguments, ctypes.byref(value))
        except NvmlError as error:
            if error.code != _NOT_SUPPORTED:
                raise
        return int(value.value)

    def cards(self) -> list[Card]:
        """What every GPU says; one that is lost has an error in the place of all else."""
        found = []
        for index in range(self.number("nvmlDeviceGetCount_v2")):
            card = Card(index)
            try:
                handle = ctypes.c_void_p()
                self.call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
                pci = _Pci()
                self.call("nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
                card = card._replace(bus=bus_of(pci.text.decode()))
                card = card._replace(number=self.number("nvmlDeviceGetMinorNumber", handle))
                card = self.card(handle, card)
            except NvmlError as error:
                lost = error.code == _GPU_IS_LOST
                card = card._replace(error="lost" if lost else f"no answer ({error})")
            found.append(card)
        return found

    def card(self, handle: ctypes.c_void_p, card: Card) -> Card:
        """What one GPU says. Raises NvmlError."""
        uuid = ctypes.create_string_buffer(96)
        self.call("nvmlDeviceGetUUID", handle, uuid, len(uuid))
        rows = [ctypes.c_uint() for _ in range(4)]
        with contextlib.suppress(NvmlError):
            self.call("nvmlDeviceGetRemappedRows", handle, *map(ctypes.byref, rows))
        mode, pending = ctypes.c_uint(), ctypes.c_uint()
        with contextlib.suppress(NvmlError):
            self.call("nvmlDeviceGetMigMode", handle, ctypes.byref(mode), ctypes.byref(pending))
        long = ctypes.c_ulonglong
        return card._replace(
            uuid=uuid.value.decode(),
            # Uncorrected ones (1) since the driver was loaded (0).
            uncorrected=self.number("nvmlDeviceGetTotalEccErrors", handle, 1, 0, kind=long),
            remap_pending=bool(rows[2].value),
            remap_failed=bool(rows[3].value),
            divided=bool(mode.value),
            clocks=self.number("nvmlDeviceGetCurrentClocksThrottleReasons", handle, kind=long),
            processes=tuple(self.processes(handle)),
        )

    def processes(self, handle: ctypes.c_void_p) -> list[int]:
        """Numbers of the processes that compute on a GPU. Raises NvmlError."""
        count = ctypes.c_uint(256)
        room = (_Process * count.value)()
        try:
            self.call("nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), room)
        except NvmlError as error:
            if error.code != _NOT_SUPPORTED:
                raise
            return []
        return [room[index].pid for index in range(count.value)]


def read_log(path: str) -> list[str]:
    """Return the kernel's log, a record each; none where there is no log to read."""
    try:
        stream = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    text = b""
    try:
        while True:
            try:
                part = os.read(stream, 65536)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Overwritten while it was read; the next read goes on with what is there.
                continue
            if not part:
                break
            text += part
    finally:
        os.close(stream)
    return text.decode(errors="replace").splitlines()


def _name(process: int) -> str:
    try:
        with open(f"/proc/{process}/comm", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError:
        return ""


def read_buses(folder: str) -> dict[str, int]:
    """Return what the kernel's module keeps of each GPU: PCI addresses to numbers of device files."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with open(os.path.join(folder, name, "information"), encoding="utf-8") as stream:
                minor = re.search(r"^Device Minor:\s*(\d+)", stream.read(), re.MULTILINE)
            if minor:
                found[bus_of(name)] = int(minor[1])
    return found


def look(wanted: Mapping[str, Any]) -> Facts:
    """Ask the driver and the kernel's log."""
    log = tuple(xids(read_log(str(wanted["kernel_log"]))))
    buses = read_buses(GPUS)
    try:
        cards = tuple(Nvml().cards())
    except OSError:
        return Facts("the driver's library libnvidia-ml.so.1 is not there", xids=log)
    except NvmlError as error:
        return Facts(f"the driver does not answer ({error})", xids=log)
    names = {process: _name(process) for card in cards for process in card.processes}
    return Facts("", cards, log, names, buses)


def within(seconds: float, function: Callable[[], Facts]) -> Facts:
    """Return what a function says in a process of its own, or that the driver hangs: its calls cannot be ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException), os.fdopen(writing, "w") as out:
            json.dump(function(), out)
        os._exit(0)
    os.close(writing)
    text = b""
    end = time.monotonic() + seconds
    with os.fdopen(reading, "rb", buffering=0) as answer:
        while True:
            ready, _, _ = select.select([answer], [], [], max(0.0, end - time.monotonic()))
            part = answer.read(65536) if ready else None
            if not part:
                break
            text += part
    with contextlib.suppress(OSError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0 if text else os.WNOHANG)
    try:
        error, cards, log, names, buses = json.loads(text)
    except ValueError:
        return Facts(f"the driver gave no answer within {seconds:g} s")
    return Facts(
        error,
        tuple(Card(*card[:-1], tuple(card[-1])) for card in cards),
        tuple(Xid(*one) for one in log),
        {int(process): name for process, name in names.items()},
        buses,
    )


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def recall(boot: str) -> dict[str, Any]:
    """Return what an earlier run of this boot has told of: counters begin anew with a boot."""
    memory = _read(MEMORY)
    return memory if memory.get("boot") == boot else {}


def remember(memory: Mapping[str, Any]) -> None:
    """Keep what has been told of, by a rename."""
    staged = f"{MEMORY}.new"
    with open(staged, "w", encoding="utf-8") as stream:
        json.dump(memory, stream)
    os.rename(staged, MEMORY)


def drain(node: str, reason: str) -> bool:
    """Drain a node of Slurm's, and say whether that was done."""
    words = ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"]
    environment = {**os.environ, "PATH": "/usr/bin:/usr/sbin:/bin:/sbin:/usr/local/bin"}
    try:
        return subprocess.run(words, env=environment, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def is_drained(node: str) -> bool:
    """Whether Slurm says that a node is drained for a reason of this program's."""
    words = ["scontrol", "--oneliner", "show", "node", node]
    environment = {**os.environ, "PATH": "/usr/bin:/usr/sbin:/bin:/sbin:/usr/local/bin"}
    try:
        said = subprocess.run(words, env=environment, timeout=30, check=False, capture_output=True, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(re.search(rf"\bState=\S*DRAIN.*\bReason={re.escape(REASON)}", said.stdout))


def main(arguments: list[str]) -> int:
    """Judge the node; see the top of this file for what else."""
    if len(arguments) != 1 or arguments[0] not in ("prolog", "epilog", "check"):
        print("usage: gpu_health.py prolog|epilog|check", file=sys.stderr)
        return 2
    moment = arguments[0]
    wanted = _read(CONFIG)
    if not wanted:
        print(f"{CONFIG} is not there; role gpu_health writes it", file=sys.stderr)
        return 5
    job_gpus = numbers(os.environ.get("SLURM_JOB_GPUS", ""))
    os.makedirs(os.path.dirname(MEMORY), exist_ok=True)
    # Several jobs may start at once; each error is told of by one of them.
    with open(f"{MEMORY}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(BOOT, encoding="ascii") as stream:
            boot = stream.read().strip()
        memory = recall(boot)
        end = time.monotonic() + LEAVE_SECONDS
        while True:
            facts = within(DRIVER_SECONDS, lambda: look(wanted))
            found, after = judge(facts, wanted, memory, job_gpus)
            busy = any("of no job uses it" in text for _, text in found)
            if not busy or time.monotonic() > end:
                break
            time.sleep(0.25)
        if moment == "check":
            for line in [told(found)] if found else [f"{len(facts.cards)} GPUs, nothing against them"]:
                print(line)
            return 1 if found else 0
        node = os.environ.get("SLURMD_NODENAME", "")
        before = [str(one) for one in memory.get("told", [])]
        lines = [told([one]) for one in found]
        if found and set(lines) <= set(before) and is_drained(node):
            # The reason that stands says this and more: what is told once is not in `found` any more.
            remember({**after, "boot": boot, "told": before})
        # What could not be told is told by the next job.
        elif not found or drain(node, told(found)):
            remember({**after, "boot": boot, "told": lines})
    if found:
        print(told(found), file=sys.stderr)
    return 1 if moment == "prolog" and concerns(found, job_gpus) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
