"""The live view on a terminal: draws the newest state, leaves the terminal in order, bears changes meanwhile."""

from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console

from coldiron.display import make_view
from coldiron.display.estimate import Estimate, from_states
from coldiron.display.live import LiveView
from coldiron.display.plain import PlainView
from coldiron.run.state import Cell, Host, Outcome, Running, RunState
from tests.unit.display.samples import BEGAN, SMALL, begun, end, finish_stage, midway


def terminal(width: int = 80, height: int = 24, **given: object) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=True, width=width, height=height, legacy_windows=False, **given
    )  # type: ignore[arg-type]
    return console, file


def live(console: Console, estimate: Estimate | None = None) -> LiveView:
    return LiveView(console, estimate=estimate, clock=lambda: BEGAN + 120)


def test_it_draws_the_newest_state_and_restores_the_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    console, file = terminal(color_system="standard")
    with live(console) as view:
        view.update(midway(SMALL))
        view.draw()
        assert "stage 4 of 4: scheduler" in file.getvalue()
        assert "\x1b[?25l" in file.getvalue()
        view.update(end(midway(SMALL), Outcome.OK, BEGAN + 130))
    text = file.getvalue()
    assert "done" in text[text.rindex("apply") :]
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "\x1b[33m" in text


def test_the_terminal_is_restored_after_an_error() -> None:
    console, file = terminal()
    view = live(console)
    view.update(midway(SMALL))
    with pytest.raises(KeyboardInterrupt), view:
        raise KeyboardInterrupt
    assert "\x1b[?25h" in file.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "coldiron-live-view"]


def test_a_terminal_that_goes_away_does_not_end_the_run() -> None:
    class Gone(io.StringIO):
        gone = False

        def write(self, text: str) -> int:
            if self.gone:
                raise OSError(5, "Input/output error")
            return super().write(text)

    file = Gone()
    view = live(Console(file=file, force_terminal=True, width=80, height=24))
    with view:
        view.update(midway(SMALL))
        file.gone = True
        view._thread.join(10)
        assert not view._thread.is_alive()


def test_without_a_state_nothing_is_drawn() -> None:
    console, file = terminal()
    with live(console) as view:
        view.draw()
        assert view.render(80, 24) is None
    assert "apply" not in file.getvalue()


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console, file = terminal()
    with live(console) as view:
        view.update(midway(SMALL))
        view.draw()
    assert "\x1b[3" not in file.getvalue()
    assert "±" in file.getvalue()


def test_a_resized_terminal_gets_a_frame_of_its_size() -> None:
    console, file = terminal(200, 50)
    with live(console) as view:
        view.update(midway(SMALL))
        view.draw()
        assert max(len(line) for line in view.render(200, 49).text.split("\n")) == 200  # type: ignore[union-attr]
        console.size = console.size._replace(width=60, height=20)
        file.truncate(0)
        view.draw()
        # A clear screen first: the old lines were broken nobody knows where.
        assert "\x1b[2J" in file.getvalue()
        console.size = console.size._replace(width=10, height=2)
        view.draw()


def test_the_rest_is_guessed_from_earlier_runs() -> None:
    earlier = midway(SMALL)
    finish_stage(earlier, "scheduler", BEGAN + 95, BEGAN + 395)
    end(earlier, Outcome.OK, BEGAN + 395)
    console, _ = terminal()
    view = live(console, from_states([earlier]))
    view.update(midway(SMALL))
    drawn = view.render(80, 24)
    assert drawn is not None
    assert "about 5 min left, as in 1 earlier run" in drawn.text


def test_a_state_that_grows_while_it_is_read_is_read_again() -> None:
    class Growing(dict[str, Host]):
        def values(self):  # type: ignore[no-untyped-def]
            raise RuntimeError("dictionary changed size during iteration")

    state = midway(SMALL)
    state.hosts = Growing(state.hosts)
    console, _ = terminal()
    view = live(console)
    view.update(state)
    assert view.render(80, 24) is None


def test_frames_are_whole_while_another_thread_changes_the_state() -> None:
    state = begun([], ["base"])
    console, _ = terminal()
    view = live(console)
    view.update(state)
    stop = threading.Event()

    def change() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name = f"gpu{number % 200:04}"
            state.hosts[name] = Host(name, "gpu", {"base": Cell(started=BEGAN)})
            state.hosts[name].running = Running(name, "base", "time", f"task {number % 7}", "x:1", BEGAN)
            state.hosts[name].cells[f"stage{number % 50}"] = Cell()
            if number % 200 == 0:
                state.hosts.clear()
            view.update(state)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        frames = [view.render(80, 24) for _ in range(40)]
    finally:
        stop.set()
        changing.join()
    whole = [frame for frame in frames if frame is not None]
    assert len(whole) > 5
    assert all(len(line) <= 80 for frame in whole for line in frame.text.split("\n"))


@pytest.mark.parametrize(
    ("given", "verbose", "kind"),
    [
        ({"force_terminal": True}, False, LiveView),
        ({"force_terminal": True}, True, PlainView),
        ({"force_terminal": False}, False, PlainView),
    ],
)
def test_which_view(
    given: dict[str, bool], verbose: bool, kind: type[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=io.StringIO(), width=80, **given)  # type: ignore[arg-type]
    assert isinstance(make_view(console, verbose=verbose), kind)


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console = Console(file=io.StringIO(), force_terminal=True)
    assert isinstance(make_view(console), PlainView)


def test_ascii_where_the_encoding_is_not_utf8() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=file, force_terminal=True, width=80, height=24)
    view = live(console)
    state: RunState = midway(SMALL)
    view.update(state)
    drawn = view.render(80, 24)
    assert drawn is not None
    assert drawn.text.isascii()
