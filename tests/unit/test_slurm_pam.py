"""Who gets in to a worker without a job, and when Slurm cannot keep the others in theirs."""

from __future__ import annotations

import pytest
from ansible_collections.coldiron.cluster.plugins.filter import slurm_pam
from ansible_collections.coldiron.cluster.plugins.modules import pam_account


def test_administrators_may_run_any_command_and_are_there() -> None:
    accounts = [
        {"name": "root-like", "sudo": "nopasswd"},
        {"name": "careful", "sudo": "password", "state": "present"},
        {"name": "gone", "sudo": "nopasswd", "state": "absent"},
        {"name": "locked", "sudo": "nopasswd", "state": "locked"},
        {"name": "one-command", "sudo": "ALL=(root) /usr/bin/true"},
        {"name": "alice", "sudo": "none"},
        {"name": "bob"},
    ]
    assert slurm_pam.administrators(accounts) == ["root-like", "careful"]


@pytest.mark.parametrize(
    ("settings", "proctrack", "plugins", "cgroup", "adopts", "told"),
    [
        ({}, "cgroup", ["cgroup", "affinity"], {}, True, []),
        ({"PrologFlags": "Contain,X11"}, "cgroup", ["cgroup"], {}, True, []),
        ({"prologflags": ["alloc", "contain"]}, "cgroup", ["cgroup"], {}, True, []),
        ({"PrologFlags": "Alloc"}, "cgroup", ["cgroup"], {}, True, ["lacks Contain"]),
        ({"PrologFlags": "Alloc"}, "linuxproc", [], {}, False, ["lacks Contain"]),
        ({}, "linuxproc", ["cgroup"], {}, True, ["control groups"]),
        ({"ProctrackType": "proctrack/cgroup"}, "linuxproc", ["cgroup"], {}, True, []),
        ({"ProctrackType": "proctrack/pgid"}, "cgroup", ["cgroup"], {}, True, ["control groups"]),
        ({}, "cgroup", ["affinity"], {}, True, ["control groups"]),
        ({}, "cgroup", ["cgroup"], {"CgroupPlugin": "disabled"}, True, ["control groups"]),
        ({}, "linuxproc", [], {"CgroupPlugin": "disabled"}, False, []),
    ],
)
def test_what_keeps_slurm_from_adopting_is_said(
    settings: dict[str, object],
    proctrack: str,
    plugins: list[str],
    cgroup: dict[str, str],
    adopts: bool,
    told: list[str],
) -> None:
    problems = slurm_pam.adoption_problems(settings, proctrack, plugins, cgroup, adopts)
    assert len(problems) == len(told)
    assert all(words in problem for words, problem in zip(told, problems, strict=True))


def test_pam_s_words_are_told_of_everybody_who_is_not_let_in() -> None:
    answers = {"root": "", "ops": "Permission denied", "ann": ""}
    assert pam_account.refused(list(answers), answers.__getitem__) == ["ops (Permission denied)"]
