"""The site's variables against its cluster, over whole small inventories, the pages' examples among them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible.parsing.vault import VaultLib, VaultSecret

from coldiron.inventory import load
from coldiron.plan import make, policy
from coldiron.plan.codes import Page, pages
from coldiron.plan.design import Design
from coldiron.plan.findings import Finding, Severity
from coldiron.plan.policy import Policy
from coldiron.secrets.table import check
from tests.plan.cases import base, line_of, over
from tests.plan.site import PASSWORD, inventory

PAGES = [page for page in pages().values() if page.code.startswith("CV2") or page.code in ("CS104", "CS105")]


@pytest.fixture(autouse=True)
def nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan starts no process at all."""
    for name in ("COLDIRON_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_PASSWORD_FILE"):
        monkeypatch.delenv(name, raising=False)

    def refuse(*words: object, **more: object) -> None:
        raise AssertionError(f"a plan started {words}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(os, "fork", refuse)


def see(directory: Path, text: str = "") -> list[Finding]:
    return make(inventory(directory / "hopper", text)).findings


def of_code(findings: list[Finding], code: str) -> list[Finding]:
    return [finding for finding in findings if finding.code == code]


def test_the_base_with_variables_is_sound(tmp_path: Path) -> None:
    assert [str(finding) for finding in see(tmp_path)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.code)
def test_the_examples_of_the_pages(tmp_path: Path, page: Page) -> None:
    wrong = of_code(see(tmp_path / "wrong", page.wrong), page.code)
    assert wrong
    assert all(line_of(finding) for finding in wrong)
    assert of_code(see(tmp_path / "right", page.right), page.code) == []


def test_a_mixed_cluster_is_said_once_and_the_others_are_to_be_like_the_controller(tmp_path: Path) -> None:
    nodes = base("software").replace(
        "    model: dgx-h100\n", "    model: dgx-h100\n    distribution: debian-12\n"
    )
    found = see(tmp_path, nodes[nodes.index("nodes:") :])
    (finding,) = found
    assert (finding.code, finding.hosts) == ("CV201", "gpu[01-04]")
    assert finding.what == "two Slurm releases in one cluster: debian-12 22.05 and debian-13 24.11"
    # A pin ends it, and is itself looked at.
    nodes = nodes[nodes.index("nodes:") :] + 'slurm_common_version: "24.11.5-4"\n'
    (finding,) = see(tmp_path / "pinned", nodes)
    assert (finding.code, finding.hosts, finding.severity) == ("CV202", "gpu[01-04]", Severity.WARN)


def test_the_distribution_of_single_nodes_is_found_where_it_is_written(tmp_path: Path) -> None:
    nodes = base("software")
    nodes = nodes[nodes.index("nodes:") :] + "    overrides:\n      gpu03: {distribution: debian-12}\n"
    (finding,) = see(tmp_path, nodes)
    text = (tmp_path / "hopper" / "cluster.yml").read_text()
    assert "gpu03" in text.splitlines()[line_of(finding) - 1]
    assert finding.hosts == "gpu03"
    everybody = "defaults: {distribution: debian-12}\n" + nodes.replace("debian-12", "debian-13").replace(
        "kind: head,", "kind: head, distribution: debian-13,"
    )
    (finding,) = see(tmp_path / "b", everybody)
    text = (tmp_path / "b" / "hopper" / "cluster.yml").read_text()
    assert text.splitlines()[line_of(finding) - 1].startswith("defaults:")


@pytest.mark.parametrize(
    ("pin", "release", "wanted"),
    [
        ("24.11.5-4", "24.11", True),
        ("1:24.11.5-4", "24.11", True),
        ("24.*", "24.11", True),
        ("*", "24.11", True),
        ("23.11.4-1", "24.11", False),
        ("25.*", "24.11", False),
    ],
)
def test_a_pin_and_a_release(pin: str, release: str, wanted: bool) -> None:
    assert policy._is(pin, release) is wanted


@pytest.mark.parametrize(
    ("partitions", "what"),
    [
        ("[{name: a, nodes: 'cpu*'}]", "partition a: no worker's name matches `cpu*`"),
        ("[{name: a, nodes: 'gpu[01'}]", "partition a: "),
        ("[{name: a, nodes: [gpu01, head01]}]", "partition a: `head01` is no worker of this cluster"),
        ("[{name: a}, {name: a}]", "partition a: it is declared twice"),
        (
            "[{name: a, default: true}, {name: b, default: true}]",
            "partition b: it is the default one, and so is a",
        ),
    ],
)
def test_partitions_that_slurm_would_not_take(tmp_path: Path, partitions: str, what: str) -> None:
    (finding,) = see(tmp_path, f"slurm_controller_partitions: {partitions}\n")
    assert finding.code == "CV203"
    assert finding.what.startswith(what)
    assert finding.severity is Severity.REFUSE


def test_the_line_is_the_partition_s_own(tmp_path: Path) -> None:
    text = (
        "slurm_controller_partitions:\n  - {name: gpu-all, nodes: all}\n  - name: gpu\n    nodes: tpu*\n"
        "slurm_controller_qos: []\n"
    )
    (finding,) = see(tmp_path, text)
    site = (tmp_path / "hopper" / "group_vars" / "all" / "site.yml").read_text().splitlines()
    assert site[line_of(finding) - 1] == "  - name: gpu"


def test_partitions_that_are_none_are_left_to_the_options(tmp_path: Path) -> None:
    codes = {finding.code for finding in see(tmp_path, "slurm_controller_partitions: all of them\n")}
    assert codes == {"CR102"}
    codes = {
        finding.code for finding in see(tmp_path / "b", 'slurm_controller_partitions: "{{ nowhere }}"\n')
    }
    assert codes == {"CR104"}


def test_variables_that_cannot_be_worked_out_are_told_once(tmp_path: Path) -> None:
    directory = inventory(tmp_path / "hopper")
    (directory / "group_vars" / "cluster.yml").write_text('topology: "{{ nowhere }}"\n')
    assert {finding.code for finding in make(directory).findings} == {"CR104"}


@pytest.fixture
def design(tmp_path: Path) -> Design:
    """The base: four nodes of eight GPUs."""
    return make_design(tmp_path, "")


def make_design(directory: Path, blocks: str) -> Design:
    file = directory / "cluster.yml"
    file.write_text(over(base("software"), blocks), encoding="utf-8")
    return Design(load(file))


def given(**values: object) -> Policy:
    known = {**policy.defaults(), **{f"slurm_controller_{name}": value for name, value in values.items()}}
    return Policy(known, frozenset(known), {}, policy.releases())


def test_the_defaults_suit(design: Design) -> None:
    assert policy.check(design, given()) == []


@pytest.mark.parametrize(
    ("lines", "total"),
    [
        (["NodeName=gpu01 Name=gpu Type=h100 File=/dev/nvidia0"], 9),
        (["NodeName=gpu01 Name=gpu Count=8"], 16),
        (["nodename=gpu01 name=GPU file=/dev/nvidia[0-3,6-7]"], 14),
        (["NodeName=gpu[01-02] Name=gpu Count=1", "NodeName=gpu01 Name=gpu Count=1"], 10),
    ],
)
def test_gpus_of_gres_conf(design: Design, lines: list[str], total: int) -> None:
    found = policy.check(design, given(gres_lines=lines))
    assert found[0].code == "CV207"
    assert found[0].hosts == "gpu01"
    assert dict(found[0].figures) == {"gres_conf": total, "declared": 8}


@pytest.mark.parametrize(
    "line",
    [
        "NodeName=gpu01 Name=shard Count=64",
        "Name=gpu Count=3",
        "NodeName=elsewhere Name=gpu Count=3",
        "NodeName=gpu[01 Name=gpu Count=3",
        "NodeName=gpu01 Name=gpu Count=many",
    ],
)
def test_lines_of_gres_conf_that_are_left_alone(design: Design, line: str) -> None:
    assert policy.check(design, given(gres_lines=[line])) == []


def test_with_autodetect_the_lines_are_the_only_ones(design: Design) -> None:
    line = "NodeName=gpu[01-04] Name=gpu Type=h100 File=/dev/nvidia[0-7]"
    assert policy.check(design, given(gres_lines=[line], gres_autodetect="nvml")) == []
    (finding,) = policy.check(design, given(gres_lines=[line.replace("0-7", "0-3")], gres_autodetect="nvml"))
    assert dict(finding.figures) == {"gres_conf": 4, "declared": 8}


@pytest.mark.parametrize(
    ("mib", "percent", "severity"),
    [
        (0, 2, None),
        (0, 1, Severity.WARN),
        (0, 0, Severity.WARN),
        (41_943, 0, None),
        (41_942, 0, Severity.WARN),
        (2_097_151, 0, None),
        (2_097_152, 0, Severity.REFUSE),
    ],
)
def test_the_larger_headroom_counts(
    design: Design, mib: int, percent: int, severity: Severity | None
) -> None:
    # 2048 GiB are 2,097,152 MiB.
    found = policy.check(design, given(memory_headroom_mib=mib, memory_headroom_percent=percent))
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    assert {finding.code for finding in found} <= {"CV208"}


def test_types_of_gpus_in_limits(design: Design) -> None:
    limits = given(
        qos=[{"name": "big", "grp_tres": "gres/gpu:h200=16"}],
        accounts=[{"name": "a", "max_tres": {"gres/gpu:h100_sxm5_80gb": 4}}],
    )
    (finding,) = policy.check(design, limits)
    assert finding.code == "CV206"
    assert "h200" in finding.what
    assert "h100_sxm5_80gb" in finding.what


def test_types_of_gpus_where_there_are_none(tmp_path: Path) -> None:
    blocks = (
        "nodes:\n  - {name: head01, kind: head, address: 10.99.0.1}\n  - name: cpu01\n    kind: cpu\n"
        "    address: 10.99.0.31\n    hardware: {cores_per_socket: 16, memory_gib: 256}\n"
    )
    (finding,) = policy.check(make_design(tmp_path, blocks), given(config={"PreemptExempt": "gpu:a100"}))
    assert finding.what.endswith("no worker has GPUs")


DIVIDED = (
    "      gpus:\n        count: 8\n        mig:\n          - {gpus: 1-2, profiles: [3g.40gb, 3g.40gb]}\n"
)


@pytest.mark.parametrize(
    ("distribution", "autodetect", "advice"),
    [
        ("debian-13", "off", None),
        ("rocky-9", "off", "rocky-9 packages no NVML plugin for Slurm"),
        ("rocky-9", "nvml", None),
    ],
)
def test_divided_gpus_are_found_by_nvml_only(
    tmp_path: Path, distribution: str, autodetect: str, advice: str | None
) -> None:
    nodes = base("software")
    nodes = nodes[nodes.index("nodes:") :].replace(
        "      memory_gib: 2048\n", f"      memory_gib: 2048\n{DIVIDED}"
    )
    nodes = nodes.replace("    kind: gpu\n", f"    kind: gpu\n    distribution: {distribution}\n")
    found = policy.check(make_design(tmp_path, nodes), given(gres_autodetect=autodetect))
    told = [finding.advice for finding in found if finding.code == "CV205"]
    assert len(told) == bool(advice)
    assert all(str(advice) in line for line in told)


def test_a_policy_without_values_says_nothing(design: Design) -> None:
    assert policy.check(design, Policy()) == []
    odd = {"memory_headroom_mib": True, "partitions": 5, "gres_lines": 5, "gres_autodetect": 5}
    assert policy.check(design, given(**odd)) == []


SITE_VARIABLES = """\
base_motd: "change me"
base_timezone: <your zone>
dns_forwarders:
  - TBD
mariadb_root_password: "{{ vault_it }}"
users_accounts:
  - {name: alice, password: "!"}
  - {name: bob, password: "$6$rounds=5000$abc$def"}
  - {name: carl, password: secret}
bmc_credentials: {user: admin, password: swordfish-and-more}
slurm_controller_jwt_key: ""
"""


def test_placeholders_and_open_secrets_by_line(tmp_path: Path) -> None:
    directory = inventory(tmp_path / "hopper")
    file = directory / "group_vars" / "extra.yml"
    file.write_text(SITE_VARIABLES)
    (directory / "group_vars" / "notes.txt").write_text("password: change_me\n")
    (directory / "group_vars" / "empty.yml").write_text("# nothing\n")
    found = [one for one in make(directory).findings if one.code in ("CS104", "CS105")]
    told = {(one.code, line_of(one), one.severity): one.subject for one in found}
    assert told == {
        ("CS104", 1, Severity.WARN): "base_motd",
        ("CS104", 2, Severity.WARN): "base_timezone",
        ("CS104", 4, Severity.WARN): "dns_forwarders",
        ("CS104", 9, Severity.REFUSE): "users_accounts.password",
        ("CS105", 10, Severity.WARN): "bmc_credentials.password",
    }
    assert "swordfish" not in "".join(map(str, found))


def test_words_that_are_no_placeholders(tmp_path: Path) -> None:
    text = (
        "base_motd: Change of plans, see the wiki\nusers_groups: [{name: test, gid: 3000}]\n"
        "slurm_controller_accounts: [{name: default, description: Your own <jobs> here}]\n"
    )
    assert not {one.code for one in see(tmp_path, text)} & {"CS104", "CS105"}


def test_other_vault_files_are_looked_into(tmp_path: Path) -> None:
    directory = inventory(tmp_path / "hopper")
    secret = VaultSecret(PASSWORD)
    vault = VaultLib([("default", secret)])
    file = directory / "group_vars" / "kind_gpu.yml"
    file.write_bytes(vault.encrypt("bmc_credentials: {user: root, password: changeme}\n", secret))
    (finding,) = make(directory).findings
    assert finding.code == "CS103"
    assert finding.where.endswith("group_vars/kind_gpu.yml")
    assert "`bmc_credentials.password`" in finding.what
    file.write_bytes(vault.encrypt("bmc_credentials: {user: root, password: x7f-Plover-42}\n", secret))
    assert make(directory).findings == []


def test_whose_a_password_is_need_not_be_secret() -> None:
    assert check({"bmc_credentials": {"user": "admin", "password": "x7f-Plover-42"}}) == []
    assert check({"bmc_credentials": {"user": "", "password": "x7f-Plover-42"}}) != []
