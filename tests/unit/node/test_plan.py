"""Adding and removing, as far as the inventory alone tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, load
from coldiron.node import plan
from tests.unit.node.samples import CLUSTER

HEAD = """\
plugin: coldiron.cluster.cluster
name: hopper
domain: hopper.internal
networks:
  cluster:
    subnet: 10.99.0.0/24
nodes:
  - name: head01
    kind: head
    address: 10.99.0.1
"""
HARDWARE = "    hardware: {cores_per_socket: 8, memory_gib: 64, gpus: {type: h100, count: 4}}\n"
Write = Callable[[str], Cluster]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def _write(groups: str) -> Cluster:
        file = tmp_path / "cluster.yml"
        file.write_text(HEAD + groups)
        return load(file)

    return _write


@pytest.fixture
def virtual(tmp_path: Path) -> Cluster:
    file = tmp_path / "cluster.yml"
    file.write_text(CLUSTER)
    return load(file)


def test_named() -> None:
    assert plan.named(["gpu[02-03]", "cpu01", "gpu02"]) == ["gpu02", "gpu03", "cpu01"]


@pytest.mark.parametrize("argument", ["gpu[02", "GPU02", "gpu_02", "@all", "", "gpu02;reboot", "all:!head01"])
def test_what_is_no_node_name(argument: str) -> None:
    with pytest.raises(ColdironError, match=r"write|name"):
        plan.named([argument])


def test_limit() -> None:
    assert plan.limit(["gpu04"]) == ["gpu04", "dns_server", "slurm_controller"]


def test_added_nodes_are_in_the_inventory(virtual: Cluster) -> None:
    plan.check_added(virtual, ["gpu01", "cpu01"])
    with pytest.raises(ColdironError) as caught:
        plan.check_added(virtual, ["gpu04", "gpuu01", "gpu01"])
    first, second = caught.value.message.splitlines()
    assert "has no node `gpu04`; to add it, write line 28 as `name: gpu[01-04]`" in first
    assert "did you mean `gpu03`?" in first
    assert second.endswith("a new node is written there first; did you mean `gpu01`?")


def test_added_containers_are_in_the_rack_that_is_up(virtual: Cluster) -> None:
    plan.check_racked(virtual, ["gpu01"], frozenset())
    plan.check_racked(virtual, ["gpu01"], frozenset({"gpu01", "head01"}))
    with pytest.raises(ColdironError, match=r"gpu\[01-02\] is in .* type: coldiron rack up -i "):
        plan.check_racked(virtual, ["gpu01", "gpu02"], frozenset({"head01"}))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["head01"], "head01 is the only dns_server of virtual"),
        (["storage01"], "storage01 is the home_server of virtual"),
        (["cpu01", "gpu01", "gpu02", "gpu03"], "cpu01,gpu[01-03] are the only slurm_worker of virtual"),
    ],
)
def test_what_the_cluster_cannot_be_without_stays(virtual: Cluster, names: list[str], says: str) -> None:
    with pytest.raises(ColdironError) as caught:
        plan.leaving(virtual, names)
    assert caught.value.message.startswith(says)
    assert caught.value.exit_code == ExitCode.REFUSED


def test_nodes_that_have_left_the_file_can_leave(virtual: Cluster) -> None:
    leaving = plan.leaving(virtual, ["gpu04", "gpu03"])
    assert (leaving.names, leaving.known, leaving.unknown) == (["gpu04", "gpu03"], ["gpu03"], ["gpu04"])


def test_to_delete_names_lines(virtual: Cluster) -> None:
    lines = CLUSTER.splitlines()
    (whole,) = plan.to_delete(virtual, ["cpu01"])
    assert whole.endswith("cluster.yml:20: delete lines 20 to 25 (`name: cpu01`)")
    assert lines[19] == "  - name: cpu01"
    assert lines[24] == "      memory_gib: 2"
    assert lines[25] == ""
    assert plan.to_delete(virtual, ["gone01"]) == []


@pytest.mark.parametrize(
    ("group", "going", "changes"),
    [
        ("name: gpu[01-04]\n    address: 10.99.0.11", "gpu02", "`name: gpu[01,03-04]`"),
        ("name: gpu[01-04]\n    address: 10.99.0.11", "gpu04", "`name: gpu[01-03]`"),
        ("name: gpu[01-04]\n    address: 10.99.0.11", "gpu01", "`name: gpu[02-04]`, `address: 10.99.0.12`"),
        (
            "name: gpu[01-04]\n    address: 10.99.0.11",
            "gpu[01,03]",
            "`name: gpu[02,04]`, `address: 10.99.0.12`",
        ),
        (
            "name: gpu[01-03]\n    address: 10.99.0.[11-13]",
            "gpu02",
            "`name: gpu[01,03]`, `address: 10.99.0.11`",
        ),
        (
            "name: gpu[01-03]\n    address: 10.99.0.[11,15,20]",
            "gpu03",
            "`name: gpu[01-02]`, `address: 10.99.0.[11,15]`",
        ),
        (
            "name: gpu01,gpu03,viz\n    address: 10.99.0.11",
            "gpu03",
            "`name: gpu01,viz`, `address: 10.99.0.[11,13]`",
        ),
        (
            "name: gpu[01-02]\n    address: 10.99.0.11\n    bmc: {address: 10.98.0.11}",
            "gpu01",
            "`name: gpu02`, `address: 10.99.0.12`, `bmc: {address: 10.98.0.12}`",
        ),
        (
            'name: gpu[01-02]\n    address: 10.99.0.11\n    mac: ["52:54:00:00:00:01", "52:54:00:00:00:02"]',
            "gpu02",
            "`name: gpu01`, and remove 52:54:00:00:00:02 from `mac`",
        ),
    ],
)
def test_what_to_write_when_part_of_a_range_goes(write: Write, group: str, going: str, changes: str) -> None:
    cluster = write(f"  - {group}\n    kind: gpu\n{HARDWARE}")
    (advice,) = plan.to_delete(cluster, plan.named([going]))
    assert advice.startswith("cluster.yml:11: in `name: ")
    assert advice.endswith(f" write {changes}")


def _range(name: str, address: str) -> str:
    return f"  - name: {name}\n    kind: gpu\n    address: {address}\n{HARDWARE}"


@pytest.mark.parametrize("going", ["gpu01", "gpu02", "gpu04", "gpu[01-02]", "gpu[01,03]", "gpu[02-04]"])
def test_who_stays_keeps_its_address(write: Write, going: str) -> None:
    """What is advised, written down, gives every other node the address that it had."""
    before = write(_range("gpu[01-04]", "10.99.0.11"))
    names = plan.named([going])
    (advice,) = plan.to_delete(before, names)
    written = dict(part.strip("`").split(": ") for part in advice.split(" write ")[1].split(", "))
    after = write(_range(written["name"], written.get("address", "10.99.0.11")))
    assert {node.name: node.address for node in after.expand()} == (
        {node.name: node.address for node in before.expand() if node.name not in names}
    )
