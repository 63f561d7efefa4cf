"""The inventory plugin as a user meets it: through Ansible's own commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldiron.inventory import load
from coldiron.inventory.model import ClusterFile

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
BROKEN = Path(__file__).parent / "bad" / "many-at-once.yml"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ansible(tmp_path: Path) -> Run:
    """Runs one of Ansible's commands, with the checkout's ansible.cfg or (``config=False``) with none."""

    def _run(*command: str, config: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANSIBLE_", "COLDIRON_"))
        }
        kept["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg" if config else tmp_path / "none.cfg")
        return subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={**kept, **environment},
        )

    (tmp_path / "none.cfg").touch()
    return _run


@pytest.fixture
def inventory(tmp_path: Path, sound: str) -> Path:
    """An inventory directory with everything that may lie in one."""
    directory = tmp_path / "inventories" / "hopper"
    (directory / "group_vars" / "all").mkdir(parents=True)
    (directory / "host_vars").mkdir()
    (directory / ".rack").mkdir()
    (directory / "cluster.yml").write_text(sound)
    (directory / "group_vars" / "slurm_worker.yml").write_text("from_group: worker\n")
    (directory / "group_vars" / "all" / "site.yml").write_text("from_all: everyone\n")
    (directory / "host_vars" / "gpu02.yml").write_text("from_host: second\n")
    (directory / ".vault-password").write_text("word\n")
    (directory / ".rack" / "hosts.yml").write_text("none: [of, this: is an inventory\n")
    (directory / "README.md").write_text("# Hopper\n")
    return directory


def listed(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    data: dict[str, Any] = json.loads(done.stdout)
    return data


@pytest.mark.parametrize(
    ("config", "name"), [(True, ""), (False, "cluster.yml")], ids=["ansible.cfg", "bare"]
)
def test_list(ansible: Run, inventory: Path, config: bool, name: str) -> None:
    data = listed(ansible("ansible-inventory", "-i", str(inventory / name), "--list", config=config))
    assert data["kind_gpu"]["hosts"] == ["gpu01", "gpu02", "gpu03", "gpu04"]
    assert {"virtual_rack", "slurm_login"} <= set(data["all"]["children"])
    hostvars = data["_meta"]["hostvars"]
    assert set(hostvars) == {"head01", "storage01", "gpu01", "gpu02", "gpu03", "gpu04"}
    assert hostvars["gpu02"]["ansible_host"] == "10.99.0.12"
    assert hostvars["gpu02"]["coldiron_cluster"] == "hopper"
    assert hostvars["gpu02"]["coldiron_features"] == {
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
    }
    assert (hostvars["gpu02"]["from_group"], hostvars["gpu02"]["from_host"]) == ("worker", "second")
    assert "from_group" not in hostvars["head01"]
    assert all(one["from_all"] == "everyone" for one in hostvars.values())
    assert not any("coldiron_rack" in one for one in hostvars.values())


def test_a_cap_that_the_circuit_decides_reaches_the_nodes(ansible: Run) -> None:
    data = listed(ansible("ansible-inventory", "-i", str(ROOT / "inventories/starter/cluster.yml"), "--list"))
    hostvars = data["_meta"]["hostvars"]
    assert hostvars["ws01"]["coldiron_gpu_cap_watts"] == hostvars["ws02"]["coldiron_gpu_cap_watts"] > 100
    assert "coldiron_gpu_cap_watts" not in hostvars["head01"]


def test_name_servers_of_the_network_are_asked_unless_group_vars_say_others(
    ansible: Run, inventory: Path
) -> None:
    file = inventory / "cluster.yml"
    text = file.read_text()
    assert "subnet: 10.99.0.0/24" in text
    file.write_text(text.replace("subnet: 10.99.0.0/24", "subnet: 10.99.0.0/24\n    dns: [192.0.2.53]"))
    shown = listed(ansible("ansible-inventory", "-i", str(inventory), "--host", "head01"))
    assert shown["dns_forwarders"] == ["192.0.2.53"]
    (inventory / "group_vars" / "all" / "dns.yml").write_text("dns_forwarders: [192.0.2.99]\n")
    shown = listed(ansible("ansible-inventory", "-i", str(inventory), "--host", "head01"))
    assert shown["dns_forwarders"] == ["192.0.2.99"]


def test_graph_and_limit(ansible: Run, inventory: Path) -> None:
    graph = ansible("ansible-inventory", "-i", str(inventory), "--graph")
    assert "  |--@nfs_client:\n  |  |--head01\n" in graph.stdout
    hosts = ansible("ansible", "slurm_worker", "-i", str(inventory), "--limit", "gpu02,gpu03", "--list-hosts")
    assert hosts.stdout.split() == ["hosts", "(2):", "gpu02", "gpu03"]


@pytest.mark.parametrize("config", [True, False], ids=["ansible.cfg", "no-ansible.cfg"])
def test_a_broken_file_stops_the_run(ansible: Run, inventory: Path, config: bool) -> None:
    (inventory / "cluster.yml").write_text(BROKEN.read_text())
    done = ansible("ansible", "all", "-i", str(inventory), "-m", "ping", config=config)
    assert done.returncode == 4
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == "[ERROR]: 8 things to mend before anything runs"
    assert lines[1].endswith("/cluster.yml:10: unknown key `nam`; did you mean `name`? [CI101]")
    # Each finding once, on its line, and nothing else.
    assert sum("cluster.yml:" in line for line in lines) == 8 == len([line for line in lines if line]) - 1


@pytest.mark.parametrize("config", [True, False], ids=["ansible.cfg", "no-ansible.cfg"])
def test_a_file_that_is_not_yaml_stops_or_marks_the_run(ansible: Run, inventory: Path, config: bool) -> None:
    (inventory / "cluster.yml").write_text("plugin: coldiron.cluster.cluster\nnodes:\n\t- name: head01\n")
    done = ansible("ansible-inventory", "-i", str(inventory), "--list", config=config)
    assert "Traceback" not in done.stderr
    if config:
        assert done.returncode == 4
        assert "cluster.yml:3: a tab indents this line" in done.stderr
    else:
        # Ansible's own reader is first here and only warns: the stages refuse for want of the marker.
        assert "coldiron_cluster" not in done.stdout
        assert "cluster.yml" in done.stderr


def test_other_files_are_left_to_other_plugins(ansible: Run, tmp_path: Path, sound: str) -> None:
    (tmp_path / "hosts.yml").write_text("all:\n  hosts:\n    gpu01:\n      coldiron_cluster: by-hand\n")
    data = listed(ansible("ansible-inventory", "-i", str(tmp_path / "hosts.yml"), "--list"))
    assert data["_meta"]["hostvars"]["gpu01"]["coldiron_cluster"] == "by-hand"
    # A cluster.yml of something else is not claimed either.
    (tmp_path / "cluster.yml").write_text("all:\n  hosts:\n    db01: {}\n")
    assert listed(ansible("ansible-inventory", "-i", str(tmp_path / "cluster.yml"), "--list"))["ungrouped"]


def test_a_file_that_cluster_yml_names_is_no_inventory(ansible: Run, inventory: Path, sound: str) -> None:
    """Ansible tries every file of the directory: what cluster.yml names is neither an inventory nor a failure."""
    folder = inventory / "more"
    folder.mkdir()
    (inventory / "cluster.yml").write_text(
        f"{sound}\nsite: {{catalog: [catalog.yml, more/own.yml]}}\n# nodes_csv: nodes.csv\n"
    )
    (inventory / "catalog.yml").write_text("gpus: {}\n")
    (folder / "own.yml").write_text("servers: {}\n")
    (inventory / "nodes.csv").write_text("name,mac\ngpu01,52:54:00:00:00:01\n")
    data = listed(ansible("ansible-inventory", "-i", str(inventory), "--list"))
    assert not {"gpus", "servers", "ungrouped"} & set(data)
    # One that nothing names is still Ansible's to judge, and it sees a host in every line.
    (inventory / "other.csv").write_text("name,mac\n")
    assert listed(ansible("ansible-inventory", "-i", str(inventory), "--list"))["ungrouped"]


def test_cache_is_used_and_never_stale(ansible: Run, inventory: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    settings = {
        "ANSIBLE_INVENTORY_CACHE": "true",
        "ANSIBLE_INVENTORY_CACHE_PLUGIN": "ansible.builtin.jsonfile",
        "ANSIBLE_INVENTORY_CACHE_CONNECTION": str(cache),
    }
    command = ("ansible-inventory", "-i", str(inventory), "--list")
    first = listed(ansible(*command, **settings))
    entries = list(cache.iterdir())
    assert len(entries) == 1
    assert listed(ansible(*command, **settings)) == first
    # What the cache says is believed ...
    entries[0].write_text(entries[0].read_text().replace("10.99.0.13", "10.99.0.130"))
    changed = listed(ansible(*command, **settings))
    assert changed["_meta"]["hostvars"]["gpu03"]["ansible_host"] == "10.99.0.130"
    # ... until the file is edited, or the cache flushed.
    assert listed(ansible(*command, "--flush-cache", **settings)) == first
    file = inventory / "cluster.yml"
    file.write_text(file.read_text().replace("10.99.0.11", "10.99.0.21"))
    edited = listed(ansible(*command, **settings))
    assert edited["_meta"]["hostvars"]["gpu03"]["ansible_host"] == "10.99.0.23"


def with_table(inventory: Path) -> None:
    """Let cluster.yml name a CSV file and a catalog beside it, both of which Ansible would read as inventories."""
    with (inventory / "cluster.yml").open("a") as file:
        file.write("nodes_csv: nodes.csv\nsite: {catalog: [catalog.yml]}\n")
    (inventory / "nodes.csv").write_text("name,serial\ngpu02,S2\n")
    (inventory / "catalog.yml").write_text("gpus: {}\n")


def test_files_that_the_cluster_names_are_no_inventories(ansible: Run, inventory: Path) -> None:
    with_table(inventory)
    data = listed(ansible("ansible-inventory", "-i", str(inventory), "--list"))
    assert set(data["_meta"]["hostvars"]) == {"head01", "storage01", "gpu01", "gpu02", "gpu03", "gpu04"}
    assert data["_meta"]["hostvars"]["gpu02"]["coldiron_serial"] == "S2"
    assert not {"gpus", "ungrouped"} & set(data)
    # A file that it does not name is still one.
    (inventory / "more.yml").write_text("all: {hosts: {db01: {}}}\n")
    assert "db01" in listed(ansible("ansible-inventory", "-i", str(inventory), "--list"))["_meta"]["hostvars"]


def test_the_cache_sees_an_edit_of_the_table(ansible: Run, inventory: Path, tmp_path: Path) -> None:
    with_table(inventory)
    settings = {
        "ANSIBLE_INVENTORY_CACHE": "true",
        "ANSIBLE_INVENTORY_CACHE_PLUGIN": "ansible.builtin.jsonfile",
        "ANSIBLE_INVENTORY_CACHE_CONNECTION": str(tmp_path / "cache"),
    }
    for serial in ("S2", "S3"):
        (inventory / "nodes.csv").write_text(f"name,serial\ngpu02,{serial}\n")
        data = listed(ansible("ansible-inventory", "-i", str(inventory), "--list", **settings))
        assert data["_meta"]["hostvars"]["gpu02"]["coldiron_serial"] == serial


def test_a_wrong_table_stops_the_run_on_its_line(ansible: Run, inventory: Path) -> None:
    with_table(inventory)
    (inventory / "nodes.csv").write_text("name,serial\ngpu09,S2\n")
    done = ansible("ansible", "all", "-i", str(inventory), "-m", "ping")
    assert done.returncode == 4
    assert "nodes.csv:2: there is no node `gpu09`" in done.stderr


def test_cache_can_be_asked_for_in_the_file(ansible: Run, inventory: Path, tmp_path: Path) -> None:
    with (inventory / "cluster.yml").open("a") as file:
        file.write(
            f"cache: true\ncache_plugin: ansible.builtin.jsonfile\ncache_connection: {tmp_path / 'cache'}\n"
        )
    listed(ansible("ansible-inventory", "-i", str(inventory), "--list"))
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_the_rack_s_nodes_say_how_to_reach_them(ansible: Run, inventory: Path) -> None:
    state = {
        "name": "hopper",
        "sockets": "/run/x",
        "home_backend": "provided",
        "apt_mirror": "http://10.99.0.254/debian",
        "apt_proxy": None,
        "nodes": {"head01": {}, "gpu02": {}, "gone01": {}},
    }
    (inventory / ".rack" / "state.json").write_text(json.dumps(state))
    (inventory / "group_vars" / "all" / "site.yml").write_text("ansible_user: admin\n")
    data = listed(ansible("ansible-inventory", "-i", str(inventory), "--list"))
    hostvars = data["_meta"]["hostvars"]
    assert data["virtual_rack"]["hosts"] == ["gpu02", "head01"]
    assert "gone01" not in hostvars
    assert hostvars["gpu02"]["ansible_user"] == "root"
    assert hostvars["gpu02"]["coldiron_rack"]["simulated"] is True
    assert hostvars["gpu01"]["ansible_user"] == "admin"
    assert "coldiron_rack" not in hostvars["gpu01"]


def test_without_the_python_package_it_says_so(ansible: Run, inventory: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked" / "coldiron"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('no coldiron here')\n")
    done = ansible("ansible-inventory", "-i", str(inventory), "--list", PYTHONPATH=str(blocked.parent))
    assert done.returncode == 4
    assert "needs the Python package coldiron in Ansible's own Python (no coldiron here)" in done.stderr
    assert "Traceback" not in done.stderr


def test_documentation_is_whole_and_its_example_sound(ansible: Run, tmp_path: Path) -> None:
    documented = listed(ansible("ansible-doc", "-t", "inventory", "--json", "coldiron.cluster.cluster"))
    page = documented["coldiron.cluster.cluster"]
    assert set(page["doc"]["options"]) == set(ClusterFile.model_fields)
    file = tmp_path / "cluster.yml"
    file.write_text(page["examples"])
    assert load(file).node("gpu12").hostvars()["coldiron_bmc_address"] == "10.24.1.12"
