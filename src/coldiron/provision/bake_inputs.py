"""What an image of a class is made from: its nodes' roles and all that these declare to install, as Ansible has it.

Everything is worked out in this process, without a node and without the archive: that an image is current is known
in a second.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError
from coldiron.inventory import find, load
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.provision.bake_recipe import Options, options_from, plain_inputs
from coldiron.rack.aptsource import codename_of

KEY = "coldiron_image_key"
ROLE = "image"
_OPTIONS = (
    "image_kernel", "image_packages", "image_firmware", "image_firmware_missing", "image_modules",
    "image_initramfs", "image_initramfs_modules", "image_apt_sources",
)  # fmt: skip


@dataclass(frozen=True)
class ClassInputs:
    """What the inventory says of a class.

    ``hosts``: the first node of each set of roles that the class has; ``roles``: those with an install half, in the
    order of the stages; ``declared``: what each of ``hosts`` declares to install. ``key`` signs, ``secrets`` are
    looked for in what was made; neither is ever shown.
    """

    node_class: str
    distribution: str
    hosts: tuple[str, ...]
    roles: tuple[str, ...]
    declared: dict[str, Any]
    options: Options
    key: bytes = field(repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def packages(self) -> list[Any]:
        """The packages that the roles declare, as `converge` takes them, each name once.

        Those of a role with a repository of its own are left to it: nobody knows them before.
        """
        found: dict[str, Any] = {}
        for roles in self.declared["hosts"]:
            for tasks in roles.values():
                calls = _done(tasks)
                if any("coldiron.cluster.repository" in task for task in calls):
                    continue
                for task in calls:
                    for package in (task.get("coldiron.cluster.converge") or {}).get("packages") or []:
                        name = str(package["name"] if isinstance(package, dict) else package)
                        # With a version or a hold it says more.
                        if isinstance(found.get(name, ""), str):
                            found[name] = package
        return list(found.values())


def _done(tasks: list[Any]) -> list[dict[str, Any]]:
    """The tasks of an install half that are done: a text behind a task is what its condition came to."""
    following = [*tasks[1:], ""]
    return [
        task
        for task, after in zip(tasks, following, strict=True)
        if isinstance(task, dict) and after != "False"
    ]


def facts_of(distribution: str) -> dict[str, str]:
    """What the module os_facts says of a node of that distribution, before there is one. Raises ColdironError."""
    codename = codename_of(distribution)
    major = distribution.rpartition("-")[2]
    return {
        "os_family": "Debian",
        "distribution": "Debian",
        "distribution_version": major,
        "distribution_major_version": major,
        "distribution_release": codename,
        "architecture": "x86_64",
        "service_mgr": "systemd",
        "virtualization_type": "NA",
    }


def read(inventory: Path, node_class: str) -> ClassInputs:
    """What is there to bake. Raises ColdironError for an unknown class and for an inventory that cannot be used."""
    cluster = load(find(inventory))
    nodes = [node for node in cluster.expand() if node.image_class == node_class]
    if not nodes:
        known = sorted({node.image_class for node in cluster.expand()})
        raise ColdironError(
            f"{shown_path(cluster.path)} has no node of class {shown(node_class)}; {did_you_mean(node_class, known)}"
        )
    distribution = nodes[0].distribution
    facts = facts_of(distribution)

    from ansible.errors import AnsibleError

    from coldiron.testing.site import Site

    site = Site((cluster.directory,))
    try:
        by_roles: dict[tuple[str, ...], str] = {}
        for node in nodes:
            site.assume(node.name, facts)
            by_roles.setdefault(_roles(site, node.name), node.name)
        hosts = tuple(by_roles.values())
        roles = tuple(dict.fromkeys(role for found in by_roles for role in found))
        declared = {
            host: {role: list(_declared(site, host, role)) for role in found}
            for found, host in by_roles.items()
        }
        values = {name: site.resolve(hosts[0], ROLE, name) for name in _OPTIONS}
        options = options_from(values, site.resolve(hosts[0], ROLE, "__image_os"))
    except AnsibleError as error:
        told = " ".join(str(getattr(error, "message", "") or error).split())
        raise ColdironError(f"{shown_path(cluster.directory)}: {told}") from None
    key = _key(site, hosts[0], cluster.directory)
    secrets = tuple(value for value in site.secret_values() if len(value) >= 8)
    plain = plain_inputs(list(declared.values()))
    return ClassInputs(node_class, distribution, hosts, roles, {"hosts": plain}, options, key, secrets)


def site_key(inventory: Path) -> bytes:
    """The site's signing key, a secret. Raises ColdironError where it has none."""
    from coldiron.testing.site import Site

    cluster = load(find(inventory))
    site = Site((cluster.directory,))
    return _key(site, site.hosts()[0], cluster.directory)


def _key(site: Any, host: str, directory: Path) -> bytes:
    try:
        return str.__str__(site.resolve(host, None, KEY)).encode()
    except KeyError:
        raise ColdironError(
            f"{shown_path(directory)} has no {KEY}, which signs images; type: coldiron secrets init -i "
            f"{shown_path(directory)}"
        ) from None


def _roles(site: Any, host: str) -> tuple[str, ...]:
    """The roles that a node runs and that have something to bake."""
    roles = site.resolve(host, None, "coldiron_roles")
    return tuple(str(role) for role in roles if _install(site, str(role)).is_file())


def _install(site: Any, role: str) -> Path:
    return Path(site.collection) / "roles" / role / "tasks" / "install.yml"


def _declared(site: Any, host: str, role: str) -> Iterator[Any]:
    """The tasks of a role's install half, each with its expressions worked out, and the files that they name."""
    from ansible.template import trust_as_template

    for task in site.tasks(_install(site, role)):
        yield {key: site.worked_out(host, role, value) for key, value in task.items() if key != "when"}
        if "when" in task:
            yield str(
                site.worked_out(host, role, trust_as_template("{{ (" + str(task["when"]) + ") | bool }}"))
            )
    for name in ("templates", "files"):
        folder = Path(site.collection) / "roles" / role / name
        for path in sorted(folder.rglob("*")) if _names_files(site, role) else ():
            if path.is_file():
                yield [str(path.relative_to(folder)), hashlib.sha256(path.read_bytes()).hexdigest()]


def _names_files(site: Any, role: str) -> bool:
    """Whether the install half brings files, not packages and accounts alone."""
    return "files:" in _install(site, role).read_text(encoding="utf-8")
