"""os_facts speaks setup's words, os_data merges a role's files by them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from harness import load

os_facts = load("modules", "os_facts")
os_data = load("lookup", "os_data")
TRIXIE = {"os_family": "Debian", "distribution": "Debian", "distribution_major_version": "13"}


@pytest.mark.parametrize(
    ("release", "debian_version", "expected"),
    [
        ('ID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\n', "13.1\n", "Debian Debian 13.1 13 trixie"),
        ("ID=debian\nVERSION_CODENAME=forky\n", "forky/sid\n", "Debian Debian NA NA forky"),
        (
            'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n',
            "trixie/sid\n",
            "Debian Ubuntu 24.04 24 noble",
        ),
        (
            'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\nVERSION="9.4 (Blue Onyx)"\n',
            "",
            "RedHat Rocky 9.4 9 Blue Onyx",
        ),
        ('ID=what\nNAME="What OS"\nVERSION_ID=1\n', "", "NA What OS 1 1 NA"),
    ],
)
def test_distribution(release: str, debian_version: str, expected: str) -> None:
    found = os_facts.distribution(os_facts.os_release(release), debian_version)
    assert " ".join(found.values()) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/1/environ": "container=systemd-nspawn\0"}, "container"),
        ({"run/systemd/container": "docker"}, "container"),
        ({"sys/class/dmi/id/sys_vendor": "QEMU\n"}, "kvm"),
        ({"sys/class/dmi/id/product_name": "VMware Virtual Platform"}, "VMware"),
        ({"sys/class/dmi/id/sys_vendor": "Supermicro"}, "NA"),
    ],
)
def test_virtualization(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert os_facts.virtualization(str(tmp_path)) == expected


def test_the_facts_are_these_and_no_others() -> None:
    assert set(os_facts.facts()) == {
        "os_family",
        "distribution",
        "distribution_version",
        "distribution_major_version",
        "distribution_release",
        "architecture",
        "python_version",
        "service_mgr",
        "virtualization_type",
    }


def test_simulated_gpus_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os_facts, "MARKER", str(tmp_path / "simulated-gpu"))
    assert os_facts.main("{}") == 0
    (tmp_path / "simulated-gpu").write_text("{}")
    assert os_facts.main("{}") == 0
    without, with_them = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert not without["simulated_gpus"]
    assert with_them["simulated_gpus"]
    assert with_them["ansible_facts"] == without["ansible_facts"]


@pytest.fixture
def role(tmp_path: Path) -> Path:
    vars_of = tmp_path / "time/vars"
    vars_of.mkdir(parents=True)
    (vars_of / "main.yml").write_text("__time_os: x\n")
    (vars_of / "Debian.yml").write_text("__time_packages: [chrony]\n__time_service: chrony\n")
    (vars_of / "Ubuntu.yml").write_text("__time_service: chronyd\n")
    (vars_of / "Debian_12.yml").write_text("__time_packages: [chrony, extra]\n")
    return tmp_path / "time"


def ask(role: Path, facts: dict[str, str], *terms: str) -> list[dict[str, Any]]:
    lookup = os_data.LookupModule(loader=DataLoader())
    variables = {"ansible_facts": facts, "role_path": str(role), "inventory_hostname": "gpu01"}
    found: list[dict[str, Any]] = lookup.run(list(terms) or ["time"], variables)
    return found


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (TRIXIE, {"packages": ["chrony"], "service": "chrony"}),
        (
            {**TRIXIE, "distribution_major_version": "12"},
            {"packages": ["chrony", "extra"], "service": "chrony"},
        ),
        (
            {"os_family": "Debian", "distribution": "Ubuntu", "distribution_major_version": "24"},
            {"packages": ["chrony"], "service": "chronyd"},
        ),
    ],
)
def test_later_files_win(role: Path, facts: dict[str, str], expected: dict[str, Any]) -> None:
    assert ask(role, facts) == [expected]
    assert ask(role, facts, "time", "time") == [expected, expected]


def test_an_unsupported_distribution_is_one_clear_error(role: Path) -> None:
    fedora = {"os_family": "RedHat", "distribution": "Fedora", "distribution_major_version": "41"}
    with pytest.raises(AnsibleError) as caught:
        ask(role, fedora)
    assert "role time does not know Fedora 41" in str(caught.value)
    assert "speaks of Debian, Debian_12, Ubuntu; add RedHat.yml or Fedora.yml there" in str(caught.value)


def test_missing_facts_are_named(role: Path) -> None:
    with pytest.raises(AnsibleError, match=r"needs the fact os_family of gpu01: run .*os_facts first"):
        ask(role, {})


def test_a_key_without_the_prefix_is_named(role: Path) -> None:
    (role / "vars/Debian.yml").write_text("packages: []\n")
    with pytest.raises(AnsibleError, match=r"Debian\.yml: packages: the keys here begin with __time_"):
        ask(role, TRIXIE)


def test_a_file_that_is_no_mapping_is_named(role: Path) -> None:
    (role / "vars/Debian.yml").write_text("- x\n")
    with pytest.raises(AnsibleError, match=r"Debian\.yml: wants a mapping"):
        ask(role, TRIXIE)
