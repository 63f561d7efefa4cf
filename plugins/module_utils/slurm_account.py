"""Slurm's accounting data: what is, what is wanted, and the sacctmgr calls between. Pure; standard library only.

``facts`` hold what ``sacctmgr show`` said (see ``read_facts``), ``wanted`` what was declared; ``plan`` returns
the calls in the order that sacctmgr takes them: clusters, QOS, accounts (parents first), users, and removals
the other way round. Associations bound to a partition are left alone.
"""

from __future__ import annotations

import difflib
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple


class AccountError(ValueError):
    """Declared data that sacctmgr could not take; the message says where and what to write."""


class Step(NamedTuple):
    """One call of sacctmgr, and what it changes in words."""

    argv: List[str]
    entity: str
    before: List[str]
    after: List[str]
    removes_account: str = ""


# -- values ---------------------------------------------------------------------------------------------------


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
        raise AccountError("%r is no time such as 90, \"1:30:00\" or \"2-00:00:00\"" % value) from None
    if len(parts) == 3:
        return parts[0] * 60 + parts[1] + (1 if parts[2] else 0)
    return parts[0] + (1 if len(parts) == 2 and parts[1] else 0)


_MEBIBYTES = {"M": 1, "G": 1024, "T": 1024 * 1024, "P": 1024 * 1024 * 1024}


def tres(value: Any) -> Dict[str, str]:
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
                raise AccountError("%r is no list of resources such as cpu=64,gres/gpu=4" % value)
            pairs.append((name, amount))
    result: Dict[str, str] = {}
    for name, amount in pairs:
        name = name.strip().lower()
        amount = amount.strip()
        if name in ("mem", "bb/datawarp") and amount[-1:].upper() in _MEBIBYTES:
            amount = str(int(float(amount[:-1]) * _MEBIBYTES[amount[-1].upper()]))
        result[name] = amount
    return result


def _number(value: Any) -> str:
    text = str(value).strip()
    try:
        return str(int(text))
    except ValueError:
        raise AccountError("%r is no whole number" % value) from None


def _decimal(value: Any) -> str:
    try:
        return "%g" % float(str(value))
    except ValueError:
        raise AccountError("%r is no number" % value) from None


def _names(value: Any) -> List[str]:
    items = value.split(",") if isinstance(value, str) else list(value or [])
    return sorted(str(item).strip() for item in items if str(item).strip())


def _flags(value: Any) -> str:
    return ",".join(_names(value))


def _word(value: Any) -> str:
    return str(value).strip().lower()


def _text(value: Any) -> str:
    return str(value)


#: Kinds of values: how to compare them. TRES and times need more than that and are named.
TRES = "tres"
TIME = "time"
NUMBER = "number"

ASSOCIATION_LIMITS: Dict[str, str] = {
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

QOS_LIMITS: Dict[str, str] = {
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
QOS_FIELDS: Dict[str, Callable[[Any], str]] = {
    "Priority": _number,
    "Description": _text,
    "Flags": _flags,
    "PreemptMode": _word,
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
        "%s: %s is no limit that sacctmgr knows there%s" % (where, name, ", did you mean %s" % near[0] if near else "")
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
    """Return what to give sacctmgr for a limit. It keeps resources that are not named, so lifted ones are -1."""
    if kind == TRES:
        words = dict.fromkeys(old or {}, "-1")
        words.update(value or {})
        return ",".join("%s=%s" % pair for pair in sorted(words.items()))
    return "-1" if value is None else str(value)


def limit_changes(
    declared: Optional[Mapping[str, Any]], live: Mapping[str, str], known: Mapping[str, str], where: str
) -> List[Tuple[str, str, str]]:
    """Return (limit, live value, value to set) of each limit that differs.

    A declaration is the whole: limits that it does not name are lifted. None declares nothing.
    """
    if declared is None:
        return []
    wanted = {limit_name(name, known, where): value for name, value in declared.items()}
    differing: List[Tuple[str, str, str]] = []
    for name, kind in known.items():
        try:
            new = normal(kind, wanted.get(name))
        except AccountError as error:
            raise AccountError("%s: %s: %s" % (where, name, error)) from None
        old = normal(kind, live.get(name, ""))
        if new != old:
            differing.append((name, live.get(name, ""), _write(kind, new, old)))
    return differing


# -- the plan -------------------------------------------------------------------------------------------------

Association = Tuple[str, str, str]
"""(cluster, account, user); the user is empty for the account's own."""


def _set_step(argv: List[str], entity: str, differing: Iterable[Tuple[str, str, str]]) -> List[Step]:
    """Return one modify call for all fields that differ, or none."""
    fields = list(differing)
    if not fields:
        return []
    return [
        Step(
            argv + ["set"] + ["%s=%s" % (name, new) for name, _old, new in fields],
            entity,
            ["%s=%s" % (name, old) for name, old, _new in fields],
            ["%s=%s" % (name, new) for name, _old, new in fields],
        )
    ]


def _absent(item: Mapping[str, Any]) -> bool:
    return item.get("state") == "absent"


def _by_name(items: Iterable[Mapping[str, Any]], what: str) -> Dict[str, Mapping[str, Any]]:
    found: Dict[str, Mapping[str, Any]] = {}
    for item in items:
        if item["name"] in found:
            raise AccountError("%s %s is declared twice" % (what, item["name"]))
        found[item["name"]] = item
    return found


def _share(item: Mapping[str, Any], live: Mapping[str, str]) -> List[Tuple[str, str, str]]:
    """Return the change of an association's share of the cluster, if it declares one."""
    if item.get("fairshare") is None:
        return []
    new = _word(item["fairshare"])
    old = _word(live.get("Fairshare", "1"))
    return [] if new == old else [("Fairshare", live.get("Fairshare", ""), new)]


def _levels(item: Mapping[str, Any], live: Mapping[str, str]) -> List[Tuple[str, str, str]]:
    """Return the changes of an association's QOS list and default QOS, if it declares them."""
    differing: List[Tuple[str, str, str]] = []
    if item.get("qos") is not None:
        new = ",".join(_names(item["qos"]))
        if new != ",".join(_names(live.get("QOS", ""))):
            differing.append(("QosLevel", live.get("QOS", ""), new))
    if item.get("default_qos") is not None and item["default_qos"] != live.get("DefaultQOS", ""):
        differing.append(("DefaultQOS", live.get("DefaultQOS", ""), str(item["default_qos"])))
    return differing


def _plan_qos(declared: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any]) -> List[Step]:
    steps: List[Step] = []
    preempting: List[Step] = []
    for name, item in declared.items():
        if _absent(item):
            continue
        entity = "qos %s" % name
        live: Mapping[str, str] = facts["qos"].get(name, {})
        if name not in facts["qos"]:
            steps.append(Step(["add", "qos", "name=%s" % name], entity, [], ["present"]))
        differing: List[Tuple[str, str, str]] = []
        for field, same in QOS_FIELDS.items():
            value = item.get({"PreemptMode": "preempt_mode", "UsageFactor": "usage_factor"}.get(field, field.lower()))
            if value is None:
                continue
            try:
                new = same(value)
            except AccountError as error:
                raise AccountError("%s: %s: %s" % (entity, field, error)) from None
            old = live.get(field, "")
            if new != (same(old) if old else ""):
                differing.append((field, old, new or "-1"))
        differing += limit_changes(item.get("limits"), live, QOS_LIMITS, entity)
        where = ["modify", "qos", "where", "name=%s" % name]
        steps += _set_step(where, entity, differing)
        if item.get("preempt") is not None:
            new = ",".join(_names(item["preempt"]))
            if new != ",".join(_names(live.get("Preempt", ""))):
                # What it preempts may be added by this very plan, so after all of them.
                preempting += _set_step(where, entity, [("Preempt", live.get("Preempt", ""), new)])
    return steps + preempting


def parents_first(accounts: Mapping[str, Mapping[str, Any]]) -> List[str]:
    """Return the accounts' names, each after its parent; AccountError for a circle."""
    order: List[str] = []

    def visit(name: str, below: Tuple[str, ...]) -> None:
        if name in below:
            raise AccountError("accounts are each other's parents: %s" % " -> ".join(below + (name,)))
        if name in order or name not in accounts:
            return
        visit(str(accounts[name].get("parent") or "root"), below + (name,))
        order.append(name)

    for name in accounts:
        visit(name, ())
    return order


def _plan_accounts(declared: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any], cluster: str) -> List[Step]:
    steps: List[Step] = []
    for name in parents_first(declared):
        item = declared[name]
        if _absent(item):
            continue
        entity = "account %s" % name
        parent = str(item.get("parent") or "root")
        if parent != "root" and _absent(declared.get(parent, {})):
            raise AccountError("%s: its parent %s is declared absent" % (entity, parent))
        if parent not in declared and parent not in facts["accounts"] and parent != "root":
            raise AccountError("%s: its parent %s is neither declared nor there" % (entity, parent))
        here = facts["associations"].get((cluster, name, ""))
        where = ["modify", "account", "where", "name=%s" % name]
        if here is None:
            words = ["name=%s" % name, "cluster=%s" % cluster, "parent=%s" % parent]
            for key in ("description", "organization"):
                if item.get(key) is not None and name not in facts["accounts"]:
                    words.append("%s=%s" % (key, item[key]))
            steps.append(Step(["add", "account"] + words, entity, [], words[2:]))
            here = {"ParentName": parent}
        described: List[Tuple[str, str, str]] = []
        for key in ("description", "organization"):
            live = facts["accounts"].get(name)
            if live is not None and item.get(key) is not None and _word(item[key]) != _word(live[key]):
                described.append((key.capitalize(), live[key], str(item[key])))
        steps += _set_step(where, entity, described)
        differing: List[Tuple[str, str, str]] = []
        if here.get("ParentName", parent) != parent and name != "root":
            differing.append(("Parent", here["ParentName"], parent))
        differing += _share(item, here) + _levels(item, here)
        differing += limit_changes(item.get("limits"), here, ASSOCIATION_LIMITS, entity)
        steps += _set_step(where + ["cluster=%s" % cluster], entity, differing)
    return steps


def user_accounts(item: Mapping[str, Any]) -> List[str]:
    """Return the accounts that a declared user charges, the default one first."""
    default = item.get("default_account")
    if not default:
        raise AccountError("user %s: default_account is missing" % item["name"])
    return [str(default)] + [str(name) for name in item.get("accounts") or [] if name != default]


def _plan_users(
    declared: Mapping[str, Mapping[str, Any]],
    accounts: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, Any],
    cluster: str,
) -> List[Step]:
    steps: List[Step] = []
    for name, item in declared.items():
        if _absent(item):
            continue
        entity = "user %s" % name
        charged = user_accounts(item)
        for account in charged:
            if _absent(accounts.get(account, {})) or not (account in accounts or account in facts["accounts"]):
                raise AccountError(
                    "%s: account %s is neither declared nor there: add it to the accounts" % (entity, account)
                )
        for account in charged:
            live = facts["associations"].get((cluster, account, name))
            place = "%s in account %s" % (entity, account)
            if live is None:
                words = ["name=%s" % name, "account=%s" % account, "cluster=%s" % cluster]
                steps.append(Step(["add", "user"] + words, place, [], ["present"]))
                live = {}
            differing = _share(item, live) + _levels(item, live)
            differing += limit_changes(item.get("limits"), live, ASSOCIATION_LIMITS, place)
            steps += _set_step(
                ["modify", "user", "where", "name=%s" % name, "account=%s" % account, "cluster=%s" % cluster],
                place,
                differing,
            )
        default = facts["defaults"].get((cluster, name))
        # The first account that a user is added to becomes the default one by itself.
        if default is not None and default != charged[0]:
            steps += _set_step(
                ["modify", "user", "where", "name=%s" % name, "cluster=%s" % cluster],
                entity,
                [("DefaultAccount", default or "", charged[0])],
            )
        level = facts["users"].get(name, {}).get("admin_level", "none")
        if item.get("admin_level") is not None and _word(item["admin_level"]) != level:
            steps += _set_step(
                ["modify", "user", "where", "name=%s" % name],
                entity,
                [("AdminLevel", level, str(item["admin_level"]))],
            )
        if item.get("accounts") is not None:
            for _cluster, account, _user in sorted(
                key for key in facts["associations"] if key[0] == cluster and key[2] == name and key[1] not in charged
            ):
                steps.append(_leave(cluster, account, name))
    return steps


def _leave(cluster: str, account: str, user: str) -> Step:
    return Step(
        ["delete", "user", "where", "name=%s" % user, "account=%s" % account, "cluster=%s" % cluster],
        "user %s in account %s" % (user, account),
        ["present"],
        [],
    )


def _depth(name: str, cluster: str, facts: Mapping[str, Any]) -> int:
    depth = 0
    while name and name != "root" and depth < 100:
        name = facts["associations"].get((cluster, name, ""), {}).get("ParentName", "")
        depth += 1
    return depth


def _plan_removals(
    users: Mapping[str, Mapping[str, Any]],
    accounts: Mapping[str, Mapping[str, Any]],
    qos: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, Any],
    cluster: str,
    exclusive: bool,
) -> List[Step]:
    """Users go first, then accounts (children before parents), then QOS."""
    steps: List[Step] = []
    here = [key for key in facts["associations"] if key[0] == cluster]
    for name in sorted({key[2] for key in here if key[2]} | {name for name in users if name in facts["users"]}):
        if name == "root" or not (_absent(users.get(name, {})) or (exclusive and name not in users)):
            continue
        elsewhere = any(key[2] == name and key[0] != cluster for key in facts["associations"])
        argv = ["delete", "user", "where", "name=%s" % name] + (["cluster=%s" % cluster] if elsewhere else [])
        steps.append(Step(argv, "user %s" % name, ["present"], []))
    if exclusive:
        for name, item in users.items():
            if not _absent(item) and item.get("accounts") is None:
                charged = user_accounts(item)
                steps += [_leave(*key) for key in sorted(here) if key[2] == name and key[1] not in charged]
    going = {
        key[1]
        for key in here
        if not key[2]
        and key[1] != "root"
        and (_absent(accounts.get(key[1], {})) or (exclusive and key[1] not in accounts))
    }
    for name in sorted(going, key=lambda name: (-_depth(name, cluster, facts), name)):
        elsewhere = any(key[1] == name and key[0] != cluster for key in facts["associations"])
        argv = ["delete", "account", "where", "name=%s" % name] + (["cluster=%s" % cluster] if elsewhere else [])
        steps.append(Step(argv, "account %s" % name, ["present"], [], removes_account=name))
    for name in sorted(facts["qos"]):
        # Slurm's own QOS: every cluster has it, and an account without another uses it.
        if name != "normal" and (_absent(qos.get(name, {})) or (exclusive and name not in qos)):
            steps.append(Step(["delete", "qos", "where", "name=%s" % name], "qos %s" % name, ["present"], []))
    return steps


def plan(facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> List[Step]:
    """Return the calls that turn what is into what is wanted; nothing where nothing differs.

    ``wanted``: cluster (whose associations the rest is about), clusters, accounts, users, qos (lists of
    mappings with a name), exclusive. AccountError names the entity that cannot be.
    """
    cluster = str(wanted["cluster"])
    clusters = _by_name(wanted.get("clusters") or [], "cluster")
    accounts = _by_name(wanted.get("accounts") or [], "account")
    users = _by_name(wanted.get("users") or [], "user")
    qos = _by_name(wanted.get("qos") or [], "qos")
    steps: List[Step] = []
    for name, item in clusters.items():
        if not _absent(item) and name not in facts["clusters"]:
            steps.append(Step(["add", "cluster", "name=%s" % name], "cluster %s" % name, [], ["present"]))
    steps += _plan_qos(qos, facts)
    steps += _plan_accounts(accounts, facts, cluster)
    steps += _plan_users(users, accounts, facts, cluster)
    steps += _plan_removals(users, accounts, qos, facts, cluster, bool(wanted.get("exclusive")))
    for name, item in clusters.items():
        if _absent(item) and name in facts["clusters"]:
            steps.append(Step(["delete", "cluster", "where", "name=%s" % name], "cluster %s" % name, ["present"], []))
    return steps


def busy(steps: Iterable[Step], jobs: Mapping[str, List[str]]) -> Optional[str]:
    """Return why the steps must not be: an account that they remove has jobs. None when nothing is against it."""
    for step in steps:
        found = jobs.get(step.removes_account, [])
        if step.removes_account and found:
            shown = ", ".join(found[:5]) + (" and %d more" % (len(found) - 5) if len(found) > 5 else "")
            return (
                "account %s has jobs (%s): wait for them, move them with `scontrol update job=ID account=OTHER`,"
                " or cancel them with `scancel --account=%s`; then remove it"
                % (step.removes_account, shown, step.removes_account)
            )
    return None


def diff(steps: Iterable[Step]) -> Dict[str, str]:
    """Return what --diff shows: one line a field, entity by entity."""
    before: List[str] = []
    after: List[str] = []
    for step in steps:
        before += ["%s: %s" % (step.entity, line) for line in step.before]
        after += ["%s: %s" % (step.entity, line) for line in step.after]
    return {"before": "\n".join(before + [""]), "after": "\n".join(after + [""])}


# -- reading --------------------------------------------------------------------------------------------------

#: What is asked of sacctmgr: entity and its words, and the columns in order.
ASSOCIATION_COLUMNS = ["Cluster", "Account", "User", "Partition", "ParentName", "Fairshare", "QOS", "DefaultQOS"]
QUERIES: Dict[str, Tuple[List[str], List[str]]] = {
    "clusters": (["cluster"], ["Cluster"]),
    "accounts": (["account"], ["Account", "Description", "Organization"]),
    "users": (["user"], ["User", "AdminLevel"]),
    "qos": (["qos"], ["Name", "Preempt"] + list(QOS_FIELDS) + list(QOS_LIMITS)),
    "associations": (["assoc", "WOPLimits"], ASSOCIATION_COLUMNS + list(ASSOCIATION_LIMITS)),
    "defaults": (["assoc", "OnlyDefaults", "WOPLimits"], ["Cluster", "User", "Account"]),
}


def empty_facts() -> Dict[str, Any]:
    """Return the facts of a database that holds nothing."""
    return {name: {} for name in QUERIES}


def read_facts(ask: Callable[[List[str]], str]) -> Dict[str, Any]:
    """Read all facts; ``ask`` runs ``sacctmgr -n -P show …`` with the words given and returns what it prints."""
    tables: Dict[str, List[Dict[str, str]]] = {}
    for name, (words, columns) in QUERIES.items():
        output = ask(words + ["format=" + ",".join(columns)])
        tables[name] = [dict(zip(columns, line.split("|"))) for line in output.splitlines() if "|" in line or line]
    return {
        "clusters": {row["Cluster"]: {} for row in tables["clusters"]},
        "accounts": {
            row["Account"]: {"description": row["Description"], "organization": row["Organization"]}
            for row in tables["accounts"]
        },
        "users": {row["User"]: {"admin_level": row["AdminLevel"].lower()} for row in tables["users"]},
        "qos": {row["Name"]: row for row in tables["qos"]},
        "associations": {
            (row["Cluster"], row["Account"], row["User"]): row
            for row in tables["associations"]
            if not row["Partition"]
        },
        "defaults": {(row["Cluster"], row["User"]): row["Account"] for row in tables["defaults"] if row["User"]},
    }
