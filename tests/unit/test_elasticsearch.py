"""What the roles of logs are made of: users' files, a cluster's health, what a server has of a declaration."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import ClassVar

import pytest
from ansible_collections.coldiron.cluster.plugins.filter.elasticsearch import (
    elasticsearch_hash,
    elasticsearch_users,
    elasticsearch_users_roles,
)
from ansible_collections.coldiron.cluster.plugins.module_utils import elasticsearch as es
from ansible_collections.coldiron.cluster.plugins.modules import elasticsearch_content as content
from ansible_collections.coldiron.cluster.plugins.modules import elasticsearch_node as node

GREEN = {
    "status": "green", "number_of_nodes": 3, "unassigned_shards": 0, "relocating_shards": 0,
    "initializing_shards": 0,
}  # fmt: skip


def test_a_password_s_hash_is_one_that_the_server_can_check() -> None:
    made = elasticsearch_hash("correct horse", "reader", "logs")
    algorithm, salt, key = made.split("$")
    assert algorithm == "{PBKDF2}10000"
    again = hashlib.pbkdf2_hmac("sha512", b"correct horse", base64.b64decode(salt), 10000, 32)
    assert base64.b64decode(key) == again


def test_the_same_password_gives_the_same_file_and_another_elsewhere() -> None:
    users = [{"name": "a", "password": "correct horse"}, {"name": "b", "password": "correct horse"}]
    text = elasticsearch_users(users, "logs")
    assert text == elasticsearch_users(users, "logs")
    assert text != elasticsearch_users(users, "others")
    first, second = (line.partition(":")[2] for line in text.splitlines())
    assert first != second


def test_each_role_has_its_users_on_one_line() -> None:
    users = [{"name": "a", "roles": ["reads", "ships"]}, {"name": "b", "roles": ["reads"]}]
    assert elasticsearch_users_roles(users) == "reads:a,b\nships:a\n"


@pytest.mark.parametrize(
    ("status", "change", "told"),
    [
        (200, {}, ""),
        (200, {"number_of_nodes": 2}, "2 of 3"),
        (200, {"status": "yellow", "unassigned_shards": 4}, "yellow: 4 shards"),
        (200, {"relocating_shards": 1}, "on their way"),
        (0, {}, "does not say"),
    ],
)
def test_only_a_whole_and_green_cluster_gives_a_server_up(
    status: int, change: dict[str, object], told: str
) -> None:
    said = es.health_complaint(es.Answer(status, {**GREEN, **change}), 3)
    assert told in said
    assert bool(said) == bool(told)


def test_a_server_answers_numbers_as_text() -> None:
    wanted = {"type": "fs", "settings": {"location": "/x", "compress": True, "n": 1}}
    found = {"type": "fs", "settings": {"location": "/x", "compress": "true", "n": "1", "more": "y"}}
    assert es.covers(wanted, found)
    assert not es.covers(wanted, {**found, "settings": {"location": "/y"}})
    assert not es.covers(wanted, None)
    assert not es.covers([1, 2], [1])


def test_what_was_taken_out_of_a_declaration_makes_another_digest() -> None:
    body = {"template": {"settings": {"index": {"lifecycle": {"name": "x"}, "number_of_shards": 1}}}}
    without = content.without_lifecycle(body)
    assert without == {"template": {"settings": {"index": {"number_of_shards": 1}}}}
    assert "lifecycle" in body["template"]["settings"]["index"]
    assert content.marked(body)["_meta"] != content.marked(without)["_meta"]


def test_a_file_that_was_put_there_later_is_newer(tmp_path: Path) -> None:
    file = tmp_path / "elasticsearch.yml"
    assert node.newest_change([str(file)]) == 0
    file.write_text("a")
    assert node.newest_change([str(tmp_path / "none"), str(file)]) == os.stat(file).st_ctime
    assert node.started(200, 1000.0) == 1000.0 + 200 / os.sysconf("SC_CLK_TCK")


class Cluster:
    """Three servers whose shards a run that was killed has left held: yellow until they are let go."""

    def __init__(self) -> None:
        self.allocation: str | None = "primaries"
        self.done: list[str] = []

    def ask(self, method: str, path: str, body: object = None) -> es.Answer:
        if path.startswith("/_cluster/settings"):
            if isinstance(body, dict):
                self.allocation = body["persistent"][node.ALLOCATION]
                self.done.append(f"shards: {self.allocation}")
            held = {node.ALLOCATION: self.allocation} if self.allocation else {}
            return es.Answer(200, {"persistent": held})
        status = "green" if self.allocation is None else "yellow"
        return es.Answer(200, {**GREEN, "status": status})


class Module:
    """What a call of the module has."""

    params: ClassVar = {
        **dict.fromkeys(es.CONNECTION, ""), "servers": 3, "unit": "es", "files": [], "timeout_seconds": 0,
    }  # fmt: skip

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def run_command(self, words: list[str]) -> tuple[int, str, str]:
        self.cluster.done.append(" ".join(words))
        return 0, "", ""

    def fail_json(self, msg: str) -> None:
        raise AssertionError(msg)


def test_what_a_killed_run_has_left_held_does_not_stop_the_next_restart() -> None:
    cluster = Cluster()
    roll = node.Roll(Module(cluster))
    roll.server = cluster
    roll.restart()
    assert cluster.done == ["shards: None", "shards: primaries", "systemctl restart es", "shards: None"]
