"""Every mistake in a declaration is refused on the controller, with file, item, key and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from harness import ROOT, declaration, make_action

FILE: dict[str, Any] = {"dest": "/etc/x", "content": "x"}


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"pakages": []}, "pakages: no such option; did you mean packages?"),
        ({"files": FILE}, "files: wants a list, not a mapping"),
        ({"files": ["/etc/x"]}, "files[0]: wants a mapping with the key dest, not a string"),
        ({"files": [{"content": "x"}]}, "files[0]: dest: is missing"),
        ({"files": [{**FILE, "onwer": "me"}]}, "files[0] /etc/x: onwer: no such key; did you mean owner?"),
        ({"files": [FILE, FILE]}, "files[1] /etc/x: is declared twice (see files[0] /etc/x)"),
        ({"files": [FILE], "links": [{"path": "/etc/x", "src": "y"}]}, "links[0] /etc/x: is declared twice"),
        ({"files": [{"dest": "/etc/x"}]}, "files[0] /etc/x: wants either src or content"),
        ({"files": [{**FILE, "src": "y"}]}, "files[0] /etc/x: wants either src or content"),
        ({"files": [{"dest": "etc/x", "content": ""}]}, "files[0] etc/x: dest: wants an absolute path"),
        ({"files": [{"dest": "/etc/../x", "content": ""}]}, "dest: wants an absolute path"),
        ({"files": [{"dest": "/etc/x/", "content": ""}]}, "dest: wants an absolute path"),
        ({"files": [{**FILE, "mode": 420}]}, 'mode: wants octal digits in quotes, such as "0644", not 420'),
        ({"files": [{**FILE, "mode": "u=rw"}]}, "mode: wants octal digits"),
        ({"files": [{**FILE, "content": ["x"]}]}, "content: wants a string, not a list"),
        ({"files": [{**FILE, "content": True}]}, "content: wants a string, not a boolean"),
        ({"files": [{**FILE, "secret": "perhaps"}]}, "secret: wants true or false, not 'perhaps'"),
        ({"files": [{**FILE, "secret": True, "mode": "0644"}]}, "mode: a secret that every user may read"),
        ({"files": [{**FILE, "validate": "a 'b"}]}, "validate: is no command line: no closing quotation"),
        (
            {"files": [{**FILE, "state": "absnt"}]},
            "state: wants file or absent, not 'absnt'; did you mean absent?",
        ),
        ({"links": [{"path": "/etc/x"}]}, "links[0] /etc/x: src: is missing"),
        ({"packages": ["a=1"]}, "packages[0] a=1: name: wants a package's name"),
        ({"packages": ["-o"]}, "packages[0] -o: name: wants a package's name"),
        ({"packages": [{"name": "a", "version": "-o x"}]}, "version: wants a version"),
        ({"packages": [7]}, "packages[0]: wants a mapping with the key name, not a number"),
        ({"groups": [{"name": "g", "gid": "x"}]}, "groups[0] g: gid: wants a number, not 'x'"),
        ({"users": [{"name": "-r"}]}, "users[0] -r: name: wants a name"),
        (
            {"users": [{"name": "a", "groups": "b"}]},
            "users[0] a: groups: wants a list of strings, not a string",
        ),
        ({"users": [{"name": "a", "comment": "b:c"}]}, "comment: wants one line without a colon"),
        ({"sysctl": [{"name": "a.b"}], "sysctl_file": "/x"}, "sysctl[0] a.b: value: is missing"),
        ({"sysctl": [{"name": "a.b", "value": 1}]}, "sysctl_file: is missing"),
        ({"units": [{"name": "a b"}]}, "units[0] a b: name: wants the name of a systemd unit"),
        ({"units": [{"name": "a", "state": "restarted"}]}, "state: wants started or stopped or none"),
        ({"units": [{"name": "a"}, {"name": "a.service"}]}, "units[1] a.service: is declared twice"),
        ({"units": [{"name": "a", "masked": True, "enabled": True}]}, "a masked unit can be neither enabled"),
        (
            {"files": [FILE], "units": [{"name": "a", "restart_on": ["/etc/y"]}]},
            "units[0] a: restart_on: /etc/y is no path of this declaration; did you mean /etc/x?",
        ),
        (
            {"files": [FILE], "units": [{"name": "a", "reload_on": "/etc/x"}]},
            "units[0] a: reload_on: wants a list of strings, not a string",
        ),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, declared: dict[str, Any], words: str) -> None:
    made, variables = make_action(declared, tmp_path)
    with pytest.raises(AnsibleError) as caught:
        made.run(None, variables)
    assert str(caught.value).startswith("roles/demo/tasks/main.yml:7: ")
    assert words in str(caught.value)


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    made, variables = make_action({"files": [{"dest": "x"}], "packages": [None], "units": 3}, tmp_path)
    with pytest.raises(AnsibleError) as caught:
        made.run(None, variables)
    for words in ("files[0] x: dest", "packages[0]: wants", "units: wants a list, not a number"):
        assert words in str(caught.value)


def test_a_password_is_not_repeated(tmp_path: Path) -> None:
    made, variables = make_action({"users": [{"name": "a", "password": "hush:hush"}]}, tmp_path)
    with pytest.raises(AnsibleError) as caught:
        made.run(None, variables)
    assert "hush" not in str(caught.value)


def test_defaults() -> None:
    declared, wrong = declaration.check(
        {
            "packages": ["a"],
            "files": [
                FILE,
                {**FILE, "dest": "/etc/key", "secret": True},
                {"dest": "/etc/old", "state": "absent"},
            ],
            "directories": [{"path": "/etc/d"}],
            "units": [{"name": "chrony", "restart_on": ["/etc/*"]}, {"name": "x.timer", "masked": True}],
        }
    )
    assert wrong == []
    assert declared["packages"][0] | {"label": ""} == {
        "label": "",
        "name": "a",
        "version": None,
        "hold": None,
        "state": "present",
    }
    assert [item["mode"] for item in declared["files"]] == [0o644, 0o600, 0o644]
    assert (declared["directories"][0]["mode"], declared["directories"][0]["owner"]) == (0o755, "root")
    first, second = declared["units"]
    assert (first["name"], first["enabled"], first["state"]) == ("chrony.service", True, "started")
    assert (second["name"], second["enabled"], second["state"]) == ("x.timer", False, "stopped")


def test_a_glob_may_match_nothing() -> None:
    declared, wrong = declaration.check({"units": [{"name": "a", "restart_on": ["/etc/a.d/*"]}]})
    assert declared["units"]
    assert not wrong


def documented() -> dict[str, Any]:
    options: dict[str, Any] = yaml.safe_load((ROOT / "plugins/modules/converge.yml").read_text())[
        "DOCUMENTATION"
    ]["options"]
    return options


def test_the_page_knows_every_key() -> None:
    options = documented()
    assert set(options) == {*declaration.SPEC, "sysctl_file"}
    for section, keys in declaration.SPEC.items():
        assert set(options[section]["suboptions"]) == set(keys), section


def test_the_page_knows_every_default() -> None:
    for section, options in documented().items():
        for key, option in options.get("suboptions", {}).items():
            default = declaration.DEFAULTS.get(section, {}).get(key)
            if (section, key) in (("directories", "mode"), ("files", "mode")):
                default = {"directories": "0755", "files": None}[section]
            if section == "units" and key in ("state", "enabled"):
                continue  # they depend on masked
            assert option.get("default") == (default or None if default == [] else default), (section, key)
            assert option["description"], (section, key)
