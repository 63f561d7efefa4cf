"""What speaks against a GPU, what is remembered, and what a job is told."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_health as health

WANTED = {
    "gpus": 2,
    "ignored_xids": [13, 31],
    "leftovers": True,
    "allowed_processes": ["nvidia-cuda-mps-server"],
}
CARDS = (
    health.Card(0, "GPU-a", "0000:1b:00"),
    health.Card(1, "GPU-b", "0000:9d:00"),
)
LOG = [
    "6,1,10,-;Linux version 6.12",
    "4,1042,123456,-;NVRM: Xid (PCI:0000:9d:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    " SUBSYSTEM=pci",
    "4,1043,123457,-;NVRM: Xid (PCI:0000:1B:00): 13, pid=77, Graphics Exception",
    "4,1044,123458,-;NVRM: GPU at PCI:0000:9d:00: GPU-b",
    "no record",
]


def judged(
    facts: health.Facts, memory: dict[str, Any] | None = None, job: tuple[int, ...] = (), **more: Any
) -> list[str]:
    findings, _ = health.judge(facts, {**WANTED, **more}, memory or {}, job)
    return [health.told([one]).removeprefix(health.REASON) for one in findings]


def card(number: int, **more: Any) -> health.Facts:
    cards = list(CARDS)
    cards[number] = cards[number]._replace(**more)
    return health.Facts(cards=tuple(cards), names=more.get("names", {}))


def test_sound_gpus_have_nothing_against_them() -> None:
    found, memory = health.judge(health.Facts(cards=CARDS), WANTED, {}, [0, 1])
    assert found == []
    assert memory == {"sequence": -1, "uncorrected": {"GPU-a": 0, "GPU-b": 0}, "causes": {}}


def test_xids_are_read_from_the_kernels_log() -> None:
    lost, exception = health.xids(LOG)
    assert lost[:3] == (1042, "0000:9d:00", 79)
    assert lost.text.endswith("GPU has fallen off the bus.")
    (told, _) = judged(
        health.Facts(cards=CARDS, xids=(lost._replace(text="x" * 99), exception)), ignored_xids=[]
    )
    assert told == f"nvidia1: Xid 79, {'x' * 58} …"
    assert exception[1:3] == ("0000:1b:00", 13)


@pytest.mark.parametrize("text", ["00000000:9D:00.0", "0000:9d:00.0", "0000:9D:00"])
def test_an_address_has_one_spelling(text: str) -> None:
    assert health.bus_of(text) == "0000:9d:00"


def test_an_xid_names_its_gpu_and_counts_once() -> None:
    facts = health.Facts(cards=CARDS, xids=tuple(health.xids(LOG)))
    found, memory = health.judge(facts, WANTED, {}, [])
    assert [(one.number, one.text[:6]) for one in found] == [(1, "Xid 79")]
    assert memory["sequence"] == 1043
    assert health.judge(facts, WANTED, memory, [])[0] == []


def test_an_xid_of_a_gpu_that_is_gone_names_its_address() -> None:
    facts = health.Facts(cards=CARDS[:1], xids=tuple(health.xids(LOG)))
    assert judged(facts)[0] == "1 of 2 GPUs are there"
    assert judged(facts)[1].startswith("Xid 79 at 0000:9d:00, pid=")


def test_a_gpu_that_no_longer_says_its_address_is_known_by_its_module(tmp_path: Path) -> None:
    for name, minor in (("0000:1b:00.0", 0), ("0000:9d:00.0", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "information").write_text(f"Model: \t\t H100\nDevice Minor: \t {minor}\n")
    buses = health.read_buses(str(tmp_path))
    assert buses == {"0000:1b:00": 0, "0000:9d:00": 1}
    assert health.read_buses(str(tmp_path / "none")) == {}
    lost = (CARDS[0], health.Card(1, error="lost"))
    facts = health.Facts(cards=lost, xids=tuple(health.xids(LOG)), buses=buses)
    found, _ = health.judge(facts, WANTED, {}, [0])
    assert [one.number for one in found] == [1, 1]
    assert not health.concerns(found, [0])


def test_which_xids_are_a_programs_own_is_data() -> None:
    facts = health.Facts(cards=CARDS, xids=tuple(health.xids(LOG)))
    assert len(judged(facts, ignored_xids=[])) == 2
    assert judged(facts, ignored_xids=[13, 79]) == []


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"error": "lost"}, "nvidia1: lost"),
        ({"uncorrected": 1}, "nvidia1: 1 new uncorrected memory error"),
        ({"uncorrected": 3}, "nvidia1: 3 new uncorrected memory errors"),
        ({"remap_pending": True}, "nvidia1: a memory row waits to be remapped: reset the GPU or reboot"),
        ({"remap_pending": True, "remap_failed": True}, "nvidia1: no spare memory row was left"),
        ({"clocks": 0x40}, "nvidia1: slowed down by heat"),
        ({"clocks": 0x80 | 0x4 | 0x1}, "nvidia1: slowed down by its power supply"),
    ],
)
def test_what_speaks_against_a_gpu(what: dict[str, Any], said: str) -> None:
    (only,) = judged(card(1, **what))
    assert only.startswith(said)


def test_idle_and_capped_clocks_are_sound() -> None:
    assert judged(card(1, clocks=0x1 | 0x2 | 0x4 | 0x8 | 0x20)) == []


def test_known_memory_errors_are_told_of_once_and_a_reset_starts_anew() -> None:
    memory = {"uncorrected": {"GPU-b": 3}}
    assert judged(card(1, uncorrected=3), memory) == []
    assert judged(card(1, uncorrected=5), memory) == ["nvidia1: 2 new uncorrected memory errors"]
    _, after = health.judge(card(1, uncorrected=0), WANTED, memory, [])
    assert judged(card(1, uncorrected=1), after) == ["nvidia1: 1 new uncorrected memory error"]


def test_a_driver_that_does_not_answer_is_everybodys() -> None:
    facts = health.Facts("the driver does not answer (Driver/library version mismatch)")
    found, _ = health.judge(facts, WANTED, {}, [])
    assert [one.number for one in found] == [None]
    assert health.concerns(found, [0])


def test_processes_of_no_job_are_leftovers_on_the_jobs_own_whole_gpus() -> None:
    names = {7: "python3", 8: "nvidia-cuda-mps-server"}
    busy = health.Facts(
        cards=(CARDS[0]._replace(processes=(7, 8, 9)), CARDS[1]._replace(processes=(7,))), names=names
    )
    assert judged(busy, job=(0,)) == [
        "nvidia0: process 7 (python3) of no job uses it",
        "nvidia0: process 9 (gone or hidden) of no job uses it",
    ]
    assert judged(busy) == []
    assert judged(busy, job=(0,), leftovers=False) == []
    divided = health.Facts(cards=(CARDS[0]._replace(processes=(7,), divided=True), CARDS[1]))
    assert judged(divided, job=(0,)) == []


def test_a_job_starts_beside_a_sick_gpu_but_not_on_it() -> None:
    found = [health.Finding(1, "lost")]
    assert health.concerns(found, [1])
    assert not health.concerns(found, [0])
    assert not health.concerns([health.Finding(None, "no driver")], [])


def test_a_long_reason_is_cut() -> None:
    reason = health.told([health.Finding(number, "x" * 50) for number in range(8)])
    assert len(reason) == health.REASON_LENGTH
    assert reason.startswith("coldiron gpu: nvidia0: xxx")
    assert reason.endswith(" …")


@pytest.mark.parametrize(
    ("text", "found"),
    [("0,1", [0, 1]), ("0-2,5", [0, 1, 2, 5]), ("1:0,1:1", [1, 1]), ("MIG-513", []), ("", [])],
)
def test_the_jobs_gpus(text: str, found: list[int]) -> None:
    assert health.numbers(text) == found


def test_facts_survive_the_way_out_of_their_process() -> None:
    card = CARDS[0]._replace(processes=(3, 4))
    facts = health.Facts("", (card,), tuple(health.xids(LOG)), {3: "a"}, {"0000:1b:00": 0})
    assert health.within(5, lambda: facts) == facts


def test_a_driver_that_hangs_is_given_up() -> None:
    begun = time.monotonic()
    facts = health.within(0.1, lambda: time.sleep(60) or health.Facts())  # type: ignore[func-returns-value]
    assert facts.error == "the driver gave no answer within 0.1 s"
    assert time.monotonic() - begun < 30


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A node of files, with what it says and the drains that it asked for."""
    state: dict[str, Any] = {"facts": health.Facts(cards=CARDS), "drains": [], "reached": True}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**WANTED, "kernel_log": str(tmp_path / "kmsg")}))
    monkeypatch.setattr(health, "CONFIG", str(config))
    monkeypatch.setattr(health, "MEMORY", str(tmp_path / "memory" / "health.json"))
    monkeypatch.setattr(health, "LEAVE_SECONDS", 0)
    monkeypatch.setattr(health, "look", lambda wanted: state["facts"])
    monkeypatch.setenv("SLURMD_NODENAME", "gpu02")

    def drain(name: str, reason: str) -> bool:
        state["drains"].append((name, reason))
        return bool(state["reached"])

    monkeypatch.setattr(health, "drain", drain)
    monkeypatch.setattr(health, "is_drained", lambda _name: state.get("drained", False))
    return state


def test_a_sick_node_is_drained_once_and_a_job_on_the_sick_gpu_does_not_start(
    node: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_GPUS", "1")
    assert health.main(["prolog"]) == 0
    node["facts"] = health.Facts(cards=CARDS, xids=tuple(health.xids(LOG)))
    assert health.main(["prolog"]) == 1
    ((name, reason),) = node["drains"]
    assert name == "gpu02"
    assert reason.startswith("coldiron gpu: nvidia1: Xid 79, ")
    assert health.main(["prolog"]) == 0
    assert len(node["drains"]) == 1


def test_the_reason_that_stands_is_not_replaced_by_less(node: dict[str, Any]) -> None:
    """What is told once would be gone from the reason after the job's epilog."""
    lost = CARDS[1]._replace(error="lost")
    node["facts"] = health.Facts(cards=(CARDS[0], lost), xids=tuple(health.xids(LOG)))
    assert health.main(["prolog"]) == 0
    ((_name, reason),) = node["drains"]
    assert reason.startswith("coldiron gpu: nvidia1: Xid 79, ")
    assert reason.endswith("nvidia1: lost")
    node["drained"] = True
    assert health.main(["epilog"]) == 0
    assert len(node["drains"]) == 1
    # Somebody let it work again, and it is as sick as before: the cause is told with it.
    node["drained"] = False
    assert health.main(["prolog"]) == 0
    assert node["drains"][1][1] == reason


def test_an_epilog_drains_and_never_fails(node: dict[str, Any]) -> None:
    node["facts"] = health.Facts("the driver does not answer (x)")
    assert health.main(["epilog"]) == 0
    assert len(node["drains"]) == 1


def test_what_could_not_be_told_is_told_again(node: dict[str, Any]) -> None:
    node["facts"] = health.Facts(cards=CARDS, xids=tuple(health.xids(LOG)))
    node["reached"] = False
    health.main(["epilog"])
    health.main(["epilog"])
    assert len(node["drains"]) == 2


def test_another_boot_counts_anew(
    node: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node["facts"] = health.Facts(cards=CARDS, xids=tuple(health.xids(LOG)))
    health.main(["epilog"])
    other = tmp_path / "boot"
    other.write_text("another\n")
    monkeypatch.setattr(health, "BOOT", str(other))
    health.main(["epilog"])
    assert len(node["drains"]) == 2


def test_a_look_by_hand_drains_nothing(node: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert health.main(["check"]) == 0
    assert capsys.readouterr().out == "2 GPUs, nothing against them\n"
    node["facts"] = health.Facts(cards=CARDS[:1])
    assert health.main(["check"]) == 1
    assert capsys.readouterr().out == "coldiron gpu: 1 of 2 GPUs are there\n"
    assert node["drains"] == []


def test_it_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert health.main([]) == 2
    monkeypatch.setattr(health, "CONFIG", "/nowhere")
    assert health.main(["check"]) == 5
    assert "role gpu_health writes it" in capsys.readouterr().err


def test_a_log_of_a_file_is_read_whole_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text("\n".join(LOG) + "\n")
    assert health.read_log(str(log)) == LOG
    assert health.read_log(str(tmp_path / "none")) == []
