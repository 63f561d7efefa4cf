"""The driver has the instances that are declared, and a boot makes them anew."""

from __future__ import annotations

import json

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_mig


@pytest.fixture
def ask(host):
    """Ask the node, in the words of gpu_mig."""

    def run(words):
        answer = host.run(" ".join(["%s"] * len(words)), *words)
        return answer.rc, answer.stdout, answer.stderr

    return run


def test_the_gpus_are_divided_as_declared(ask, opts):
    changes = gpu_mig.plan(gpu_mig.read_gpus(ask), opts["__gpu_mig_layout"])
    assert [change.why for change in changes] == []


def test_every_instance_can_be_asked_for(host, opts):
    """A job's process gets an instance by the identifier that the driver lists."""
    wanted = sorted(name for profiles in opts["__gpu_mig_layout"] for name in profiles)
    listed = [line.split() for line in host.check_output("nvidia-smi -L").splitlines()]
    assert sorted(words[1] for words in listed if words[0] == "MIG") == wanted
    assert all("MIG-" in words[-1] for words in listed if words[0] == "MIG")


def test_a_boot_makes_them_anew(host, opts):
    unit = host.service("coldiron-gpu-mig")
    assert unit.is_enabled
    assert unit.is_running
    written = json.loads(host.file("/etc/coldiron/gpu-mig.json").content_string)
    assert written == {"layout": opts["__gpu_mig_layout"]}


def test_jobs_wait_for_it(host):
    before = host.check_output("systemctl show --property Before --value coldiron-gpu-mig").split()
    assert "slurmd.service" in before


def test_the_program_finds_nothing_to_do(host):
    answer = host.run("/usr/bin/python3 -I -S /usr/lib/coldiron/gpu_mig.py /etc/coldiron/gpu-mig.json")
    assert (answer.rc, answer.stdout, answer.stderr) == (0, "", "")
