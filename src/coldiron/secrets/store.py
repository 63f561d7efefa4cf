"""The vault file beside an inventory: read, added to, edited; always encrypted, private and whole."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from ansible.errors import AnsibleError
from ansible.parsing.vault import VaultEditor, VaultLib, VaultSecret

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.secrets.table import SECRETS, VAULT_FILE, check, make_missing

__all__ = ["VAULT_FILE", "Store"]

_MODE = 0o600
_VAULT_ID = "default"
_HEADER = """\
---
# The cluster's secrets, as role variables. `coldiron secrets init` adds what is missing and changes nothing;
# `coldiron secrets edit` opens this file.
"""


class Store:
    """The vault file of the inventory in ``directory``, or another ``file`` of it, opened with ``password``."""

    def __init__(self, directory: Path, password: bytes, file: Path | None = None) -> None:
        self.file = file or directory / VAULT_FILE
        self._secret = VaultSecret(password)
        self._vault = VaultLib([(_VAULT_ID, self._secret)])

    def read(self) -> str:
        """The file's text, decrypted; empty when there is no file. Raises ColdironError."""
        return self._decrypt(self.file) if self.file.exists() else ""

    def values(self) -> dict[str, object]:
        """The secrets by variable. Raises ColdironError where the file is not a mapping."""
        return _values(self.read(), shown_path(self.file))

    def add_missing(self) -> list[str]:
        """Make every secret that the file does not have; returns their keys.

        What is there stays as it is, letter by letter. Raises ColdironError, and changes nothing, when the
        file cannot be opened or holds a placeholder.
        """
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.file.parent):
            text = self.read()
            present = _values(text, shown_path(self.file))
            self._refuse(check(present))
            made = make_missing(present)
            if made:
                # JSON's text is YAML's too, and keeps a key of many lines on one.
                added = "".join(
                    f"# {secret.purpose}\n{secret.key}: {json.dumps(made[secret.key])}\n"
                    for secret in SECRETS
                    if secret.key in made
                )
                self._write((text.rstrip("\n") + "\n" if text.strip() else _HEADER) + added)
            elif self.file.stat().st_mode & 0o777 != _MODE:
                self.file.chmod(_MODE)
        return list(made)

    def edit(self, again: Callable[[list[str]], bool]) -> bool:
        """Open the file in the user's editor; returns whether it changed.

        The editor gets a copy, and the file is replaced only by a sound one: while there are faults,
        ``again(faults)`` says whether to go on editing. Raises ColdironError when the user gives up.
        """
        if not self.file.exists():
            raise ColdironError(f"{shown_path(self.file)} does not exist; type: coldiron secrets init")
        with _locked(self.file.parent):
            before = self.read()
            with tempfile.TemporaryDirectory(dir=self.file.parent, prefix=".vault-") as scratch:
                copy = Path(scratch) / self.file.name
                copy.write_bytes(self.file.read_bytes())
                copy.chmod(_MODE)
                while True:
                    try:
                        VaultEditor(self._vault).edit_file(str(copy))
                    except AnsibleError as error:
                        raise ColdironError(
                            f"the editor failed: {error.message}", ExitCode.ENVIRONMENT
                        ) from None
                    text = self._decrypt(copy)
                    faults = self._faults(text)
                    if not faults:
                        break
                    if not again(faults):
                        self._refuse(faults)
                if text == before:
                    return False
                copy.chmod(_MODE)
                os.replace(copy, self.file)
        return True

    def _faults(self, text: str) -> list[str]:
        try:
            return check(_values(text, "the edited text"))
        except ColdironError as error:
            return [error.message]

    def _refuse(self, faults: list[str]) -> None:
        if faults:
            raise ColdironError(
                f"{shown_path(self.file)} was left as it is:\n" + "\n".join(faults), ExitCode.REFUSED
            )

    def _decrypt(self, file: Path) -> str:
        where = shown_path(file)
        try:
            data = file.read_bytes()
        except OSError as error:
            raise ColdironError(f"{where} cannot be read: {error.strerror}", ExitCode.ENVIRONMENT) from None
        if not VaultLib.is_encrypted(data):
            raise ColdironError(f"{where} is not encrypted; type: ansible-vault encrypt {where}")
        try:
            return bytes(self._vault.decrypt(data)).decode("utf-8")
        except UnicodeDecodeError:
            raise ColdironError(f"{where} holds text that is not UTF-8") from None
        except AnsibleError:
            raise ColdironError(
                f"{where} does not open with this vault password; name the right one's file with "
                "--vault-password-file",
                ExitCode.ENVIRONMENT,
            ) from None

    def _write(self, text: str) -> None:
        """Replace the file by ``text``, encrypted: whole or not at all, and never readable by others."""
        data = self._vault.encrypt(text, self._secret)
        # mkstemp's mode is 0600 from the first moment.
        descriptor, name = tempfile.mkstemp(dir=self.file.parent, prefix=".vault-")
        try:
            with os.fdopen(descriptor, "wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            os.replace(name, self.file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _values(text: str, where: str) -> dict[str, object]:
    """The mapping in ``text``. The messages never quote it: it is full of secrets."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ColdironError(f"{where}{line}: this is not YAML; type: coldiron secrets edit") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ColdironError(f"{where} is not a mapping; write `variable: secret` lines")
    return {str(key): value for key, value in data.items()}


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One at a time: the lock is on the directory itself, so nothing is left behind."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
