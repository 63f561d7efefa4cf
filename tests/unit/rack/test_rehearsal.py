"""What a rehearsal's inventory is made from a site's."""

from __future__ import annotations

import contextlib
from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, load
from coldiron.rack.rehearsal import POOL, addresses, block, derived, rack_name, sample, write

SITE = """\
plugin: coldiron.cluster.cluster
name: hopper
domain: hopper.internal
rooms: {hall: {}}
racks: [{name: r01, room: hall}]
networks:
  cluster: {subnet: 10.20.0.0/22, gateway: 10.20.3.254, mtu: 9000}
  bmc: {subnet: 10.24.0.0/22}
features: {scheduler: slurm, home_backend: nfs}
nodes:
  - {name: "head[01-02]", kind: head, address: 10.20.0.1, bmc: {address: 10.24.0.1}}
  - name: storage01
    kind: storage
    address: 10.20.0.11
    functions: [home_server, nfs_server, time_server]
  - name: gpu[01-04]
    kind: gpu
    address: 10.20.2.1
    distribution: debian-12
    rack: r01
    hardware:
      sockets: 2
      cores_per_socket: 56
      threads_per_core: 2
      memory_gib: 2048
      gpus: {model: h100-sxm5-80gb, count: 8}
"""
SUBNET = IPv4Network("10.77.121.0/24")


def site(directory: Path, text: str = SITE) -> Cluster:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cluster.yml").write_text(text)
    return load(directory)


def test_every_node_comes_along_with_what_it_does(tmp_path: Path) -> None:
    cluster = site(tmp_path / "site")
    write(cluster, sample(cluster, None), SUBNET, tmp_path / "made")
    made = load(tmp_path / "made")
    assert [node.name for node in made.nodes] == [node.name for node in cluster.nodes]
    assert {node.platform for node in made.nodes} == {"container"}
    assert made.name == "hopper-rehearsal"
    assert made.domain == cluster.domain
    assert made.features.home_backend == "provided"
    without_nfs = {
        node.name: [
            name
            for name in node.functions
            if not name.startswith("nfs_") and name not in ("netboot_server", "gpu_node")
        ]
        for node in cluster.nodes
    }
    assert {node.name: list(node.functions) for node in made.nodes} == without_nfs
    hardware = {node.name: node.hostvars().get("coldiron_hardware") for node in made.nodes}
    assert hardware == {node.name: node.hostvars().get("coldiron_hardware") for node in cluster.nodes}
    assert hardware["gpu04"]["gpus"] == {"type": "h100_sxm5_80gb", "count": 8}
    assert made.node("gpu01").distribution == "debian-12"


def test_a_sample_is_the_first_of_each_group(tmp_path: Path) -> None:
    cluster = site(tmp_path)
    assert [node.name for node in sample(cluster, 1)] == ["head01", "storage01", "gpu01"]
    assert [node.name for node in sample(cluster, 3)][-3:] == ["gpu01", "gpu02", "gpu03"]


def test_a_distribution_that_the_rack_has_not_is_refused_with_its_line(tmp_path: Path) -> None:
    text = SITE.replace("debian-12", "rocky-9")
    cluster = site(tmp_path, text)
    with pytest.raises(ColdironError) as caught:
        sample(cluster, 2)
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "gpu[01-04]" in row)
    assert f"cluster.yml:{line}: gpu[01-02] runs rocky-9" in caught.value.message
    assert caught.value.exit_code is ExitCode.REFUSED


def test_addresses_keep_their_place_where_the_sites_subnet_is_as_small(tmp_path: Path) -> None:
    cluster = site(tmp_path, SITE.replace("10.20.2.1", "10.20.0.41"))
    found = addresses(cluster.nodes, cluster.subnet, SUBNET)
    assert [str(address) for address in found][:3] == ["10.77.121.1", "10.77.121.2", "10.77.121.11"]
    assert str(found[-1]) == "10.77.121.44"


def test_addresses_are_numbered_where_they_would_not_fit(tmp_path: Path) -> None:
    cluster = site(tmp_path)
    found = addresses(cluster.nodes, cluster.subnet, SUBNET)
    assert [str(address) for address in found] == [f"10.77.121.{number}" for number in range(1, 8)]


@given(
    nodes=st.integers(1, 2045),
    taken=st.lists(st.integers(0, 7).map(lambda n: IPv4Network((10 << 24 | 77 << 16 | (120 + n) << 8, 24)))),
)
def test_a_block_has_room_and_meets_nothing(nodes: int, taken: list[IPv4Network]) -> None:
    free = {IPv4Network(part) for part in POOL.subnets(new_prefix=24)} - set(taken)
    if nodes > 253 and taken:
        # Larger blocks may well have no place left: what is found, if anything is, is looked at.
        with contextlib.suppress(ColdironError):
            assert not any(block(nodes, POOL, taken).overlaps(other) for other in taken)
        return
    if not free:
        return
    found = block(nodes, POOL, taken)
    assert found.subnet_of(POOL)
    assert found.num_addresses - 3 >= nodes
    assert not any(found.overlaps(other) for other in taken)


def test_too_many_nodes_are_told_of_samples() -> None:
    with pytest.raises(ColdironError, match=r"2046 nodes do not fit .*room for 2045.*--sample"):
        block(2046, POOL, [])


def test_a_full_pool_says_how_to_go_on() -> None:
    with pytest.raises(ColdironError, match=r"no /24 of 10\.77\.120\.0/21 is free .*--subnet"):
        block(10, POOL, [IPv4Network("10.0.0.0/8")])


def test_variables_come_along_and_secrets_do_not(tmp_path: Path) -> None:
    cluster = site(tmp_path / "site")
    variables = tmp_path / "site" / "group_vars"
    (variables / "all").mkdir(parents=True)
    (tmp_path / "site" / "host_vars").mkdir()
    (variables / "all" / "users.yml").write_text("users_accounts: []\n")
    (variables / "all" / "vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n6463\n")
    (variables / "all" / ".users.yml.swp").write_text("half written")
    (variables / "virtual_rack.yml").write_text("mine: 1\n")
    (tmp_path / "site" / "host_vars" / "gpu01.yml").write_text("own: 1\n")
    made = tmp_path / "made"
    assert write(cluster, sample(cluster, 1), SUBNET, made) == ["group_vars/all/vault.yml"]
    names = sorted(path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file())
    assert names == [
        "cluster.yml",
        "group_vars/all/users.yml",
        "group_vars/virtual_rack/0.yml",
        "group_vars/virtual_rack/rehearsal.yml",
        "host_vars/gpu01.yml",
    ]
    ours = yaml.safe_load((made / "group_vars/virtual_rack/rehearsal.yml").read_text())
    assert ours["dns_isolated"] is True
    assert ours["time_upstream_servers"] == []


def test_nothing_of_the_iron_comes_along(tmp_path: Path) -> None:
    cluster = site(tmp_path)
    made = derived(cluster, cluster.nodes, SUBNET)
    assert set(made) == {"plugin", "name", "domain", "networks", "features", "defaults", "nodes"}
    assert list(made["networks"]) == ["cluster"]
    assert set(made["nodes"][-1]) == {"name", "kind", "address", "distribution", "hardware"}


@pytest.mark.parametrize("name", ["a", "hopper", "h" * 32, "h" * 21 + "-" * 11])
def test_names_stay_names(name: str, tmp_path: Path) -> None:
    cluster = site(tmp_path, SITE.replace("name: hopper", f"name: {name}"))
    assert len(rack_name(name)) <= 32
    write(cluster, sample(cluster, 1), SUBNET, tmp_path / "made")
    assert load(tmp_path / "made").name == rack_name(name)
