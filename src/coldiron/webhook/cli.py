"""``coldiron webhook``."""

from __future__ import annotations

import ipaddress
import logging
import signal
import ssl
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import find
from coldiron.inventory.findings import shown, shown_path
from coldiron.repair import keep
from coldiron.run.engine import shown_command
from coldiron.webhook.ledger import START, Ledger
from coldiron.webhook.policy import Policy, read_policy
from coldiron.webhook.server import Receiver, Server
from coldiron.webhook.worker import Worker

app = typer.Typer(help="Let alerts drain nodes and look what is wrong with them.", no_args_is_help=True)
# 128 bits in hexadecimal digits: nobody guesses it, however often.
_LEAST_TOKEN = 32
DEFAULT_INVENTORY = Path("inventories/virtual")


@app.callback()
def _root() -> None:
    """Let alerts drain nodes and look what is wrong with them."""


@app.command()
def serve(
    token_file: Annotated[
        Path, typer.Option("--token-file", help="The token that Alertmanager sends; nobody else may read it.")
    ],
    inventory: Annotated[
        Path, typer.Option("--inventory", "-i", help="Inventory directory, or its cluster.yml.")
    ] = DEFAULT_INVENTORY,
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDRESS:PORT", help="Where to answer.")
    ] = "127.0.0.1:9095",
    policy_file: Annotated[
        Path | None,
        typer.Option(
            "--policy", help="What to do about which alert, as YAML; docs/repair.md has an example."
        ),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", help="PEM, with its chain. With --tls-key.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", help="PEM, without a pass phrase.")] = None,
    by_site: Annotated[
        bool,
        typer.Option(
            "--tls-site", help="TLS with a certificate of the site's own authority, for that address."
        ),
    ] = False,
) -> None:
    """Answer Alertmanager's webhook until it is stopped: an alert's node is drained and looked at, and no more.

    Alerts count whose label coldiron_repair is true, or that the policy names. A person does the rest, with
    coldiron node repair.
    """
    # The journal knows the time, the unit and the process already.
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    address, port = parse_listen(listen)
    if by_site and (certificate or key):
        raise ColdironError(
            "--tls-site has a certificate of its own: leave --tls-certificate and --tls-key out"
        )
    tls = context_by_site(inventory, str(address)) if by_site else context(certificate, key)
    if tls is None and not address.is_loopback:
        raise ColdironError(
            f"--listen {listen}: the token would cross the network in the clear; give --tls-site, or "
            "--tls-certificate and --tls-key, or listen on 127.0.0.1 behind a web server that has TLS",
            ExitCode.REFUSED,
        )
    policy = read_policy(policy_file) if policy_file else Policy()
    token = read_token(token_file)
    home = find(inventory).parent
    keep.prepare(home)
    now = time.time()
    ledger = Ledger(home, shown_command(["coldiron", *sys.argv[1:]]), now)
    try:
        worker = Worker(ledger, home)
        receiver = Receiver(home, policy, ledger, worker)
        try:
            server = Server((str(address), port), receiver, token, tls)
        except OSError as error:
            raise ColdironError(
                f"--listen {listen}: {error.strerror or error}", ExitCode.ENVIRONMENT
            ) from None
        ledger.write(now, START, {"listen": listen, "tls": tls is not None, "policy": policy.model_dump()})
        at = listen.rpartition(":")[0]
        _serve(server, worker, f"{'https' if tls else 'http'}://{at}:{server.server_address[1]}/alerts")
    finally:
        ledger.close()


def _serve(server: Server, worker: Worker, where: str) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not from the handler itself: shutdown waits for the loop that the handler has interrupted.
        signal.signal(number, lambda *_: threading.Thread(target=server.shutdown, daemon=True).start())
    worker.start()
    typer.echo(f"answering alerts on {where}", err=True)
    with server:
        server.serve_forever(poll_interval=0.2)
    worker.stop()


def parse_listen(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """The address and port in ``text``. Raises ColdironError."""
    host, _, port = text.rpartition(":")
    try:
        found = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        if not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise ValueError
    except ValueError:
        raise ColdironError(f"--listen {shown(text)}: write ADDRESS:PORT, as 127.0.0.1:9095") from None
    return found, int(port)


def read_token(path: Path) -> str:
    """The token in ``path``. Raises ColdironError where it is missing, short, or for others to read."""
    try:
        mode = path.stat().st_mode
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise ColdironError(
            f"{shown_path(path)} cannot be read: {error.strerror}", ExitCode.ENVIRONMENT
        ) from None
    except UnicodeDecodeError:
        token = ""
    how = f"(umask 077; openssl rand -hex 32 > {shown_path(path)})"
    if len(token) < _LEAST_TOKEN or not token.isprintable() or " " in token:
        raise ColdironError(f"{shown_path(path)} has no token of {_LEAST_TOKEN} or more letters; type: {how}")
    if mode & 0o077:
        raise ColdironError(f"{shown_path(path)} can be read by others; type: chmod 600 {shown_path(path)}")
    return token


def context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """TLS by the two files, None where neither is given. Raises ColdironError."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ColdironError("--tls-certificate and --tls-key go together")
    return _with(certificate, key)


def _with(certificate: Path, key: Path) -> ssl.SSLContext:
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        found.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a certificate in PEM and its key without a pass phrase"
        if isinstance(error, ssl.SSLError):
            why = "not a certificate in PEM and its key without a pass phrase"
        raise ColdironError(
            f"{shown_path(certificate)}, {shown_path(key)}: {why}", ExitCode.ENVIRONMENT
        ) from None
    return found


def context_by_site(inventory: Path, address: str) -> ssl.SSLContext:
    """TLS by the authority in the site's vault. Raises ColdironError where that is away or cannot be opened."""
    # Not before they are needed: Ansible's own parts take a second to be read.
    from coldiron.provision.pki import issue
    from coldiron.testing.site import Site

    site = Site((find(inventory).parent.resolve(),))
    host = site.hosts()[0]
    names = ("coldiron_ca_key", "coldiron_ca_certificate")
    try:
        key, certificate = (str.__str__(site.resolve(host, None, name)) for name in names)
    except KeyError:
        where = shown_path(inventory)
        raise ColdironError(
            f"--tls-site: {where} has no authority of its own; type: coldiron secrets init -i {where}",
            ExitCode.ENVIRONMENT,
        ) from None
    with tempfile.TemporaryDirectory(prefix="coldiron-webhook-") as folder:
        files = [Path(folder, name) for name in ("certificate.pem", "key.pem")]
        for file, text in zip(files, issue(key, certificate, [address]), strict=True):
            file.write_text(text, encoding="ascii")
        return _with(*files)
