"""The disk that the rules mean, and no other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.model import Disk
from coldiron.provision.disks import Choice, DiskRefusal, PlainRule, choose, plain_rule
from coldiron.provision.lsblk import Found

A = Found("nvme0n1", 960_197_124_096, "S-A", "eui.a", "SAMSUNG MZ1L2960", "nvme")
B = replace(A, name="nvme1n1", serial="S-B", wwn="eui.b")
BIG = Found("sda", 8_001_563_222_016, "S-BIG", "0x5000c500", "ST8000NM", "sas", content=("xfs on sda",))
STICK = Found("sdz", 960_000_000_000, "S-USB", "", "SAMSUNG MZ1L2960", "usb", removable=True)


def rule(use: str = "system", **values: Any) -> Disk:
    return Disk.model_validate({"use": use, **values})


def refused(found: list[Found], rules: list[Disk], *consent: str) -> str:
    with pytest.raises(DiskRefusal) as error:
        choose(found, rules, consent)
    assert error.value.exit_code == ExitCode.REFUSED
    assert error.value.message.isprintable()
    assert error.value.found == tuple(found)
    return error.value.message


@pytest.mark.parametrize(
    "values",
    [
        {"serial": ["S-A"]},
        {"serial": [" S-A\n"]},
        {"wwn": ["EUI.A"]},
        {"serial": ["S-A"], "wwn": ["eui.a"]},
        {"serial": ["S-A"], "size_gb": 1000, "model": "samsung  mz1l2960"},
    ],
)
def test_a_disk_called_by_name(values: dict[str, Any]) -> None:
    assert choose([A, B, BIG], [rule(**values)]).written == (A,)


@pytest.mark.parametrize("size", [960, 915, 1000])
def test_a_disk_by_size(size: float) -> None:
    choice = choose([A, BIG], [rule(size_gb=size)])
    assert choice.system == (A,)
    assert not choice.mirrored


@pytest.mark.parametrize("size", [900, 1020])
def test_more_than_5_percent_off_is_another_size(size: float) -> None:
    assert "absent" in refused([A, BIG], [rule(size_gb=size)])


def test_two_for_the_system_are_mirrored() -> None:
    choice = choose([A, B, BIG], [rule(size_gb=960, model="SAMSUNG MZ1L2960", count=2)])
    assert choice.system == (A, B)
    assert choice.mirrored
    assert choose([A, B], [rule(serial=["S-B"]), rule(serial=["S-A"])]).mirrored


def test_three_for_the_system_are_refused() -> None:
    third = replace(A, name="nvme2n1", serial="S-C", wwn="eui.c")
    assert "3 disks for the system" in refused([A, B, third], [rule(size_gb=960, count=3)])


def test_every_disk_is_explained_by_serial() -> None:
    choice = choose(
        [replace(A, content=("ext4 on nvme0n1",)), B, BIG, STICK],
        [rule(serial=["S-A"]), rule("data", size_gb=8000), rule("scratch", size_gb=960)],
        ["S-A"],
    )
    assert choice.told() == (
        "serial S-A (nvme0n1, 960 GB SAMSUNG MZ1L2960): written for system; meant by its serial, "
        "loses ext4 on nvme0n1, as allowed",
        "serial S-B (nvme1n1, 960 GB SAMSUNG MZ1L2960): written for scratch; meant by its size, blank",
        "serial S-BIG (sda, 8002 GB ST8000NM): never written; a data disk by its size",
        "serial S-USB (sdz, 960 GB SAMSUNG MZ1L2960): never written; removable, and no rule names its serial",
    )
    assert [disk.serial for disk in choice.wiped] == ["S-A"]
    assert choice.scratch == (B,)


def test_a_disk_that_no_rule_means_is_said() -> None:
    assert choose([A, B], [rule(wwn=["eui.a"])]).told()[1].endswith("never written; no rule means it")
    assert "its WWN" in choose([A], [rule(wwn=["eui.a"])]).told()[0]
    assert "size and model" in choose([A], [rule(size_gb=960, model=A.model)]).told()[0]


@pytest.mark.parametrize(
    ("found", "rules", "consent", "words"),
    [
        ([A, B], [rule(size_gb=960)], [], "wants 1 and fits 2: serial S-A, serial S-B"),
        # A blank disk beside one that bears data is no better choice.
        ([replace(A, content=("ext4",)), B], [rule(size_gb=960)], ["S-A"], "fits 2"),
        ([A, B], [rule(size_gb=960), rule("data", size_gb=960)], [], "fits 2"),
        ([A], [rule(size_gb=960), rule("data", size_gb=960)], [], "two rules, for system and for data"),
        ([A], [rule(serial=["S-A"]), rule("scratch", wwn=["eui.a"])], [], "two rules"),
        ([B], [rule(serial=["S-A"])], [], "absent: serial S-A was not found"),
        ([], [rule(wwn=["eui.a"])], [], "WWN eui.a was not found"),
        ([A], [rule(serial=["S-A"], wwn=["eui.b"])], [], "absent"),
        ([A], [rule(serial=["S-A"], size_gb=8000)], [], "not what its rule says"),
        ([A, replace(B, serial="S-A")], [rule(serial=["S-A"])], [], "on 2 disks"),
        ([A, replace(B, serial="S-A")], [rule(wwn=["eui.a"])], ["S-A"], "consent must mean one"),
        ([STICK], [rule(size_gb=960)], [], "serial S-USB is removable and has to be named by serial"),
        ([replace(STICK, wwn="w")], [rule(wwn=["w"])], [], "is removable; name it by serial"),
        # Two paths to one disk are no mirror.
        ([A, replace(A, name="nvme5n1")], [rule(size_gb=960, count=2)], [], "as nvme0n1 and nvme5n1"),
        ([A, replace(A, name="sdb", wwn="")], [rule(size_gb=960, count=2)], [], "one disk by two paths"),
        ([replace(A, in_use=("raid1 md0",))], [rule(serial=["S-A"])], ["S-A"], "in use: raid1 md0"),
        ([replace(A, read_only=True)], [rule(serial=["S-A"])], [], "read-only"),
        ([replace(A, content=("ext4",))], [rule(serial=["S-A"])], [], "bears ext4; allow it by name: S-A"),
        ([replace(A, content=("ext4",), serial="")], [rule(size_gb=960)], [], "no serial"),
        ([A, BIG], [rule(serial=["S-A"])], ["S-BIG"], "no disk that the rules would write"),
        ([A, BIG], [rule(serial=["S-A"]), rule("data", serial=["S-BIG"])], ["S-BIG"], "a data disk"),
        ([A], [rule(serial=["S-A"])], ["S-NONE"], "no disk that the rules"),
        ([A], [rule("data", serial=["S-A"])], [], "no rule says which disk is for the system"),
        (
            [A, B, BIG],
            [rule(serial=["S-A"]), rule("data", size_gb=8000), rule("scratch", size_gb=8000)],
            [],
            "two",
        ),
    ],
)
def test_refused(found: list[Found], rules: list[Disk], consent: list[str], words: str) -> None:
    assert words in refused(found, rules, *consent)


def test_a_removable_disk_named_by_serial() -> None:
    assert choose([STICK, A], [rule(serial=["S-USB"])]).written == (STICK,)


def test_namespaces_of_one_nvme_are_two_disks() -> None:
    other = replace(A, name="nvme0n2", wwn="eui.a2")
    assert choose([A, other], [rule(wwn=["eui.a2"])]).written == (other,)


def test_missing_data_disks_are_said_and_stop_nothing() -> None:
    choice = choose([A], [rule(serial=["S-A"]), rule("data", serial=["S-X"]), rule("data", size_gb=8000)])
    assert choice.missing == (
        "the disk for data is absent: serial S-X was not found",
        "the rule for data (8000 GB) wants 1 and finds 0",
    )
    assert choice.written == (A,)


@pytest.mark.parametrize(
    "values", [{"serial": ["a", "b"]}, {"model": "X"}, {"serial": [" "]}, {"wwn": [" "]}]
)
def test_a_rule_that_means_nothing_certain(values: dict[str, Any]) -> None:
    with pytest.raises(ColdironError, match="a rule for system"):
        choose([A], [rule(**values)])


SERIALS = ["", "S-1", "S-2", "S-3", "S-4"]
FOUND = st.lists(
    st.builds(
        Found,
        name=st.sampled_from([f"sd{letter}" for letter in "abcdef"]),
        size=st.sampled_from([0, 480, 500, 960, 8000]).map(lambda size: size * 10**9),
        serial=st.sampled_from(SERIALS),
        wwn=st.sampled_from(["", "w1", "w2"]),
        model=st.sampled_from(["", "M1", "M2"]),
        transport=st.sampled_from(["nvme", "usb"]),
        removable=st.booleans(),
        content=st.sampled_from([(), (), ("ext4",)]),
        in_use=st.sampled_from([(), (), ("swap",)]),
    ),
    max_size=6,
    unique_by=lambda disk: disk.name,
)
RULES = st.lists(
    st.one_of(
        st.builds(
            lambda use, serial: rule(use, serial=[serial]),
            st.sampled_from(["system", "data", "scratch"]),
            st.sampled_from(SERIALS[1:]),
        ),
        st.builds(
            lambda use, size, count: rule(use, size_gb=size, count=count),
            st.sampled_from(["system", "swap", "data"]),
            st.sampled_from([480, 960, 8000]),
            st.integers(1, 2),
        ),
    ),
    min_size=1,
    max_size=4,
)


def _chosen(found: list[Found], rules: list[Disk], consent: list[str]) -> Choice | None:
    try:
        return choose(found, rules, consent)
    except ColdironError:
        return None


@settings(max_examples=300)
@given(FOUND, RULES, st.lists(st.sampled_from(SERIALS[1:]), max_size=2, unique=True))
def test_only_what_is_named_is_ever_written(
    found: list[Found], rules: list[Disk], consent: list[str]
) -> None:
    choice = _chosen(found, rules, consent)
    if choice is None:
        return
    assert 1 <= len(choice.system) <= 2
    assert len(choice.verdicts) == len(found)
    assert {v.disk for v in choice.verdicts if v.written} == set(choice.written)
    assert len({disk.name for disk in choice.written}) == len(choice.written)
    for disk in choice.written:
        by_serial = [r for r in rules if r.serial and disk.serial in r.serial]
        by_size = [r for r in rules if r.size_gb and abs(disk.size / 1e9 - r.size_gb) <= 0.05 * r.size_gb]
        assert by_serial or by_size
        # A disk that a data rule could mean is only written where a serial says so.
        assert by_serial or all(r.use != "data" for r in by_size)
        assert all(r.use != "data" for r in by_serial)
        assert not disk.in_use
        assert by_serial or not (disk.removable or disk.transport == "usb")
        assert not disk.content or (disk.serial and disk.serial in consent)


@given(FOUND, RULES)
def test_more_disks_never_change_the_choice_silently(found: list[Found], rules: list[Disk]) -> None:
    """A disk that is added makes a rule ambiguous or changes nothing: it never takes another's place."""
    before = _chosen(found, rules, [])
    after = _chosen([*found, Found("sdnew", 960 * 10**9, "S-NEW", "", "M1", "nvme")], rules, [])
    if before and after:
        assert {d.name for d in before.written} == {d.name for d in after.written}


def test_plain_rule_means_what_the_model_means() -> None:
    plain = plain_rule({"use": "system", "serial": ["S-A"], "wwn": None, "count": 1})
    assert plain == PlainRule("system", ("S-A",))
    assert plain_rule({"use": "system", "serial": "S-A"}) == plain
    assert choose([A, B], [plain]) == choose([A, B], [rule(serial=["S-A"])])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"use": "boot"}, "has the use boot; write one of system, swap, scratch, data"),
        ({"use": "data", "colour": 1}, "the key colour, which is unknown"),
        ({"use": "data", "serial": 7}, "`serial` of a rule for data is no list of texts"),
        ({"use": "data", "wwn": [7]}, "`wwn` of a rule for data is no list of texts"),
        ({"use": "data", "size_gb": True}, "`size_gb` of a rule for data is no size"),
        ({"use": "data", "size_gb": float("nan")}, "is no size"),
        ({"use": "data", "count": 0}, "is no number from 1 to 128"),
        ({"use": "data", "model": 1}, "`model` of a rule for data is no text"),
    ],
)
def test_plain_rule_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ColdironError, match=words):
        plain_rule(fields)
