"""Which machines are meant, and what is agreed to."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, load
from coldiron.provision import wanted

CLUSTER = """\
plugin: coldiron.cluster.cluster
name: hopper
domain: hopper.internal
networks:
  cluster: {subnet: 10.20.0.0/24}
defaults: {platform: metal, distribution: debian-13}
nodes:
  - {name: head01, kind: head, address: 10.20.0.1}
  - name: cpu[01-02]
    kind: cpu
    address: 10.20.0.11
    bmc: {address: 10.20.0.111, credentials: bmc_credentials}
    hardware: {sockets: 1, cores_per_socket: 8, memory_gib: 64}
    disks:
      - {use: system, serial: [S1, S2]}
      - {use: data, serial: [D1, D2]}
  - name: cpu03
    kind: cpu
    address: 10.20.0.13
    bmc: {address: 10.20.0.113, credentials: bmc_credentials}
    hardware: {sockets: 1, cores_per_socket: 8, memory_gib: 64}
    disks: [{use: system, size_gb: 960}]
"""
RECORD = {"node": "cpu01", "image": "f" * 64, "when": 0}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    (tmp_path / "cluster.yml").write_text(CLUSTER)
    return load(tmp_path / "cluster.yml")


def test_machines_are_those_with_a_bmc(cluster: Cluster) -> None:
    assert [node.name for node in wanted.machines(cluster)] == ["cpu01", "cpu02", "cpu03"]
    wanted.check(cluster, ["cpu01"])
    with pytest.raises(ColdironError, match=r"head01 cannot be installed from here: .* metal and no `bmc`"):
        wanted.check(cluster, ["head01"])
    with pytest.raises(ColdironError, match=r"has no node `cpu09`"):
        wanted.check(cluster, ["cpu09"])


def test_a_site_of_containers_has_nothing_to_install(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "cluster.yml").write_text(CLUSTER.replace("platform: metal", "platform: container"))
    with pytest.raises(ColdironError, match="no machine that can be installed from here"):
        wanted.check(load(tmp_path / "cluster.yml"), [])


def test_only_disks_that_would_be_written_are_asked_about(cluster: Cluster) -> None:
    first, third = wanted.asked(cluster, ["cpu01", "cpu03"], {"cpu01": RECORD})
    assert (first.serials, first.describes, first.record) == (("S1",), False, RECORD)
    assert (third.serials, third.describes, third.record) == ((), True, None)


def test_a_new_machine_needs_no_consent(cluster: Cluster) -> None:
    assert wanted.consent(wanted.asked(cluster, ["cpu01"], {}), [], None) == []


def test_a_machine_with_a_record_needs_its_serial(cluster: Cluster) -> None:
    asked = wanted.asked(cluster, ["cpu01"], {"cpu01": RECORD})
    with pytest.raises(ColdironError, match="add --yes S1") as refused:
        wanted.consent(asked, [], None)
    assert refused.value.exit_code is ExitCode.REFUSED
    assert wanted.consent(asked, ["S1"], None) == ["S1"]
    questions: list[str] = []

    def typed(answer: str) -> list[str]:
        return wanted.consent(asked, [], lambda question: questions.append(question) or answer)

    assert typed(" S1 ") == ["S1"]
    assert questions == ["cpu01: everything on disk S1 will be lost. Type its serial to go on"]
    with pytest.raises(ColdironError, match="that is not S1; nothing was changed"):
        typed("yes")


def test_a_serial_that_is_nobodys_is_refused_unless_a_rule_describes(cluster: Cluster) -> None:
    with pytest.raises(
        ColdironError, match=r"--yes D1: no disk of cpu01 that would be written has this serial"
    ):
        wanted.consent(wanted.asked(cluster, ["cpu01"], {}), ["D1"], None)
    assert wanted.consent(wanted.asked(cluster, ["cpu03"], {}), ["ANY"], None) == ["ANY"]


def test_what_would_be_done_is_told_by_serial(cluster: Cluster) -> None:
    first, third = wanted.asked(cluster, ["cpu01", "cpu03"], {"cpu01": RECORD})
    lines = wanted.told(first, "abc (cpu-debian-13)", ["S1"])
    assert lines[:2] == ["cpu01: image abc (cpu-debian-13)", "  disk S1: wiped and written"]
    assert lines[2].startswith("  has a record: image ffffffffffff on ")
    assert "  disk S1: written if it is blank, else refused" in wanted.told(first, "abc", [])
    assert any("described and not named" in line for line in wanted.told(third, "abc", []))
