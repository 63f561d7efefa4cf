"""Simulated GPUs under programs that know nothing of it: nvidia-smi, Slurm's NVML plugin, nvitop's exporter."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from coldiron.rack.remote import ssh_command
from coldiron.rack.state import RackState
from coldiron.testing.steps import command, rack

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
# Beside the checkout: nodes' files are bound from here, and their paths stand in ssh's options.
BENCH = ROOT / ".cache" / "gpu-simulated"
CLUSTER = """\
plugin: coldiron.cluster.cluster
name: gpu-simulated
domain: sim.internal
networks:
  cluster: {subnet: 10.77.17.0/24, gateway: 10.77.17.254}
features: {scheduler: slurm, home_backend: provided}
defaults: {platform: container, distribution: debian-13}
nodes:
  - {name: head01, kind: head, address: 10.77.17.1}
  - name: gpu01
    kind: gpu
    address: 10.77.17.41
    hardware: {cores_per_socket: 2, memory_gib: 2, gpus: {model: h100-sxm5-80gb, type: h100, count: 4}}
"""
SOURCES = """\
Types: deb
URIs: file:/srv/coldiron-fixtures
Suites: ./
Trusted: yes
"""
FIRST, SECOND = "580.95.05", "580.105.08"
PLUGIN = "/usr/lib/x86_64-linux-gnu/slurm-wlm/gpu_nvml.so"
WHEELS = ("nvitop-exporter==1.7.2", "nvidia-ml-py==13.615.71")
# What the simulation has to say more to than that it is not supported, of what the programs call.
LEAST_ANSWERED = 120
SLOW_NODE_SECONDS = 30


@dataclass
class Answer:
    """What a command on the node said and how it ended."""

    code: int
    text: str


class Node:
    """A node with simulated GPUs."""

    def __init__(self) -> None:
        state = RackState.load(BENCH / ".rack" / "state.json")
        assert state is not None
        self.state = state

    def run(self, line: str, text: str = "") -> Answer:
        """Run a line of shell there."""
        ran = subprocess.run(
            [*ssh_command(self.state, self.state.nodes["gpu01"]), line],
            input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300,
        )  # fmt: skip
        return Answer(ran.returncode, ran.stdout)

    def say(self, line: str, text: str = "") -> str:
        """Run a line that has to work, and return what it said."""
        answer = self.run(line, text)
        assert answer.code == 0, f"{line}: rc {answer.code}\n{answer.text}"
        return answer.text

    def asked(self, query: str, gpu: int = 0) -> str:
        """One value of a GPU, as nvidia-smi has it."""
        return self.say(f"nvidia-smi -i {gpu} --query-gpu={query} --format=csv,noheader").strip()

    def fault(self, *words: str) -> str:
        """Break or mend something of a GPU, as a person does."""
        return rack("fault", BENCH, "gpu01", "gpu", *words)

    def driver(self, version: str) -> None:
        """Install a version of the driver's packages."""
        names = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms")
        packages = " ".join(f"{name}={version}-1" for name in names)
        self.say(f"apt-get install -y --no-install-recommends --allow-downgrades {packages} nvidia-smi")


@pytest.fixture(scope="module")
def bare() -> Iterator[Node]:
    """A node with cards in it, and no driver."""
    if BENCH.is_dir():
        rack("down", BENCH)
        shutil.rmtree(BENCH)
    BENCH.mkdir(parents=True)
    (BENCH / "cluster.yml").write_text(CLUSTER)
    rack("up", BENCH, "gpu01")
    node = Node()
    yield node
    rack("down", BENCH)
    shutil.rmtree(BENCH)


@pytest.fixture(scope="module")
def node(bare: Node) -> Node:
    """The node with the driver's first version."""
    assert bare.run("ls /dev/nvidia0").code != 0
    bare.say("cat > /etc/apt/sources.list.d/fixtures.sources; apt-get update -q", SOURCES)
    bare.driver(FIRST)
    # Started by the package, it took the module's version where that was unpacked first; now it surely does.
    bare.say("systemctl restart simulated-gpu")
    return bare


@pytest.fixture(autouse=True)
def afresh(node: Node) -> Iterator[None]:
    """Every test begins with sound, undivided GPUs as they are after a start."""
    yield
    node.say("for gpu in 0 1 2 3; do simulated-gpu fault $gpu --clear; done; systemctl restart simulated-gpu")


def test_everything_about_it_says_that_it_is_simulated(node: Node) -> None:
    listed = node.say("nvidia-smi -L").splitlines()
    assert len(listed) == 4
    for line in listed:
        assert "NVIDIA H100 80GB HBM3 SIMULATED (UUID: GPU-51300000-" in line
    assert node.asked("serial").startswith("SIM")
    assert "SIMULATED" in node.say("cat /proc/driver/nvidia/version")
    marker = json.loads(node.say("cat /etc/coldiron/simulated-gpu"))
    assert (marker["simulated"], marker["model"], marker["count"]) == (True, "h100-sxm5-80gb", 4)
    assert "4 x h100" in rack("status", BENCH)


def test_nvidia_smi_shows_all_that_it_can(node: Node) -> None:
    log = ET.fromstring(node.say("nvidia-smi -q -x"))
    gpus = log.findall("gpu")
    assert len(gpus) == 4
    assert log.findtext("driver_version") == FIRST
    assert log.findtext("cuda_version") == "13.0"
    assert [gpu.findtext("minor_number") for gpu in gpus] == ["0", "1", "2", "3"]
    assert gpus[0].findtext("pci/pci_gpu_link_info/link_widths/current_link_width") == "16x"
    assert gpus[0].findtext("gpu_power_readings/max_power_limit") == "700.00 W"
    assert "Unknown Error" not in ET.tostring(log, encoding="unicode")


def test_limits_and_modes_are_kept_and_bounded(node: Node) -> None:
    assert "was set to 300.00 W from 700.00 W" in node.say("nvidia-smi -i 1 -pl 300")
    assert node.asked("power.limit", 1) == "300.00 W"
    assert node.asked("power.limit", 2) == "700.00 W"
    refused = node.run("nvidia-smi -i 1 -pl 900")
    assert refused.code == 2
    assert "should be between 200.00 W and 700.00 W" in refused.text
    node.say("nvidia-smi -pm 1")
    assert node.asked("persistence_mode", 3) == "Enabled"
    node.say("nvidia-smi -i 2 -lgc 345,1410")
    assert node.say("simulated-gpu get gpu.2.locked_max_mhz").strip() == "1410"


def test_an_ordinary_user_may_look_and_not_set(node: Node) -> None:
    node.say("id ordinary >/dev/null 2>&1 || useradd ordinary")
    assert "SIMULATED" in node.say("su ordinary -c 'nvidia-smi -L'")
    refused = node.run("su ordinary -c 'nvidia-smi -pl 300'")
    assert refused.code == 4
    assert "Insufficient Permissions" in refused.text


def test_what_is_set_is_gone_after_a_start_and_what_is_burnt_in_stays(node: Node) -> None:
    node.say("nvidia-smi -i 0 -pl 300; nvidia-smi -i 0 -mig 1; nvidia-smi -i 0 -e 0")
    node.fault("0", "ecc")
    assert node.asked("ecc.mode.current") == "Enabled"
    node.say("systemctl restart simulated-gpu")
    assert node.asked("power.limit") == "700.00 W"
    assert node.asked("mig.mode.current") == "Disabled"
    assert node.asked("ecc.mode.current") == "Disabled"
    node.say("nvidia-smi -i 0 -e 1; systemctl restart simulated-gpu")
    assert node.asked("ecc.errors.uncorrected.volatile.total") == "0"
    assert node.asked("ecc.errors.uncorrected.aggregate.total") == "1"


def test_a_gpu_is_divided_and_made_whole_again(node: Node) -> None:
    node.say("nvidia-smi -i 1 -mig 1")
    assert "MIG 3g.40gb" in node.say("nvidia-smi mig -i 1 -lgip")
    made = node.say("nvidia-smi mig -i 1 -cgi 9,19,19 -C")
    assert (
        made.count("Successfully created GPU instance")
        == made.count("Successfully created compute instance")
        == 3
    )
    listed = node.say("nvidia-smi -L")
    assert listed.count("MIG 1g.10gb") == 2
    assert listed.count("(UUID: MIG-51300000-") == 3
    full = node.run("nvidia-smi mig -i 1 -cgi 9,9 -C")
    assert full.code != 0
    assert "Insufficient Resources" in full.text
    assert node.run("nvidia-smi mig -i 1 -dgi").code == 19
    node.say("ls /proc/driver/nvidia/capabilities/gpu1/mig/gi1/ci0/access && ls /dev/nvidia-caps")
    node.say("nvidia-smi mig -i 1 -dci && nvidia-smi mig -i 1 -dgi && nvidia-smi -i 1 -mig 0")
    assert "MIG-" not in node.say("nvidia-smi -L")


def test_a_gpu_in_use_is_listed_so_and_not_divided(node: Node) -> None:
    query = "nvidia-smi --query-compute-apps=gpu_uuid,name,used_memory --format=csv,noheader"
    node.say("simulated-gpu hold 2 --mib 2048 -- sleep 600 </dev/null >/dev/null 2>&1 &")
    deadline = time.monotonic() + SLOW_NODE_SECONDS
    # Until it has become the command, it is listed under another name.
    while "sleep" not in (used := node.say(query)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert used.strip() == f"{node.asked('uuid', 2)}, sleep, 2048 MiB"
    assert node.asked("utilization.gpu", 2) == "97 %"
    assert "pending enable state" in node.say("nvidia-smi -i 2 -mig 1")
    assert node.asked("mig.mode.current", 2) == "Disabled"
    assert node.run("systemctl stop simulated-gpu; nvidia-smi -L").code == 0
    node.say("pkill -x sleep; systemctl restart simulated-gpu")


def test_a_gpu_that_a_process_may_not_open_is_not_there_for_it(node: Node) -> None:
    node.say("chmod 600 /dev/nvidia0 /dev/nvidia1; id ordinary >/dev/null 2>&1 || useradd ordinary")
    listed = node.say("su ordinary -c 'nvidia-smi -L'")
    assert listed.splitlines()[0].startswith("GPU 0: ")
    assert len(listed.splitlines()) == 2


def test_without_the_module_no_driver_is_found(node: Node) -> None:
    node.say("systemctl stop simulated-gpu")
    gone = node.run("nvidia-smi")
    node.say("systemctl start simulated-gpu")
    assert gone.code == 9
    assert "couldn't communicate with the NVIDIA driver" in gone.text


def test_an_upgrade_mismatches_until_the_module_is_loaded_anew(node: Node) -> None:
    node.driver(SECOND)
    between = node.run("nvidia-smi")
    assert between.code == 18
    assert "Driver/library version mismatch" in between.text
    node.say("systemctl restart simulated-gpu")
    assert node.asked("driver_version") == SECOND
    node.driver(FIRST)
    node.say("systemctl restart simulated-gpu")
    assert node.asked("driver_version") == FIRST


@pytest.mark.parametrize(
    ("fault", "query", "sound", "broken"),
    [
        ("hot", "temperature.gpu", "34", "91"),
        ("hot", "clocks_event_reasons.hw_thermal_slowdown", "Not Active", "Active"),
        ("slow-link", "pcie.link.width.current", "16", "4"),
        ("ecc", "ecc.errors.uncorrected.volatile.total", "0", "1"),
    ],
)
def test_a_fault_shows_and_is_mended(node: Node, fault: str, query: str, sound: str, broken: str) -> None:
    assert node.asked(query, 3) == sound
    node.fault("3", fault)
    assert node.asked(query, 3) == broken
    assert node.asked(query, 2) == sound
    node.fault("3", fault, "--clear")
    assert node.asked(query, 3) == sound


def test_an_xid_is_in_the_log_and_a_lost_gpu_is_lost(node: Node) -> None:
    before = int(node.say("cat /var/lib/simulated-gpu/kmsg 2>/dev/null | wc -l"))
    node.fault("3", "xid79")
    line = node.say("tail -n 1 /var/lib/simulated-gpu/kmsg").strip()
    assert line.startswith(f"3,{before},")
    assert line.endswith("GPU has fallen off the bus.")
    assert "NVRM: Xid (PCI:0000:61:00): 79," in line
    deadline = time.monotonic() + SLOW_NODE_SECONDS
    while (
        "79, pid" not in (said := node.say("journalctl -b -t kernel --no-pager"))
        and time.monotonic() < deadline
    ):
        time.sleep(0.5)
    assert "NVRM: Xid (PCI:0000:61:00): 79," in said
    lost = node.run("nvidia-smi")
    assert lost.code == 15
    assert "GPU is lost" in lost.text
    node.fault("3", "--clear")
    assert node.run("nvidia-smi").code == 0


def test_a_gpu_off_the_bus_is_not_listed(node: Node) -> None:
    node.fault("1", "lost")
    assert len(node.say("nvidia-smi -L").splitlines()) == 3


def test_a_mismatched_module_is_no_driver(node: Node) -> None:
    node.fault("0", "mismatch")
    assert node.run("nvidia-smi").code == 18
    node.fault("0", "mismatch", "--clear")
    assert node.run("nvidia-smi").code == 0


def test_slurm_finds_the_gpus_by_itself(node: Node) -> None:
    # It is asked for what it sees; no daemon is wanted.
    node.say("printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d")
    node.say(
        "apt-get install -y --no-install-recommends slurmd slurm-wlm-nvml-plugin; rm /usr/sbin/policy-rc.d"
    )
    assert "Gres=gpu:nvidia_h100_80gb_hbm3_simulated:4" in node.say("slurmd -C")
    node.say("nvidia-smi -i 0 -mig 1; nvidia-smi mig -i 0 -cgi 3g.40gb,3g.40gb -C")
    assert "gpu:nvidia_h100_80gb_hbm3_simulated_3g.40gb:2" in node.say("slurmd -C")


def test_every_function_that_the_programs_call_is_answered(node: Node) -> None:
    # Slurm's plugin is there when the test above has run, or comes now.
    node.say("apt-get install -y --no-install-recommends slurm-wlm-nvml-plugin")
    script = (Path(__file__).parent / "probe_nvml.py").read_text()
    found = json.loads(
        node.say(
            f"cat > /root/probe.py; python3 /root/probe.py /usr/lib/nvidia/current/nvidia-smi {PLUGIN}",
            script,
        )
    )
    wrong = {name: answer for name, answer in found.items() if not isinstance(answer, int)}
    assert not wrong
    supported = [name for name, answer in found.items() if answer != 3]
    assert len(supported) >= LEAST_ANSWERED, sorted(set(found) - set(supported))


@pytest.fixture(scope="module")
def nvitop(node: Node, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder on the node with nvitop's exporter, as the package index has it."""
    folder = tmp_path_factory.mktemp("wheels")
    fetch = ["-m", "pip", "install", "-q", "--target", str(folder), "--python-version", "3.13"]
    subprocess.run([sys.executable, *fetch, "--only-binary=:all:", *WHEELS], check=True, timeout=300)
    tar = subprocess.run(["tar", "-C", str(folder), "-c", "."], capture_output=True, check=True)
    line = [
        *ssh_command(node.state, node.state.nodes["gpu01"]),
        "mkdir -p /opt/nvitop && tar -C /opt/nvitop -x",
    ]
    subprocess.run(line, input=tar.stdout, check=True, timeout=300)
    return "/opt/nvitop"


def test_nvitops_exporter_exports(node: Node, nvitop: str) -> None:
    serve = f"PYTHONPATH={nvitop} python3 -m nvitop_exporter --hostname gpu01 --port 5050"
    node.say(f"({serve} </dev/null >/root/exporter.log 2>&1 & echo $! > /root/exporter.pid)")
    fetch = shlex.quote(
        "import urllib.request as u; print(u.urlopen('http://127.0.0.1:5050/metrics').read().decode())"
    )
    uuid = node.asked("uuid", 3)
    deadline = time.monotonic() + SLOW_NODE_SECONDS
    # It answers before it has asked the GPUs, one after the other.
    lines: list[str] = []
    while not lines and time.monotonic() < deadline:
        time.sleep(1)
        said = node.run(f"python3 -c {fetch}").text
        lines = [line for line in said.splitlines() if line.startswith("gpu_power_limit_W{") and uuid in line]
    node.run("kill $(cat /root/exporter.pid)")
    assert [line.rpartition(" ")[2] for line in lines] == ["700.0"], said[-500:]


def test_an_event_reaches_who_waits_for_it(node: Node, nvitop: str) -> None:
    script = """
import subprocess, pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(2)
events = n.nvmlEventSetCreate()
n.nvmlDeviceRegisterEvents(device, n.nvmlEventTypeXidCriticalError, events)
subprocess.run(["simulated-gpu", "fault", "2", "xid94"], check=True)
event = n.nvmlEventSetWait_v2(events, 10000)
print(event.eventType, event.eventData)
"""
    said = node.say(f"cat > /root/wait.py; PYTHONPATH={nvitop} python3 /root/wait.py", script)
    assert said.splitlines()[-1] == "8 94"


def test_another_inventory_is_told_of_the_simulation(node: Node, tmp_path: Path) -> None:
    known = f"-o UserKnownHostsFile={BENCH / '.rack/known_hosts'}"
    inventory = {
        "all": {
            "vars": {
                "coldiron_cluster": "real",
                "ansible_user": "root",
                "ansible_ssh_private_key_file": str(BENCH / ".rack/id_ed25519"),
                "ansible_ssh_common_args": known,
            },
            "children": {"cluster": {"hosts": {"gpu01": {"ansible_host": "10.77.17.41"}}}},
        }
    }
    # JSON is YAML too.
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory))
    # What playbooks/validate.yml asks of every node; tests/e2e/test_gpu_site.py sees what it does with the answer.
    ask = [command("ansible"), "gpu01", "-i", str(tmp_path / "hosts.yml"), "-m", "coldiron.cluster.os_facts"]
    environment = {
        **os.environ,
        "ANSIBLE_NOCOLOR": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ran = subprocess.run(
        ask, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    assert "simulated_gpus: true" in ran.stdout.replace('"', "")
