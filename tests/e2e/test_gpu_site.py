"""A site whose nodes have simulated GPUs, from bare nodes to jobs: what docs/gpu.md and docs/gpu-driver.md promise."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coldiron.testing.steps import call, command, environment, rack
from tests.e2e.siterun import (
    USER,
    WAIT_SECONDS,
    Record,
    SiteRun,
    eventually,
    hand_written,
    read_events,
)

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
# A rack of its own: the demonstration's inventories/gpu stays as it is.
INVENTORY = ROOT / ".cache" / "gpu-site"
FIRST, SECOND = "580.95.05", "580.105.08"
IMAGE = "localhost/coldiron-gpu-site:latest"
SIF = "/var/tmp/gpu-site.sif"
DRIFT_SECONDS = 10
SITE_SECONDS, UPGRADE_SECONDS = 1500, 900
OURS = "coldiron gpu_driver_upgrade: "
GPU_ROLES = ("gpu_driver", "gpu_fabric", "gpu_power", "gpu_mig", "gpu_health", "nvidia_container_toolkit")


class GpuSite(SiteRun):
    """The site, and the questions that its GPUs are asked."""

    def play(self, *arguments: str, book: str = "site", seconds: float = UPGRADE_SECONDS) -> Record:
        """Run a playbook of the collection to its end."""
        done = subprocess.run(
            self.book(book, *arguments),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment() | {"ANSIBLE_STDOUT_CALLBACK": "ansible.posix.jsonl"}, timeout=seconds, check=False,
        )  # fmt: skip
        record = read_events(done.stdout.splitlines())
        record.status = done.returncode
        return record

    def book(self, book: str, *arguments: str) -> list[str]:
        """The command line of a playbook."""
        password = f"--vault-password-file={self.inventory / '.vault-password'}"
        words = [command("ansible-playbook"), f"coldiron.cluster.{book}", "-i", str(self.inventory), password]
        return [*words, *arguments]

    @contextmanager
    def upgrade(self, version: str, log: Path) -> Iterator[subprocess.Popen[str]]:
        """An upgrade under way, in a process group of its own; whatever is left of it ends here."""
        words = self.book("gpu_driver_upgrade", "-e", f"coldiron_driver={version}")
        with log.open("w") as stream, subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, text=True,
            env=environment() | {"PYTHONUNBUFFERED": "1"}, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def driver(self, node: str) -> str:
        """The driver that answers on a node."""
        return self.on(node, "nvidia-smi --query-gpu=driver_version --format=csv,noheader").split("\n")[0]

    def fabric(self, node: str) -> str:
        """The fabric manager's version there."""
        return self.on(node, "dpkg-query -W -f '${Version}' nvidia-fabricmanager").partition("-")[0]

    def described(self, node: str) -> str:
        """The driver's version in what containers are told of the GPUs."""
        said = self.on(node, "cat /var/run/cdi/nvidia.yaml")
        match = re.search(r"libcuda\.so\.([0-9.]+[0-9])", said)
        return match[1] if match else ""

    def reason(self, node: str) -> str:
        """Why Slurm gives a node no jobs."""
        # Of all nodes: asked for one alone, slurmctld 24.11 may answer what was true before.
        lines = self.on(self.head, "sinfo -h -N -o '%N %E'").splitlines()
        return next((line.partition(" ")[2].strip() for line in lines if line.split()[0] == node), "")

    def has_all_of(self, node: str, version: str) -> None:
        """Everything that the driver's version is in is of one version, and the node works."""
        found = {
            "answers": self.driver(node),
            "fabric": self.fabric(node),
            "containers": self.described(node),
            "loaded": self.on(node, "cat /proc/driver/nvidia/version").split()[7],
        }
        loaded = found.pop("loaded")
        assert found == dict.fromkeys(found, version)
        assert loaded
        assert self.wait_for_state(node, ("idle",)) == "idle", self.reason(node)
        # It holds the GPUs open, so it was stopped while the modules were exchanged.
        eventually(lambda: self.measured(node) == 4, "the metrics tell of four GPUs")

    def measured(self, node: str) -> int:
        """How many GPUs the node's exporter tells a temperature of; 0 where it does not answer."""
        asked = f"urllib.request.urlopen('http://{self.site.hostvars(node)['ansible_host']}:9400/metrics', timeout=5)"
        said = self.on(
            node, f'python3 -c "import urllib.request; print({asked}.read().decode())" 2>&1 || true'
        )
        return len(set(re.findall(r'^gpu_temperature_C{.*uuid="(GPU-[^"]+)"', said, re.MULTILINE)))

    def instances(self, node: str) -> list[str]:
        """The MIG instances' names on a node."""
        return re.findall(r"^\s+MIG (\S+)", self.on(node, "nvidia-smi -L"), re.MULTILINE)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuSite]:
    """Bare nodes with cards in them."""
    if (INVENTORY / "cluster.yml").exists():
        rack("down", INVENTORY)
        shutil.rmtree(INVENTORY)
    generated = shutil.ignore_patterns(".rack", ".vault-password", "vault.yml")
    shutil.copytree(ROOT / "inventories" / "gpu", INVENTORY, ignore=generated)
    text = (INVENTORY / "cluster.yml").read_text(encoding="utf-8")
    text = text.replace("name: gpu\n", "name: gpu-site\n").replace("10.77.16.", "10.77.18.")
    (INVENTORY / "cluster.yml").write_text(text, encoding="utf-8")
    (INVENTORY / "group_vars" / "all" / "drift.yml").write_text(f"gpu_power_drift_seconds: {DRIFT_SECONDS}\n")
    call([command("coldiron"), "secrets", "init", "-i", str(INVENTORY)], "coldiron secrets init")
    rack("up", INVENTORY)
    yield GpuSite(INVENTORY, tmp_path_factory.mktemp("gpu-site"))
    rack("down", INVENTORY)
    shutil.rmtree(INVENTORY)


@pytest.fixture(scope="module")
def site(fresh: GpuSite) -> GpuSite:
    """The site with all stages done."""
    record = fresh.play(seconds=SITE_SECONDS)
    assert record.status == 0, record.told()
    return fresh


def test_a_second_run_changes_nothing(site: GpuSite) -> None:
    record = site.play(seconds=SITE_SECONDS)
    assert (record.status, record.restless) == (0, {}), record.told()


def test_check_announces_nothing(site: GpuSite) -> None:
    record = site.play("--check", seconds=SITE_SECONDS)
    assert (record.status, record.restless) == (0, {}), record.told()


def test_the_roles_own_tests_pass(site: GpuSite) -> None:
    words = ["-m", "pytest", "-q", "-p", "coldiron.testing.plugin", "roles", "--role", ",".join(GPU_ROLES)]
    call([command("python"), *words, "--inventory", str(site.inventory)], "the roles' tests")


@pytest.fixture(scope="module")
def images(site: GpuSite) -> None:
    """An image with nvidia-smi in it, made of gpu01's own programs, for Podman and for Apptainer."""
    tools = "/bin/sh /usr/lib/nvidia/current/nvidia-smi"
    root = "/var/tmp/gpu-site-image"
    made = (
        f"mkdir -p {root}/etc {root}/usr/bin {root}/tmp {root}/proc {root}/sys {root}/dev; cd {root};"
        f" {{ ldd {tools} | grep -o '/[^ :]*' | grep -v libnvidia; printf '%s\\n' {tools}; }} | sort -u"
        f" | tar -c --dereference --files-from=- 2>/dev/null | tar -x -C {root};"
        f" ln -sf /usr/lib/nvidia/current/nvidia-smi {root}/usr/bin/nvidia-smi;"
        " touch etc/passwd etc/group; chmod -R a+rX ."
    )
    site.on("gpu01", made)
    as_user = (
        f"tar -C {root} -c . | podman import --quiet - {IMAGE}; apptainer --quiet build --force {SIF} {root}"
    )
    site.on("gpu01", f"runuser -l {USER} -c '{as_user}'", timeout=WAIT_SECONDS)


def gpus_in(said: str) -> int:
    """How many GPUs nvidia-smi has listed."""
    return len(re.findall(r"^GPU [0-9]+: ", said, re.MULTILINE))


def job(site: GpuSite, script: str, *words: str) -> str:
    """Run a script as an ordinary user's job and return what it said."""
    return site.as_user(f"srun {' '.join(words)} bash -c {shlex.quote(script)}", timeout=WAIT_SECONDS)


# Slurm says which GPUs a job has. That it can open no others is a matter of control groups, which the rack's
# containers lack; a container has no other device files, whatever holds the job.
OWN = "nvidia-smi -i $CUDA_VISIBLE_DEVICES --query-gpu=uuid --format=csv,noheader"


def test_a_job_has_the_two_gpus_that_it_asked_for(site: GpuSite) -> None:
    with site.job_on("gpu01", "--gres=gpu:h100:2") as other:
        said = job(site, f"echo $CUDA_VISIBLE_DEVICES; {OWN}", "-w gpu01", "--gres=gpu:h100:2").split()
        shown = site.as_user(f"scontrol show -d job {other}")
    numbers = said[0].split(",")
    assert len(numbers) == len(said[1:]) == 2
    theirs = re.search(r"GRES=gpu:h100:2\(IDX:([0-9]+)-([0-9]+)\)", shown)
    assert theirs, shown
    assert set(numbers) == {"0", "1", "2", "3"} - set(theirs.groups())


def test_rootless_podman_in_a_job_has_its_two_gpus(site: GpuSite, images: None) -> None:
    # As docs/containers.md says it.
    script = (
        'for gpu in ${CUDA_VISIBLE_DEVICES//,/ }; do devices+=(--device "nvidia.com/gpu=$gpu"); done;'
        f' {OWN}; podman run --rm --network=none "${{devices[@]}}" {IMAGE} /usr/bin/nvidia-smi -L'
    )
    said = job(site, script, "-w gpu01", "--gres=gpu:h100:2")
    assert gpus_in(said) == 2, said
    assert all(said.count(uuid) == 2 for uuid in said.split("\n")[:2]), said


def test_apptainer_in_a_job_has_its_two_gpus(site: GpuSite, images: None) -> None:
    script = f"{OWN}; apptainer --quiet exec --nv {SIF} /bin/sh -c '/usr/bin/{OWN}'"
    said = job(site, script, "-w gpu01", "--gres=gpu:h100:2").split()
    assert len(said) == 4, said
    assert said[:2] == said[2:]


def test_a_mig_job_gets_its_slice(site: GpuSite) -> None:
    listed = re.findall(r"UUID: (MIG-[^)]+)", site.on("gpu02", "nvidia-smi -L"))
    assert len(listed) == 8
    said = job(site, "echo $CUDA_VISIBLE_DEVICES", "-w gpu02", "--gres=gpu:3g.40gb:1").strip()
    assert said in listed


def test_a_planted_xid_drains_the_node_with_its_reason(site: GpuSite) -> None:
    rack("fault", site.inventory, "gpu01", "gpu", "3", "xid79")
    # The job whose own GPUs are sound starts all the same.
    assert "ran" in job(site, "echo ran", "-w gpu01", "--gres=gpu:h100:1")
    eventually(lambda: "drain" in site.node_state("gpu01"), "the node is drained")
    assert site.reason("gpu01").startswith("coldiron gpu: nvidia3: Xid 79")
    rack("fault", site.inventory, "gpu01", "gpu", "3", "--clear")
    site.on(site.head, "scontrol update NodeName=gpu01 State=RESUME")
    assert site.wait_for_state("gpu01", ("idle",)) == "idle"
    # Told once: the next job does not drain it again.
    assert "ran" in job(site, "echo ran", "-w gpu01", "--gres=gpu:h100:1")
    assert site.wait_for_state("gpu01", ("idle",)) == "idle", site.reason("gpu01")


def test_power_drift_is_healed(site: GpuSite) -> None:
    limit = "nvidia-smi -i 1 --query-gpu=power.limit --format=csv,noheader"
    before = site.on("gpu01", limit)
    site.on("gpu01", "nvidia-smi -i 1 -pl 300")
    eventually(lambda: site.on("gpu01", limit) == before, "the limit is put back", 6 * DRIFT_SECONDS)


def test_a_fabric_manager_of_another_version_is_refused(site: GpuSite) -> None:
    before = site.fabric("gpu01")
    record = site.play("--limit", "gpu01", "--tags", "gpu_fabric", "-e", f"gpu_fabric_version={SECOND}")
    assert record.status != 0
    said = json.dumps(record.failed)
    assert "fabric manager" in said
    assert SECOND in said
    assert site.fabric("gpu01") == before


# As docs/gpu.md says it: the node, and who tells Slurm.
LAYOUT = ("--limit", "gpu02,slurm_controller", "--tags", "gpu_mig,slurm_controller,slurm_worker")
RELAYOUT = ("--limit", "gpu02", "--tags", "gpu_mig", "-e", '{"gpu_mig_layouts": [{"profiles": ["7g.80gb"]}]}')


def test_gpus_are_not_divided_anew_under_a_job(site: GpuSite) -> None:
    before = site.instances("gpu02")
    with site.job_on("gpu02") as number:
        record = site.play(*RELAYOUT)
        assert record.status != 0
        assert f"job {number}" in json.dumps(record.failed)
        assert site.job_state(number) == "RUNNING"
    assert site.instances("gpu02") == before


def test_containers_follow_when_gpus_are_divided_anew(site: GpuSite) -> None:
    names = "nvidia-ctk cdi list 2>/dev/null | sort"
    before = site.on("gpu02", names)
    site.on(site.head, "scontrol update NodeName=gpu02 State=DRAIN Reason=layout")
    assert site.wait_for_state("gpu02", ("drained",)) == "drained"
    with site.edited("- {profiles: [3g.40gb, 3g.40gb]}", "- {profiles: [7g.80gb]}"):
        record = site.play(*LAYOUT)
        assert record.status == 0, record.told()
        assert site.instances("gpu02") == ["7g.80gb"] * 4
        uuids = re.findall(r"UUID: (MIG-[^)]+)", site.on("gpu02", "nvidia-smi -L"))
        after = site.on("gpu02", names)
        assert after != before
        assert all(f"nvidia.com/gpu={uuid}" in after for uuid in uuids)
        site.on(site.head, "scontrol update NodeName=gpu02 State=RESUME")
        assert job(site, "echo $CUDA_VISIBLE_DEVICES", "-w gpu02", "--gres=gpu:7g.80gb:1").strip() in uuids
        site.on(site.head, "scontrol update NodeName=gpu02 State=DRAIN Reason=layout")
        assert site.wait_for_state("gpu02", ("drained",)) == "drained"
    record = site.play(*LAYOUT)
    assert record.status == 0, record.told()
    assert site.instances("gpu02") == ["3g.40gb"] * 8
    site.on(site.head, "scontrol update NodeName=gpu02 State=RESUME")
    assert site.wait_for_state("gpu02", ("idle",)) == "idle"


def test_a_driver_that_does_not_fit_drains_nobody(site: GpuSite) -> None:
    record = site.play("-e", "coldiron_driver=470.256.02", book="gpu_driver_upgrade")
    assert record.status != 0
    assert {site.node_state(node) for node in ("gpu01", "gpu02")} == {"idle"}


def test_an_upgrade_waits_for_the_job_of_its_canary_and_then_does_all(site: GpuSite, tmp_path: Path) -> None:
    log = tmp_path / "upgrade.log"
    with site.job_on("gpu01") as number, site.upgrade(SECOND, log) as process:
        eventually(lambda: "drain" in site.node_state("gpu01"), "the canary is drained")
        time.sleep(DRIFT_SECONDS)
        assert process.poll() is None
        assert site.job_state(number) == "RUNNING"
        assert (site.driver("gpu01"), site.node_state("gpu02")) == (FIRST, "idle")
        site.as_user(f"scancel {number}")
        assert process.wait(UPGRADE_SECONDS) == 0, log.read_text()[-3000:]
    for node in ("gpu01", "gpu02"):
        site.has_all_of(node, SECOND)
    assert site.instances("gpu02") == ["3g.40gb"] * 8


def test_an_upgrade_that_was_killed_goes_on_where_it_stood(site: GpuSite, tmp_path: Path) -> None:
    """Back to the older driver; kill -9 in the midst of the first batch."""
    log = tmp_path / "killed.log"
    with site.upgrade(FIRST, log) as process:
        eventually(lambda: "Ensure the driver is installed" in log.read_text(), "packages are exchanged")
        time.sleep(2)
        os.killpg(process.pid, signal.SIGKILL)
    assert site.reason("gpu01").startswith(OURS)
    assert site.node_state("gpu02") == "idle"
    site.has_all_of("gpu02", SECOND)
    record = site.play("-e", f"coldiron_driver={FIRST}", book="gpu_driver_upgrade")
    assert record.status == 0, record.told()
    for node in ("gpu01", "gpu02"):
        site.has_all_of(node, FIRST)
    record = site.play("-e", f"coldiron_driver={FIRST}", book="gpu_driver_upgrade")
    assert (record.status, record.restless) == (0, {}), record.told()


def test_a_drain_of_somebody_else_s_stays(site: GpuSite) -> None:
    site.on(site.head, "scontrol update NodeName=gpu02 State=DRAIN Reason=fan")
    record = site.play("-e", f"coldiron_driver={FIRST}", book="gpu_driver_upgrade")
    assert record.status == 0, record.told()
    assert site.reason("gpu02") == "fan"
    site.on(site.head, "scontrol update NodeName=gpu02 State=RESUME")


def test_a_driver_is_taken_away_and_comes_back(site: GpuSite) -> None:
    record = site.play("--limit", "gpu01", "--tags", "gpu_driver", "-e", "gpu_driver_state=absent")
    assert record.status == 0, record.told()
    left = site.on(
        "gpu01", "dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n' '*nvidia*' | grep ^.i || true"
    )
    assert not re.search("nvidia-driver-cuda|nvidia-kernel|nvidia-smi", left), left
    assert site.on("gpu01", "command -v nvidia-smi || true; ls /etc/apt/sources.list.d/").count("cuda") == 0
    again = site.play("--limit", "gpu01", "--tags", "gpu_driver", "-e", "gpu_driver_state=absent")
    assert (again.status, again.restless) == (0, {}), again.told()
    record = site.play("--limit", "gpu01", "--tags", ",".join(GPU_ROLES))
    assert record.status == 0, record.told()
    # slurmd counts GPUs when it starts, and then there were none.
    site.on("gpu01", "systemctl restart slurmd")
    site.on(site.head, "scontrol update NodeName=gpu01 State=RESUME || true")
    site.has_all_of("gpu01", FIRST)


def test_every_run_of_another_inventory_refuses_the_nodes(site: GpuSite) -> None:
    """The cards are simulated: whoever takes such a node for a real one learns it before anything is touched."""
    folder = hand_written(site)
    record = site.run("-e", f"gpu_driver_version={FIRST}", inventory=folder)
    assert record.status != 0
    assert {host for host, _task, _said in record.failed} == {"gpu01", "gpu02"}
    assert all("says that this node's GPUs are simulated" in said for _host, _task, said in record.failed)
    # It is the end for the head too, which is no such node.
    assert record.changed == []
    assert record.tasks["head01"][-1] == "Validate | Read what each node runs"
