"""The vault file: encrypted, private, whole, and never changed where it is not asked to be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from coldiron.errors import ColdironError, ExitCode
from coldiron.secrets import SECRETS
from coldiron.secrets.store import Store

KEYS = [secret.key for secret in SECRETS]
Editor = Callable[[str], None]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, b"the vault's password")


@pytest.fixture
def editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Editor:
    """Makes $EDITOR a program that runs this Python over the text ``text``."""
    script = tmp_path / "editor.py"

    def _editor(code: str) -> None:
        script.write_text(
            "import sys\nfrom pathlib import Path\nfile = Path(sys.argv[1])\ntext = file.read_text()\n"
            f"{code}\nfile.write_text(text)\n"
        )
        monkeypatch.setattr(
            "ansible.constants.config.get_config_value", _value_of(f"{sys.executable} {script}")
        )

    return _editor


def _value_of(command: str) -> Callable[..., object]:
    from ansible import constants

    before = constants.config.get_config_value
    return lambda name, *args, **kwargs: command if name == "EDITOR" else before(name, *args, **kwargs)


def never(faults: list[str]) -> bool:
    return False


def test_made_once(store: Store) -> None:
    assert store.values() == {}
    assert store.add_missing() == KEYS
    first = store.file.read_bytes()
    assert first.startswith(b"$ANSIBLE_VAULT;1.1;AES256\n")
    assert store.file.stat().st_mode & 0o777 == 0o600
    assert list(store.values()) == KEYS
    assert store.add_missing() == []
    assert store.file.read_bytes() == first
    assert [one.name for one in store.file.parent.iterdir()] == ["vault.yml"]


def test_ansible_vault_reads_it(store: Store, tmp_path: Path) -> None:
    store.add_missing()
    password = tmp_path / "password"
    password.write_text("the vault's password\n")
    command = [
        str(Path(sys.executable).parent / "ansible-vault"),
        "view",
        "--vault-password-file",
        str(password),
    ]
    done = subprocess.run([*command, str(store.file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout) == store.values()


def test_only_what_is_missing_is_added(store: Store) -> None:
    store.file.parent.mkdir(parents=True)
    before = (
        '---\n# ours, keep!\nmunge_key: "' + "QUJD" * 20 + '"\ngrafana_password:   gh78-Kq  # odd spacing'
    )
    store._write(before)
    assert store.add_missing() == KEYS[1:]
    text = store.read()
    assert text.startswith(before + "\n")
    assert store.values()["grafana_password"] == "gh78-Kq"


def test_a_loose_mode_is_tightened(store: Store) -> None:
    store.add_missing()
    store.file.chmod(0o644)
    store.add_missing()
    assert store.file.stat().st_mode & 0o777 == 0o600


def test_nobody_else_can_read_it_while_it_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    replace = os.replace

    def look(source: str, target: Path) -> None:
        modes.append(os.stat(source).st_mode & 0o777)
        replace(source, target)

    monkeypatch.setattr(os, "replace", look)
    old = os.umask(0)
    try:
        store.add_missing()
    finally:
        os.umask(old)
    assert modes == [0o600]


def test_a_write_cut_off_leaves_the_old_file_and_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.file.parent.mkdir(parents=True)
    store._write("site_token: gh78-Kq\n")
    before = store.file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        store.add_missing()
    assert store.file.read_bytes() == before
    assert [one.name for one in store.file.parent.iterdir()] == ["vault.yml"]


def test_placeholders_are_refused_and_nothing_is_changed(store: Store) -> None:
    store.file.parent.mkdir(parents=True)
    store._write("mariadb_root_password: changeme\n")
    before = store.file.read_bytes()
    with pytest.raises(ColdironError, match="`mariadb_root_password` is a placeholder") as caught:
        store.add_missing()
    assert caught.value.exit_code == ExitCode.REFUSED
    assert store.file.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- sesame-open\n", "is not a mapping"),
        ("a: 1\nb: sesame: open\n", "vault.yml, line 2: this is not YAML"),
        ("a: sesame\x00open\n", "vault.yml: this is not YAML"),
    ],
)
def test_odd_contents_are_never_quoted(store: Store, text: str, says: str) -> None:
    store.file.parent.mkdir(parents=True)
    store._write(text)
    with pytest.raises(ColdironError) as caught:
        store.add_missing()
    assert says in caught.value.message
    assert "sesame" not in caught.value.message


def test_what_cannot_be_opened(store: Store, tmp_path: Path) -> None:
    store.add_missing()
    with pytest.raises(ColdironError, match="does not open with this vault password"):
        Store(tmp_path, b"another password").add_missing()
    store._write("x")
    data = store.file.read_bytes()
    store.file.write_text("munge_key: plain\n")
    with pytest.raises(ColdironError, match="is not encrypted; type: ansible-vault encrypt"):
        store.values()
    store.file.write_bytes(data[: len(data) // 2])
    with pytest.raises(ColdironError, match="does not open"):
        store.values()
    store.file.unlink()
    store.file.mkdir()
    with pytest.raises(ColdironError, match="cannot be read: Is a directory"):
        store.values()


def test_edit(store: Store, editor: Editor) -> None:
    store.add_missing()
    before = store.values()
    editor("text += 'site_token: gh78-Kq\\n'")
    assert store.edit(never) is True
    assert store.values() == {**before, "site_token": "gh78-Kq"}
    assert store.file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in store.file.parent.iterdir()] == ["vault.yml"]
    editor("")
    assert store.edit(never) is False


def test_an_unsound_edit_is_not_kept(store: Store, editor: Editor) -> None:
    store.add_missing()
    before = store.file.read_bytes()
    editor("text = 'munge_key: changeme\\n'")
    with pytest.raises(ColdironError, match="was left as it is:\n`munge_key` is a placeholder"):
        store.edit(never)
    editor("text = 'munge_key: : sesame\\n'")
    with pytest.raises(ColdironError, match="the edited text, line 1: this is not YAML") as caught:
        store.edit(never)
    assert "sesame" not in caught.value.message
    assert store.file.read_bytes() == before
    assert [one.name for one in store.file.parent.iterdir()] == ["vault.yml"]


def test_an_unsound_edit_can_be_mended(store: Store, editor: Editor) -> None:
    store.add_missing()
    editor(
        "text = text.replace('changeme', 'gh78-Kq') if 'site_token' in text else text + 'site_token: changeme'"
    )
    asked: list[list[str]] = []

    def again(faults: list[str]) -> bool:
        asked.append(faults)
        return True

    assert store.edit(again) is True
    assert len(asked) == 1
    assert store.values()["site_token"] == "gh78-Kq"


def test_editing_needs_a_file_and_an_editor(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ColdironError, match="does not exist; type: coldiron secrets init"):
        store.edit(never)
    store.add_missing()
    before = store.file.read_bytes()
    monkeypatch.setattr("ansible.constants.config.get_config_value", _value_of("/nonexistent/editor"))
    with pytest.raises(ColdironError, match="the editor failed"):
        store.edit(never)
    assert store.file.read_bytes() == before
