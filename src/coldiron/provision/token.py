"""Deploy tokens: for one node and one purpose, once, for a while. The server keeps their hashes only.

A token is 256 random bits, so a plain SHA-256 of it cannot be searched. That a token is used is on the disk before
the caller hears that it was good: whoever is killed in between has lost a token, never doubled one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown, shown_path
from coldiron.inventory.names import check_host_name
from coldiron.provision.whole import replace_file

PURPOSES: Final = ("deploy", "wipe")
LONGEST_TTL_SECONDS: Final = 24 * 3600
# So long after its end a used token is still called used; later it is only unknown.
_KEPT_SECONDS = 30 * 24 * 3600
# And no more of them a node: whoever can ask for tokens must not make the file grow.
_KEPT_SPENT = 32
_BYTES = 32
_LONGEST_TEXT = 128
_VERSION = 1
_MODE = 0o600


class Token:
    """A token as it is handed to a node once. Nothing but ``reveal`` shows it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The token itself, for the one channel that carries it to the node."""
        return self._text

    def __repr__(self) -> str:
        return "Token(…)"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a token is not stored")


@dataclass(frozen=True)
class Grant:
    """What a token allowed: ``serials`` are the disks whose content may be lost."""

    node: str
    purpose: str
    serials: frozenset[str]


class TokenRefused(ColdironError):
    """A token that opens nothing. The message never quotes it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.REFUSED)


class TokenWrong(TokenRefused):
    """It was never issued here, or so long ago that it is forgotten."""


class TokenForeign(TokenRefused):
    """It was issued for another node."""


class TokenUsed(TokenRefused):
    """It was redeemed, or replaced by a newer one."""


class TokenExpired(TokenRefused):
    """Its time is over, or the clock is before its issue."""


@dataclass(frozen=True)
class _Entry:
    """One issued token. Times in seconds since the epoch; ``spent`` is "", "used" or "replaced"."""

    digest: str
    node: str
    purpose: str
    serials: tuple[str, ...]
    issued: float
    expires: float
    spent: str = ""


class TokenStore:
    """The issued tokens in ``file``: mode 0600, replaced whole, one process at a time."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def issue(
        self, node: str, purpose: str, serials: Collection[str], ttl_seconds: float, now: float
    ) -> Token:
        """A new token for ``node``; an older one for the same purpose is good no longer.

        Raises ColdironError where an argument makes no sense or the store cannot be read or written.
        """
        _check(node, purpose, serials, ttl_seconds)
        text = secrets.token_urlsafe(_BYTES)
        entry = _Entry(digest_of(text), node, purpose, tuple(sorted(set(serials))), now, now + ttl_seconds)
        with self._locked():
            kept = [
                replace(old, spent="replaced") if _same(old, entry) and not old.spent else old
                for old in self._read()
                if now < old.expires + _KEPT_SECONDS
            ]
            spent = [old for old in kept if old.node == node and old.spent][:-_KEPT_SPENT]
            self._write([*(old for old in kept if old not in spent), entry])
        return Token(text)

    def revoke(self, node: str) -> None:
        """No token that ``node`` was given is good any longer. Raises ColdironError as ``redeem`` does."""
        with self._locked():
            entries = self._read()
            revoked = [
                replace(entry, spent="replaced") if entry.node == node and not entry.spent else entry
                for entry in entries
            ]
            if revoked != entries:
                self._write(revoked)

    def redeem(self, token: str, node: str, now: float) -> Grant:
        """What ``token`` allows ``node``, exactly once.

        Raises TokenWrong, TokenForeign, TokenUsed, TokenExpired, in this order; ColdironError where the store cannot be
        read or written, and then the token is as good as it was.
        """
        with self._locked():
            entries = self._read()
            number = _find(entries, token)
            if number is None:
                raise TokenWrong(f"the token that {shown(node)} shows is not one that was issued")
            entry = entries[number]
            _check_good(entry, node, now)
            entries[number] = replace(entry, spent="used")
            self._write(entries)
        return Grant(entry.node, entry.purpose, frozenset(entry.serials))

    def _read(self) -> list[_Entry]:
        where = shown_path(self.file)
        try:
            descriptor = os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ColdironError(f"{where} cannot be read: {error.strerror}", ExitCode.ENVIRONMENT) from None
        with os.fdopen(descriptor, "rb") as handle:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode) or mode & 0o077:
                raise ColdironError(
                    f"{where} must be a plain file of mode 0600; look who changed it, then: chmod 600 {where}",
                    ExitCode.ENVIRONMENT,
                )
            data = handle.read()
        try:
            return _parsed(data)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            # To begin anew would make used tokens unknown ones; a person decides that.
            raise ColdironError(
                f"{where} is no store of tokens; move it away to begin a new one", ExitCode.ENVIRONMENT
            ) from None

    def _write(self, entries: list[_Entry]) -> None:
        text = json.dumps({"version": _VERSION, "tokens": [asdict(entry) for entry in entries]}, indent=1)
        try:
            replace_file(self.file, text + "\n", _MODE)
        except OSError as error:
            raise ColdironError(
                f"{shown_path(self.file)} cannot be written: {error.strerror}", ExitCode.ENVIRONMENT
            ) from None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One at a time: the lock is on the directory, for the file itself is replaced."""
        try:
            descriptor = os.open(self.file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ColdironError(
                f"{shown_path(self.file.parent)} cannot be opened: {error.strerror}", ExitCode.ENVIRONMENT
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _check(node: str, purpose: str, serials: Collection[str], ttl_seconds: float) -> None:
    try:
        check_host_name(node)
    except ValueError as error:
        raise ColdironError(f"no token for {shown(node)}: {error}") from None
    if purpose not in PURPOSES:
        raise ColdironError(f"a token is for one of {', '.join(PURPOSES)}, not for {shown(purpose)}")
    if not all(serial and serial.isprintable() for serial in serials):
        raise ColdironError("a token names disks by serial; one of those given is empty or unprintable")
    if not 0 < ttl_seconds <= LONGEST_TTL_SECONDS:
        raise ColdironError(f"a token lives up to {LONGEST_TTL_SECONDS // 3600} hours, not {ttl_seconds:g} s")


def _check_good(entry: _Entry, node: str, now: float) -> None:
    if entry.node != node:
        raise TokenForeign(f"the token that {shown(node)} shows was issued for another node")
    if entry.spent:
        raise TokenUsed(f"the token of {shown(node)} was {entry.spent} before; issue a new one")
    # NaN compares false with everything: only a time within is good.
    if not entry.issued <= now < entry.expires:
        when = "before its issue by the clock of this machine" if now < entry.issued else "expired"
        raise TokenExpired(f"the token of {shown(node)} is {when}; issue a new one")


def digest_of(text: str) -> str:
    """What is kept of a token or a session: nobody can make it again from that."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _find(entries: list[_Entry], token: str) -> int | None:
    """The number of the token's entry. All are compared, each in constant time."""
    digest = digest_of(token[:_LONGEST_TEXT])
    found = None
    for number, entry in enumerate(entries):
        if hmac.compare_digest(entry.digest, digest):
            found = number
    return found


def _same(one: _Entry, other: _Entry) -> bool:
    return (one.node, one.purpose) == (other.node, other.purpose)


def _parsed(data: bytes) -> list[_Entry]:
    tree = json.loads(data)
    if tree["version"] != _VERSION:
        raise ValueError("another version")
    entries = []
    for fields in tree["tokens"]:
        entry = _Entry(**{**fields, "serials": tuple(fields["serials"])})
        words = (entry.digest, entry.node, entry.purpose, entry.spent, *entry.serials)
        if not all(isinstance(word, str) for word in words) or not entry.digest.isascii():
            raise TypeError("no text")
        entries.append(replace(entry, issued=float(entry.issued), expires=float(entry.expires)))
    return entries
