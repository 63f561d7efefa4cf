# Copyright the coldiron maintainers
# SPDX-License-Identifier: Apache-2.0
"""Ansible's door to cluster.yml: hands over what coldiron.inventory has read and checked."""

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster
plugin_type: inventory
short_description: A cluster described in one cluster.yml
version_added: 0.1.0
author:
  - The coldiron maintainers
description:
  - Reads a file called C(cluster.yml) (or C(cluster.yaml)) that says what a cluster is - its networks, its
    nodes in ranges such as C(gpu[01-12]), their hardware and the features that the cluster has.
  - Every node is a host in the group C(cluster), in the group of its kind (C(kind_head), C(kind_gpu) and so
    on) and in one group for each function it has (C(slurm_controller), C(slurm_worker), C(dns_server) and so
    on). All groups exist, even the empty ones.
  - The file is checked as a whole before anything runs. Each finding names the file, the line, what is wrong
    and what to write instead, and a file with findings stops Ansible.
  - Variables go beside the file, into C(group_vars) and C(host_vars), as with any inventory.
  - While the virtual rack of this inventory is up, its nodes are in the group C(virtual_rack) and carry the
    variables that connect to them.
requirements:
  - The Python package coldiron, in the same Python as Ansible.
extends_documentation_fragment:
  - inventory_cache
options:
  plugin:
    description: Says that this plugin reads the file.
    type: str
    required: true
    choices:
      - coldiron.cluster.cluster
  name:
    description: The cluster's name. It becomes the variable C(coldiron_cluster).
    type: str
    required: true
  domain:
    description: DNS domain of the nodes.
    type: str
    required: true
  site:
    description: The place, its prices, and the files of its own hardware catalog.
    type: dict
  feeds:
    description: The building's independent supplies of electricity, by name.
    type: dict
    default: {}
  rooms:
    description: Rooms by name, with what cools them.
    type: dict
    default: {}
  racks:
    description: The racks - ranges of them with height, depth, load and PDUs.
    type: list
    elements: dict
    default: []
  networks:
    description:
      - Networks by name, each with C(subnet) and, where it has them, C(gateway), C(mtu) (bytes), C(vlan), C(dns)
        (name servers outside the cluster) and C(dhcp).
      - Every node has its address on the one called C(cluster).
    type: dict
    required: true
  fabrics:
    description: InfiniBand and RoCE fabrics by name, with their speed and rails.
    type: dict
    default: {}
  switches:
    description: The switches - ranges of them with model, function, and the fabric or networks they carry.
    type: list
    elements: dict
    default: []
  features:
    description:
      - What the cluster has - C(scheduler) (C(slurm), C(kubernetes) or C(none)) and C(home_backend) (C(nfs), served
        by the storage node, or C(provided), put there by something outside).
    type: dict
    default: {}
  defaults:
    description:
      - C(platform), C(distribution), C(hardware), C(power), C(software), C(disks) and C(boot) of every node group
        that does not say otherwise.
    type: dict
    default: {}
  nodes:
    description:
      - The nodes. Each item has C(name) (a node or a range), C(kind) (C(head), C(login), C(storage), C(cpu)
        or C(gpu)) and C(address) (the first node's, or a range of the same length).
      - It may have C(model) (from the catalog), C(addresses) on other networks, C(mac), C(serial), C(bmc), C(rack)
        and C(u), C(platform), C(distribution), C(hardware), C(power), C(software), C(disks), C(boot),
        C(workload), C(functions), which replaces the functions that the kind gives, and C(overrides) for single
        nodes.
      - docs/reference/cluster.md explains each key.
    type: list
    elements: dict
    required: true
  nodes_csv:
    description: A CSV file beside cluster.yml with addresses, MACs, serials and places of single nodes.
    type: str
notes:
  - A cached inventory is used only for the very same text of the file, and of the files that it names, so an edit
    is never missed. How to connect to a virtual rack is never cached.
  - The files that it names (C(nodes_csv), C(site.catalog)) lie beside it. This plugin claims them, so that no other
    takes them for inventories; for that it stands first in C(enable_plugins). Where it does not, name the file
    itself, C(-i inventories/hopper/cluster.yml), and not its directory.
"""

EXAMPLES = r"""
# inventories/hopper/cluster.yml
plugin: coldiron.cluster.cluster
name: hopper
domain: hopper.internal
networks:
  cluster:
    subnet: 10.20.0.0/22
    gateway: 10.20.0.1
defaults:
  platform: metal
  distribution: debian-13
nodes:
  - name: head01
    kind: head
    address: 10.20.0.2
  - name: storage01
    kind: storage
    address: 10.20.0.3
  - name: gpu[01-12]          # gpu01 gets 10.20.1.1, gpu02 10.20.1.2, and so on
    kind: gpu
    address: 10.20.1.1
    bmc:
      address: 10.24.1.1
    hardware:
      sockets: 2
      cores_per_socket: 56
      threads_per_core: 2
      memory_gib: 2048
      gpus:
        type: h100
        count: 8
"""

import hashlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.inventory import BaseInventoryPlugin, Cacheable
from ansible_collections.coldiron.cluster.plugins.module_utils.controller import lacks_coldiron

FILE_NAMES = ("cluster.yml", "cluster.yaml")
# The line is looked for, not parsed: a file with broken YAML must reach this plugin's messages.
PLUGIN_LINE = re.compile(rb"""^(?:\xef\xbb\xbf)?plugin[ \t]*:[ \t]*["']?coldiron""", re.MULTILINE)
HEAD_BYTES = 64 * 1024
# How many folders below cluster.yml a file that it names is looked for.
DEPTH = 3
ALL_HOSTS = "{{ lookup('coldiron.cluster.hosts', *coldiron_files) }}"
# What Ansible's commands exit with when they cannot parse something.
PARSER_ERROR = 4
# Ansible wants a value for each required option; the values themselves are coldiron.inventory's to judge.
JUDGED_ELSEWHERE = {
    "plugin": "coldiron.cluster.cluster",
    "name": "",
    "domain": "",
    "networks": {},
    "nodes": [],
}


def _is_ours(file: Path) -> bool:
    """Whether a file's ``plugin:`` line names this collection."""
    try:
        with file.open("rb") as handle:
            return PLUGIN_LINE.search(handle.read(HEAD_BYTES)) is not None
    except OSError:
        return False


def _names(cluster_file: Path, name: str) -> bool:
    """Whether cluster.yml holds the name of a file beside it, as under ``nodes_csv`` or ``site.catalog``."""
    word = rb"(?<![\w./-])" + re.escape(name.encode()) + rb"(?![\w./-])"
    try:
        return re.search(word, cluster_file.read_bytes()) is not None
    except OSError:
        return False


class InventoryModule(BaseInventoryPlugin, Cacheable):  # type: ignore[misc]
    """A thin adapter: coldiron.inventory reads and checks, this class tells Ansible."""

    NAME = "coldiron.cluster.cluster"
    # The model lets no braces through, so that no value is a template but ALL_HOSTS; other tools get plain text.
    trusted_by_default = True

    def verify_file(self, path: str) -> bool:
        """Claim files called cluster.yml whose ``plugin:`` line names this collection, and what they name beside them.

        Ansible looks at every file of an inventory's directory: no other plugin is to take a catalog or a list of
        MACs for an inventory.
        """
        if not super().verify_file(path):
            return False
        file = Path(path)
        if file.name in FILE_NAMES:
            return _is_ours(file)
        return any(
            _is_ours(folder / name) and _names(folder / name, file.relative_to(folder).as_posix())
            for folder in list(file.parents)[:DEPTH]
            for name in FILE_NAMES
        )

    def parse(self, inventory: InventoryData, loader: DataLoader, path: str, cache: bool = True) -> None:
        """Fill ``inventory`` from the cluster.yml at ``path``; a file with findings ends the process."""
        super().parse(inventory, loader, path, cache)
        if Path(path).name not in FILE_NAMES:
            return
        try:
            found = self._found(Path(path), cache)
        except AnsibleParserError as error:
            # Raised any other way, Ansible warns, tries its other plugins on the file, adds their complaints,
            # and goes on with localhost.
            self.display.error(error.message, wrap_text=False)
            raise SystemExit(PARSER_ERROR) from None
        for group, hosts in found["groups"].items():
            inventory.add_group(group)
            for host in hosts:
                inventory.add_host(host, group=group)
        _set(inventory, "all", found["shared_vars"])
        for host, hostvars in found["hostvars"].items():
            _set(inventory, host, hostvars)
        self._keep(inventory, path, found["hostvars"])
        self._connect(Path(path).parent, inventory, found["hostvars"])

    def _keep(self, inventory: InventoryData, path: str, hostvars: dict[str, Any]) -> None:
        """Keep all in one place, so that no host has to gather the variables of every other one.

        The place is this process: as a variable, each host would carry those of all. A second cluster.yml adds.
        """
        from coldiron.inventory.known import keep

        keep(path, hostvars)
        files = [*inventory.groups["all"].vars.get("coldiron_files", []), path]
        _set(inventory, "all", {"coldiron_files": list(dict.fromkeys(files)), "coldiron_hosts": ALL_HOSTS})

    def _found(self, path: Path, cache: bool) -> dict[str, Any]:
        """What the file says: out of Ansible's cache if it holds this very text, else read and checked."""
        try:
            from coldiron.errors import ColdironError
            from coldiron.inventory import build, read
        except ImportError as error:
            raise AnsibleParserError(lacks_coldiron(str(path), error)) from None
        try:
            document = read(path)
            self._set_cache_options(document.data)
            if not self.get_option("cache"):
                return _as_data(build(document, path))
            self.load_cache_plugin()
            # Hashing a local file costs nothing, so an edit is never missed.
            key = f"{self.get_cache_key(str(path))}_{_digest([path, *_named(document.data, path)])}"
            if not cache or key not in self._cache:
                self._cache[key] = _as_data(build(document, path))
            found: dict[str, Any] = self._cache[key]
            return found
        except ColdironError as error:
            raise AnsibleParserError(error.message) from None

    def _set_cache_options(self, data: object) -> None:
        given = data if isinstance(data, dict) else {}
        options = {
            name: value
            for name, value in given.items()
            if name.startswith("cache") and isinstance(value, (bool, int, str))
        }
        self.set_options(direct={**JUDGED_ELSEWHERE, **options})

    def _connect(self, directory: Path, inventory: InventoryData, known: Collection[str]) -> None:
        """Say how to reach the nodes of this inventory's virtual rack, if one is up."""
        from coldiron.rack.connection import connection_vars, machine_vars, rack_nodes

        hostvars = connection_vars(directory)
        if hostvars is None:
            return
        # The rack may still hold nodes that have left cluster.yml.
        for host in sorted(rack_nodes(directory) & set(known)):
            inventory.add_host(host, group="virtual_rack")
            # On each host, not on the group: a site's group_vars/all must not send the rehearsal elsewhere.
            _set(inventory, host, hostvars)
        # Machines have a kernel of their own, so that they are not in the group of what containers cannot do.
        for host, own in machine_vars(directory).items():
            if host in known:
                _set(inventory, host, own)


def _named(data: object, path: Path) -> list[Path]:
    """The files that the cluster.yml at ``path`` names, as far as ``data`` can be understood."""
    given = data if isinstance(data, dict) else {}
    site = given.get("site")
    catalog = site.get("catalog") if isinstance(site, dict) else None
    names = [given.get("nodes_csv"), *(catalog if isinstance(catalog, list) else ())]
    return [path.parent / name for name in names if isinstance(name, str)]


def _is_named_by_a_cluster(path: Path) -> bool:
    """Whether a cluster.yml beside the file at ``path``, or a folder or two above it, names it as one of its own."""
    for directory in list(path.parents)[:3]:
        for name in FILE_NAMES:
            try:
                text = (directory / name).read_bytes()
            except OSError:
                continue
            if path.name.encode() in text and PLUGIN_LINE.search(text[:HEAD_BYTES]):
                return path in _named(_data(directory / name), directory / name)
    return False


def _data(path: Path) -> object:
    """What the cluster.yml at ``path`` says; nothing where it cannot be read, which is told when it is parsed."""
    try:
        from coldiron.errors import ColdironError
        from coldiron.inventory import read
    except ImportError:
        return None
    try:
        return read(path).data
    except ColdironError:
        return None


def _digest(paths: list[Path]) -> str:
    """A short sum over the texts of files; one that cannot be read counts as empty."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError:
            digest.update(b"-")
    return digest.hexdigest()[:16]


def _as_data(cluster: Any) -> dict[str, Any]:
    """A checked cluster as the plain data that the cache can hold."""
    hostvars = {node.name: node.hostvars() for node in cluster.expand()}
    for name, watts in _fitted_caps(cluster).items():
        hostvars[name]["coldiron_gpu_cap_watts"] = watts
    return {"groups": cluster.groups(), "shared_vars": cluster.shared_vars(), "hostvars": hostvars}


def _fitted_caps(cluster: Any) -> dict[str, float]:
    """The cap per GPU, in watts, of nodes whose circuit decides it (`fit_circuit`), as the plan reckons it."""
    if not any(node.power.fit_circuit for node in cluster.expand()):
        return {}
    from coldiron.plan.design import Design

    return dict(Design(cluster).power.caps)


def _set(inventory: InventoryData, entity: str, variables: dict[str, Any]) -> None:
    for name, value in variables.items():
        inventory.set_variable(entity, name, value)
