"""Grafana's files, as role grafana writes them."""

from __future__ import annotations

import configparser
import json
import tomllib

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.coldiron.cluster.plugins.filter import grafana

LDAP = {
    "host": "ldap.example.com",
    "search_base": "dc=example,dc=com",
    "groups": {'cn="admins",dc=example,dc=com': "Admin", "cn=users,dc=example,dc=com": "Viewer"},
}


def test_settings_are_written_by_section_and_empty_ones_left_out() -> None:
    text = grafana.grafana_ini(
        {
            "server": {"http_port": 3000, "cert_file": "", "root_url": "https://head01:3000/"},
            "auth.anonymous": {"enabled": False},
            "empty": {"word": ""},
            "auth.generic_oauth": {"scopes": "a#b;c"},
        }
    )
    read = configparser.RawConfigParser()
    read.read_string(text)
    assert {name: dict(read[name]) for name in read.sections()} == {
        "server": {"http_port": "3000", "root_url": "https://head01:3000/"},
        "auth.anonymous": {"enabled": "false"},
        "auth.generic_oauth": {"scopes": '"""a#b;c"""'},
    }


@pytest.mark.parametrize("value", ["one\n[auth.anonymous]\nenabled = true", '"""'])
def test_a_setting_cannot_bring_others_along(value: str) -> None:
    with pytest.raises(AnsibleFilterError, match="users: default_theme is more than one line"):
        grafana.grafana_ini({"users": {"default_theme": value}})


def test_runbooks_are_linked_where_they_are_and_nowhere_else() -> None:
    (linked,) = grafana.grafana_dashboards(["cluster"], "/there", "https://handbook.example.com/alerts/")
    assert linked["dest"] == "/there/cluster.json"
    assert "https://handbook.example.com/alerts/${__data.fields.Alert}/" in linked["content"]
    assert grafana.RUNBOOKS not in linked["content"]
    (bare,) = grafana.grafana_dashboards(["cluster"], "/there")
    page = json.loads(bare["content"])
    assert grafana.RUNBOOKS not in bare["content"]
    assert [link["title"] for link in page["links"]] == ["coldiron"]
    assert len(page["panels"]) == len(json.loads(linked["content"])["panels"])


def test_every_dashboard_of_the_spec_is_a_file() -> None:
    names = sorted(path.stem for path in grafana.PAGES.glob("*.json"))
    assert len(grafana.grafana_dashboards(names, "/there")) == 8


def test_a_sites_own_dashboard_is_taken_and_anything_else_refused() -> None:
    own = {"name": "own", "json": '{"uid": "own", "panels": []}'}
    assert grafana.grafana_own_dashboards([own], "/there") == [
        {"dest": "/there/site-own.json", "content": '{"uid": "own", "panels": []}\n'}
    ]
    for text in ("no", "[]", '{"uid": "x"}'):
        with pytest.raises(AnsibleFilterError, match="own is not the JSON of a dashboard"):
            grafana.grafana_own_dashboards([{"name": "own", "json": text}], "/there")


def test_secrets_are_grafanas_alone() -> None:
    assert grafana.grafana_secret_files({"key.pem": "x", "oauth-secret": ""}, "/there") == [
        {"dest": "/there/key.pem", "content": "x", "group": "grafana", "mode": "0640", "secret": True}
    ]


def test_the_directory_is_asked_by_tls_and_its_certificate_looked_at() -> None:
    read = tomllib.loads(grafana.grafana_ldap({**LDAP, "ca": "x"}, 'a"b\\c', "/there/ca.pem"))
    (server,) = read["servers"]
    assert server["port"] == 636
    assert server["use_ssl"] is True
    assert server["ssl_skip_verify"] is False
    assert server["root_ca_cert"] == "/there/ca.pem"
    assert server["bind_password"] == 'a"b\\c'
    assert server["group_mappings"] == [
        {"group_dn": group, "org_role": role} for group, role in LDAP["groups"].items()
    ]
    plain = tomllib.loads(grafana.grafana_ldap({**LDAP, "start_tls": True}, "", "/x"))["servers"][0]
    assert (plain["port"], plain["start_tls"]) == (389, True)
    assert "root_ca_cert" not in plain


def test_what_an_option_lacks_is_named() -> None:
    assert grafana.grafana_lacking({"ldap": {}, "oauth": {}, "prometheus": {"url": "x"}}) == []
    assert grafana.grafana_lacking({"ldap": {"host": "x"}, "elasticsearch": {"url": "x"}}) == [
        "ldap.search_base",
        "ldap.groups",
        "elasticsearch.index",
    ]
