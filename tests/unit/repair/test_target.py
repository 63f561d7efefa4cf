"""What may be repaired, and which disks that wipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, load
from coldiron.repair import target
from coldiron.repair.machine import Kind
from tests.unit.repair.samples import CLUSTER


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    file = tmp_path / "cluster.yml"
    file.write_text(CLUSTER, encoding="utf-8")
    return load(file)


def test_disks_that_no_deploy_writes_are_not_named(cluster: Cluster) -> None:
    assert [disk.told() for disk in target.disks_of(cluster.node("gpu02"))] == ["SYS1 (system, 960 GB)"]


def test_a_container_goes_by_its_own_name(cluster: Cluster) -> None:
    (disk,) = target.disks_of(cluster.node("cpu01"))
    assert (disk.serial, disk.use) == ("cpu01", "system")


def test_each_serial_of_a_rule_is_a_disk() -> None:
    rules = [
        {"serial": ["A", "B"], "use": "system"},
        {"size_gb": 100, "count": 2, "use": "scratch"},
        {"use": "swap"},
    ]
    wiped = target.disks("n1", "metal", rules)
    assert [(disk.serial, disk.use) for disk in wiped] == [
        ("A", "system"), ("B", "system"), ("", "scratch"), ("", "scratch"), ("", "swap"),
    ]  # fmt: skip
    assert wiped[2].told() == "serial not in cluster.yml (scratch, 100 GB)"
    assert wiped[4].told() == "serial not in cluster.yml (swap)"


def test_a_disk_without_a_serial_is_agreed_to_by_the_serial_that_is_given() -> None:
    wiped = target.disks("n1", "metal", [{"serial": "A"}, {"size_gb": 100, "use": "scratch"}])
    assert target.serials("n1", wiped, ["A", "X", "Y"]) == ("A", "X")
    with pytest.raises(ColdironError, match="--yes SERIAL") as refused:
        target.serials("n1", wiped, ["A"])
    assert refused.value.exit_code is ExitCode.REFUSED


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("gpu09", Kind.REPAIR, "has no node `gpu09`"),
        ("head01", Kind.REPAIR, "slurm_controller"),
        ("gpu03", Kind.REIMAGE, "has no `bmc`"),
    ],
)
def test_what_cannot_be_repaired_is_refused(cluster: Cluster, name: str, kind: Kind, said: str) -> None:
    with pytest.raises(ColdironError) as refused:
        target.check(cluster, [name], kind)
    assert said in refused.value.message


def test_a_webhook_looks_at_a_node_without_a_bmc_as_well(cluster: Cluster) -> None:
    assert [node.name for node in target.check(cluster, ["gpu03", "gpu02"], Kind.WEBHOOK)] == [
        "gpu03",
        "gpu02",
    ]
