# Copyright: the coldiron maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""The controller's half of converge: check the declaration, render its templates, make one lean call."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping
from typing import Any

from ansible._internal._templating import _template_vars
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.plugins.action import ActionBase
from ansible.template import Templar, trust_as_template
from ansible_collections.coldiron.cluster.plugins.module_utils.declaration import DEFAULTS, Item, check

# What ansible.builtin.template renders with when it is told nothing else.
# fmt: off
OVERRIDES: Item = {
    "block_start_string": "{%", "block_end_string": "%}", "variable_start_string": "{{",
    "variable_end_string": "}}", "comment_start_string": "{#", "comment_end_string": "#}",
    "trim_blocks": True, "lstrip_blocks": False, "newline_sequence": "\n",
}
# fmt: on
HEADER = "# Written by Ansible (coldiron.cluster.converge).\n"


class Payload(str):
    """What is sent, unseen: Ansible's debug log prints a module's arguments by their repr."""

    def __repr__(self) -> str:
        return f"<{len(self)} characters>"


def line_of(error: BaseException, template: str) -> str:
    """:N, by the syntax error's own line or the first that has the name in question; Ansible does not tell."""
    number = getattr(error.__cause__, "lineno", None)
    names = re.findall(r"'([^']+)'", str(error))
    lines = enumerate(template.splitlines(), 1) if names and not number else ()
    found = (at for at, words in lines if re.search(rf"\b{re.escape(names[-1])}\b", words))
    number = number or next(found, None)
    return f":{number}" if number else ""


class ActionModule(ActionBase):  # type: ignore[misc]
    """One declaration in, one lean call out."""

    _supports_check_mode = True
    _supports_async = False

    def _update_module_args(self, *_args: Any, **_kwargs: Any) -> None:
        """Nothing beside the payload goes into the module's text: what is pasted there could be code."""

    def run(self, tmp: str | None = None, task_vars: Item | None = None) -> Item:
        super().run(tmp, task_vars)
        declared, wrong = check(self._task.args)
        sysctl_file = self._task.args.get("sysctl_file")
        if not sysctl_file and self._task._role:
            sysctl_file = f"/etc/sysctl.d/90-coldiron-{self._task._role.get_name(False)}.conf"
        if declared["sysctl"] and not sysctl_file:
            wrong.append("sysctl_file: is missing (only in a role it has a default)")
        if wrong:
            raise self._mistake("; ".join(wrong))
        wanted: Item = {key: declared[key] for key in ("packages", "groups", "users", "units")}
        wanted["sysctl"] = {item["name"]: " ".join(item["value"].split()) for item in declared["sysctl"]}
        if declared["sysctl"]:
            lines = [f"{name} = {value}\n" for name, value in wanted["sysctl"].items()]
            own: Item = {"label": f"sysctl_file {sysctl_file}", "dest": sysctl_file, "mode": 0o644}
            own |= {"src": None, "content": HEADER + "".join(lines)}
            declared["files"].append(DEFAULTS["files"] | own)
        wanted["paths"] = self._paths(declared, task_vars or {})
        wanted["check"] = bool(self._task.check_mode)
        wanted["diff"] = bool(self._task.diff and not self._task.no_log)
        payload = Payload(base64.b64encode(zlib.compress(json.dumps(wanted).encode())).decode())
        module = "coldiron.cluster.converge"
        result: Item = self._execute_module(module, {"payload": payload}, task_vars=task_vars)
        result.pop("invocation", None)
        return result

    def _mistake(self, why: str) -> AnsibleError:
        return AnsibleActionFail(f"{self._task.get_path()}: {why}")

    def _paths(self, declared: Mapping[str, list[Item]], task_vars: Item) -> list[Item]:
        """Directories, files and links in one list, rendered, each with the digest units remember it by."""
        entries = [dict(item, kind="directory") for item in declared["directories"]]
        templars: dict[str, Templar] = {}
        for item in declared["files"]:
            content = self._content(item, task_vars, templars) if item["state"] == "file" else b""
            entry = dict(item, kind="file", path=item["dest"], content=content.decode("latin-1"))
            entries.append({key: value for key, value in entry.items() if key not in ("dest", "src")})
        entries += [dict(item, kind="link") for item in declared["links"]]
        for entry in entries:
            seen = [entry.get(key) for key in ("kind", "state", "owner", "group", "mode", "content", "src")]
            entry["stamp"] = hashlib.sha256(json.dumps(seen).encode()).hexdigest()
        return entries

    def _content(self, item: Item, task_vars: Item, templars: dict[str, Templar]) -> bytes:
        src, source = item["src"], ""
        if src is None:
            return str(item["content"]).encode(errors="surrogateescape")
        for folder in ("templates",) if src.endswith(".j2") else ("templates", "files"):
            with contextlib.suppress(AnsibleError):
                source = source or self._find_needle(folder, src)
        if not os.path.isfile(source):
            raise self._mistake(
                f"{item['label']}: src: {src} is not among the templates (or files) of the role"
            )
        if src.endswith(".j2"):
            return self._render(item, source, task_vars, templars).encode(errors="surrogateescape")
        real = self._loader.get_real_file(source)  # decrypts what ansible-vault has encrypted
        with open(real, "rb") as stream:
            content = stream.read()
        self._loader.cleanup_tmp_file(real)
        return content

    def _render(self, item: Item, source: str, task_vars: Item, templars: dict[str, Templar]) -> str:
        """As ansible.builtin.template renders: its search path, trust, newline rules and variables."""
        about = {"path": item["src"], "fullpath": source, "dest_path": item["dest"]}
        managed = "ansible_managed" not in task_vars
        known = _template_vars.generate_ansible_template_vars(**about, include_ansible_managed=managed)
        variables = {**task_vars, **known}
        here = os.path.dirname(source)
        if here not in templars:  # making one costs as much as rendering
            roots = [*task_vars.get("ansible_search_path", []), self._loader.get_basedir(), here]
            search = [os.path.join(root, sub) for root in roots for sub in ("templates", "")]
            templars[here] = self._templar.copy_with_new_env(searchpath=search, available_variables=variables)
        templars[here].available_variables = variables
        template = trust_as_template(self._loader.get_text_file_contents(source))
        try:
            rendered = templars[here].template(template, escape_backslashes=False, overrides=OVERRIDES)
        except AnsibleError as error:
            raise self._mistake(f"{item['label']}: {source}{line_of(error, template)}: {error}") from error
        return "" if rendered is None else str(rendered)
