"""ssh keys, made before the nodes are: host-key checking is strict from the very first connection."""

from __future__ import annotations

import os
from pathlib import Path

from coldiron.rack.host import Host
from coldiron.rack.layout import Layout
from coldiron.rack.state import RackState, write_atomically


def make_key(host: Host, path: Path, comment: str) -> None:
    """Make an ed25519 key pair unless it is there whole."""
    if path.exists() and path.with_suffix(".pub").exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    for leftover in (partial, partial.with_name(partial.name + ".pub")):
        leftover.unlink(missing_ok=True)
    host.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(partial)])
    # The public half first: the pair counts as whole once the private half has its name.
    os.replace(partial.with_name(partial.name + ".pub"), path.with_suffix(".pub"))
    os.replace(partial, path)


def known_hosts(layout: Layout, rack: RackState) -> str:
    """The lines by which ssh knows the rack's nodes, by address and by name."""
    lines = []
    for node in rack.nodes.values():
        names = [node.address, node.name, *([f"{node.name}.{rack.domain}"] if rack.domain else [])]
        key = " ".join((layout.host_keys / f"{node.name}.pub").read_text().split()[:2])
        lines.append(f"{','.join(names)} {key}\n")
    return "".join(lines)


def write_known_hosts(layout: Layout, rack: RackState) -> None:
    write_atomically(layout.known_hosts, known_hosts(layout, rack))
