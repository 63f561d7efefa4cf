"""How often a role is asked: once for nodes whose options follow from the same values, and for each that differs."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.plan import make, options
from coldiron.plan.alike import Look
from coldiron.plan.resolved import Resolved
from tests.plan.cases import base
from tests.plan.site import inventory

# The base has a head, a storage node and gpu[01-04].
WHOLE = {"head01", "storage01", "gpu01"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(node, role) of every question."""
    seen: list[tuple[str, str]] = []
    ask = options._ask

    def recorded(resolved: object, role: str, variables: dict[str, object]) -> list[str]:
        seen.append((str(variables["inventory_hostname"]), role))
        return ask(resolved, role, variables)  # type: ignore[arg-type]

    monkeypatch.setattr(options, "_ask", recorded)
    return seen


def more(asked: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The questions beside those to the first of each kind of node."""
    return [(node, role) for node, role in asked if node not in WHOLE]


def test_nodes_that_differ_in_name_alone_are_one(tmp_path: Path, asked: list[tuple[str, str]]) -> None:
    make(inventory(tmp_path / "hopper"))
    assert {node for node, _ in asked} == WHOLE
    assert len(set(asked)) == len(asked)


def test_what_no_option_reads_costs_nothing(tmp_path: Path, asked: list[tuple[str, str]]) -> None:
    nodes = base("software")
    nodes = nodes[nodes.index("nodes:") :] + "    serial: [s1, s2, s3, s4]\n"
    directory = inventory(tmp_path / "hopper", nodes + 'rack_label: "{{ inventory_hostname }}"\n')
    (directory / "host_vars").mkdir()
    (directory / "host_vars" / "gpu02.yml").write_text("bought: 2024\n")
    make(directory)
    assert more(asked) == []


def test_one_role_is_asked_where_one_follows_from_the_name(
    tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    make(inventory(tmp_path / "hopper", 'base_hostname: "{{ inventory_hostname }}"\n'))
    assert more(asked) == [("gpu02", "base"), ("gpu03", "base"), ("gpu04", "base")]


def test_values_that_are_the_same_are_asked_once(tmp_path: Path, asked: list[tuple[str, str]]) -> None:
    make(
        inventory(
            tmp_path / "hopper", "base_hostname: \"{{ 'x' if inventory_hostname == 'gpu03' else 'y' }}\"\n"
        )
    )
    assert more(asked) == [("gpu03", "base")]


def test_a_name_is_followed_from_variable_to_variable(tmp_path: Path, asked: list[tuple[str, str]]) -> None:
    directory = inventory(
        tmp_path / "hopper",
        'my_place: Vienna\nmy_zone: "Europe/{{ my_place }}"\nbase_timezone: "{{ my_zone }}"\n',
    )
    (directory / "host_vars").mkdir()
    for name in ("gpu03", "gpu04"):
        (directory / "host_vars" / f"{name}.yml").write_text("my_place: Atlantis!\n")
    (finding,) = make(directory).findings
    assert (finding.code, finding.hosts) == ("CR103", "gpu[03-04]")
    assert more(asked) == [("gpu03", "base")]


def test_a_node_s_own_option_is_its_own(tmp_path: Path, asked: list[tuple[str, str]]) -> None:
    directory = inventory(tmp_path / "hopper")
    (directory / "host_vars" / "gpu02").mkdir(parents=True)
    (directory / "host_vars" / "gpu02" / "time.yml").write_text("time_control_clock: perhaps\n")
    (directory / "host_vars" / "gpu04.yml").write_text("time_control_clock: perhaps\n")
    (finding,) = make(directory).findings
    assert (finding.code, finding.hosts) == ("CR102", "gpu[02,04]")
    assert more(asked) == [("gpu02", "time")]


def test_a_fault_of_all_is_told_of_all_though_some_are_asked_again(
    tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    text = 'base_hostname: "{{ inventory_hostname }}"\ntime_control_clock: perhaps\nbase_locale: Klingon\n'
    found = make(inventory(tmp_path / "hopper", text)).findings
    assert sorted((one.code, one.hosts) for one in found) == [("CR102", ""), ("CR103", "")]
    assert len(more(asked)) == 3


def test_an_expression_that_fails_on_some_nodes(tmp_path: Path) -> None:
    text = "base_timezone: \"{{ {'gpu01': 'UTC', 'gpu02': 'UTC'}[inventory_hostname] }}\"\n"
    directory = inventory(tmp_path / "hopper")
    (directory / "group_vars" / "kind_gpu.yml").write_text(text)
    found = make(directory).findings
    # Each is told what its own name lacks.
    assert [(one.code, one.hosts) for one in found] == [("CR104", "gpu03"), ("CR104", "gpu04")]


def test_a_variable_looked_up_by_a_name_that_it_makes_up_can_be_any(
    tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    directory = inventory(
        tmp_path / "hopper", "base_timezone: \"{{ lookup('vars', 'mo' ~ 'to') }}\"\nmoto: UTC\n"
    )
    (directory / "host_vars").mkdir()
    (directory / "host_vars" / "gpu03.yml").write_text("moto: Atlantis!\n")
    (finding,) = make(directory).findings
    assert (finding.code, finding.hosts) == ("CR103", "gpu03")
    assert ("gpu03", "base") in more(asked)


def test_roles_that_follow_from_the_name_make_every_node_its_own(
    tmp_path: Path, asked: list[tuple[str, str]]
) -> None:
    directory = inventory(tmp_path / "hopper")
    (directory / "group_vars" / "kind_gpu.yml").write_text(
        "coldiron_roles: \"{{ ['time'] if inventory_hostname == 'gpu02' else ['base', 'time'] }}\"\n"
    )
    make(directory)
    assert sorted(more(asked)) == [
        ("gpu02", "time"),
        ("gpu03", "base"),
        ("gpu03", "time"),
        ("gpu04", "base"),
        ("gpu04", "time"),
    ]


@pytest.mark.parametrize(
    ("site", "own"),
    [
        ('base_hostname: "{{ inventory_hostname | upper }}"\n', {}),
        (
            'base_timezone: "{{ coldiron_rack | default(ansible_host) }}!"\n',
            {"gpu02": "coldiron_rack: r01\n"},
        ),
        ("base_locale: \"{{ {'gpu02': 'Klingon'}[inventory_hostname] | default('C.UTF-8') }}\"\n", {}),
        ("clock: perhaps\n", {"gpu01": 'time_control_clock: "{{ clock }}"\n', "gpu04": "clock: false\n"}),
        (
            "base_sysctl: \"{{ hostvars['gpu02']['mine'] | default({}) }}\"\n",
            {"gpu02": "mine: [no mapping]\n"},
        ),
        ("slurm_common_hold: \"{{ 7 if 'gpu' in inventory_hostname else true }}\"\n", {}),
        ('users_accounts: "{{ people[inventory_hostname_short] }}"\npeople: {gpu01: [], gpu02: 5}\n', {}),
    ],
)
def test_no_fault_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str, own: dict[str, str]
) -> None:
    directory = inventory(tmp_path / "hopper", site)
    (directory / "host_vars").mkdir()
    for name, text in own.items():
        (directory / "host_vars" / f"{name}.yml").write_text(text)
    found = {(one.code, one.what, one.hosts) for one in make(directory).findings}
    assert found

    def each_by_itself(resolved: Resolved) -> list[Look]:
        return [Look(host, [host]) for host in resolved.hosts("cluster")]

    monkeypatch.setattr(options, "looks", each_by_itself)
    assert {(one.code, one.what, one.hosts) for one in make(directory).findings} == found
