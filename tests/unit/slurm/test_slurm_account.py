"""The plan between Slurm's accounting data and what is declared."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.module_utils import slurm_account as accounting
from ansible_collections.coldiron.cluster.plugins.module_utils import slurm_limits as limits
from ansible_collections.coldiron.cluster.plugins.module_utils.slurm_limits import AccountError


def facts(**more: Any) -> dict[str, Any]:
    """A database with one cluster and Slurm's own entities, as `sacctmgr show` tells of them."""
    found: dict[str, Any] = {
        "clusters": {"lab": {}},
        "accounts": {"root": {"description": "default root account", "organization": "root"}},
        "users": {"root": {"admin_level": "administrator"}},
        "qos": {"normal": {"Name": "normal", "Priority": "0"}},
        "associations": {
            ("lab", "root", ""): {"ParentName": "", "Fairshare": "1", "QOS": "normal"},
            ("lab", "root", "root"): {"ParentName": "root", "Fairshare": "1", "QOS": "normal"},
        },
        "defaults": {("lab", "root"): "root"},
    }
    for name, value in more.items():
        found[name] = {**found[name], **value}
    return found


def account(name: str, parent: str = "root", **live: str) -> dict[str, Any]:
    return {
        "accounts": {name: {"description": name, "organization": name}},
        "associations": {("lab", name, ""): {"ParentName": parent, "Fairshare": "1", "QOS": "", **live}},
    }


def calls(found: dict[str, Any], **wanted: Any) -> list[str]:
    return [" ".join(step.argv) for step in accounting.plan(found, {"cluster": "lab", **wanted})]


def there(*accounts: str, users: dict[str, list[str]] | None = None, **live: str) -> dict[str, Any]:
    """A database with accounts below root and users in them, the first account the default one."""
    more: dict[str, Any] = {"accounts": {}, "associations": {}, "users": {}, "defaults": {}}
    for name in accounts:
        made = account(name, **live)
        more["accounts"].update(made["accounts"])
        more["associations"].update(made["associations"])
    for user, charged in (users or {}).items():
        more["users"][user] = {"admin_level": "none"}
        more["defaults"][("lab", user)] = charged[0]
        for name in charged:
            more["associations"][("lab", name, user)] = {"ParentName": "", "Fairshare": "1", "QOS": ""}
    return facts(**more)


# -- clusters


def test_a_cluster_is_registered_once() -> None:
    assert calls(accounting.empty_facts(), clusters=[{"name": "lab"}]) == ["add cluster name=lab"]
    assert calls(facts(), clusters=[{"name": "lab"}]) == []


def test_a_cluster_goes_last() -> None:
    steps = calls(there("old"), clusters=[{"name": "lab", "state": "absent"}], exclusive=True)
    assert steps == ["delete account where name=old", "delete cluster where name=lab"]
    assert calls(facts(), clusters=[{"name": "gone", "state": "absent"}]) == []


# -- accounts


def test_accounts_are_added_parents_first() -> None:
    steps = calls(
        facts(),
        accounts=[
            {"name": "c", "parent": "b"},
            {"name": "b", "parent": "a"},
            {"name": "a", "description": "A", "organization": "uni"},
        ],
    )
    assert steps == [
        "add account name=a cluster=lab parent=root description=A organization=uni",
        "add account name=b cluster=lab parent=a",
        "add account name=c cluster=lab parent=b",
    ]


def test_a_new_accounts_shares_and_limits_follow_its_addition() -> None:
    steps = calls(facts(), accounts=[{"name": "a", "fairshare": "10", "limits": {"grptres": "gres/gpu=4"}}])
    assert steps == [
        "add account name=a cluster=lab parent=root",
        "modify account where name=a cluster=lab set Fairshare=10 GrpTRES=gres/gpu=4",
    ]


def test_an_account_as_declared_is_left_alone() -> None:
    found = facts(**account("a", GrpTRES="gres/gpu=4,cpu=8", MaxWallDurationPerJob="1-00:00:00"))
    declared = {
        "name": "a",
        "parent": "root",
        "description": "A",
        "fairshare": "1",
        "limits": {"GrpTRES": {"cpu": 8, "gres/gpu": 4}, "MaxWall": "24:00:00"},
    }
    assert calls(found, accounts=[declared]) == []


def test_only_what_differs_is_set_and_limits_left_out_are_lifted() -> None:
    found = facts(**account("a", GrpTRES="cpu=8,gres/gpu=4", MaxJobs="5", MaxSubmitJobs="9"))
    declared = {"name": "a", "limits": {"GrpTRES": "cpu=16", "MaxSubmitJobs": 9}}
    assert calls(found, accounts=[declared]) == [
        "modify account where name=a cluster=lab set GrpTRES=cpu=16,gres/gpu=-1 MaxJobs=-1"
    ]


def test_limits_are_untouched_without_a_declaration() -> None:
    assert calls(facts(**account("a", GrpTRES="cpu=8")), accounts=[{"name": "a"}]) == []
    assert calls(facts(**account("a", GrpTRES="cpu=8")), accounts=[{"name": "a", "limits": {}}]) == [
        "modify account where name=a cluster=lab set GrpTRES=cpu=-1"
    ]


def test_an_account_moves_below_another_parent() -> None:
    assert calls(there("a", "b"), accounts=[{"name": "a"}, {"name": "b", "parent": "a"}]) == [
        "modify account where name=b cluster=lab set Parent=a"
    ]


def test_descriptions_belong_to_the_account_not_to_the_cluster() -> None:
    declared = {"name": "a", "description": "New", "organization": "a"}
    assert calls(there("a"), accounts=[declared]) == ["modify account where name=a set Description=New"]


def test_an_account_of_another_cluster_joins_this_one() -> None:
    found = there("a")
    found["associations"] = {("far", "a", ""): found["associations"][("lab", "a", "")]}
    assert calls(found, accounts=[{"name": "a", "description": "a"}]) == [
        "add account name=a cluster=lab parent=root"
    ]


def test_qos_of_an_account() -> None:
    found = facts(**account("a", QOS="normal", DefaultQOS=""))
    declared = {"name": "a", "qos": ["normal", "high"], "default_qos": "high"}
    assert calls(found, accounts=[declared]) == [
        "modify account where name=a cluster=lab set QosLevel=high,normal DefaultQOS=high"
    ]
    assert calls(found, accounts=[{"name": "a", "qos": ["normal"]}]) == []


def test_accounts_that_are_each_others_parents() -> None:
    with pytest.raises(AccountError, match="a -> b -> a"):
        calls(facts(), accounts=[{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}])


def test_a_parent_that_is_nowhere_or_goes() -> None:
    with pytest.raises(AccountError, match="account a: its parent x is neither declared nor there"):
        calls(facts(), accounts=[{"name": "a", "parent": "x"}])
    with pytest.raises(AccountError, match="account a: its parent b is declared absent"):
        calls(facts(), accounts=[{"name": "a", "parent": "b"}, {"name": "b", "state": "absent"}])


def test_declared_twice() -> None:
    with pytest.raises(AccountError, match="account a is declared twice"):
        calls(facts(), accounts=[{"name": "a"}, {"name": "a"}])


# -- users


def test_a_user_is_added_to_the_default_account_first() -> None:
    declared = {"name": "alice", "default_account": "b", "accounts": ["a"]}
    assert calls(there("a", "b"), users=[declared]) == [
        "add user name=alice account=b cluster=lab",
        "add user name=alice account=a cluster=lab",
    ]


def test_a_users_accounts_are_declared_or_there() -> None:
    declared = {"name": "alice", "default_account": "a"}
    assert (
        calls(facts(), accounts=[{"name": "a"}], users=[declared])[-1]
        == "add user name=alice account=a cluster=lab"
    )
    with pytest.raises(AccountError, match="user alice: account a is neither declared nor there"):
        calls(facts(), users=[declared])
    with pytest.raises(AccountError, match="user alice: account a is neither"):
        calls(there("a"), accounts=[{"name": "a", "state": "absent"}], users=[declared])
    with pytest.raises(AccountError, match="user alice: default_account is missing"):
        calls(facts(), users=[{"name": "alice"}])


def test_a_user_as_declared_is_left_alone() -> None:
    found = there("a", "b", users={"alice": ["a", "b"]})
    assert calls(found, users=[{"name": "alice", "default_account": "a", "accounts": ["b"]}]) == []
    assert calls(found, users=[{"name": "alice", "default_account": "a", "admin_level": "none"}]) == []


def test_the_default_account_changes_before_the_old_one_is_left() -> None:
    found = there("a", "b", users={"alice": ["a"]})
    assert calls(found, users=[{"name": "alice", "default_account": "b", "accounts": []}]) == [
        "add user name=alice account=b cluster=lab",
        "modify user where name=alice cluster=lab set DefaultAccount=b",
        "delete user where name=alice account=a cluster=lab",
    ]


def test_accounts_that_are_not_named_are_left_only_when_all_are_named() -> None:
    found = there("a", "b", users={"alice": ["a", "b"]})
    assert calls(found, users=[{"name": "alice", "default_account": "a"}]) == []
    assert calls(found, users=[{"name": "alice", "default_account": "a", "accounts": []}]) == [
        "delete user where name=alice account=b cluster=lab"
    ]


def test_admin_level_and_limits_of_a_user() -> None:
    found = there("a", users={"alice": ["a"]})
    declared = {
        "name": "alice",
        "default_account": "a",
        "admin_level": "operator",
        "fairshare": "parent",
        "limits": {"MaxJobs": 3},
    }
    assert calls(found, users=[declared]) == [
        "modify user where name=alice account=a cluster=lab set Fairshare=parent MaxJobs=3",
        "modify user where name=alice set AdminLevel=operator",
    ]


def test_a_user_goes() -> None:
    found = there("a", users={"alice": ["a"]})
    assert calls(found, users=[{"name": "alice", "state": "absent"}]) == ["delete user where name=alice"]
    assert calls(facts(), users=[{"name": "alice", "state": "absent"}]) == []


def test_a_user_of_two_clusters_leaves_only_this_one() -> None:
    found = there("a", users={"alice": ["a"]})
    found["associations"][("far", "a", "alice")] = {}
    assert calls(found, users=[{"name": "alice", "state": "absent"}]) == [
        "delete user where name=alice cluster=lab"
    ]


# -- QOS


def test_qos_are_added_before_accounts_and_preempt_after_all_of_them() -> None:
    steps = calls(
        facts(),
        qos=[{"name": "high", "priority": 10, "preempt": ["low"]}, {"name": "low", "flags": ["DenyOnLimit"]}],
        accounts=[{"name": "a", "qos": ["high"]}],
    )
    assert steps == [
        "add qos name=high",
        "modify qos where name=high set Priority=10",
        "add qos name=low",
        "modify qos where name=low set Flags=DenyOnLimit",
        "modify qos where name=high set Preempt=low",
        "add account name=a cluster=lab parent=root",
        "modify account where name=a cluster=lab set QosLevel=high",
    ]


def test_a_qos_as_declared_is_left_alone() -> None:
    live = {
        "Priority": "10",
        "Flags": "NoDecay,DenyOnLimit",
        "Preempt": "low,normal",
        "PreemptMode": "cluster",
        "UsageFactor": "1.000000",
        "MaxTRESPerUser": "gres/gpu=2,mem=10G",
        "MaxWallDurationPerJob": "08:00:00",
        "Description": "High",
    }
    declared = {
        "name": "high",
        "description": "High",
        "priority": 10,
        "flags": ["DenyOnLimit", "NoDecay"],
        "preempt": ["normal", "low"],
        "preempt_mode": "cluster",
        "usage_factor": 1.0,
        "limits": {"maxtrespu": "mem=10240M,gres/gpu=2", "MaxWall": "8:00:00"},
    }
    assert calls(facts(qos={"high": live}), qos=[declared]) == []


def test_a_qos_loses_flags_and_limits() -> None:
    found = facts(qos={"high": {"Flags": "NoDecay", "GrpJobs": "4"}})
    assert calls(found, qos=[{"name": "high", "flags": [], "limits": {}}]) == [
        "modify qos where name=high set Flags=-1 GrpJobs=-1"
    ]


def test_a_qos_goes_after_those_who_use_it() -> None:
    found = there("a")
    found["qos"]["old"] = {}
    steps = calls(
        found, qos=[{"name": "old", "state": "absent"}], accounts=[{"name": "a", "state": "absent"}]
    )
    assert steps == ["delete account where name=a", "delete qos where name=old"]


# -- removal


def test_accounts_go_children_first_and_users_before_them() -> None:
    found = there("top", "mid", "leaf", users={"alice": ["leaf"]})
    found["associations"][("lab", "mid", "")]["ParentName"] = "top"
    found["associations"][("lab", "leaf", "")]["ParentName"] = "mid"
    gone = [{"name": name, "state": "absent"} for name in ("top", "mid", "leaf")]
    assert calls(found, accounts=gone, users=[{"name": "alice", "state": "absent"}]) == [
        "delete user where name=alice",
        "delete account where name=leaf",
        "delete account where name=mid",
        "delete account where name=top",
    ]


def test_what_is_not_declared_stays_unless_exclusive() -> None:
    found = there("a", "b", users={"alice": ["a", "b"], "bob": ["b"]})
    found["qos"]["old"] = {}
    declared = {"accounts": [{"name": "a"}], "users": [{"name": "alice", "default_account": "a"}]}
    assert calls(found, **declared) == []
    assert calls(found, **declared, exclusive=True) == [
        "delete user where name=bob",
        "delete user where name=alice account=b cluster=lab",
        "delete account where name=b",
        "delete qos where name=old",
    ]


def test_exclusive_keeps_what_is_slurms_own() -> None:
    assert calls(facts(), exclusive=True) == []


def test_an_account_of_two_clusters_leaves_only_this_one() -> None:
    found = there("a")
    found["associations"][("far", "a", "")] = {"ParentName": "root"}
    assert calls(found, accounts=[{"name": "a", "state": "absent"}]) == [
        "delete account where name=a cluster=lab"
    ]


def test_an_account_with_jobs_is_not_removed() -> None:
    steps = accounting.plan(there("a"), {"cluster": "lab", "accounts": [{"name": "a", "state": "absent"}]})
    assert accounting.busy(steps, {"a": []}) is None
    refusal = accounting.busy(steps, {"a": ["1", "2", "3", "4", "5", "6"]})
    assert refusal is not None
    assert "account a has jobs (1, 2, 3, 4, 5 and 1 more)" in refusal
    assert "scancel --account=a" in refusal


# -- values


@pytest.mark.parametrize(
    ("written", "minutes"),
    [
        ("90", 90),
        (90, 90),
        ("90:00", 90),
        ("1:30:00", 90),
        ("01:30:30", 91),
        ("1-0", 1440),
        ("1-00:00:00", 1440),
        ("2-12:30", 3630),
        ("2-12:30:01", 3631),
    ],
)
def test_times(written: object, minutes: int) -> None:
    assert limits.minutes(written) == minutes


@pytest.mark.parametrize("written", ["soon", "1:2:3:4x", "1-x"])
def test_what_is_no_time(written: str) -> None:
    with pytest.raises(AccountError, match="is no time such as"):
        limits.minutes(written)


def test_resources() -> None:
    assert limits.tres("cpu=1,MEM=1.5G, gres/gpu=2") == {"cpu": "1", "mem": "1536", "gres/gpu": "2"}
    assert limits.tres({"node": 3}) == {"node": "3"}
    assert limits.tres("") == {}
    with pytest.raises(AccountError, match="'gpu' is no list of resources"):
        limits.tres("gpu")


@pytest.mark.parametrize("value", [None, "", "-1", " "])
@pytest.mark.parametrize("kind", [limits.TRES, limits.TIME, limits.NUMBER])
def test_no_limit(kind: str, value: object) -> None:
    assert limits.normal(kind, value) is None


def test_wrong_values_name_the_entity_and_the_limit() -> None:
    with pytest.raises(AccountError, match="account a: MaxJobs: 'many' is no whole number"):
        calls(facts(), accounts=[{"name": "a", "limits": {"MaxJobs": "many"}}])
    with pytest.raises(AccountError, match="qos q: UsageFactor: 'x' is no number"):
        calls(facts(), qos=[{"name": "q", "usage_factor": "x"}])


@pytest.mark.parametrize(
    ("given", "found"),
    [("grptres", "GrpTRES"), ("MaxTRES", "MaxTRESPerJob"), ("MaxWall", "MaxWallDurationPerJob")],
)
def test_limits_by_any_name(given: str, found: str) -> None:
    assert limits.limit_name(given, limits.ASSOCIATION_LIMITS, "x") == found


def test_an_unknown_limit_gets_a_hint() -> None:
    with pytest.raises(
        AccountError, match=r"qos q: MaxTRESPerUsr is no limit .* did you mean MaxTRESPerUser"
    ):
        calls(facts(), qos=[{"name": "q", "limits": {"MaxTRESPerUsr": "cpu=1"}}])


# -- diff and reading


def test_the_diff_shows_fields_before_and_after() -> None:
    found = facts(**account("a", GrpTRES="cpu=8"))
    steps = accounting.plan(
        found, {"cluster": "lab", "accounts": [{"name": "a", "limits": {"GrpTRES": "cpu=9"}}]}
    )
    assert accounting.diff(steps) == {
        "before": "account a: GrpTRES=cpu=8\n",
        "after": "account a: GrpTRES=cpu=9\n",
    }


def test_reading() -> None:
    answers = {
        "cluster": "lab\n",
        "account": "root|default root account|root\nphysics|Physics|uni\n",
        "user": "root|Administrator\nalice|None\n",
        "qos": "normal|||" + "|" * 20 + "\n",
        "assoc WOPLimits": "lab|physics|alice||root|1|normal||"
        + "|" * 14
        + "\nlab|physics|alice|gpu|root|1|||\n",
        "assoc OnlyDefaults WOPLimits": "lab|alice|physics\nlab||root\n",
    }

    def ask(words: list[str]) -> str:
        assert words[-1].startswith("format=")
        return answers[" ".join(words[:-1])]

    found = accounting.read_facts(ask)
    assert found["clusters"] == {"lab": {}}
    assert found["accounts"]["physics"] == {"description": "Physics", "organization": "uni"}
    assert found["users"]["alice"] == {"admin_level": "none"}
    assert set(found["qos"]) == {"normal"}
    # An association of a partition is nobody's business here.
    assert set(found["associations"]) == {("lab", "physics", "alice")}
    assert found["associations"][("lab", "physics", "alice")]["QOS"] == "normal"
    assert found["defaults"] == {("lab", "alice"): "physics"}
