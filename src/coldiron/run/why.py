"""Why a task failed, in one sentence, and what helps: read from the result that Ansible gives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LONGEST_SENTENCE = 400
# Said by Ansible around what a module or plugin says.
_WRAPPED = re.compile(
    r"^(?:Task failed: |Action failed: |Failed to (?:connect|create temporary directory)[^:]*: (?=\S)|fatal: )+",
    re.IGNORECASE,
)
_SSH = re.compile(
    r"^(?:Failed to connect to the host via ssh"
    r"|Data could not be sent to remote host \S+ Make sure this host can be reached over ssh): ",
    re.IGNORECASE,
)
# ssh tells these of every connection; none is a reason.
_NOISE = re.compile(
    r"^(Warning: Permanently added|\*\* (WARNING|This session|The server)|debug\d: |Control socket)"
)
_EMPTY = (
    "", "MODULE FAILURE", "One or more items failed", "All items completed",
    # ansible-core 2.19's words, and 2.21's.
    "non-zero return code", "The command exited with a non-zero return code",
)  # fmt: skip
_BROKEN = ("MODULE FAILURE", "Module result deserialization failed")

# (what the text holds, what helps). {host} is the host's name.
_UNREACHABLE_HINTS: tuple[tuple[str, str], ...] = (
    ("Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
     "its ssh host key is not the known one: was it installed anew? then ssh-keygen -R its address and ssh to it once"),
    ("UNPROTECTED PRIVATE KEY|bad permissions|Permissions .* are too open", "chmod 600 the private key"),
    ("Load key .*: (Permission denied|No such file|error in libcrypto|invalid format)|Identity file .* not accessible",
     "the private key cannot be used: see ansible_ssh_private_key_file and the file's owner and mode"),
    ("Could not open a connection to your authentication agent|agent refused|Error connecting to agent",
     "the ssh agent is gone or locked: eval $(ssh-agent) && ssh-add, then the same command"),
    ("Permission denied \\(", "no key was accepted: is one loaded (ssh-add -l), and in the node's authorized_keys?"),
    ("Connection refused", "the node answers but its sshd does not: look at its console"),
    ("Connection timed out|timed out|No route to host|Network is unreachable|Host is down",
     "is {host} on, and its address right? ping it, or look at its console"),
    ("Could not resolve hostname|Name or service not known", "the name is unknown here: give the node an ansible_host"),
)  # fmt: skip
_HINTS: tuple[tuple[str, str], ...] = (
    # What converge says of a daemon that does not start; its name is the pattern's group.
    ("the last words of ([^ :]+):", "on {host}: journalctl -u {0}"),
    ("unit ([^ ]+) does not exist on this node", "on {host}: systemctl list-unit-files {0}; is its package declared?"),
    ("apt cannot (?:install|read its package lists)|dnf .*(?:Cannot download|Failed to download)",
     "on {host}: is the package mirror reachable, and does it have that version?"),
    ("converge works as root only", "the play lacks become: true, or the account on {host} may not become root"),
    ("Missing sudo password|a password is required", "the account may not become root without a password on {host}"),
    ("No space left on device|file system is full", "make room on {host}: df -h"),
    ("Attempting to decrypt but no vault secrets found|Decryption failed|no vault secrets",
     "the vault password is missing or another one's: see docs/secrets.md"),
)  # fmt: skip


def explain(result: Mapping[str, Any], host: str = "", *, unreachable: bool = False) -> tuple[str, str]:
    """The sentence and the hint (may be empty) of a failed result as `coldiron.run.trim` keeps it."""
    sentence = _sentence(result) or (
        "it could not be reached, and ssh said nothing" if unreachable else "it failed and said nothing"
    )
    hint = result.get("hint")
    if isinstance(hint, str) and hint.strip():
        return sentence, " ".join(hint.split())
    hints = _UNREACHABLE_HINTS + _HINTS if unreachable else _HINTS
    return sentence, _hint(" ".join(_texts(result)), host, hints)


def _sentence(result: Mapping[str, Any]) -> str:
    if result.get("censored"):
        return "it failed; what it said is hidden, because the task handles a secret (no_log)"
    message = _text(result, "msg")
    if any(message.startswith(broken) for broken in _BROKEN):
        # The module itself ended with a traceback: its last line says what went wrong.
        said_by = (_text(result, name) for name in ("module_stderr", "exception", "module_stdout"))
        last = _last_line(next(filter(None, said_by), ""))
        return _one(f"the module broke: {last}" if last else message)
    if message.split("\n")[0].rstrip(".") in _EMPTY:
        said = _last_line(_text(result, "stderr")) or _last_line(_text(result, "stdout"))
        code = result.get("rc")
        command = result.get("cmd")
        words = " ".join(map(str, command)) if isinstance(command, list) else str(command or "the command")
        if isinstance(code, int):
            return _one(f"`{words}` ended with {code}" + (f": {said}" if said else ""))
        return _one(said or message)
    lines = [line.strip() for line in _SSH.sub("", message).splitlines()]
    lines = [line for line in lines if line and not _NOISE.match(line)]
    if _SSH.match(message) and lines:
        return _one(lines[-1] if "Permission denied (" in lines[-1] else lines[0])
    return _one(_WRAPPED.sub("", lines[0]) if lines else message)


def _texts(result: Mapping[str, Any]) -> list[str]:
    return [_text(result, name) for name in ("msg", "stderr", "module_stderr")]


def _hint(text: str, host: str, hints: tuple[tuple[str, str], ...]) -> str:
    for pattern, advice in hints:
        if found := re.search(pattern, text):
            return advice.format(*found.groups(), host=host or "the node")
    return ""


def _text(result: Mapping[str, Any], name: str) -> str:
    value = result.get(name)
    if isinstance(value, str):
        return value.strip()
    # `assert` and `fail` take a list for a message as well.
    return " ".join(map(str, value)).strip() if isinstance(value, list) else ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _one(text: str) -> str:
    """``text`` on one line, no longer than a person reads."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_SENTENCE else line[: LONGEST_SENTENCE - 1] + "…"
