"""``coldiron secrets`` from the outside: what it says, what it leaves, and what it never shows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coldiron.errors import ColdironError
from coldiron.secrets.cli import app, inventory_directory, is_virtual
from coldiron.secrets.store import Store

VIRTUAL = Path(__file__).parents[3] / "inventories" / "virtual" / "cluster.yml"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLDIRON_VAULT_PASSWORD_FILE", raising=False)
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)


@pytest.fixture
def virtual(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yml").write_text(VIRTUAL.read_text())
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments], catch_exceptions=True)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_init_twice(virtual: Path) -> None:
    first = run("init", "-i", str(virtual))
    assert f"{virtual}/.vault-password: made a vault password" in first
    assert "vault.yml: made munge_key, mariadb_root_password, " in first
    assert (
        run("init", "-i", str(virtual / "cluster.yml"))
        == f"{virtual}/group_vars/all/vault.yml: nothing is missing\n"
    )


def test_no_secret_is_ever_shown(virtual: Path) -> None:
    output = run("init", "-i", str(virtual)) + run("init", "-i", str(virtual))
    password = (virtual / ".vault-password").read_text().strip()
    for value in [password, *Store(virtual, password.encode()).values().values()]:
        assert str(value) not in output


def test_metal_is_asked_for_a_password(virtual: Path) -> None:
    file = virtual / "cluster.yml"
    file.write_text(file.read_text().replace("platform: container", "platform: metal"))
    with pytest.raises(ColdironError, match="--generate-password"):
        run("init", "-i", str(virtual))
    assert not (virtual / "group_vars").exists()
    assert "made a vault password" in run("init", "-i", str(virtual), "--generate-password")


def test_a_password_file_that_is_named(virtual: Path) -> None:
    file = virtual / "mine"
    file.write_text("my own word\n")
    assert "made a vault password" not in run("init", "-i", str(virtual), "--vault-password-file", str(file))
    assert Store(virtual, b"my own word").values()
    assert not (virtual / ".vault-password").exists()


def test_edit(virtual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init", "-i", str(virtual))
    monkeypatch.setenv("EDITOR", "true")
    assert "nothing changed" in run("edit", "-i", str(virtual))
    monkeypatch.setenv("EDITOR", "sed -i s/slurmd/SLURMD/")
    assert "saved" in run("edit", "-i", str(virtual))
    monkeypatch.setenv("EDITOR", "sed -i s/munge_key:.*/munge_key:/")
    with pytest.raises(ColdironError, match="`munge_key` is empty"):
        run("edit", "-i", str(virtual))


def test_a_hand_written_inventory_has_secrets_too(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("all: {}\n")
    assert "vault.yml: made" in run("init", "-i", str(hosts), "--generate-password")
    assert not is_virtual(tmp_path)


def test_an_inventory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ColdironError, match="does not exist"):
        inventory_directory(tmp_path / "none")


@pytest.mark.parametrize("ignored", [True, False])
def test_a_password_that_git_would_take_is_told_of(virtual: Path, ignored: bool) -> None:
    subprocess.run(["git", "init", "-q", str(virtual)], check=True, timeout=60)
    if ignored:
        (virtual / ".gitignore").write_text(".vault-password\n")
    output = run("init", "-i", str(virtual))
    assert ("git would take" in output) is not ignored


def test_without_git_it_works_as_well(virtual: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "vault.yml: made" in run("init", "-i", str(virtual))
