"""From a node's variables to its order and its identity: what Ansible knows, in the words that a machine takes.

Pure but for ``public_key`` and ``KnownHosts``, which read and write a file of the controller's.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown, shown_path
from coldiron.provision import mirror
from coldiron.provision.order import File, Identity, ImageWanted, Order
from coldiron.provision.whole import replace_file

_SSH_KEYGEN_SECONDS = 20


@dataclass(frozen=True)
class Node:
    """What the inventory says of a machine, as far as a deployment asks. ``disks`` are rules as in coldiron_disks."""

    name: str
    domain: str
    address: str
    subnet: str
    mac: str
    firmware: str
    disks: Sequence[Mapping[str, Any]]
    gateway: str = ""
    serial: str = ""
    name_servers: Sequence[str] = ()

    @property
    def fqdn(self) -> str:
        """The name with the cluster's domain."""
        return f"{self.name}.{self.domain}"


@dataclass(frozen=True)
class Wishes:
    """What a site says of its deployments. ``sizes`` are in bytes, as `layout.Sizes` has them."""

    consent: Sequence[str] = ()
    sizes: Mapping[str, Any] = field(default_factory=dict)
    kernel_arguments: Sequence[str] = ()
    boot: str = "disk"
    authorized_keys: Sequence[str] = ()
    network: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)


def make_order(node: Node, wishes: Wishes, image: ImageWanted) -> Order:
    """The order for ``node``. Raises ColdironError where the inventory says too little for one."""
    if not node.mac:
        raise ColdironError(
            f"{node.name} has no `mac` in cluster.yml: DHCP would not know it; write the MAC of its boot NIC"
        )
    if not any(rule.get("use", "system") == "system" for rule in node.disks):
        raise ColdironError(
            f"{node.name} has no disk for its system in cluster.yml; write e.g. "
            "`disks: [{use: system, serial: S6X1NE0T}]`; what is not named is never written"
        )
    return Order(
        node=node.name,
        fqdn=node.fqdn,
        mac=node.mac.lower(),
        firmware=node.firmware,
        serial=node.serial,
        disks=tuple(rule for given in node.disks for rule in single_rules(given)),
        consent=tuple(wishes.consent),
        sizes=dict(wishes.sizes),
        image=image,
        kernel_arguments=tuple(wishes.kernel_arguments),
        boot=wishes.boot,
    )


def make_identity(node: Node, wishes: Wishes, host_keys: Mapping[str, str]) -> Identity:
    """Who ``node`` will be. Raises ColdironError where nobody could log in."""
    if not wishes.authorized_keys:
        raise ColdironError(
            f"nobody could log in to {node.name}: no public key is known; write deploy_authorized_keys to the "
            "inventory's group_vars, or give ansible_ssh_private_key_file"
        )
    return Identity(
        hostname=node.name,
        host_keys=dict(host_keys),
        authorized_keys=tuple(wishes.authorized_keys),
        network=dict(wishes.network) or network_files(node),
        files={
            path: File(text=given["text"], mode=given.get("mode", "0644"))
            for path, given in {**_tools(node), **wishes.files}.items()
        },
        hosts=hosts_file(node, wishes.hosts),
    )


def _tools(node: Node) -> dict[str, dict[str, str]]:
    """What the machine gets of ours: a mirrored system disk has to be looked at, and mended one day."""
    rules = [rule for rule in node.disks if rule.get("use", "system") == "system"]
    halves = sum(max(int(rule.get("count") or 1), len(_listed(rule.get("serial")))) for rule in rules)
    if halves < 2:
        return {}
    return {mirror.PLACE: {"text": Path(mirror.__file__).read_text(encoding="utf-8"), "mode": "0755"}}


def single_rules(rule: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A rule of the inventory as one rule a named disk, or itself where it describes disks."""
    plain = {key: value for key, value in rule.items() if value is not None}
    plain.setdefault("use", "system")
    serials, wwns = (_listed(plain.pop(key, None)) for key in ("serial", "wwn"))
    number = max(len(serials), len(wwns))
    if not number:
        yield plain
        return
    plain.pop("count", None)
    for place in range(number):
        names = {"serial": serials[place : place + 1], "wwn": wwns[place : place + 1]}
        yield plain | {key: found[0] for key, found in names.items() if found}


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else [str(item) for item in value]


def consent_of(node: Node, consent: Sequence[str], others: Sequence[Node]) -> list[str]:
    """The serials of ``consent`` that concern ``node``: its own, and those that no node of ``others`` names.

    A serial that is nobody's by name can only be that of a disk that a rule describes.
    """
    own = _named(node)
    foreign = {serial for other in others if other.name != node.name for serial in _named(other)}
    describes = any(rule.get("serial") is None for rule in node.disks)
    return [serial for serial in consent if serial in own or (describes and serial not in foreign)]


def _named(node: Node) -> set[str]:
    return {serial for rule in node.disks for serial in _listed(rule.get("serial"))}


def network_files(node: Node) -> dict[str, str]:
    """systemd-networkd's file for the boot NIC alone: enough for ssh; role network says the rest."""
    address = IPv4Interface(f"{node.address}/{IPv4Network(node.subnet).prefixlen}")
    lines = ["[Match]", f"MACAddress={node.mac.lower()}", "", "[Network]", f"Address={address}"]
    lines += [f"Gateway={node.gateway}"] if node.gateway else []
    lines += [f"DNS={server}" for server in node.name_servers]
    lines += ["LinkLocalAddressing=no", "IPv6AcceptRA=no"]
    return {"/etc/systemd/network/10-coldiron.network": "\n".join(lines) + "\n"}


def hosts_file(node: Node, others: Mapping[str, str]) -> str:
    """/etc/hosts with the node itself and ``others`` (name to address), until role dns says more."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines.append(f"{node.address} {node.fqdn} {node.name}")
    for name, address in others.items():
        if name != node.name:
            lines.append(f"{address} {name}.{node.domain} {name}")
    return "\n".join(lines) + "\n"


def public_key(private: Path) -> str:
    """The public half of the ssh key in ``private``: the file beside it, or what ssh-keygen makes of it."""
    beside = private.with_name(private.name + ".pub")
    try:
        if beside.is_file():
            return beside.read_text(encoding="utf-8").strip()
        done = subprocess.run(
            ["ssh-keygen", "-y", "-P", "", "-f", str(private)],
            capture_output=True,
            text=True,
            timeout=_SSH_KEYGEN_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _no_public_key(private, str(error)) from None
    if done.returncode:
        raise _no_public_key(private, " ".join(done.stderr.split()))
    return done.stdout.strip()


def _no_public_key(private: Path, why: str) -> ColdironError:
    return ColdironError(
        f"{shown_path(private)}: its public half cannot be told ({shown(why)}); write deploy_authorized_keys, or put "
        f"{private.name}.pub beside it",
        ExitCode.ENVIRONMENT,
    )


class KnownHosts:
    """The file of machines' host keys beside an inventory: a line a node, written before the node first answers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def learn(self, names: Sequence[str], key: str) -> bool:
        """Let ``names`` (name, full name, address) have the public ``key`` and no other; whether that was news."""
        kind, text = key.split()[:2]
        line = f"{','.join(names)} {kind} {text}"
        with self._locked():
            before = self._lines()
            # A name or address that somebody else had before is taken from that line's node.
            kept = [old for old in before if not set(old.split()[0].split(",")) & set(names)]
            if line in before and len(kept) == len(before) - 1:
                return False
            self._write([*kept, line])
        return True

    def _lines(self) -> list[str]:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [line for line in lines if line.strip() and not line.startswith("#")]

    def _write(self, lines: Sequence[str]) -> None:
        text = "# Host keys of the machines that were installed from here; written by coldiron.\n"
        text += "".join(f"{line}\n" for line in sorted(lines))
        replace_file(self.path, text, 0o644)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Sixteen nodes at a time are sixteen processes, each with a line of its own."""
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
