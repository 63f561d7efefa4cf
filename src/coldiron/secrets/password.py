"""Where the vault password comes from."""

from __future__ import annotations

import getpass
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path

PASSWORD_FILE = ".vault-password"
_ENVIRONMENT = ("COLDIRON_VAULT_PASSWORD_FILE", "ANSIBLE_VAULT_PASSWORD_FILE")


def find_password(
    directory: Path, given: Path | None, environment: Mapping[str, str], *, may_generate: bool, new: bool
) -> bytes:
    """The vault password of the inventory in ``directory``.

    In this order: the file ``given``, the file that the environment names, ``.vault-password`` beside the
    inventory, a new such file where it ``may_generate`` one, and the person at the terminal. ``new``: there
    is no vault file yet, so a password may be chosen. Raises ColdironError when none of these has one.
    """
    if given is not None:
        return from_file(given)
    for name in _ENVIRONMENT:
        if environment.get(name):
            return from_file(Path(environment[name]))
    own = directory / PASSWORD_FILE
    if own.exists():
        return from_file(own, private=True)
    if may_generate and new:
        return generate(own)
    if sys.stdin.isatty():
        return ask(confirm=new)
    if not new:
        raise ColdironError(
            f"{shown_path(own)} is missing, and the vault file cannot be opened without its password; "
            "put it there, or name its file with --vault-password-file",
            ExitCode.ENVIRONMENT,
        )
    raise ColdironError(
        f"{shown_path(directory)} has no vault password; name its file with --vault-password-file, or have "
        f"one made in {PASSWORD_FILE} with --generate-password"
    )


def from_file(file: Path, *, private: bool = False) -> bytes:
    """The password in ``file``, or what it prints if it is a program, as Ansible takes it.

    ``private`` refuses a file that others can read. Raises ColdironError.
    """
    where = shown_path(file)
    try:
        mode = file.stat().st_mode & 0o777
        if private and mode & 0o077:
            raise ColdironError(f"{where} can be read by others (mode {mode:04o}); type: chmod 600 {where}")
        if mode & 0o111 and file.is_file():
            done = subprocess.run([os.path.abspath(file)], stdout=subprocess.PIPE, timeout=60)
            if done.returncode:
                raise ColdironError(f"{where} is a program and failed with exit code {done.returncode}")
            password = done.stdout.strip()
        else:
            password = file.read_bytes().strip()
    except OSError as error:
        raise ColdironError(
            f"{where}: the vault password cannot be read: {error.strerror or error}", ExitCode.ENVIRONMENT
        ) from None
    except subprocess.TimeoutExpired:
        raise ColdironError(f"{where} is a program and gave no password in 60 s") from None
    if not password:
        raise ColdironError(f"{where} holds no vault password; write it on the first line")
    return password


def generate(file: Path) -> bytes:
    """A new random password, kept in ``file`` with mode 0600; the one already there if someone was first."""
    password = secrets.token_urlsafe(32)
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as handle:
            handle.write(password + "\n")
            handle.flush()
            os.fsync(handle.fileno())
        # A link refuses to replace: two runs at once end with one password.
        os.link(temporary, file)
    except FileExistsError:
        return from_file(file, private=True)
    finally:
        temporary.unlink()
    return password.encode()


def ask(*, confirm: bool) -> bytes:
    """Ask the person at the terminal, twice if ``confirm``. Raises ColdironError when the answers differ."""
    try:
        password = getpass.getpass("Vault password: ").strip()
        if confirm and password != getpass.getpass("The same again: ").strip():
            raise ColdironError("the two passwords differ; nothing was changed")
    except EOFError:
        raise ColdironError("no vault password was typed; nothing was changed") from None
    if not password:
        raise ColdironError("the vault password is empty; nothing was changed")
    return password.encode()
