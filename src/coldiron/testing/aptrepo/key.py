"""A throw-away signing key, made and used by gpg in a folder of its own."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode

NAME = "coldiron fixtures (throw-away)"


def _gpg(home: Path, *words: str, data: bytes = b"") -> bytes:
    """What gpg answers. Raises ColdironError with its own words where it fails, or is not there."""
    argv = ["gpg", "--homedir", str(home), "--batch", "--no-tty", "--pinentry-mode", "loopback",
            "--passphrase", "", *words]  # fmt: skip
    try:
        done = subprocess.run(argv, input=data, capture_output=True, check=False, env=_environment())
    except FileNotFoundError:
        raise ColdironError("gpg is not installed; apt-get install gnupg", ExitCode.ENVIRONMENT) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ColdironError(f"gpg {words[0]}: {said[-1] if said else done.returncode}", ExitCode.ENVIRONMENT)
    return done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True)
class SigningKey:
    """A key in a gpg home of its own. ``fingerprint``: 40 hexadecimal digits."""

    home: Path
    fingerprint: str

    @classmethod
    def make(cls, home: Path) -> SigningKey:
        """The key in ``home``, made if there is none yet. Raises ColdironError without gpg."""
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        listed = _gpg(home, "--list-secret-keys", "--with-colons").decode()
        if "\nfpr:" not in listed:
            _gpg(home, "--quick-generate-key", NAME, "ed25519", "sign", "never")
            listed = _gpg(home, "--list-secret-keys", "--with-colons").decode()
        _stop_agent(home)
        prints = [line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:")]
        return cls(home, prints[0])

    @property
    def public(self) -> str:
        """The public key, armoured."""
        return _gpg(self.home, "--armor", "--export", self.fingerprint).decode()

    def clearsigned(self, text: str) -> str:
        """``text`` with a signature around it, as InRelease wants it."""
        signed = _gpg(self.home, "--clearsign", "--digest-algo", "SHA512", data=text.encode()).decode()
        _stop_agent(self.home)
        return signed


def _stop_agent(home: Path) -> None:
    """gpg starts an agent for each home and leaves it running."""
    subprocess.run(
        ["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False, capture_output=True
    )
