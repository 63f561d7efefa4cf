"""Jobs that the roles' tests ask Slurm for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from coldiron.testing.fixtures import wait_until

# A node that slurmctld missed for a moment is back with its next ping, a third of SlurmdTimeout (300 s) later.
BACK_SECONDS = 130


class Answer(Protocol):
    """What a command said on standard error, as testinfra has it."""

    @property
    def stderr(self) -> str:
        """Its text."""


T = TypeVar("T", bound=Answer)


def with_nodes(ask: Callable[[], T]) -> T:
    """Ask Slurm for nodes at once, with srun or salloc, until they are in its reach; return its answer.

    ``ask`` is called again while a node is away; any other refusal is an answer. After `BACK_SECONDS` an
    AssertionError says what the last one was.
    """

    def asked() -> tuple[T]:
        answer = ask()
        assert "Required node not available" not in answer.stderr, answer.stderr
        return (answer,)

    (answer,) = wait_until(asked, seconds=BACK_SECONDS, every=2)
    return answer
