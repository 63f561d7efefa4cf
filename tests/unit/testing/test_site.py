"""An inventory as the tests see it: hosts of a role, variables, secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.errors import ColdironError
from coldiron.testing.secret import MASK, Redactor, Secret
from coldiron.testing.site import Site
from coldiron.testing.ssh import config_block, ssh_options
from coldiron.testing.stages import read_plays, roles_in_order
from tests.unit.testing.toy import Toy, write


def test_hosts_of_a_role_follow_the_plays_and_their_conditions(toy: Toy) -> None:
    site = toy.site()
    assert site.roles == ["toy", "part"]
    assert site.hosts_of_role("toy") == ["node01", "node02"]
    assert site.hosts_of_role("part") == ["node01"]
    assert site.hosts_of_role("nothing") == []


def test_options_are_resolved_as_ansible_would(toy: Toy) -> None:
    options = toy.site().options("node01", "toy")
    assert options["toy_color"] == "blue"
    assert options["toy_peers"] == ["node01", "node02"]
    assert options["toy_size"] == 3
    assert options["__toy_path"] == "/srv/blue"
    assert "toy_color" in list(options)
    assert "toy_color" in options
    assert "toy_colour" not in options
    with pytest.raises(KeyError, match="toy_colour is not a variable of node01"):
        options["toy_colour"]


def test_an_undefined_option_harms_only_who_asks_for_it(toy: Toy) -> None:
    options = toy.site().options("node01", "toy")
    assert options["toy_color"] == "blue"
    with pytest.raises(Exception, match="nobody_defines_this"):
        options["toy_never"]


def test_facts_are_asked_from_the_node_when_an_option_needs_them(toy: Toy) -> None:
    assert toy.site().options("node02", "toy")["toy_system"] in ("Debian", "Ubuntu", "Rocky", "RedHat")


def test_a_node_that_is_away_is_named(toy: Toy) -> None:
    (toy.nodes / "node02").rename(toy.nodes / "gone")
    with pytest.raises(ColdironError, match=r"node02 does not answer over ssh: .*No route to host"):
        toy.site().options("node02", "toy")["toy_system"]


def test_secrets_can_be_used_and_are_not_shown(toy: Toy) -> None:
    site = toy.site()
    password = site.options("node01", "toy")["toy_password"]
    assert password == "correct-horse"
    assert f"{password}" == "correct-horse"
    assert isinstance(password, Secret)
    assert repr({"password": password}) == f"{{'password': {MASK}}}"
    assert site.redactor.clean("got 'correct-horse'") == f"got '{MASK}'"


def test_hostvars_hold_what_the_inventory_says(toy: Toy) -> None:
    variables = toy.site().hostvars("node01")
    assert variables["ansible_host"] == "192.0.2.1"
    assert variables["coldiron_cluster"] == "toy"
    assert "toy_size" not in variables


def test_an_inventory_that_is_none_is_refused(toy: Toy) -> None:
    with pytest.raises(ColdironError, match="does not exist"):
        Site((toy.root / "nothing",), toy.collection)
    empty = write(toy.root / "other" / "hosts.yml", "all:\n  hosts:\n    a:\n")
    with pytest.raises(ColdironError, match="no host in group cluster"):
        Site((empty,), toy.collection)


def test_plays_read_roles_blocks_and_imports(tmp_path: Path) -> None:
    path = write(
        tmp_path / "site.yml",
        """\
- name: One
  hosts: [a, b]
  vars: {x: 1}
  roles:
    - coldiron.cluster.first
    - {role: coldiron.cluster.second, tags: [second], when: wanted, level: 3}
  tasks:
    - name: Group
      when: [big]
      block:
        - name: Third
          import_role: {name: coldiron.cluster.third}
          when: also
          vars: {y: 2}
  post_tasks:
    - name: Words only
      ansible.builtin.debug: {msg: hello}
""",
    )
    (play,) = read_plays(path)
    assert play.hosts == "a:b"
    assert [(use.role, use.conditions, dict(use.variables)) for use in play.roles] == [
        ("first", (), {}),
        ("second", ("wanted",), {"level": 3}),
        ("third", ("big", "also"), {"y": 2}),
    ]
    assert roles_in_order([play, play]) == ["first", "second", "third"]


def test_a_playbook_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ColdironError, match=r"site\.yml:1: a playbook is a list of plays"):
        read_plays(write(tmp_path / "site.yml", "hosts: all\n"))
    with pytest.raises(ColdironError, match=r"site\.yml:2: not valid YAML"):
        read_plays(write(tmp_path / "site.yml", "- a: [\n"))
    with pytest.raises(ColdironError, match="cannot be read"):
        read_plays(tmp_path / "nothing.yml")


def test_the_ssh_config_carries_the_inventorys_own_words() -> None:
    block = config_block(
        "gpu01",
        {
            "ansible_host": "192.0.2.9",
            "ansible_port": 2222,
            "ansible_user": "admin",
            "ansible_ssh_private_key_file": "/keys/a key",
            "ansible_ssh_common_args": "-o UserKnownHostsFile=/k -oControlPath=/p -J jump",
        },
        Path("/tmp/ci-x"),
    )
    lines = [line.strip() for line in block.splitlines()]
    assert lines[:2] == ["Host gpu01", "HostName 192.0.2.9"]
    assert {"UserKnownHostsFile /k", "ProxyJump jump", "User admin", "Port 2222"} <= set(lines)
    assert 'IdentityFile "/keys/a key"' in lines
    assert [line for line in lines if line.startswith("ControlPath")] == ["ControlPath /tmp/ci-x/%C"]


def test_an_ssh_option_that_is_not_understood_is_refused() -> None:
    assert ssh_options("-o A=b -o 'C d' -i key -F /dev/null -q") == [
        ("A", "b"),
        ("C", "d"),
        ("IdentityFile", "key"),
    ]
    with pytest.raises(ValueError, match="-L5"):
        ssh_options("-L5")


def test_the_redactor_knows_lines_and_quoted_forms() -> None:
    redactor = Redactor()
    redactor.learn({"key": "first line\nsecond line", "short": "no"})
    assert redactor.found_in("… second line …")
    assert redactor.clean("'first line\\nsecond line'") == f"'{MASK}'"
    assert redactor.clean("no harm") == "no harm"
