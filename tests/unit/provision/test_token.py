"""Deploy tokens: good once, for one node, for a while; and never to be seen."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision.token import (
    LONGEST_TTL_SECONDS,
    Grant,
    Token,
    TokenExpired,
    TokenForeign,
    TokenRefused,
    TokenStore,
    TokenUsed,
    TokenWrong,
)

NOW = 1_800_000_000.0
HOUR = 3600.0


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "tokens.json")


def issued(store: TokenStore, node: str = "gpu01", now: float = NOW) -> str:
    return store.issue(node, "deploy", ["S-B", "S-A", "S-A"], HOUR, now).reveal()


def test_good_once(store: TokenStore) -> None:
    token = issued(store)
    assert store.redeem(token, "gpu01", NOW + 60) == Grant("gpu01", "deploy", frozenset({"S-A", "S-B"}))
    with pytest.raises(TokenUsed, match="the token of gpu01 was used before"):
        store.redeem(token, "gpu01", NOW + 61)


def test_each_refusal_is_its_own(store: TokenStore) -> None:
    token = issued(store)
    for shown, node, now, refusal in (
        ("nonsense", "gpu01", NOW, TokenWrong),
        ("", "gpu01", NOW, TokenWrong),
        ("x" * 10_000, "gpu01", NOW, TokenWrong),
        ("\udcff\0", "gpu01", NOW, TokenWrong),
        (token + "x", "gpu01", NOW, TokenWrong),
        (token, "gpu02", NOW, TokenForeign),
        (token, "gpu01", NOW + HOUR, TokenExpired),
        (token, "gpu01", NOW - 1, TokenExpired),
        (token, "gpu01", float("nan"), TokenExpired),
    ):
        with pytest.raises(TokenRefused) as refused:
            store.redeem(shown, node, now)
        assert type(refused.value) is refusal
        assert refused.value.exit_code == ExitCode.REFUSED
        assert refused.value.message.isprintable()
        assert token not in refused.value.message
    # None of them has spent it.
    assert store.redeem(token, "gpu01", NOW + HOUR - 1).node == "gpu01"


def test_a_new_one_replaces_the_old(store: TokenStore) -> None:
    old, other = issued(store), issued(store, "gpu02")
    wipe = store.issue("gpu01", "wipe", [], HOUR, NOW).reveal()
    new = issued(store)
    with pytest.raises(TokenUsed, match="replaced before"):
        store.redeem(old, "gpu01", NOW)
    assert store.redeem(new, "gpu01", NOW).purpose == "deploy"
    assert store.redeem(wipe, "gpu01", NOW).purpose == "wipe"
    assert store.redeem(other, "gpu02", NOW).node == "gpu02"


def test_what_is_long_over_is_forgotten(store: TokenStore) -> None:
    token = issued(store)
    issued(store, "gpu02", NOW + 10 * 24 * HOUR)
    with pytest.raises(TokenExpired):
        store.redeem(token, "gpu01", NOW + 10 * 24 * HOUR)
    issued(store, "gpu03", NOW + 40 * 24 * HOUR)
    with pytest.raises(TokenWrong):
        store.redeem(token, "gpu01", NOW + 40 * 24 * HOUR)


def test_only_a_hash_is_kept(store: TokenStore) -> None:
    token = issued(store)
    assert store.file.stat().st_mode & 0o777 == 0o600
    text = store.file.read_text()
    assert token not in text
    assert len(json.loads(text)["tokens"][0]["digest"]) == 64
    assert [file.name for file in store.file.parent.iterdir()] == ["tokens.json"]


def test_a_token_does_not_show_itself() -> None:
    token = Token("verysecret")
    for text in (repr(token), str(token), f"{token}", f"{[token]}", "%s" % token):  # noqa: UP031
        assert "verysecret" not in text
    assert not hasattr(token, "__dict__")
    with pytest.raises(TypeError):
        pickle.dumps(token)


@pytest.mark.parametrize(
    ("node", "purpose", "serials", "ttl", "words"),
    [
        ("no node", "deploy", [], HOUR, "no token for no node"),
        ("gpu01", "party", [], HOUR, "one of deploy, wipe, not for party"),
        ("gpu01", "deploy", [""], HOUR, "empty"),
        ("gpu01", "deploy", ["a\nb"], HOUR, "unprintable"),
        ("gpu01", "deploy", [], 0, "up to 24 hours"),
        ("gpu01", "deploy", [], LONGEST_TTL_SECONDS + 1, "up to 24 hours"),
        ("gpu01", "deploy", [], float("nan"), "up to 24 hours"),
    ],
)
def test_no_token_for_nonsense(
    store: TokenStore, node: str, purpose: str, serials: list[str], ttl: float, words: str
) -> None:
    with pytest.raises(ColdironError, match=words):
        store.issue(node, purpose, serials, ttl, NOW)
    assert not store.file.exists()


ENTRY = {
    "digest": "0",
    "node": "a",
    "purpose": "deploy",
    "serials": [],
    "issued": 1,
    "expires": 2,
    "spent": "",
}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "\xff",
        "[" * 100_000,
        '{"version": 2, "tokens": []}',
        '{"version": 1, "tokens": [{}]}',
        json.dumps({"version": 1, "tokens": [{**ENTRY, "digest": 7}]}),
        json.dumps({"version": 1, "tokens": [{**ENTRY, "digest": "ä"}]}),
        json.dumps({"version": 1, "tokens": [{**ENTRY, "issued": "soon"}]}),
        json.dumps({"version": 1, "tokens": [{**ENTRY, "more": 1}]}),
    ],
)
def test_a_broken_store_is_never_begun_anew(store: TokenStore, text: str) -> None:
    store.file.write_text(text, encoding="latin-1")
    store.file.chmod(0o600)
    with pytest.raises(ColdironError, match="no store of tokens; move it away"):
        issued(store)
    with pytest.raises(ColdironError, match="no store of tokens"):
        store.redeem("x", "gpu01", NOW)
    assert store.file.read_text(encoding="latin-1") == text


def test_a_store_that_others_can_touch_is_refused(store: TokenStore) -> None:
    token = issued(store)
    store.file.chmod(0o640)
    with pytest.raises(ColdironError, match="mode 0600") as refused:
        store.redeem(token, "gpu01", NOW)
    assert refused.value.exit_code == ExitCode.ENVIRONMENT


def test_a_link_in_its_place_is_refused(store: TokenStore, tmp_path: Path) -> None:
    store.file.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("{}")
    with pytest.raises(ColdironError, match="cannot be read"):
        issued(store)


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ColdironError, match="cannot be opened"):
        issued(TokenStore(tmp_path / "gone" / "tokens.json"))


def test_a_full_disk_refuses_and_spends_nothing(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    token = issued(store)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        with pytest.raises(ColdironError, match="cannot be written: No space left"):
            store.redeem(token, "gpu01", NOW)
    assert [file.name for file in store.file.parent.iterdir()] == ["tokens.json"]
    assert store.redeem(token, "gpu01", NOW).node == "gpu01"


def test_no_place_for_a_new_file(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**where: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.mkstemp", full)
    with pytest.raises(ColdironError, match="cannot be written: Read-only"):
        issued(store)
    assert not store.file.exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from coldiron.provision.token import TokenStore
real = getattr(os, sys.argv[4])
def die(*arguments):
    if sys.argv[3] == "after":
        real(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, sys.argv[4], die)
TokenStore(Path(sys.argv[1])).redeem(sys.stdin.read(), "gpu01", float(sys.argv[2]))
print("granted")
"""


@pytest.mark.parametrize(
    ("moment", "call", "good"),
    [("before", "fsync", True), ("before", "replace", True), ("after", "replace", False)],
)
def test_killed_while_it_is_redeemed(store: TokenStore, moment: str, call: str, good: bool) -> None:
    """Whoever is killed was granted nothing; the token is then good once, or not at all."""
    token = issued(store)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(store.file), str(NOW), moment, call],
        input=token,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert killed.returncode == -9
    assert "granted" not in killed.stdout
    if good:
        assert store.redeem(token, "gpu01", NOW).node == "gpu01"
    with pytest.raises(TokenUsed):
        store.redeem(token, "gpu01", NOW)


def test_of_many_at_once_one_gets_it(store: TokenStore) -> None:
    token = issued(store)
    outcomes: list[str] = []

    def try_it() -> None:
        try:
            outcomes.append(store.redeem(token, "gpu01", NOW).node)
        except TokenUsed:
            outcomes.append("used")

    threads = [threading.Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["gpu01"] + ["used"] * 7


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["issue", "redeem"]), st.sampled_from(["gpu01", "gpu02"]), st.integers(0, 2000)
        ),
        max_size=12,
    )
)
def test_whatever_happens_each_is_granted_at_most_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]]
) -> None:
    store = TokenStore(tmp_path_factory.mktemp("tokens") / "tokens.json")
    tokens: dict[str, str] = {}
    granted: list[str] = []
    now = NOW
    for step, node, wait in steps:
        now += wait
        if step == "issue":
            tokens[store.issue(node, "deploy", [], HOUR, now).reveal()] = node
            continue
        for token, owner in tokens.items():
            try:
                grant = store.redeem(token, node, now)
            except TokenRefused:
                continue
            assert grant.node == node == owner
            granted.append(token)
    assert len(granted) == len(set(granted))
