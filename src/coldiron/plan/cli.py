"""``coldiron plan`` and ``coldiron explain``: what is wrong, what would be done, and what a code means."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.plan.codes import pages

if TYPE_CHECKING:
    from coldiron.plan.data import Plan

DEFAULT_INVENTORY = Path("inventories/virtual")
# A longer line is hard to read, a shorter one cannot hold a place.
_WIDTH_AT_MOST, _WIDTH_AT_LEAST = 100, 40


def register(app: typer.Typer) -> None:
    """Add the verbs ``plan`` and ``explain`` to ``app``."""
    app.command(
        epilog="Exit codes: 0 sound, 3 refused, 2 no such inventory.  "
        "Examples:  coldiron plan -i inventories/hopper  |  coldiron plan --strict --sarif plan.sarif"
    )(plan)
    app.command()(explain)


def plan(
    inventory: Annotated[
        Path, typer.Option("--inventory", "-i", help="Inventory directory, or its cluster.yml.")
    ] = DEFAULT_INVENTORY,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", "-l", help="Only these nodes or groups, as Ansible takes them."),
    ] = None,
    vault_password_file: Annotated[
        Path | None, typer.Option("--vault-password-file", help="Where the vault password is.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings refuse too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the verdict only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    sarif: Annotated[
        Path | None,
        typer.Option("--sarif", metavar="FILE", help="Write the findings as SARIF too, for a merge request."),
    ] = None,
) -> None:
    """Say all that is wrong with an inventory, and what a run would do. No node is contacted."""
    # Ansible takes a second to import: other verbs, and the list of verbs, need not wait for it.
    from coldiron.plan.make import make
    from coldiron.plan.show import shown_plan

    _read_as_a_run_does(inventory)
    made = make(inventory, limit or (), vault_password_file, strict=strict)
    if sarif is not None:
        _write_sarif(made, sarif)
    if as_json:
        typer.echo(json.dumps(made.as_data(), indent=2))
    elif quiet:
        typer.echo(made.verdict)
    else:
        width = _columns()
        verdict, *rest = shown_plan(made, width)
        colour = typer.colors.RED if made.refused else typer.colors.GREEN
        typer.echo(typer.style(verdict, fg=colour, bold=True) if width and _colour() else verdict)
        for line in rest:
            typer.echo(line)
    if made.refused:
        raise typer.Exit(int(ExitCode.REFUSED))


def _write_sarif(made: Plan, file: Path) -> None:
    from coldiron.plan.sarif import sarif

    try:
        file.write_text(json.dumps(sarif(made.findings, Path.cwd()), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ColdironError(
            f"--sarif: {shown_path(file)} cannot be written: {error.strerror or error}", ExitCode.ENVIRONMENT
        ) from None


def _columns() -> int | None:
    """The terminal's columns; None where nobody looks, so that each finding stays on one line."""
    if not sys.stdout.isatty():
        return None
    return max(_WIDTH_AT_LEAST, min(shutil.get_terminal_size().columns, _WIDTH_AT_MOST))


def _colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _read_as_a_run_does(inventory: Path) -> None:
    """Where no ansible.cfg says so, let Ansible ask the plugin of cluster.yml first, as `coldiron apply` does.

    Otherwise its own plugins would take a catalog beside cluster.yml for an inventory.
    """
    from coldiron.run.survey import settings

    name = "ANSIBLE_INVENTORY_ENABLED"
    if (plugins := settings(inventory, os.environ).get(name)) is not None:
        os.environ[name] = plugins


def explain(
    code: Annotated[
        str | None,
        typer.Argument(help="A code, as CI101, or `matrix`; all codes are listed if none is named."),
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="matrix: the catalog's GPU, as H200.")] = None,
    driver: Annotated[
        str | None, typer.Option("--driver", help="matrix: NVIDIA's driver, or its branch.")
    ] = None,
    cuda: Annotated[
        list[str] | None, typer.Option("--cuda", help="matrix: a CUDA release; may be repeated.")
    ] = None,
    os_name: Annotated[
        str | None, typer.Option("--os", help="matrix: the distribution, as debian13.")
    ] = None,
    kernel: Annotated[str | None, typer.Option("--kernel", help="matrix: the kernel, as 6.12.107.")] = None,
    flavour: Annotated[
        str | None, typer.Option("--flavour", help="matrix: open or proprietary modules.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="matrix: the driver from vendor or distribution.")
    ] = None,
    fabric_manager: Annotated[
        str | None, typer.Option("--fabric-manager", help="matrix: the fabric manager's version.")
    ] = None,
    dcgm: Annotated[str | None, typer.Option("--dcgm", help="matrix: DCGM's version.")] = None,
    toolkit: Annotated[
        str | None, typer.Option("--toolkit", help="matrix: the container toolkit's version.")
    ] = None,
) -> None:
    """Explain the code of a finding; or, with `matrix`, whether versions fit together. Refused (3) if they do not."""
    from coldiron.plan.matrix_explain import Question, answer
    from coldiron.plan.show import shown_list, shown_page

    known = pages()
    asked = Question(gpu, driver, cuda or (), os_name, kernel, flavour, source, fabric_manager, dcgm, toolkit)
    if code == "matrix":
        said = answer(asked)
        for line in said.lines:
            typer.echo(line)
        if said.refused:
            raise typer.Exit(int(ExitCode.REFUSED))
        return
    if asked != Question():
        raise ColdironError(
            "versions are explained by `coldiron explain matrix`; write that word before the options"
        )
    if code is None:
        lines = shown_list(known.values())
    elif (page := known.get(code.strip("[] ").upper())) is not None:
        lines = shown_page(page)
    else:
        raise ColdironError(
            f"there is no code {shown(code)}; {did_you_mean(code, known)}; `coldiron explain` lists them all"
        )
    for line in lines:
        typer.echo(line)
