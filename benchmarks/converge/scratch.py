"""A rack for the benchmark alone: an inventory in a temporary directory, its nodes, and a way into them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from coldiron.rack.cgroup import unified_root
from coldiron.rack.connection import ssh_options

ROOT = Path(__file__).resolve().parents[2]
POLICY = ROOT / "inventories" / "virtual" / "group_vars" / "all"
NAME = "converge-bench"
HEAD = "head01"
CLUSTER = """\
plugin: coldiron.cluster.cluster
name: {name}
domain: bench.internal
networks:
  cluster: {{subnet: {net}.0/24, gateway: {net}.254}}
features: {{scheduler: slurm, home_backend: provided}}
defaults: {{platform: container, distribution: {distribution}}}
nodes:
  - {{name: {head}, kind: head, address: {net}.1}}
  - name: gpu[{first}-{last}]
    kind: gpu
    address: {net}.41
    hardware: {{sockets: 1, cores_per_socket: 2, memory_gib: 2, gpus: {{type: h100, count: 4}}}}
"""


class Failed(Exception):
    """A step of the benchmark went wrong; the message is for a person."""


def environment(inventory: Path) -> dict[str, str]:
    """What every command runs with: the venv first, Python's bytecode cached as on anyone's machine."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHONDONT"))}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "/usr/sbin:/usr/bin")])
    # A copy of the collection in somebody's home is not what is to be measured.
    kept["ANSIBLE_COLLECTIONS_PATH"] = sysconfig.get_path("purelib")
    kept["PYTHONPYCACHEPREFIX"] = str(inventory.parent / "bytecode")
    return kept


class Scratch:
    """The rack, as a context: whatever happens inside, nothing of it stays."""

    # What is told of the nodes, and the name and the kind of those beside the head.
    cluster, name, kind = CLUSTER, NAME, "gpu"

    def __init__(self, net: str, distribution: str, seconds: int) -> None:
        """``net``: the first three bytes of a /24; ``seconds``: the most that one command may take."""
        self.net, self.distribution, self.seconds = net, distribution, seconds
        self.directory = Path(tempfile.mkdtemp(prefix="coldiron-bench-"))
        self.inventory = self.directory / "inventory"
        self.workers: list[str] = []

    def __enter__(self) -> Scratch:
        variables = self.inventory / "group_vars" / "all"
        variables.mkdir(parents=True)
        for source in POLICY.glob("*.yml"):
            if source.name != "vault.yml":
                shutil.copy(source, variables)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def nodes(self) -> list[str]:
        """Names of the head and the workers."""
        return [HEAD, *self.workers]

    def coldiron(self, *words: str) -> None:
        """Run one coldiron verb on the scratch inventory."""
        command = [str(Path(sys.executable).with_name("coldiron")), *words, "-i", str(self.inventory)]
        done = subprocess.run(
            command, env=environment(self.inventory), capture_output=True, text=True, timeout=self.seconds
        )
        if done.returncode:
            raise Failed(f"coldiron {' '.join(words)}: {(done.stderr or done.stdout).strip()}")

    def up(self, workers: int) -> None:
        """Bring up the head and ``workers`` others, all fresh."""
        width = max(2, len(str(workers)))
        self.workers = [f"{self.kind}{number:0{width}}" for number in range(1, workers + 1)]
        text = self.cluster.format(
            name=self.name, net=self.net, distribution=self.distribution, head=HEAD,
            first=self.workers[0][3:], last=self.workers[-1][3:],
        )  # fmt: skip
        (self.inventory / "cluster.yml").write_text(text, encoding="utf-8")
        if not (self.inventory / "group_vars" / "all" / "vault.yml").exists():
            self.coldiron("secrets", "init")
        self.coldiron("rack", "up")

    def reset(self) -> None:
        """Give every node its bare system back."""
        self.coldiron("rack", "reset")

    def down(self) -> None:
        """Take the rack away, if it is there."""
        if (self.inventory / ".rack").exists():
            with contextlib.suppress(Failed):
                self.coldiron("rack", "down")

    def address(self, node: str) -> str:
        """A node's address, as cluster.yml counts them."""
        return f"{self.net}.{1 if node == HEAD else 40 + int(node[3:])}"

    def sockets(self) -> str:
        """Where Ansible's ssh keeps its control sockets."""
        state = json.loads((self.inventory / ".rack" / "state.json").read_text(encoding="utf-8"))
        return str(state["sockets"])

    def cpu(self) -> float:
        """Seconds of processor time that the nodes have used since they were made."""
        return sum(cpu_seconds(self.control_group(node)) for node in self.nodes)

    def control_group(self, node: str) -> Path:
        """The directory of a node's control group."""
        root = unified_root(Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
        return root / "coldiron" / self.name / node

    def disconnect(self) -> None:
        """Close every kept connection, so that each run pays for its own."""
        for socket in Path(self.sockets()).glob("*"):
            subprocess.run(
                ["ssh", "-F", "/dev/null", "-o", f"ControlPath={socket}", "-O", "exit", "node"],
                capture_output=True,
                timeout=self.seconds,
            )

    def ssh(self, node: str) -> list[str]:
        """The words of one plain ssh to a node: a connection of its own, a shell that reads its script."""
        options = ssh_options(self.inventory, self.sockets())
        key = str(self.inventory / ".rack" / "id_ed25519")
        alone = ["-o", "ControlPath=none", "-o", "LogLevel=ERROR"]
        return ["ssh", *alone, *options, "-i", key, f"root@{self.address(node)}"]

    def everywhere(
        self, scripts: dict[str, str], interpreter: Sequence[str] = ("sh", "-s")
    ) -> dict[str, str]:
        """Run each node's script, all at once, one ssh a node; return what each said."""

        def one(node: str) -> tuple[str, str, int, str]:
            done = subprocess.run(
                [*self.ssh(node), *interpreter],
                input=scripts[node], capture_output=True, text=True, timeout=self.seconds,
            )  # fmt: skip
            return node, done.stdout, done.returncode, done.stderr

        with ThreadPoolExecutor(len(scripts)) as pool:
            results = list(pool.map(one, scripts))
        for node, said, code, error in results:
            if code:
                raise Failed(f"{node}: the script failed ({code}): {(error + said).strip()[-2000:]}")
        return {node: said for node, said, _, _ in results}


def cpu_seconds(group: Path) -> float:
    """Seconds of processor time that a control group has used, with those in it that are gone."""
    return int((group / "cpu.stat").read_text(encoding="utf-8").split()[1]) / 1e6


@contextlib.contextmanager
def interrupts_raise() -> Iterator[None]:
    """Let a SIGTERM end the program as Ctrl-C does, so that the rack is taken away."""
    import signal

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
