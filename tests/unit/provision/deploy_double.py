"""A provisioner and a machine for the deploy program's tests: TLS on loopback, programs that only say they ran."""

from __future__ import annotations

import datetime
import http.server
import io
import ipaddress
import json
import os
import shutil
import ssl
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from coldiron.provision import images, pki
from coldiron.provision.deploy_tools import Places, Tools

MAC = "02:00:00:00:00:01"
TOKEN = "canary-token-that-nobody-may-see"
HOST_KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n-----END OPENSSH PRIVATE KEY-----\n"
KERNEL = "6.12-test"
SIZE = 20_000_000_000
_DAY = datetime.timedelta(days=1)
# Each writes its name and words into the journal; a line of its own may follow.
_STUBS = {
    "blockdev": "",
    "busybox": "",
    "chroot": 'case "$2" in ssh-keygen) echo ssh-ed25519 AAAA;; esac',
    "cp": "",
    "efibootmgr": 'echo "Boot0001* coldiron 1  HD(1)"',
    "ip": "",
    "kexec": "",
    "mdadm": "",
    "mke2fs": "",
    "mkfs.vfat": "",
    "mkswap": "",
    "mount": "",
    "sync": "",
    "udevadm": "",
    "udhcpc": "",
    "umount": "",
    "wipefs": "",
}


class Machine:
    """A machine below ``root``: what the program reads of it is files, what it runs is stubs."""

    def __init__(self, root: Path, server: str, authority: str, keys: list[bytes]) -> None:
        self.root = root
        self.journal = root / "journal"
        self.server = server
        self.bin = root / "stubs"
        self.bin.mkdir(parents=True)
        for name, line in _STUBS.items():
            self.stub(name, line)
        self.stub(
            "systemd-repart", f'for d; do :; done; touch "{root}${{d}}1" "{root}${{d}}2" "{root}${{d}}3"'
        )
        for name in ("openssl", "tar", "zstd", "sh", "touch", "cat", "sleep", "true"):
            (self.bin / name).symlink_to(str(shutil.which(name)))
        self.disks([disk("vda", "S-1")])
        self.write("/proc/cmdline", self.command_line())
        self.write("/proc/uptime", "12.5 3.0")
        self.write("/proc/self/mounts", "")
        self.write("/sys/class/net/eth0/address", MAC)
        self.write("/sys/class/net/eth0/carrier", "1")
        (root / "sys/class/net/eth0/device").mkdir()
        self.write("/sys/class/dmi/id/product_serial", "CH-1\n")
        self.write("/etc/coldiron/ca.crt", authority)
        self.write("/etc/coldiron/built", "1000000000")
        for number, key in enumerate(keys):
            self.write(f"/etc/coldiron/image-keys/{number}.pem", key.decode())
        self.target = root / "target"
        for name in ("dev", "run"):
            (root / name).mkdir(exist_ok=True)
        self.places = Places(root, self.target, {"PATH": str(self.bin)})
        self.tools = Tools(self.places, sleep=lambda _: None)

    def command_line(self, **words: str) -> str:
        said = {"node": "gpu01", "server": self.server, "mac": MAC, "token": TOKEN, **words}
        return "quiet " + " ".join(f"coldiron.{key}={value}" for key, value in said.items())

    def disks(self, found: list[dict[str, Any]]) -> None:
        listing = self.root / "lsblk.json"
        listing.write_text(json.dumps({"blockdevices": found}))
        self.stub("lsblk", f'cat "{listing}"')
        for one in found:
            path = self.root / "dev" / one["name"]
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as handle:
                handle.write(b"x" * 8192)
                handle.truncate(8 * 1024 * 1024)

    def stub(self, name: str, line: str = "") -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> "{self.journal}"\n{line}\n')
        path.chmod(0o755)

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def ran(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []


def disk(name: str, serial: str, **values: Any) -> dict[str, Any]:
    return {
        "name": name, "type": "disk", "size": SIZE, "model": None, "serial": serial, "wwn": None, "tran": "virtio",
        "rm": False, "ro": False, "hotplug": False, "fstype": None, "pttype": None, "mountpoints": [None], **values,
    }  # fmt: skip


class Provisioner:
    """An HTTPS server whose answers a test may replace: ``answers[WHAT]`` is called with the handler."""

    def __init__(self, directory: Path, *, start_days: int = -1, end_days: int = 30) -> None:
        self.events: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.answers: dict[str, Callable[[Any], None]] = {}
        self.key = images.make_key()
        self.ca_key = pki.make_ca_key()
        self.ca = pki.make_ca_certificate(self.ca_key)
        self.date = ""
        self.images: list[str] = []
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._image()
        chain, key = directory / "chain.pem", directory / "key.pem"
        self._certificate(chain, key, start_days, end_days)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, key)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.address = f"https://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.order: dict[str, Any] = {
            "format": 1, "node": "gpu01", "fqdn": "gpu01.lab", "mac": MAC, "purpose": "deploy", "firmware": "bios",
            "serial": "CH-1", "disks": [{"use": "system", "serial": "S-1"}], "consent": [], "sizes": {},
            "image": {"sha256": self.manifest.sha256, "class": "cpu-debian-13", "oldest": 0},
            "kernel_arguments": ["console=ttyS0,115200", "quiet"], "boot": "disk",
        }  # fmt: skip
        self.identity: dict[str, Any] = {
            "format": 1, "hostname": "gpu01", "host_keys": {"ed25519": HOST_KEY},
            "authorized_keys": ["ssh-ed25519 AAAA a person"], "hosts": "127.0.0.1 localhost\n",
            "network": {"/etc/systemd/network/10-eth.network": "[Match]\nName=eth0\n"},
            "files": {"/etc/secret": {"text": "canary\n", "mode": "0600"}},
        }  # fmt: skip

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def sign(self, key: bytes | None = None, **values: Any) -> None:
        """Sign the manifest again, with other values in it."""
        manifest = images.Manifest(**{**self.manifest.__dict__, **values})
        self.manifest_bytes = manifest.encoded()
        self.signature = images.sign(self.manifest_bytes, key or self.key)

    def steps(self) -> list[str]:
        return [event["step"] for event in self.events]

    def _image(self) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, content in {
                f"boot/vmlinuz-{KERNEL}": b"kernel", f"boot/initrd.img-{KERNEL}": b"initrd" * 1000,
                "etc/ssh/ssh_host_rsa_key": b"of the image", "etc/machine-id": b"", "usr/sbin/mdadm": b"",
                "usr/share/initramfs-tools/hooks/mdadm": b"", "root/.profile": b"", "proc/.keep": b"",
            }.items():  # fmt: skip
                info = tarfile.TarInfo(name)
                info.size = len(content)
                info.uid, info.gid = os.getuid(), os.getgid()
                archive.addfile(info, io.BytesIO(content))
        self.image = subprocess.run(
            ["zstd", "-q", "-c"], input=buffer.getvalue(), capture_output=True, check=True
        ).stdout
        digest = images.hashlib.sha256(self.image).hexdigest()
        self.manifest = images.Manifest(
            digest, len(self.image), "cpu-debian-13", "debian-13", KERNEL, {"base": "1"}, ("base",), "0" * 64,
            int(time.time()),
        )  # fmt: skip
        self.sign()

    def _certificate(self, chain: Path, key_file: Path, start_days: int, end_days: int) -> None:
        authority = x509.load_pem_x509_certificate(self.ca.encode())
        private = serialization.load_pem_private_key(self.ca_key.encode(), None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provisioner")]))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + start_days * _DAY)
            .not_valid_after(now + end_days * _DAY)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(private.public_key()), False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
            .sign(private, hashes.SHA256())
        )
        chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def date_time_string(self, timestamp: float | None = None) -> str:
                return outer.date or super().date_time_string(timestamp)

            def answer(self, body: bytes, status: int = 200, length: int | None = None) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) if length is None else length))
                self.end_headers()
                self.wfile.write(body)

            def do_HEAD(self) -> None:
                outer.asked.append("HEAD")
                self.answer(b"")

            def do_GET(self) -> None:
                self._any()

            def do_POST(self) -> None:
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._any()

            def _any(self) -> None:
                what = self.path.rsplit("/", 1)[1]
                outer.asked.append(what)
                if what in outer.answers:
                    outer.answers[what](self)
                    return
                if what == "redeem":
                    good = self.headers["Authorization"] == f"Bearer {TOKEN}"
                    found = {"order": outer.order, "session": "s-1", "images": outer.images}
                    body = found if good else {"error": "wrong token"}
                    self.answer(json.dumps(body).encode(), 200 if good else 403)
                    return
                if self.path.startswith("/api") and self.headers["Authorization"] != "Bearer s-1":
                    self.answer(b"{}", 403)
                elif what == "events":
                    outer.events.append(json.loads(self.body))
                    self.answer(b"{}")
                elif what == "identity":
                    self.answer(json.dumps(outer.identity).encode())
                elif what == "done":
                    self.answer(b"")
                else:
                    files = {
                        "manifest.json": outer.manifest_bytes, "manifest.sig": outer.signature,
                        "image.tar.zst": outer.image,
                    }  # fmt: skip
                    start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
                    self.answer(files[what][start:], 206 if start else 200)

        return Handler
