"""Limits of Slurm's accounting: their names, and their values in forms that compare. Stdlib only."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any


class AccountError(ValueError):
    """Declared data that sacctmgr could not take; the message says where and what to write."""


def minutes(value: Any) -> int:
    """Return a time of sacctmgr(1) in minutes: 90, "90:00", "1:30:00", "1-0", "1-02:00:00"; -1 is none."""
    text = str(value).strip()
    try:
        if "-" in text[1:]:
            days, _, rest = text.partition("-")
            parts = [int(part) for part in rest.split(":")] + [0, 0]
            return (int(days) * 24 + parts[0]) * 60 + parts[1] + (1 if parts[2] else 0)
        parts = [int(part) for part in text.split(":")]
    except ValueError:
        raise AccountError(f'{value!r} is no time such as 90, "1:30:00" or "2-00:00:00"') from None
    if len(parts) == 3:
        return parts[0] * 60 + parts[1] + (1 if parts[2] else 0)
    return parts[0] + (1 if len(parts) == 2 and parts[1] else 0)


_MEBIBYTES = {"M": 1, "G": 1024, "T": 1024 * 1024, "P": 1024 * 1024 * 1024}


def tres(value: Any) -> dict[str, str]:
    """Return "cpu=10,mem=1G,gres/gpu=4" (or a mapping) as {"cpu": "10", "mem": "1024", "gres/gpu": "4"}."""
    if isinstance(value, Mapping):
        pairs = [(str(name), str(amount)) for name, amount in value.items()]
    else:
        pairs = []
        for part in str(value).split(","):
            if not part.strip():
                continue
            name, equals, amount = part.strip().partition("=")
            if not equals:
                raise AccountError(f"{value!r} is no list of resources such as cpu=64,gres/gpu=4")
            pairs.append((name, amount))
    result: dict[str, str] = {}
    for given, count in pairs:
        name, amount = given.strip().lower(), count.strip()
        if name in ("mem", "bb/datawarp") and amount[-1:].upper() in _MEBIBYTES:
            amount = str(int(float(amount[:-1]) * _MEBIBYTES[amount[-1].upper()]))
        result[name] = amount
    return result


def _number(value: Any) -> str:
    text = str(value).strip()
    try:
        return str(int(text))
    except ValueError:
        raise AccountError(f"{value!r} is no whole number") from None


def _decimal(value: Any) -> str:
    try:
        return f"{float(str(value)):g}"
    except ValueError:
        raise AccountError(f"{value!r} is no number") from None


def names(value: Any) -> list[str]:
    items = value.split(",") if isinstance(value, str) else list(value or [])
    return sorted(str(item).strip() for item in items if str(item).strip())


def _flags(value: Any) -> str:
    return ",".join(names(value))


def word(value: Any) -> str:
    return str(value).strip().lower()


#: Kinds of values: how to compare them. TRES and times need more than that and are named.
TRES = "tres"
TIME = "time"
NUMBER = "number"

ASSOCIATION_LIMITS: dict[str, str] = {
    "GrpJobs": NUMBER,
    "GrpJobsAccrue": NUMBER,
    "GrpSubmitJobs": NUMBER,
    "GrpTRES": TRES,
    "GrpTRESMins": TRES,
    "GrpTRESRunMins": TRES,
    "GrpWall": TIME,
    "MaxJobs": NUMBER,
    "MaxJobsAccrue": NUMBER,
    "MaxSubmitJobs": NUMBER,
    "MaxTRESPerJob": TRES,
    "MaxTRESMinsPerJob": TRES,
    "MaxTRESPerNode": TRES,
    "MaxWallDurationPerJob": TIME,
    "Priority": NUMBER,
}

QOS_LIMITS: dict[str, str] = {
    "GrpJobs": NUMBER,
    "GrpSubmitJobs": NUMBER,
    "GrpTRES": TRES,
    "GrpTRESMins": TRES,
    "GrpTRESRunMins": TRES,
    "GrpWall": TIME,
    "MaxJobsPerAccount": NUMBER,
    "MaxJobsPerUser": NUMBER,
    "MaxSubmitJobsPerAccount": NUMBER,
    "MaxSubmitJobsPerUser": NUMBER,
    "MaxTRESMinsPerJob": TRES,
    "MaxTRESPerAccount": TRES,
    "MaxTRESPerJob": TRES,
    "MaxTRESPerNode": TRES,
    "MaxTRESPerUser": TRES,
    "MaxWallDurationPerJob": TIME,
    "MinTRES": TRES,
}

_ALIASES = {
    "grpsubmit": "GrpSubmitJobs",
    "maxsubmit": "MaxSubmitJobs",
    "maxtres": "MaxTRESPerJob",
    "maxtrespj": "MaxTRESPerJob",
    "maxtresmins": "MaxTRESMinsPerJob",
    "maxtresminspj": "MaxTRESMinsPerJob",
    "maxtrespn": "MaxTRESPerNode",
    "maxtrespu": "MaxTRESPerUser",
    "maxtrespa": "MaxTRESPerAccount",
    "maxwall": "MaxWallDurationPerJob",
    "maxjobspu": "MaxJobsPerUser",
    "maxjobspa": "MaxJobsPerAccount",
    "maxsubmitpu": "MaxSubmitJobsPerUser",
    "maxsubmitjobspu": "MaxSubmitJobsPerUser",
    "maxsubmitpa": "MaxSubmitJobsPerAccount",
    "maxsubmitjobspa": "MaxSubmitJobsPerAccount",
    "mintrespj": "MinTRES",
    "mintresperjob": "MinTRES",
}

#: Fields beside limits, and how each compares.
QOS_FIELDS: dict[str, Callable[[Any], str]] = {
    "Priority": _number,
    # sacctmgr keeps it in lower case.
    "Description": word,
    "Flags": _flags,
    "PreemptMode": word,
    "UsageFactor": _decimal,
}


def limit_name(name: str, known: Mapping[str, str], where: str) -> str:
    """Return sacctmgr's long name of a limit, whatever its case or short form; AccountError when unknown."""
    by_lower = {key.lower(): key for key in known}
    lower = name.lower()
    found = by_lower.get(lower) or by_lower.get(_ALIASES.get(lower, "").lower())
    if found:
        return found
    near = difflib.get_close_matches(name, known, 1, 0.5)
    raise AccountError(
        "{}: {} is no limit that sacctmgr knows there{}".format(
            where, name, f", did you mean {near[0]}" if near else ""
        )
    )


def normal(kind: str, value: Any) -> Any:
    """Return a limit's value in the one form in which two can be compared; None for "no limit"."""
    if value is None or str(value).strip() in ("", "-1"):
        return None
    if kind == TRES:
        return {name: amount for name, amount in tres(value).items() if amount != "-1"} or None
    if kind == TIME:
        return minutes(value)
    return _number(value)


def _write(kind: str, value: Any, old: Any) -> str:
    """Return what to give sacctmgr for a limit. It keeps resources left out, so lifted ones are -1."""
    if kind == TRES:
        words = dict.fromkeys(old or {}, "-1")
        words.update(value or {})
        return ",".join("{}={}".format(*pair) for pair in sorted(words.items()))
    return "-1" if value is None else str(value)


def limit_changes(
    declared: Mapping[str, Any] | None, live: Mapping[str, str], known: Mapping[str, str], where: str
) -> list[tuple[str, str, str]]:
    """Return (limit, live value, value to set) of each limit that differs.

    A declaration is the whole: limits that it does not name are lifted. None declares nothing.
    """
    if declared is None:
        return []
    wanted = {limit_name(name, known, where): value for name, value in declared.items()}
    differing: list[tuple[str, str, str]] = []
    for name, kind in known.items():
        try:
            new = normal(kind, wanted.get(name))
        except AccountError as error:
            raise AccountError(f"{where}: {name}: {error}") from None
        old = normal(kind, live.get(name, ""))
        if new != old:
            differing.append((name, live.get(name, ""), _write(kind, new, old)))
    return differing
