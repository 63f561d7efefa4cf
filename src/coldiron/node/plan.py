"""What adding and removing nodes means, worked out from the inventory alone: pure, nothing is run here."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, Node
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.inventory.functions import FUNCTIONS
from coldiron.inventory.model import NodeGroup, check_host_name
from coldiron.inventory.ranges import RangeError, expand, expand_addresses, expand_names, fold

ADD_PLAYBOOK = "coldiron.cluster.node_add"
REMOVE_PLAYBOOK = "coldiron.cluster.node_remove"
# Who must hear of a node that comes or goes; nobody else is spoken to.
TOLD = ("dns_server", "slurm_controller")


@dataclass(frozen=True)
class Leaving:
    """Nodes that are to go: all of them, and those of them that cluster.yml still has."""

    names: list[str]
    known: list[str]

    @property
    def unknown(self) -> list[str]:
        return [name for name in self.names if name not in self.known]


def named(arguments: Sequence[str]) -> list[str]:
    """The nodes that the command line names, ranges written out, each once. Raises ColdironError."""
    names: dict[str, None] = {}
    for argument in arguments:
        try:
            for name in expand(argument):
                check_host_name(name)
                names[name] = None
        except (RangeError, ValueError) as error:
            raise ColdironError(f"{error}") from None
    return list(names)


def limit(names: Sequence[str]) -> list[str]:
    """Where a run about the nodes ``names`` goes."""
    return [*names, *TOLD]


def check_added(cluster: Cluster, names: Sequence[str]) -> None:
    """Raise ColdironError unless cluster.yml has every one of ``names``."""
    missing = [name for name in names if name not in cluster]
    if missing:
        raise ColdironError("\n".join(_how_to_add(cluster, name) for name in missing))


def check_racked(cluster: Cluster, names: Sequence[str], racked: Collection[str]) -> None:
    """Raise ColdironError where the virtual rack is up, with the nodes ``racked``, and lacks ``names``."""
    missing = [name for name in names if cluster.node(name).platform == "container" and name not in racked]
    if racked and missing:
        raise ColdironError(
            f"{fold(missing)} is in {shown_path(cluster.path)}, but not in the running rack; "
            f"type: coldiron rack up -i {shown_path(cluster.directory)}"
        )


def _how_to_add(cluster: Cluster, name: str) -> str:
    where = shown_path(cluster.path)
    sibling = _sibling(cluster, name)
    if sibling is None:
        known = [node.name for node in cluster.nodes]
        return f"{where} has no node `{name}`; a new node is written there first; {did_you_mean(name, known)}"
    members = [node.name for node in cluster.nodes if node.group == sibling.group]
    return (
        f"{where} has no node `{name}`; to add it, write line {sibling.line} as "
        f"`name: {fold([*members, name])}` (now `{shown(sibling.group)}`), or did you mean `{sibling.name}`?"
    )


def _sibling(cluster: Cluster, name: str) -> Node | None:
    """The last node whose name differs from ``name`` in its number alone, at the same width."""
    shape = re.sub(r"[0-9]", "0", name)
    alike = [node for node in cluster.nodes if re.sub(r"[0-9]", "0", node.name) == shape]
    return alike[-1] if alike else None


def leaving(cluster: Cluster, names: Sequence[str]) -> Leaving:
    """The nodes that go. Raises ColdironError for those that the cluster cannot be without."""
    going = set(names)
    for function in FUNCTIONS.values():
        having = [node.name for node in cluster.nodes if function.name in node.functions]
        needed = function.single or function.name in ("slurm_worker", *TOLD)
        if needed and having and going.issuperset(having):
            who = f"{having[0]} is" if len(having) == 1 else f"{fold(having)} are"
            only = "the" if function.single else "the only"
            raise ColdironError(
                f"{who} {only} {function.name} of {cluster.name}, which cannot be without one; give another "
                f"node that function in {shown_path(cluster.path)} first",
                ExitCode.REFUSED,
            )
    return Leaving(list(names), [name for name in names if name in cluster])


def to_delete(cluster: Cluster, names: Sequence[str]) -> list[str]:
    """What to take out of cluster.yml once the nodes ``names`` are gone, a line each."""
    going = set(names)
    advice: list[str] = []
    for group in cluster.node_groups:
        members = [node for node in cluster.nodes if node.group == group.name]
        staying = [node for node in members if node.name not in going]
        if len(staying) == len(members):
            continue
        first, last = members[0].line, members[0].last_line
        where = f"{shown_path(cluster.path)}:{first}"
        if not staying:
            lines = f"line {first}" if first == last else f"lines {first} to {last}"
            advice.append(f"{where}: delete {lines} (`name: {group.name}`)")
            continue
        changes = [f"`name: {_range(staying)}`", *_moved(group, members, staying)]
        advice.append(f"{where}: in `name: {group.name}` write {', '.join(changes)}")
    return advice


def _range(nodes: list[Node]) -> str:
    return fold([node.name for node in nodes])


def _moved(group: NodeGroup, members: list[Node], staying: list[Node]) -> list[str]:
    """What must be rewritten beside the name, so that every node that stays keeps its addresses."""
    changes: list[str] = []
    if address := _kept(group.address, staying, [str(node.address) for node in staying]):
        changes.append(f"`address: {address}`")
    if group.bmc and (address := _kept(group.bmc.address, staying, [str(n.bmc_address) for n in staying])):
        changes.append(f"`bmc: {{address: {address}}}`")
    if group.mac:
        gone = [node.mac for node in members if node not in staying]
        changes.append(f"and remove {', '.join(str(mac) for mac in gone)} from `mac`")
    return changes


def _kept(text: str, staying: list[Node], wanted: list[str]) -> str | None:
    """What to write instead of the addresses ``text``, None where it still gives those ``wanted``."""
    names = expand_names(_range(staying))
    for candidate in (text, wanted[0], fold(wanted)):
        try:
            given = [str(address) for address in expand_addresses(candidate, names)]
        except RangeError:
            continue
        if given == wanted:
            return None if candidate == text else candidate
    return fold(wanted)
