"""A BMC behind Redfish, through modules that others keep: community.general.redfish_* and ansible.builtin.uri.

``call`` runs a module and returns its result; this file knows their arguments, and where their answers cannot be
believed: redfish_info says ok where a part was refused, and redfish_command cuts the power where a BMC has no shutdown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from coldiron.provision.bmc_facts import Facts, read_facts
from coldiron.provision.bmc_plan import Step
from coldiron.provision.bmc_trouble import Trouble, Where, trouble

Call = Callable[[str, dict[str, Any], bool], Mapping[str, Any]]

INFO: Final = "community.general.redfish_info"
COMMAND: Final = "community.general.redfish_command"
CONFIG: Final = "community.general.redfish_config"
URI: Final = "ansible.builtin.uri"
# Pages of a log that are read; a log that is longer is cut, and says so.
_PAGES: Final = 20
_PORT: Final = 443
# Parts of redfish_info's answer, and the link that a system has which has such a part.
_PARTS: Final = (("nic", "EthernetInterfaces"), ("bios_attribute", "Bios"))
# Health as ipmitool calls the state of a sensor, so that one rule reads both.
_STATES: Final = {"OK": "ok", "Warning": "nc", "Critical": "cr"}


class Redfish:
    """One machine behind one Redfish service. ``password`` goes to the modules alone."""

    def __init__(
        self, call: Call, where: Where, password: str, *, port: int = 0, timeout: int = 30, ca: str = ""
    ) -> None:
        self.where = where
        self._call = call
        self._password = password
        self._timeout = timeout
        self._ca = ca or where.ca
        host = f"[{where.address}]" if ":" in where.address else where.address
        self._base = host if port in (0, _PORT) else f"{host}:{port}"
        self._system = ""

    def facts(
        self, *, asset: bool = False, bios: bool = False, order: bool = False, resets: bool = False
    ) -> Facts:
        """What the BMC says now. ``asset`` adds the NICs, ``bios``, ``order`` and ``resets`` what their names say."""
        commands = ["GetSystemInventory", "GetBootOverride"]
        commands += ["GetNicInventory"] if asset else []
        commands += ["GetBiosAttributes"] if bios else []
        commands += ["GetBootOrder"] if order else []
        facts = self._info("Systems", commands)
        if _unanswered(facts, "system"):
            raise self._in_part("system")
        self._system = _system_of(facts)
        missing = [(name, key) for name, key in _PARTS if _unanswered(facts, name)]
        resource = self._get(self._system) if bios or resets or missing else None
        for name, key in missing:
            # What was refused for the moment and what is not there look alike to the module.
            if resource is not None and key in resource:
                raise self._in_part(name)
        settings = self._settings(resource) if bios and resource else None
        return read_facts({**facts, **(self._registry() if bios else {})}, settings, resource)

    def send(self, step: Step) -> None:
        """Carry out one step of a plan."""
        if step.command == "SetBiosAttributes":
            self._change(CONFIG, step.command, {"bios_attributes": dict(step.attributes)})
        elif step.command == "SetBootOrder":
            self._change(CONFIG, step.command, {"boot_order": list(step.boot_order)})
        elif step.command == "SetOneTimeBoot":
            self._change(COMMAND, step.command, {"bootdevice": step.target})
        else:
            self._change(COMMAND, step.command, {})

    def logs(self) -> dict[str, str]:
        """The event logs of machine and BMC, as Redfish's own JSON: text by file name, ``redfish-…``."""
        self.facts()
        system = self._get(self._system)
        owners = [system]
        for link in (system.get("Links") or {}).get("ManagedBy") or []:
            owners.append(self._get(str(link.get("@odata.id"))))
        found: dict[str, str] = {}
        for owner in owners:
            for uri in self._members(owner.get("LogServices")):
                service = self._get(uri)
                name = "-".join(re.findall(r"[\w.]+", f"{owner.get('Id', '')} {service.get('Id', '')}"))
                entries = list(self._entries(service.get("Entries")))
                found[f"redfish-{name}.json"] = json.dumps({"Members": entries}, indent=1) + "\n"
        return found

    def sensors(self) -> str:
        """Temperatures, fans and power supplies, a line each, in the columns of ``ipmitool sensor``."""
        facts = self._info("Chassis", ["GetChassisThermals", "GetFanInventory", "GetPsuInventory"])
        lines = []
        for fact, unit in (("thermals", "degrees C"), ("fan", "RPM"), ("psu", "Watts")):
            found = (facts.get(fact) or {}).get("entries") or []
            lines += [_line(fields, unit) for fields in found if isinstance(fields, Mapping)]
        return "".join(lines)

    def _info(self, category: str, commands: list[str]) -> dict[str, Any]:
        result = self._run(INFO, {"category": [category], "command": commands, **self._access()}, reads=True)
        facts = result.get("redfish_facts")
        if not isinstance(facts, dict):
            raise trouble(self.where, "TypeError: no redfish_facts")
        return facts

    def _registry(self) -> dict[str, Any]:
        """What the BIOS says of its attributes. Many BMCs have no registry, and the module dies of some."""
        try:
            return self._info("Systems", ["GetBiosRegistries"])
        except Trouble:
            return {}

    def _change(self, module: str, command: str, given: dict[str, Any]) -> None:
        self._run(
            module, {"category": "Systems", "command": [command], **given, **self._access()}, reads=False
        )

    def _access(self) -> dict[str, Any]:
        return {
            "baseuri": self._base,
            "username": self.where.user,
            "password": self._password,
            "timeout": self._timeout,
            # The modules' own default trusts anybody.
            "validate_certs": True,
            **({"ca_path": self._ca} if self._ca else {}),
        }

    def _get(self, path: str) -> dict[str, Any]:
        """One resource. What redfish_info does not show is read with the module for any web service."""
        given = {
            "url": f"https://{self._base}{path}",
            "url_username": self.where.user,
            "url_password": self._password,
            "force_basic_auth": True,
            "validate_certs": True,
            "follow_redirects": "none",
            "return_content": True,
            "timeout": self._timeout,
            **({"ca_path": self._ca} if self._ca else {}),
        }
        result = self._run(URI, given, reads=True)
        found = result.get("json")
        if not isinstance(found, dict):
            raise trouble(self.where, f"JSONDecodeError in {path}")
        return found

    def _run(self, module: str, given: dict[str, Any], *, reads: bool) -> Mapping[str, Any]:
        result = self._call(module, given, reads)
        if result.get("failed"):
            status = result.get("status")
            said = f"HTTP Error {status} " if isinstance(status, int) and status >= 400 else ""
            said += " ".join(
                str(result.get(key) or "") for key in ("msg", "module_stderr", "module_stdout", "exception")
            )
            raise trouble(self.where, said, self._password)
        return result

    def _in_part(self, name: str) -> Trouble:
        return Trouble(self.where.told(f"it answers only in part ({name} is missing)"), passing=True)

    def _settings(self, resource: Mapping[str, Any]) -> dict[str, Any] | None:
        """The resource of BIOS values that wait for a start; None where the BMC has none."""
        link = resource.get("Bios")
        if not isinstance(link, Mapping):
            return None
        settings = self._get(str(link.get("@odata.id"))).get("@Redfish.Settings")
        held = settings.get("SettingsObject") if isinstance(settings, Mapping) else None
        return self._get(str(held.get("@odata.id"))) if isinstance(held, Mapping) else None

    def _members(self, link: Any) -> list[str]:
        if not isinstance(link, Mapping) or "@odata.id" not in link:
            return []
        members = self._get(str(link["@odata.id"])).get("Members") or []
        return [str(one["@odata.id"]) for one in members if isinstance(one, Mapping) and "@odata.id" in one]

    def _entries(self, link: Any) -> Iterator[Any]:
        uri = str(link["@odata.id"]) if isinstance(link, Mapping) and "@odata.id" in link else ""
        for _ in range(_PAGES):
            if not uri:
                return
            page = self._get(uri)
            for entry in page.get("Members") or []:
                # Some list their entries by reference alone.
                lone = isinstance(entry, Mapping) and set(entry) == {"@odata.id"}
                yield self._get(str(entry["@odata.id"])) if lone else entry
            uri = str(page.get("Members@odata.nextLink") or "")
        yield {"Severity": "OK", "Message": f"coldiron: the log goes on; {_PAGES} pages were read"}


def _unanswered(facts: Mapping[str, Any], name: str) -> bool:
    part = facts.get(name)
    return isinstance(part, Mapping) and part.get("ret") is False


def _system_of(facts: Mapping[str, Any]) -> str:
    entries = (facts.get("system") or {}).get("entries") or []
    try:
        return str(entries[0][0]["system_uri"])
    except (IndexError, KeyError, TypeError):
        return ""


def _line(fields: Mapping[str, Any], unit: str) -> str:
    reading = next(
        (fields[key] for key in ("ReadingCelsius", "Reading", "LastPowerOutputWatts") if key in fields), "na"
    )
    status = fields.get("Status") or {}
    health = status.get("Health") if isinstance(status, Mapping) else None
    name = str(fields.get("Name") or fields.get("FanName") or fields.get("MemberId") or "sensor")
    limits = [
        str(fields.get(f"{side}Threshold{level}", "na"))
        for side, level in (
            ("Lower", "Fatal"), ("Lower", "Critical"), ("Lower", "NonCritical"),
            ("Upper", "NonCritical"), ("Upper", "Critical"), ("Upper", "Fatal"),
        )
    ]  # fmt: skip
    columns = [
        name,
        str(reading),
        str(fields.get("ReadingUnits") or unit),
        _STATES.get(str(health), "na"),
        *limits,
    ]
    return " | ".join(" ".join(column.replace("|", "/").split()) for column in columns) + "\n"
