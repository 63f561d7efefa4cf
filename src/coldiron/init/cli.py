"""``coldiron init``: asks what is not said, and writes an inventory to begin with."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import InventoryError, did_you_mean, shown, shown_path

if TYPE_CHECKING:
    from coldiron.catalog.load import Catalog
    from coldiron.init.answers import Answers

# What a cluster has when nobody is asked. A file with no worker would be refused.
_DEFAULTS: dict[str, Any] = {
    "scheduler": "slurm",
    "heads": 1,
    "login": 1,
    "storage": 1,
    "cpu_nodes": 0,
    "gpu_nodes": 0,
    "gpus_per_node": 0,
    "racks": 0,
}


def register(app: typer.Typer) -> None:
    """Add the verb ``init`` to ``app``."""
    app.command()(init)


def init(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Where to write it; inventories/NAME if not given."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="The cluster's name; the directory's if not given.")
    ] = None,
    domain: Annotated[
        str | None, typer.Option(help="DNS domain of the nodes; NAME.internal if not given.")
    ] = None,
    scheduler: Annotated[str | None, typer.Option(help="slurm, kubernetes or none.")] = None,
    heads: Annotated[int | None, typer.Option(help="Head nodes.")] = None,
    login: Annotated[int | None, typer.Option(help="Login nodes.")] = None,
    storage: Annotated[int | None, typer.Option(help="Storage nodes.")] = None,
    cpu_nodes: Annotated[int | None, typer.Option(help="Nodes without GPUs that run jobs.")] = None,
    gpu_nodes: Annotated[int | None, typer.Option(help="Nodes with GPUs.")] = None,
    model: Annotated[
        str | None, typer.Option(help="GPU nodes: the machine, as `coldiron catalog list servers` names it.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="GPU nodes: the GPU, as `coldiron catalog list gpus` names it.")
    ] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="GPUs in one node.")] = None,
    cores: Annotated[int | None, typer.Option(help="Workers: cores of one processor socket.")] = None,
    memory_gib: Annotated[int | None, typer.Option(help="Workers: memory, in GiB.")] = None,
    racks: Annotated[int | None, typer.Option(help="Racks; 0: say nothing of racks.")] = None,
    subnet: Annotated[str | None, typer.Option(help="Of the network that all nodes are on.")] = None,
    bmc_subnet: Annotated[
        str | None, typer.Option(help="Of the management controllers; '' if there is none.")
    ] = None,
    dns: Annotated[
        list[str] | None,
        typer.Option(help="A name server outside the cluster that the heads ask; may be given again."),
    ] = None,
    virtual: Annotated[
        bool | None, typer.Option("--virtual/--metal", help="Containers on this machine, or real machines.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Ask nothing: what is not said is as proposed.")
    ] = False,
) -> None:
    """Write a commented cluster.yml to begin with, and the policy beside it.

    On a terminal it asks what no option says. Nothing that is there is overwritten.
    """
    # The models take a while to import: other verbs, and the list of verbs, need not wait for them.
    from coldiron.init.answers import checked
    from coldiron.init.text import examples, files
    from coldiron.inventory.check import packaged

    said = {key: value for key, value in locals().items() if key in _OPTIONS and value is not None}
    catalog = packaged()
    answers = checked(_answers(said, directory, catalog, asking=sys.stdin.isatty() and not yes), catalog)
    where = directory or Path("inventories") / answers.name
    made = files(answers, catalog, shown_path(where))
    _prove(made["cluster.yml"], where)
    _write(where, made)
    shown = shown_path(where)
    for file in made:
        typer.echo(f"{shown}/{file}")
    typer.echo("")
    if examples(answers, catalog):
        typer.echo(f"Some figures are examples: look for them in {shown}/cluster.yml.")
    typer.echo(f"Next:  coldiron secrets init -i {shown}  |  coldiron plan -i {shown}")


_OPTIONS = {
    "name", "domain", "scheduler", "heads", "login", "storage", "cpu_nodes", "gpu_nodes", "model", "gpu",
    "gpus_per_node", "cores", "memory_gib", "racks", "subnet", "bmc_subnet", "dns", "virtual",
}  # fmt: skip


def _answers(said: Mapping[str, Any], directory: Path | None, catalog: Catalog, *, asking: bool) -> Answers:
    """What was said, what is asked for, and what is proposed for the rest."""
    from coldiron.init.answers import Answers
    from coldiron.init.text import subnets

    def ask(option: str, question: str, proposed: Any) -> Any:
        if option in said:
            return said[option]
        return typer.prompt(question, default=proposed) if asking else proposed

    own_name = directory.resolve().name if directory is not None else ""
    if not own_name and not asking and "name" not in said:
        raise ColdironError("where shall it be? write a directory, e.g. coldiron init inventories/hopper")
    name = ask("name", "Name of the cluster", own_name or "hopper")
    domain = ask("domain", "DNS domain of the nodes", f"{name}.internal")
    virtual = said.get("virtual")
    if virtual is None:
        virtual = asking and typer.confirm("Only containers on this machine, to try it out?", default=False)
    scheduler = ask("scheduler", "Scheduler (slurm, kubernetes, none)", _DEFAULTS["scheduler"])
    numbers = {
        "heads": ask("heads", "Head nodes", 1),
        "logins": ask("login", "Login nodes", 1),
        "storage": ask("storage", "Storage nodes", 1),
        "cpu_nodes": ask("cpu_nodes", "CPU nodes", 0),
        "gpu_nodes": ask("gpu_nodes", "GPU nodes", 2 if asking else 0),
    }
    has_gpus = numbers["gpu_nodes"] > 0
    model = said.get("model", "")
    if asking and has_gpus and not virtual and "model" not in said and "gpu" not in said:
        model = typer.prompt(
            "GPU server in the catalog (empty: none of them)", default="", show_default=False
        )
    server = catalog.servers.get(model)
    own_gpu = has_gpus and (server is None or server.gpu is None)
    gpu = said.get("gpu", "")
    if asking and own_gpu and not gpu and not virtual:
        gpu = _pick("GPU in the catalog", "h100-sxm5-80gb", catalog.gpus)
    per_node = said.get("gpus_per_node", 0)
    if asking and has_gpus and not per_node and (server is None or not server.gpu_count):
        per_node = typer.prompt("GPUs in one node", default=4, type=int)
    if virtual and has_gpus:
        # They are only pretended: any will do.
        gpu, per_node = gpu or "h100-sxm5-80gb", per_node or 4
    answers = Answers(
        name=name,
        domain=domain,
        scheduler=scheduler,
        virtual=virtual,
        **numbers,
        model=model,
        gpu=gpu,
        gpus_per_node=per_node,
        cores=said.get("cores"),
        memory_gib=said.get("memory_gib"),
        racks=0 if virtual else ask("racks", "Racks (0: say nothing of racks)", 0),
    )
    own, bmc = subnets(answers)
    subnet = ask("subnet", "Subnet of the nodes", own)
    bmc_subnet = said.get("bmc_subnet", "") if virtual else ask("bmc_subnet", "Subnet of their BMCs", bmc)
    servers = said.get("dns") or []
    if asking and not virtual and not servers:
        question = "Name servers outside (empty: not known yet)"
        servers = typer.prompt(question, default="", show_default=False).split()
    dns = tuple(server.strip(",") for server in servers)
    return replace(answers, subnet=subnet, bmc_subnet=bmc_subnet, dns=dns)


def _pick(question: str, proposed: str, known: Iterable[str]) -> str:
    """Ask for a name of the catalog until it is one; an empty one is taken where nothing is proposed."""
    while True:
        answer = str(typer.prompt(question, default=proposed, show_default=bool(proposed))).strip()
        if not answer or answer in known:
            return answer
        typer.echo(f"the catalog has no {shown(answer)}; {did_you_mean(answer, known)}", err=True)


def _prove(text: str, where: Path) -> None:
    """Read the file as every other verb will. Raises ColdironError where it is not sound."""
    from coldiron.inventory.check import build
    from coldiron.inventory.source import parse

    file = where / "cluster.yml"
    try:
        build(parse(text, shown_path(file)), file)
    except InventoryError as error:
        found = "\n".join(finding.text for finding in error.findings)
        raise ColdironError(f"these answers make no sound cluster.yml:\n{found}") from None


def _write(where: Path, made: Mapping[str, str]) -> None:
    """Write the files below ``where``; one that is there already stops it before the first is written."""
    there = [name for name in (*made, "cluster.yaml") if (where / name).exists() and name != ".gitignore"]
    if there:
        raise ColdironError(
            f"{shown_path(where / there[0])} is there already, and nothing is overwritten; name another directory",
            ExitCode.REFUSED,
        )
    try:
        for name, text in made.items():
            file = where / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                with file.open("x", encoding="utf-8", newline="\n") as handle:
                    handle.write(text)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise ColdironError(f"{shown_path(where)} cannot be written: {why or error}") from None
