"""From what cards say and what is wanted to the calls of nvidia-smi."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_power as power

ROW = "0, Enabled, 700.00, 200.00, 700.00, 700.00, 1980, 2619"
CARD = power.Card(0, True, 700.0, 200.0, 700.0, 700.0, {"graphics": 1980.0, "memory": 2619.0})


def wish(**more: Any) -> dict[str, Any]:
    return {"persistence": True, "cap_watts": 0, "clocks": {"graphics": None, "memory": None}, **more}


def told(card: power.Card, **more: Any) -> list[tuple[str, str]]:
    steps = power.plan([card], wish(**more))
    return [(step.why, " ".join(step.command).removeprefix("nvidia-smi -i 0 ")) for step in steps]


class Smi:
    """A driver of text that keeps what was run."""

    def __init__(self, rows: str = ROW, act: tuple[int, str, str] = (0, "", "")) -> None:
        self.rows, self.act = rows, act
        self.ran: list[str] = []

    def __call__(self, words: Sequence[str]) -> tuple[int, str, str]:
        if any("--query-gpu" in word for word in words):
            return 0, self.rows + "\n", ""
        self.ran.append(" ".join(words))
        return self.act


def test_cards_are_read_and_what_one_does_not_say_is_unknown() -> None:
    assert power.read_cards(Smi()) == [CARD]
    (dumb,) = power.read_cards(Smi("3, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]"))
    assert dumb == power.Card(3, None, None, None, None, None, {"graphics": None, "memory": None})
    assert power.plan([dumb], wish()) == []


def test_a_driver_that_fails_says_so() -> None:
    with pytest.raises(power.PowerError, match="nvidia-smi says: no driver"):
        power.read_cards(lambda words: (9, "no driver\n", ""))


def test_what_is_right_is_left_alone() -> None:
    assert told(CARD) == []
    assert told(CARD._replace(watts=600.4), cap_watts=600.0) == []


def test_a_cap_is_set_and_taken_away() -> None:
    assert told(CARD, cap_watts=600) == [("GPU 1: 600 W, was 700 W", "-pl 600")]
    assert told(CARD._replace(watts=600.0)) == [("GPU 1: 700 W, was 600 W", "-pl 700")]


def test_persistence_is_set() -> None:
    assert told(CARD._replace(persistence=False)) == [("GPU 1: persistence on", "-pm 1")]
    assert told(CARD, persistence=False) == [("GPU 1: persistence off", "-pm 0")]


def test_clocks_are_set_each_time_as_the_driver_does_not_tell_them() -> None:
    clocks = {"graphics": [345, 1200], "memory": []}
    assert told(CARD, clocks=clocks) == [("", "-lgc 345,1200"), ("", "-rmc")]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"cap_watts": 900}, "GPU 1 takes caps from 200 to 700 W, not 900 W: correct gpu_power_cap_watts"),
        ({"cap_watts": 100}, "not 100 W"),
        ({"clocks": {"graphics": [345, 3000]}}, "its graphics clock at 345 to 3000 MHz, it reaches 1980 MHz"),
        ({"clocks": {"memory": [2000, 1000]}}, "correct gpu_power_memory_mhz"),
    ],
)
def test_what_a_card_cannot_have_is_refused(wanted: dict[str, Any], said: str) -> None:
    with pytest.raises(power.PowerError, match=said):
        power.plan([CARD], wish(**wanted))


def test_a_card_without_limits_takes_no_cap() -> None:
    with pytest.raises(power.PowerError, match="GPU 1 takes no power cap"):
        power.plan([CARD._replace(least=None)], wish(cap_watts=300))


def test_one_call_that_fails_keeps_none_of_the_others_from_being_made() -> None:
    smi = Smi(act=(4, "Insufficient Permissions", ""))
    steps = power.plan([CARD, CARD._replace(index=1)], wish(cap_watts=600))
    with pytest.raises(power.PowerError, match=r"-i 0 -pl 600`: Insufficient Permissions; .*-i 1"):
        power.apply(steps, smi)
    assert len(smi.ran) == 2


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "power.json"
    file.write_text(json.dumps(wish(cap_watts=600, clocks={"graphics": [345, 1200]})))
    return str(file)


def test_the_program_sets_and_tells(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    smi = Smi()
    monkeypatch.setattr(power, "run", smi)
    assert power.main(["check", path]) == 0
    assert smi.ran == []
    assert power.main(["apply", path]) == 0
    assert smi.ran == ["nvidia-smi -i 0 -pl 600", "nvidia-smi -i 0 -lgc 345,1200"]
    assert capsys.readouterr().out == "GPU 1: 600 W, was 700 W\n"


def test_the_program_fails_in_one_line(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(power, "run", Smi(act=(4, "Insufficient Permissions", "")))
    assert power.main(["apply", path]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert power.main([]) == 2


def test_before_there_is_a_driver_nothing_is_judged(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(words: Sequence[str]) -> tuple[int, str, str]:
        raise FileNotFoundError(words[0])

    monkeypatch.setattr(power, "run", missing)
    assert power.main(["check", path]) == 0
    assert power.main(["apply", path]) == 1
