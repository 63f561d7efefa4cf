"""``snapshot`` and ``reset``: nodes as they were."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from coldiron.errors import ColdironError
from coldiron.rack.layers import copy, freeze, save_engines
from coldiron.rack.machine import refuse_not_root
from coldiron.rack.rack import Rack
from coldiron.rack.snapshot import NodeImage, Snapshot, collect, find, new_layer, publish, refuse_taken
from coldiron.rack.state import RackState


def take(
    rack: Rack, name: str, only: Sequence[str] = (), *, keep: bool = False, replace: bool = False
) -> Snapshot:
    """Freeze nodes as they are. They are shut down, so that what they hold is on the disk, and booted again.

    ``keep``: the snapshot outlives the rack. Raises ColdironError for a name that is taken.
    """
    refuse_not_root()
    layout, machine = rack.layout, rack.machine
    with rack.host.lock(layout.lock, rack.report.say):
        state = rack.standing()
        nodes = rack.pick(state, only)
        if state.machines and not only:
            rack.report.say(f"machines are not part of a snapshot: {', '.join(state.machines)}")
        refuse_taken(layout, name, keep=keep, replace=replace)
        keeper = rack.nodes(state)
        store = machine.kept if keep else layout.snapshots
        # The rack's name in it lets `down` find what a killed snapshot left.
        work, final = store / f".{name}.{state.name}", store / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        rack.report.say(f"stopping {len(nodes)} nodes for snapshot {name}")
        for node in nodes:
            node.stopping = True
        rack.save(state)
        rack.each(lambda node: keeper.stop(node.name), nodes)
        try:
            for node in nodes:
                node.layers.insert(0, str(new_layer(machine, state.name, node.name)))
                node.snapshot = str(final)
            rack.save(state)
            for node in nodes:
                own = layout.node(node.name)
                freeze(rack.host, own / "upper", Path(node.layers[0]))
                save_engines(rack.host, own, work / "engines" / node.name)
            home = state.home_backend == "provided" and len(nodes) == len(state.nodes)
            if home:
                copy(rack.host, layout.home, work / "home")
            images = {node.name: NodeImage(node.distribution, node.base, list(node.layers)) for node in nodes}
            taken = Snapshot(name, state.name, int(time.time()), images, home, path=final)
            taken.save(work)
            publish(work, final)
        finally:
            rack.start(state, nodes)
            shutil.rmtree(work, ignore_errors=True)
        collect(machine, rack.keeper.registry())
        return taken


def forget(rack: Rack, name: str) -> None:
    """Remove a snapshot; nodes that stand on its layers keep them."""
    refuse_not_root()
    with rack.host.lock(rack.layout.lock, rack.report.say):
        shutil.rmtree(find(rack.layout, name).path)
        collect(rack.machine, rack.keeper.registry())


def reset(rack: Rack, only: Sequence[str] = (), to: str = "") -> RackState:
    """Throw away what nodes have written since snapshot ``to``, or since they were made.

    Machines are as delivered then: powered off, with empty disks. Snapshots are of containers only.
    The shared home goes back with the whole rack only. Raises ColdironError where the snapshot lacks a node.
    """
    refuse_not_root()
    with rack.host.lock(rack.layout.lock, rack.report.say):
        state = rack.standing()
        machines = [] if to else [name for name in only or state.machines if name in state.machines]
        named = [name for name in only if name not in machines]
        nodes = rack.pick(state, named) if named or not only else []
        image = find(rack.layout, to) if to else None
        for node in nodes:
            if image and not (node.name in image.nodes and image.whole(node.name)):
                has = ", ".join(image.nodes)
                raise ColdironError(f"snapshot {to} has no {node.name}; name the nodes that it has: {has}")
        for node in nodes:
            node.renew = True
            node.base = image.nodes[node.name].base if image else node.base
            node.layers = list(image.nodes[node.name].layers) if image else []
            node.snapshot = str(image.path) if image else None
        if state.home_backend == "provided":
            if len(nodes) < len(state.nodes):
                rack.report.say("/home is shared with nodes that are not reset: left as it is")
            elif image is None or image.home:
                state.home_from = str(image.home_copy) if image else ""
        # From here on a reset that is cut off is finished by `up`.
        rack.save(state)
        for name in machines:
            rack.machines(state).renew(state.machines[name])
        keeper = rack.nodes(state)
        if state.home_from is not None:
            rack.each(lambda node: keeper.clear(node.name), nodes)
            rack.settle_home(state)
        rack.start(state, nodes)
    return state
