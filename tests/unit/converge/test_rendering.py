"""Templates come out as ansible.builtin.template renders them; other files as they are."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action.template import ActionModule as TemplateAction
from ansible.template import Templar, trust_as_template
from harness import make_action

TEMPLATES = {
    "plain.j2": "# {{ ansible_managed }}\n{% for n in numbers %}\n  n = {{ n }}\n{% endfor %}\n\nlast",
    "nested/deep.j2": "{% include 'nested/part.j2' %}{% include 'beside.j2' %}{{ template_path }}\n",
    "nested/part.j2": "part {{ greeting }}\n",
    "nested/beside.j2": "beside\n",
    "empty.j2": "{% if false %}\nx\n{% endif %}\n",
    "space.j2": "\n  {% if true %}\n  kept  \n  {% endif %}\n\n",
    "windows.j2": "a\r\nb\n",
    "unicode.j2": "é ø {{ greeting }} 中\n",
    "indirect.j2": "{{ indirect }}\n",
    "none.j2": "{{ none }}",
    "number.j2": "{{ 7 }}",
    "backslash.j2": "a\\nb {{ 'c\\\\d' }}\n",
}


@pytest.fixture
def role(tmp_path: Path) -> Path:
    for name, text in TEMPLATES.items():
        path = tmp_path / "templates" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return tmp_path


def variables(role: Path) -> dict[str, Any]:
    return {
        "numbers": [1, 2],
        "greeting": "hé",
        "indirect": trust_as_template("{{ greeting }}!"),
        "none": None,
        "ansible_search_path": [str(role)],
    }


def by_converge(role: Path, *files: dict[str, Any], **extra: Any) -> dict[str, bytes]:
    made, task_vars = make_action({"files": list(files)}, role, {**variables(role), **extra})
    sent: list[dict[str, Any]] = []

    def keep(arguments: str) -> dict[str, Any]:
        sent.append(json.loads(zlib.decompress(base64.b64decode(json.loads(arguments)["payload"]))))
        return {}

    made.send = keep
    made.run(None, task_vars)
    return {entry["path"]: entry["content"].encode("latin-1") for entry in sent[0]["paths"]}


def by_template(role: Path, src: str, dest: str) -> bytes:
    """What ansible.builtin.template hands to the copy action."""
    loader = DataLoader()
    loader.set_basedir(str(role))
    task_vars = variables(role)
    handed: list[bytes] = []

    def copy(_name: str, task: Any, **_kwargs: Any) -> Any:
        handed.append(Path(task.args["src"]).read_bytes())
        return SimpleNamespace(run=lambda task_vars: {})

    task = SimpleNamespace(
        args={"src": src, "dest": dest}, async_val=0, check_mode=False, get_search_path=lambda: [str(role)]
    )
    task.copy = lambda: SimpleNamespace(args=dict(task.args))
    made = TemplateAction(
        task=task,
        connection=SimpleNamespace(_shell=SimpleNamespace(tmpdir="/nowhere")),
        play_context=None,
        loader=loader,
        templar=Templar(loader=loader, variables=task_vars),
    )
    made._shared_loader_obj = SimpleNamespace(action_loader=SimpleNamespace(get=copy))
    made._remove_tmp_path = lambda *_args: None
    made.run(None, task_vars)
    return handed[0]


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "nested/part.j2"])
def test_as_the_template_module_renders(role: Path, name: str) -> None:
    ours = by_converge(role, {"dest": "/etc/out", "src": name})["/etc/out"]
    assert ours == by_template(role, name, "/etc/out")


def test_one_call_renders_many(role: Path) -> None:
    names = [name for name in TEMPLATES if name != "nested/part.j2"]
    files = [{"dest": f"/etc/{index}", "src": name} for index, name in enumerate(names)]
    ours = by_converge(role, *files)
    assert ours == {file["dest"]: by_template(role, file["src"], file["dest"]) for file in files}


def test_the_users_own_ansible_managed(role: Path) -> None:
    text = by_converge(role, {"dest": "/etc/x", "src": "plain.j2"}, ansible_managed="mine")["/etc/x"]
    assert text.startswith(b"# mine\n")


def test_data_is_not_taken_for_a_template(role: Path) -> None:
    text = by_converge(role, {"dest": "/etc/x", "src": "unicode.j2"}, greeting="{{ evil }}")["/etc/x"]
    assert b"{{ evil }}" in text


@pytest.mark.parametrize("folder", ["templates", "files"])
def test_other_files_are_copied_byte_by_byte(role: Path, folder: str) -> None:
    blob = bytes(range(256)) + b"{{ greeting }}\r\n"
    (role / folder).mkdir(exist_ok=True)
    (role / folder / "blob").write_bytes(blob)
    assert by_converge(role, {"dest": "/etc/x", "src": "blob"})["/etc/x"] == blob


def test_content_is_text_as_it_is(role: Path) -> None:
    assert by_converge(role, {"dest": "/etc/x", "content": "é\n  \n"})["/etc/x"] == "é\n  \n".encode()
    assert by_converge(role, {"dest": "/etc/x", "content": 7})["/etc/x"] == b"7"
    assert by_converge(role, {"dest": "/etc/x", "content": ""})["/etc/x"] == b""


def test_an_undefined_variable_names_template_and_line(role: Path) -> None:
    (role / "templates/bad.j2").write_text("one\ntwo\n{{ nosuch.thing }}\n")
    with pytest.raises(AnsibleError) as caught:
        by_converge(role, {"dest": "/etc/x", "src": "bad.j2"})
    assert "roles/demo/tasks/main.yml:7: files[0] /etc/x" in str(caught.value)
    assert "'nosuch' is undefined" in str(caught.value)
    assert f"{role}/templates/bad.j2:3" in str(caught.value)


def test_a_syntax_error_names_template_and_line(role: Path) -> None:
    (role / "templates/bad.j2").write_text("one\n{% if %}\n")
    with pytest.raises(AnsibleError) as caught:
        by_converge(role, {"dest": "/etc/x", "src": "bad.j2"})
    assert f"{role}/templates/bad.j2:2" in str(caught.value)


def test_a_missing_source_is_named(role: Path) -> None:
    with pytest.raises(AnsibleError, match=r"files\[0\] /etc/x: src: .*nosuch\.j2"):
        by_converge(role, {"dest": "/etc/x", "src": "nosuch.j2"})
