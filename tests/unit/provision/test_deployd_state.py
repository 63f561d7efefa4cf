"""What the provisioner keeps: whole, private, bound to one node, and the same after a restart."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision.deployd_state import MOST_EVENTS, Event, Refused, State
from coldiron.provision.order import parse_identity, parse_order
from coldiron.provision.token import TokenExpired, TokenForeign, TokenRefused, TokenUsed, TokenWrong
from tests.unit.provision.deployd_samples import CANARY, MAC, identity, order


class Clock:
    """A clock that a test sets, in seconds since the epoch."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def state(tmp_path: Path, clock: Clock) -> State:
    return State(tmp_path / "deploy", token_seconds=600, session_seconds=3600, clock=clock)


def again(state: State, clock: Clock) -> State:
    """The same directory after a restart."""
    return State(state.directory, token_seconds=600, session_seconds=3600, clock=clock)


def place(state: State, node: str = "gpu01", mac: str = MAC) -> None:
    state.place(parse_order(order(node, mac)), parse_identity(identity(node)))


def token_for(state: State, mac: str = MAC) -> str:
    booted = state.boot(mac)
    assert booted is not None
    return booted[1].reveal()


def opened(state: State) -> str:
    place(state)
    return state.redeem("gpu01", token_for(state))[1]


def test_the_whole_way_and_a_restart_at_each_step(state: State, clock: Clock) -> None:
    place(state)
    token = token_for(again(state, clock))
    found, session = again(state, clock).redeem("gpu01", token)
    assert found == parse_order(order())
    assert again(state, clock).identity("gpu01", session) == parse_identity(identity())
    again(state, clock).report("gpu01", session, Event("stream", clock.now, 41.5, "428 MB"))
    assert again(state, clock).record("gpu01") is None
    again(state, clock).done("gpu01", session, ["S1"])
    last = again(state, clock)
    assert last.record("gpu01") == {
        "format": 1, "node": "gpu01", "image": "ab" * 32, "class": "gpu-debian-13", "when": clock.now,
        "serials": ["S1"],
    }  # fmt: skip
    assert [event.step for event in last.events("gpu01")] == ["ordered", "netboot", "stream", "done"]
    assert last.boot(MAC) is None
    for part in ("orders", "identities"):
        assert list((state.directory / part).iterdir()) == []


def test_everything_is_private_and_no_token_or_session_lies_there(state: State) -> None:
    place(state)
    token = token_for(state)
    session = state.redeem("gpu01", token)[1]
    state.report("gpu01", session, Event("up", 1.0))
    for path in [state.directory, *state.directory.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
        if path.is_file():
            assert token not in path.read_text()
            assert session not in path.read_text()
    state.done("gpu01", session, [])
    kept = "".join(path.read_text() for path in state.directory.rglob("*") if path.is_file())
    assert CANARY not in kept


def test_an_unknown_machine_and_one_without_an_order_boot_from_disk(state: State) -> None:
    assert state.boot(MAC) is None
    place(state)
    assert state.boot("02:00:00:00:00:99") is None


def test_each_boot_script_has_a_token_of_its_own(state: State) -> None:
    place(state)
    first, second = token_for(state), token_for(state)
    with pytest.raises(TokenUsed, match="was replaced before"):
        state.redeem("gpu01", first)
    state.redeem("gpu01", second)


def test_after_the_token_is_used_the_machine_boots_from_disk_until_it_is_ordered_again(state: State) -> None:
    session = opened(state)
    assert state.boot(MAC) is None
    place(state)
    assert state.boot(MAC) is not None
    with pytest.raises(Refused, match="no such session"):
        state.identity("gpu01", session)


def test_refusals(state: State, clock: Clock) -> None:
    place(state)
    place(state, "gpu02", "02:95:00:00:00:0a")
    token = token_for(state)
    with pytest.raises(TokenWrong):
        state.redeem("gpu01", "x" * 43)
    with pytest.raises(TokenForeign):
        state.redeem("gpu02", token)
    clock.now += 601
    with pytest.raises(TokenExpired):
        state.redeem("gpu01", token)
    token = token_for(state)
    session = state.redeem("gpu01", token)[1]
    with pytest.raises(TokenUsed):
        state.redeem("gpu01", token)
    with pytest.raises(Refused, match="gpu02 has no such session"):
        state.identity("gpu02", session)
    with pytest.raises(Refused, match="gpu01 has no such session"):
        state.report("gpu01", session + "x", Event("up", 1.0))
    clock.now += 3601
    with pytest.raises(Refused, match="the session of gpu01 is over; order it anew"):
        state.done("gpu01", session, [])


def test_an_unredeemed_order_opens_to_no_session_at_all(state: State) -> None:
    place(state)
    for guess in ("", "None", "0"):
        with pytest.raises(Refused, match="no such session"):
            state.identity("gpu01", guess)


def test_a_token_of_a_cancelled_or_older_order_opens_nothing(state: State) -> None:
    place(state)
    token = token_for(state)
    assert state.cancel("gpu01")
    assert not state.cancel("gpu01")
    place(state)
    with pytest.raises(TokenUsed):
        state.redeem("gpu01", token)
    assert state.status()[0]["state"] == "open"


def test_a_token_whose_order_went_away_in_the_same_moment(state: State) -> None:
    place(state)
    token = token_for(state)
    (state.directory / "orders" / "gpu01.json").unlink()
    with pytest.raises(Refused, match="gpu01 has no open order; order it anew"):
        state.redeem("gpu01", token)


def test_a_token_is_for_the_disks_that_were_agreed_to_with_it(state: State) -> None:
    place(state)
    token = token_for(state)
    file = state.directory / "orders" / "gpu01.json"
    data = json.loads(file.read_text())
    data["order"]["consent"].append("S9")
    file.write_text(json.dumps(data))
    with pytest.raises(Refused, match="was for another order"):
        state.redeem("gpu01", token)


def test_done_may_be_said_twice_by_who_did_it_and_by_nobody_else(state: State) -> None:
    session = opened(state)
    state.done("gpu01", session, ["S1"])
    state.done("gpu01", session, ["S1"])
    with pytest.raises(Refused):
        state.done("gpu01", "x" * 43, ["S2"])
    with pytest.raises(Refused):
        state.done("gpu02", "x" * 43, ["S2"])
    with pytest.raises(Refused):
        state.identity("gpu01", session)


def test_of_many_at_once_one_redeems(state: State, clock: Clock) -> None:
    place(state)
    token = token_for(state)

    def attempt(_: int) -> bool:
        try:
            again(state, clock).redeem("gpu01", token)
        except TokenRefused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(24))) == 1


def test_two_nodes_do_not_share_a_machine(state: State) -> None:
    place(state)
    with pytest.raises(
        ColdironError, match="has an open order as gpu01; type: coldiron-deployd cancel gpu01"
    ):
        place(state, "gpu02", MAC)


def test_an_identity_is_of_the_order_s_node(state: State) -> None:
    with pytest.raises(ColdironError, match="the identity is gpu02's, and the order gpu01's"):
        state.place(parse_order(order()), parse_identity(identity("gpu02")))


@pytest.mark.parametrize("name", ["../orders", "a/b", "", ".", "GPU01", "a_b", "x" * 64])
def test_a_name_is_no_path(state: State, name: str) -> None:
    for call in (
        lambda: state.cancel(name),
        lambda: state.forget(name),
        lambda: state.record(name),
        lambda: state.events(name),
        lambda: state.redeem(name, "x"),
        lambda: state.identity(name, "x"),
        lambda: state.report(name, "x", Event("up", 1.0)),
        lambda: state.done(name, "x", []),
    ):
        with pytest.raises(ColdironError):
            call()


def test_a_broken_node_does_not_fill_the_disk(state: State) -> None:
    session = opened(state)
    events = state.directory / "events" / "gpu01.jsonl"
    events.write_text(json.dumps(Event("up", 1.0).as_dict()) + "\n")
    line = events.read_text()
    events.write_text(line * MOST_EVENTS)
    with pytest.raises(Refused, match="gpu01 has reported 2000 times"):
        state.report("gpu01", session, Event("up", 1.0))
    state.done("gpu01", session, [])
    assert state.events("gpu01")[-1].step == "done"


def test_a_line_that_a_crash_cut_off_spoils_no_other(state: State) -> None:
    session = opened(state)
    events = state.directory / "events" / "gpu01.jsonl"
    with events.open("a") as handle:
        handle.write('{"step": "str')
    state.report("gpu01", session, Event("stream", 5.0))
    assert [event.step for event in state.events("gpu01")] == ["ordered", "netboot", "stream"]


def test_status_says_where_each_node_is(state: State, clock: Clock) -> None:
    assert state.status() == []
    place(state, "gpu02", "02:95:00:00:00:0a")
    session = opened(state)
    clock.now += 30
    state.report("gpu01", session, Event("disks", clock.now, 33.0, "", "the disk for system is absent"))
    clock.now += 90
    first, second = state.status()
    assert (first["node"], first["state"], first["step"]) == ("gpu01", "failed", "disks")
    assert (first["failed"], first["age_seconds"]) == ("the disk for system is absent", 90.0)
    assert (second["state"], second["step"], second["record"]) == ("open", "ordered", None)
    state.report("gpu01", session, Event("disks", clock.now, 95.0))
    assert state.status()[0]["state"] == "running"
    state.done("gpu01", session, ["S1"])
    assert state.status()[0]["state"] == "done"
    assert state.status()[0]["record"]["serials"] == ["S1"]
    state.cancel("gpu02")
    assert state.status()[1]["state"] == "cancelled"


def test_who_waits_hears_of_news_and_of_the_end(state: State, clock: Clock) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            state.report("gpu01", session, Event("up", clock.now))

    assert state.wait("gpu01", 0, 60, sleep) is None
    session = opened(state)
    seen = len(state.events("gpu01"))
    line = state.wait("gpu01", seen - 1, 60, sleep)
    assert (line or {})["step"] == "netboot"
    assert slept == []
    line = state.wait("gpu01", seen, 60, sleep)
    assert ((line or {})["step"], len(slept)) == ("up", 3)
    line = state.wait("gpu01", seen + 1, 2, sleep)
    assert ((line or {})["step"], sum(slept[3:])) == ("up", 2)
    state.done("gpu01", session, [])
    assert (state.wait("gpu01", 99, 60, sleep) or {})["state"] == "done"
    with pytest.raises(ColdironError):
        state.wait("../gpu01", 0, 0)


def test_what_was_deployed_is_kept_while_a_new_order_runs_and_forgotten_on_demand(state: State) -> None:
    state.done("gpu01", opened(state), ["S1"])
    place(state)
    assert [record["node"] for record in state.records()] == ["gpu01"]
    assert state.forget("gpu01")
    assert not state.forget("gpu01")
    assert state.records() == []
    assert state.events("gpu01")
    state.cancel("gpu01")
    state.forget("gpu01")
    assert state.status() == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"order": {}, "placed": 1, "session": "", "session_ends": 0}']
)
def test_a_damaged_order_is_told_and_not_guessed_at(state: State, text: str) -> None:
    place(state)
    (state.directory / "orders" / "gpu01.json").write_text(text)
    with pytest.raises(ColdironError) as caught:
        state.boot(MAC)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert "remove it" in caught.value.message


def test_a_directory_that_cannot_be_used(tmp_path: Path, state: State) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ColdironError, match="cannot be used"):
        State(tmp_path / "file")
    # An identity that went away under a running deployment.
    session = opened(state)
    (state.directory / "identities" / "gpu01.json").unlink()
    with pytest.raises(ColdironError) as caught:
        state.identity("gpu01", session)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


def test_a_write_that_fails_leaves_the_old(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    place(state)
    before = (state.directory / "orders" / "gpu01.json").read_bytes()
    token = token_for(state)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("coldiron.provision.deployd_state.os.replace", full)
    with pytest.raises(ColdironError, match="No space left on device"):
        state.redeem("gpu01", token)
    assert (state.directory / "orders" / "gpu01.json").read_bytes() == before
    assert not list(state.directory.rglob(".new-*"))
