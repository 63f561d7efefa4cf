"""Whether a one-time boot took: what a BMC said before the start, held against what it says after it.

BMCs that keep an override for good although it was asked for once are common, sushy's emulator among them; a machine
behind one installs itself again at each start. So nothing counts as done before the override is seen to be gone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coldiron.inventory.findings import shown
from coldiron.provision.bmc_facts import Facts

Outcome = Literal["took", "stays", "waits", "lost", "not armed", "unknown"]


@dataclass(frozen=True)
class Proof:
    """``outcome`` in a word, ``why`` in a line; ``clear`` where DisableBootOverride has to follow."""

    outcome: Outcome
    why: str
    clear: bool = False


def prove_boot(before: Facts, after: Facts, target: str) -> Proof:
    """What became of one boot from ``target``: ``before`` was read once it was set, ``after`` past the start."""
    armed, now, name = before.override, after.override, shown(target)
    if armed is None or now is None:
        return Proof("unknown", "this BMC shows no boot override; only the machine can say what it booted")
    if not armed.active or armed.target != target:
        return Proof("not armed", f"before the start the override was {_told(before)}, not {name}")
    if now.active and now.target == target:
        if now.enabled == "Once":
            return Proof("waits", f"the override to {name} is still there: the machine has not started since")
        return Proof(
            "stays", f"the override to {name} is {shown(now.enabled)}: each start would use it", True
        )
    if now.active:
        return Proof("unknown", f"the override is {_told(after)} now: somebody else has set it")
    if before.started and before.started == after.started:
        return Proof("lost", f"the override to {name} is gone, and the machine has not started since")
    return Proof("took", f"the override to {name} was used up by the start")


def _told(facts: Facts) -> str:
    override = facts.override
    return f"{shown(override.target)} ({shown(override.enabled)})" if override and override.active else "off"
