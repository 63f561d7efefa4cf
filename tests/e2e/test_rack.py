"""The virtual rack as a person uses it. Root, and a minute or two; base images are baked if they are not there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coldiron.errors import ColdironError
from coldiron.rack.base import newest
from coldiron.rack.cgroup import Cgroup, unified_root
from coldiron.rack.cli import app
from coldiron.rack.connection import connection_vars
from coldiron.rack.layout import Layout, Machine
from coldiron.rack.remote import ssh_command
from coldiron.rack.state import RackState

pytestmark = pytest.mark.rack

COLDIRON = [sys.executable, "-c", "from coldiron.cli import main; main()"]
CLUSTER = """\
plugin: coldiron.cluster.cluster
name: {name}
domain: {name}.internal
networks:
  cluster: {{subnet: 10.77.{net}.0/24, gateway: 10.77.{net}.254}}
features: {{scheduler: slurm, home_backend: provided, gpus: provided}}
defaults: {{platform: container, distribution: debian-13}}
nodes:
  - {{name: head01, kind: head, address: 10.77.{net}.1}}
  - name: gpu[01-{gpus:02}]
    kind: gpu
    address: 10.77.{net}.41
    hardware: {{cores_per_socket: 2, memory_gib: 2, gpus: {{type: h100, count: 2}}}}
"""


@dataclass
class Typed:
    """What a command said and how it ended."""

    code: int
    stdout: str
    stderr: str


@dataclass
class Bench:
    """An inventory of a test's own, and its rack."""

    directory: Path
    name: str
    net: int
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        self.layout = Layout(self.name, self.directory.resolve())
        self.describe(gpus=1)

    def describe(self, gpus: int) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        text = CLUSTER.format(name=self.name, net=self.net, gpus=gpus)
        (self.directory / "cluster.yml").write_text(text)

    def type(self, verb: str, *words: str) -> Typed:
        """``coldiron rack VERB -i … WORDS``, without the second that starting the command takes."""
        result = CliRunner().invoke(app, [verb, "-i", str(self.directory), *words])
        if isinstance(result.exception, ColdironError):
            return Typed(int(result.exception.exit_code), result.stdout, result.exception.message)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Typed(result.exit_code, result.stdout, result.stderr)

    def type_outside(self, verb: str, *words: str, env: dict[str, str] | None = None) -> Typed:
        """The same as a process of its own."""
        command = [*COLDIRON, "rack", verb, "-i", str(self.directory), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=env
        )
        return Typed(done.returncode, done.stdout, done.stderr.strip())

    def do(self, verb: str, *words: str) -> str:
        done = self.type(verb, *words)
        assert done.code == 0, done.stderr + done.stdout
        return done.stdout

    def on(self, node: str, line: str) -> str:
        """What a shell line says on a node."""
        state = RackState.load(self.layout.state)
        assert state is not None
        command = ["timeout", "60", *ssh_command(state, state.nodes[node], [line])]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    def begin(self, verb: str, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COLDIRON, "rack", verb, "-i", str(self.directory), *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def group(self, node: str = "") -> Cgroup:
        root = unified_root(Path("/proc/self/mountinfo").read_text())
        return Cgroup(root, f"{self.layout.cgroup}/{node}" if node else self.layout.cgroup)

    def traces(self) -> list[str]:
        """All that this rack has on the machine."""
        layout = self.layout
        veths = {layout.veth(name) for name in ("head01", "gpu01", "gpu02")}
        links = json.loads(subprocess.check_output(["ip", "-json", "link"]))
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        found = [f"link {link['ifname']}" for link in links if link["ifname"] in {layout.bridge, *veths}]
        found += [f"mount {line}" for line in mounts if str(layout.data) in line]
        found += [f"netns {path.name}" for path in layout.machine.netns.glob(f"{layout.netns_prefix}*")]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                text = (process / "cgroup").read_text() + (process / "cmdline").read_text()
                zombie = "State:\tZ" in (process / "status").read_text()
            except OSError:
                continue
            mine = (
                f"coldiron/{self.name}\n" in text
                or f"coldiron/{self.name}/" in text
                or str(layout.data) in text
            )
            if mine and not zombie and int(process.name) != os.getpid():
                found.append(f"process {process.name} {text}")
        places = [layout.data, layout.own, layout.sockets, self.group().path, layout.lock]
        found += [f"path {path}" for path in places if path.exists()]
        found += [f"path {path}" for path in layout.machine.bases.glob(f".baking.{self.name}.*")]
        found += [f"path {path}" for path in layout.machine.layers.glob(f"{self.name}.*")]
        found += [f"path {path}" for path in layout.machine.nspawn.glob(f"propagate/{self.name}.*")]
        return found


def registered() -> set[str]:
    registry = Machine().registry
    return set(json.loads(registry.read_text())["racks"]) if registry.exists() else set()


def host_settings() -> dict[str, str]:
    """What racks change on the host as a whole."""
    names = (
        "fs/inotify/max_user_instances",
        "fs/file-max",
        "fs/nr_open",
        "net/ipv4/neigh/default/gc_thresh3",
    )
    settings = {name: (Path("/proc/sys") / name).read_text() for name in names}
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    settings["netns mounts"] = "\n".join(line.split(" ")[4] for line in mounts if " /run/netns " in line)
    return settings


@pytest.fixture(scope="module")
def settings_before() -> dict[str, str]:
    return host_settings()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, settings_before: dict[str, str]) -> Iterator[Bench]:
    """A rack that is up."""
    bench = Bench(tmp_path_factory.mktemp("rack") / "inventory", "e2e101", 101)
    bench.do("down")
    try:
        bench.do("up")
        yield bench
    finally:
        bench.do("down")
        assert bench.traces() == []


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Bench]:
    """An inventory whose rack is not up; it is taken down whatever the test did."""
    bench = Bench(tmp_path / "inventory", "e2e111", 111)
    bench.do("down", "--name", bench.name) if bench.name in registered() else None
    others = registered()
    before = host_settings()
    try:
        yield bench
    finally:
        bench.do("down")
        assert bench.traces() == []
        if not others and not registered():
            assert host_settings() == before


# --- up ---


def test_the_first_connection_is_strict_and_succeeds(bench: Bench) -> None:
    found = connection_vars(bench.directory)
    assert found is not None
    assert found["coldiron_rack"]["simulated"] is True
    common = found["ansible_ssh_common_args"]
    key = found["ansible_ssh_private_key_file"]
    line = f"ssh -o BatchMode=yes {common} -i {key} root@10.77.101.41 hostname"
    assert (
        subprocess.check_output(["bash", "-c", line], text=True, stdin=subprocess.DEVNULL).strip() == "gpu01"
    )


def test_another_host_key_is_refused(bench: Bench, tmp_path: Path) -> None:
    found = connection_vars(bench.directory)
    assert found is not None
    other = tmp_path / "known_hosts"
    known = bench.layout.known_hosts.read_text().splitlines()
    keys = [line.split(" ", 1)[1] for line in known]
    names = [line.split(" ", 1)[0] for line in known]
    swapped = zip(names, reversed(keys), strict=True)
    other.write_text("".join(f"{name} {key}\n" for name, key in swapped))
    common = found["ansible_ssh_common_args"].replace(str(bench.layout.known_hosts), str(other))
    line = f"ssh -o BatchMode=yes -o ControlPath=none {common} -i {bench.layout.client_key} root@10.77.101.41 true"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 255
    assert "HOST IDENTIFICATION HAS CHANGED" in done.stderr


def test_a_node_is_a_real_one(bench: Bench) -> None:
    assert bench.on("gpu01", "cat /proc/1/comm") == "systemd"
    assert bench.on("gpu01", "systemctl is-system-running --wait") == "running"
    assert bench.on("gpu01", "hostname -f") == "gpu01.e2e101.internal"
    assert bench.on("gpu01", "ip -o -4 addr show eth0 | tr -s ' ' | cut -d' ' -f4") == "10.77.101.41/24"
    assert bench.on("gpu01", "ls /dev/nvidia*") == "/dev/nvidia0 /dev/nvidia1 /dev/nvidiactl"
    assert bench.on("head01", "ls /dev/nvidia* 2>/dev/null | wc -l") == "0"
    assert bench.on("gpu01", "grep ^0: /proc/self/cgroup") == "0::/system.slice/ssh.service"
    assert bench.on("gpu01", "ip route show default | wc -l") == "0"


def test_nodes_share_home_and_reach_each_other(bench: Bench) -> None:
    bench.on("head01", "mkdir -p /home/alice && echo here > /home/alice/file")
    assert bench.on("gpu01", "cat /home/alice/file") == "here"
    assert (
        bench.on("gpu01", "timeout 30 bash -c 'read -r line </dev/tcp/10.77.101.1/22; echo ${line:0:4}'")
        == "SSH-"
    )


def test_packages_come_through_the_cache(bench: Bench) -> None:
    assert "10.77.101.254:3143" in bench.on("gpu01", "apt-config dump Acquire::http::Proxy")
    installed = bench.on(
        "gpu01", "apt-get install -y -q tree >/dev/null 2>&1; dpkg-query -W -f '${Status}' tree"
    )
    assert installed == "install ok installed"


def test_a_second_up_leaves_everything_alone(bench: Bench) -> None:
    line = "cut -d' ' -f22 /proc/1/stat; cat /proc/sys/kernel/random/boot_id"
    before = bench.on("gpu01", line)
    state = bench.layout.state.read_text()
    bench.do("up")
    assert bench.on("gpu01", line) == before
    assert bench.layout.state.read_text() == state


def test_up_starts_a_node_that_is_just_going_down(bench: Bench) -> None:
    boot = bench.on("gpu01", "cat /proc/sys/kernel/random/boot_id; systemctl show -P InvocationID ssh")
    bench.on("gpu01", "systemd-run -q --unit=slow -p ExecStop='sleep 3' sleep 1000")
    bench.on("gpu01", "systemctl poweroff --no-block")
    said = bench.do("up")
    assert bench.on("gpu01", "systemctl show -P InvocationID ssh") not in boot
    assert "gpu01 went down meanwhile: started again" in said


def test_status_says_what_is_simulated(bench: Bench) -> None:
    found = json.loads(bench.do("status", "--json"))
    assert found["up"]
    assert found["simulated"]
    assert {node["name"]: node["state"] for node in found["nodes"]} == {"head01": "up", "gpu01": "up"}
    assert [node["gpus"] for node in found["nodes"]] == [None, "simulated"]
    text = bench.do("status")
    assert "simulated" in text
    assert "provided" in text


def test_exec_gives_each_line_its_node_and_the_highest_exit_code(bench: Bench) -> None:
    done = bench.type(
        "exec", "head01", "gpu01", "--", "echo from $HOSTNAME; [ $HOSTNAME = head01 ] || exit 7"
    )
    assert done.code == 7
    assert sorted(done.stdout.splitlines()) == ["gpu01  | from gpu01", "head01 | from head01"]
    # Several words reach the node as they are.
    assert bench.do("exec", "head01", "--", "printf", "%s|", "a b", "$HOME").endswith("head01 | a b|$HOME|\n")


def test_ssh_runs_one_command_with_its_exit_code(bench: Bench) -> None:
    done = bench.type_outside("ssh", "gpu01", "--", "echo $HOSTNAME; exit 5")
    assert (done.stdout, done.code) == ("gpu01\n", 5)


def test_nodes_come_and_go_with_the_file(bench: Bench) -> None:
    bench.describe(gpus=2)
    bench.do("up")
    assert bench.on("gpu02", "hostname") == "gpu02"
    bench.describe(gpus=1)
    assert "gpu02" in bench.do("up")
    assert bench.on("gpu02", "hostname") == "gpu02"
    assert "removed: gpu02" in bench.do("up", "--prune")
    assert json.loads(bench.do("status", "--json"))["nodes"][-1]["name"] == "gpu01"
    done = bench.type("down", "gpu02")
    assert done.code != 0
    assert "no node gpu02" in done.stderr


# --- snapshot and reset ---


def test_reset_gives_back_the_fresh_node(bench: Bench) -> None:
    bench.on("gpu01", "echo x > /root/mark; rm /etc/hosts; echo y > /var/lib/docker/mark; mkdir /etc/ssh/x")
    bench.do("reset", "gpu01")
    assert bench.on("gpu01", "ls /root /var/lib/docker") == "/root: /var/lib/docker:"
    assert "gpu01.e2e101.internal" in bench.on("gpu01", "cat /etc/hosts")
    assert bench.on("gpu01", "[ -e /etc/ssh/x ] || echo gone") == "gone"


def test_a_snapshot_brings_back_what_was(bench: Bench) -> None:
    bench.on("gpu01", "echo one > /root/mark; echo one > /var/lib/docker/mark; echo one > /home/mark")
    bench.do("snapshot", "one")
    bench.on(
        "gpu01", "echo two > /root/mark; rm /var/lib/docker/mark; echo two > /home/mark; rm /etc/hostname"
    )
    bench.do("reset", "gpu01", "--to", "one")
    assert bench.on("gpu01", "cat /root/mark /var/lib/docker/mark /home/mark /etc/hostname") == (
        "one one two gpu01"
    )
    bench.do("reset", "--to", "one")
    assert bench.on("head01", "cat /home/mark") == "one"
    done = bench.type("snapshot", "one")
    assert done.code == 3
    assert "--replace" in done.stderr
    bench.do("snapshot", "one", "--remove")
    # What stands on the snapshot's layers goes on.
    assert bench.on("gpu01", "cat /root/mark") == "one"
    assert bench.type("reset", "--to", "one").code == 2


def test_a_kept_snapshot_outlives_the_rack(second: Bench) -> None:
    name = "e2e-kept"
    second.do("up")
    second.on("gpu01", "echo kept > /root/mark; echo kept > /home/mark")
    second.do("snapshot", name, "--keep", "--replace")
    try:
        second.do("down")
        assert [trace for trace in second.traces() if "/layers/" not in trace] == []
        second.do("up", "--from-snapshot", name)
        assert second.on("gpu01", "cat /root/mark /home/mark; hostname").split() == [
            "kept",
            "kept",
            "gpu01",
        ]
        kept = json.loads(second.do("snapshot", "--json"))
        assert [one["nodes"] for one in kept if one["name"] == name] == [["head01", "gpu01"]]
    finally:
        second.do("snapshot", name, "--remove")


# --- crashes ---


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


POINTS: dict[str, Callable[[Bench], bool]] = {
    "the state is written": lambda bench: bench.layout.state.exists(),
    "the bridge is made": lambda bench: Path(f"/sys/class/net/{bench.layout.bridge}").exists(),
    "the first namespace is made": lambda bench: any(
        Path("/run/netns").glob(f"{bench.layout.netns_prefix}*")
    ),
    "the first root is mounted": lambda bench: (
        str(bench.layout.data) in Path("/proc/self/mountinfo").read_text()
    ),
    "the first node boots": lambda bench: bench.group("head01/payload").exists(),
}


@pytest.mark.parametrize("point", POINTS)
def test_down_cleans_up_after_a_killed_up(second: Bench, point: str) -> None:
    process = second.begin("up")
    until(lambda: POINTS[point](second), process)
    kill(process)
    second.do("down")
    assert second.traces() == []


def test_up_goes_on_after_a_killed_up(second: Bench) -> None:
    process = second.begin("up")
    until(lambda: POINTS["the first root is mounted"](second), process)
    kill(process)
    second.do("up")
    assert second.on("gpu01", "hostname") == "gpu01"


def test_down_cleans_up_after_a_killed_bake(second: Bench) -> None:
    bases = second.layout.machine.bases
    before = newest(bases, "debian-13-*")
    process = second.begin("up", "--rebuild-base")
    until(lambda: any(bases.glob(f".baking.{second.name}.*/root/usr")), process)
    kill(process)
    assert second.group("_bake").pids()
    second.do("down")
    assert second.traces() == []
    assert newest(bases, "debian-13-*") == before


def test_a_killed_snapshot_loses_nothing(second: Bench) -> None:
    second.do("up")
    second.on("gpu01", "echo mine > /root/mark")
    process = second.begin("snapshot", "cut")
    until(lambda: not second.group("gpu01").populated(), process)
    kill(process)
    second.do("up")
    assert second.on("gpu01", "cat /root/mark") == "mine"


def test_a_killed_down_is_taken_up_again(second: Bench) -> None:
    second.do("up")
    process = second.begin("down")
    until(lambda: not second.group().populated(), process)
    kill(process)
    second.do("down")
    assert second.traces() == []


def test_up_after_the_host_lost_everything_but_its_disk(second: Bench) -> None:
    second.do("up")
    second.on("gpu01", "echo kept > /root/mark")
    # As after a reboot: no process, no mount, no interface, no namespace.
    second.group().kill()
    second.group().remove()
    for node in ("head01", "gpu01"):
        subprocess.run(["umount", str(second.layout.node(node) / "root")], check=True)
        subprocess.run(["ip", "netns", "delete", second.layout.netns(node)], check=True)
    subprocess.run(["ip", "link", "delete", second.layout.bridge], check=True)
    assert second.type("status").code == 1
    second.do("up")
    assert second.on("gpu01", "cat /root/mark") == "kept"


def test_down_works_when_the_state_is_lost(second: Bench) -> None:
    second.do("up")
    shutil.rmtree(second.layout.own)
    done = second.type("up")
    assert done.code == 3
    assert "coldiron rack down" in done.stderr
    second.do("down")
    assert second.traces() == []


# --- what is not ours ---


def test_two_racks_side_by_side(bench: Bench, second: Bench) -> None:
    second.do("up")
    assert second.on("gpu01", "hostname -f") == "gpu01.e2e111.internal"
    assert bench.on("gpu01", "hostname -f") == "gpu01.e2e101.internal"
    second.do("down")
    assert bench.on("gpu01", "hostname -f") == "gpu01.e2e101.internal"


def test_another_inventorys_rack_of_the_same_name_is_refused(bench: Bench, second: Bench) -> None:
    text = (second.directory / "cluster.yml").read_text()
    (second.directory / "cluster.yml").write_text(text.replace("name: e2e111\n", "name: e2e101\n", 1))
    try:
        done = second.type("up")
        assert done.code == 3
        assert f"coldiron rack down -i {bench.directory}" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert bench.on("gpu01", "hostname") == "gpu01"
    finally:
        (second.directory / "cluster.yml").write_text(text)


@pytest.mark.parametrize(
    ("make", "undo", "says"),
    [
        (
            ["ip", "link", "add", "ci-e2e111", "type", "bridge"],
            ["ip", "link", "del", "ci-e2e111"],
            "ci-e2e111",
        ),
        (
            ["mkdir", "-p", "/var/lib/coldiron/rack/e2e111/theirs"],
            ["rm", "-r", "/var/lib/coldiron/rack/e2e111"],
            "/var/lib/coldiron/rack/e2e111",
        ),
        (
            ["ip", "netns", "add", "coldiron.e2e111.x"],
            ["ip", "netns", "del", "coldiron.e2e111.x"],
            "coldiron.e2e111.x",
        ),
    ],
    ids=["an interface", "a directory", "a namespace"],
)
def test_foreign_things_are_refused_and_left(
    second: Bench, make: list[str], undo: list[str], says: str
) -> None:
    subprocess.run(make, check=True)
    try:
        done = second.type("up")
        assert done.code == 3
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1
        # Tear-down does not take it for ours either.
        second.do("down")
    finally:
        # Fails if it is gone.
        subprocess.run(undo, check=True)


def test_a_taken_subnet_is_refused(second: Bench) -> None:
    subprocess.run(["ip", "link", "add", "e2eforeign", "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "addr", "add", "10.77.111.200/28", "dev", "e2eforeign"], check=True)
        subprocess.run(["ip", "link", "set", "e2eforeign", "up"], check=True)
        done = second.type("up")
        assert done.code == 3
        assert "10.77.111.192/28" in done.stderr
        assert "e2eforeign" in done.stderr
        assert second.traces() == []
    finally:
        subprocess.run(["ip", "link", "del", "e2eforeign"], check=True)


def test_missing_packages_are_named_with_the_line_to_type(second: Bench, tmp_path: Path) -> None:
    env = os.environ | {"PATH": str(tmp_path)}
    done = second.type_outside("up", env=env)
    assert done.code == 5
    assert "apt-get install systemd-container" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    listed = subprocess.run(
        [*COLDIRON, "rack", "requirements", "--missing"], capture_output=True, text=True, env=env, check=True
    )
    assert "systemd-container" in listed.stdout.split()
    assert "apt-cacher-ng" not in listed.stdout.split()
    everything = subprocess.run(
        [*COLDIRON, "rack", "requirements", "--missing"], capture_output=True, text=True, check=True
    )
    assert everything.stdout == ""
