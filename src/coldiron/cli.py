"""The command line: verbs only, each handed on to the package that knows."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from coldiron import __version__
from coldiron.errors import ColdironError, ExitCode
from coldiron.node.cli import app as node_app
from coldiron.plan.cli import register as register_plan
from coldiron.rack.cli import app as rack_app
from coldiron.run.cli import register as register_run
from coldiron.secrets.cli import app as secrets_app
from coldiron.verify.cli import register as register_verify

app = typer.Typer(
    name="coldiron",
    help="From cold iron to a working GPU cluster.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
register_run(app)
register_plan(app)
app.add_typer(rack_app, name="rack")
app.add_typer(secrets_app, name="secrets")
app.add_typer(node_app, name="node")
register_verify(app)


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


def main() -> None:
    """Run the command line: a ColdironError becomes one line on stderr and its exit code."""
    try:
        app()
    except ColdironError as error:
        print(f"coldiron: {error.message}", file=sys.stderr)
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        print("coldiron: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(int(ExitCode.INTERRUPTED))
    except BrokenPipeError:
        sys.exit(0)
