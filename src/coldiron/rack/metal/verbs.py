"""What the command line asks of machines: their power through the BMC, their console, their faults."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from coldiron.errors import ColdironError
from coldiron.rack.machine import refuse_not_root
from coldiron.rack.metal.client import REDFISH_RESET
from coldiron.rack.metal.faults import FAULTS, Breaker, find
from coldiron.rack.metal.spec import MachineSpec
from coldiron.rack.rack import Rack

_LOOK_SECONDS = 0.3
_CHUNK = 1 << 16


def one_machine(rack: Rack, name: str) -> MachineSpec:
    """The machine called ``name`` of a rack that is up. Raises ColdironError for a container, or nothing."""
    state = rack.standing()
    if name in state.nodes:
        raise ColdironError(f"{name} is a container: only machines have a BMC, a console and faults")
    return rack.pick_machines(state, [name])[0]


def power(rack: Rack, names: Sequence[str], verb: str = "") -> dict[str, bool]:
    """Switch machines ``on``, ``off`` or ``cycle`` through their BMCs; returns which are on after it."""
    if verb and verb not in REDFISH_RESET:
        raise ColdironError(f"`{verb}` is nothing that can be done with power; write on, off or cycle")
    state = rack.standing()
    found = {}
    for name in names:
        client = rack.machines(state).client(one_machine(rack, name))
        if verb == "cycle" and not client.power():
            client.set_power("on")
        elif verb:
            client.set_power(verb)
        found[name] = client.power()
    return found


def tail(path: Path, lines: int) -> str:
    """The last lines of a console; all of it where ``lines`` is 0."""
    try:
        text = path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return ""
    kept = text.splitlines(keepends=True)
    return "".join(kept[-lines:] if lines else kept)


def follow(path: Path, go_on: Callable[[], bool] = lambda: True) -> Iterator[str]:
    """What a console says from now on, as it says it; forever, unless ``go_on`` says no."""
    with path.open("rb") as file:
        file.seek(0, 2)
        while go_on():
            if chunk := file.read(_CHUNK):
                yield chunk.decode(errors="replace")
            else:
                time.sleep(_LOOK_SECONDS)


def fault(rack: Rack, name: str, which: str, disk: str, *, clear: bool) -> list[str]:
    """Break or mend something of a machine; returns a line for each thing that was done."""
    refuse_not_root()
    with rack.host.lock(rack.layout.lock, rack.report.say):
        state = rack.standing()
        spec = rack.pick_machines(state, [name])[0] if name in state.machines else one_machine(rack, name)
        breaker = Breaker(rack.machines(state))
        kind = find(which) if which else None
        try:
            if clear:
                gone = breaker.clear(spec, kind, disk)
                return [f"{name}: {one} cleared" for one in gone] or [f"{name}: nothing to clear"]
            assert kind is not None
            breaker.set(spec, kind, disk)
            return [f"{name}: {kind.name}: {kind.text}"]
        finally:
            rack.save(state)


def catalogue(spec: MachineSpec) -> list[str]:
    """A line for each fault that there is, and whether the machine has it."""
    width = max(len(name) for name in FAULTS)
    present = {name.partition(":")[0] for name in spec.faults}
    return [f"{'*' if name in present else ' '} {name:<{width}}  {one.text}" for name, one in FAULTS.items()]
