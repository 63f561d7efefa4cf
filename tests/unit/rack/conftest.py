"""A machine made of files: the rack's whole road can be walked without root, and every step looked at."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from coldiron.rack import build, cache, cgroup, machine, node
from coldiron.rack import rack as rack_module
from coldiron.rack.host import Host
from coldiron.rack.layout import Layout, Machine
from coldiron.rack.rack import Rack
from coldiron.rack.report import Report

CLUSTER = """\
plugin: coldiron.cluster.cluster
name: {name}
domain: toy.internal
networks:
  cluster: {{subnet: {subnet}, gateway: {gateway}}}
features: {{scheduler: slurm, home_backend: {home}, gpus: provided}}
defaults: {{platform: container, distribution: debian-13}}
nodes:
  - {{name: head01, kind: head, address: 10.9.0.1}}
  - name: gpu[01-{gpus:02}]
    kind: gpu
    address: 10.9.0.41
    hardware: {{cores_per_socket: 2, memory_gib: 2, gpus: {{type: h100, count: 2}}}}
"""


@dataclass
class Process:
    """A spawned process that has ended, or runs in its control group."""

    code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float) -> int:
        return self.code or 0


class ToyHost(Host):
    """Takes the rack's commands and keeps what they would have made: interfaces, name spaces, mounts, processes."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.calls: list[list[str]] = []
        self.links: dict[str, dict[str, Any]] = {"lo": {}, "eth0": {"mtu": 1400}}
        self.routes: list[dict[str, Any]] = [
            {"dst": "default", "dev": "eth0"},
            {"dst": "192.0.2.0/24", "dev": "eth0"},
        ]
        # Nodes are started and stopped by several threads.
        self.mounting = threading.Lock()
        self.mounts: list[str] = [f"30 1 0:9 / {root / 'cgroup'} rw - cgroup2 cgroup2 rw"]
        self.alive: set[Path] = set()
        self.installed = True
        self.bake_code = 0
        self.bake_log = ""
        self.before: Callable[[list[str]], None] = lambda _: None
        self.write_mounts()

    def write_mounts(self) -> None:
        path = self.root / "proc/self/mountinfo"
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name("mountinfo.new")
        partial.write_text("".join(f"{line}\n" for line in self.mounts))
        partial.replace(path)

    def which(self, command: str) -> str | None:
        return f"/usr/bin/{command}" if self.installed else None

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: str | None = None,
        check: bool = True,
        what: str = "",
        timeout_seconds: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        words = list(argv)
        self.calls.append(words)
        self.before(words)
        out = ""
        if words[0] == "ip" and "-json" in words:
            out = json.dumps(self.routes if "route" in words else self.link_list())
        elif words[0] == "ip" and "-batch" in words and "-n" not in words:
            for line in (stdin or "").splitlines():
                self.ip(line.split())
        elif words[0] == "ip" and "-batch" not in words:
            self.ip(words[1:])
        elif words[0] in ("mount", "umount"):
            with self.mounting:
                if words[0] == "mount":
                    self.mounts.append(f"40 1 0:9 / {words[-1]} rw - overlay coldiron rw")
                else:
                    self.mounts = [line for line in self.mounts if line.split()[4] != words[-1]]
                self.write_mounts()
        elif words[0] == "ssh-keygen":
            path = words[words.index("-f") + 1]
            Path(path).write_text("PRIVATE\n")
            Path(f"{path}.pub").write_text(
                f"ssh-ed25519 AAAA{len(self.calls)} {words[words.index('-C') + 1]}\n"
            )
        elif words[0] == "dpkg":
            out = "amd64\n"
        elif words[0] == "cp":
            shutil.copytree(words[-2], words[-1], dirs_exist_ok=True)
        return subprocess.CompletedProcess(words, 0, out, "")

    def link_list(self) -> list[dict[str, Any]]:
        return [{"ifname": name, **link} for name, link in self.links.items()]

    def ip(self, words: list[str]) -> None:
        netns = self.root / "run/netns"
        match words:
            case ["netns", "add", name]:
                netns.mkdir(parents=True, exist_ok=True)
                (netns / name).touch()
            case ["netns", "delete", name]:
                (netns / name).unlink(missing_ok=True)
            case ["link", "add", "name", name, *rest]:
                assert name not in self.links, "File exists"
                self.links[name] = {"master": rest[rest.index("master") + 1]} if "master" in rest else {}
            case ["link", "delete", "dev", name]:
                self.links.pop(name, None)

    def spawn(
        self, argv: Sequence[str], *, cgroup: Path, log: Path, env: Mapping[str, str] | None = None
    ) -> Any:
        words = list(argv)
        self.calls.append(words)
        self.before(words)
        if "mmdebstrap" in words:
            (Path(words[-2]) / "usr").mkdir(parents=True)
            log.write_text(self.bake_log)
            return Process(self.bake_code)
        if words[0] == "rm":
            for path in words[words.index("--") + 1 :]:
                shutil.rmtree(path)
            return Process(0)
        self.alive.add(cgroup)
        return Process()

    def ran(self, *words: str) -> list[list[str]]:
        """The commands that hold all of ``words``."""
        return [call for call in self.calls if all(any(word in part for part in call) for word in words)]


@dataclass
class Toy:
    """A toy machine with one inventory."""

    root: Path
    host: ToyHost
    machine: Machine
    inventory: Path
    said: StringIO = field(default_factory=StringIO)

    def describe(
        self,
        *,
        name: str = "toy",
        gpus: int = 1,
        subnet: str = "10.9.0.0/24",
        gateway: str = "10.9.0.254",
        home: str = "provided",
    ) -> Path:
        text = CLUSTER.format(name=name, gpus=gpus, subnet=subnet, gateway=gateway, home=home)
        (self.inventory / "cluster.yml").write_text(text)
        return self.inventory

    def rack(self, name: str = "toy", inventory: Path | None = None) -> Rack:
        layout = Layout(name, inventory or self.inventory, self.machine)
        return Rack(layout, self.host, Report(Console(file=self.said, width=200)))


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    root = tmp_path / "machine"
    (root / "cgroup").mkdir(parents=True)
    (root / "etc/apt/sources.list.d").mkdir(parents=True)
    (root / "etc/apt/sources.list").write_text(
        "deb http://mirror.example/debian bookworm main\n"
        "deb http://mirror.example/debian-security bookworm-security main\n"
    )
    for name, value in {"fs/inotify/max_user_instances": "128", "fs/file-max": "1000"}.items():
        path = root / "proc/sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value)
    host = ToyHost(root)
    places = Machine(
        lib=root / "lib",
        cache=root / "cache",
        run=root / "run/coldiron",
        netns=root / "run/netns",
        proc=root / "proc",
        nspawn=root / "run/nspawn",
    )
    inventory = tmp_path / "inventory"
    inventory.mkdir()
    toy = Toy(root, host, places, inventory)
    toy.describe()

    def populated(self: cgroup.Cgroup) -> bool:
        return any(path == self.path or self.path in path.parents for path in host.alive)

    def kill(self: cgroup.Cgroup, seconds: float = 20.0) -> None:
        host.alive = {path for path in host.alive if path != self.path and self.path not in path.parents}

    monkeypatch.setattr(cgroup.Cgroup, "populated", populated)
    monkeypatch.setattr(cgroup.Cgroup, "kill", kill)
    monkeypatch.setattr(cgroup.Cgroup, "remove", lambda self: shutil.rmtree(self.path, ignore_errors=True))
    monkeypatch.setattr(cache, "listening", lambda address, port: True)
    monkeypatch.setattr(cache.shutil, "chown", lambda *words: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda *words, **options: None)
    monkeypatch.setattr(os, "mknod", lambda path, mode, device: Path(path).touch())
    monkeypatch.setattr(build, "APT", root / "etc/apt")
    monkeypatch.setattr(machine, "free_port", lambda preferred: preferred)

    def answered(addresses: Mapping[str, str], alive: Any, on_ready: Any, *rest: Any) -> dict[str, str]:
        for name in addresses:
            on_ready(name)
        return {}

    monkeypatch.setattr(rack_module, "wait_for_ssh", answered)
    monkeypatch.setattr(node, "wait_until", lambda condition, *rest: condition())
    return toy
