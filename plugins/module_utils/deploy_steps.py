"""How a deployment stands, by what the provisioner says of it: pure, shared by the module and its action plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The names that machines report, in their order; `coldiron.provision.deployd_state` has the same.
STEPS = ("up", "redeem", "disks", "partition", "stream", "system", "identity", "boot", "done")

# What a machine reports when a step is over: it tells the steps from `partition` on as they begin.
OVER = {"partition": "stream", "stream": "system", "system": "identity", "identity": "boot", "boot": "done"}


class Stopped(Exception):
    """The deployment will not get any further. ``refused``: the machine itself said why, so trying again is vain."""

    def __init__(self, text: str, *, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused


def line_of(answer: Any, node: str) -> Mapping[str, Any] | None:
    """What ``coldiron-deployd wait`` says of ``node``; None where that is nothing."""
    return answer if isinstance(answer, Mapping) and answer.get("node") == node else None


def reached(line: Mapping[str, Any] | None, node: str, wanted: str) -> bool:
    """Whether ``node`` has the step ``wanted`` behind it. Raises Stopped where it never will have."""
    if line is None:
        raise Stopped(f"the provisioner knows nothing of {node}; order it anew", refused=True)
    if wanted == "done":
        if line.get("state") == "done":
            return True
    elif any(
        _place(event.get("step")) >= STEPS.index(OVER.get(wanted, wanted))
        for event in line.get("events") or []
        if not event.get("failed")
    ):
        return True
    if line.get("failed"):
        raise Stopped(f"{node} stopped at step {line.get('step')}: {line['failed']}", refused=True)
    if line.get("state") == "cancelled":
        raise Stopped(f"the order of {node} was cancelled", refused=True)
    return False


def _place(step: Any) -> int:
    return STEPS.index(step) if step in STEPS else -1


def hanging(line: Mapping[str, Any] | None, node: str, wanted: str, seconds: float) -> str:
    """One sentence on a node that was not done with ``wanted`` in ``seconds``: its last step and how long ago."""
    step = (line or {}).get("step") or "ordered"
    age = (line or {}).get("age_seconds")
    since = f", {float(age):.0f} s ago" if isinstance(age, int | float) else ""
    what = {
        "ordered": "it has not asked for its boot script",
        "netboot": "it has fetched its boot script, and nothing was heard since",
    }.get(str(step), f"its last step was `{step}`")
    return f"{node} hangs: `{wanted}` was not over within {seconds:.0f} s; {what}{since}"
