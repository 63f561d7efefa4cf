"""Filters that role grafana writes Grafana's files with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

PAGES = Path(__file__).parents[2] / "roles/grafana/files/dashboards"
# What stands in the dashboards for the site's address of the runbooks.
RUNBOOKS = "https://runbooks.invalid"


# What each of these options wants to have in it, if anything is.
WANTED = {
    "ldap": ("host", "search_base", "groups"),
    "oauth": ("name", "client_id", "auth_url", "token_url", "api_url", "role_attribute_path"),
    "prometheus": ("url",),
    "elasticsearch": ("url", "index"),
}


def grafana_lacking(options: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what ``options`` lack, such as ``ldap.host``; one that is empty lacks nothing."""
    return [
        f"{name}.{word}"
        for name, having in options.items()
        if having
        for word in WANTED[name]
        if not having.get(word)
    ]


def grafana_ini(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Return grafana.ini: words by section; those that are empty are left to Grafana."""
    lines = ["# Made by coldiron; role grafana says it anew at each run."]
    for section, words in sections.items():
        kept = {
            word: _value(section, word, value) for word, value in words.items() if value not in ("", None)
        }
        if kept:
            lines += ["", f"[{section}]", *(f"{word} = {value}" for word, value in kept.items())]
    return "\n".join(lines) + "\n"


def _value(section: str, word: str, value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if "\n" in text or '"""' in text:
        raise AnsibleFilterError(
            f"grafana.ini, {section}: {word} is more than one line, which the file cannot say"
        )
    # After either of these Grafana would read a comment.
    return f'"""{text}"""' if set(text) & set("#;") else text


def _without_runbooks(links: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [link for link in links if not str(link.get("url", "")).startswith(RUNBOOKS)]


def _page(text: str, runbooks: str) -> str:
    if runbooks:
        return text.replace(RUNBOOKS, runbooks.rstrip("/"))
    page = json.loads(text)
    page["links"] = _without_runbooks(page.get("links") or [])
    for panel in page["panels"]:
        for override in (panel.get("fieldConfig") or {}).get("overrides") or []:
            for found in override["properties"]:
                if found["id"] == "links":
                    found["value"] = _without_runbooks(found["value"])
    return json.dumps(page, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


def grafana_dashboards(names: Sequence[str], directory: str, runbooks: str = "") -> list[dict[str, str]]:
    """Return the collection's dashboards ``names`` as files in ``directory``, with links to ``runbooks`` or without."""
    return [
        {
            "dest": f"{directory}/{name}.json",
            "content": _page((PAGES / f"{name}.json").read_text("utf-8"), runbooks),
        }
        for name in names
    ]


def grafana_own_dashboards(dashboards: Sequence[Mapping[str, Any]], directory: str) -> list[dict[str, str]]:
    """Return a site's own dashboards as files in ``directory``; what is no JSON of a dashboard is refused."""
    files = []
    for one in dashboards:
        text = one["json"] if isinstance(one["json"], str) else json.dumps(one["json"])
        try:
            panels = json.loads(text)["panels"]
        except (ValueError, KeyError, TypeError):
            panels = None
        if not isinstance(panels, list):
            raise AnsibleFilterError(
                f"grafana_extra_dashboards: {one['name']} is not the JSON of a dashboard"
            )
        files.append({"dest": f"{directory}/site-{one['name']}.json", "content": text.rstrip("\n") + "\n"})
    return files


def grafana_secret_files(texts: Mapping[str, str], directory: str) -> list[dict[str, Any]]:
    """Return ``texts`` that are not empty as files in ``directory`` that Grafana alone reads."""
    return [
        {
            "dest": f"{directory}/{name}",
            "content": str(text),
            "group": "grafana",
            "mode": "0640",
            "secret": True,
        }
        for name, text in texts.items()
        if text
    ]


def grafana_ldap(directory: Mapping[str, Any], password: str, ca: str) -> str:
    """Return ldap.toml: the site's directory, and which of its groups have which role."""
    start_tls = bool(directory.get("start_tls"))
    server: dict[str, Any] = {
        "host": directory["host"],
        "port": directory.get("port") or (389 if start_tls else 636),
        "use_ssl": True,
        "start_tls": start_tls,
        "ssl_skip_verify": False,
        **({"root_ca_cert": ca} if directory.get("ca") else {}),
        "bind_dn": directory.get("bind_dn") or "",
        "bind_password": str(password),
        "search_filter": directory.get("search_filter") or "(uid=%s)",
        "search_base_dns": [directory["search_base"]],
    }
    attributes = {
        "name": "givenName",
        "surname": "sn",
        "username": "uid",
        "member_of": "memberOf",
        "email": "mail",
    }
    lines = ["[[servers]]", *_toml(server), "", "[servers.attributes]", *_toml(attributes)]
    for group, role in directory["groups"].items():
        lines += ["", "[[servers.group_mappings]]", *_toml({"group_dn": group, "org_role": role})]
    return "\n".join(lines) + "\n"


def _toml(words: Mapping[str, Any]) -> list[str]:
    # A JSON string, number, boolean or list of strings is TOML's too.
    return [f"{word} = {json.dumps(value)}" for word, value in words.items()]


class FilterModule:
    """What Ansible takes the filters from."""

    def filters(self) -> dict[str, Any]:
        """The filters by name."""
        return {
            "grafana_dashboards": grafana_dashboards,
            "grafana_ini": grafana_ini,
            "grafana_lacking": grafana_lacking,
            "grafana_ldap": grafana_ldap,
            "grafana_own_dashboards": grafana_own_dashboards,
            "grafana_secret_files": grafana_secret_files,
        }
