"""``down``: from whatever there is of a rack, half made or whole, to nothing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Sequence

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack import keys
from coldiron.rack.base import Bakery
from coldiron.rack.host import wait_until
from coldiron.rack.machine import refuse_not_root
from coldiron.rack.metal.places import nft_table, second_bridge
from coldiron.rack.rack import Rack
from coldiron.rack.snapshot import collect
from coldiron.rack.state import RackState

_LINKS_SECONDS = 10.0


def down(rack: Rack, only: Sequence[str] = ()) -> bool:
    """Take a rack, or its nodes ``only``, away. Returns False where there was nothing to take."""
    refuse_not_root()
    layout = rack.layout
    try:
        with rack.host.lock(layout.lock, rack.report.say):
            state = rack.state()
            registered = rack.keeper.registry().racks.get(layout.name) == str(layout.inventory)
            if state is None and not registered:
                return False
            if only:
                state = rack.standing()
                containers = [name for name in only if name not in state.machines]
                known = [node.name for node in rack.pick(state, containers)] if containers else []
                remove_nodes(rack, state, [*known, *(name for name in only if name in state.machines)])
                keys.write_known_hosts(layout, state)
                rack.hand_over()
                collect(rack.machine, rack.keeper.registry())
            else:
                rack.keeper.refuse_other_owner(layout)
                tear_down(rack, state)
            return True
    finally:
        rack.keeper.leave()


def remove_nodes(rack: Rack, state: RackState, names: Iterable[str]) -> None:
    """Take nodes away, each with its files and its keys."""
    keeper, machines = rack.nodes(state), rack.machines(state)
    for name in names:
        if name in state.machines:
            machines.remove(state.machines.pop(name))
            rack.save(state)
            continue
        keeper.clear(name)
        shutil.rmtree(rack.layout.node(name), ignore_errors=True)
        for key in (rack.layout.host_keys / name, rack.layout.host_keys / f"{name}.pub"):
            key.unlink(missing_ok=True)
        del state.nodes[name]
        rack.save(state)


def tear_down(rack: Rack, state: RackState | None) -> None:
    """Remove all that a rack can have left, found by name, so that a lost state file does not matter.

    The state goes last: a tear-down that is cut off is taken up again by the next.
    """
    layout = rack.layout
    rack.group().kill()
    rack.group().remove()
    close_connections(rack)
    keeper = rack.nodes(state or nameless(rack))
    for root in layout.data.glob("nodes/*/root"):
        keeper.remove_lock(root)
    keeper.unmount(layout.data)
    remove_network(rack, state)
    for directory in rack.machine.nspawn.glob(f"propagate/{layout.machine_name('*')}"):
        with contextlib.suppress(OSError):
            directory.rmdir()
    Bakery(rack.host, rack.machine).clear_unfinished(layout.name)
    if layout.data.exists():
        shutil.rmtree(layout.data)
    for work in rack.machine.kept.glob(f".*.{layout.name}"):
        shutil.rmtree(work, ignore_errors=True)
    registry = rack.keeper.registry()
    registry.racks.pop(layout.name, None)
    collect(rack.machine, registry)
    rack.keeper.unregister(layout.name)
    for path in sorted(layout.own.glob("*"), key=lambda path: path == layout.state):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for leftover in layout.own.glob(".*"):
        leftover.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        layout.own.rmdir()


def nameless(rack: Rack) -> RackState:
    """A stand-in for a lost state: all that tear-down needs goes by name."""
    layout = rack.layout
    return RackState(
        name=layout.name, inventory=str(layout.inventory), domain="", subnet="0.0.0.0/0", gateway="", mtu=0,
        bridge=layout.bridge, home_backend="", sockets=str(layout.sockets), apt_proxy="", apt_mirror="",
    )  # fmt: skip


def close_connections(rack: Rack) -> None:
    """End the ssh connections that are shared through the rack's control sockets."""
    for control in rack.layout.sockets.glob("*"):
        command = ["ssh", "-O", "exit", "-o", f"ControlPath={control}", "rack"]
        rack.host.run(command, check=False, timeout_seconds=10)
    shutil.rmtree(rack.layout.sockets, ignore_errors=True)


def remove_network(rack: Rack, state: RackState | None) -> None:
    """Remove the bridge, the cables in it and the nodes' namespaces. Raises ColdironError if one stays."""
    layout = rack.layout
    links = rack.network.links()
    bridges = {layout.bridge, second_bridge(layout)} & set(links)
    cables = {name for name, link in links.items() if link.get("master") in bridges}
    cables |= {layout.veth(node) for node in (state.nodes if state else ())} & set(links)
    spaces = sorted(path.name for path in rack.machine.netns.glob(f"{layout.netns_prefix}*"))
    commands = [
        *(f"link delete dev {name}" for name in sorted(cables)),
        *(f"netns delete {name}" for name in spaces),
        *(f"link delete dev {name}" for name in bridges),
    ]
    if second_bridge(layout) in bridges:
        # What lets no DHCP answer through to a machine, if that was asked for.
        rack.host.run(["nft", "delete", "table", "bridge", nft_table(layout.bridge)], check=False)
    if not commands:
        return
    # A cable may go by itself when its namespace does: the batch goes on, and what counts is looked at after.
    batch = "".join(f"{command}\n" for command in commands)
    rack.host.run(["ip", "-force", "-batch", "-"], stdin=batch, check=False)
    if not wait_until(lambda: not (cables | bridges) & set(rack.network.links()), _LINKS_SECONDS):
        left = ", ".join(sorted((cables | bridges) & set(rack.network.links())))
        raise ColdironError(f"interfaces do not go away: {left}; `ip link` shows them", ExitCode.ENVIRONMENT)
