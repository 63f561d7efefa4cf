"""``coldiron-deployd``: the provisioner on the head. The service, and the verbs that Ansible and people type there.

    coldiron-deployd serve                 # systemd starts it
    coldiron-deployd order --stdin         # {"order": …, "identity": …} on standard input
    coldiron-deployd status [--json]
    coldiron-deployd wait NODE [--seen EVENTS] [--seconds N]
    coldiron-deployd cancel NODE
    coldiron-deployd record [NODE]
    coldiron-deployd forget NODE

Answers are JSON, save for ``status`` without ``--json``. Exit codes are coldiron's (docs/exit-codes.md).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown, shown_path
from coldiron.provision.deployd_http import Server, Settings
from coldiron.provision.deployd_script import Mirror
from coldiron.provision.deployd_state import State
from coldiron.provision.order import LONGEST, parse_identity, parse_order

CONFIG = Path("/etc/coldiron/deployd.json")


@dataclass(frozen=True)
class Config:
    """The daemon's configuration, as role netboot writes it. It holds no secret."""

    directory: Path
    token_seconds: float
    session_seconds: float
    settings: Settings

    def state(self) -> State:
        """The state's directory, as the user who owns it: root would leave files that the daemon cannot read."""
        _become_owner(self.directory)
        return State(self.directory, token_seconds=self.token_seconds, session_seconds=self.session_seconds)


def read_config(file: Path) -> Config:
    """The configuration in ``file``. Raises ColdironError."""
    where = shown_path(file)
    try:
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise ColdironError(f"{where} cannot be read: {error.strerror}", ExitCode.ENVIRONMENT) from None
    except ValueError:
        raise ColdironError(f"{where} is not JSON; run role netboot again", ExitCode.ENVIRONMENT) from None
    try:
        return Config(
            directory=Path(data["directory"]),
            token_seconds=float(data["token_seconds"]),
            session_seconds=float(data["session_seconds"]),
            settings=Settings(
                server=str(data["server"]),
                files=str(data["files"]),
                arguments=tuple(map(str, data["kernel_arguments"])),
                mirrors=tuple(
                    Mirror(IPv4Network(mirror["subnet"]), str(mirror["url"]).rstrip("/"))
                    for mirror in data["mirrors"]
                ),
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        what = error.args[0] if isinstance(error, KeyError) else error
        raise ColdironError(
            f"{where} is wrong: {shown(what)}; run role netboot again", ExitCode.ENVIRONMENT
        ) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(read_config(options.config), options))
    except ColdironError as error:
        print(error.message, file=sys.stderr)
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coldiron-deployd", description="Orders, steps and records of deployments on this head."
    )
    parser.add_argument("--config", type=Path, default=CONFIG, help=f"its configuration (default: {CONFIG})")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    serve = verbs.add_parser("serve", help="answer machines, on the socket that systemd passes")
    serve.add_argument("--socket", type=Path, help="listen on this unix socket instead")
    serve.set_defaults(run=_serve)

    order = verbs.add_parser("order", help="let a node be deployed at its next network boot")
    order.add_argument("--stdin", action="store_true", required=True, help="read order and identity as JSON")
    order.set_defaults(run=_order)

    status = verbs.add_parser("status", help="orders, and the last step of each node")
    status.add_argument("node", nargs="*", help="only these")
    status.add_argument("--json", action="store_true", help="with all events, for programs")
    status.set_defaults(run=_status)

    wait = verbs.add_parser(
        "wait", help="wait for news of a node; its line of status, null where it is not known"
    )
    wait.add_argument("node")
    wait.add_argument(
        "--seen", type=int, default=0, metavar="EVENTS", help="how many of its events are no news"
    )
    wait.add_argument("--seconds", type=float, default=60, help="how long at most (default: 60)")
    wait.set_defaults(run=_wait)

    record = verbs.add_parser("record", help="what was deployed on a node last; of all without a name")
    record.add_argument("node", nargs="?")
    record.set_defaults(run=_record)

    for name, run, help_ in (
        ("cancel", _cancel, "withdraw a node's order, with its token and identity"),
        ("forget", _forget, "forget that a node was ever deployed"),
    ):
        verb = verbs.add_parser(name, help=help_)
        verb.add_argument("node")
        verb.set_defaults(run=run)
    return parser


def _serve(config: Config, options: argparse.Namespace) -> int:
    # The journal knows the time, the unit and the process already.
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    with Server(config.state(), config.settings, options.socket) as server:
        logging.getLogger("coldiron-deployd").info("answering for %s", config.directory)
        server.serve_forever()
    return 0


def _order(config: Config, options: argparse.Namespace) -> int:
    text = sys.stdin.buffer.read(2 * LONGEST + 1)
    if len(text) > 2 * LONGEST:
        raise ColdironError("order and identity are too long")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ColdironError("standard input is not JSON") from None
    if not isinstance(data, dict) or data.keys() != {"order", "identity"}:
        raise ColdironError('standard input wants {"order": …, "identity": …}')
    order = parse_order(data["order"])
    config.state().place(order, parse_identity(data["identity"]))
    return _print({"node": order.node, "image": order.image.sha256})


def _cancel(config: Config, options: argparse.Namespace) -> int:
    return _print({"node": options.node, "changed": config.state().cancel(options.node)})


def _forget(config: Config, options: argparse.Namespace) -> int:
    return _print({"node": options.node, "changed": config.state().forget(options.node)})


def _record(config: Config, options: argparse.Namespace) -> int:
    state = config.state()
    if options.node is None:
        return _print({"records": state.records()})
    return _print({"record": state.record(options.node)})


def _status(config: Config, options: argparse.Namespace) -> int:
    lines = [line for line in config.state().status() if not options.node or line["node"] in options.node]
    if options.json:
        print(json.dumps(lines))
        return 0
    for line in lines:
        print(_told(line))
    if not lines:
        print("no node has an order, and none was deployed from here")
    return 0


def _wait(config: Config, options: argparse.Namespace) -> int:
    print(json.dumps(config.state().wait(options.node, options.seen, options.seconds)))
    return 0


def _told(line: dict[str, Any]) -> str:
    words = [f"{line['node']:<12} {line['state']:<9}"]
    if line["step"]:
        words.append(f"{line['step']}, {_ago(line['age_seconds'])} ago")
    if line["failed"]:
        words.append(f"failed: {line['failed']}")
    elif line["text"]:
        words.append(line["text"])
    return "  ".join(words).rstrip()


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _print(answer: dict[str, Any]) -> int:
    print(json.dumps(answer))
    return 0


def _become_owner(directory: Path) -> None:
    """Root works as the owner of ``directory``, for good: all that is written is then the daemon's too."""
    try:
        owner = directory.stat()
    except OSError as error:
        raise ColdironError(
            f"{shown_path(directory)} cannot be used: {error.strerror}", ExitCode.ENVIRONMENT
        ) from None
    if os.geteuid() == owner.st_uid:
        return
    if os.geteuid() != 0:
        raise ColdironError(
            f"{shown_path(directory)} is another user's; type: sudo coldiron-deployd …", ExitCode.ENVIRONMENT
        )
    os.setgroups([])
    os.setgid(owner.st_gid)
    os.setuid(owner.st_uid)


if __name__ == "__main__":
    sys.exit(main())
