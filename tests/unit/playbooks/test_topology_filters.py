"""The filters that turn groups into roles' options."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.coldiron.cluster.plugins.filter import topology

HOSTVARS = {
    "head01": {
        "ansible_host": "10.0.0.1",
        "coldiron_address": "10.9.0.1",
        "coldiron_distribution": "debian-13",
    },
    "gpu01": {
        "ansible_host": "10.0.0.2",
        "coldiron_distribution": "debian-12",
        "coldiron_bmc_address": "10.8.0.2",
        "coldiron_hardware": {"sockets": 1},
    },
}


GROUPS = {
    "cluster": ["head01", "login01", "gpu01", "gpu02"],
    "dns_server": ["head01"],
    "slurm_dbd": ["head01"],
    "slurm_controller": ["head01"],
    "slurm_worker": ["gpu01", "gpu02"],
    "slurm_login": ["login01"],
}


def test_the_shape_is_read_from_the_groups_that_there_are() -> None:
    shape = topology.shape(GROUPS)
    assert shape["nodes"] == ["head01", "login01", "gpu01", "gpu02"]
    assert shape["heads"] == ["head01"]
    assert shape["nfs_servers"] == []
    assert shape["slurm"] == ["head01", "gpu01", "gpu02", "login01"]


def test_a_node_that_leaves_is_told_to_nobody() -> None:
    shape = topology.shape(GROUPS, ["gpu02"])
    assert shape["nodes"] == ["head01", "login01", "gpu01"]
    assert shape["slurm_workers"] == ["gpu01"]
    assert "gpu02" not in shape["slurm"]


def test_a_host_runs_the_roles_of_its_functions() -> None:
    shape = topology.shape(GROUPS)
    common = ["base", "dns", "time", "users", "nfs", "slurm_common", "munge"]
    assert topology.roles_of(shape, "gpu01") == [*common, "slurm_worker"]
    assert topology.roles_of(shape, "head01") == [*common, "slurm_dbd", "slurm_controller"]
    assert topology.roles_of(topology.shape({"cluster": ["a"]}), "a") == common[:5]


def test_the_first_variable_that_a_host_has_counts() -> None:
    values = topology.host_values(["head01", "gpu01"], HOSTVARS, "coldiron_address", "ansible_host")
    assert values == {"head01": "10.9.0.1", "gpu01": "10.0.0.2"}


def test_a_host_without_any_is_named_with_what_to_write() -> None:
    with pytest.raises(AnsibleFilterError, match="host head01 has none of coldiron_hardware: write one"):
        topology.host_values(["head01"], HOSTVARS, "coldiron_hardware")


def test_records_keep_the_order_of_the_inventory() -> None:
    assert topology.records({"a": "10.0.0.1", "b": "10.0.0.2"}, ["b", "a"]) == [
        {"name": "b", "address": "10.0.0.2"},
        {"name": "a", "address": "10.0.0.1"},
    ]


def test_only_hosts_with_a_bmc_get_its_record() -> None:
    assert topology.bmc_records(HOSTVARS, ["head01", "gpu01"]) == [
        {"name": "gpu01-bmc", "address": "10.8.0.2"}
    ]


def test_distinct_values_are_sorted_and_named_once() -> None:
    assert topology.distinct(HOSTVARS, ["head01", "gpu01", "gpu01"], "coldiron_distribution") == [
        "debian-12",
        "debian-13",
    ]
    assert topology.distinct(HOSTVARS, ["head01"], "coldiron_bmc_address") == []


def test_a_worker_carries_its_declared_hardware() -> None:
    assert topology.workers({"gpu01": "10.0.0.2"}, ["gpu01"], HOSTVARS) == [
        {"name": "gpu01", "address": "10.0.0.2", "hardware": {"sockets": 1}}
    ]


def test_slurmdbd_reaches_its_own_host_by_the_socket_and_others_by_address() -> None:
    users = topology.database_users(
        {"head01": "10.9.0.1", "head02": "10.9.0.2"}, ["head01", "head02"], "head01", "x"
    )
    assert [user["host"] for user in users] == ["localhost", "10.9.0.2"]
    assert {user["privileges"] for user in users} == {"slurm_acct_db.*:ALL"}


def test_what_the_inventory_plugin_says_is_asked_first() -> None:
    known = {"gpu01": {"coldiron_address": "10.9.0.9", "coldiron_hardware": {"sockets": 2}}}
    addresses = topology.host_values(
        ["head01", "gpu01"], HOSTVARS, "coldiron_address", "ansible_host", known=known
    )
    assert addresses == {"head01": "10.9.0.1", "gpu01": "10.9.0.9"}
    assert topology.workers(addresses, ["gpu01"], {}, known)[0]["hardware"] == {"sockets": 2}
    assert topology.bmc_records({}, ["gpu01"], known) == []
    assert topology.distinct(HOSTVARS, ["head01", "gpu01"], "coldiron_distribution", known) == ["debian-13"]


def test_workers_whose_driver_is_managed_are_asked_for_their_gpus() -> None:
    gpus = {"sockets": 2, "gpus": {"type": "h100", "count": 2}}
    mig = [{"gpus": [1], "profiles": ["3g.40gb", "3g.40gb"]}]
    known = {
        "gpu01": {"coldiron_hardware": gpus, "coldiron_distribution": "debian-13", "coldiron_gpu_mig": mig},
        "gpu02": {"coldiron_hardware": gpus, "coldiron_distribution": "rocky-9"},
        "cpu01": {"coldiron_hardware": {"sockets": 2, "gpus": None}, "coldiron_distribution": "debian-13"},
    }
    addresses = dict.fromkeys(known, "10.0.0.2")
    found = topology.workers(addresses, list(known), {}, known, ["gpu01", "gpu02"])
    assert [node["hardware"]["gpus"] for node in found] == [
        {"type": "h100", "count": 2, "mig": mig, "detect": "nvml"},
        {"type": "h100", "count": 2},
        None,
    ]
    assert [topology.gpu_detect([node]) for node in found] == ["nvml", "off", "off"]
    assert topology.gpu_detect([]) == "off"


def test_every_filter_is_offered_by_its_name() -> None:
    assert all(callable(one) for one in topology.FilterModule().filters().values())


def test_containers_of_jobs_are_where_enroot_and_jobs_are() -> None:
    groups = {
        "cluster": ["head", "login", "gpu", "cpu"],
        "slurm_worker": ["gpu", "cpu"],
        "slurm_login": ["login"],
        "enroot": ["head", "gpu", "login"],
        "containerd": ["cpu", "gpu"],
        "gpu_node": ["gpu"],
    }
    found = topology.shape(groups)
    assert found["pyxis_hosts"] == ["gpu", "login"]
    assert found["with_containers"] == ["head", "gpu", "login"], (
        "containerd's containers want no ids of people"
    )
    assert found["with_gpu_containers"] == ["gpu"]
    assert [
        role for role in topology.roles_of(found, "gpu") if role in ("enroot", "containerd", "pyxis")
    ] == [
        "enroot",
        "containerd",
        "pyxis",
    ]
    assert "pyxis" not in topology.roles_of(found, "cpu")


def test_a_machine_asks_the_cache_of_its_rack() -> None:
    racks = {
        "gpu01": "r1",
        "gpu02": "r1",
        "gpu03": "r1",
        "gpu04": "r2",
        "gpu05": "",
        "c1": "r1",
        "c2": "r1",
        "c3": "",
    }
    known = {name: {"coldiron_rack_name": rack} if rack else {} for name, rack in racks.items()}
    addresses = {name: f"10.1.0.{40 + number}" for number, name in enumerate(racks)}
    machines = [name for name in racks if name.startswith("gpu")]

    def asked(caches: list[str], machines: list[str] = machines) -> dict[str, str]:
        found = topology.cache_mirrors(addresses, machines, caches, {}, known)
        return {one["subnet"]: one["url"] for one in found}

    assert asked([]) == {}
    # One line for neighbours; who is in another rack asks the provisioner.
    assert asked(["c1"]) == {"10.1.0.40/31": "http://10.1.0.45", "10.1.0.42/32": "http://10.1.0.45"}
    assert asked(["c3"]) == {"10.1.0.44/32": "http://10.1.0.47"}
    shared = asked(["c1", "c2"])
    assert sorted(shared.values()) == ["http://10.1.0.45"] * 2 + ["http://10.1.0.46"]
    # A machine that is a cache asks the other one, or the provisioner.
    assert asked(["gpu01", "gpu02"], ["gpu01", "gpu02"]) == {
        "10.1.0.40/32": "http://10.1.0.41", "10.1.0.41/32": "http://10.1.0.40",
    }  # fmt: skip
    assert asked(["gpu01"], ["gpu01"]) == {}


def test_bmcs_are_asked_where_prometheus_is_and_rules_follow_the_roles_that_are_there() -> None:
    groups = {"cluster": ["h", "m"], "prometheus": ["h"], "node_exporter": ["h", "m"]}
    plain = topology.shape(groups, ["m"])
    assert plain["monitored"] == ["h"]
    assert plain["ipmi_hosts"] == plain["redfish_hosts"] == []
    found = topology.shape({**groups, "bare_metal": ["m", "n"], "bmc_ipmi": ["n"]})
    assert (found["redfish_machines"], found["ipmi_machines"]) == (["m"], ["n"])
    for role in ("ipmi_exporter", "redfish_exporter"):
        assert role in topology.roles_of(found, "h")
        assert role not in topology.roles_of(found, "m")
    found = topology.shape({**groups, "bare_metal": ["m"]})
    assert "redfish_exporter" in topology.roles_of(found, "h")
    assert "ipmi_exporter" not in topology.roles_of(found, "h")
    assert {"base", "node_exporter", "prometheus"} <= set(topology.roles_present(plain))
    assert not {"slurm_exporter", "ipmi_exporter", "redfish_exporter", "gpu_exporter"} & set(
        topology.roles_present(plain)
    )


def test_log_servers_tell_of_themselves_where_somebody_asks_and_nobody_else_can() -> None:
    groups = {"cluster": ["a", "b", "c"], "elasticsearch": ["a", "b", "c"]}
    assert topology.shape(groups)["log_exporters"] == []
    groups["prometheus"] = ["a"]
    assert topology.shape(groups)["log_exporters"] == ["a", "b", "c"]
    known = {"a": {"coldiron_distribution": "debian-13"}, "b": {"coldiron_distribution": "debian-12"}}
    hostvars = {"c": {"coldiron_distribution": "ubuntu-22.04"}}
    found = topology.shape(groups, (), hostvars, known)
    assert found["log_exporters"] == ["a"]
    assert "elasticsearch_exporter" in topology.roles_of(found, "a")
    assert "elasticsearch_exporter" not in topology.roles_of(found, "b")
