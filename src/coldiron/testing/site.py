"""An inventory as Ansible itself sees it, loaded once in this process: hosts, roles, variables, secrets.

Variables are resolved one at a time, so that a secret or fact nobody asks for is not needed. Precedence is
Ansible's: role defaults, inventory, playbook group_vars, play, role vars, what is given with the role.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from coldiron.errors import ColdironError, ExitCode
from coldiron.run.survey import locked_out
from coldiron.secrets.process import trust
from coldiron.testing.secret import Redactor, is_secret_name, leaves, wrap
from coldiron.testing.ssh import Connections
from coldiron.testing.stages import (
    Play,
    RoleUse,
    find_collection,
    load_yaml,
    read_plays,
    roles_in_order,
)

VAULT_HEADER = "$ANSIBLE_VAULT"
ARGUMENTS = "<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>"


def plain(value: Any) -> Any:
    """Return a templated value as Python's own types, without Ansible's tags on them."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return value


class Variables(Mapping[str, Any]):
    """Variables that are templated when they are asked for; secrets come back as Secret."""

    def __init__(self, site: Site, host: str, role: str | None, names: tuple[str, ...]) -> None:
        self._site = site
        self._host = host
        self._role = role
        self._names = names
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = self._site.resolve(self._host, self._role, name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names or name in self._site.raw(self._host, self._role)

    def __repr__(self) -> str:
        return f"<variables of {self._role or 'the inventory'} on {self._host}>"


class Site:
    """One inventory (one or more sources, as Ansible's -i) together with the collection's stages."""

    def __init__(self, sources: tuple[Path, ...], collection: Path | None = None) -> None:
        self.sources = sources
        self.collection = collection or find_collection()
        self.redactor = Redactor()
        self._secret_options: dict[str, frozenset[str]] = {}
        self._facts_known: set[str] = set()
        self._raw: dict[tuple[str, str | None], dict[str, Any]] = {}
        #: Hosts that do not answer: no role counts on them.
        self.silent: set[str] = set()
        for source in sources:
            if not source.exists():
                raise ColdironError(f"inventory {source} does not exist: give one with --inventory")
        self.plays: list[Play] = read_plays(self.collection / "playbooks" / "site.yml")
        self._load()
        self.connections = Connections(self)

    def _load(self) -> None:
        from ansible.errors import AnsibleError
        from ansible.inventory.manager import InventoryManager
        from ansible.parsing.dataloader import DataLoader
        from ansible.vars.hostvars import HostVars
        from ansible.vars.manager import VariableManager

        _start_plugin_loader()
        self._loader = DataLoader()
        self._loader.set_basedir(str(self.collection / "playbooks"))
        try:
            self._unlock()
            self._inventory = InventoryManager(
                loader=self._loader, sources=[str(source) for source in self.sources]
            )
        except AnsibleError as error:
            raise ColdironError(f"inventory {self.sources[0]}: {error}") from error
        self._variables = VariableManager(loader=self._loader, inventory=self._inventory)
        HostVars(self._inventory, self._variables, self._loader)
        if not self._inventory.get_hosts("cluster"):
            raise ColdironError(f"inventory {self.sources[0]} has no host in group cluster: give another")
        for path in self._vault_files():
            try:
                self.redactor.learn(plain(self._loader.load_from_file(str(path), unsafe=True)))
            except AnsibleError as error:
                raise locked_out(self._folder(self.sources[0]), path) from error

    def _unlock(self) -> None:
        """Give the loader the vault password; without one, only an inventory that has a vault is refused."""
        from ansible import constants
        from ansible.cli import CLI
        from ansible.errors import AnsibleError

        # The checkout's password program would say in its own words what is said below.
        os.environ["COLDIRON_VAULT_PASSWORD_QUIET"] = "1"
        files = self._password_files()
        ids = [] if files else constants.DEFAULT_VAULT_IDENTITY_LIST
        try:
            secrets = CLI.setup_vault_secrets(
                self._loader, ids, vault_password_files=files, auto_prompt=False, initialize_context=False
            )
        except AnsibleError:
            if self._vault_files():
                raise
            secrets = []
        self._loader.set_vault_secrets(secrets)
        trust(secrets)

    def _password_files(self) -> list[str]:
        """Return the vault password's file: the environment's, else the one beside the inventory, or none."""
        if os.environ.get("ANSIBLE_VAULT_PASSWORD_FILE"):
            return [os.environ["ANSIBLE_VAULT_PASSWORD_FILE"]]
        files = [self._folder(source) / ".vault-password" for source in self.sources]
        return [str(path) for path in files if path.is_file()]

    @staticmethod
    def _folder(source: Path) -> Path:
        return source if source.is_dir() else source.parent

    def _vault_files(self) -> list[Path]:
        found = []
        for source in self.sources:
            for path in sorted(self._folder(source).glob("*_vars/**/*")):
                if path.is_file():
                    with path.open("rb") as stream:
                        if stream.read(len(VAULT_HEADER)) == VAULT_HEADER.encode():
                            found.append(path)
        return found

    def hosts(self, pattern: str = "cluster") -> list[str]:
        """Return the names of the hosts that an Ansible pattern matches, in the inventory's order."""
        return [str(host.name) for host in self._inventory.get_hosts(pattern)]

    def groups(self) -> list[str]:
        """Return the names of the inventory's groups."""
        return [str(name) for name in self._inventory.groups]

    @functools.cached_property
    def roles(self) -> list[str]:
        """The roles of the stages, in order."""
        return roles_in_order(self.plays)

    def hosts_of_role(self, role: str) -> list[str]:
        """Return the hosts whose plays use the role, conditions on that use being true."""
        found: dict[str, None] = {}
        for play, use in self._uses(role):
            for host in self.hosts(play.hosts):
                if host not in found and host not in self.silent and self._holds(host, use):
                    found[host] = None
        return list(found)

    def _uses(self, role: str) -> Iterator[tuple[Play, RoleUse]]:
        for play in self.plays:
            for use in play.roles:
                if use.role == role:
                    yield play, use

    def _holds(self, host: str, use: RoleUse) -> bool:
        from ansible.template import trust_as_template

        return all(
            self._template(
                host,
                use.role,
                lambda templar, text: templar.evaluate_conditional(text),
                text,
            )
            for text in map(trust_as_template, use.conditions)
        )

    def raw(self, host: str, role: str | None) -> dict[str, Any]:
        """Return a host's variables in a role's scope (None: the inventory's alone), not yet templated."""
        key = (host, role)
        if key not in self._raw:
            self._raw[key] = self._merge(host, role)
        return self._raw[key]

    def _merge(self, host: str, role: str | None) -> dict[str, Any]:
        target = self._inventory.get_host(host)
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        if role is not None:
            play, use = next(
                ((play, use) for play, use in self._uses(role) if host in self.hosts(play.hosts)),
                (None, RoleUse(role)),
            )
            # In one play the roles see each other's defaults; a role's own win.
            for name in [*(other.role for other in play.roles if play), role] if play else [role]:
                merged |= self._role_file(name, "defaults")
                own |= self._role_file(name, "vars")
            own = {**(play.variables if play else {}), **own, **use.variables}
            own["role_name"] = role
            own["role_path"] = str(self.collection / "roles" / role)
        merged |= self._variables.get_vars(host=target)
        return merged | own

    @functools.cache  # noqa: B019 - a Site lives as long as its process
    def _role_file(self, role: str, kind: str) -> Mapping[str, Any]:
        path = self.collection / "roles" / role / kind / "main.yml"
        if not path.is_file():
            return {}
        content = self._loader.load_from_file(str(path), unsafe=True, trusted_as_template=True)
        return content if isinstance(content, Mapping) else {}

    def secret_options(self, role: str) -> frozenset[str]:
        """Return the options that the role's argument spec marks ``no_log``."""
        if role not in self._secret_options:
            path = self.collection / "roles" / role / "meta" / "argument_specs.yml"
            content = load_yaml(path) if path.is_file() else {}
            options = ((content or {}).get("argument_specs") or {}).get("main", {}).get("options") or {}
            self._secret_options[role] = frozenset(
                name for name, option in options.items() if "no_log: true" in _flat(option)
            )
        return self._secret_options[role]

    def resolve(self, host: str, role: str | None, name: str) -> Any:
        """Return one variable of a host, templated: a Secret when it is one; KeyError when not defined."""
        raw = self.raw(host, role)
        if name not in raw:
            raise KeyError(f"{name} is not a variable of {host}" + (f" in role {role}" if role else ""))
        value = plain(self._template(host, role, lambda templar, item: templar.template(item), raw[name]))
        if is_secret_name(name) or (role is not None and name in self.secret_options(role)):
            self.redactor.learn(value)
            return wrap(value)
        return value

    def _template(self, host: str, role: str | None, act: Any, value: Any) -> Any:
        from ansible.errors import AnsibleError
        from ansible.template import Templar

        if host not in self._facts_known and _speaks_of_facts(value):
            self._gather(host)
        try:
            return act(Templar(loader=self._loader, variables=self.raw(host, role)), value)
        except AnsibleError:
            if host in self._facts_known:
                raise
        # Something behind the value wants to know the node's operating system: ask the node, once.
        self._gather(host)
        return act(Templar(loader=self._loader, variables=self.raw(host, role)), value)

    def _gather(self, host: str) -> None:
        self._facts_known.add(host)
        # The very module that the stages begin with, so that its facts are the same.
        module = self.collection / "plugins" / "modules" / "os_facts.py"
        source = module.read_text(encoding="utf-8").replace(ARGUMENTS, "{}")
        command = "python3 -"
        if self.connections.watch.read_only:
            from coldiron.testing.backend import read_only

            command = read_only(command)
        finished = self.connections.run(host, command, source=source)
        if finished.returncode != 0:
            raise ColdironError(
                f"{host} does not answer over ssh: {finished.stderr.strip()}",
                ExitCode.ENVIRONMENT,
            )
        self._variables.set_host_facts(host, json.loads(finished.stdout)["ansible_facts"])
        self._raw = {key: value for key, value in self._raw.items() if key[0] != host}

    def assume(self, host: str, facts: Mapping[str, Any]) -> None:
        """Take ``facts`` for the host's, which is not asked: it may not be installed yet."""
        self._facts_known.add(host)
        self._variables.set_host_facts(host, dict(facts))
        self._raw = {key: value for key, value in self._raw.items() if key[0] != host}

    def worked_out(self, host: str, role: str | None, value: Any) -> Any:
        """Return a value with the expressions in it worked out, in a role's scope. Raises AnsibleError."""
        return plain(self._template(host, role, lambda templar, item: templar.template(item), value))

    def tasks(self, path: Path) -> list[dict[str, Any]]:
        """Return the tasks of a file, their expressions not worked out."""
        return list(self._loader.load_from_file(str(path), unsafe=True, trusted_as_template=True) or [])

    def options(self, host: str, role: str) -> Variables:
        """Return a role's options on a host; any other variable in the role's scope can be asked for too."""
        return Variables(self, host, role, tuple(self._role_file(role, "defaults")))

    def hostvars(self, host: str) -> Variables:
        """Return a host's variables from the inventory and the playbooks' group_vars."""
        return Variables(self, host, None, tuple(self.raw(host, None)))

    def secret_values(self) -> list[str]:
        """Return every string in the inventory's vault files. Never print them."""
        values: list[str] = []
        for path in self._vault_files():
            values += leaves(plain(self._loader.load_from_file(str(path), unsafe=True)))
        return values


def _flat(option: Any) -> str:
    """Return an option's spec as one text in which a nested ``no_log: true`` can be found."""
    if isinstance(option, Mapping):
        return " ".join(f"{key}: {str(item).lower()} {_flat(item)}" for key, item in option.items())
    return ""


def _speaks_of_facts(value: Any) -> bool:
    return any("ansible_facts" in text or "os_data" in text for text in leaves(value))


@functools.cache
def _start_plugin_loader() -> None:
    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader([])


@functools.cache
def load_site(sources: tuple[Path, ...]) -> Site:
    """Return the Site of these inventory sources; loaded once a process, so that a fork has it already."""
    return Site(sources)
