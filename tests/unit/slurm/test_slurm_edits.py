"""What an edit needs, and which edits running jobs would not survive."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.coldiron.cluster.plugins.module_utils import slurm_config
from ansible_collections.coldiron.cluster.plugins.module_utils import slurm_edits as edits

ROLES = Path(__file__).parents[3] / "roles"


@pytest.mark.parametrize(
    ("release", "parsed"),
    [("24.11", (24, 11)), ("24.11.5-4", (24, 11)), ("22.05.8-4+deb12u3", (22, 5)), ("24.11*", (24, 11))],
)
def test_releases(release: str, parsed: tuple[int, int]) -> None:
    assert edits.parse_release(release) == parsed


def test_what_is_no_release() -> None:
    with pytest.raises(ValueError, match="'new' is no Slurm release"):
        edits.parse_release("new")


@pytest.mark.parametrize(
    ("key", "before", "since"),
    [
        ("KillWait", edits.RECONFIGURE, edits.RECONFIGURE),
        ("MaxJobCount", edits.RESTART_CONTROLLER, edits.RECONFIGURE),
        ("maxjobcount", edits.RESTART_CONTROLLER, edits.RECONFIGURE),
        ("SelectType", edits.RESTART_DAEMONS, edits.RECONFIGURE),
        ("SlurmdPort", edits.RESTART_DAEMONS, edits.RESTART_DAEMONS),
        ("AuthType", edits.STOP_FIRST, edits.STOP_FIRST),
        ("AuthAltTypes", edits.RESTART_CONTROLLER, edits.RESTART_CONTROLLER),
        ("NodeName", edits.RESTART_DAEMONS, edits.RECONFIGURE),
        ("PartitionName", edits.RECONFIGURE, edits.RECONFIGURE),
        ("gres.conf", edits.RESTART_DAEMONS, edits.RECONFIGURE),
        ("cgroup.conf", edits.RECONFIGURE, edits.RECONFIGURE),
    ],
)
def test_the_class_depends_on_key_and_release(key: str, before: str, since: str) -> None:
    assert edits.edit_class(key, "22.05") == before
    assert edits.edit_class(key, "23.11") == since
    assert edits.edit_class(key, "24.11.5") == since


def test_every_entry_of_the_table_is_whole() -> None:
    for key, edit in edits.EDITS.items():
        assert edit.before in edits.CLASSES, key
        assert edit.since in edits.CLASSES, key
        assert edit.why, key
        # A newer release never wants more than an older one.
        assert edits.CLASSES.index(edit.since) <= edits.CLASSES.index(edit.before), key


def test_the_strongest_need_wins() -> None:
    assert (
        edits.strongest([edits.RECONFIGURE, edits.STOP_FIRST, edits.RESTART_CONTROLLER]) == edits.STOP_FIRST
    )
    assert edits.strongest([]) == edits.NONE


def test_changes_in_any_case() -> None:
    old, new = {"killwait": 30, "authtype": "a"}, {"KillWait": "30", "AuthType": "b", "SLURMDPORT": 1}
    assert edits.changes(old, new) == ["AuthType", "SlurmdPort"]


SETTINGS = {"SlurmdPort": "6818", "KillWait": "30", "MaxJobCount": "10", "AuthType": "auth/munge"}


@pytest.mark.parametrize(
    ("release", "daemon", "lines"),
    [
        ("24.11", "slurmctld", ["AuthType=auth/munge", "SlurmdPort=6818"]),
        ("24.11", "slurmd", ["AuthType=auth/munge", "SlurmdPort=6818"]),
        ("22.05", "slurmctld", ["AuthType=auth/munge", "MaxJobCount=10", "SlurmdPort=6818"]),
        ("22.05", "slurmd", ["AuthType=auth/munge", "SlurmdPort=6818"]),
    ],
)
def test_what_only_a_start_takes_up(release: str, daemon: str, lines: list[str]) -> None:
    assert edits.start_lines(SETTINGS, release, daemon) == lines


def test_nodes_and_devices_count_with_releases_that_restart_for_them() -> None:
    def lines(release: str, daemon: str, *nodes: str) -> dict[str, str]:
        found = edits.start_lines({}, release, daemon, nodes, ["Name=gpu Cores=0-3"])
        return dict(line.split("=") for line in found)

    assert set(lines("22.05", "slurmd", "a")) == {"NodeName", "gres.conf", "gres.conf Cores"}
    assert lines("22.05", "slurmd", "a") != lines("22.05", "slurmd", "a", "b")
    assert lines("24.11", "slurmd", "a") == {}
    assert set(lines("24.11", "slurmctld", "a")) == {"gres.conf Cores"}


def test_start_lines_are_read_back_from_their_comments() -> None:
    lines = edits.start_lines(SETTINGS, "22.05", "slurmctld")
    text = (
        "# managed\n# A sentence with a comma, no pair.\n"
        + "".join(f"# {line}\n" for line in lines)
        + 'X="a=b"\n'
    )
    assert edits.parse_start_lines(text) == {
        "AuthType": "auth/munge",
        "MaxJobCount": "10",
        "SlurmdPort": "6818",
    }


def conf(nodes: str = "", partitions: str = "main", **settings: str) -> dict[str, object]:
    lines = [f"NodeName={name} CPUs=4 RealMemory=100" for name in nodes.split()]
    lines += [f"PartitionName={name} Nodes=ALL" for name in partitions.split()]
    return {**slurm_config.parse("\n".join(lines)), "settings": settings, "started": settings}


def live(*jobs: edits.Job, idle: str = "") -> edits.Live:
    return edits.Live(list(jobs), idle.split(), ["n1", "n2"])


RUNNING = edits.Job("7", "main", ("n1",))
WAITING = edits.Job("8", "other", ())


def test_nothing_differs() -> None:
    verdict = edits.judge(conf("n1 n2"), conf("n1 n2"), "24.11", live(RUNNING))
    assert verdict == edits.Verdict(edits.NONE, [], [])


def test_a_new_node_beside_running_jobs() -> None:
    verdict = edits.judge(conf("n1"), conf("n1 n2"), "24.11", live(RUNNING))
    assert verdict == edits.Verdict(edits.RECONFIGURE, ["NodeName"], [])
    assert edits.judge(conf("n1"), conf("n1 n2"), "22.05", live(RUNNING)).need == edits.RESTART_DAEMONS


def test_a_node_that_goes_from_under_a_job() -> None:
    verdict = edits.judge(conf("n1 n2"), conf("n2"), "24.11", live(RUNNING))
    assert verdict.refusals == ["node n1 goes while job 7 runs on it"]
    assert edits.judge(conf("n1 n2"), conf("n1"), "24.11", live(RUNNING)).refusals == []


def test_a_node_that_changes_its_shape_under_a_job() -> None:
    old, new = conf("n1"), conf("n1")
    new["nodes"] = {"n1": "NodeName=n1 CPUs=8 RealMemory=100"}
    assert edits.judge(old, new, "24.11", live(RUNNING)).refusals == [
        "node n1 changes its shape while job 7 runs on it"
    ]
    new["nodes"] = {"n1": "NodeName=n1 CPUs=4 RealMemory=90"}
    verdict = edits.judge(old, new, "24.11", live(RUNNING))
    assert (verdict.refusals, verdict.changed) == ([], ["NodeName"])


def test_a_partition_that_goes_from_under_a_job_that_waits() -> None:
    old, new = conf("n1", "main other"), conf("n1", "main")
    assert edits.judge(old, new, "24.11", live(WAITING)).refusals == [
        "partition other goes while job 8 uses it"
    ]
    assert edits.judge(old, new, "24.11", live(RUNNING)).refusals == []
    assert edits.judge(old, new, "24.11", None).need == edits.RECONFIGURE


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "nobody knows which jobs run"),
        (live(RUNNING, idle="n1 n2"), "while jobs run: 7"),
        (live(WAITING), "while jobs can start on n1, n2"),
        (live(idle="n1"), "while jobs can start on n2"),
    ],
)
def test_what_wants_every_slurmd_stopped(state: edits.Live | None, said: str) -> None:
    verdict = edits.judge(
        conf("n1 n2", SlurmdSpoolDir="/a"), conf("n1 n2", SlurmdSpoolDir="/b"), "24.11", state
    )
    assert verdict.need == edits.STOP_FIRST
    assert verdict.changed == ["SlurmdSpoolDir"]
    (refusal,) = verdict.refusals
    assert said in refusal


def test_what_wants_every_slurmd_stopped_passes_when_they_rest() -> None:
    old, new = conf("n1 n2", AuthType="a"), conf("n1 n2", AuthType="b")
    assert edits.judge(old, new, "24.11", live(WAITING, idle="n1 n2")).refusals == []
    # The first run has nothing to compare with.
    assert edits.judge(conf(""), new, "24.11", None).refusals == []


def test_settings_need_what_their_keys_need() -> None:
    def need(**settings: str) -> str:
        return edits.judge(conf(KillWait="30", SlurmdPort="1"), conf(**settings), "24.11", live(RUNNING)).need

    assert need(KillWait="30", SlurmdPort="1") == edits.NONE
    assert need(KillWait="60", SlurmdPort="1") == edits.RECONFIGURE
    assert need(KillWait="60", SlurmdPort="2") == edits.RESTART_DAEMONS


def test_what_was_written_by_hand_is_put_right_under_jobs() -> None:
    """The daemons never were told of it: what they started with is what was declared."""
    old, new = conf(SlurmdSpoolDir="/hand"), conf(SlurmdSpoolDir="/a")
    old["started"] = {"SlurmdSpoolDir": "/a"}
    verdict = edits.judge(old, new, "24.11", live(RUNNING))
    assert verdict == edits.Verdict(edits.STOP_FIRST, ["SlurmdSpoolDir"], [])


def test_the_roles_and_the_table_of_distributions_agree() -> None:
    """The release that a role's data names for a distribution is the one that its preflight compares by."""
    folder = ROLES / "slurm_common" / "vars"
    table = yaml.safe_load((folder / "main.yml").read_text())["__slurm_common_releases"]
    by_file = {
        "debian-13": "Debian",
        "debian-12": "Debian_12",
        "ubuntu-22.04": "Ubuntu_22",
        "ubuntu-24.04": "Ubuntu",
        "rocky-9": "RedHat",
    }
    for distribution, name in by_file.items():
        data = yaml.safe_load((folder / f"{name}.yml").read_text())
        assert data["__slurm_common_release"] == table[distribution], distribution
