"""What is pasted into the module's text is data whatever is in it, and Ansible's insides are as this relies on."""

from __future__ import annotations

import ast
import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible._internal._templating import _template_vars
from ansible.executor.module_common import modify_module
from ansible.plugins.action import ActionBase
from ansible.template import Templar
from harness import ROOT, Node, action, make_action

SOURCE = ROOT / "plugins/modules/converge.py"
NASTY = [
    "'''\nimport os; os.abort()\n'''",
    '"""\nimport os; os.abort()\nr"""',
    "back\\slash \\' \\\" \\N{DIGIT ONE} \\x00 \\u0041 \\",
    "\n\r\t\0\x1b\x7f",
    "é 中 \U0001f600 \u2028 \ufeff",
    "<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>",
    '"<<INCLUDE_ANSIBLE_MODULE_COMPLEX_ARGS>>" "<<ANSIBLE_VERSION>>" syslog.LOG_USER',
    "{{ 7 * 7 }} {% raw %}",
]


def built(text: str, tmp_path: Path) -> bytes:
    """The module as Ansible sends it, with text in every place that takes any."""
    declaration = {
        "files": [{"dest": "/etc/x", "content": text}],
        "users": [{"name": "a", "password": text.replace(":", "").replace("\n", "")}],
    }
    made, variables = make_action(declaration, tmp_path)
    sent: list[bytes] = []

    def build(arguments: str) -> dict[str, Any]:
        templar = Templar(loader=made._loader, variables={})
        bits = modify_module(
            module_name="coldiron.cluster.converge",
            module_path=str(SOURCE),
            module_args={"payload": action.Payload(json.loads(arguments)["payload"])},
            templar=templar,
            task_vars={"ansible_python_interpreter": "/usr/bin/python3", "ansible_syslog_facility": text},
        )
        assert bits.module_style == "new"  # pipelined, not wrapped: the node loads nothing of Ansible's
        sent.append(bits.b_module_data)
        return {}

    made.send = build
    made.run(None, variables)
    return sent[0]


class Constants(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(value=None)


@pytest.mark.parametrize("text", NASTY)
def test_no_value_breaks_out_of_the_literal(text: str, tmp_path: Path) -> None:
    sent = ast.parse(built(text, tmp_path).decode())
    mine = ast.parse(SOURCE.read_text())
    literal = ast.literal_eval(sent.body[-1].body[0].value.args[0].args[0])  # type: ignore[attr-defined]
    assert list(json.loads(literal)) == ["payload"]
    sent.body[-1] = Constants().visit(sent.body[-1])
    mine.body[-1] = Constants().visit(mine.body[-1])
    assert ast.dump(sent) == ast.dump(mine)


@pytest.mark.parametrize("text", NASTY)
def test_every_value_arrives(text: str, node: Node) -> None:
    node.converge(files=[{"dest": "/etc/x", "content": text}])
    assert (node.root / "etc/x").read_bytes() == text.encode()


def test_the_placeholder_stands_once() -> None:
    assert SOURCE.read_text().count("<<INCLUDE_ANSIBLE_MODULE_JSON_ARGS>>") == 1


def test_a_payload_is_not_shown() -> None:
    payload = action.Payload("secret")
    assert "secret" not in f"{ {'payload': payload} }"
    assert json.dumps({"payload": payload}) == '{"payload": "secret"}'


def test_the_insides_of_ansible_are_as_expected() -> None:
    """Private to ansible-core: a new line of it may change them, and then this says which."""
    assert list(inspect.signature(_template_vars.generate_ansible_template_vars).parameters) == [
        "path",
        "fullpath",
        "dest_path",
        "include_ansible_managed",
    ]
    assert {"searchpath", "available_variables"} <= set(
        inspect.signature(Templar.copy_with_new_env).parameters
    )
    assert isinstance(inspect.getattr_static(Templar, "available_variables"), property)
    assert {"escape_backslashes", "overrides"} <= set(inspect.signature(Templar.template).parameters)
    assert "self._update_module_args(" in inspect.getsource(ActionBase._execute_module)
    assert list(inspect.signature(ActionBase._execute_module).parameters)[1:3] == [
        "module_name",
        "module_args",
    ]


def test_nothing_but_the_standard_library() -> None:
    tree = ast.parse(SOURCE.read_text())
    names = {alias.name for part in ast.walk(tree) if isinstance(part, ast.Import) for alias in part.names}
    names |= {part.module or "" for part in ast.walk(tree) if isinstance(part, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names)


def old_python() -> str:
    """The oldest Python at hand that a node may have; the one that runs the tests if there is no older."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [*map(str, pyenv.glob("versions/3.9.*/bin/python3")), shutil.which("python3.9")]
    return next((path for path in found if path), sys.executable)


def test_an_old_python_runs_it(node: Node, tmp_path: Path) -> None:
    """The same text on Python 3.9: a real process, on a directory in a root's place."""
    declaration = {
        "directories": [{"path": "/srv/d", "owner": str(os.getuid()), "group": str(os.getgid())}],
        "links": [{"path": "/srv/l", "src": "d"}],
    }
    made, variables = make_action(declaration, tmp_path, diff=True)

    def run(arguments: str) -> dict[str, Any]:
        code = f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r}); import converge\n"
        code += f"sys.exit(converge.main({arguments!r}, {str(node.root) + '/'!r}))"
        done = subprocess.run([old_python(), "-c", code], capture_output=True, text=True)
        assert done.stderr == ""
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    made.send = run
    assert made.run(None, variables)["paths"] == ["/srv/d", "/srv/l"]
    assert made.run(None, variables)["changed"] is False
