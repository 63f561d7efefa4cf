"""What Ansible makes of an inventory before a run; stages, tags and playbooks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from coldiron.errors import ColdironError, ExitCode
from coldiron.run import survey
from coldiron.run.catalog import SITE, Catalog, stage_of
from coldiron.testing.stages import find_collection

HOSTS = """\
all:
  vars: {coldiron_cluster: hopper}
  children:
    slurm_controller:
      hosts:
        head01: {ansible_host: 10.0.0.1}
    workers:
      hosts:
        gpu[01:03]: {}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / "group_vars" / "all").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("ANSIBLE_", "COLDIRON_")):
            monkeypatch.delenv(name)
    return tmp_path


def encrypt(file: Path, text: str, password: str = "open sesame") -> None:
    file.write_text(text)
    key = file.with_name(".key")
    key.write_text(password)
    subprocess.run(["ansible-vault", "encrypt", "--vault-password-file", str(key), str(file)], check=True)
    key.unlink()


def test_hosts_patterns_and_limits(place: Path) -> None:
    seen = survey.ask(place / "hosts.yml", [], ["workers:!gpu02", "nobody"])
    assert seen.hosts == ["head01", "gpu01", "gpu02", "gpu03"]
    assert seen.patterns == {"workers:!gpu02": ["gpu01", "gpu03"], "nobody": []}
    assert (seen.cluster, seen.address) == ("hopper", "10.0.0.1")
    limited = survey.ask(place, ["gpu*,!gpu01", "head01"], ["workers"])
    assert limited.hosts == ["head01", "gpu02", "gpu03"]
    assert limited.patterns == {"workers": ["gpu02", "gpu03"]}
    assert limited.everyone == seen.hosts


def test_what_ansible_needs_to_be_told(place: Path) -> None:
    environment = survey.ask(place).environment
    assert environment["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    assert environment["ANSIBLE_INVENTORY_ENABLED"].startswith("coldiron.cluster.cluster,")
    assert "ANSIBLE_VAULT_PASSWORD_FILE" not in environment
    (place / "ansible.cfg").write_text(
        "[defaults]\nhost_key_checking = false\nforks = 3\n[inventory]\nenable_plugins = yaml\n"
    )
    (place / ".vault-password").write_text("x")
    environment = survey.ask(place).environment
    assert environment["ANSIBLE_HOST_KEY_CHECKING"] == "False"
    assert environment["ANSIBLE_INVENTORY_ENABLED"] == "coldiron.cluster.cluster,yaml"
    assert environment["ANSIBLE_VAULT_PASSWORD_FILE"] == str(place / ".vault-password")
    assert "ANSIBLE_FORKS" not in environment


def test_secrets_are_known_by_name_or_by_their_lock(place: Path) -> None:
    (place / ".vault-password").write_text("open sesame\n")
    (place / ".vault-password").chmod(0o600)
    folder = place / "group_vars" / "all"
    encrypt(folder / "vault.yml", "munge_key: mungemunge\nlist: [{deep: deepdeep}]\n")
    (folder / "site.yml").write_text("users:\n  - {name: alice, password: $6$crypted}\nport: 22\n")
    seen = survey.ask(place)
    assert seen.secrets == ["$6$crypted", "deepdeep", "mungemunge"]
    assert "mungemunge" not in repr(seen)


@pytest.mark.parametrize("password", [None, "another"])
def test_a_vault_that_does_not_open(place: Path, password: str | None) -> None:
    encrypt(place / "group_vars" / "all" / "vault.yml", "munge_key: mungemunge\n")
    if password:
        (place / ".vault-password").write_text(password)
    with pytest.raises(ColdironError) as caught:
        survey.ask(place)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    assert "\n" not in caught.value.message
    assert "group_vars/all/vault.yml" in caught.value.message
    assert ("does not open" if password else ".vault-password is missing") in caught.value.message


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ("gpu1", r"has no node or group `gpu1`; did you mean `gpu01`\?"),
        ("!gpu99", "has no node or group `gpu99`"),
        ("nowhere*", "has no host within --limit"),
        ("@missing.txt", "Unable to find limit file"),
    ],
)
def test_a_wrong_limit(place: Path, limit: str, message: str) -> None:
    with pytest.raises(ColdironError, match=message) as caught:
        survey.ask(place, [limit])
    assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("text", ["all: [1\n", "all:\n  hosts: [a, b]\n", ""])
def test_an_inventory_that_cannot_be_read(place: Path, text: str) -> None:
    (place / "hosts.yml").write_text(text)
    with pytest.raises(ColdironError) as caught:
        survey.ask(place)
    assert "\n" not in caught.value.message
    assert "Traceback" not in caught.value.message


def test_variables_that_cannot_be_read(place: Path) -> None:
    (place / "group_vars" / "all" / "site.yml").write_text("a: [\n")
    with pytest.raises(ColdironError, match=r"group_vars/all/site.yml: ") as caught:
        survey.ask(place)
    assert "\n" not in caught.value.message


def test_a_survey_that_cannot_be_made(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(ColdironError, match="cannot be started") as caught:
        survey.ask(place)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ColdironError, match="exit status 1"):
        survey.ask(place)


# Stages.


def test_the_stages_are_the_playbooks() -> None:
    catalog = Catalog()
    files = {
        path.stem.removeprefix("stage_") for path in (find_collection() / "playbooks").glob("stage_*.yml")
    }
    assert set(catalog.stages) == files
    assert catalog.stages[:2] == ["provision", "base"]
    assert catalog.chosen([]) == catalog.stages
    assert catalog.chosen(["scheduler", "base", "base"]) == ["base", "scheduler"]
    with pytest.raises(ColdironError, match=r"no stage `shceduler`; did you mean `scheduler`\?"):
        catalog.chosen(["shceduler"])
    assert catalog.playbooks(catalog.stages) == [SITE]
    assert catalog.playbooks(["base"]) == ["coldiron.cluster.base"]


def test_each_stage_has_a_playbook_of_its_own_with_the_first_look() -> None:
    catalog = Catalog()
    for stage in catalog.stages:
        plays = catalog.plays([f"coldiron.cluster.{stage}"])
        assert list(dict.fromkeys(play.stage for play in plays)) == ["check", stage]
    removing = catalog.plays(["coldiron.cluster.node_remove"])
    assert list(dict.fromkeys(play.stage for play in removing)) == ["check", "remove"]


def test_some_stages_in_one_playbook() -> None:
    entries = yaml.safe_load(Catalog().one_playbook(["base", "scheduler"]))
    assert [entry["ansible.builtin.import_playbook"] for entry in entries] == [
        "coldiron.cluster.validate",
        "coldiron.cluster.stage_base",
        "coldiron.cluster.stage_scheduler",
    ]


def test_tags() -> None:
    catalog = Catalog()
    catalog.check_tags(["time", "slurm_worker", "all"])
    with pytest.raises(ColdironError, match=r"nothing has the tag `tme`; did you mean `time`\?"):
        catalog.check_tags(["tme"])


def test_the_stage_of_a_file() -> None:
    names = ("validate", "stage_base", "node_add", "mine")
    assert [stage_of(Path(f"{name}.yml")) for name in names] == ["check", "base", "add", "mine"]
