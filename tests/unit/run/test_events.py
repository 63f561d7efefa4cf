"""The event file: written line by line, read whatever became of it."""

from __future__ import annotations

import gzip
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.errors import ColdironError
from coldiron.run.events import EventWriter, parse, read_events


def write(path: Path, *kinds: str) -> None:
    writer = EventWriter(path)
    for number, kind in enumerate(kinds):
        writer.write(100.0 + number, kind, {"text": "naïve \udcff\n"})
    writer.close()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "a", "b")
    write(path, "c")
    events = list(read_events(path))
    assert [(event.number, event.time, event.kind) for event in events] == [
        (1, 100.0, "a"),
        (2, 101.0, "b"),
        (1, 100.0, "c"),
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_each_event_is_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    writer = EventWriter(path)
    writer.write(1.0, "first", {})
    assert [event.kind for event in read_events(path)] == ["first"]
    writer.close()


def test_damaged_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    write(path, "a", "b")
    lines = path.read_bytes().splitlines(keepends=True)
    garbage = [
        b"\xff\xfe\n", b"[]\n", b"{}\n", b"nonsense\n", b'{"format":1,"number":true,"time":1,"kind":"x","data":{}}\n',
        b'{"format":1,"number":1,"time":1e400,"kind":"x","data":{}}\n',
        b'{"format":1,"number":1,"time":1,"kind":"x"}\n',
        b"[" * 100_000 + b"\n", b'{"format":1,"number":-1,"time":1,"kind":"x","data":{}}\n',
    ]  # fmt: skip
    path.write_bytes(lines[0] + b"".join(garbage) + b"\n" + lines[1][:20])
    events = read_events(path)
    assert [event.kind for event in events] == ["a"]
    assert events.damaged == len(garbage) + 1
    # Read again it counts anew.
    assert len(list(events)) == 1
    assert events.damaged == len(garbage) + 1


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"format":2,"number":1,"time":1,"kind":"a","data":{}}\n')
    with pytest.raises(ColdironError, match="newer coldiron"):
        list(read_events(path))


def test_a_truncated_archive(tmp_path: Path) -> None:
    write(tmp_path / "e", *("abc" * 50))
    whole = gzip.compress((tmp_path / "e").read_bytes())
    path = tmp_path / "events.jsonl.gz"
    for length in (0, 1, 5, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        events = read_events(path)
        list(events)
        assert events.damaged == (1 if length else 0)
    path.write_bytes(b"no archive")
    events = read_events(path)
    assert list(events) == []
    assert events.damaged == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ColdironError, match="cannot be read: No such file"):
        list(read_events(tmp_path / "none"))
    with pytest.raises(ColdironError, match="cannot be read"):
        list(read_events(tmp_path))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_line_is_an_event_or_none(line: bytes) -> None:
    parse(line)
