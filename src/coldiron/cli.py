"""The command line: verbs only, each handed on to the package that knows."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from coldiron import __version__
from coldiron.catalog.cli import register as register_catalog
from coldiron.errors import ColdironError, ExitCode
from coldiron.init.cli import register as register_init
from coldiron.inventory.cli import register as register_inventory
from coldiron.inventory.findings import shown_whole
from coldiron.node.cli import app as node_app
from coldiron.plan.cli import register as register_plan
from coldiron.provision.cli import register as register_provision
from coldiron.provision.image_cli import app as image_app
from coldiron.rack.cli import app as rack_app
from coldiron.rack.rehearse_cli import register as register_rehearse
from coldiron.run.cli import register as register_run
from coldiron.secrets.cli import app as secrets_app
from coldiron.verify.cli import register as register_verify
from coldiron.webhook.cli import app as webhook_app

app = typer.Typer(
    name="coldiron",
    help="From cold iron to a working GPU cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with:  coldiron init inventories/hopper  |  coldiron plan -i inventories/hopper.  "
    "Exit codes: 0 done, 1 hosts failed, 2 wrong command or inventory, 3 refused, 4 interrupted, 5 the machine "
    "lacks something.",
)
register_run(app)
register_plan(app)
app.add_typer(rack_app, name="rack")
register_rehearse(app)
app.add_typer(secrets_app, name="secrets")
app.add_typer(node_app, name="node")
app.add_typer(image_app, name="image")
app.add_typer(webhook_app, name="webhook")
register_verify(app)
register_catalog(app)
register_init(app)
register_inventory(app)
register_provision(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coldiron {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """From cold iron to a working GPU cluster."""


# What typer makes of Ctrl-C.
_TYPERS_INTERRUPTED = 130
# The parser's own errors: typer names their classes by halves, and older ones take them from click.
_ClickError: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


def main() -> None:
    """Run the command line: whatever a user can mend becomes one line on stderr and its exit code."""
    try:
        code = app(prog_name="coldiron", standalone_mode=False)
    except ColdironError as error:
        _fail(error.message, error.exit_code)
    except _ClickError as error:
        _misused(error)
    except (KeyboardInterrupt, typer.Abort):
        _interrupted()
    except BrokenPipeError:
        # Nobody reads on. What Python would still flush at its end must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    else:
        if code == _TYPERS_INTERRUPTED:
            _interrupted()
        sys.exit(code if isinstance(code, int) else 0)


def _interrupted() -> NoReturn:
    _fail("interrupted; the same command goes on from here", ExitCode.INTERRUPTED)


def _misused(error: Any) -> NoReturn:
    """A command line that cannot be parsed; one without any word is shown the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        sys.exit(int(ExitCode.USAGE))
    context = getattr(error, "ctx", None)
    where = context.command_path if context else "coldiron"
    message = " ".join(error.format_message().split()).rstrip(".")
    stop = "" if message.endswith("?") else ";"
    _fail(f"{shown_whole(message)}{stop} `{where} --help` shows how", ExitCode.USAGE)


def _fail(message: str, code: ExitCode) -> NoReturn:
    print(f"coldiron: {message}", file=sys.stderr)
    sys.exit(int(code))
