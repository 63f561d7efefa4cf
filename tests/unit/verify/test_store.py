"""Where verifications are kept."""

from __future__ import annotations

import json

import pytest

from coldiron.errors import ColdironError
from coldiron.verify import store
from tests.unit.verify.samples import mixed, passed, verification


def test_a_verification_is_kept_by_its_time(tmp_path):
    page = store.keep(mixed(), tmp_path)
    assert page == tmp_path / ".coldiron" / "verify" / "20260921-141320" / "index.html"
    assert {path.name for path in page.parent.iterdir()} == {"index.html", "junit.xml", "results.json"}
    assert json.loads((page.parent / "results.json").read_text())["cluster"] == "lab"
    assert (tmp_path / ".coldiron" / ".gitignore").read_text() == "*\n"


def test_the_newest_twenty_are_kept_and_what_is_not_ours_is_left(tmp_path):
    stranger = tmp_path / ".coldiron" / "verify" / "notes"
    stranger.mkdir(parents=True)
    pages = [
        store.keep(verification(passed("base", "head01"), started=1000.0 + n // 2), tmp_path)
        for n in range(23)
    ]
    assert len(set(pages)) == 23
    assert [page.exists() for page in pages] == [False] * 3 + [True] * 20
    assert stranger.exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ColdironError, match=r"cannot be written there: .*--output DIR") as caught:
        store.write(mixed(), tmp_path / "file" / "below")
    assert caught.value.exit_code == 5


def test_where_nothing_can_be_written_is_said_before_anything_runs(tmp_path, monkeypatch):
    store.writable(tmp_path / "not" / "there" / "yet")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(ColdironError, match="--output DIR"):
        store.writable(tmp_path)
