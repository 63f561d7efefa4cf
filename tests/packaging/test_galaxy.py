"""After ``ansible-galaxy collection install`` of the tarball, without the Python package."""

from __future__ import annotations

import json
from pathlib import Path

from tests.packaging.builds import ROOT, Environment

ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir())
HOSTS = """
all:
  vars: {coldiron_cluster: small}
  children:
    cluster:
      hosts:
        head01:
"""
PLAY = """
- hosts: localhost
  gather_facts: false
  roles:
    - {role: coldiron.cluster.time, time_local_stratum: much}
"""


def converge(galaxy: Environment, wanted: dict[str, object], *flags: str) -> dict[str, object]:
    """Have this machine converge to a declaration; returns what the module says."""
    printed = galaxy.output(
        "ansible", "localhost", "-m", "coldiron.cluster.converge", "-a", json.dumps(wanted), *flags,
        ANSIBLE_CALLBACK_RESULT_FORMAT="json", ANSIBLE_LOCALHOST_WARNING="false",
    )  # fmt: skip
    said: dict[str, object] = json.loads(printed.partition("=>")[2])
    return said


def test_the_python_package_is_not_there(galaxy: Environment) -> None:
    assert galaxy.run("python", "-c", "import coldiron").returncode == 1


def test_converge_does_what_it_says_and_then_nothing(galaxy: Environment, tmp_path: Path) -> None:
    wanted: dict[str, object] = {
        "directories": [{"path": str(tmp_path / "etc"), "mode": "0750"}],
        "files": [{"dest": str(tmp_path / "etc" / "motd"), "content": "of {{ inventory_hostname }}\n"}],
    }
    foretold = converge(galaxy, wanted, "--check")
    assert foretold["changed"] is True
    assert not (tmp_path / "etc").exists()
    first = converge(galaxy, wanted)
    assert first["paths"] == [str(tmp_path / "etc"), str(tmp_path / "etc" / "motd")]
    assert (tmp_path / "etc" / "motd").read_text(encoding="utf-8") == "of localhost\n"
    assert (tmp_path / "etc").stat().st_mode & 0o777 == 0o750
    assert converge(galaxy, wanted)["changed"] is False


def test_the_roles_load(galaxy: Environment) -> None:
    (galaxy.elsewhere / "hosts.yml").write_text(HOSTS, encoding="utf-8")
    listed = galaxy.output("ansible-playbook", "coldiron.cluster.site", "--list-tasks", "-i", "hosts.yml")
    tags = {tag.strip(" []") for line in listed.splitlines() for tag in line.partition("TAGS:")[2].split(",")}
    assert set(ROLES) - tags == set()


def test_a_role_refuses_a_wrong_option_by_name(galaxy: Environment) -> None:
    (galaxy.elsewhere / "wrong.yml").write_text(PLAY, encoding="utf-8")
    done = galaxy.run("ansible-playbook", "wrong.yml")
    assert done.returncode == 2
    assert "time_local_stratum" in done.stdout + done.stderr


def test_the_inventory_plugin_says_in_one_line_what_it_lacks(galaxy: Environment) -> None:
    for command in (
        ["ansible-inventory", "-i", "inv", "--list"],
        ["ansible-playbook", "coldiron.cluster.site", "-i", "inv"],
    ):
        done = galaxy.run(*command)
        assert done.returncode == 4, done.stdout
        assert done.stdout.strip() == ""
        # COLUMNS or not: a line that is wrapped could not be searched for.
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith("[ERROR]: ")
        assert line.endswith("install it there: pip install coldiron")
        assert "needs the Python package coldiron" in line


def test_the_modules_are_documented(galaxy: Environment) -> None:
    listed = json.loads(galaxy.output("ansible-doc", "--json", "--list", "coldiron.cluster"))
    modules = {path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")}
    assert {f"coldiron.cluster.{name}" for name in modules} <= set(listed)
