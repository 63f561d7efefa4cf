"""Modules that the compiler refuses: the role tells of it in one line, before anything boots that kernel.

With Debian's own driver, kernel and DKMS, in the root of a node of its own, entered as an image's root is when it is
baked. The compiler is the real one and takes its time: mostly for the driver's questions to the kernel's headers.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from coldiron.rack.layout import Layout
from coldiron.testing.steps import command, environment, rack

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

BENCH = Path(__file__).resolve().parents[2] / ".cache" / "gpu-dkms"
CLUSTER = """\
plugin: coldiron.cluster.cluster
name: gpu-dkms
domain: dkms.internal
networks:
  cluster: {subnet: 10.77.19.0/24, gateway: 10.77.19.254}
features: {scheduler: none, home_backend: provided, gpus: provided}
defaults: {platform: container, distribution: debian-13}
nodes:
  - {name: node01, kind: head, address: 10.77.19.1}
"""
PLAY = """\
- hosts: image
  gather_facts: false
  tasks:
    - coldiron.cluster.os_facts:
    - ansible.builtin.include_role: {name: coldiron.cluster.gpu_driver, tasks_from: install}
"""
BUILD_SECONDS = 2400


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """The root of a node with nothing installed."""
    if BENCH.is_dir():
        rack("down", BENCH)
        shutil.rmtree(BENCH)
    BENCH.mkdir(parents=True)
    (BENCH / "cluster.yml").write_text(CLUSTER)
    rack("up", BENCH)
    yield Layout("gpu-dkms", BENCH.resolve()).node("node01") / "root"
    rack("down", BENCH)
    shutil.rmtree(BENCH)


@pytest.fixture(scope="module")
def run(root: Path, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """The role's run in that root."""
    folder = tmp_path_factory.mktemp("dkms")
    enter = folder / "chroot.sh"
    enter.write_text(files("coldiron.provision").joinpath("files/chroot.sh").read_text(encoding="utf-8"))
    enter.chmod(0o700)
    host = {
        "ansible_connection": "community.general.chroot",
        "ansible_host": str(root),
        "ansible_chroot_exe": str(enter),
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_pipelining": True,
        "ansible_become": False,
        "gpu_driver_source": "distribution",
        "gpu_driver_flavour": "open",
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"image": host}}}))
    (folder / "play.yml").write_text(PLAY)
    words = [command("ansible-playbook"), "-i", str(folder / "hosts.yml"), str(folder / "play.yml")]
    return subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment(), timeout=BUILD_SECONDS, check=False,
    )  # fmt: skip


def test_a_kernel_whose_modules_do_not_build_is_one_line(
    root: Path, run: subprocess.CompletedProcess[str]
) -> None:
    kernel = max(path.name for path in (root / "lib/modules").iterdir())
    log = (root / "var/lib/dkms/nvidia-current-open/550.163.01/build/make.log").read_text()
    error = re.search(r"([a-z-]+\.[ch]:\d+:\d+: error: .*)", log)
    assert error, log[-2000:]
    assert run.returncode == 2, run.stdout[-3000:]
    said = " ".join(run.stdout.split())
    assert (
        f"the image's kernel, {kernel}, has no modules and driver 550.163.01 is wanted: they do not build"
        in said
    )
    assert " ".join(error[1].split())[:50] in said


def test_the_package_manager_s_words_do_not_bury_it(run: subprocess.CompletedProcess[str]) -> None:
    assert "Sub-process" not in run.stdout
    assert "dpkg: error" not in run.stdout
