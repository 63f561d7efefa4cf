"""From what nvidia-smi says to the calls that make a layout, and when none is made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_mig as mig

WHOLE = mig.Gpu(0, "GPU-a", "disabled", "disabled")
HALVES = mig.Gpu(0, "GPU-a", "enabled", "enabled", ("3g.40gb", "3g.40gb"))

# As nvidia-smi prints them.
GPU_INSTANCES = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb+me      20        7          0:1     |
+-------------------------------------------------------+
|   0  MIG 3g.40gb          9        2          4:4     |
+-------------------------------------------------------+
|   1  MIG 7g.80gb          0        0          0:8     |
+-------------------------------------------------------+
"""
COMPUTE_INSTANCES = """\
+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   0      7       MIG 1g.10gb+me       0         0          0:1     |
+--------------------------------------------------------------------+
|   0      2       MIG 3g.40gb          2         0          0:3     |
+--------------------------------------------------------------------+
"""


class Smi:
    """A driver of text: answers by the start of a command, and keeps what was run."""

    def __init__(self, **answers: tuple[int, str, str] | Sequence[tuple[int, str, str]]) -> None:
        self.answers = {
            "query": (0, "0, GPU-a, Enabled, Enabled\n1, GPU-b, Enabled, Enabled\n", ""),
            "apps": (0, "", ""),
            "lgi": (0, GPU_INSTANCES, ""),
            "lci": (0, COMPUTE_INSTANCES, ""),
            **answers,
        }
        self.ran: list[str] = []

    def __call__(self, words: Sequence[str]) -> tuple[int, str, str]:
        text = " ".join(words)
        names = {"--query-gpu": "query", "--query-compute": "apps", "-lgi": "lgi", "-lci": "lci"}
        names |= {"scontrol": "scontrol", "squeue": "squeue", "systemctl": "systemctl", "reset": "reset"}
        for part, name in names.items():
            if part in text:
                if name not in self.answers:
                    raise FileNotFoundError(words[0])
                answer = self.answers[name]
                if isinstance(answer, list):
                    return answer.pop(0) if len(answer) > 1 else answer[0]
                return answer  # type: ignore[return-value]
        self.ran.append(text.removeprefix("nvidia-smi "))
        return self.answers.get("act", (0, "", ""))  # type: ignore[return-value]


def commands(gpu: mig.Gpu, *profiles: str) -> list[str]:
    changes = mig.plan([gpu], [list(profiles)])
    return [" ".join(one).removeprefix("nvidia-smi ") for change in changes for one in change.commands]


def test_gpus_are_read_with_their_instances() -> None:
    first, second = mig.read_gpus(Smi(apps=(0, "GPU-b, 4242\nGPU-b, 77\n", "")))
    assert first == mig.Gpu(0, "GPU-a", "enabled", "enabled", ("1g.10gb+me", "3g.40gb"))
    # An instance that nobody can compute on is no instance yet.
    assert (second.instances, second.broken, second.processes) == ((), True, (4242, 77))


def test_gpus_that_cannot_be_divided_are_whole() -> None:
    smi = Smi(query=(0, "0, GPU-a, [N/A], [N/A]\n", ""))
    (gpu,) = mig.read_gpus(smi)
    assert gpu == mig.Gpu(0, "GPU-a", "", "")
    assert mig.plan([gpu], [[]]) == []
    with pytest.raises(mig.MigError, match="GPU 1 cannot be divided"):
        mig.plan([gpu], [["3g.40gb"]])


def test_a_driver_that_fails_says_so() -> None:
    with pytest.raises(mig.MigError, match="Failed to initialize NVML"):
        mig.read_gpus(Smi(query=(18, "Failed to initialize NVML: Driver/library version mismatch\n", "")))


def test_what_is_right_is_left_alone() -> None:
    assert commands(WHOLE) == []
    assert commands(HALVES, "3g.40gb", "3g.40gb") == []


def test_a_whole_gpu_is_divided() -> None:
    assert commands(WHOLE, "3g.40gb", "1g.10gb") == ["-i 0 -mig 1", "mig -i 0 -cgi 3g.40gb,1g.10gb -C"]


def test_another_layout_takes_the_instances_away_first() -> None:
    assert commands(HALVES, "7g.80gb") == ["mig -i 0 -dci", "mig -i 0 -dgi", "mig -i 0 -cgi 7g.80gb -C"]


def test_a_gpu_is_made_whole_again() -> None:
    assert commands(HALVES) == ["mig -i 0 -dci", "mig -i 0 -dgi", "-i 0 -mig 0"]


def test_unfinished_instances_are_made_anew() -> None:
    assert commands(HALVES._replace(broken=True), "3g.40gb", "3g.40gb")[:2] == [
        "mig -i 0 -dci",
        "mig -i 0 -dgi",
    ]


def test_a_mode_that_waits_is_a_difference() -> None:
    assert commands(WHOLE._replace(pending="enabled")) == ["-i 0 -mig 0"]


def test_a_missing_gpu_is_told() -> None:
    with pytest.raises(mig.MigError, match="1 of 2 GPUs are there"):
        mig.plan([WHOLE], [[], []])


CHANGE = mig.plan([WHOLE], [["3g.40gb"]])


@pytest.mark.parametrize(
    ("slurm", "processes", "said"),
    [
        (None, (), ""),
        (mig.Slurm("", ()), (), ""),
        (mig.Slurm("IDLE+DRAIN", ()), (), ""),
        (mig.Slurm("IDLE", ()), (), "n1 takes jobs (idle): drain it first"),
        (mig.Slurm("MIXED+DRAIN", ("job 7 of alice",)), (), "n1 runs job 7 of alice"),
        (None, (42,), "process 42 uses GPU 1"),
    ],
)
def test_a_gpu_in_use_is_not_touched(slurm: mig.Slurm | None, processes: tuple[int, ...], said: str) -> None:
    found = mig.refusals("n1", CHANGE, [WHOLE._replace(processes=processes)], slurm)
    assert "; ".join(found).startswith(said)
    assert bool(found) == bool(said)
    assert mig.refusals("n1", [], [WHOLE._replace(processes=(1,))], slurm) == []


def test_slurm_is_asked() -> None:
    smi = Smi(scontrol=(0, "NodeName=n1 State=MIXED+DRAIN x=y\n", ""), squeue=(0, "job 7 of alice\n", ""))
    assert mig.read_slurm("n1", smi) == mig.Slurm("MIXED+DRAIN", ("job 7 of alice",))


def test_a_node_without_slurm_or_unknown_to_it_has_no_jobs() -> None:
    assert mig.read_slurm("n1", Smi()) is None
    assert mig.read_slurm("n1", Smi(scontrol=(1, "Node n1 not found\n", ""))) == mig.Slurm("", ())
    silent = Smi(
        scontrol=(1, "", "slurm_load_node error: Unable to contact slurm controller"), systemctl=(3, "", "")
    )
    assert mig.read_slurm("n1", silent) is None


def test_a_controller_that_does_not_answer_refuses() -> None:
    smi = Smi(scontrol=(1, "", "Unable to contact slurm controller\n"), systemctl=(0, "", ""))
    with pytest.raises(
        mig.MigError, match="slurmctld does not say whether jobs run on n1: Unable to contact"
    ):
        mig.read_slurm("n1", smi)


DIVIDED = (0, "0, GPU-a, Enabled, Enabled\n", "")
UNDIVIDED = (0, "0, GPU-a, Disabled, Disabled\n", "")
WAITING = (0, "0, GPU-a, Disabled, Enabled\n", "")
LAYOUT = [["3g.40gb", "1g.10gb+me"]]


def test_a_layout_is_made_and_looked_at_again() -> None:
    smi = Smi(query=[UNDIVIDED, DIVIDED])
    (change,) = mig.bring(LAYOUT, "n1", smi, act=True)
    assert change.why == "GPU 1: MIG enabled, was disabled; 3g.40gb, 1g.10gb+me, was no instances"
    assert smi.ran == ["-i 0 -mig 1", "mig -i 0 -cgi 3g.40gb,1g.10gb+me -C"]


def test_a_look_changes_nothing() -> None:
    smi = Smi(query=UNDIVIDED)
    assert len(mig.bring(LAYOUT, "n1", smi, act=False)) == 1
    assert smi.ran == []


def test_a_busy_node_is_refused_before_anything_is_run() -> None:
    smi = Smi(query=UNDIVIDED, scontrol=(0, "State=IDLE\n", ""), squeue=(0, "", ""))
    with pytest.raises(mig.MigError, match="drain it first"):
        mig.bring(LAYOUT, "n1", smi, act=True)
    assert smi.ran == []


def test_an_older_gpu_is_reset_for_its_mode() -> None:
    mig.bring(LAYOUT, "n1", Smi(query=[UNDIVIDED, WAITING, DIVIDED], reset=(0, "", "")), act=True)
    with pytest.raises(
        mig.MigError, match=r"GPU 1 takes its MIG mode from a reset, which fails \(in use\): reboot"
    ):
        mig.bring(LAYOUT, "n1", Smi(query=[UNDIVIDED, WAITING], reset=(1, "in use", "")), act=True)


def test_what_fails_is_told_in_the_tools_words() -> None:
    with pytest.raises(mig.MigError, match="`nvidia-smi -i 0 -mig 1`: Insufficient Permissions"):
        mig.bring(LAYOUT, "n1", Smi(query=UNDIVIDED, act=(4, "Insufficient Permissions\n", "")), act=True)


def test_what_was_made_and_is_not_so_is_told() -> None:
    with pytest.raises(mig.MigError, match="made, and still not so: GPU 1"):
        mig.bring([["7g.80gb"]], "n1", Smi(query=[UNDIVIDED, DIVIDED]), act=True)


def test_the_boot_makes_what_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "layout.json"
    path.write_text(json.dumps({"layout": LAYOUT}))
    monkeypatch.setattr(mig, "run", Smi(query=[UNDIVIDED, DIVIDED]))
    assert mig.main([str(path)]) == 0
    assert capsys.readouterr().out.startswith("GPU 1: MIG enabled")
    monkeypatch.setattr(mig, "run", Smi(query=UNDIVIDED, apps=(0, "GPU-a, 5\n", "")))
    assert mig.main([str(path)]) == 1
    assert capsys.readouterr().err == "process 5 uses GPU 1: end it, or wait\n"
    assert mig.main([]) == 2
