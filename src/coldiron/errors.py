"""The errors that a person is meant to read: one clear line and an exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process tells its caller. Documented in docs/exit-codes.md."""

    OK = 0
    HOSTS_FAILED = 1
    USAGE = 2
    REFUSED = 3
    INTERRUPTED = 4
    ENVIRONMENT = 5


class ColdironError(Exception):
    """Something that the user can mend: what is wrong, where, and what to write or type.

    ``message`` is shown as it is, without a traceback; ``exit_code`` is the process's.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
