"""What is done with a BMC: switch the machine, boot it once from elsewhere with proof, make it as declared.

Each piece of work reads, plans, sends, and looks whether it came true. Nothing is believed because a BMC said yes. What
passes (a busy BMC, a lost packet) is tried again a few times; a write only once its effect is seen to be missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown
from coldiron.provision.bmc_facts import Facts
from coldiron.provision.bmc_plan import Plan, Step, Wanted, plan
from coldiron.provision.bmc_proof import Proof, prove_boot
from coldiron.provision.bmc_trouble import Trouble, Where

T = TypeVar("T")
_DISK = "Hdd"
# What an override that is set once may still be found as, and the target that it is then left with.
_CLEARED = ("None", _DISK)


class Bmc(Protocol):
    """One BMC. All methods raise ColdironError; Trouble with ``passing`` is worth another try."""

    where: Where

    def facts(
        self, *, asset: bool = False, bios: bool = False, order: bool = False, resets: bool = False
    ) -> Facts:
        """What it says now; the parts that cost requests of their own only where they are asked for."""

    def send(self, step: Step) -> None:
        """Carry out one step; that it was taken says nothing of whether it took."""


@dataclass(frozen=True)
class Patience:
    """How long things may take, in seconds. ``retries`` are tries after the first, 1, 2, 4 … times ``backoff`` apart;
    ``pause`` is between two looks at what is on its way.
    """

    retries: int = 3
    grace: float = 120
    power: float = 60
    proof: float = 60
    pause: float = 2
    backoff: float = 1


@dataclass
class Done:
    """What became of a piece of work. ``before`` and ``after`` are what a diff shows."""

    changed: bool = False
    told: list[str] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    proof: Proof | None = None
    waits: tuple[str, ...] = ()
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)


class Work:
    """Work on one BMC. ``force`` allows to cut the power; with ``check`` nothing is sent."""

    def __init__(
        self,
        bmc: Bmc,
        patience: Patience | None = None,
        *,
        force: bool = False,
        check: bool = False,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bmc = bmc
        self._patience = patience or Patience()
        self._force = force
        self._check = check
        self._sleep = sleep
        self._now = now

    def facts(
        self, *, asset: bool = False, bios: bool = False, order: bool = False, resets: bool = False
    ) -> Facts:
        """The facts, asked for again while what is wrong may pass."""
        return self.patiently(lambda: self._bmc.facts(asset=asset, bios=bios, order=order, resets=resets))

    def on(self, found: Facts) -> Done:
        """The machine has power. ``found``, here and below, are its facts as they were read just now."""
        done = self._power(found, "On")
        if done.changed and not self._check:
            done.facts = self._switch("PowerOn", "On", self._patience.power)
        return done

    def off(self, found: Facts) -> Done:
        """The machine is off: it is asked to shut down, and where that is allowed its power is cut after the grace."""
        done = self._power(found, "Off")
        if done.changed and not self._check:
            done.facts = self._off(done.facts, done.told)
        return done

    def cycle(self, found: Facts) -> Done:
        """The machine has been off and has power again."""
        done = Done(True, facts=found, before={"power": found.power}, after={"power": "On, newly started"})
        if not self._check:
            if found.power != "Off":
                self._off(found, done.told)
            done.facts = self._switch("PowerOn", "On", self._patience.power)
        return done

    def boot_once(self, found: Facts, target: str, *, cycle: bool = True) -> Done:
        """One boot from ``target``, at once where ``cycle``: off, set, seen to be set, on, and proof that it took.

        It is set while the machine is off, since a BMC may forget what was set long before a start. Raises Trouble
        where the BMC does not keep what was set.
        """
        if target == "None":
            return self.boot_disk(found)
        steps = plan(found, Wanted(boot_once=target)).steps
        done = Done(True, facts=found, before=_boot(found), after={"boot": f"{target} (Once)"})
        if not cycle:
            done.changed = bool(steps)
        if self._check:
            return done
        if cycle and found.power != "Off":
            self._off(found, done.told)
        armed = self._arm(target)
        done.told.append(f"one boot from {target} is set")
        if not cycle:
            done.facts, done.proof = armed, prove_boot(armed, armed, target)
            return done
        # It was off when this was read: whatever the BMC says of an earlier start is no sign of a lost one.
        armed = replace(armed, started="")
        started = self._switch("PowerOn", "On", self._patience.power)
        done.told.append("power on")
        done.facts, done.proof = self._proof(armed, started, target)
        return done

    def boot_disk(self, found: Facts) -> Done:
        """From now on the machine starts from its disk: no override is left but one to the disk."""
        override = found.override
        done = Done(facts=found, before=_boot(found), after=_boot(found))
        if override is None or not override.active or override.target == _DISK:
            return done
        done.changed, done.after = True, {"boot": "from its disk"}
        if self._check:
            return done
        if not override.allowed or "None" in override.allowed:
            self.patiently(
                lambda: self._bmc.send(Step("DisableBootOverride", "no more boots from elsewhere"))
            )
        else:
            # Where there is no "None", as in sushy's emulator, the override stays for good: then to the disk.
            self.patiently(lambda: self._bmc.send(Step("SetOneTimeBoot", "from the disk", target=_DISK)))
        done.facts = self.facts()
        left = done.facts.override
        if left is not None and left.active and left.target not in _CLEARED:
            raise Trouble(
                self._told(
                    f"its boot override stays at {shown(left.target)} although it was taken back: the node would "
                    "install itself again; set it to the disk by hand"
                )
            )
        done.told.append("starts from its disk")
        return done

    def configure(self, found: Facts, wanted: Wanted, *, may_reboot: bool = False) -> Done:
        """BIOS attributes and boot order as declared; at most one restart, and only where it may be."""
        intended = plan(found, wanted, may_reboot=may_reboot, force=self._force)
        restart = any(step.command.startswith("Power") for step in intended.steps)
        done = Done(bool(intended.steps), facts=found, waits=intended.waits)
        done.before, done.after = _differences(found, intended, wanted)
        done.told = [step.why for step in intended.steps]
        if self._check:
            return done
        for step in intended.steps:
            if not step.command.startswith("Power"):
                self.patiently(lambda step=step: self._bmc.send(step))  # type: ignore[misc]
        if restart:
            if found.power != "Off":
                self._off(found, done.told)
            self._switch("PowerOn", "On", self._patience.power)
        if intended.steps:
            done.facts = self._as_declared(wanted, started=restart)
        return done

    def _as_declared(self, wanted: Wanted, *, started: bool) -> Facts:
        """The facts once they are as declared, or staged to be; a BIOS takes its time after a start."""
        end = self._now() + (self._patience.proof if started else 0)
        while True:
            found = self.facts(bios=bool(wanted.attributes), order=wanted.boot_order is not None)
            left = plan(found, wanted)
            missing = [step.why for step in left.steps] + list(left.waits if started else ())
            if not missing:
                return found
            if self._now() >= end:
                raise Trouble(self._told(f"it took this and did not do it: {shown('; '.join(missing))}"))
            self._sleep(self._patience.pause)

    def _arm(self, target: str) -> Facts:
        self.patiently(
            lambda: self._bmc.send(Step("SetOneTimeBoot", f"one boot from {target}", target=target))
        )
        armed = self.facts()
        proof = prove_boot(armed, armed, target)
        if proof.outcome == "not armed":
            raise Trouble(
                self._told(
                    f"it took one boot from {shown(target)} and did not keep it ({proof.why}); update the BMC, or set "
                    "the boot order by hand"
                )
            )
        return armed

    def _proof(self, armed: Facts, found: Facts, target: str) -> tuple[Facts, Proof]:
        """What came of the boot: read until the override is used up, stays for good, or the time is over."""
        end = self._now() + self._patience.proof
        while True:
            proof = prove_boot(armed, found, target)
            if proof.outcome != "waits" or self._now() >= end:
                return found, proof
            self._sleep(self._patience.pause)
            found = self.facts()

    def _power(self, found: Facts, wanted: str) -> Done:
        # The plan refuses where the power is unknown, rather than to switch blindly.
        steps = plan(found, Wanted(power="on" if wanted == "On" else "off")).steps
        return Done(bool(steps), facts=found, before={"power": found.power}, after={"power": wanted})

    def _off(self, found: Facts, told: list[str]) -> Facts:
        """Switch off by the book, and by force where it may be. ``found`` says which ways there are."""
        if not found.resets:
            found = self.facts(resets=True)
        gentle = not found.resets or "GracefulShutdown" in found.resets
        if gentle and self._patience.grace > 0:
            try:
                facts = self._switch("PowerGracefulShutdown", "Off", self._patience.grace)
            except _Unmoved:
                if not self._force:
                    raise Trouble(
                        self._told(
                            f"the machine still has power {self._patience.grace:g} s after it was asked to shut down; "
                            "look at its console, or allow `bmc_power_force: true` to cut the power"
                        )
                    ) from None
            else:
                told.append("shut down")
                return facts
        if not self._force:
            why = "this BMC cannot ask for a shutdown" if not gentle else "no time was given to shut down"
            raise ColdironError(
                self._told(f"{why}, and the power may not be cut; allow it with `bmc_power_force: true`"),
                ExitCode.REFUSED,
            )
        facts = self._switch("PowerForceOff", "Off", self._patience.power)
        told.append("power cut")
        return facts

    def _switch(self, command: Any, wanted: str, seconds: float) -> Facts:
        """Send a power command and wait until it is so. Sent again only where an answer got lost and nothing moved."""
        for pause in (*self._pauses(), None):
            try:
                self._bmc.send(Step(command, f"power {wanted.lower()}"))
                break
            except Trouble as error:
                if not error.passing or pause is None:
                    raise
                self._sleep(pause)
                found = self.facts()
                if found.power == wanted:
                    return found
        end = self._now() + seconds
        while True:
            found = self.facts()
            if found.power == wanted:
                return found
            if self._now() >= end:
                raise _Unmoved(
                    self._told(
                        f"the machine's power is {shown(found.power or 'unknown')} {seconds:g} s after {command}; look "
                        "at the BMC's log and at the machine's power supplies"
                    )
                )
            self._sleep(min(self._patience.pause, max(0.1, end - self._now())))

    def _pauses(self) -> tuple[float, ...]:
        return tuple(self._patience.backoff * 2**number for number in range(self._patience.retries))

    def patiently(self, call: Callable[[], T]) -> T:
        """What ``call`` returns; it is called again, a few times, while what is wrong may pass."""
        for pause in (*self._pauses(), None):
            try:
                return call()
            except Trouble as error:
                if not error.passing:
                    raise
                if pause is None:
                    tries = self._patience.retries + 1
                    raise Trouble(f"{error.message} (asked {tries} times)") from None
                self._sleep(pause)
        raise AssertionError("the loop ends by itself")

    def _told(self, what: str) -> str:
        return self._bmc.where.told(what)


class _Unmoved(Trouble):
    """The power did not become what was asked for."""


def check_asset(facts: Facts, where: Where, serial: str = "", mac: str = "") -> None:
    """Refuse a machine that is not the one declared: somebody has cabled another, or written it down wrongly.

    What the BMC does not say cannot be held against it. Raises ColdironError (REFUSED).
    """
    asset = facts.asset
    known = {word.lower() for word in asset.serials}
    if serial and known and serial.lower() not in known:
        raise ColdironError(
            where.told(
                f"it belongs to a machine with serial {shown(', '.join(asset.serials))}, and cluster.yml says "
                f"`serial: {shown(serial)}`; the wrong machine is cabled, or the wrong line written"
            ),
            ExitCode.REFUSED,
        )
    if mac and asset.macs and mac.lower() not in asset.macs:
        raise ColdironError(
            where.told(
                f"its machine has the MACs {shown(', '.join(asset.macs))}, and cluster.yml says "
                f"`mac: {shown(mac)}`; the wrong machine is cabled, or the wrong line written"
            ),
            ExitCode.REFUSED,
        )


def _boot(facts: Facts) -> dict[str, Any]:
    override = facts.override
    if override is None:
        return {"boot": "not shown"}
    return {"boot": f"{override.target} ({override.enabled})" if override.active else "no override"}


def _differences(found: Facts, intended: Plan, wanted: Wanted) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a diff shows of a plan: attributes and boot order as they are, and as they will be."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for step in intended.steps:
        if step.attributes:
            now = found.attributes or {}
            before["bios"] = {name: now.get(name) for name in step.attributes}
            after["bios"] = dict(step.attributes)
        if step.boot_order:
            before["boot_order"] = [option.reference for option in found.boot_order or ()]
            after["boot_order"] = list(step.boot_order)
        if step.command.startswith("Power"):
            before["started"], after["started"] = found.power, step.why
    return before, after
