"""What role kibana is made of: searches that fit the logs, a site's own files, what is there and what is not."""

from __future__ import annotations

import json
import re
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.coldiron.cluster.plugins.filter import kibana as filters
from ansible_collections.coldiron.cluster.plugins.module_utils import elasticsearch as es
from ansible_collections.coldiron.cluster.plugins.module_utils import kibana as kb
from ansible_collections.coldiron.cluster.plugins.modules import kibana_objects as module

from coldiron import log_searches
from coldiron.log_searches import SEARCHES, Search
from coldiron.testing.aptrepo.fixtures import named
from coldiron.testing.site import load_site

ROOT = Path(__file__).resolve().parents[2]
ROLES = ROOT / "roles"
SHIPPER = (ROLES / "log_shipper/templates/etc/coldiron/log-shipper/rsyslog.conf.j2").read_text(
    encoding="utf-8"
)


def mapped(properties: dict[str, Any], before: str = "") -> dict[str, str]:
    """The fields of an index template and their types."""
    found: dict[str, str] = {}
    for name, value in properties.items():
        if "properties" in value:
            found |= mapped(value["properties"], f"{before}{name}.")
        else:
            found[before + name] = value["type"]
    return found


def variables(role: str, file: str = "vars") -> dict[str, Any]:
    return dict(yaml.safe_load((ROLES / role / file / "main.yml").read_text(encoding="utf-8")))


INDEXED = mapped(variables("elasticsearch")["__elasticsearch_fields"])
# `set $.doc!gpu!xid = …` is the field gpu.xid of a line.
SHIPPED = {found.replace("!", ".") for found in re.findall(r"set \$\.doc!([@\w!]+) =", SHIPPER)}


def wrong(search: Search) -> list[str]:
    """What of a search no line would ever have."""
    faults = [f"{field} is not indexed" for field in log_searches.fields(search) if field not in INDEXED]
    faults += [f"{field} is not shipped" for field in log_searches.fields(search) if field not in SHIPPED]
    faults += [f"{field} cannot be sorted by" for field in search.by if INDEXED.get(field) == "text"]
    for field, value in re.findall(r"(event\.kind|event\.action):(\w+)", search.query):
        if f'{field.replace(".", "!")} = "{value}"' not in SHIPPER:
            faults.append(f"{field} is never {value}")
    return faults


def test_the_committed_file_is_what_the_code_makes() -> None:
    assert (ROOT / log_searches.FILE).read_text(encoding="utf-8") == log_searches.text(), (
        "run: python -m coldiron.log_searches"
    )


@pytest.mark.parametrize("search", SEARCHES, ids=lambda one: one.name)
def test_a_search_asks_for_fields_that_lines_have(search: Search) -> None:
    assert wrong(search) == []


@pytest.mark.parametrize(
    ("query", "columns", "by", "told"),
    [
        ("gpu.xidd:*", (), (), "gpu.xidd is not indexed"),
        ("gpu.xid:* AND (user.id:0 OR user.idd:(1 OR 2))", (), (), "user.idd is not indexed"),
        ("gpu.xid:*", ("gpu.uuid",), (), "gpu.uuid is not indexed"),
        ("gpu.xid:*", (), ("message",), "message cannot be sorted by"),
        ("event.kind:hardwear", (), (), "event.kind is never hardwear"),
    ],
)
def test_a_search_that_no_line_fits_is_noticed(
    query: str, columns: tuple[str, ...], by: tuple[str, ...], told: str
) -> None:
    assert told in wrong(Search("x", "x", "x", query, columns, 1, by=by))


def test_words_in_quotes_and_numbers_are_no_fields() -> None:
    search = Search("x", "x", "x", 'message:"Failed: host" AND source.ip:"fe80::1"', (), 1)
    assert log_searches.fields(search) == {"message", "source.ip", "@timestamp"}


def test_every_search_is_an_option_has_a_title_of_its_own_and_is_in_the_documentation() -> None:
    names = [one.name for one in SEARCHES]
    spec = yaml.safe_load((ROLES / "kibana/meta/argument_specs.yml").read_text(encoding="utf-8"))
    assert spec["argument_specs"]["main"]["options"]["kibana_searches"]["choices"] == names
    page = (ROOT / "docs/logging.md").read_text(encoding="utf-8")
    for one in SEARCHES:
        assert f"| {one.title} |" in page
        assert one.about.endswith(".")
    assert len({one.title for one in SEARCHES}) == len(SEARCHES)


def test_kibana_its_stand_in_and_elasticsearch_are_one_version() -> None:
    version = variables("elasticsearch", "defaults")["elasticsearch_version"]
    assert variables("kibana", "defaults")["kibana_version"] == version
    assert f"default('{version}')" in (ROOT / "playbooks/group_vars/all/topology.yml").read_text(
        encoding="utf-8"
    )
    (package,) = named("kibana")
    assert package.version == version
    assert json.loads(package.files["/usr/share/kibana/package.json"])["version"] == version
    assert package.control.count("FIXTURE") == 1


def test_searches_are_of_the_sites_data_stream() -> None:
    view, search = filters.kibana_objects(["xid"], "logs-coldiron-mine")
    assert view["attributes"]["title"] == "logs-coldiron-mine"
    assert (view["type"], search["id"]) == ("index-pattern", "coldiron-xid")
    assert [one["id"] for one in search["references"]] == [view["id"]]
    assert json.loads(search["attributes"]["kibanaSavedObjectMeta"]["searchSourceJSON"])["query"] == {
        "query": "gpu.xid:*",
        "language": "kuery",
    }
    assert len(filters.kibana_objects([one.name for one in SEARCHES], "x")) == len(SEARCHES) + 1


def test_a_sites_own_objects_are_read_as_kibana_exports_them(tmp_path: Path) -> None:
    one = {"type": "search", "id": "mine", "attributes": {"title": "Mine"}, "references": []}
    text = json.dumps(one) + '\n\n{"exportedCount": 1, "missingRefCount": 0}\n'
    (tmp_path / "mine.ndjson").write_text(text, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no", encoding="utf-8")
    assert filters.kibana_site_objects(str(tmp_path)) == [one]
    assert filters.kibana_site_faults(str(tmp_path)) == []
    assert filters.kibana_site_objects("") == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("no", "mine.ndjson:1: this is no object"),
        ('{"type": "search", "id": "x"}', "this is no object"),
        (
            '{"type": "search", "id": "coldiron-x", "attributes": {}}',
            "ids with coldiron- are the collection's",
        ),
        ('{"type": "search", "id": "x", "attributes": {}}\n' * 2, "mine.ndjson:2: search x is there twice"),
    ],
)
def test_what_is_wrong_with_a_sites_own_objects_is_said_with_its_line(
    tmp_path: Path, line: str, told: str
) -> None:
    (tmp_path / "mine.ndjson").write_text(line, encoding="utf-8")
    (fault,) = filters.kibana_site_faults(str(tmp_path))
    assert told in fault
    with pytest.raises(AnsibleFilterError, match="kibana_directory"):
        filters.kibana_site_objects(str(tmp_path))


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (fault,) = filters.kibana_site_faults(str(tmp_path / "none"))
    assert fault.endswith("is no directory of this machine.")


def test_settings_of_the_roles_own_are_refused_dotted_or_nested() -> None:
    assert filters.kibana_settings_taken({"server.port": 1, "server": {"ssl": {"enabled": False}}}) == [
        "server.port",
        "server.ssl.enabled",
    ]
    assert filters.kibana_settings_taken({"server.hostname": 1, "server.rewriteBasePath": True}) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"xpack.security.authc.providers.anonymous.a.order": 1},
        {"xpack": {"security": {"authc.providers": {"anonymous": {"a": {"order": 1}}}}}},
    ],
)
def test_nobody_is_let_in_without_a_password(settings: dict[str, Any]) -> None:
    assert filters.kibana_settings_anonymous(settings)
    assert not filters.kibana_settings_anonymous({"xpack.security.authc.providers.saml.a.order": 1})


def test_secrets_are_written_as_systemd_reads_them() -> None:
    text = filters.kibana_environment({"A": "plain", "B": 'a"b\\c$d`e #f'})
    assert text.splitlines()[1:] == ['A="plain"', 'B="a\\"b\\\\c\\$d\\`e #f"']
    with pytest.raises(AnsibleFilterError, match="A is more than one line"):
        filters.kibana_environment({"A": "one\nB=two"})


WANTED = {
    "type": "search",
    "id": "x",
    "attributes": {"title": "X", "meta": {"json": '{"query": {"query": "a", "language": "kuery"}}'}},
    "references": [{"name": "r", "type": "index-pattern", "id": "v"}],
}


def kept(**change: Any) -> dict[str, Any]:
    """The object as Kibana has it: with words of its own, JSON written otherwise."""
    meta = {"json": '{"query":{"language":"kuery","query":"a"}}'}
    attributes = {"title": "X", "description": "", "meta": meta, **change}
    return {**WANTED, "attributes": attributes, "managed": False, "version": "WzEsMV0="}


def test_what_kibana_adds_does_not_count_and_what_people_changed_does() -> None:
    assert kb.same(WANTED, kept()) == ""
    assert kb.same(WANTED, None) == "all of it"
    assert kb.same(WANTED, kept(title="Y")) == "attributes.title"
    changed = {"json": '{"query":{"language":"kuery","query":"b"}}'}
    assert kb.same(WANTED, kept(meta=changed)) == "attributes.meta.json.query.query"
    assert kb.same(WANTED, {**kept(), "references": []}) == "references"


def test_objects_are_sent_as_the_file_of_a_form() -> None:
    data, kind = kb.form([WANTED, {"id": "ö"}])
    (part,) = message_from_bytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + data).get_payload()
    assert part.get_filename() == "coldiron.ndjson"
    lines = part.get_payload(decode=True).decode().splitlines()
    assert [json.loads(line) for line in lines if line] == [WANTED, {"id": "ö"}]


def test_an_answer_is_json_or_lines_of_it_or_text() -> None:
    assert kb.read(b'{"a": 1}') == {"a": 1}
    assert kb.read(b'{"a": 1}\n{"b": 2}') == [{"a": 1}, {"b": 2}]
    assert kb.read(b"<html>") == "<html>"


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (200, {"status": {"overall": {"level": "available"}}}, ""),
        (200, {"status": {"overall": {"level": "degraded"}}}, ""),
        (
            503,
            {"status": {"overall": {"level": "unavailable", "summary": "no server"}}},
            "unavailable: no server",
        ),
        (0, "Connection refused", "does not answer (no answer: Connection refused)"),
        (503, "Kibana server is not ready yet", "does not answer (503: Kibana server is not ready yet)"),
        (401, {"statusCode": 401, "error": "Unauthorized"}, "does not say how it is (401: Unauthorized)"),
    ],
)
def test_kibana_is_waited_for_until_it_says_that_it_is_there(status: int, body: Any, told: str) -> None:
    said = module.complaint(es.Answer(status, body))
    assert told in said
    assert bool(said) == bool(told)


def test_objects_that_are_not_there_are_told_from_those_that_may_not_be_seen() -> None:
    def answer(code: int) -> es.Answer:
        told = {"id": "x", "type": "search", "error": {"statusCode": code}}
        return es.Answer(
            400, {"message": "Error fetching objects to export", "attributes": {"objects": [told]}}
        )

    assert module.Objects.away(answer(404)) == {("search", "x")}
    assert module.Objects.away(answer(403)) == set()
    assert module.Objects.why(answer(403)) == "400: Error fetching objects to export"


CLUSTER = """\
plugin: coldiron.cluster.cluster
name: demo
domain: demo.internal
networks: {cluster: {subnet: 10.99.1.0/24}}
features: {scheduler: none, home_backend: provided, gpus: provided, logging: LOGGING, log_viewer: kibana}
defaults: {platform: container, distribution: debian-13}
nodes: [{name: head01, kind: head, address: 10.99.1.1}]
"""
KEYS = dict.fromkeys(
    ("kibana_password", "kibana_admin_password", "kibana_encryption_key", "kibana_saved_objects_key"),
    "a1B2" * 10,
)
GIVEN = {**KEYS, "kibana_reporting_key": "c3D4" * 10, "coldiron_ca_certificate": "-"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, []),
        ({"elasticsearch_version": "9.1.2"}, []),
        ({"kibana_version": "8.19.20"}, []),
        ({"kibana_version": "8.18.21"}, ["kibana_version: 8.18.21 does not go with Elasticsearch 8.19.21"]),
        ({"kibana_reporting_key": "short"}, ["kibana_reporting_key: Kibana takes no key of less than 32"]),
        ({"kibana_password": ""}, ["kibana_password: there is none. Type: coldiron secrets init."]),
        ({"kibana_heap_mib": 2048}, ["kibana_heap_mib: the heap has to leave room"]),
        ({"kibana_settings": {"server": {"ssl": {"enabled": False}}}}, ["in place of server.ssl.enabled."]),
        ({"kibana_settings": {"xpack.security.authc.providers.anonymous.a.order": 1}}, ["lets everybody in"]),
        ({"kibana_directory": "/nowhere"}, ["kibana_directory: /nowhere is no directory of this machine."]),
        ({"logging": "none"}, ["there is no server to ask. Write features.logging: elasticsearch"]),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    tmp_path: Path, change: dict[str, Any], told: list[str]
) -> None:
    text = CLUSTER.replace("LOGGING", change.get("logging", "elasticsearch"))
    (tmp_path / "cluster.yml").write_text(text, encoding="utf-8")
    (tmp_path / "group_vars").mkdir()
    # What topology.yml says of all is said otherwise for a group, as people do.
    for name, words in (("all", GIVEN), ("kibana", change)):
        (tmp_path / f"group_vars/{name}.yml").write_text(yaml.safe_dump(words), encoding="utf-8")
    found = load_site((tmp_path,)).resolve("head01", "kibana", "__kibana_problems")
    said = [sentence.strip() for sentence in found if sentence.strip()]
    assert len(said) == len(told), said
    for sentence, wanted in zip(said, told, strict=True):
        assert wanted in sentence
        assert "\n" not in sentence
