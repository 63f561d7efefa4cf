"""What can be broken of a container on purpose. Its clock cannot: that is its host's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from coldiron.errors import ColdironError
from coldiron.rack.machine import refuse_not_root
from coldiron.rack.rack import Rack
from coldiron.rack.state import NodeState, RackState

#: Where the full file system of `disk-full` is, in the node.
FULL = "/srv/full"
_IMAGE = "/var/lib/coldiron-fault.img"
_MIB = 256
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,200}")

# A file system of its own: the container's is its host's, and that is not to be filled. The container has no loop
# devices; theirs are made for the moment of mounting, and the kernel frees the device once nobody has it mounted.
_FILL = f"""
if mountpoint -q {FULL}; then exit 0; fi
image={_IMAGE}
mkdir -p {FULL}
made=
trap 'rm -f $made' EXIT
[ -e /dev/loop-control ] || {{ mknod /dev/loop-control c 10 237; made=/dev/loop-control; }}
# It says "(lost)" after the name where there is no such device yet.
loop=$(losetup --find)
loop=${{loop%% *}}
[ -b "$loop" ] || {{ mknod "$loop" b 7 "${{loop#/dev/loop}}"; made="$made $loop"; }}
mount -o "loop=$loop" "$image" {FULL}
dd if=/dev/zero of={FULL}/full bs=1M status=none || :
"""
_EMPTY = f"""
if mountpoint -q {FULL}; then umount {FULL}; fi
rm -f {_IMAGE}
rmdir {FULL} 2>/dev/null || :
"""


@dataclass(frozen=True)
class Fault:
    """One kind of fault: shell scripts that break and mend it in the node; ``$1`` is the unit where one is named."""

    name: str
    text: str
    breaks: str
    mends: str
    of_unit: bool = False


POWER_CUT = Fault("power-cut", "all its processes are killed this moment; --clear starts it again", "", "")
FAULTS = {
    fault.name: fault
    for fault in (
        POWER_CUT,
        Fault("disk-full", f"a file system of it, {FULL}, has no room left", _FILL, _EMPTY),
        Fault(
            "stopped",
            "a unit of it is stopped",
            'systemctl stop -- "$1"',
            'systemctl reset-failed -- "$1" 2>/dev/null || :; systemctl start -- "$1"',
            of_unit=True,
        ),
        Fault(
            "hung",
            "a unit of it neither works nor ends",
            'systemctl is-active --quiet -- "$1" && systemctl kill --kill-whom=all --signal=SIGSTOP -- "$1"',
            'systemctl kill --kill-whom=all --signal=SIGCONT -- "$1"',
            of_unit=True,
        ),
        Fault(
            "drained",
            "Slurm gives it no more jobs",
            'scontrol update nodename="$(hostname -s)" state=drain reason="rack fault"',
            # It refuses to resume who is not drained.
            'scontrol show node "$(hostname -s)" | grep -q "State=.*DRAIN" || exit 0; '
            'scontrol update nodename="$(hostname -s)" state=resume',
        ),
    )
}


def find(words: Sequence[str]) -> tuple[Fault, str]:
    """The fault and the unit that ``words`` name. Raises ColdironError, saying what to write."""
    name, *units = words
    if name not in FAULTS:
        more = (
            "; its clock is its host's, so that only a machine has clock-off" if name == "clock-off" else ""
        )
        raise ColdironError(f"a container has no fault {name}; there are: {', '.join(FAULTS)}{more}")
    fault = FAULTS[name]
    if fault.of_unit and (len(units) != 1 or not _UNIT.fullmatch(units[0])):
        raise ColdironError(f"write the unit, e.g.: coldiron rack fault gpu01 {name} slurmd")
    if units and not fault.of_unit:
        raise ColdironError(f"{' '.join(words)}: {name} is of no unit; write {name} alone")
    return fault, units[0] if units else ""


def catalogue() -> list[str]:
    """A line for each fault that there is."""
    told = [(f"{name} UNIT" if fault.of_unit else name, fault.text) for name, fault in FAULTS.items()]
    width = max(len(name) for name, _ in told)
    return [f"{name:<{width}}  {text}" for name, text in told]


def fault(rack: Rack, name: str, words: Sequence[str], *, clear: bool) -> list[str]:
    """Break or mend something of the container ``name``; returns a line that says what was done.

    Raises ColdironError for a fault that there is not, and where the node does not do it.
    """
    if not words:
        if clear:
            raise ColdironError(f"write which fault of {name} to clear: {', '.join(FAULTS)}")
        return catalogue()
    wanted, unit = find(words)
    refuse_not_root()
    with rack.host.lock(rack.layout.lock, rack.report.say):
        state = rack.standing()
        node = rack.pick(state, [name])[0]
        if wanted is POWER_CUT:
            _power(rack, state, node, on=clear)
        else:
            _inside(rack, state, name, wanted.mends if clear else wanted.breaks, unit, wanted.name)
    of = f"{wanted.name} {unit}".strip()
    return [f"{name}: {of} cleared" if clear else f"{name}: {of}: {wanted.text}"]


def _power(rack: Rack, state: RackState, node: NodeState, *, on: bool) -> None:
    keeper = rack.nodes(state)
    if on and not keeper.running(node.name):
        rack.start(state, [node])
    elif not on:
        keeper.clear(node.name)


def _inside(rack: Rack, state: RackState, name: str, script: str, unit: str, what: str) -> None:
    init = rack.nodes(state).init_pid(name)
    if init is None:
        raise ColdironError(f"{name} is off; `coldiron rack fault {name} power-cut --clear` starts it")
    if script is _FILL and not (image := rack.layout.machine.proc / f"{init}/root{_IMAGE}").exists():
        # A container has no program that makes file systems.
        rack.host.run(["truncate", f"--size={_MIB}M", str(image)], what=f"{name}: {what}")
        rack.host.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], what=f"{name}: {what}")
    # Not by ssh: what is broken may be just that.
    rack.host.run(
        ["nsenter", f"--target={init}", "--mount", "--pid", "--net", "--ipc", "--uts", "--",
         "sh", "-euc", script, "sh", unit],
        what=f"{name}: {what}",
    )  # fmt: skip
