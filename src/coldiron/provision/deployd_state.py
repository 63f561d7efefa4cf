"""What the provisioner knows of deployments, on disk: orders, identities, sessions, events and records.

Everything is mode 0600 and replaced whole, so that a crash leaves the old or the new; a restart loses nothing. Tokens
and sessions are kept as hashes. Only the standard library is used: this runs on the head by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown, shown_path
from coldiron.inventory.names import check_host_name
from coldiron.provision.order import Identity, Order, parse_identity, parse_order
from coldiron.provision.token import Token, TokenStore, digest_of
from coldiron.provision.whole import replace_file, sync_directory

STEPS: Final = ("up", "redeem", "disks", "partition", "stream", "system", "identity", "boot", "done")
# What the provisioner itself tells of a node, beside the node's own steps.
OWN_STEPS: Final = ("ordered", "netboot")
# A node that reports more than this is broken, and must not fill the head's disk.
MOST_EVENTS: Final = 2000
LONGEST_TEXT: Final = 1000
_FORMAT = 1
_SESSION_BYTES = 32
_LOOK_SECONDS = 0.5


class Refused(ColdironError):
    """What a node is not given. The message is one line and quotes no secret."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.REFUSED)


@dataclass(frozen=True)
class Event:
    """One step of a node. ``at`` in seconds since the epoch by the provisioner's clock, ``seconds`` since the node's
    start by its own; ``failed`` is why it went wrong, or ""."""

    step: str
    at: float
    seconds: float | None = None
    text: str = ""
    failed: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {"step": self.step, "at": self.at, "seconds": self.seconds, "text": self.text} | (
            {"failed": self.failed} if self.failed else {}
        )


@dataclass(frozen=True)
class _Placed:
    """An order as it lies on disk. ``session`` is the hash of what a token was given for, "" before that."""

    order: Order
    placed: float
    session: str = ""
    session_ends: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "placed": self.placed,
            "session": self.session,
            "session_ends": self.session_ends,
            "order": self.order.as_dict(),
        }


class State:
    """The directory of a provisioner. Many threads and processes may use it at once.

    ``token_seconds`` is how long a token lives after its boot script was fetched, ``session_seconds`` how long the
    deployment may take from then on.
    """

    def __init__(
        self,
        directory: Path,
        *,
        token_seconds: float = 1800,
        session_seconds: float = 6 * 3600,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.directory = directory
        self._token_seconds = token_seconds
        self._session_seconds = session_seconds
        self._clock = clock
        self._tokens = TokenStore(directory / "tokens" / "tokens.json")
        try:
            for part in ("", "orders", "identities", "events", "records", "tokens"):
                (directory / part).mkdir(mode=0o700, parents=not part, exist_ok=True)
        except OSError as error:
            raise ColdironError(
                f"{shown_path(directory)} cannot be used: {error.strerror}", ExitCode.ENVIRONMENT
            ) from None

    def place(self, order: Order, identity: Identity) -> None:
        """Let ``order``'s node be deployed at its next network boot. An older order of it is forgotten."""
        if identity.hostname != order.node:
            raise ColdironError(
                f"the identity is {shown(identity.hostname)}'s, and the order {shown(order.node)}'s"
            )
        with self._locked():
            for other in self._placed():
                if other.order.mac == order.mac and other.order.node != order.node:
                    raise ColdironError(
                        f"{order.mac} has an open order as {shown(other.order.node)}; "
                        f"type: coldiron-deployd cancel {shown(other.order.node)}",
                        ExitCode.REFUSED,
                    )
            # The order goes first and comes last: with an order there is always the identity that belongs to it.
            self._remove("orders", order.node)
            self._tokens.revoke(order.node)
            self._events_file(order.node).unlink(missing_ok=True)
            self._write("identities", order.node, identity.as_dict())
            now = self._clock()
            self._append(order.node, Event("ordered", now))
            self._write("orders", order.node, _Placed(order, now).as_dict())

    def cancel(self, node: str) -> bool:
        """Forget ``node``'s order and all that was for it; False where there is none."""
        _check(node)
        with self._locked():
            was = self._remove("orders", node)
            self._remove("identities", node)
            self._tokens.revoke(node)
        return was

    def forget(self, node: str) -> bool:
        """Forget that ``node`` was ever deployed; False where there is no record. An open order stays."""
        _check(node)
        with self._locked():
            was = self._remove("records", node)
            if not self._file("orders", node).exists():
                self._events_file(node).unlink(missing_ok=True)
        return was

    def boot(self, mac: str) -> tuple[Order, Token] | None:
        """The open order for the machine with ``mac`` and a new token for it; None where it has none.

        An order is open until its token is redeemed: later boots go to the disk.
        """
        with self._locked():
            for placed in self._placed():
                if placed.order.mac == mac and not placed.session:
                    order, now = placed.order, self._clock()
                    token = self._tokens.issue(
                        order.node, order.purpose, order.consent, self._token_seconds, now
                    )
                    self._append(order.node, Event("netboot", now))
                    return order, token
        return None

    def redeem(self, node: str, token: str) -> tuple[Order, str]:
        """The order of ``node`` and the session that ``token`` opens, once. Raises ColdironError if it opens none."""
        _check(node)
        with self._locked():
            grant = self._tokens.redeem(token, node, self._clock())
            placed = self._order(node)
            if placed is None or placed.session:
                raise Refused(f"{node} has no open order; order it anew")
            if grant.purpose != placed.order.purpose or not set(placed.order.consent) <= grant.serials:
                raise Refused(f"the token of {node} was for another order")
            session = secrets.token_urlsafe(_SESSION_BYTES)
            ends = self._clock() + self._session_seconds
            opened = _Placed(placed.order, placed.placed, digest_of(session), ends)
            self._write("orders", node, opened.as_dict())
        return placed.order, session

    def identity(self, node: str, session: str) -> Identity:
        """Who ``node`` is, for the holder of its session."""
        _check(node)
        with self._locked():
            self._opened(node, session)
            return parse_identity(self._read("identities", node))

    def report(self, node: str, session: str, event: Event) -> None:
        """Keep what the holder of ``node``'s session reports."""
        _check(node)
        with self._locked():
            self._opened(node, session)
            if not self._append(node, event):
                raise Refused(f"{node} has reported {MOST_EVENTS} times; that is no deployment")

    def done(self, node: str, session: str, serials: list[str]) -> None:
        """Close ``node``'s order: it is deployed, and ``serials`` are the disks that were written.

        To say so twice is good: the first answer may have been lost.
        """
        _check(node)
        with self._locked():
            if not self._file("orders", node).exists() and self._was_session(node, session):
                return
            placed = self._opened(node, session)
            image = placed.order.image
            now = self._clock()
            record = {
                "format": _FORMAT,
                "node": node,
                "image": image.sha256,
                "class": image.node_class,
                "when": now,
                "serials": serials,
                "session": placed.session,
            }
            self._append(node, Event("done", now), most=MOST_EVENTS + 1)
            self._write("records", node, record)
            self._remove("identities", node)
            self._remove("orders", node)
            self._tokens.revoke(node)

    def record(self, node: str) -> dict[str, Any] | None:
        """What was deployed on ``node`` last: image (SHA-256), class, when (epoch), serials; None where nothing was."""
        _check(node)
        found = self._read("records", node) if self._file("records", node).exists() else None
        return {key: value for key, value in found.items() if key != "session"} if found else None

    def records(self) -> list[dict[str, Any]]:
        """All records, by node."""
        return [record for node in self._names("records") if (record := self.record(node))]

    def events(self, node: str) -> list[Event]:
        """What is known of ``node``'s last deployment, in its order. A line that was cut off by a crash is left out."""
        _check(node)
        found = []
        with contextlib.suppress(FileNotFoundError):
            for line in self._events_file(node).read_text(encoding="utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError, TypeError):
                    found.append(Event(**json.loads(line)))
        return found

    def status(self) -> list[dict[str, Any]]:
        """A line a node that has an order or events: its state, its last step, and how long ago that was."""
        known = {*self._names("orders"), *self._names("events", ".jsonl"), *self._names("records")}
        return [self._line(node) for node in sorted(known)]

    def wait(
        self, node: str, seen: int, seconds: float, sleep: Callable[[float], None] = time.sleep
    ) -> dict[str, Any] | None:
        """A node's line of ``status`` once it has more than ``seen`` events or nothing is under way there.

        After ``seconds`` it is returned as it is; None of a node that nobody knows. Looking costs next to nothing, so
        that those who wait leave the head to the machines.
        """
        _check(node)
        left = seconds
        while True:
            look = self._look(node)
            line = self._line(node) if any(look) else None
            if line is None or len(line["events"]) > seen or line["state"] not in ("open", "running"):
                return line
            while self._look(node) == look:
                if left <= 0:
                    return self._line(node)
                sleep(_LOOK_SECONDS)
                left -= _LOOK_SECONDS

    def _look(self, node: str) -> tuple[tuple[int, int] | None, ...]:
        """What tells that something of a node has changed, without reading it."""
        files = (self._file("orders", node), self._events_file(node), self._file("records", node))
        return tuple(_stamp(file) for file in files)

    def _line(self, node: str) -> dict[str, Any]:
        placed, record, events = self._order(node), self.record(node), self.events(node)
        last = events[-1] if events else None
        failed = next((event.failed for event in reversed(events) if event.failed), "")
        if placed is None:
            state = "done" if record else "cancelled"
        elif not placed.session:
            state = "open"
        else:
            state = "failed" if last and last.failed else "running"
        return {
            "node": node,
            "state": state,
            "step": last.step if last else None,
            "seconds": last.seconds if last else None,
            "text": last.text if last else "",
            "failed": failed,
            "age_seconds": round(self._clock() - last.at, 1) if last else None,
            "image": placed.order.image.sha256 if placed else record["image"] if record else None,
            "record": record,
            "events": [event.as_dict() for event in events],
        }

    def _opened(self, node: str, session: str) -> _Placed:
        placed = self._order(node)
        good = placed is not None and bool(placed.session)
        if not (
            hmac.compare_digest(placed.session if placed and good else "", digest_of(session)) and placed
        ):
            raise Refused(f"{node} has no such session")
        if not placed.placed <= self._clock() < placed.session_ends:
            raise Refused(f"the session of {node} is over; order it anew")
        return placed

    def _was_session(self, node: str, session: str) -> bool:
        if not self._file("records", node).exists():
            return False
        return hmac.compare_digest(str(self._read("records", node).get("session")), digest_of(session))

    def _placed(self) -> list[_Placed]:
        return [placed for node in self._names("orders") if (placed := self._order(node))]

    def _order(self, node: str) -> _Placed | None:
        try:
            data = self._read("orders", node)
        except FileNotFoundError:
            return None
        where = shown_path(self._file("orders", node))
        try:
            return _Placed(
                parse_order(data["order"]),
                float(data["placed"]),
                str(data["session"]),
                float(data["session_ends"]),
            )
        except (KeyError, TypeError, ValueError, ColdironError):
            raise ColdironError(f"{where} is no order; remove it", ExitCode.ENVIRONMENT) from None

    def _append(self, node: str, event: Event, most: int = MOST_EVENTS) -> bool:
        """Add a line to ``node``'s events; False, and nothing is written, where there are ``most`` already."""
        line = json.dumps(event.as_dict()) + "\n"
        descriptor = os.open(
            self._events_file(node), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600
        )
        with os.fdopen(descriptor, "r+b", buffering=0) as handle:
            written = handle.read()
            if written.count(b"\n") >= most:
                return False
            # A line that a crash cut off must not swallow this one.
            broken = bool(written) and not written.endswith(b"\n")
            handle.write(b"\n" * broken + line.encode())
            os.fsync(descriptor)
        return True

    def _names(self, part: str, suffix: str = ".json") -> list[str]:
        return sorted(path.name[: -len(suffix)] for path in (self.directory / part).glob(f"[!.]*{suffix}"))

    def _file(self, part: str, node: str) -> Path:
        return self.directory / part / f"{node}.json"

    def _events_file(self, node: str) -> Path:
        return self.directory / "events" / f"{node}.jsonl"

    def _read(self, part: str, node: str) -> dict[str, Any]:
        file = self._file(part, node)
        try:
            found = json.loads(file.read_bytes())
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ColdironError(f"{shown_path(file)} is damaged; remove it", ExitCode.ENVIRONMENT)
        return found

    def _write(self, part: str, node: str, content: dict[str, Any]) -> None:
        replace_file(self._file(part, node), json.dumps(content, indent=1) + "\n")

    def _remove(self, part: str, node: str) -> bool:
        file = self._file(part, node)
        if not file.exists():
            return False
        file.unlink()
        sync_directory(file.parent)
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One at a time, over threads and processes: the daemon and the command line share the directory."""
        descriptor = os.open(self.directory / "orders", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise ColdironError(
                f"{shown_path(self.directory)} cannot be written: {error.strerror}", ExitCode.ENVIRONMENT
            ) from None
        finally:
            os.close(descriptor)


def _stamp(file: Path) -> tuple[int, int] | None:
    """What changes when the file does; None where it is not there."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size


def _check(node: str) -> None:
    """Refuse what is no name of a node: it becomes a file's name."""
    try:
        check_host_name(node)
    except ValueError as error:
        raise ColdironError(str(error)) from None
