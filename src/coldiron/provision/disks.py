"""Which disks of a machine a node's rules mean. What no rule names is never in the answer, whatever lies on it.

Ambiguity is judged before anything else: a rule that fits two disks is refused even where only one of them is blank,
for a blank disk may be the new half of somebody's mirror. Consent is by serial, for that is what a person can read
off a label.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown
from coldiron.provision.lsblk import Found

Use = Literal["system", "swap", "scratch", "data"]
# A vendor's 960 GB are 960.2 or 959.1: the model's own words promise it (`size_gb` in cluster.yml).
SIZE_TOLERANCE = 0.05
_SYSTEM_AT_MOST = 2
_COUNT_AT_MOST = 128
_USES = ", ".join(get_args(Use))


class Rule(Protocol):
    """What is read of a rule: cluster.yml's own model fits, and so does ``PlainRule``."""

    @property
    def use(self) -> Use: ...
    @property
    def serial(self) -> tuple[str, ...] | None: ...
    @property
    def wwn(self) -> tuple[str, ...] | None: ...
    @property
    def size_gb(self) -> float | None: ...
    @property
    def model(self) -> str | None: ...
    @property
    def count(self) -> int: ...


@dataclass(frozen=True)
class PlainRule:
    """A rule as it travels to a node, where cluster.yml's models are not."""

    use: Use
    serial: tuple[str, ...] | None = None
    wwn: tuple[str, ...] | None = None
    size_gb: float | None = None
    model: str | None = None
    count: int = 1


def plain_rule(fields: Mapping[str, Any]) -> PlainRule:
    """The rule of one entry of a host's ``coldiron_disks``. Raises ColdironError, one line, where it is none."""
    told = {key: value for key, value in fields.items() if value is not None}
    if unknown := sorted(str(key) for key in told if key not in PlainRule.__dataclass_fields__):
        raise ColdironError(f"a rule for a disk has the key {shown(unknown[0])}, which is unknown")
    if told.get("use") not in get_args(Use):
        raise ColdironError(f"a rule for a disk has the use {shown(told.get('use'))}; write one of {_USES}")
    for key in ("serial", "wwn"):
        if key in told:
            names = [told[key]] if isinstance(told[key], str) else told[key]
            if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
                raise ColdironError(f"`{key}` of a rule for {told['use']} is no list of texts")
            told[key] = tuple(names)
    size, count = told.get("size_gb"), told.get("count", 1)
    if size is not None and (not isinstance(size, int | float) or isinstance(size, bool) or not size > 0):
        raise ColdironError(f"`size_gb` of a rule for {told['use']} is no size")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _COUNT_AT_MOST:
        raise ColdironError(f"`count` of a rule for {told['use']} is no number from 1 to {_COUNT_AT_MOST}")
    if not isinstance(told.get("model", ""), str):
        raise ColdironError(f"`model` of a rule for {told['use']} is no text")
    return PlainRule(**told)


@dataclass(frozen=True)
class Verdict:
    """What becomes of one disk, and why. ``use`` is None for a disk that no rule means."""

    disk: Found
    use: Use | None
    written: bool
    why: str

    def told(self) -> str:
        """The verdict as a line for a terminal."""
        does = f"written for {self.use}" if self.written else "never written"
        size = f"{self.disk.size / 1e9:.0f} GB"
        model = f" {shown(self.disk.model)}" if self.disk.model else ""
        return f"{self.disk.label} ({shown(self.disk.name)}, {size}{model}): {does}; {self.why}"


@dataclass(frozen=True)
class Choice:
    """The disks to be written, by use. ``system`` has one disk, or two that are mirrored.

    ``verdicts`` has every disk of the machine once; ``missing`` says, a line each, which data disks are not there.
    """

    system: tuple[Found, ...]
    swap: tuple[Found, ...]
    scratch: tuple[Found, ...]
    verdicts: tuple[Verdict, ...]
    missing: tuple[str, ...] = ()

    @property
    def mirrored(self) -> bool:
        return len(self.system) == _SYSTEM_AT_MOST

    @property
    def written(self) -> tuple[Found, ...]:
        """Every disk that will be written, system first."""
        return (*self.system, *self.swap, *self.scratch)

    @property
    def wiped(self) -> tuple[Found, ...]:
        """Those of them that lose something."""
        return tuple(disk for disk in self.written if disk.content)

    def told(self) -> tuple[str, ...]:
        """Each disk and why, a line each."""
        return (*(verdict.told() for verdict in self.verdicts), *self.missing)


class DiskRefusal(ColdironError):
    """No disk is written. ``message`` is one line; ``found`` are the disks that were looked at."""

    def __init__(self, message: str, found: Sequence[Found]) -> None:
        super().__init__(message, ExitCode.REFUSED)
        self.found = tuple(found)


def choose(found: Sequence[Found], rules: Sequence[Rule], consent: Collection[str] = ()) -> Choice:
    """The disks of ``found`` that ``rules`` mean; ``consent`` holds the serials whose content may be lost.

    Raises DiskRefusal where a rule that is to be written is ambiguous or finds too few, where a disk is in use,
    read-only, removable without being named by serial, or bears something that ``consent`` does not name.
    """
    if all(rule.use != "system" for rule in rules):
        raise DiskRefusal("no rule says which disk is for the system; write one under `disks`", found)
    claims, missing = _claims(found, rules)
    taken: dict[str, tuple[Found, Rule]] = {}
    for disk, rule in claims:
        if disk.name in taken:
            other = taken[disk.name][1]
            raise DiskRefusal(
                f"{disk.label} fits two rules, for {other.use} and for {rule.use}; name the disks by serial",
                found,
            )
        taken[disk.name] = disk, rule
    _check_consent(found, taken, consent)
    for disk, rule in taken.values():
        if rule.use != "data":
            _check_writable(disk, rule, consent, found)
    by_use = {
        use: tuple(disk for disk, rule in taken.values() if rule.use == use)
        for use in ("system", "swap", "scratch")
    }
    if len(by_use["system"]) > _SYSTEM_AT_MOST:
        raise DiskRefusal(
            f"the rules name {len(by_use['system'])} disks for the system; write one, or two that are mirrored",
            found,
        )
    return Choice(
        by_use["system"],
        by_use["swap"],
        by_use["scratch"],
        tuple(_verdict(disk, taken.get(disk.name), rules) for disk in found),
        tuple(missing),
    )


def _claims(found: Sequence[Found], rules: Sequence[Rule]) -> tuple[list[tuple[Found, Rule]], list[str]]:
    """Which disk each rule means, names before sizes, and which data disks are missing."""
    claims: list[tuple[Found, Rule]] = []
    missing: list[str] = []
    for rule in rules:
        if _names(rule):
            for serial, wwn in _names(rule):
                disk = _named(found, rule, serial, wwn, missing)
                if disk is not None:
                    claims.append((disk, rule))
    # A size means one of the disks that nobody has called by name.
    named = {disk.name for disk, _ in claims}
    for rule in rules:
        if not _names(rule):
            fitting = [disk for disk in found if disk.name not in named and _fits(disk, rule)]
            _check_count(found, rule, fitting, missing)
            claims += [(disk, rule) for disk in fitting]
    return claims, missing


def _names(rule: Rule) -> list[tuple[str | None, str | None]]:
    """The serial and WWN of each disk that the rule calls by name; empty for a rule of size and model."""
    serials, wwns = _words(rule.serial or ()), _words(rule.wwn or ())
    for listed in (serials, wwns):
        if not all(listed):
            # It would mean every disk that says none.
            raise ColdironError(
                f"a rule for {rule.use} has an empty serial or WWN; write it, or remove the line"
            )
        if listed and len(listed) != rule.count:
            raise ColdironError(
                f"a rule for {rule.use} names {len(listed)} disks, and its `count` is {rule.count}; make them agree"
            )
    if not serials and not wwns:
        if rule.size_gb is None:
            raise ColdironError(
                f"a rule for {rule.use} finds no certain disk; write its `serial` or `size_gb`"
            )
        return []
    return [(_at(serials, number), _at(wwns, number)) for number in range(rule.count)]


def _words(listed: tuple[str, ...]) -> tuple[str, ...]:
    """The names with their spaces as ``parse_lsblk`` leaves them."""
    return tuple(" ".join(name.split()) for name in listed)


def _at(listed: tuple[str, ...], number: int) -> str | None:
    return listed[number] if listed else None


def _named(
    found: Sequence[Found], rule: Rule, serial: str | None, wwn: str | None, missing: list[str]
) -> Found | None:
    """The one disk of that serial and WWN. None for a data disk that is not there, or not to be told apart."""
    called = f"serial {shown(serial)}" if serial is not None else f"WWN {shown(wwn)}"
    fitting = [
        disk
        for disk in found
        if (serial is None or disk.serial == serial) and (wwn is None or disk.wwn == wwn.lower())
    ]
    if len(fitting) == 1 and _alike(fitting[0], rule):
        return fitting[0]
    if not fitting:
        why = f"the disk for {rule.use} is absent: {called} was not found"
    elif len(fitting) > 1:
        why = f"{called} for {rule.use} is on {len(fitting)} disks ({_listed(fitting)}); one name must mean one disk"
    else:
        why = (
            f"{called} is a {fitting[0].size / 1e9:.0f} GB {shown(fitting[0].model)}: not what its rule says"
        )
    if rule.use == "data" and not fitting:
        missing.append(why)
        return None
    raise DiskRefusal(why, found)


def _fits(disk: Found, rule: Rule) -> bool:
    """Whether a rule of size and model may mean the disk: never a removable one, which has to be named."""
    return not _loose(disk) and _alike(disk, rule)


def _alike(disk: Found, rule: Rule) -> bool:
    if rule.size_gb is not None and abs(disk.size - rule.size_gb * 1e9) > rule.size_gb * 1e9 * SIZE_TOLERANCE:
        return False
    return rule.model is None or disk.model.casefold() == " ".join(rule.model.split()).casefold()


def _loose(disk: Found) -> bool:
    return disk.removable or disk.transport == "usb"


def _check_count(found: Sequence[Found], rule: Rule, fitting: list[Found], missing: list[str]) -> None:
    what = f"{rule.size_gb:g} GB" + (f" {shown(rule.model)}" if rule.model else "")
    if len(fitting) > rule.count:
        # Even for data: which of them is somebody's data is then not known.
        raise DiskRefusal(
            f"the rule for {rule.use} ({what}) wants {rule.count} and fits {len(fitting)}: {_listed(fitting)}; "
            "name the disks by serial",
            found,
        )
    if len(fitting) < rule.count:
        why = f"the rule for {rule.use} ({what}) wants {rule.count} and finds {len(fitting)}"
        if rule.use != "data":
            loose = [disk for disk in found if _loose(disk) and _alike(disk, rule)]
            hint = f"; {_listed(loose)} is removable and has to be named by serial" if loose else ""
            raise DiskRefusal(f"{why}: a disk is absent{hint}", found)
        missing.append(why)


def _check_consent(
    found: Sequence[Found], taken: dict[str, tuple[Found, Rule]], consent: Collection[str]
) -> None:
    for serial in sorted(consent):
        bearers = [disk for disk in found if disk.serial and disk.serial == serial]
        if len(bearers) > 1:
            raise DiskRefusal(
                f"serial {shown(serial)} is on {len(bearers)} disks; consent must mean one", found
            )
        use = taken[bearers[0].name][1].use if bearers and bearers[0].name in taken else None
        if use in (None, "data"):
            what = "is a data disk" if use else "is no disk that the rules would write"
            raise DiskRefusal(
                f"wiping serial {shown(serial)} was allowed, but it {what}; nothing is written", found
            )


def _check_writable(disk: Found, rule: Rule, consent: Collection[str], found: Sequence[Found]) -> None:
    if _loose(disk) and rule.serial is None:
        raise DiskRefusal(f"{disk.label} for {rule.use} is removable; name it by serial to write it", found)
    if twins := [other for other in found if _one_disk(disk, other)]:
        raise DiskRefusal(
            f"{disk.label} for {rule.use} is there as {_names_of([disk, *twins])}: one disk by two paths, or two of "
            "one name",
            found,
        )
    if disk.read_only:
        raise DiskRefusal(f"{disk.label} for {rule.use} is read-only", found)
    if disk.in_use:
        raise DiskRefusal(f"{disk.label} for {rule.use} is in use: {', '.join(disk.in_use)}", found)
    if disk.content and (not disk.serial or disk.serial not in consent):
        how = (
            f"allow it by name: {shown(disk.serial)}" if disk.serial else "it has no serial: wipe it by hand"
        )
        raise DiskRefusal(f"{disk.label} for {rule.use} bears {', '.join(disk.content)}; {how}", found)


def _one_disk(disk: Found, other: Found) -> bool:
    """Whether two devices may be one disk. Namespaces of one NVMe have its serial, and each a WWN of its own."""
    if disk.name == other.name:
        return False
    if disk.wwn and other.wwn:
        return disk.wwn == other.wwn
    return bool(disk.serial) and disk.serial == other.serial


def _verdict(disk: Found, claim: tuple[Found, Rule] | None, rules: Sequence[Rule]) -> Verdict:
    if claim is None:
        if _loose(disk) and any(not _names(rule) and _alike(disk, rule) for rule in rules):
            return Verdict(disk, None, False, "removable, and no rule names its serial")
        return Verdict(disk, None, False, "no rule means it")
    rule = claim[1]
    by = "serial" if rule.serial else "WWN" if rule.wwn else "size and model" if rule.model else "size"
    if rule.use == "data":
        return Verdict(disk, rule.use, False, f"a data disk by its {by}")
    lost = f"loses {', '.join(disk.content)}, as allowed" if disk.content else "blank"
    return Verdict(disk, rule.use, True, f"meant by its {by}, {lost}")


def _names_of(disks: Sequence[Found]) -> str:
    return " and ".join(shown(disk.name) for disk in disks)


def _listed(disks: Sequence[Found]) -> str:
    return ", ".join(disk.label for disk in disks)
