"""What the receiver remembers: written before it is promised, read again whatever ended it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.webhook.ledger import BEGIN, DROPPED, END, HEARD, Ledger, Task
from tests.unit.webhook.disk import full

FIRST, SECOND = Task("cpu01", "NodeDown", "a@1"), Task("cpu02", "NodeDown", "b@1")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".coldiron").mkdir()
    return tmp_path


def lines(home: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (home / ".coldiron" / "webhook.jsonl").read_text().splitlines()]


def test_what_was_accepted_is_known_until_it_has_ended_and_after(home: Path) -> None:
    ledger = Ledger(home, "coldiron webhook serve", 1.0)
    ledger.accept(10.0, FIRST)
    ledger.accept(11.0, SECOND)
    ledger.write(12.0, BEGIN, {"nodes": ["cpu01"], "keys": ["a@1"]})
    assert ledger.unfinished == [FIRST, SECOND]
    assert ledger.known.waiting == {"cpu01", "cpu02"}
    ledger.write(13.0, END, {"nodes": ["cpu01"], "keys": ["a@1"], "code": 0, "states": {}})
    ledger.close()

    again = Ledger(home, "coldiron webhook serve", 20.0)
    assert again.unfinished == [SECOND]
    assert again.known.keys == {"a@1", "b@1"}
    assert again.known.begun == {"cpu01": 10.0, "cpu02": 11.0}
    again.write(21.0, DROPPED, {"nodes": ["cpu02"], "keys": ["b@1"], "why": "resolved"})
    assert again.unfinished == []
    again.close()
    assert [line["number"] for line in lines(home)] == [1, 2, 3, 4, 5]


def test_a_line_that_was_torn_swallows_no_other(home: Path) -> None:
    path = home / ".coldiron" / "webhook.jsonl"
    ledger = Ledger(home, "one", 1.0)
    ledger.accept(10.0, FIRST)
    ledger.close()
    path.write_bytes(path.read_bytes() + b'{"format":1,"number":2,"ti')
    again = Ledger(home, "two", 20.0)
    again.accept(21.0, SECOND)
    again.close()
    third = Ledger(home, "three", 30.0)
    assert third.unfinished == [FIRST, SECOND]
    third.close()


def test_one_receiver_has_an_inventory_at_a_time(home: Path) -> None:
    ledger = Ledger(home, "coldiron webhook serve --listen 127.0.0.1:9095", 1.0)
    with pytest.raises(
        ColdironError, match=r"a receiver of this inventory is on already: .* --listen"
    ) as refused:
        Ledger(home, "another", 2.0)
    assert refused.value.exit_code is ExitCode.REFUSED
    ledger.close()
    Ledger(home, "another", 3.0).close()


def test_who_knows_no_token_cannot_fill_the_disk(home: Path) -> None:
    ledger = Ledger(home, "one", 1.0)
    for _ in range(500):
        ledger.refuse(10.0, 401, "wrong token", "192.0.2.7")
    ledger.refuse(80.0, 401, "wrong token", "192.0.2.7")
    ledger.close()
    found = lines(home)
    assert len(found) == 11
    assert found[-1]["data"] == {
        "status": 401, "why": "wrong token", "peer": "192.0.2.7", "passed_over": 490,
    }  # fmt: skip


def test_a_disk_that_takes_no_more_is_told(home: Path) -> None:
    ledger = Ledger(home, "one", 1.0)
    with (
        full(ledger),
        pytest.raises(ColdironError, match=r"webhook\.jsonl cannot be written: No space left") as told,
    ):
        ledger.write(2.0, HEARD, {})
    ledger.close()
    assert told.value.exit_code is ExitCode.ENVIRONMENT
