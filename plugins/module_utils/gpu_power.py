"""Keep GPUs' power caps, clocks and persistence as declared, by nvidia-smi.

Role gpu_power installs this file as it is, for units that run it at boot and every little while:

    gpu_power.py apply FILE   set what differs; say what that was
    gpu_power.py check FILE   say whether the cards can have it; nothing is set

Standard library only.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

#: Runs a command: its words to exit status, standard output, standard error.
Run = Callable[[Sequence[str]], tuple[int, str, str]]

_FIELDS = (
    "index",
    "persistence_mode",
    "power.limit",
    "power.min_limit",
    "power.max_limit",
    "power.default_limit",
    "clocks.max.graphics",
    "clocks.max.memory",
)
#: nvidia-smi shows watts with two digits after the point.
_NEAR_WATTS = 0.5
#: Options that pin clocks, and that let them go.
_CLOCKS = {"graphics": ("-lgc", "-rgc"), "memory": ("-lmc", "-rmc")}


class PowerError(Exception):
    """What a card cannot have, or nvidia-smi's refusal; the message says what to write."""


class Card(NamedTuple):
    """One GPU: watts and MHz, None where it says none. ``highest`` are the clocks that it can reach."""

    index: int
    persistence: bool | None
    watts: float | None
    least: float | None
    most: float | None
    usual: float | None
    highest: Mapping[str, float | None]


class Step(NamedTuple):
    """One call of nvidia-smi. ``why`` is empty where the driver does not tell whether it is needed."""

    index: int
    why: str
    command: tuple[str, ...]


def _figure(text: str) -> float | None:
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None


def read_cards(ask: Run) -> list[Card]:
    """Ask nvidia-smi for every GPU. Raises PowerError."""
    code, out, error = ask(
        ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
    )
    if code != 0:
        raise PowerError(f"nvidia-smi says: {_first(error or out, code)}")
    found = []
    for line in out.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) == len(_FIELDS):
            watts = [_figure(word) for word in words[2:6]]
            mode = {"enabled": True, "disabled": False}.get(words[1].lower())
            highest = {"graphics": _figure(words[6]), "memory": _figure(words[7])}
            found.append(Card(int(words[0]), mode, watts[0], watts[1], watts[2], watts[3], highest))
    return found


def _first(text: str, code: int) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines else f"exit status {code}"


def plan(cards: Sequence[Card], wanted: Mapping[str, Any]) -> list[Step]:
    """Return the calls that bring cards to what is wanted: ``persistence``, ``cap_watts``, ``clocks``.

    A cap of 0 is the card's own default. ``clocks`` maps graphics and memory to [least, most] MHz; the driver does not
    say what clocks are pinned to, so they are set each time. Raises PowerError for what a card cannot have.
    """
    found = []
    for card in cards:
        one = ("nvidia-smi", "-i", str(card.index))
        name = f"GPU {card.index + 1}"
        if card.persistence is not None and card.persistence != wanted["persistence"]:
            word = "on" if wanted["persistence"] else "off"
            found.append(
                Step(
                    card.index, f"{name}: persistence {word}", (*one, "-pm", str(int(wanted["persistence"])))
                )
            )
        watts = _watts(card, float(wanted["cap_watts"]), name)
        if watts is not None and card.watts is not None and abs(card.watts - watts) > _NEAR_WATTS:
            why = f"{name}: {watts:g} W, was {card.watts:g} W"
            found.append(Step(card.index, why, (*one, "-pl", f"{watts:g}")))
        for kind, (pin, free) in _CLOCKS.items():
            span = wanted["clocks"].get(kind)
            if span is None:
                continue
            if not span:
                found.append(Step(card.index, "", (*one, free)))
                continue
            least, most = (int(figure) for figure in span)
            highest = card.highest.get(kind)
            if least > most or (highest is not None and most > highest):
                raise PowerError(
                    f"{name} cannot run its {kind} clock at {least} to {most} MHz"
                    + (f", it reaches {highest:g} MHz" if highest is not None else "")
                    + f": correct gpu_power_{kind}_mhz"
                )
            found.append(Step(card.index, "", (*one, pin, f"{least},{most}")))
    return found


def _watts(card: Card, cap: float, name: str) -> float | None:
    """The limit that a card shall have, in watts; None where it has none. Raises PowerError."""
    if cap <= 0:
        return card.usual
    if card.least is None or card.most is None:
        raise PowerError(f"{name} takes no power cap: remove gpu_power_cap_watts")
    if not card.least <= cap <= card.most:
        raise PowerError(
            f"{name} takes caps from {card.least:g} to {card.most:g} W, not {cap:g} W: correct gpu_power_cap_watts,"
            " or gpu_cap_watts in cluster.yml"
        )
    return cap


def apply(steps: Sequence[Step], ask: Run) -> list[str]:
    """Make the calls; return what was different. Raises PowerError at the end if one failed, with all that failed."""
    told, failed = [], []
    for step in steps:
        code, out, error = ask(step.command)
        if code != 0:
            failed.append(f"`{' '.join(step.command)}`: {_first(error or out, code)}")
        elif step.why:
            told.append(step.why)
    if failed:
        raise PowerError("; ".join(failed))
    return told


def run(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command. Raises FileNotFoundError."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def main(arguments: Sequence[str]) -> int:
    """Apply or check a file; see the top."""
    if len(arguments) != 2 or arguments[0] not in ("apply", "check"):
        print("usage: gpu_power.py apply|check FILE", file=sys.stderr)
        return 2
    with open(arguments[1], encoding="utf-8") as stream:
        wanted = json.load(stream)
    try:
        steps = plan(read_cards(run), wanted)
        if arguments[0] == "apply":
            for line in apply(steps, run):
                print(line)
    except FileNotFoundError:
        if arguments[0] == "check":
            # A node whose driver is still to come: what its cards can have is seen when it is set.
            return 0
        print("nvidia-smi is not there", file=sys.stderr)
        return 1
    except PowerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
