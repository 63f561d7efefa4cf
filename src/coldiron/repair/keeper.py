"""Holds inherited locks until a process ends: ``python -m coldiron.repair.keeper PID DESCRIPTOR...``."""

from __future__ import annotations

import contextlib
import os
import select
import sys


def main(words: list[str]) -> None:
    """Wait for the process ``words[0]``, then say in the lock files that nobody holds them, and let go."""
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(int(words[0]))], [], [])
    for word in words[1:]:
        # Another user's file may be open for reading alone.
        with contextlib.suppress(OSError):
            os.ftruncate(int(word), 0)


if __name__ == "__main__":
    main(sys.argv[1:])
