"""Slurm's accounting data: what is, what is wanted, and the sacctmgr calls between. Pure.

``facts`` hold what ``sacctmgr show`` said (see ``read_facts``), ``wanted`` what was declared; ``plan``
returns the calls in the order that sacctmgr takes them: clusters, QOS, accounts (parents first), users, and
removals the other way round. Standard library only. Associations bound to a partition are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.coldiron.cluster.plugins.module_utils.slurm_limits import (
    ASSOCIATION_LIMITS,
    QOS_FIELDS,
    QOS_LIMITS,
    AccountError,
    limit_changes,
    names,
    word,
)


class Step(NamedTuple):
    """One call of sacctmgr, and what it changes in words."""

    argv: list[str]
    entity: str
    before: list[str]
    after: list[str]
    removes_account: str = ""


Association = tuple[str, str, str]
"""(cluster, account, user); the user is empty for the account's own."""


#: What a declaration calls the fields of a QOS, where that is not their lower case.
QOS_WORDS = {"PreemptMode": "preempt_mode", "UsageFactor": "usage_factor"}

Entities = Mapping[str, Mapping[str, Any]]


def _set_step(argv: list[str], entity: str, differing: Iterable[tuple[str, str, str]]) -> list[Step]:
    """Return one modify call for all fields that differ, or none."""
    fields = list(differing)
    if not fields:
        return []
    return [
        Step(
            argv + ["set"] + [f"{name}={new}" for name, _old, new in fields],
            entity,
            [f"{name}={old}" for name, old, _new in fields],
            [f"{name}={new}" for name, _old, new in fields],
        )
    ]


def _absent(item: Mapping[str, Any]) -> bool:
    return item.get("state") == "absent"


def _by_name(items: Iterable[Mapping[str, Any]], what: str) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for item in items:
        if item["name"] in found:
            raise AccountError("{} {} is declared twice".format(what, item["name"]))
        found[item["name"]] = item
    return found


def _share(item: Mapping[str, Any], live: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the change of an association's share of the cluster, if it declares one."""
    if item.get("fairshare") is None:
        return []
    new = word(item["fairshare"])
    old = word(live.get("Fairshare", "1"))
    return [] if new == old else [("Fairshare", live.get("Fairshare", ""), new)]


def _levels(item: Mapping[str, Any], live: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the changes of an association's QOS list and default QOS, if it declares them."""
    differing: list[tuple[str, str, str]] = []
    if item.get("qos") is not None:
        new = ",".join(names(item["qos"]))
        if new != ",".join(names(live.get("QOS", ""))):
            differing.append(("QosLevel", live.get("QOS", ""), new))
    if item.get("default_qos") is not None and item["default_qos"] != live.get("DefaultQOS", ""):
        differing.append(("DefaultQOS", live.get("DefaultQOS", ""), str(item["default_qos"])))
    return differing


def _plan_qos(declared: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any]) -> list[Step]:
    steps: list[Step] = []
    preempting: list[Step] = []
    for name, item in declared.items():
        if _absent(item):
            continue
        entity = f"qos {name}"
        live: Mapping[str, str] = facts["qos"].get(name, {})
        if name not in facts["qos"]:
            steps.append(Step(["add", "qos", f"name={name}"], entity, [], ["present"]))
        differing: list[tuple[str, str, str]] = []
        for field, same in QOS_FIELDS.items():
            value = item.get(
                {"PreemptMode": "preempt_mode", "UsageFactor": "usage_factor"}.get(field, field.lower())
            )
            if value is None:
                continue
            try:
                new = same(value)
            except AccountError as error:
                raise AccountError(f"{entity}: {field}: {error}") from None
            old = live.get(field, "")
            if new != (same(old) if old else ""):
                differing.append((field, old, new or "-1"))
        differing += limit_changes(item.get("limits"), live, QOS_LIMITS, entity)
        where = ["modify", "qos", "where", f"name={name}"]
        steps += _set_step(where, entity, differing)
        if item.get("preempt") is not None:
            new = ",".join(names(item["preempt"]))
            if new != ",".join(names(live.get("Preempt", ""))):
                # What it preempts may be added by this very plan, so after all of them.
                preempting += _set_step(where, entity, [("Preempt", live.get("Preempt", ""), new)])
    return steps + preempting


def parents_first(accounts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the accounts' names, each after its parent; AccountError for a circle."""
    order: list[str] = []

    def visit(name: str, below: tuple[str, ...]) -> None:
        if name in below:
            raise AccountError("accounts are each other's parents: {}".format(" -> ".join((*below, name))))
        if name in order or name not in accounts:
            return
        visit(str(accounts[name].get("parent") or "root"), (*below, name))
        order.append(name)

    for name in accounts:
        visit(name, ())
    return order


def _plan_accounts(
    declared: Mapping[str, Mapping[str, Any]], facts: Mapping[str, Any], cluster: str
) -> list[Step]:
    steps: list[Step] = []
    for name in parents_first(declared):
        item = declared[name]
        if _absent(item):
            continue
        entity = f"account {name}"
        parent = str(item.get("parent") or "root")
        if parent != "root" and _absent(declared.get(parent, {})):
            raise AccountError(f"{entity}: its parent {parent} is declared absent")
        if parent not in declared and parent not in facts["accounts"] and parent != "root":
            raise AccountError(f"{entity}: its parent {parent} is neither declared nor there")
        here = facts["associations"].get((cluster, name, ""))
        where = ["modify", "account", "where", f"name={name}"]
        if here is None:
            words = [f"name={name}", f"cluster={cluster}", f"parent={parent}"]
            for key in ("description", "organization"):
                if item.get(key) is not None and name not in facts["accounts"]:
                    words.append(f"{key}={item[key]}")
            steps.append(Step(["add", "account", *words], entity, [], words[2:]))
            here = {"ParentName": parent}
        described: list[tuple[str, str, str]] = []
        for key in ("description", "organization"):
            live = facts["accounts"].get(name)
            if live is not None and item.get(key) is not None and word(item[key]) != word(live[key]):
                described.append((key.capitalize(), live[key], str(item[key])))
        steps += _set_step(where, entity, described)
        differing: list[tuple[str, str, str]] = []
        if here.get("ParentName", parent) != parent and name != "root":
            differing.append(("Parent", here["ParentName"], parent))
        differing += _share(item, here) + _levels(item, here)
        differing += limit_changes(item.get("limits"), here, ASSOCIATION_LIMITS, entity)
        steps += _set_step([*where, f"cluster={cluster}"], entity, differing)
    return steps


def user_accounts(item: Mapping[str, Any]) -> list[str]:
    """Return the accounts that a declared user charges, the default one first."""
    default = item.get("default_account")
    if not default:
        raise AccountError("user {}: default_account is missing".format(item["name"]))
    return [str(default)] + [str(name) for name in item.get("accounts") or [] if name != default]


def _plan_users(
    declared: Mapping[str, Mapping[str, Any]],
    accounts: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, Any],
    cluster: str,
) -> list[Step]:
    steps: list[Step] = []
    for name, item in declared.items():
        if _absent(item):
            continue
        entity = f"user {name}"
        charged = user_accounts(item)
        for account in charged:
            if _absent(accounts.get(account, {})) or not (
                account in accounts or account in facts["accounts"]
            ):
                raise AccountError(
                    f"{entity}: account {account} is neither declared nor there: add it to the accounts"
                )
        for account in charged:
            live = facts["associations"].get((cluster, account, name))
            place = f"{entity} in account {account}"
            if live is None:
                words = [f"name={name}", f"account={account}", f"cluster={cluster}"]
                steps.append(Step(["add", "user", *words], place, [], ["present"]))
                live = {}
            differing = _share(item, live) + _levels(item, live)
            differing += limit_changes(item.get("limits"), live, ASSOCIATION_LIMITS, place)
            steps += _set_step(
                ["modify", "user", "where", f"name={name}", f"account={account}", f"cluster={cluster}"],
                place,
                differing,
            )
        default = facts["defaults"].get((cluster, name))
        # The first account that a user is added to becomes the default one by itself.
        if default is not None and default != charged[0]:
            steps += _set_step(
                ["modify", "user", "where", f"name={name}", f"cluster={cluster}"],
                entity,
                [("DefaultAccount", default or "", charged[0])],
            )
        level = facts["users"].get(name, {}).get("admin_level", "none")
        if item.get("admin_level") is not None and word(item["admin_level"]) != level:
            steps += _set_step(
                ["modify", "user", "where", f"name={name}"],
                entity,
                [("AdminLevel", level, str(item["admin_level"]))],
            )
        if item.get("accounts") is not None:
            for _cluster, account, _user in sorted(
                key
                for key in facts["associations"]
                if key[0] == cluster and key[2] == name and key[1] not in charged
            ):
                steps.append(_leave(cluster, account, name))
    return steps


def _leave(cluster: str, account: str, user: str) -> Step:
    return Step(
        ["delete", "user", "where", f"name={user}", f"account={account}", f"cluster={cluster}"],
        f"user {user} in account {account}",
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
) -> list[Step]:
    """Users go first, then accounts (children before parents), then QOS."""
    steps: list[Step] = []
    here = [key for key in facts["associations"] if key[0] == cluster]
    for name in sorted(
        {key[2] for key in here if key[2]} | {name for name in users if name in facts["users"]}
    ):
        if name == "root" or not (_absent(users.get(name, {})) or (exclusive and name not in users)):
            continue
        elsewhere = any(key[2] == name and key[0] != cluster for key in facts["associations"])
        argv = ["delete", "user", "where", f"name={name}"] + ([f"cluster={cluster}"] if elsewhere else [])
        steps.append(Step(argv, f"user {name}", ["present"], []))
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
        argv = ["delete", "account", "where", f"name={name}"] + ([f"cluster={cluster}"] if elsewhere else [])
        steps.append(Step(argv, f"account {name}", ["present"], [], removes_account=name))
    for name in sorted(facts["qos"]):
        # Slurm's own QOS: every cluster has it, and an account without another uses it.
        if name != "normal" and (_absent(qos.get(name, {})) or (exclusive and name not in qos)):
            steps.append(Step(["delete", "qos", "where", f"name={name}"], f"qos {name}", ["present"], []))
    return steps


def plan(facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[Step]:
    """Return the calls that turn what is into what is wanted; nothing where nothing differs.

    ``wanted``: cluster (whose associations the rest is about), clusters, accounts, users, qos (lists of
    mappings with a name), exclusive. AccountError names the entity that cannot be.
    """
    cluster = str(wanted["cluster"])
    clusters = _by_name(wanted.get("clusters") or [], "cluster")
    accounts = _by_name(wanted.get("accounts") or [], "account")
    users = _by_name(wanted.get("users") or [], "user")
    qos = _by_name(wanted.get("qos") or [], "qos")
    steps: list[Step] = []
    for name, item in clusters.items():
        if not _absent(item) and name not in facts["clusters"]:
            steps.append(Step(["add", "cluster", f"name={name}"], f"cluster {name}", [], ["present"]))
    steps += _plan_qos(qos, facts)
    steps += _plan_accounts(accounts, facts, cluster)
    steps += _plan_users(users, accounts, facts, cluster)
    steps += _plan_removals(users, accounts, qos, facts, cluster, bool(wanted.get("exclusive")))
    for name, item in clusters.items():
        if _absent(item) and name in facts["clusters"]:
            steps.append(
                Step(["delete", "cluster", "where", f"name={name}"], f"cluster {name}", ["present"], [])
            )
    return steps


def busy(steps: Iterable[Step], jobs: Mapping[str, list[str]]) -> str | None:
    """Return why the steps must not be: an account that they remove has jobs; None where none has."""
    for step in steps:
        found = jobs.get(step.removes_account, [])
        if step.removes_account and found:
            shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
            return (
                f"account {step.removes_account} has jobs ({shown}): wait for them, move them with"
                f" `scontrol update job=ID account=OTHER`, or cancel them with"
                f" `scancel --account={step.removes_account}`; then remove it"
            )
    return None


def diff(steps: Iterable[Step]) -> dict[str, str]:
    """Return what --diff shows: one line a field, entity by entity."""
    before: list[str] = []
    after: list[str] = []
    for step in steps:
        before += [f"{step.entity}: {line}" for line in step.before]
        after += [f"{step.entity}: {line}" for line in step.after]
    return {"before": "\n".join([*before, ""]), "after": "\n".join([*after, ""])}


#: What is asked of sacctmgr: entity and its words, and the columns in order.
ASSOCIATION_COLUMNS = [
    "Cluster",
    "Account",
    "User",
    "Partition",
    "ParentName",
    "Fairshare",
    "QOS",
    "DefaultQOS",
]
QUERIES: dict[str, tuple[list[str], list[str]]] = {
    "clusters": (["cluster"], ["Cluster"]),
    "accounts": (["account"], ["Account", "Description", "Organization"]),
    "users": (["user"], ["User", "AdminLevel"]),
    "qos": (["qos"], ["Name", "Preempt", *list(QOS_FIELDS), *list(QOS_LIMITS)]),
    "associations": (["assoc", "WOPLimits"], ASSOCIATION_COLUMNS + list(ASSOCIATION_LIMITS)),
    "defaults": (["assoc", "OnlyDefaults", "WOPLimits"], ["Cluster", "User", "Account"]),
}


def empty_facts() -> dict[str, Any]:
    """Return the facts of a database that holds nothing."""
    return {name: {} for name in QUERIES}


def read_facts(ask: Callable[[list[str]], str]) -> dict[str, Any]:
    """Read all facts; ``ask`` runs ``sacctmgr -n -P show`` with the words given and returns its output."""
    tables: dict[str, list[dict[str, str]]] = {}
    for name, (words, columns) in QUERIES.items():
        output = ask([*words, "format=" + ",".join(columns)])
        tables[name] = [
            dict(zip(columns, line.split("|"))) for line in output.splitlines() if "|" in line or line
        ]
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
        "defaults": {
            (row["Cluster"], row["User"]): row["Account"] for row in tables["defaults"] if row["User"]
        },
    }
