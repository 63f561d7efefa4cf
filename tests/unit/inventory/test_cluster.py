"""What a sound cluster.yml means: nodes, functions, groups, variables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from coldiron.errors import ColdironError
from coldiron.inventory import Cluster, InventoryError, find, load, schema
from coldiron.inventory.functions import FUNCTIONS, KINDS, Wanted, all_groups, assign
from coldiron.inventory.ranges import RangeError, expand_addresses, expand_names, fold

ROOT = Path(__file__).parents[3]
VIRTUAL = ROOT / "inventories" / "virtual" / "cluster.yml"
Write = Callable[[str | bytes], Path]


def functions_of(cluster: Cluster, name: str) -> set[str]:
    return set(cluster.node(name).functions)


def test_the_virtual_cluster() -> None:
    cluster = load(VIRTUAL)
    assert [node.name for node in cluster.expand()] == (
        ["head01", "login01", "storage01", "cpu01", "gpu01", "gpu02", "gpu03"]
    )
    assert (cluster.name, cluster.domain) == ("virtual", "virtual.internal")
    assert str(cluster.subnet) == "10.77.0.0/24"
    assert cluster.networks["cluster"].gateway == "10.77.0.254"
    assert {node.platform for node in cluster.expand()} == {"container"}
    assert str(cluster.node("gpu03").address) == "10.77.0.43"
    assert cluster.directory == VIRTUAL.parent


def test_the_virtual_cluster_fits_the_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(yaml.safe_load(VIRTUAL.read_text()), schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"plugin": "coldiron.cluster.cluster", "nam": "x"}, schema())
    assert json.dumps(schema())


def test_every_group_exists(write: Write, sound: str) -> None:
    groups = load(write(sound)).groups()
    assert list(groups) == all_groups()
    assert groups["cluster"] == ["head01", "storage01", "gpu01", "gpu02", "gpu03", "gpu04"]
    assert groups["kind_gpu"] == groups["slurm_worker"] == ["gpu01", "gpu02", "gpu03", "gpu04"]
    assert groups["kind_login"] == groups["virtual_rack"] == groups["slurm_login"] == []


def test_functions_by_kind(write: Write, sound: str) -> None:
    cluster = load(write(sound))
    assert functions_of(cluster, "head01") == {
        *("dns_server", "time_server", "mariadb", "slurm_controller", "slurm_dbd", "nfs_client"),
    }
    assert functions_of(cluster, "storage01") == {"home_server", "nfs_server"}
    assert functions_of(cluster, "gpu02") == {"slurm_worker", "nfs_client", "gpu_node"}


def test_homes_that_are_provided_need_no_nfs(write: Write, sound: str) -> None:
    cluster = load(write(sound + "features: {home_backend: provided}\n"))
    groups = cluster.groups()
    assert groups["nfs_server"] == groups["nfs_client"] == []
    assert groups["home_server"] == ["storage01"]


def test_no_scheduler_no_slurm(write: Write, sound: str) -> None:
    groups = load(write(sound + "features: {scheduler: none}\n")).groups()
    assert not any(groups[name] for name, function in FUNCTIONS.items() if function.scheduler)


def test_a_second_head_serves_names_and_time_only() -> None:
    first, second = assign([Wanted("head", None), Wanted("head", None)], "slurm", "provided")
    assert set(first) == {
        *("dns_server", "time_server", "home_server", "mariadb", "slurm_controller", "slurm_dbd")
    }
    assert set(second) == {"dns_server", "time_server"}


def test_gpus_and_containers() -> None:
    nodes = [
        Wanted("head", None),
        Wanted("login", None),
        Wanted("gpu", None),
        Wanted("gpu", ("slurm_worker",)),
    ]
    _, login, gpu, own = assign(nodes, "slurm", "provided", "managed", ["enroot", "podman"])
    assert login == ("slurm_login", "podman", "enroot")
    assert gpu == ("slurm_worker", "gpu_node", "podman", "enroot")
    assert own == ("slurm_worker",)
    _, _, gpu, _ = assign(nodes, "kubernetes", "provided", "provided", ["enroot"])
    assert gpu == ("kube_worker",)


def test_mpi_and_who_may_log_in() -> None:
    nodes = [
        Wanted("head", None),
        Wanted("login", None),
        Wanted("cpu", None),
        Wanted("cpu", ("slurm_worker",)),
    ]
    head, login, cpu, own = assign(nodes, "slurm", "provided", extras=["mpi"], worker_logins="with_job")
    assert not {"mpi", "slurm_pam"} & set(head)
    assert login == ("slurm_login", "mpi")
    assert cpu == ("slurm_worker", "mpi", "slurm_pam")
    assert own == ("slurm_worker",)
    _, _, cpu, _ = assign(nodes, "kubernetes", "provided", extras=["mpi"], worker_logins="with_job")
    assert cpu == ("kube_worker",)


def test_monitoring_is_everybody_s_and_its_servers_the_first_head_s() -> None:
    nodes = [Wanted("head", None), Wanted("head", None), Wanted("gpu", ("slurm_worker",))]
    first, second, own = assign(nodes, "slurm", "provided", monitoring="prometheus")
    watching = {"node_exporter", "prometheus", "alertmanager", "blackbox_exporter", "slurm_exporter"}
    assert watching <= set(first)
    assert watching & set(second) == {"node_exporter"}
    assert own == ("slurm_worker", "node_exporter")
    nodes[2] = Wanted("gpu", ("prometheus", "alertmanager"))
    first, _, own = assign(nodes, "none", "provided", monitoring="prometheus")
    assert watching & set(first) == {"node_exporter", "blackbox_exporter"}
    assert own == ("node_exporter", "prometheus", "alertmanager")


def test_a_second_storage_node_has_no_homes() -> None:
    head, first, second = assign(
        [Wanted("head", None), Wanted("storage", None), Wanted("storage", None)], "slurm", "nfs"
    )
    assert "home_server" not in head
    assert set(first) == {"home_server", "nfs_server"}
    assert set(second) == {"nfs_client"}


def test_own_functions_replace_the_kind_s() -> None:
    head, storage, cpu = assign(
        [Wanted("head", None), Wanted("storage", ("mariadb", "home_server")), Wanted("cpu", ())],
        "slurm",
        "provided",
    )
    assert "mariadb" not in head
    assert storage == ("home_server", "mariadb")
    assert cpu == ()


def test_a_named_nfs_server_exports() -> None:
    head, storage = assign(
        [Wanted("head", ("nfs_server", "dns_server")), Wanted("storage", None)], "slurm", "nfs"
    )
    assert head == ("dns_server", "nfs_server")
    assert storage == ("home_server", "nfs_client")


def test_groups_and_hosts_share_no_name() -> None:
    assert len(set(all_groups())) == len(all_groups())
    assert {f"kind_{kind}" for kind in KINDS} < set(all_groups())


def test_hostvars_are_plain_json(write: Write, sound: str) -> None:
    text = sound.replace("    hardware", "    bmc: {address: 10.98.0.11}\n    hardware")
    cluster = load(write(text))
    hostvars = cluster.node("gpu02").hostvars()
    assert hostvars == {
        "ansible_host": "10.99.0.12",
        "coldiron_address": "10.99.0.12",
        "coldiron_kind": "gpu",
        "coldiron_platform": "metal",
        "coldiron_distribution": "debian-13",
        "coldiron_bmc_address": "10.98.0.12",
        "coldiron_bmc_protocol": "redfish",
        "coldiron_boot_firmware": "uefi",
        "coldiron_boot_path": "pxe",
        "coldiron_image_class": "gpu-debian-13",
        "coldiron_hardware": {
            "sockets": 1,
            "cores_per_socket": 8,
            "threads_per_core": 1,
            "memory_mib": 64 * 1024,
            "gpus": {"type": "h100", "count": 4},
        },
    }
    assert json.loads(json.dumps(hostvars)) == hostvars
    assert "coldiron_hardware" not in cluster.node("head01").hostvars()
    assert cluster.node("head01").memory_mib == 0
    shared = cluster.shared_vars()
    assert (
        json.loads(json.dumps(shared))
        == shared
        == {
            "coldiron_cluster": "hopper",
            "coldiron_domain": "hopper.internal",
            "coldiron_networks": {"cluster": {"subnet": "10.99.0.0/24", "gateway": "10.99.0.254", "dns": []}},
            "coldiron_features": {
                "scheduler": "slurm",
                "home_backend": "nfs",
                "gpus": "managed",
                "containers": [],
                "mpi": "none",
                "worker_logins": "anybody",
                "monitoring": "none",
                "logging": "none",
                "dashboards": "none",
                "log_viewer": "none",
            },
        }
    )


def test_machines_with_a_bmc_are_bare_metal_and_a_head_installs_them(write: Write, sound: str) -> None:
    text = sound.replace("    hardware", "    bmc: {address: 10.98.0.11}\n    hardware")
    cluster = load(write(text))
    groups = cluster.groups()
    assert groups["bare_metal"] == ["gpu01", "gpu02", "gpu03", "gpu04"]
    assert groups["netboot_server"] == ["head01"]
    assert cluster.node("gpu01").image_class == "gpu-debian-13"
    assert not load(write(sound)).node("gpu01").bare_metal


def test_without_machines_nobody_serves_their_boot(write: Write, sound: str) -> None:
    for text in (
        sound,
        sound.replace("    hardware", "    bmc: {address: 10.98.0.11}\n    hardware")
        + "defaults: {platform: container}\n",
    ):
        groups = load(write(text)).groups()
        assert groups["bare_metal"] == groups["netboot_server"] == []


def test_a_node_that_names_the_function_serves_the_boot(write: Write, sound: str) -> None:
    text = sound.replace("    hardware", "    bmc: {address: 10.98.0.11}\n    hardware")
    text = text.replace(
        "    kind: storage", "    kind: storage\n    functions: [home_server, netboot_server]"
    )
    assert load(write(text)).groups()["netboot_server"] == ["storage01"]


def test_how_a_machine_boots(write: Write, sound: str) -> None:
    own = (
        "    bmc: {address: 10.98.0.11, protocol: ipmi}\n    boot: {firmware: bios}\n"
        "    overrides:\n      gpu02: {bmc: {protocol: redfish}, boot: {path: http}}\n    hardware"
    )
    cluster = load(write(sound.replace("    hardware", own)))
    first, second = cluster.node("gpu01").hostvars(), cluster.node("gpu02").hostvars()
    assert (first["coldiron_bmc_protocol"], first["coldiron_boot_firmware"]) == ("ipmi", "bios")
    assert (second["coldiron_bmc_protocol"], second["coldiron_boot_firmware"]) == ("redfish", "uefi")
    assert (first["coldiron_boot_path"], second["coldiron_boot_path"]) == ("pxe", "http")
    with pytest.raises(InventoryError, match="a BIOS cannot boot over HTTP"):
        load(write(sound + "defaults: {boot: {firmware: bios, path: http}}\n"))


def test_hardware_without_gpus_says_so(write: Write, sound: str) -> None:
    text = sound.replace("kind: gpu", "kind: cpu").replace(", gpus: {type: h100, count: 4}", "")
    text = text.replace("memory_gib: 64", "memory_gib: 1.5, threads_per_core: 2, sockets: 2")
    hardware = load(write(text)).node("gpu01").hostvars()["coldiron_hardware"]
    assert hardware["gpus"] is None
    assert (hardware["memory_mib"], hardware["sockets"], hardware["threads_per_core"]) == (1536, 2, 2)


def test_defaults_hold_until_a_group_says_otherwise(write: Write, sound: str) -> None:
    text = sound.replace("    kind: storage", "    kind: storage\n    distribution: rocky-9")
    text += "defaults:\n  platform: machine\n  distribution: debian-12\n"
    text += "  hardware: {cores_per_socket: 2, memory_gib: 2}\n"
    cluster = load(write(text))
    head, storage = cluster.node("head01"), cluster.node("storage01")
    assert (head.platform, head.distribution, storage.distribution) == ("machine", "debian-12", "rocky-9")
    assert head.hardware is not None
    assert head.hardware.cores_per_socket == 2
    gpu = cluster.node("gpu01").hardware
    assert gpu is not None
    assert gpu.cores_per_socket == 8


def test_macs_follow_the_nodes(write: Write, sound: str) -> None:
    macs = ", ".join(f'"52-54-00-12-34-5{n}"' for n in range(4))
    cluster = load(write(sound.replace("    hardware", f"    mac: [{macs}]\n    hardware")))
    assert cluster.node("gpu03").mac == "52:54:00:12:34:52"
    assert cluster.node("gpu03").hostvars()["coldiron_mac"] == "52:54:00:12:34:52"
    single = sound.replace("    kind: head\n", '    kind: head\n    mac: "52:54:00:AB:cd:ef"\n')
    assert load(write(single)).node("head01").mac == "52:54:00:ab:cd:ef"


def test_an_address_follows_its_node_s_number(write: Write, sound: str) -> None:
    whole = {node.name: node.address for node in load(write(sound)).expand()}
    without = load(write(sound.replace("gpu[01-04]", "gpu[01,03-04]")))
    assert {node.name: node.address for node in without.expand()} == (
        {name: address for name, address in whole.items() if name != "gpu02"}
    )


@pytest.mark.parametrize(
    ("names", "addresses", "given"),
    [
        ("gpu[01-03]", "10.0.0.1", "1 2 3"),
        ("gpu[01,03]", "10.0.0.1", "1 3"),
        ("gpu[1-5/2]", "10.0.0.1", "1 3 5"),
        ("gpu[8-11]", "10.0.0.1", "1 2 3 4"),
        ("gpu[01-03]", "10.0.0.[7-9]", "7 8 9"),
        ("gpu[01-03]", "10.0.0.[9,1,30]", "1 9 30"),
        ("gpu[01-02]", "10.0.0.5,10.0.0.3", "3 5"),
        ("r[1-2]n[1-2]", "10.0.0.1", "1 2 3 4"),
        ("login,viz", "10.0.0.1", "1 2"),
        ("node07a", "10.0.0.1", "1"),
    ],
)
def test_addresses(names: str, addresses: str, given: str) -> None:
    found = expand_addresses(addresses, expand_names(names))
    assert [str(address).removeprefix("10.0.0.") for address in found] == given.split()


@pytest.mark.parametrize("text", ["@all", "@*", "gpu1,@all", "@sources:all"])
def test_a_range_asks_no_group_source(text: str) -> None:
    with pytest.raises(RangeError):
        expand_names(text)


def test_fold() -> None:
    assert fold(["gpu01", "gpu02", "gpu04"]) == "gpu[01-02,04]"
    assert fold([]) == ""


def test_node_by_name(write: Write, sound: str) -> None:
    cluster = load(write(sound))
    assert "gpu01" in cluster
    assert "gpu09" not in cluster
    with pytest.raises(ColdironError, match=r"has no node `gpu1`; did you mean `gpu01`\?"):
        cluster.node("gpu1")


def test_find(tmp_path: Path, write: Write, sound: str) -> None:
    with pytest.raises(ColdironError, match=r"has no cluster\.yml"):
        find(tmp_path)
    file = write(sound)
    assert find(tmp_path) == find(file) == file
    assert load(tmp_path).path == file
    (tmp_path / "cluster.yaml").write_text(sound)
    with pytest.raises(ColdironError, match="keep one of them"):
        find(tmp_path)
    with pytest.raises(ColdironError, match="does not exist"):
        find(tmp_path / "none")
    hosts = tmp_path / "hosts.yml"
    hosts.touch()
    with pytest.raises(ColdironError, match=r"not called cluster\.yml"):
        find(hosts)


def test_a_thousand_nodes_are_read_at_once(write: Write, sound: str) -> None:
    text = sound.replace("10.99.0.0/24", "10.99.0.0/16").replace("gpu[01-04]", "gpu[0001-1000]")
    cluster = load(write(text.replace("10.99.0.11", "10.99.1.0").replace("10.99.0.254", "10.99.255.254")))
    assert len(cluster.expand()) == 1002
    assert str(cluster.node("gpu1000").address) == "10.99.4.231"


def test_a_wrong_block_hides_no_other_s_faults(write: Write, sound: str) -> None:
    text = sound.replace("kind: head", "kind: haed").replace("10.99.0.11", "10.98.0.254")
    with pytest.raises(InventoryError) as caught:
        load(write(text + "features: {scheduler: slrum}\n"))
    assert len(caught.value.findings) == 3
