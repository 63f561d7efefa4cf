"""What Filebeat is told where it ships: the shape of filebeat.yml, and expressions in the words of another engine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.coldiron.cluster.plugins.filter import log_shipper as filters

from coldiron.log_searches import SEARCHES, fields
from coldiron.rack import elastic
from coldiron.testing.aptrepo.fixtures import named

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles/log_shipper"
TEMPLATES = ROLE / "templates/etc/coldiron/log-shipper"
RSYSLOG = (TEMPLATES / "rsyslog.conf.j2").read_text(encoding="utf-8")
SCRIPT = (TEMPLATES / "filebeat.js.j2").read_text(encoding="utf-8")
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))


def words(**more: Any) -> dict[str, Any]:
    """The role's options as its vars hand them to the filter."""
    found = {name.removeprefix("log_shipper_"): value for name, value in DEFAULTS.items()}
    given = {
        "servers": ["10.0.0.1", "10.0.0.2"], "password": "correct horse", "host": "gpu01", "cluster": "c",
        "etc": "/etc/coldiron/log-shipper", "state": "/var/lib/coldiron-filebeat",
    }  # fmt: skip
    return found | given | more


def rendered(**more: Any) -> dict[str, Any]:
    """filebeat.yml as it is read again."""
    return dict(yaml.safe_load(yaml.safe_dump(filters.filebeat_config(words(**more)))))


def processors(config: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [one[name] for one in config["processors"] if name in one]


def test_every_word_that_the_filter_asks_for_is_handed_to_it() -> None:
    handed = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))[
        "__log_shipper_filebeat_words"
    ]
    filters.filebeat_config({name: words()[name] for name in handed})


def test_it_ships_to_the_servers_over_verified_tls_into_the_stream() -> None:
    config = rendered(data_stream="logs-coldiron-x")
    output = config["output"].pop("elasticsearch")
    assert config["output"] == {}
    assert output["hosts"] == ["https://10.0.0.1:9200", "https://10.0.0.2:9200"]
    assert (output["username"], output["password"]) == ("coldiron-shipper", "correct horse")
    assert output["index"] == "logs-coldiron-x"
    assert output["ssl"]["verification_mode"] == "full"
    assert output["ssl"]["certificate_authorities"] == ["/etc/coldiron/log-shipper/ca.crt"]
    assert [config["setup"][name]["enabled"] for name in ("template", "ilm")] == [False, False]


def test_what_it_takes_of_the_node_is_bounded() -> None:
    config = rendered(queue_mib=100, rejected_mib=3)
    path = "/var/lib/coldiron-filebeat"
    assert config["queue"] == {"disk": {"path": f"{path}/queue", "max_size": 100 * 1024 * 1024}}
    for files in (config["logging"]["files"], config["logging"]["event_data"]["files"]):
        assert (files["rotateeverybytes"], files["keepfiles"]) == (3 * 1024 * 1024, 2)
        assert files["path"] == f"{path}/log"
        assert oct(files["permissions"]) == "0o600"
    assert config["max_procs"] == 1


def test_the_journal_is_read_and_each_file() -> None:
    files = [
        {"path": "/var/log/a/*.log", "name": "a"},
        {"path": "/var/log/b", "name": "b", "severity": "err", "begins": "^[0-9]"},
    ]
    journal, first, second = rendered(files=files, line_kib=8)["filebeat"]["inputs"]
    assert (journal["type"], journal["seek"]) == ("journald", "head")
    assert (first["type"], first["paths"], first["message_max_bytes"]) == (
        "filestream",
        ["/var/log/a/*.log"],
        8192,
    )
    assert first["fields"] == {"name": "a", "severity": "notice"}
    assert "parsers" not in first
    assert second["fields"]["severity"] == "err"
    assert second["parsers"][0]["multiline"]["pattern"] == "^[0-9]"
    assert len({one["id"] for one in (journal, first, second)}) == 3


def test_what_stays_on_the_node_is_dropped_before_anything_is_made_of_it() -> None:
    config = rendered(ignored_units=["noisy.service"])
    before = [next(iter(one)) for one in config["processors"]]
    assert before == [
        "drop_event",
        "drop_event",
        "script",
        "drop_event",
        "add_fields",
        "truncate_fields",
        "add_id",
    ]
    drops = [one["when"] for one in processors(config, "drop_event")]
    assert drops[0] == {"equals": {"systemd.transport": "audit"}}
    assert drops[1] == {"equals": {"systemd.unit": "noisy.service"}}
    # A line that the script broke off at is not shipped as it was.
    assert drops[2] == {"contains": {"tags": "_js_exception"}}


def test_the_node_is_said_after_the_line_and_what_is_empty_is_left_out() -> None:
    (said,) = processors(rendered(rack="", kind="gpu"), "add_fields")
    assert said == {
        "target": "",
        "fields": {"host": {"name": "gpu01"}, "coldiron": {"cluster": "c", "kind": "gpu"}},
    }
    (cut,) = processors(rendered(line_kib=1), "truncate_fields")
    assert (cut["fields"], cut["max_bytes"]) == (["message"], 1024)


def test_the_script_has_every_command_line_and_every_pattern() -> None:
    (script,) = processors(rendered(), "script")
    assert script["file"] == "/etc/coldiron/log-shipper/filebeat.js"
    lines = script["params"]["command_lines"]
    assert [(one["program"], one["after"]) for one in lines] == [
        (one["program"], one["after"]) for one in DEFAULTS["log_shipper_command_lines"]
    ]
    assert [one["name"] for one in script["params"]["hardware"]] == list(
        DEFAULTS["log_shipper_hardware_patterns"]
    )


def test_the_script_makes_the_fields_that_rsyslog_makes() -> None:
    """By their names: rsyslog's are set one by one, the script's are keys of objects."""
    node = {"host.name", "coldiron.cluster", "coldiron.rack", "coldiron.kind", "@timestamp"}
    shipped = {one.replace("!", ".") for one in re.findall(r"set \$\.doc!([@\w!]+) =", RSYSLOG)} - node
    assert shipped > {"gpu.xid", "slurm.job_id"}
    for name in shipped:
        outer, _, inner = name.partition(".")
        assert re.search(rf"\b(line\.)?{outer}\b", SCRIPT), name
        assert re.search(rf"\b{inner or outer}\b", SCRIPT), name
    asked = {name for search in SEARCHES for name in fields(search)}
    assert asked <= shipped | node


@pytest.mark.parametrize(
    ("posix", "script"),
    [
        ("[^] ]+", r"[^\] ]+"),
        ("[]a]", r"[\]a]"),
        (r"[\]", r"[\\]"),
        (r"\[Hardware Error\]|mce: ", r"\[Hardware Error\]|mce: "),
        ("[[:digit:]_]+", "[0-9_]+"),
        ("nvme[0-9]+: .*(a|b)", "nvme[0-9]+: .*(a|b)"),
        ("", ""),
    ],
)
def test_what_stands_in_brackets_means_the_same(posix: str, script: str) -> None:
    assert filters.ere_to_javascript(posix) == script


def test_what_filebeat_would_read_as_its_own_is_said_without_the_words() -> None:
    assert filters.filebeat_unreadable(filters.filebeat_config(words())) == ""
    said = filters.filebeat_unreadable(filters.filebeat_config(words(password="a${b}")))
    assert "${" in said
    assert "a$" not in said
    lines = [{"program": "x", "after": "y", "kept": "[[:punct:]]"}]
    assert "[:punct:]" in filters.filebeat_unreadable(filters.filebeat_config(words(command_lines=lines)))


def test_the_fixture_is_labelled_and_in_the_rack_s_repository() -> None:
    (package,) = named("filebeat")
    assert (package.name, package.version) == ("filebeat", elastic.VERSION)
    assert "filebeat" in elastic.FIXTURES
    for path in ("/usr/bin/filebeat", "/usr/share/filebeat/bin/filebeat", "/etc/filebeat/filebeat.yml"):
        assert "FIXTURE" in package.files[path]
    compile(package.files["/usr/share/filebeat/bin/filebeat"], "filebeat", "exec")
