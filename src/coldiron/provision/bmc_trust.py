"""The certificate of a BMC: verified by the site's CA, or learnt once, by name, and held to from then on.

A learnt certificate is the only one that this BMC may show; its names, dates and signer count for nothing then, since
BMCs leave the factory with one that names nobody. It is public, and lies beside the site's other variables.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown, shown_path
from coldiron.provision.bmc_output import write_file
from coldiron.provision.bmc_redfish import Call, Redfish
from coldiron.provision.bmc_relay import relay
from coldiron.provision.bmc_trouble import Where, trouble

VARIABLE: Final = "bmc_known"
_HEAD: Final = (
    "# Certificates of BMCs, learnt by name (ansible-playbook coldiron.cluster.bmc -e bmc_task=trust). Public.\n"
    "# A node whose BMC shows another one is refused; take its lines out to learn the new one.\n"
)


@dataclass(frozen=True)
class Shown:
    """The certificate that a BMC shows: PEM, and its fingerprint as OpenSSL's ``SHA256:`` with capitals."""

    pem: str
    fingerprint: str


def fingerprint(der: bytes) -> str:
    """The fingerprint of a certificate, as people compare it."""
    return f"SHA256:{hashlib.sha256(der).hexdigest().upper()}"


def fetch(where: Where, port: int, timeout: float) -> Shown:
    """The certificate that the BMC shows now, believed by nobody. Raises Trouble."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((where.address, port or 443), timeout) as plain,
            context.wrap_socket(plain, server_hostname=where.address) as wrapped,
        ):
            der = wrapped.getpeercert(binary_form=True) or b""
    except OSError as error:
        raise trouble(where, str(error)) from None
    return Shown(ssl.DER_cert_to_PEM_cert(der), fingerprint(der))


@contextlib.contextmanager
def reached(
    given: Mapping[str, Any],
    where: Where,
    call: Call,
    around: Callable[[dict[str, str]], AbstractContextManager[None]],
) -> Iterator[Redfish]:
    """The BMC behind Redfish, its certificate verified in one of both ways."""
    timeout, port = given["timeout_seconds"], given["port"]
    learnt = given["known"].get(where.node)
    if learnt is None:
        no_proxy = {"no_proxy": "*", "NO_PROXY": "*"}
        with around(no_proxy):
            yield Redfish(call, where, given["password"], port=port, timeout=timeout)
        return
    now = fetch(where, port, timeout)
    wanted = str(learnt.get("fingerprint")) if isinstance(learnt, Mapping) else ""
    if now.fingerprint != wanted:
        raise _changed(where, wanted, now)
    with (
        relay(where.address, port or 443, now.fingerprint, timeout) as way,
        around({"https_proxy": way.proxy, "HTTPS_PROXY": way.proxy, "no_proxy": "", "NO_PROXY": ""}),
    ):
        yield Redfish(call, where, given["password"], port=port, timeout=timeout, ca=way.ca)


def learn(given: Mapping[str, Any], where: Where, now: Shown, check: bool) -> bool:
    """Write down the certificate that the BMC shows, once its fingerprint was given; whether that is new.

    Raises ColdironError (REFUSED) with what to compare and to type, and for a BMC whose certificate is known and is
    another one.
    """
    learnt = given["known"].get(where.node)
    if isinstance(learnt, Mapping):
        if learnt.get("fingerprint") == now.fingerprint:
            return False
        raise _changed(where, str(learnt.get("fingerprint")), now)
    if not given["fingerprint"]:
        raise ColdironError(
            where.told(
                f"it shows the certificate {now.fingerprint}; compare that with the BMC's own console, then learn it: "
                f"ansible-playbook coldiron.cluster.bmc -e bmc_task=trust --limit {where.node} "
                f"-e bmc_fingerprint={now.fingerprint}"
            ),
            ExitCode.REFUSED,
        )
    if _plain(given["fingerprint"]) != _plain(now.fingerprint):
        raise ColdironError(
            where.told(
                f"it shows {now.fingerprint}, and not {shown(given['fingerprint'])}, which was typed; nothing is learnt"
            ),
            ExitCode.REFUSED,
        )
    if not given["known_file"]:
        raise ColdironError(where.told("there is no file to keep it in; name one in `bmc_known_file`"))
    if not check:
        _keep(Path(given["known_file"]), where, now)
    return True


def _keep(file: Path, where: Where, now: Shown) -> None:
    entry = {"address": where.address, "fingerprint": now.fingerprint, "certificate": now.pem}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Nodes are worked on side by side, and all of them are in one file.
        with open(file.parent / f".{file.name}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            data = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {}
            known = dict((data or {}).get(VARIABLE) or {})
            known[where.node] = entry
            write_file(file, _HEAD + yaml.safe_dump({VARIABLE: dict(sorted(known.items()))}, sort_keys=False))
    except (OSError, yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no mapping of nodes"
        raise ColdironError(
            where.told(f"{shown_path(file)} cannot be written: {why}"), ExitCode.ENVIRONMENT
        ) from None


def _plain(text: str) -> str:
    """A fingerprint without what people and programs write around it."""
    return text.upper().removeprefix("SHA256").removeprefix(" FINGERPRINT").lstrip(":=").replace(":", "")


def _changed(where: Where, wanted: str, now: Shown) -> ColdironError:
    return ColdironError(
        where.told(
            f"its certificate has changed: it shows {now.fingerprint}, and {_learnt(wanted)} was learnt; nothing "
            f"was sent. If the BMC was exchanged or renewed, take {where.node} out of `{VARIABLE}` and learn it again"
        ),
        ExitCode.REFUSED,
    )


def _learnt(wanted: str) -> str:
    """The fingerprint that was learnt, whole: it is to be compared."""
    return wanted if wanted.isprintable() and len(wanted) < 100 else "another"
