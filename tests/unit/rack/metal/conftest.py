"""A cluster with machines, and a libvirt made of files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from coldiron.inventory import load
from coldiron.rack import requirements
from coldiron.rack.layout import Layout, Machine
from coldiron.rack.metal import bmc_redfish, keeper, libvirt
from coldiron.rack.metal.client import BmcClient
from coldiron.rack.metal.places import Places
from coldiron.rack.metal.spec import MachineSpec, machines

CLUSTER = """\
plugin: coldiron.cluster.cluster
name: toy
domain: toy.internal
networks:
  cluster: {subnet: 10.9.0.0/24, gateway: 10.9.0.254}
features: {scheduler: slurm, home_backend: provided, gpus: provided}
defaults: {platform: container, distribution: debian-13}
nodes:
  - {name: head01, kind: head, address: 10.9.0.1}
  - name: cpu01
    kind: cpu
    platform: machine
    address: 10.9.0.31
    mac: "02:09:00:00:00:31"
    serial: CHASSIS-1
    boot: {firmware: bios}
    bmc: {address: 10.9.0.131}
    hardware: {cores_per_socket: 1, memory_gib: 2}
    disks:
      - {use: system, serial: SYSTEM-1, size_gb: 4}
      - {use: data, serial: DATA-1}
  - name: cpu02
    kind: cpu
    platform: machine
    address: 10.9.0.32
    mac: "02:09:00:00:00:32"
    boot: {path: http}
    bmc: {address: 10.9.0.132, protocol: ipmi}
    hardware: {cores_per_socket: 1, memory_gib: 2}
"""


@pytest.fixture
def specs(tmp_path: Path) -> dict[str, MachineSpec]:
    """Two machines: BIOS with Redfish, UEFI with IPMI."""
    return described(tmp_path, CLUSTER)


def described(tmp_path: Path, text: str) -> dict[str, MachineSpec]:
    file = tmp_path / "described" / "cluster.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    return {spec.name: spec for spec in machines(load(file))}


@pytest.fixture
def describe(tmp_path: Path) -> Callable[[str], dict[str, MachineSpec]]:
    return lambda text: described(tmp_path, text)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    machine = Machine(lib=tmp_path / "lib", cache=tmp_path / "cache", run=tmp_path / "run")
    return Places(Layout("toy", tmp_path / "inventory", machine))


class ToyLibvirt:
    """What virsh would say: machines by name with their definitions, and which run."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run_others = run
        self.xml: dict[str, str] = {}
        self.on: set[str] = set()
        self.said: list[list[str]] = []

    def run(self, argv: Any, **options: Any) -> Any:
        words = list(argv)
        if words[0] == "nft":
            self.said.append([*words, options.get("stdin") or ""])
            return subprocess.CompletedProcess(words, 0, "", "")
        if words[0] == "ip" and "addr" in words and "show" in words:
            return subprocess.CompletedProcess(words, 0, "[]", "")
        if words[0] != "virsh":
            return self.run_others(argv, **options)
        verb, *rest = words[4:]
        self.said.append([verb, *rest])
        out = ""
        match verb:
            case "define":
                text = Path(rest[0]).read_text()
                self.xml[str(ET.fromstring(text).findtext("name"))] = text
            case "undefine":
                self.xml.pop(rest[0], None)
            case "destroy":
                self.on.discard(rest[0])
            case "dumpxml":
                out = self.xml[rest[-1]]
            case "list":
                out = "\n".join(self.xml if "--all" in rest else self.on)
        return subprocess.CompletedProcess(words, 0, out, "")


@pytest.fixture
def metal(toy: Any, monkeypatch: pytest.MonkeyPatch) -> ToyLibvirt:
    """The toy machine's libvirt; `toy` is described with two machines."""
    (toy.inventory / "cluster.yml").write_text(CLUSTER)
    made = ToyLibvirt(toy.host.run)
    monkeypatch.setattr(toy.host, "run", made.run)
    # This libvirt is made of files: the packages of a real one are not asked for.
    for name in ("MACHINES", "REDFISH", "IPMI"):
        monkeypatch.setattr(requirements, name, ())
    monkeypatch.setattr(keeper, "kvm_serves", lambda *_: False)
    monkeypatch.setattr(libvirt.Libvirt, "answers", lambda self: self.group.populated())
    monkeypatch.setattr(libvirt, "_FILES", {})
    monkeypatch.setattr(libvirt, "_MOUNTS", {"etc": str(toy.root / "host-etc")})
    monkeypatch.setattr(bmc_redfish, "make_environment", lambda host, cache: cache / "sushy")
    monkeypatch.setattr(BmcClient, "answers", lambda self: True)
    monkeypatch.setattr(BmcClient, "power", lambda self: self.spec.name in made.on)

    def set_power(self: BmcClient, verb: str) -> None:
        made.said.append(["bmc", verb, self.spec.name])
        (made.on.discard if verb == "off" else made.on.add)(self.spec.name)

    monkeypatch.setattr(BmcClient, "set_power", set_power)
    return made
