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
