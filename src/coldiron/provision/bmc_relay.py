"""A way to a BMC whose certificate was learnt: an HTTPS proxy on this machine that speaks to no other certificate.

The modules that speak Redfish verify a certificate by its signer and names, which a learnt one need not have. So they
get a proxy of their own: it shows them a certificate made for this one task, and passes on what they say over TLS to
the BMC, once that has shown the learnt certificate. It lives as long as the task, and nothing leaves it unencrypted.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ipaddress
import select
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_CHUNK: Final = 64 * 1024
_LONGEST_HEAD: Final = 16 * 1024


@dataclass(frozen=True)
class Way:
    """``proxy`` is its URL, ``ca`` the file of the certificate that it shows."""

    proxy: str
    ca: str


@dataclass(frozen=True)
class _Relay:
    """What each connection is given. ``shows`` is this side's certificate, ``to`` the BMC, ``timeout`` in seconds."""

    shows: ssl.SSLContext
    to: tuple[str, int]
    fingerprint: str
    timeout: float
    stop: threading.Event


@contextlib.contextmanager
def relay(address: str, port: int, fingerprint: str, timeout: float) -> Iterator[Way]:
    """A way to ``address``, open within the block; it passes nothing on to another certificate than the learnt one."""
    with tempfile.TemporaryDirectory(prefix="coldiron-bmc-") as folder:
        shows = _context(address, Path(folder))
        with socket.create_server(("127.0.0.1", 0)) as server:
            stop = threading.Event()
            about = _Relay(shows, (address, port), fingerprint, timeout, stop)
            thread = threading.Thread(target=_serve, args=(server, about), daemon=True)
            thread.start()
            try:
                yield Way(f"http://127.0.0.1:{server.getsockname()[1]}", f"{folder}/shown.crt")
            finally:
                stop.set()
                thread.join(5)


def _context(address: str, folder: Path) -> ssl.SSLContext:
    """What the proxy shows: a certificate for the BMC's address, whose key no file outlives."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coldiron's way to one BMC")])
    now = datetime.datetime.now(datetime.UTC)
    try:
        names: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        names = x509.DNSName(address)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "shown.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    secret = folder / "shown.key"
    secret.touch(mode=0o600)
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "shown.crt", secret)
    secret.unlink()
    return context


def _serve(server: socket.socket, about: _Relay) -> None:
    server.settimeout(0.2)
    while not about.stop.is_set():
        try:
            plain, _ = server.accept()
        except TimeoutError:
            continue
        except OSError:
            return
        threading.Thread(target=_one, args=(plain, about), daemon=True).start()


def _one(plain: socket.socket, about: _Relay) -> None:
    """One connection of a module; whatever goes wrong ends it, and the module says that it ended."""
    with contextlib.suppress(OSError, ValueError), plain:
        plain.settimeout(about.timeout)
        head = b""
        while b"\r\n\r\n" not in head and len(head) < _LONGEST_HEAD:
            more = plain.recv(_CHUNK)
            if not more:
                return
            head += more
        if not head.startswith(b"CONNECT "):
            plain.sendall(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
            return
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Its names and its signer count for nothing: the fingerprint below is all that does.
        anybody.check_hostname = False
        anybody.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection(about.to, about.timeout) as out,
            anybody.wrap_socket(out, server_hostname=about.to[0]) as far,
        ):
            der = far.getpeercert(binary_form=True) or b""
            if f"SHA256:{hashlib.sha256(der).hexdigest().upper()}" != about.fingerprint:
                plain.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
                return
            plain.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with about.shows.wrap_socket(plain, server_side=True) as near:
                _pass_on(near, far, about.timeout, about.stop)


def _pass_on(near: ssl.SSLSocket, far: ssl.SSLSocket, timeout: float, stop: threading.Event) -> None:
    """Pass bytes on both ways until one side ends, or nothing moves for ``timeout`` seconds."""
    other = {near: far, far: near}
    while not stop.is_set():
        ready = [side for side in other if side.pending()] or select.select(list(other), [], [], timeout)[0]
        if not ready:
            return
        for side in ready:
            # What can be read may be TLS's own, a session ticket: then there is nothing to pass on yet.
            side.settimeout(0)
            try:
                data = side.recv(_CHUNK)
            except ssl.SSLWantReadError:
                continue
            finally:
                side.settimeout(timeout)
            if not data:
                return
            other[side].sendall(data)
