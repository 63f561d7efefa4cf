#!/usr/bin/python
"""What a cluster of Elasticsearch knows of the data that it is sent: templates, lifecycle, snapshots."""

from __future__ import annotations

DOCUMENTATION = r"""
module: elasticsearch_content
short_description: Index templates, lifecycle policies, snapshot repositories and data streams as declared
description:
  - Asks the server for each thing, and puts only what is not there as declared.
  - What it has put carries a digest of the declaration, so that anything that was taken out of it is found too.
  - A server that has no lifecycle management says so when it is asked; that is told of, and nothing else is done.
extends_documentation_fragment:
  - coldiron.cluster.elasticsearch
options:
  lifecycles:
    description: Policies of lifecycle management (ILM) by name.
    type: dict
    default: {}
  templates:
    description: Composable index templates by name.
    type: dict
    default: {}
  snapshot_repositories:
    description: Snapshot repositories by name.
    type: dict
    default: {}
  snapshot_policies:
    description: Policies of snapshot lifecycle management (SLM) by name.
    type: dict
    default: {}
  data_streams:
    description: Data streams; one that is not there is made.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: It asks and puts nothing. Of a server that is not there yet everything would be put.
  diff_mode:
    support: full
    description: What changes, in words.
author:
  - The coldiron maintainers
"""

EXAMPLES = r"""
- name: Elasticsearch | Ensure logs have their template
  coldiron.cluster.elasticsearch_content:
    address: "{{ elasticsearch_address }}"
    ca: /etc/elasticsearch/certs/ca.crt
    user: coldiron-admin
    password: "{{ elasticsearch_admin_password }}"
    templates: {logs: {index_patterns: ["logs-coldiron-*"], data_stream: {}}}
    data_streams: [logs-coldiron-demo]
"""

RETURN = r"""
changes:
  description: What was put, or would be in check mode.
  returned: always
  type: list
  elements: str
  sample: ["template logs"]
unavailable:
  description: What is declared, and the server cannot do.
  returned: always
  type: list
  elements: str
  sample: ["lifecycle management (ILM)"]
"""

import hashlib
import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.coldiron.cluster.plugins.module_utils import elasticsearch as es

MARK = "coldiron"


def argument_spec() -> dict[str, Any]:
    """Return the module's arguments."""
    return {
        **es.CONNECTION,
        "lifecycles": {"type": "dict", "default": {}},
        "templates": {"type": "dict", "default": {}},
        "snapshot_repositories": {"type": "dict", "default": {}},
        "snapshot_policies": {"type": "dict", "default": {}},
        "data_streams": {"type": "list", "elements": "str", "default": []},
    }


def digest(body: dict[str, Any]) -> str:
    """What tells one declaration from another."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def marked(body: dict[str, Any]) -> dict[str, Any]:
    """The declaration with its digest in it."""
    return {**body, "_meta": {MARK: digest(body)}}


class Content:
    """One call."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.wanted = module, module.params
        self.server = es.server_of(module)
        self.changes: list[str] = []
        self.unavailable: list[str] = []

    def get(self, path: str) -> es.Answer:
        answer = self.server.ask("GET", path)
        if answer.status not in (200, 404) and not self.module.check_mode:
            self.module.fail_json(msg=f"GET {path}: {answer.why}")
        return answer

    def put(self, words: str, method: str, path: str, body: Any) -> None:
        self.changes.append(words)
        if self.module.check_mode:
            return
        answer = self.server.ask(method, path, body)
        if answer.status not in (200, 201) or (isinstance(answer.body, dict) and answer.body.get("errors")):
            self.module.fail_json(msg=f"{words}: the server refused: {answer.why}")

    def can(self, kind: str, what: str) -> bool:
        """Whether the server has a part that not every build of it has."""
        answer = self.server.ask("GET", f"/_{kind}/status")
        if answer.status in es.UNKNOWN:
            self.unavailable.append(what)
        return answer.status == 200 or (answer.status == 0 and self.module.check_mode)

    def policies(self, kind: str, what: str, wanted: dict[str, Any]) -> None:
        if not wanted or not self.can(kind, what):
            return
        for name, body in wanted.items():
            answer = self.get(f"/_{kind}/policy/{name}")
            found = answer.body.get(name, {}).get("policy", {}) if answer.status == 200 else {}
            if kind == "ilm":
                policy = marked(body)
                if found.get("_meta", {}).get(MARK) != policy["_meta"][MARK]:
                    self.put(f"{kind} policy {name}", "PUT", f"/_ilm/policy/{name}", {"policy": policy})
            elif not es.covers(body, found):
                self.put(f"{kind} policy {name}", "PUT", f"/_slm/policy/{name}", body)

    def templates(self) -> None:
        for name, body in self.wanted["templates"].items():
            if "lifecycle management (ILM)" in self.unavailable:
                wanted = marked(without_lifecycle(body))
            else:
                wanted = marked(body)
            answer = self.get(f"/_index_template/{name}")
            listed = answer.body["index_templates"] if answer.status == 200 else []
            meta = (listed[0]["index_template"].get("_meta") or {}) if listed else {}
            if meta.get(MARK) != wanted["_meta"][MARK]:
                self.put(f"template {name}", "PUT", f"/_index_template/{name}", wanted)

    def repositories(self) -> None:
        for name, body in self.wanted["snapshot_repositories"].items():
            answer = self.get(f"/_snapshot/{name}")
            if answer.status != 200 or not es.covers(body, answer.body.get(name)):
                self.put(f"snapshot repository {name}", "PUT", f"/_snapshot/{name}", body)

    def streams(self) -> None:
        for name in self.wanted["data_streams"]:
            if self.get(f"/{name}/_mapping").status != 200:
                # Builds without the API of data streams make one of a first document too.
                first = {"@timestamp": 0, "message": "coldiron: this data stream begins here"}
                lines = [{"create": {}}, first]
                self.put(f"data stream {name}", "POST", f"/{name}/_bulk", lines)

    def apply(self) -> None:
        self.policies("ilm", "lifecycle management (ILM)", self.wanted["lifecycles"])
        self.templates()
        self.repositories()
        self.policies("slm", "snapshot lifecycle management (SLM)", self.wanted["snapshot_policies"])
        self.streams()


def without_lifecycle(body: dict[str, Any]) -> dict[str, Any]:
    """A template for a server that would not know what its policy is."""
    copied: dict[str, Any] = json.loads(json.dumps(body))
    copied.get("template", {}).get("settings", {}).get("index", {}).pop("lifecycle", None)
    return copied


def main() -> None:
    """Ask, put what is missing, say what cannot be."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    content = Content(module)
    content.apply()
    for part in content.unavailable:
        module.warn(f"this server has no {part}: what is declared of it is left out, and nothing does it.")
    result: dict[str, Any] = {
        "changed": bool(content.changes),
        "changes": content.changes,
        "unavailable": content.unavailable,
    }
    if content.changes:
        result["diff"] = {"before": "", "after": "\n".join(content.changes) + "\n"}
    module.exit_json(**result)


if __name__ == "__main__":
    main()
