"""What a class is made from, out of a real inventory: its roles alone, what they declare, and no secret."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from coldiron.errors import ColdironError
from coldiron.provision import bake_inputs, images

KEY = images.make_key().decode()
CLUSTER = """\
plugin: coldiron.cluster.cluster
name: bakery
domain: bakery.internal
networks: {cluster: {subnet: 10.93.0.0/24}}
features: {scheduler: slurm, home_backend: provided, containers: [podman, apptainer]}
defaults: {platform: container, distribution: debian-13}
nodes:
  - {name: head01, kind: head, address: 10.93.0.1}
  - name: "cpu[01-02]"
    kind: cpu
    address: 10.93.0.31
    hardware: {sockets: 1, cores_per_socket: 1, memory_gib: 2}
  - {name: cpu03, kind: cpu, address: 10.93.0.33, distribution: debian-12, functions: []}
  - name: gpu01
    kind: gpu
    address: 10.93.0.51
    hardware: {cores_per_socket: 1, memory_gib: 2, gpus: {model: h100-sxm5-80gb, type: h100, count: 4}}
    software: {driver: 580.95.05, kernel_module: open, cuda: ["12.9"]}
  - name: storage01
    kind: storage
    platform: metal
    address: 10.93.0.41
    mac: "02:93:00:00:00:41"
    bmc: {address: 10.93.0.141, credentials: bmc_credentials}
    disks: [{use: system, serial: S1}]
"""


@pytest.fixture(scope="module")
def inventory(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inventory")
    (folder / "cluster.yml").write_text(CLUSTER)
    variables = folder / "group_vars" / "all"
    variables.mkdir(parents=True)
    lines = "".join(f"  {line}\n" for line in KEY.splitlines())
    (variables / "all.yml").write_text(
        f"coldiron_image_key: |\n{lines}"
        "munge_key: bXVuZ2U=\nmariadb_root_password: correct-horse-battery\n"
        "slurm_dbd_database_password: correct-horse-battery\nslurm_controller_jwt_key: ''\n"
    )
    return folder


def varied(inventory: Path, target: Path, text: str) -> Path:
    """The same inventory with more variables, elsewhere: Ansible reads a file once a process."""
    shutil.copytree(inventory, target)
    (target / "group_vars" / "all" / "more.yml").write_text(text)
    return target


def test_a_class_has_the_roles_that_its_nodes_run_and_no_other(inventory):
    worker = bake_inputs.read(inventory, "cpu-debian-13")
    assert worker.hosts == ("cpu01",)
    assert "slurm_worker" in worker.roles
    assert "slurm_controller" not in worker.roles
    assert worker.distribution == "debian-13"
    head = bake_inputs.read(inventory, "head-debian-13")
    assert {"slurm_controller", "slurm_dbd", "mariadb"} <= set(head.roles)
    assert "slurm_worker" not in head.roles


def test_a_machine_s_image_has_what_changes_its_network_and_takes_it_back(inventory):
    machine = bake_inputs.read(inventory, "storage-debian-13")
    assert machine.roles[0] == "network"
    declared = next(
        task["coldiron.cluster.converge"]
        for task in machine.declared["hosts"][0]["network"]
        if isinstance(task, dict)
    )
    assert {"iproute2", "iputils-ping"} <= set(declared["packages"]) <= set(machine.packages)
    assert {file["dest"] for file in declared["files"]} == {
        "/usr/local/sbin/coldiron-network-rollback", "/etc/systemd/system/coldiron-network-rollback.service",
    }  # fmt: skip
    assert "network" not in bake_inputs.read(inventory, "cpu-debian-13").roles


def test_all_packages_are_known_before_there_is_a_node(inventory):
    found = bake_inputs.read(inventory, "cpu-debian-13").packages
    names = [package if isinstance(package, str) else package["name"] for package in found]
    assert {"chrony", "slurmd", "munge", "sudo"} <= set(names)
    assert "slurmctld" not in names
    assert len(names) == len(set(names))


def test_a_gpu_node_s_image_has_its_driver_from_a_repository_that_its_role_brings(inventory):
    """In the one transaction before the roles nobody knows that repository yet."""
    found = bake_inputs.read(inventory, "gpu-debian-13")
    assert {"gpu_driver", "gpu_fabric", "cuda", "podman", "nvidia_container_toolkit"} <= set(found.roles)
    names = {package if isinstance(package, str) else package["name"] for package in found.packages}
    assert {"podman", "slurm-wlm-basic-plugins"} & names
    assert not {"nvidia-driver-cuda", "nvidia-fabricmanager", "cuda-toolkit-12-9"} & names
    calls = [task for task in found.declared["hosts"][0]["gpu_driver"] if isinstance(task, dict)]
    declared = next(one for task in calls if (one := task.get("coldiron.cluster.converge")))
    names = [one if isinstance(one, str) else one["name"] for one in declared["packages"]]
    assert {"nvidia-driver-cuda", "dkms", "linux-headers-amd64"} <= set(names)
    assert len(names) == len(set(names))


def test_options_are_worked_out_for_the_class_s_distribution(inventory):
    old = bake_inputs.read(inventory, "cpu-debian-12")
    assert "slurm_worker" not in old.roles
    assert "firmware-intel-misc" not in old.options.firmware
    assert "firmware-intel-misc" in bake_inputs.read(inventory, "cpu-debian-13").options.firmware


def test_another_package_changes_what_is_declared_and_another_partition_does_not(inventory, tmp_path):
    before = bake_inputs.read(inventory, "cpu-debian-13")
    partition = "slurm_controller_partitions: [{name: long, nodes: ALL, default: true}]\n"
    same = bake_inputs.read(varied(inventory, tmp_path / "a", partition), "cpu-debian-13")
    assert same.declared == before.declared
    after = bake_inputs.read(varied(inventory, tmp_path / "b", "base_packages: [htop]\n"), "cpu-debian-13")
    assert after.declared != before.declared
    assert "htop" in after.packages


def test_a_pinned_version_is_told_to_the_image(inventory, tmp_path):
    pinned = varied(inventory, tmp_path / "a", "slurm_common_version: '24.11.*'\n")
    found = bake_inputs.read(pinned, "cpu-debian-13").packages
    assert {"name": "slurmd", "version": "24.11.*", "hold": True} in found


def test_nothing_secret_is_declared_nor_shown(inventory):
    found = bake_inputs.read(inventory, "head-debian-13")
    assert found.key.decode().strip() == KEY.strip()
    assert "horse" not in repr(found)
    assert "PRIVATE" not in repr(found)
    assert "horse" not in str(found.declared)


def test_an_unknown_class_names_those_that_there_are(inventory):
    with pytest.raises(
        ColdironError, match=r"no node of class cpu-debian-14; did you mean `cpu-debian-1[23]`"
    ):
        bake_inputs.read(inventory, "cpu-debian-14")


def test_a_site_without_a_signing_key_is_told_how_to_make_one(inventory, tmp_path):
    (tmp_path / "cluster.yml").write_text(CLUSTER)
    with pytest.raises(ColdironError, match=r"has no coldiron_image_key, .* type: coldiron secrets init"):
        bake_inputs.site_key(tmp_path)


def test_an_expression_that_cannot_be_worked_out_is_named(inventory, tmp_path):
    with pytest.raises(ColdironError, match="nowhere"):
        bake_inputs.read(
            varied(inventory, tmp_path / "a", "image_firmware: '{{ nowhere }}'\n"), "cpu-debian-13"
        )


def test_only_a_distribution_with_an_image_has_facts():
    assert bake_inputs.facts_of("debian-12")["distribution_release"] == "bookworm"
    with pytest.raises(ColdironError, match="rocky-9"):
        bake_inputs.facts_of("rocky-9")
