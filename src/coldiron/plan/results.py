"""What a plan works out, as plain data: where things stand, what hangs on what, and what the circuits carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Position:
    """Where a node or a switch stands. ``u`` is the lowest unit it takes; ``chosen``: by the plan, not by the file."""

    name: str
    rack: str
    u: int | None
    height_u: int | None
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """One end of a link: a node's port or a switch's, counted from 1 within its network; ``cage`` as printed on it."""

    device: str
    port: int
    cage: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """One link. ``network`` is the name of a fabric or a network; ``a`` is the node, or the lower switch.

    ``planned``: made by rule, not written in the file. ``length_m`` is the run between the racks, None where either
    end's place is unknown.
    """

    network: str
    a: End
    b: End
    gbit_per_s: float | None
    rail: int | None = None
    cable: str | None = None
    length_m: float | None = None
    planned: bool = True


@dataclass(frozen=True, slots=True)
class CircuitLoad:
    """What one breaker carries. ``id`` is RACK/PDU or RACK/PDU/CIRCUIT, or a feed's name; watts are real power.

    ``watts`` with all feeds alive, ``failover_watts`` with the worst other feed lost; ``limit_watts`` is derated.
    """

    id: str
    feed: str | None
    phase: str | None
    limit_watts: float
    watts: float
    failover_watts: float


@dataclass(frozen=True)
class PowerPlan:
    """Watts at the wall. ``nodes`` and ``switches``: most draw of each, with caps; those without a figure are absent.

    ``caps`` is the cap per GPU, in watts, that the plan found for nodes of `fit_circuit`, by node; ``heat_kw`` is by
    rack; ``energy_kwh`` is a year's, with the building's where its PUE is known. ``circuits`` are the breakers that
    machines are plugged into, ``phases`` the lines of three-phase PDUs (RACK/PDU/L1; amps times volts to neutral),
    ``pdus`` the breakers of PDUs that have circuits.
    """

    nodes: Mapping[str, float] = field(default_factory=dict)
    switches: Mapping[str, float] = field(default_factory=dict)
    circuits: tuple[CircuitLoad, ...] = ()
    feeds: tuple[CircuitLoad, ...] = ()
    caps: Mapping[str, float] = field(default_factory=dict)
    heat_kw: Mapping[str, float] = field(default_factory=dict)
    energy_kwh: float | None = None
    cost: float | None = None
    phases: tuple[CircuitLoad, ...] = ()
    pdus: tuple[CircuitLoad, ...] = ()
