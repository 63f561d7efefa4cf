"""An inventory with its variables as Ansible resolves them, in this process; no node is spoken to."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError
from coldiron.inventory.findings import did_you_mean, shown, shown_path
from coldiron.secrets.process import trust
from coldiron.testing.site import plain

VAULT_HEADER = b"$ANSIBLE_VAULT"
# Variables that are a host's own name and addresses: hosts that differ in these alone are checked as one.
IDENTITY = (
    "inventory_hostname",
    "inventory_hostname_short",
    "ansible_host",
    "coldiron_address",
    "coldiron_bmc_address",
    "coldiron_mac",
)
IDENTITY_WORD = re.compile(rf"\b({'|'.join(IDENTITY)})\b")
# What playbooks/group_vars/all/topology.yml calls the cluster's shape.
_SHAPE = "topology"
# A variable's name in quotes asks for every node's, not for this one's.
_QUOTED = re.compile(r"'[^']*'")


class Resolved:
    """The inventory in ``directory``, with ``playbooks``' group_vars over it as in a run of the site.

    ``password`` opens its vault files; while they are ``locked`` they count as empty. ``stand_ins`` take the
    place of variables that are set nowhere. ``limit`` leaves out hosts as `ansible-playbook --limit` does.
    Raises ColdironError where no host is left.
    """

    def __init__(
        self,
        directory: Path,
        playbooks: Path,
        *,
        password: bytes | None,
        locked: bool,
        stand_ins: Mapping[str, Any],
        limit: Sequence[str] = (),
    ) -> None:
        from ansible.inventory.manager import InventoryManager
        from ansible.parsing.vault import VaultSecret
        from ansible.vars.hostvars import HostVars
        from ansible.vars.manager import VariableManager

        _start_plugins()
        self.directory = directory
        self._stand_ins = dict(stand_ins)
        self._shape: dict[str, tuple[Any, Any]] | None = None
        self.loader = _loader(locked)
        self.loader.set_basedir(str(playbooks))
        secrets = [] if password is None else [("default", VaultSecret(password))]
        self.loader.set_vault_secrets(secrets)
        trust(secrets)
        self.inventory = InventoryManager(loader=self.loader, sources=[str(directory)])
        self._variables = VariableManager(loader=self.loader, inventory=self.inventory)
        HostVars(self.inventory, self._variables, self.loader)
        everybody = self.hosts("cluster")
        if limit:
            self.inventory.subset(",".join(limit))
            if not self.hosts("cluster"):
                known = [*everybody, *map(str, self.inventory.groups)]
                wrong = ",".join(limit)
                raise ColdironError(f"no node matches --limit {shown(wrong)}; {did_you_mean(wrong, known)}")

    def hosts(self, pattern: str) -> list[str]:
        """The hosts that ``pattern`` matches, within the limit, in the inventory's order."""
        return [str(host.name) for host in self.inventory.get_hosts(pattern)]

    def variables(self, host: str) -> dict[str, Any]:
        """The variables of ``host``, not yet templated. Raises AnsibleError where a file cannot be read."""
        found = {**self._stand_ins, **self.given(host)}
        if self._shape is None:
            self._shape = self._worked_out(found)
        return {**found, **{name: value for name, (raw, value) in self._shape.items() if found[name] == raw}}

    def _worked_out(self, variables: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """The cluster's shape, (expression, value) by name: the same for all hosts, and dear to work out for each."""
        from ansible.errors import AnsibleError
        from ansible.template import Templar

        templar = Templar(loader=self.loader, variables=variables)
        try:
            return {
                name: (raw, plain(templar.template(raw)))
                for name, raw in variables.items()
                if name.startswith(_SHAPE) and not IDENTITY_WORD.search(_QUOTED.sub("", str(raw)))
            }
        except AnsibleError:
            # Whoever asks for it will be told.
            return {}

    def given(self, host: str) -> dict[str, Any]:
        """The same without the stand-ins."""
        found: dict[str, Any] = self._variables.get_vars(host=self.inventory.get_host(host))
        return found

    def value(self, host: str, name: str) -> Any:
        """The variable ``name`` of ``host``, worked out. Raises AnsibleError where it cannot be."""
        from ansible.template import Templar

        variables = self.variables(host)
        return plain(Templar(loader=self.loader, variables=variables).template(variables.get(name)))

    def classes(self) -> list[list[str]]:
        """The hosts by the groups that they are in."""
        found: dict[tuple[str, ...], list[str]] = {}
        for name in self.hosts("cluster"):
            groups = self.inventory.get_host(name).get_groups()
            found.setdefault(tuple(sorted(group.name for group in groups)), []).append(name)
        return list(found.values())

    def own(self, host: str) -> dict[str, Any]:
        """The variables that ``host`` alone has, without its name and addresses, not yet templated."""
        found = dict(self.inventory.get_host(host).vars)
        for path in self._host_files.get(host, ()):
            # As Ansible reads it: what it reads later comes from the same cache.
            found |= (
                self.loader.load_from_file(
                    str(path.resolve()), cache="all", unsafe=True, trusted_as_template=True
                )
                or {}
            )
        return {name: value for name, value in found.items() if not is_identity(name)}

    @functools.cached_property
    def _host_files(self) -> dict[str, list[Path]]:
        """The files in host_vars of each host that has any."""
        found: dict[str, list[Path]] = {}
        for entry in sorted(self.directory.glob("host_vars/*")):
            for path in _files_in(entry):
                # HOST, HOST.yml, or anything in the directory HOST.
                for name in {entry.name, entry.stem}:
                    found.setdefault(name, []).append(path)
        return found

    def place(self, host: str, *names: str, item: str = "") -> str:
        """``FILE:LINE`` where the first of the variables ``names`` (patterns) is set for ``host``; empty where nowhere.

        With ``item`` the line of the entry of that name in it, where there is one.
        """
        for path in reversed(self.files(host)):
            if is_vault(path):
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            for name in names:
                found = re.search(rf"^{name}[ \t]*:", text, re.MULTILINE)
                if found:
                    at = found.start()
                    if item:
                        entry = re.compile(rf"\bname:[ \t]*[\"']?{re.escape(item)}(?![\w-])").search(text, at)
                        at = entry.start() if entry else at
                    return f"{shown_path(path)}:{text.count(chr(10), 0, at) + 1}"
        return ""

    def files(self, host: str | None = None) -> list[Path]:
        """The files of variables beside the inventory, those that win last; only ``host``'s where one is given."""
        names: list[str] = []
        if host is not None:
            groups = self.inventory.get_host(host).get_groups()
            ordered = sorted(groups, key=lambda group: (group.depth, group.priority, group.name))
            names = [group.name for group in ordered]
        found: list[Path] = []
        for folder, wanted in (("group_vars", names), ("host_vars", [host] if host else [])):
            entries = sorted(self.directory.glob(f"{folder}/*"))
            if host is not None:
                entries = [entry for name in wanted for entry in entries if name in (entry.name, entry.stem)]
            for entry in entries:
                found += _files_in(entry)
        return found


def is_vault(path: Path) -> bool:
    """Whether the file is encrypted as a whole."""
    with path.open("rb") as file:
        return file.read(len(VAULT_HEADER)) == VAULT_HEADER


def is_identity(name: str) -> bool:
    """Whether the variable is a host's own name or address, or what Ansible connects with."""
    return name in IDENTITY or name.startswith("ansible_")


def _files_in(entry: Path) -> list[Path]:
    inside = sorted(entry.rglob("*")) if entry.is_dir() else [entry]
    return [path for path in inside if path.is_file() and not path.name.startswith(".")]


def _loader(locked: bool) -> Any:
    from ansible.parsing.dataloader import DataLoader

    class Loader(DataLoader):  # type: ignore[misc]
        """Takes vault files for empty while they are locked: what is in them is not what is checked here."""

        def load_from_file(self, file_name: str, *args: Any, **kwargs: Any) -> Any:
            if locked and is_vault(Path(file_name)):
                return {}
            return super().load_from_file(file_name, *args, **kwargs)

    return Loader()


@functools.cache
def _start_plugins() -> None:
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader([])
