"""The image on its way to the disk: who signed it, what it is, and that what came is what was signed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from typing import IO

from coldiron.inventory.findings import shown
from coldiron.provision.deploy_cache import Cache
from coldiron.provision.deploy_http import Server
from coldiron.provision.deploy_tools import CommandFailed, DeployFailed, Tools, kill_group, last_line
from coldiron.provision.images import ImageAltered, Manifest, checked, verify
from coldiron.provision.order import ImageWanted

IMAGE_FILE = "image.tar.zst"
# After the last byte tar still has to write what the kernel holds back.
_END_SECONDS = 600
_ZSTD = ("zstd", "--decompress", "--stdout", "--quiet", "--long=27")
_TAR = ("tar", "--extract", "--file=-", "--numeric-owner", "--same-owner", "--same-permissions",
        "--xattrs", "--xattrs-include=*", "--acls", "--warning=no-timestamp")  # fmt: skip


def fetch_manifest(server: Server, wanted: ImageWanted, keys: Iterable[bytes], tools: Tools) -> Manifest:
    """The manifest of the image that was ordered, verified by the keys of this RAM environment.

    Raises ColdironError (REFUSED) where it is altered, signed by somebody else, too old, or of another image.
    """
    manifest = server.file(f"{wanted.sha256}/manifest.json")
    signature = server.file(f"{wanted.sha256}/manifest.sig")
    trusted = list(keys)
    if not trusted:
        raise DeployFailed("this RAM environment trusts no image key; bake it again")
    found = verify(
        manifest, signature, trusted, wanted.oldest, check=lambda *words: _check_by_openssl(tools, *words)
    )
    if found.sha256 != wanted.sha256:
        raise ImageAltered(
            f"the manifest is of image {found.sha256[:12]}, and {wanted.sha256[:12]} was ordered"
        )
    if found.node_class != wanted.node_class:
        raise ImageAltered(
            f"the image is of class {shown(found.node_class)}, and {wanted.node_class} was ordered"
        )
    return found


def _check_by_openssl(tools: Tools, pem: bytes, message: bytes, raw: bytes) -> bool:
    """Whether ``raw`` is the Ed25519 signature of ``message``: by the openssl program, for lack of a library here."""
    directory = tools.places.at("/run/coldiron/verify")
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (("key", pem), ("message", message), ("signature", raw)):
        (directory / name).write_bytes(content)
    command = ("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", f"{directory}/key", "-rawin",
               "-in", f"{directory}/message", "-sigfile", f"{directory}/signature")  # fmt: skip
    try:
        out = tools.run(*command, timeout=30)
    except CommandFailed as error:
        if "cannot be started" in error.message or "did not end" in error.message:
            raise
        return False
    return b"Signature Verified Successfully" in out


def unpack(source: Server | Cache, manifest: Manifest, tools: Tools) -> None:
    """Stream the image through its hash into the target.

    Raises ImageAltered where it is not what was signed: what lies in the target then must not be booted.
    """
    path = f"{manifest.sha256}/{IMAGE_FILE}"
    # A cache says here whether it has the image at all, before anything is written.
    chunks = source.stream(path, manifest.size_bytes) if isinstance(source, Cache) else source.stream(path)
    with os.fdopen(os.memfd_create("words"), "w+b") as words:
        zstd = _started(_ZSTD, subprocess.PIPE, subprocess.PIPE, words, tools)
        started = [zstd]
        try:
            started.append(
                _started((*_TAR, f"--directory={tools.places.target}"), zstd.stdout, None, words, tools)
            )
            assert zstd.stdin is not None
            assert zstd.stdout is not None
            # tar alone reads it: when tar ends early, zstd hears of it, and so do we.
            zstd.stdout.close()
            with contextlib.suppress(BrokenPipeError):
                # A program that has ended early says why itself, below.
                for chunk in checked(chunks, manifest):
                    zstd.stdin.write(chunk)
            with contextlib.suppress(BrokenPipeError):
                zstd.stdin.close()
            codes = [_ended(process) for process in started]
        except BaseException:
            for process in started:
                kill_group(process)
                process.wait()
            raise
        if any(codes):
            words.seek(0)
            # zstd that was cut off by tar's end says nothing of its own.
            at = 0 if codes[0] not in (0, -signal.SIGPIPE) else 1
            said = words.read().splitlines()
            # tar's last line only says that there was one before.
            why = last_line(said[0] if said else b"")
            raise CommandFailed(f"{('zstd', 'tar')[at]} failed on the image (exit {codes[at]}): {why}")


def _started(
    command: Sequence[str], given: IO[bytes] | int | None, out: int | None, words: IO[bytes], tools: Tools
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=given,
            stdout=out,
            stderr=words,
            env=tools.places.environment,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailed(f"{command[0]} cannot be started: {error.strerror}") from None


def _ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"the image was not unpacked {_END_SECONDS} s after its last byte") from None
