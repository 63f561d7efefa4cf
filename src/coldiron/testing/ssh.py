"""ssh to the nodes with the inventory's own connection variables, by one config file and kept masters."""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coldiron.testing.backend import Watch
    from coldiron.testing.site import Site

CONNECT_SECONDS = 10
PERSIST_SECONDS = 60


def config_block(name: str, variables: dict[str, Any], controls: Path) -> str:
    """Return the ssh_config section of one host, from its ansible_* connection variables.

    Options in ansible_ssh_common_args and ansible_ssh_extra_args come first, so they win as they do in
    Ansible; only their ``-o Key=Value`` and ``-J`` forms are understood, other words raise ValueError.
    """
    lines = [f"Host {name}", f"  HostName {variables.get('ansible_host', name)}"]
    given: list[tuple[str, str]] = []
    for key in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        given += ssh_options(str(variables.get(key, "") or ""))
    # A master of our own: one that Ansible holds may belong to a node that was reset in between.
    lines += [f"  {key} {value}" for key, value in given if not key.lower().startswith("control")]
    user = variables.get("ansible_user") or variables.get("ansible_ssh_user")
    port = variables.get("ansible_port") or variables.get("ansible_ssh_port")
    identity = variables.get("ansible_ssh_private_key_file") or variables.get("ansible_private_key_file")
    lines += [f"  User {user}"] if user else []
    lines += [f"  Port {port}"] if port else []
    lines += [f'  IdentityFile "{identity}"', "  IdentitiesOnly yes"] if identity else []
    lines += [
        "  BatchMode yes",
        f"  ConnectTimeout {CONNECT_SECONDS}",
        "  ServerAliveInterval 5",
        "  ServerAliveCountMax 3",
        "  ControlMaster auto",
        f"  ControlPersist {PERSIST_SECONDS}",
        f"  ControlPath {controls}/%C",
        "  LogLevel ERROR",
    ]
    return "\n".join(lines) + "\n"


def ssh_options(text: str) -> list[tuple[str, str]]:
    """Return the (keyword, value) pairs of an ssh command line's options."""
    words = shlex.split(text)
    found: list[tuple[str, str]] = []
    while words:
        word = words.pop(0)
        if word in ("-o", "-J", "-F", "-i") and words:
            word += words.pop(0)
        letter, rest = word[:2], word[2:]
        if letter == "-o":
            key, _, value = rest.replace("=", " ", 1).partition(" ")
            found.append((key, value.strip()))
        elif letter == "-J":
            found.append(("ProxyJump", rest))
        elif letter == "-i":
            found.append(("IdentityFile", rest))
        elif letter == "-F" and rest in ("none", "/dev/null"):
            continue
        elif letter not in ("-q", "-C", "-T", "-4", "-6"):
            raise ValueError(f"ssh option {word!r} is not understood: write it as -o Key=Value")
    return found


class Connections:
    """Ways to the nodes of a site: plain commands, and testinfra hosts over the ssh backend."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._config: Path | None = None
        self._hosts: dict[str, Any] = {}

    @functools.cached_property
    def watch(self) -> Watch:
        """What holds for the commands that testinfra runs on the nodes, and their journal."""
        # testinfra is loaded by those alone who test.
        from coldiron.testing.backend import Watch

        return Watch()

    @property
    def config(self) -> Path:
        """The ssh_config with every host of the site, written when first needed, removed at exit."""
        if self._config is None:
            # A control socket's path has room for some hundred bytes: a short folder.
            folder = Path(tempfile.mkdtemp(prefix="ci-", dir="/tmp"))
            self._config = folder / "config"
            blocks = []
            for name in self._site.hosts("all"):
                variables = self._site.hostvars(name)
                names = [key for key in variables if key.startswith("ansible_")]
                wanted = {key: variables[key] for key in names if _concerns_ssh(key)}
                blocks.append(config_block(name, wanted, folder))
            self._config.write_text("\n".join(blocks), encoding="utf-8")
            atexit.register(_remove, folder, os.getpid())
        return self._config

    def forget(self) -> None:
        """Close the kept masters: the nodes behind them were reset."""
        if self._config is not None:
            for socket in self._config.parent.iterdir():
                if socket.is_socket():
                    subprocess.run(
                        ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "none"],
                        check=False,
                        capture_output=True,
                        timeout=CONNECT_SECONDS,
                    )
        self._hosts.clear()

    def run(
        self, host: str, command: str, timeout: float = 60, source: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command on a node as root, ``source`` on its standard input; return what came of it.

        Nothing of it may outlive the call with an output held open; past ``timeout`` seconds it is given up
        with return code 124.
        """
        words = ["ssh", "-F", str(self.config), host, self._as_root(host, command)]
        try:
            return subprocess.run(
                words,
                input=source,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(words, 124, "", f"no end within {timeout:.0f} s")

    def _as_root(self, host: str, command: str) -> str:
        quoted = shlex.quote(command)
        return f"sudo -n sh -c {quoted}" if self._needs_sudo(host) else f"sh -c {quoted}"

    def _needs_sudo(self, host: str) -> bool:
        variables = self._site.hostvars(host)
        user = variables.get("ansible_user")
        return user not in (None, "root")

    def testinfra(self, host: str) -> Any:
        """Return the testinfra host of a node (the ssh backend; sudo when the user is not root)."""
        from coldiron.testing import backend

        if host not in self._hosts:
            self._hosts[host] = backend.node(host, self, self._needs_sudo(host))
        return self._hosts[host]


def _concerns_ssh(name: str) -> bool:
    return name.startswith("ansible_ssh_") or name in (
        "ansible_host", "ansible_port", "ansible_user", "ansible_private_key_file",
    )  # fmt: skip


def _remove(folder: Path, owner: int) -> None:
    """Close the masters and remove their folder; a forked child leaves both to the process that made them."""
    if os.getpid() != owner:
        return
    for socket in folder.iterdir() if folder.is_dir() else ():
        if socket.is_socket():
            subprocess.run(
                ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "none"],
                check=False,
                capture_output=True,
                timeout=CONNECT_SECONDS,
            )
    shutil.rmtree(folder, ignore_errors=True)
