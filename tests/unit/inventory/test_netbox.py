"""NetBox's own inventory plugin with docs/examples/netbox.yml gives the groups and variables of a cluster.yml."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coldiron.inventory import Cluster, load
from tests.unit.inventory.netbox import TOKEN, NetBox, serving

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "netbox.yml"
PAGE = (ROOT / "docs" / "inventory-netbox.md").read_text(encoding="utf-8")
CLUSTER = """\
plugin: coldiron.cluster.cluster
name: hopper
domain: hopper.internal
racks: [{name: r01}]
networks:
  cluster: {subnet: 10.99.0.0/24}
  bmc: {subnet: 10.98.0.0/24}
nodes:
  - {name: head01, kind: head, address: 10.99.0.1, mac: "52:54:00:00:00:01", rack: r01, u: 40}
  - {name: head02, kind: head, address: 10.99.0.2}
  - {name: login01, kind: login, address: 10.99.0.3}
  - {name: storage01, kind: storage, address: 10.99.0.4, serial: S4471}
  - name: cpu01
    kind: cpu
    address: 10.99.0.5
    hardware: {sockets: 1, cores_per_socket: 64, threads_per_core: 2, memory_gib: 512}
  - name: gpu[01-03]
    kind: gpu
    address: 10.99.0.11
    model: dgx-h100
    bmc: {address: 10.98.0.11}
    hardware:
      sockets: 2
      cores_per_socket: 56
      threads_per_core: 2
      memory_gib: 2048
      gpus: {type: h100, count: 8}
"""
# Groups that NetBox makes none of where nobody is in them.
EMPTY = {
    *("virtual_rack", "network_managed", "netboot_cache", "bmc_ipmi", "kube_control_plane", "kube_worker"),
    *("podman", "apptainer", "docker", "enroot", "containerd"),
    *("mpi", "slurm_pam"),
    *("node_exporter", "prometheus", "alertmanager", "blackbox_exporter", "slurm_exporter"),
    *("grafana", "elasticsearch", "elasticsearch_exporter", "log_shipper", "kibana"),
}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """The same machines as a cluster.yml."""
    file = tmp_path / "written" / "cluster.yml"
    file.parent.mkdir()
    file.write_text(CLUSTER)
    return load(file)


def listed(directory: Path, api: str, token: str = TOKEN) -> subprocess.CompletedProcess[str]:
    """Ansible's own list of an inventory directory."""
    return ansible(directory, api, "ansible-inventory", "--list", token=token)


def ansible(
    directory: Path, api: str, command: str, *words: str, token: str = TOKEN
) -> subprocess.CompletedProcess[str]:
    """One of Ansible's commands with the inventory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "NETBOX_"))}
    own = {
        "NETBOX_API": api,
        "NETBOX_TOKEN": token,
        # It keeps NetBox's description of its API beside this folder.
        "ANSIBLE_LOCAL_TEMP": str(directory.parent / "tmp" / "t"),
        "ANSIBLE_CONFIG": str(directory.parent / "none.cfg"),
    }
    return subprocess.run(
        [str(Path(sys.executable).parent / command), "-i", str(directory), *words],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=directory.parent,
        env={**kept, **own},
    )


def plain(value: Any) -> Any:
    """``value`` without Ansible's mark on what came from outside."""
    if isinstance(value, dict):
        return value.get("__ansible_unsafe") or {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """An inventory directory as docs/inventory-netbox.md describes it."""
    directory = tmp_path / "inventory"
    (directory / "group_vars").mkdir(parents=True)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "none.cfg").touch()
    (directory / "netbox.yml").write_text(EXAMPLE.read_text())
    (variables,) = re.findall(r"```yaml\n(# group_vars/cluster\.yml\n.*?)```", PAGE, re.DOTALL)
    (directory / "group_vars" / "cluster.yml").write_text(variables)
    return directory


def test_netbox_gives_the_same_groups_and_variables(inventory: Path, cluster: Cluster) -> None:
    netbox = NetBox(cluster)
    with serving(netbox) as api:
        done = listed(inventory, api)
    assert (done.returncode, done.stderr) == (0, "")
    data: dict[str, Any] = plain(json.loads(done.stdout))
    for group, hosts in cluster.groups().items():
        assert data.get(group, {}).get("hosts", []) == hosts, group
        assert bool(hosts) or group in EMPTY, group
    hostvars = data["_meta"]["hostvars"]
    for node in cluster.nodes:
        found = {name: value for name, value in hostvars[node.name].items() if name.startswith("coldiron_")}
        wanted = {**node.hostvars(), **cluster.shared_vars()}
        wanted.pop("ansible_host")
        assert hostvars[node.name]["ansible_host"] == str(node.address)
        # NetBox knows a device type of every machine, cluster.yml a model only of those in the catalog.
        wanted.setdefault("coldiron_model", "server")
        wanted.pop("coldiron_gpu_model", None)
        # It is made of others when it is asked for, see below.
        found.pop("coldiron_mac")
        wanted.pop("coldiron_mac", None)
        assert found == wanted
    assert all("tag=hopper" in url for url in netbox.asked if "/dcim/devices" in url)


def test_the_mac_is_that_of_the_card_with_the_primary_address(inventory: Path, cluster: Cluster) -> None:
    with serving(NetBox(cluster)) as api:
        asked = ansible(inventory, api, "ansible", "head01,gpu01", "-m", "debug", "-a", "var=coldiron_mac")
    assert asked.returncode == 0, asked.stderr
    assert re.search(r'head01 \| SUCCESS => \{\s+"coldiron_mac": "52:54:00:00:00:01"', asked.stdout)
    assert re.search(r'gpu01 \| SUCCESS => \{\s+"coldiron_mac": null', asked.stdout)


def test_a_machine_of_another_cluster_is_left_out(inventory: Path, cluster: Cluster) -> None:
    netbox = NetBox(cluster)
    netbox.lists["dcim/devices"][-1]["tags"] = []
    with serving(netbox) as api:
        done = listed(inventory, api)
    assert json.loads(done.stdout)["kind_gpu"]["hosts"] == ["gpu01", "gpu02"]


def test_a_wrong_token_gives_no_host(inventory: Path, cluster: Cluster) -> None:
    with serving(NetBox(cluster)) as api:
        done = listed(inventory, api, token="wrong")
    assert "gpu01" not in done.stdout


def test_the_page_names_what_netbox_must_know() -> None:
    text = EXAMPLE.read_text()
    fields = set(re.findall(r"custom_fields\.(\w+)", text))
    assert fields == {
        "sockets",
        "cores_per_socket",
        "threads_per_core",
        "memory_gib",
        "gpu_type",
        "gpu_count",
    }
    tags = {"home-server", "mariadb", "netboot-server", "slurm-controller", "slurm-dbd"}
    assert [word for word in {*fields, *tags} if f"`{word}`" not in PAGE] == []
