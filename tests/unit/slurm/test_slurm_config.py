"""Slurm's files from data."""

from __future__ import annotations

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import slurm_config as config

CPU = {"sockets": 2, "cores_per_socket": 4, "threads_per_core": 2, "memory_mib": 64000, "gpus": None}
GPU = {**CPU, "memory_mib": 2000000, "gpus": {"type": "h100", "count": 8}}


def node(name: str, hardware: dict[str, object] | None = None, **more: object) -> dict[str, object]:
    return {"name": name, "address": "10.0.0.1", "hardware": hardware or CPU, **more}


@pytest.mark.parametrize(
    ("value", "written"),
    [(True, "yes"), (False, "no"), (["a", "b"], "a,b"), ([], ""), (30, "30"), ("x", "x")],
)
def test_values_are_written_as_slurm_reads_them(value: object, written: str) -> None:
    assert config.render(value) == written


def test_later_layers_win_in_any_case_and_null_takes_out() -> None:
    merged = config.merge(
        {"SchedulerType": "a", "TaskPlugin": "b"}, {"schedulertype": "c", "TASKPLUGIN": None}
    )
    assert merged == {"SchedulerType": "c"}


def test_empty_values_are_not_written() -> None:
    assert config.merge({"TaskPlugin": [], "GresTypes": "", "KillWait": 0}) == {"KillWait": "0"}


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("gpu01", ["gpu01"]),
        ("gpu[01-03]", ["gpu01", "gpu02", "gpu03"]),
        ("gpu[01-02,07],cpu1", ["gpu01", "gpu02", "gpu07", "cpu1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu[9-10]", ["gpu9", "gpu10"]),
        ("a, b", ["a", "b"]),
        ("n[1]x", ["n1x"]),
    ],
)
def test_ranges_expand(expression: str, names: list[str]) -> None:
    assert config.expand(expression) == names


@pytest.mark.parametrize(
    "expression", ["", "gpu[", "gpu[3-1]", "gpu[-3]", "gpu[1-]", "gpu[a]", "a,,b", "gpu]1["]
)
def test_what_is_no_range_is_refused(expression: str) -> None:
    with pytest.raises(config.SlurmDataError, match="is no node range"):
        config.expand(expression)


def test_a_nodes_line() -> None:
    assert config.node_lines([node("gpu01", GPU)], 1024, 5) == [
        "NodeName=gpu01 NodeAddr=10.0.0.1 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=1900000"
        " Gres=gpu:h100:8 State=UNKNOWN"
    ]


def test_a_nodes_own_options_are_sorted_in() -> None:
    (line,) = config.node_lines([node("c1", options={"Weight": 5, "Feature": ["a", "b"]})], 0, 0)
    assert line.endswith("RealMemory=64000 Feature=a,b Weight=5 State=UNKNOWN")


@pytest.mark.parametrize(("mib", "percent", "left"), [(1024, 0, 62976), (1024, 5, 60800), (0, 0, 64000)])
def test_the_larger_headroom_counts(mib: int, percent: int, left: int) -> None:
    assert config.real_memory(node("c1"), mib, percent) == left


def test_a_headroom_that_leaves_nothing_names_the_node() -> None:
    with pytest.raises(config.SlurmDataError, match="node c1 has 64000 MiB"):
        config.real_memory(node("c1"), 64000, 0)


def test_memory_per_cpu_fits_the_smallest_node() -> None:
    assert config.default_memory_per_cpu([node("a"), node("b", GPU)], 0, 0) == 4000
    assert config.default_memory_per_cpu([], 0, 0) == 0


def test_device_files_of_declared_gpus() -> None:
    one = {**GPU, "gpus": {"type": "a100", "count": 1}}
    assert config.gres_lines([node("c1"), node("gpu01", GPU), node("gpu02", one)], "off") == [
        "AutoDetect=off",
        "NodeName=gpu01 Name=gpu Type=h100 File=/dev/nvidia[0-7]",
        "NodeName=gpu02 Name=gpu Type=a100 File=/dev/nvidia0",
    ]
    assert config.gres_lines([node("gpu01", GPU)], "nvml") == ["AutoDetect=nvml"]


DIVIDED = {**GPU, "gpus": {"type": "h100", "count": 2, "mig": [{"gpus": [1], "profiles": ["3g.40gb"]}]}}


def detected(hardware: dict[str, object]) -> dict[str, object]:
    gpus = hardware["gpus"]
    assert isinstance(gpus, dict)
    return {**hardware, "gpus": {**gpus, "detect": "nvml"}}


def test_nodes_whose_driver_is_asked() -> None:
    """A node says how its GPUs are found; what detection finds is not written a second time."""
    nodes = [node("gpu01", detected(GPU)), node("gpu02", GPU)]
    assert config.gres_lines(nodes, "off") == [
        "AutoDetect=off",
        "NodeName=gpu01 AutoDetect=nvml",
        "NodeName=gpu02 Name=gpu Type=h100 File=/dev/nvidia[0-7]",
    ]
    assert config.gres_lines([node("gpu01", detected(DIVIDED))], "nvml") == ["AutoDetect=nvml"]
    (line,) = config.node_lines([node("gpu01", detected(DIVIDED))], 0, 0)
    assert "Gres=gpu:h100:1,gpu:3g.40gb:1 " in line


def test_divided_gpus_want_detection() -> None:
    with pytest.raises(config.SlurmDataError, match=r"node gpu01: slurmd finds divided GPUs .* by NVML only"):
        config.gres_lines([node("gpu01", DIVIDED)], "off")


def test_a_layout_that_cannot_be_names_the_node() -> None:
    wrong = {**GPU, "gpus": {"type": "h100", "count": 1, "mig": [{"gpus": [2], "profiles": ["3g.40gb"]}]}}
    with pytest.raises(config.SlurmDataError, match="node gpu01: GPU 2 of 1"):
        config.node_lines([node("gpu01", wrong)], 0, 0)


def test_gpus_are_shared_by_rule() -> None:
    nodes = config.shared(
        [node("c1"), node("gpu01", GPU), node("gpu02", GPU)],
        [{"nodes": "gpu01", "kind": "shard", "per_gpu": 4}],
    )
    assert config.gres_types(nodes) == ["gpu", "shard"]
    assert config.gres_types([node("c1")]) == []
    assert "NodeName=gpu01 Name=shard Count=32" in config.gres_lines(nodes, "off")
    assert "Gres=gpu:h100:8,shard:32 " in config.node_lines(nodes, 0, 0)[1]
    assert "Gres=gpu:h100:8 " in config.node_lines(nodes, 0, 0)[2]
    everywhere = config.shared(nodes, [{"nodes": "all", "kind": "mps"}])
    assert "Gres=gpu:h100:8,mps:800 " in config.node_lines(everywhere, 0, 0)[2]


def test_a_rule_of_sharing_names_nodes_with_gpus() -> None:
    with pytest.raises(
        config.SlurmDataError, match=r"slurm_controller_gpu_sharing \(nodes with GPUs\) names c1"
    ):
        config.shared([node("c1"), node("gpu01", GPU)], [{"nodes": ["c1"], "kind": "shard"}])


@pytest.mark.parametrize(
    ("plugins", "cgroup", "constrained"),
    [
        (["cgroup", "affinity"], {"ConstrainDevices": True}, True),
        (["cgroup"], {"constraindevices": "yes", "CgroupPlugin": "autodetect"}, True),
        (["affinity"], {"ConstrainDevices": True}, False),
        (["cgroup"], {}, False),
        (["cgroup"], {"ConstrainDevices": True, "CgroupPlugin": "disabled"}, False),
    ],
)
def test_whether_jobs_are_kept_to_their_devices(
    plugins: list[str], cgroup: dict[str, object], constrained: bool
) -> None:
    assert config.constrained(plugins, cgroup) == constrained


def test_whole_and_divided_gpus_in_one_node_want_constrained_devices() -> None:
    nodes = [node("c1"), node("gpu01", GPU), node("gpu02", detected(DIVIDED))]
    assert config.mixture_problems(nodes, True) == []
    (problem,) = config.mixture_problems(nodes, False)
    assert problem.startswith("Node gpu02 has whole and divided GPUs")


KNOWN = ["cpu01", "gpu01", "gpu02"]


@pytest.mark.parametrize(
    ("nodes", "written"),
    [
        ("all", "ALL"),
        ("ALL", "ALL"),
        ("gpu*", "gpu01,gpu02"),
        ("gpu[01-02]", "gpu01,gpu02"),
        (["cpu01", "gpu0?"], "cpu01,gpu01,gpu02"),
        (["gpu01", "gpu*"], "gpu01,gpu02"),
    ],
)
def test_a_partitions_nodes(nodes: object, written: str) -> None:
    assert config.partition_nodes({"name": "p", "nodes": nodes}, KNOWN) == written
    assert config.partition_nodes({"name": "p"}, KNOWN) == "ALL"


def test_a_partition_of_unknown_nodes_is_refused_with_a_hint() -> None:
    with pytest.raises(config.SlurmDataError, match=r"partition p names gpu03, .* did you mean gpu0"):
        config.partition_nodes({"name": "p", "nodes": "gpu[01-03]"}, KNOWN)
    with pytest.raises(config.SlurmDataError, match="partition p: no node's name matches 'fat\\*'"):
        config.partition_nodes({"name": "p", "nodes": "fat*"}, KNOWN)


def test_partition_lines() -> None:
    lines = config.partition_lines(
        [
            {
                "name": "main",
                "nodes": "all",
                "default": True,
                "max_time": "1-0",
                "state": "up",
                "priority": 10,
            },
            {
                "name": "gpu",
                "nodes": "gpu*",
                "allow_accounts": ["a", "b"],
                "options": {"LLN": True},
                "qos": None,
            },
        ],
        KNOWN,
    )
    assert lines == [
        "PartitionName=main Nodes=ALL Default=YES MaxTime=1-0 State=UP PriorityTier=10",
        "PartitionName=gpu Nodes=gpu01,gpu02 AllowAccounts=a,b LLN=yes",
    ]


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        ([{"name": "a"}, {"name": "a"}], "declared twice"),
        ([{"name": "a", "default": True}, {"name": "b", "default": True}], "a, b are all the default one"),
    ],
)
def test_partitions_that_cannot_be(partitions: list[dict[str, object]], said: str) -> None:
    with pytest.raises(config.SlurmDataError, match=said):
        config.partition_lines(partitions, KNOWN)


def test_what_is_written_is_read_back() -> None:
    text = "\n".join(
        [
            "# a comment",
            "ClusterName=lab # not part of it",
            "SchedulerParameters=a=1,\\",
            "b=2",
            "Include other.conf",
            *config.node_lines([node("gpu01", GPU)], 0, 0),
            "NodeName=cpu[01-02] CPUs=4",
            "PartitionName=main Nodes=ALL",
        ]
    )
    parsed = config.parse(text)
    assert parsed["settings"] == {"ClusterName": "lab", "SchedulerParameters": "a=1, b=2"}
    assert sorted(parsed["nodes"]) == ["cpu01", "cpu02", "gpu01"]
    assert parsed["partitions"] == {"main": "PartitionName=main Nodes=ALL"}
