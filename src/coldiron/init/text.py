"""The text of the files that ``coldiron init`` writes, by their names in the inventory's directory."""

from __future__ import annotations

from ipaddress import IPv4Network

from jinja2 import Environment, PackageLoader, StrictUndefined

from coldiron.catalog.load import Catalog
from coldiron.init.answers import (
    EXAMPLE_CORES,
    EXAMPLE_MEMORY_GIB,
    VIRTUAL_CORES,
    VIRTUAL_MEMORY_GIB,
    Answers,
    Kind,
    gateway,
    groups,
    names,
)
from coldiron.inventory.hardware import gres_type
from coldiron.inventory.json_schema import FILE as SCHEMA
from coldiron.inventory.json_schema import editor_line, schema_text
from coldiron.inventory.model import Gpus

_ABOUT: dict[Kind, str] = {
    "head": "Heads serve names and time{slurm}.",
    "login": "Where users log in and submit jobs.",
    "storage": "The first one has the home directories.",
    "cpu": "Workers without GPUs. The hardware is what the scheduler is told.",
    "gpu": "Workers with GPUs. The hardware is what the scheduler is told.",
}
_EXAMPLE = "    # an example: write your own"
_KEEP_OUT = """\
# Kept out of version control: the vault's password and the virtual rack's state.
.vault-password
.rack/
"""


def files(answers: Answers, catalog: Catalog, directory: str) -> dict[str, str]:
    """Every file's text. ``answers`` are checked ones; ``directory`` is how the user would type it."""
    environment = Environment(
        loader=PackageLoader("coldiron.init"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    slurm = ", and the first one runs Slurm's controller and its accounting"
    values = {
        "a": answers,
        "directory": directory,
        "editor_line": editor_line(SCHEMA),
        "groups": groups(answers),
        "gateway": gateway(answers),
        "racks": names("r", answers.racks) if answers.racks else "",
        "about": {
            kind: text.format(slurm=slurm if answers.scheduler == "slurm" else "")
            for kind, text in _ABOUT.items()
        },
        "hardware": {kind: _hardware(answers, catalog, kind) for kind in _ABOUT},
    }
    templates = {
        "cluster.yml": "cluster.yml.j2",
        "group_vars/all/site.yml": "site.yml.j2",
        "group_vars/all/users.yml": "users.yml.j2",
    }
    if answers.scheduler == "slurm":
        templates["group_vars/all/slurm.yml"] = "slurm.yml.j2"
    made = {name: environment.get_template(template).render(values) for name, template in templates.items()}
    return {**made, SCHEMA: schema_text(), ".gitignore": _KEEP_OUT}


def examples(answers: Answers, catalog: Catalog) -> bool:
    """Whether figures of the hardware stand in the file that nobody said."""
    return any(_EXAMPLE in line for kind in ("cpu", "gpu") for line in _hardware(answers, catalog, kind))


def subnets(answers: Answers) -> tuple[str, str]:
    """The subnets that are proposed: of the cluster, and of the BMCs."""
    wanted = sum(answers.numbers.values())
    # Twice the nodes, so that more can come without new addresses; a virtual rack is small.
    prefix = min(24, 32 - (2 * wanted + 40).bit_length())
    cluster = IPv4Network(f"{'10.66.0.0' if answers.virtual else '10.20.0.0'}/{prefix}", strict=False)
    bmc = IPv4Network(f"10.24.0.0/{prefix}", strict=False)
    return str(cluster), "" if answers.virtual else str(bmc)


def _hardware(answers: Answers, catalog: Catalog, kind: Kind) -> list[str]:
    """The lines of `hardware` of a kind of node; none where nothing needs to be said."""
    if kind not in ("cpu", "gpu"):
        return []
    server = catalog.servers.get(answers.model) if kind == "gpu" else None
    lines = []
    if answers.virtual:
        lines = ["sockets: 1", f"cores_per_socket: {VIRTUAL_CORES}", f"memory_gib: {VIRTUAL_MEMORY_GIB}"]
    else:
        if server is None or server.cores_per_socket is None or answers.cores:
            if server is None or server.sockets is None:
                lines.append(f"sockets: 2{_EXAMPLE}")
            lines.append(f"cores_per_socket: {answers.cores or f'{EXAMPLE_CORES}{_EXAMPLE}'}")
            if server is None or server.threads_per_core is None:
                lines.append(f"threads_per_core: 2{_EXAMPLE}")
        if server is None or server.memory_gib is None or answers.memory_gib:
            lines.append(f"memory_gib: {answers.memory_gib or f'{EXAMPLE_MEMORY_GIB}{_EXAMPLE}'}")
    if kind == "gpu" and (server is None or answers.gpu or answers.gpus_per_node):
        lines.append("gpus:")
        model = answers.gpu or (server.gpu if server else "")
        # A pretended GPU has a name for the scheduler and no figures.
        said = f"type: {gres_type(Gpus(model=model, count=1))}" if answers.virtual else f"model: {model}"
        lines.append(f"  {said}")
        lines.append(f"  count: {answers.gpus_per_node or (server.gpu_count if server else 0)}")
    return ["hardware:", *(f"  {line}" for line in lines)] if lines else []
