"""The script that ansible.cfg asks for the vault password."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / ".config" / "vault-password"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("vault_password", str(SCRIPT))
    spec = importlib.util.spec_from_loader("vault_password", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def inventory(directory: Path, password: str | None = None, *, vault: bool = False) -> Path:
    (directory / "group_vars" / "all").mkdir(parents=True)
    if password is not None:
        (directory / ".vault-password").write_text(password)
    if vault:
        (directory / "group_vars" / "all" / "vault.yml").touch()
    return directory


def called_as(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the script as ansible-playbook would: as the child of a process with these ``arguments``."""
    parent = tmp_path / "ansible-playbook"
    parent.write_text("import subprocess, sys\nsys.exit(subprocess.run([sys.argv[1]]).returncode)\n")
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "COLDIRON_"))
    }
    return subprocess.run(
        [sys.executable, str(parent), str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**kept, **environment},
    )


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["-i", "a"], ["a"]),
        (["-ia", "site.yml"], ["a"]),
        (["--inventory", "a", "-v", "--inventory=b"], ["a", "b"]),
        (["--inventory-file=a", "-i", "b,c"], ["a", "b,c"]),
        (["site.yml", "-l", "gpu01"], []),
        (["-i"], []),
        (["--", "-i", "a"], []),
    ],
)
def test_inventories_of_a_command(script: ModuleType, arguments: list[str], found: list[str]) -> None:
    assert script.inventories_of(arguments) == found


def test_directories(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = script.directories(["a", "a/cluster.yml", "host,other"], tmp_path)
    assert found == [tmp_path / "a", tmp_path / "a"]


def test_default_is_the_virtual_inventory(script: ModuleType, tmp_path: Path) -> None:
    assert script.candidates({}, ["site.yml"], tmp_path, ROOT) == [ROOT / "inventories" / "virtual"]
    configured = script.candidates({"ANSIBLE_INVENTORY": str(tmp_path)}, [], tmp_path, ROOT)
    assert configured == [tmp_path]


def test_no_process_no_arguments(script: ModuleType) -> None:
    assert script.calling_command(2**22 + 1) == ([], Path.cwd())


@pytest.mark.parametrize("arguments", [["-i", "mine"], ["-imine/cluster.yml"], ["--inventory=mine/"]])
def test_the_calling_command_s_inventory_decides(tmp_path: Path, arguments: list[str]) -> None:
    inventory(tmp_path / "mine", "my word\n")
    (tmp_path / "mine" / "cluster.yml").touch()
    done = called_as(tmp_path, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "my word\n", "")


def test_the_first_inventory_with_a_password(tmp_path: Path) -> None:
    inventory(tmp_path / "first")
    inventory(tmp_path / "second", "second word")
    assert called_as(tmp_path, "-i", "first", "-i", "second").stdout == "second word\n"


def test_the_environment_decides_over_all(tmp_path: Path) -> None:
    inventory(tmp_path / "mine", "my word")
    (tmp_path / "file").write_text("the file's word\nsecond line\n")
    done = called_as(tmp_path, "-i", "mine", COLDIRON_VAULT_PASSWORD_FILE=str(tmp_path / "file"))
    assert done.stdout == "the file's word\n"
    missing = called_as(tmp_path, COLDIRON_VAULT_PASSWORD_FILE=str(tmp_path / "none"))
    assert missing.returncode == 1
    assert "none: the vault password cannot be read" in missing.stderr


def test_without_a_password_what_needs_none_still_runs(tmp_path: Path, script: ModuleType) -> None:
    inventory(tmp_path / "plain")
    done = called_as(tmp_path, "-i", "plain")
    assert (done.returncode, done.stdout, done.stderr) == (0, script.PLACEHOLDER + "\n", "")


def test_without_a_password_a_vault_file_brings_a_hint(tmp_path: Path, script: ModuleType) -> None:
    inventory(tmp_path / "locked", vault=True)
    done = called_as(tmp_path, "-i", "locked")
    assert (done.returncode, done.stdout) == (0, script.PLACEHOLDER + "\n")
    assert "locked/group_vars/all/vault.yml needs the password" in done.stderr


def test_an_empty_password_is_told_of(tmp_path: Path) -> None:
    inventory(tmp_path / "mine", "\n")
    done = called_as(tmp_path, "-i", "mine")
    assert done.returncode == 1
    assert ".vault-password: there is no vault password on its first line" in done.stderr
