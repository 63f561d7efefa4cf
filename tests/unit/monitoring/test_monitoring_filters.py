"""Certificates, web configurations, flags and targets, as monitoring's roles take them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.coldiron.cluster.plugins.filter import monitoring

from coldiron.provision.pki import make_ca_certificate, make_ca_key

KNOWN = {"node01": {"coldiron_kind": "gpu", "coldiron_rack_name": "r01"}, "head01": {}}


def test_a_node_s_pair_is_the_authority_s_and_the_same_each_time(tmp_path: Path) -> None:
    key = make_ca_key()
    authority = make_ca_certificate(key)
    pair = monitoring.site_certificate(["head01", "head01.lab", "", "10.0.0.1"], key, authority)
    assert pair == monitoring.site_certificate(["head01", "head01.lab", "10.0.0.1"], key, authority)
    other = monitoring.site_certificate(["head02", "10.0.0.2"], key, authority)
    assert other["key"] != pair["key"]
    (tmp_path / "ca").write_text(authority)
    (tmp_path / "own").write_text(pair["certificate"])
    said = subprocess.run(
        ["openssl", "verify", "-purpose", "sslserver", "-verify_ip", "10.0.0.1", "-CAfile", "ca", "own"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    with pytest.raises(AnsibleFilterError, match="is of another key"):
        monitoring.site_certificate(["head01"], make_ca_key(), authority)


def test_a_password_s_hash_is_bcrypt_s_and_the_same_each_time() -> None:
    made = monitoring.password_bcrypt("correct horse battery staple")
    assert re.fullmatch(r"\$2b\$06\$[./A-Za-z0-9]{53}", made)
    monitoring.password_bcrypt.cache_clear()
    assert monitoring.password_bcrypt("correct horse battery staple") == made
    # The last letter of bcrypt's salt has two bits only: what is handed over is what comes back.
    assert made[28] in ".Oeu"
    assert monitoring.password_bcrypt("another")[:29] != made[:29]


def test_what_may_be_read_by_whom() -> None:
    assert yaml.safe_load(monitoring.web_config("/etc/x", False, {"prometheus": ""})) == {}
    found = yaml.safe_load(monitoring.web_config("/etc/x", True, {"prometheus": "word"}))
    assert found["tls_server_config"]["key_file"] == "/etc/x/key.pem"
    assert found["basic_auth_users"]["prometheus"].startswith("$2b$")


def test_collectors_are_flags() -> None:
    said = monitoring.collector_words(
        {"zfs": False, "arp": True, "systemd": {"unit-include": "a|b"}, "x": {}}
    )
    assert said == [
        *("--no-collector.zfs", "--collector.arp", "--collector.systemd"),
        *("--collector.systemd.unit-include=a|b", "--collector.x"),
    ]


def test_nothing_in_a_unit_s_words_is_expanded() -> None:
    said = monitoring.unit_words(["/usr/bin/x", "--a=^(b|c)$", "100%", 'say "so"', r"a\.b", 3])
    assert said == '/usr/bin/x --a=^(b|c)$$ 100%% "say \\"so\\"" "a\\\\.b" 3'


def test_a_unit_s_environment_is_taken_as_it_is_written() -> None:
    said = monitoring.unit_environment({"A": "plain", "B": 'say "so" \\ $HOME `x` it\'s %n'})
    assert said == 'A="plain"\nB="say \\"so\\" \\\\ \\$HOME \\`x\\` it\'s %n"\n'


def test_targets_are_addresses_with_the_node_s_name_kind_and_rack() -> None:
    addresses = {"node01": "10.0.0.1", "head01": "10.0.0.9"}
    assert monitoring.scrape_targets(addresses, ["node01", "head01"], 9100, {}, KNOWN) == [
        {"address": "10.0.0.1:9100", "labels": {"instance": "node01", "kind": "gpu", "rack": "r01"}},
        {"address": "10.0.0.9:9100", "labels": {"instance": "head01"}},
    ]
    probes = [{"module": "ssh", "port": 22, "of": "nodes"}, {"module": "icmp", "of": "heads"}]
    shape = {"nodes": ["node01", "gone"], "heads": ["head01"]}
    assert monitoring.probe_targets(addresses, probes, shape, {}, KNOWN) == [
        {
            "address": "10.0.0.1:22",
            "labels": {"instance": "node01", "kind": "gpu", "rack": "r01", "module": "ssh"},
        },
        {"address": "10.0.0.9", "labels": {"instance": "head01", "module": "icmp"}},
    ]


def test_rules_are_those_of_the_roles_that_are_there() -> None:
    assert monitoring.rules_of(["users", "no_such_role"]) == []
    found = monitoring.rules_of(["gpu_exporter"])
    assert "coldiron-gpu.rules.yml" in [one["name"] for one in found]
    assert all("groups:" in one["content"] for one in found)


WANTED = {
    "directory": "/etc/p",
    "interval_seconds": 15,
    "timeout_seconds": 10,
    "labels": {"cluster": "lab"},
    "tls": True,
    "ca": True,
    "user": "prometheus",
    "password": True,
    "alertmanagers": ["10.0.0.1:9093"],
    "remote_write": [{"url": "https://far.invalid/write"}],
    "settings": {},
}


def test_jobs_become_prometheus_words() -> None:
    jobs = [
        {"name": "node"},
        {"name": "gpu", "tls": False, "password": False, "interval_seconds": 5},
        {"name": "probe", "via": "10.0.0.1:9115", "path": "/probe"},
        {"name": "far", "federate": ['{job="node"}'], "settings": {"scrape_interval": "2m"}},
        {"name": "shown", "password": False, "certificate": True},
    ]
    found = yaml.safe_load(monitoring.prometheus_config({**WANTED, "jobs": jobs}))
    node, gpu, probe, far, shown = found["scrape_configs"]
    assert node["tls_config"] == {"ca_file": "/etc/p/ca.pem"}
    assert node["basic_auth"] == {"username": "prometheus", "password_file": "/etc/p/scrape-password"}
    assert (node["scheme"], node["metrics_path"]) == ("https", "/metrics")
    assert not {"scheme", "tls_config", "basic_auth"} & set(gpu)
    assert (gpu["scrape_interval"], gpu["scrape_timeout"]) == ("5s", "5s")
    assert probe["relabel_configs"][-1] == {"target_label": "__address__", "replacement": "10.0.0.1:9115"}
    assert (far["honor_labels"], far["metrics_path"]) == (True, "/federate")
    assert far["scrape_interval"] == "2m"
    assert (shown["scheme"], "basic_auth" in shown) == ("https", False)
    assert shown["tls_config"] == {
        "ca_file": "/etc/p/ca.pem",
        "cert_file": "/etc/p/certificate.pem",
        "key_file": "/etc/p/key.pem",
    }
    assert found["alerting"]["alertmanagers"][0]["static_configs"] == [{"targets": ["10.0.0.1:9093"]}]
    assert found["remote_write"] == [{"url": "https://far.invalid/write"}]


def test_runbooks_have_the_site_s_address() -> None:
    text = "annotations:\n          runbook: runbooks/A.html\n          runbook: https://b/C\n"
    assert monitoring.with_runbooks(text, "") == text
    found = monitoring.with_runbooks(text, "https://docs.invalid/")
    assert '          runbook: "https://docs.invalid/runbooks/A.html"\n' in found
    assert "runbook: https://b/C\n" in found


def test_jobs_of_nobody_are_left_out() -> None:
    scrapes = [
        {"name": "node", "of": "monitored", "port": "9100"},
        {"name": "gpu", "of": "gpus", "port": 1, "tls": False},
    ]
    addresses = {"node01": "10.0.0.1"}
    jobs = monitoring.scrape_jobs(
        addresses, scrapes, {"monitored": ["node01", "gone"], "gpus": []}, {}, KNOWN
    )
    assert [(job["name"], [one["address"] for one in job["targets"]]) for job in jobs] == [
        ("node", ["10.0.0.1:9100"])
    ]


BMCS = {
    "a": {"coldiron_bmc_address": "10.9.0.1", "coldiron_bmc_credentials": "bmc", "coldiron_rack_name": "r1"},
    "b": {"coldiron_bmc_address": "10.9.0.2"},
    "c": {},
}


def test_bmcs_are_targets_of_one_job_by_address_or_by_name() -> None:
    assert monitoring.bmc_targets(["a", "b", "c"], {}, BMCS, "ipmi") == [
        {"address": "10.9.0.1", "labels": {"instance": "a", "rack": "r1", "job": "bmc", "module": "bmc"}},
        {"address": "10.9.0.2", "labels": {"instance": "b", "job": "bmc", "module": "default"}},
    ]
    assert monitoring.bmc_targets(["a", "c"], {}, BMCS, "redfish") == [
        {"address": "a", "labels": {"instance": "a", "rack": "r1", "job": "bmc"}}
    ]


def test_who_logs_in_to_bmcs_is_read_once_a_name() -> None:
    asked = []

    class Vars(dict):  # type: ignore[type-arg]
        def __getitem__(self, host: str) -> object:
            asked.append(host)
            return super().__getitem__(host)

    pair = {"user": "reader", "password": "canary"}
    hostvars = Vars({"a": {"bmc": pair}, "d": {"bmc": {"user": "other"}}, "e": {}})
    known = {
        **BMCS,
        "d": {"coldiron_bmc_credentials": "bmc"},
        "e": {"coldiron_bmc_credentials": "nobody_wrote"},
    }
    assert monitoring.bmc_logins(["a", "b", "c", "d", "e"], hostvars, known) == {"bmc": pair}
    assert asked == ["a", "e"]
    module = monitoring.ipmi_modules({"bmc": pair}, ["ipmi", "sel"])["bmc"]
    assert (module["user"], module["pass"], module["collectors"]) == ("reader", "canary", ["ipmi", "sel"])
    assert module["privilege"] == "user"


def test_the_redfish_exporter_is_told_addresses_and_learnt_certificates() -> None:
    learnt = {"b": {"address": "10.9.0.2", "fingerprint": "SHA256:AB"}, "gone": {"fingerprint": "SHA256:CD"}}
    assert monitoring.redfish_targets(["a", "b", "c"], {}, BMCS, learnt) == {
        "a": {"address": "10.9.0.1", "credentials": "bmc"},
        "b": {"address": "10.9.0.2", "credentials": "", "fingerprint": "SHA256:AB"},
    }
    assert monitoring.redfish_targets(["a"], {}, BMCS, {}, 8443)["a"]["port"] == 8443


def test_the_authority_is_the_first_bmcs() -> None:
    hostvars = {"a": {"bmc_ca": "", "coldiron_bmc_ca": "/x/ca.crt"}, "b": {"bmc_ca": "/y.crt"}, "c": {}}
    assert monitoring.bmc_authority(["a", "b"], hostvars) == "/x/ca.crt"
    assert monitoring.bmc_authority(["b"], hostvars) == "/y.crt"
    assert monitoring.bmc_authority(["c"], hostvars) == monitoring.bmc_authority([], hostvars) == ""


RECEIVERS = {
    "directory": "/etc/a",
    "smtp": {},
    "receivers": [],
    "routes": [],
    "group_by": ["alertname"],
    "group_wait_seconds": 30,
    "group_interval_seconds": 300,
    "repeat_hours": 12,
    "inhibitions": [],
    "watchdog": "",
    "repair": {"url": "", "token": ""},
    "settings": {},
}


def test_without_receivers_nobody_is_told() -> None:
    found = yaml.safe_load(monitoring.alertmanager_config(RECEIVERS))
    assert found["receivers"] == [{"name": "nobody"}]
    assert found["route"]["receiver"] == "nobody"


def test_receivers_the_watchdog_and_repairs() -> None:
    receivers = [
        {"name": "people", "mail": ["a@b.invalid"], "slack": [{"url": "https://s.invalid", "channel": "#c"}]},
        {
            "name": "hooks",
            "webhooks": [{"url": "https://w.invalid", "token": "t"}, {"url": "https://v.invalid"}],
        },
    ]
    wanted = {
        **RECEIVERS,
        "smtp": {"host": "m.invalid:587", "from": "c@b.invalid", "user": "u", "password": "p", "tls": False},
        "receivers": receivers,
        "routes": [{"matchers": ['severity="page"'], "receiver": "hooks"}],
        "watchdog": "https://dead.invalid",
        "repair": {"url": "https://head:9661/alerts", "token": "word"},
    }
    found = yaml.safe_load(monitoring.alertmanager_config(wanted))
    assert [one["name"] for one in found["receivers"]] == [
        "people",
        "hooks",
        "nobody",
        "watchdog",
        "coldiron-repair",
    ]
    people, hooks, _, _, repair = found["receivers"]
    assert people["email_configs"] == [{"to": "a@b.invalid", "send_resolved": True}]
    assert people["slack_configs"] == [
        {"api_url": "https://s.invalid", "send_resolved": True, "channel": "#c"}
    ]
    assert hooks["webhook_configs"][0]["http_config"] == {"authorization": {"credentials": "t"}}
    assert "http_config" not in hooks["webhook_configs"][1]
    assert repair["webhook_configs"][0]["http_config"] == {"authorization": {"credentials": "word"}}
    watchdog, repairs, page = found["route"]["routes"]
    assert (watchdog["receiver"], watchdog["repeat_interval"]) == ("watchdog", "1m")
    # People are told of what is repaired too.
    assert (repairs["receiver"], repairs["continue"]) == ("coldiron-repair", True)
    assert page["receiver"] == "hooks"
    assert found["global"] == {
        "smtp_smarthost": "m.invalid:587", "smtp_from": "c@b.invalid", "smtp_auth_username": "u",
        "smtp_auth_password": "p", "smtp_require_tls": False,
    }  # fmt: skip
