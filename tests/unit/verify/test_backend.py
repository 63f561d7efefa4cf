"""testinfra's way to a node: journal, time limit, and where the read-only view goes under sudo."""

from __future__ import annotations

import pytest

from coldiron.testing import backend
from coldiron.testing.backend import NodeBackend, NodeSilentError


@pytest.fixture
def connections(toy):
    return toy.site().connections


def test_commands_are_noted_as_they_were_asked(connections):
    host = connections.testinfra("node01")
    assert host.check_output("cat %s", "color") == "blue"
    [ran] = connections.watch.journal
    assert (ran.node, ran.command, ran.rc, ran.stdout, ran.stderr) == ("node01", "cat color", 0, "blue\n", "")


def test_the_view_is_inside_sudo(connections):
    """It needs root, and nobody else's command may leave it."""
    connections.watch.read_only = True
    way = NodeBackend("node01", connections, sudo=True)
    command = way.get_command("id")
    assert command.startswith("sudo /bin/sh -c 'python3 -I -S -c ")
    connections.watch.read_only = False
    assert way.get_command("id") == "sudo /bin/sh -c id"


def test_a_command_without_end_is_given_up(connections, monkeypatch):
    monkeypatch.setattr(backend, "COMMAND_SECONDS", 0.5)
    answer = connections.testinfra("node01").run("echo so far; sleep 600")
    assert answer.rc == 124
    assert answer.stdout == "so far\n"
    assert "no end within 0.5 s" in answer.stderr


def test_a_node_that_ssh_cannot_reach(connections, toy):
    (toy.nodes / "node01").rename(toy.nodes / "gone")
    with pytest.raises(NodeSilentError, match="node01 cannot be asked over ssh: ssh: connect to host node01"):
        connections.testinfra("node01").run("true")
