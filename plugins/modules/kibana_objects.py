#!/usr/bin/python
"""What people see in Kibana: data views, searches and whatever else it exports."""

from __future__ import annotations

DOCUMENTATION = r"""
module: kibana_objects
short_description: Data views, searches and other saved objects of Kibana as declared
description:
  - Waits until Kibana says that it is available, asks it for each object, and imports only those that are not there as
    declared, through its own API (C(_export), C(_import)).
  - What Kibana adds to an object does not count. What it writes otherwise than it was told is said as a warning, since
    each run would write it anew.
  - Objects that are not declared are people's own, and left alone.
extends_documentation_fragment:
  - coldiron.cluster.elasticsearch
options:
  port:
    description: The port of its HTTP interface.
    type: int
    default: 5601
  objects:
    description: The objects, each as Kibana exports it. What is referred to is there, or among them.
    type: list
    elements: dict
    required: true
  default_view:
    description: The data view that people see first, where nobody has chosen one. Empty leaves it to Kibana.
    type: str
    default: ""
  timeout_seconds:
    description: How long Kibana may take to be available.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
    description: It asks and imports nothing. Into a Kibana that is not there yet everything would be imported.
  diff_mode:
    support: full
    description: What changes, in words.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Kibana | Ensure the logs have their data view
  coldiron.cluster.kibana_objects:
    address: "{{ kibana_address }}"
    ca: /etc/kibana/coldiron/ca.pem
    user: coldiron-kibana-admin
    password: "{{ kibana_admin_password }}"
    objects:
      - {type: index-pattern, id: logs, attributes: {title: "logs-*", timeFieldName: "@timestamp"}, references: []}
    default_view: logs
"""

RETURN = r"""
changes:
  description: What was imported or set, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["search coldiron-xid"]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils import elasticsearch as es
from ansible_collections.coldiron.cluster.plugins.module_utils import kibana as kb

USABLE = ("available", "degraded")
MISSING = 404


def argument_spec() -> dict[str, Any]:
    """Return the module's arguments."""
    return {
        **es.CONNECTION,
        "port": {"type": "int", "default": 5601},
        "objects": {"type": "list", "elements": "dict", "required": True},
        "default_view": {"type": "str", "default": ""},
        "timeout_seconds": {"type": "int", "default": 300},
    }


def named(one: dict[str, Any]) -> str:
    """An object in words."""
    kind = "data view" if one["type"] == "index-pattern" else one["type"]
    return f"{kind} {one['id']}"


def complaint(answer: es.Answer) -> str:
    """Why Kibana cannot be worked with; empty where it can."""
    if answer.status == 0 or not isinstance(answer.body, dict):
        return f"it does not answer ({answer.why})"
    overall = (answer.body.get("status") or {}).get("overall") or {}
    if overall.get("level") in USABLE:
        return ""
    if not overall:
        return f"it does not say how it is ({answer.why})"
    return f"it is {overall.get('level')}: {overall.get('summary', 'it does not say why')}"


class Objects:
    """One call."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.wanted = module, module.params
        self.kibana = kb.Kibana(*(self.wanted[key] for key in es.CONNECTION))
        self.changes: list[str] = []

    def available(self) -> bool:
        """Wait until Kibana is there; in check mode it is not waited for."""
        seconds = 0 if self.module.check_mode else self.wanted["timeout_seconds"]
        why = es.wait(lambda: complaint(self.kibana.ask("GET", "/api/status")), seconds, 2.0)
        if why and not self.module.check_mode:
            self.module.fail_json(
                msg=f"Kibana at {self.kibana.url} was not available within {seconds} s: {why}. "
                "Its own words: journalctl -u kibana.service"
            )
        return not why

    def there(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Those of the wanted objects that Kibana has, as it has them."""
        asked = [{"type": one["type"], "id": one["id"]} for one in self.wanted["objects"]]
        # A first answer names those that are not there; the second has the others.
        away = self.away(answer := self.export(asked))
        asked = [one for one in asked if (one["type"], one["id"]) not in away]
        if away and asked:
            answer = self.export(asked)
        if not asked:
            return {}
        if answer.status != 200:
            self.module.fail_json(msg=f"Kibana does not say what it has: {self.why(answer)}")
        found = answer.body if isinstance(answer.body, list) else [answer.body]
        return {(one["type"], one["id"]): one for one in found if "type" in one}

    def export(self, asked: list[dict[str, str]]) -> es.Answer:
        """Ask for objects by type and id."""
        body = {"objects": asked, "includeReferencesDeep": False, "excludeExportDetails": True}
        return self.kibana.ask("POST", "/api/saved_objects/_export", body)

    @staticmethod
    def away(answer: es.Answer) -> set[tuple[str, str]]:
        """The objects that an answer says are not there."""
        body = answer.body if isinstance(answer.body, dict) else {}
        told = (body.get("attributes") or {}).get("objects") or []
        return {
            (one["type"], one["id"]) for one in told if (one.get("error") or {}).get("statusCode") == MISSING
        }

    @staticmethod
    def why(answer: es.Answer) -> str:
        """What Kibana says against it."""
        body = answer.body
        if isinstance(body, dict) and body.get("message"):
            return f"{answer.status}: {body['message']}"
        return answer.why

    def bring(self) -> None:
        """Import what is not there as declared."""
        found = self.there()
        due = [
            one
            for one in self.wanted["objects"]
            if kb.same(one, found.get((one["type"], one["id"])))
        ]  # fmt: skip
        self.changes += [named(one) for one in due]
        if not due or self.module.check_mode:
            return
        answer = self.kibana.send("/api/saved_objects/_import?overwrite=true", due)
        if answer.status != 200 or not isinstance(answer.body, dict):
            self.module.fail_json(msg=f"Kibana takes none of it: {self.why(answer)}")
        for error in answer.body.get("errors") or []:
            kind = (error.get("error") or {}).get("type", "no reason")
            self.module.fail_json(msg=f"{named(error)}: Kibana does not take it: {kind}")
        found = self.there()
        for one in due:
            place = kb.same(one, found.get((one["type"], one["id"])))
            if place:
                self.module.warn(
                    f"{named(one)}: this Kibana keeps {place} otherwise than it was told; each run will write it "
                    "anew. Write it as Kibana exports it."
                )

    def default(self) -> None:
        """Set the data view that people see first, where there is none."""
        view = self.wanted["default_view"]
        if not view:
            return
        answer = self.kibana.ask("GET", "/api/data_views/default")
        if answer.status != 200:
            self.module.fail_json(msg=f"Kibana does not say its default data view: {self.why(answer)}")
        if answer.body.get("data_view_id"):
            return
        self.changes.append(f"default data view {view}")
        if not self.module.check_mode:
            answer = self.kibana.ask("POST", "/api/data_views/default", {"data_view_id": view})
            if answer.status != 200:
                self.module.fail_json(msg=f"Kibana takes no default data view: {self.why(answer)}")

    def apply(self) -> None:
        """Bring what is missing; into a Kibana that is not there yet all of it."""
        if self.available():
            self.bring()
            self.default()
        else:
            self.changes += [named(one) for one in self.wanted["objects"]]


def main() -> None:
    """Ask, import what is missing."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    objects = Objects(module)
    objects.apply()
    result: dict[str, Any] = {"changed": bool(objects.changes), "changes": objects.changes}
    if objects.changes:
        result["diff"] = {"before": "", "after": "\n".join(objects.changes) + "\n"}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
