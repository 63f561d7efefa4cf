"""What a BMC says of its machine, typed: from ``redfish_facts`` of community.general.redfish_info.

The module calls a fact read even where the BMC has no such thing, so contents are looked at and never ``ret`` alone.
What is not there is None here: it is not known, which is another thing than empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown, shown_whole

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Attribute:
    """What the BIOS's registry says of one attribute. Names as in Redfish's AttributeRegistry (DSP2046)."""

    name: str
    type: str = ""
    read_only: bool = False
    choices: tuple[str, ...] = ()
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True)
class BootOption:
    """One entry of the boot order. ``reference`` is the BMC's own word, ``name`` what people call it."""

    reference: str
    name: str = ""


@dataclass(frozen=True)
class Override:
    """The boot override: ``enabled`` is Disabled, Once or Continuous; ``allowed`` is empty where it is not said."""

    enabled: str
    target: str
    allowed: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        return self.enabled != "Disabled" and self.target != "None"


@dataclass(frozen=True)
class Asset:
    """What the machine is. ``serials`` are all numbers that the makers put on the chassis; empty is not known."""

    maker: str = ""
    model: str = ""
    serials: tuple[str, ...] = ()
    bios_version: str = ""
    macs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """One machine as its BMC sees it. ``pending`` are BIOS values that wait for a start of the machine.

    ``power`` is Redfish's PowerState, "" where it is not said. ``started`` is whatever the BMC says of the last
    start's progress: only that it differs means something.
    """

    power: str = ""
    attributes: Mapping[str, Value] | None = None
    pending: Mapping[str, Value] = field(default_factory=dict)
    registry: Mapping[str, Attribute] = field(default_factory=dict)
    boot_order: tuple[BootOption, ...] | None = None
    override: Override | None = None
    started: str = ""
    asset: Asset = Asset()
    resets: tuple[str, ...] = ()


def read_facts(
    redfish_facts: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    resource: Mapping[str, Any] | None = None,
) -> Facts:
    """The facts of one machine. ``settings`` is the resource Bios/Settings, ``resource`` the system's own: of both
    redfish_info says nothing, and only the latter has the ways to switch the machine (``resets``).

    Raises ColdironError (ENVIRONMENT), one line, for garbage and for a BMC that shows more than one system.
    """
    system = _mapping(_entries(redfish_facts, "system") or {}, "system")
    attributes = _entries(redfish_facts, "bios_attribute")
    order = _entries(redfish_facts, "boot_order")
    override = _entries(redfish_facts, "boot_override")
    progress = _mapping(system.get("BootProgress") or {}, "BootProgress")
    return Facts(
        power=_text(system.get("PowerState"), "PowerState"),
        attributes=None if attributes is None else _values(attributes, "bios_attribute"),
        pending=_values((settings or {}).get("Attributes") or {}, "pending BIOS attributes"),
        registry=_registry(redfish_facts),
        boot_order=None if order is None else _order(order),
        override=_override(override),
        started=" ".join(_text(progress.get(key), key) for key in sorted(progress) if key.startswith("Last")),
        asset=Asset(
            _text(system.get("Manufacturer"), "Manufacturer"),
            _text(system.get("Model"), "Model"),
            _serials(system),
            _text(system.get("BiosVersion"), "BiosVersion"),
            _macs(redfish_facts),
        ),
        resets=_resets(resource or {}),
    )


def _serials(system: Mapping[str, Any]) -> tuple[str, ...]:
    # What stands on the label is the SerialNumber of one maker, the SKU or the service tag of another.
    words = [_text(system.get(key), key).strip() for key in ("SerialNumber", "SKU", "ServiceTag")]
    return tuple(dict.fromkeys(word for word in words if word))


def _macs(facts: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for fields in _list(_entries(facts, "nic") or [], "the list of NICs"):
        nic = _mapping(fields, "a NIC")
        for key in ("PermanentMACAddress", "MACAddress"):
            found.append(_text(nic.get(key), key).replace("-", ":").lower())
    return tuple(dict.fromkeys(mac for mac in found if mac))


def _resets(resource: Mapping[str, Any]) -> tuple[str, ...]:
    actions = _mapping(resource.get("Actions") or {}, "Actions")
    reset = _mapping(actions.get("#ComputerSystem.Reset") or {}, "ComputerSystem.Reset")
    allowed = _list(reset.get("ResetType@Redfish.AllowableValues") or [], "the reset types")
    return tuple(_text(word, "a reset type") for word in allowed)


def _entries(facts: Mapping[str, Any], name: str) -> Any:
    """The one system's part of a fact; None where the BMC has none."""
    fact = facts.get(name)
    if fact is None:
        return None
    entries = _mapping(fact, name).get("entries") or []
    if not isinstance(entries, list):
        _refuse(f"`{name}` has no list of entries")
    if len(entries) > 1:
        _refuse(f"it shows {len(entries)} systems, and a node is one; name the system's id")
    if not entries:
        return None
    # redfish_info gives a pair: the system's address and what was read.
    if not isinstance(entries[0], list | tuple) or len(entries[0]) != 2:
        _refuse(f"an entry of `{name}` is no pair")
    return entries[0][1] or None


def _values(given: Any, what: str) -> dict[str, Value]:
    values = _mapping(given, what)
    for name, value in values.items():
        if value is not None and not isinstance(value, str | int | float | bool):
            _refuse(f"the BIOS attribute {shown(name)} is neither text nor number")
    return values


def _registry(facts: Mapping[str, Any]) -> dict[str, Attribute]:
    known: dict[str, Attribute] = {}
    registry = _mapping(facts.get("bios_registries") or {}, "bios_registries").get("bios_registry") or {}
    entries = _mapping(_mapping(registry, "bios_registry").get("RegistryEntries") or {}, "RegistryEntries")
    for fields in _list(entries.get("Attributes") or [], "the registry's Attributes"):
        entry = _mapping(fields, "an attribute of the registry")
        name = _text(entry.get("AttributeName"), "AttributeName")
        choices = _list(entry.get("Value") or [], f"Value of {name}")
        known[name] = Attribute(
            name,
            _text(entry.get("Type"), "Type"),
            # Greyed out: another attribute forbids it now. A write would be refused, or worse, taken and dropped.
            bool(entry.get("ReadOnly") or entry.get("GrayOut") or entry.get("Immutable")),
            tuple(_text(_mapping(choice, "a value").get("ValueName"), "ValueName") for choice in choices),
            _number(entry.get("LowerBound")),
            _number(entry.get("UpperBound")),
        )
    return known


def _order(order: Any) -> tuple[BootOption, ...]:
    options = []
    for fields in _list(order, "the boot order"):
        entry = _mapping(fields, "a boot option")
        reference = _text(entry.get("BootOptionReference"), "BootOptionReference")
        if not reference:
            _refuse("a boot option has no reference")
        name = _text(entry.get("DisplayName"), "DisplayName") or _text(entry.get("Name"), "Name")
        options.append(BootOption(reference, name))
    return tuple(options)


def _override(given: Any) -> Override | None:
    if given is None:
        return None
    fields = _mapping(given, "boot_override")
    allowed = _list(fields.get("BootSourceOverrideTarget@Redfish.AllowableValues") or [], "allowable values")
    return Override(
        _text(fields.get("BootSourceOverrideEnabled"), "BootSourceOverrideEnabled") or "Disabled",
        _text(fields.get("BootSourceOverrideTarget"), "BootSourceOverrideTarget") or "None",
        tuple(_text(value, "an allowable value") for value in allowed),
    )


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        _refuse(f"`{what}` is no mapping")
    return dict(value)


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        _refuse(f"{what} is no list")
    return value


def _text(value: Any, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str | int):
        _refuse(f"{what} is no text")
    return str(value)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _refuse(why: str) -> NoReturn:
    raise ColdironError(f"the BMC's answer cannot be used: {shown_whole(why)}", ExitCode.ENVIRONMENT)
