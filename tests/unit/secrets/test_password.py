"""Where the vault password comes from, and in which order."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path

import pytest

from coldiron.errors import ColdironError
from coldiron.secrets.password import ask, find_password, from_file, generate


def find(
    directory: Path, given: Path | None = None, *, generate: bool = False, new: bool = True, **env: str
) -> bytes:
    return find_password(directory, given, env, may_generate=generate, new=new)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("given", "coldiron", "ansible", ".vault-password"):
        file = tmp_path / name
        file.write_text(f"  {name} word \n")
        file.chmod(0o600)
    return tmp_path


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A person at the terminal, who types these words."""
    words: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(getpass, "getpass", lambda _prompt: words.pop(0))
    return words


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)


def test_order(files: Path) -> None:
    env = {
        "COLDIRON_VAULT_PASSWORD_FILE": str(files / "coldiron"),
        "ANSIBLE_VAULT_PASSWORD_FILE": str(files / "ansible"),
    }
    assert find(files, files / "given", **env) == b"given word"
    assert find(files, **env) == b"coldiron word"
    env["COLDIRON_VAULT_PASSWORD_FILE"] = ""
    assert find(files, **env) == b"ansible word"
    assert find(files) == b".vault-password word"


@pytest.mark.usefixtures("nobody")
def test_generated_only_when_allowed_and_new(tmp_path: Path) -> None:
    own = tmp_path / ".vault-password"
    with pytest.raises(ColdironError, match=r"has no vault password; .*--generate-password"):
        find(tmp_path)
    with pytest.raises(
        ColdironError, match=r"\.vault-password is missing, and the vault file cannot be opened"
    ):
        find(tmp_path, generate=True, new=False)
    assert not own.exists()
    password = find(tmp_path, generate=True)
    assert len(password) >= 40
    assert own.stat().st_mode & 0o777 == 0o600
    assert find(tmp_path) == password
    assert list(tmp_path.iterdir()) == [own]


def test_two_at_once_end_with_one_password(tmp_path: Path) -> None:
    own = tmp_path / ".vault-password"
    own.write_text("first\n")
    own.chmod(0o600)
    assert generate(own) == b"first"
    assert list(tmp_path.iterdir()) == [own]


def test_asked(tmp_path: Path, terminal: list[str]) -> None:
    terminal += ["word", "word"]
    assert find(tmp_path) == b"word"
    terminal += ["word"]
    assert find(tmp_path, new=False) == b"word"
    terminal += ["word", "other"]
    with pytest.raises(ColdironError, match="differ; nothing was changed"):
        find(tmp_path)
    terminal += ["", ""]
    with pytest.raises(ColdironError, match="is empty"):
        ask(confirm=True)
    assert list(tmp_path.iterdir()) == []


def test_nothing_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(_prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr(getpass, "getpass", nothing)
    with pytest.raises(ColdironError, match="no vault password was typed"):
        ask(confirm=False)


def test_a_file_that_others_can_read_is_refused(files: Path) -> None:
    (files / ".vault-password").chmod(0o644)
    with pytest.raises(ColdironError, match=r"mode 0644\); type: chmod 600 "):
        find(files)
    # A file that the user names is the user's own business.
    (files / "given").chmod(0o644)
    assert find(files, files / "given") == b"given word"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program"
    file.write_text("#!/bin/sh\necho from a program\n")
    file.chmod(0o700)
    return file


def test_a_program_is_run(program: Path) -> None:
    assert from_file(program) == b"from a program"
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(ColdironError, match="is a program and failed with exit code 3"):
        from_file(program)
    program.write_text("not a program\n")
    with pytest.raises(ColdironError, match="cannot be read"):
        from_file(program)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ColdironError, match="cannot be read: No such file"):
        from_file(tmp_path / "none")
    with pytest.raises(ColdironError, match="cannot be read: Is a directory"):
        from_file(tmp_path)
    empty = tmp_path / "empty"
    os.close(os.open(empty, os.O_CREAT, 0o600))
    with pytest.raises(ColdironError, match="holds no vault password"):
        from_file(empty)
