"""What is wrong with an inventory: findings with their line, and the one error that carries them all."""

from __future__ import annotations

import difflib
import heapq
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coldiron.errors import ColdironError

# A file made by a broken generator can be wrong on every line; nobody reads more than this.
SHOWN_AT_MOST = 100
# Nobody mends more at once, and each costs a search for the nearest word: reading ends here.
MAX_FINDINGS = 500
_VALUE_AT_MOST = 60
# Among more choices only those that are one letter off are looked for.
_COMPARED_AT_MOST = 500


@dataclass(frozen=True, order=True)
class Finding:
    """One thing to mend. ``line`` counts from 1; 0 stands for the file as a whole.

    ``code`` names the kind of fault, which `coldiron explain CODE` tells more about.
    """

    path: str
    line: int
    text: str
    code: str = field(default="", compare=False)

    @property
    def where(self) -> str:
        """The place as an editor takes it: ``FILE:LINE``, or the file alone."""
        return f"{self.path}:{self.line}" if self.line else self.path

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" + (f" [{self.code}]" if self.code else "")


class InventoryError(ColdironError):
    """A cluster.yml that cannot be used. ``findings`` holds everything that is wrong, in file order."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = sorted(set(findings))
        shown = [str(finding) for finding in self.findings[:SHOWN_AT_MOST]]
        if len(self.findings) > SHOWN_AT_MOST:
            shown.append(f"... and {len(self.findings) - SHOWN_AT_MOST} more like these")
        number = f"{len(self.findings)}{' or more' if len(self.findings) >= MAX_FINDINGS else ''}"
        head = f"{number} things to mend before anything runs\n" if len(self.findings) > 1 else ""
        super().__init__(head + "\n".join(shown))


def shown(value: object) -> str:
    """``value`` as a message quotes it: on one line, printable, and not longer than a reader needs."""
    text = value if isinstance(value, str) else str(value)
    text = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return text if len(text) <= _VALUE_AT_MOST else text[: _VALUE_AT_MOST - 3] + "..."


def shown_path(path: Path) -> str:
    """``path`` as the user would type it: relative below the working directory, else as it is."""
    absolute = Path(os.path.abspath(path))
    try:
        return shown_whole(str(absolute.relative_to(Path.cwd())))
    except (ValueError, OSError):
        return shown_whole(str(path))


def shown_whole(text: str) -> str:
    """``text`` printable, whatever bytes a file name holds."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def nearest(wrong: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that ``wrong`` is a misspelling of; None where nothing comes close."""
    lowered = {choice.lower(): choice for choice in known}
    # difflib is quadratic: a megabyte of nonsense is no misspelling.
    word = wrong.lower()[:80]
    if len(lowered) > _COMPARED_AT_MOST:
        return next((lowered[other] for other in _one_edit_away(word) if other in lowered), None)
    near = difflib.get_close_matches(word, lowered, n=1, cutoff=0.6)
    return lowered[near[0]] if near else None


def _one_edit_away(word: str) -> Iterator[str]:
    """What ``word`` may have been meant as: a letter twisted, left out, in excess or wrong."""
    for at in range(len(word) + 1):
        before, here, after = word[:at], word[at : at + 1], word[at + 1 :]
        yield before + after[:1] + here + after[1:]
        yield before + after
        for letter in "0123456789-abcdefghijklmnopqrstuvwxyz":
            yield before + letter + after
            yield before + letter + here + after


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """``did you mean `x`?``, or the list of what is known where nothing comes close."""
    choices = known if isinstance(known, Collection) else list(known)
    if near := nearest(wrong, choices):
        return f"did you mean `{near}`?"
    if not choices:
        return "there is none to choose from"
    listed = ", ".join(heapq.nsmallest(40, choices))
    return f"write one of: {listed}" + (", ..." if len(choices) > 40 else "")
