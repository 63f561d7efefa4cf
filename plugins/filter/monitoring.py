"""Filters that monitoring's roles and topology.yml share: certificates, web configurations, flags and targets."""

from __future__ import annotations

import base64
import ctypes
import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

ROLES = Path(__file__).parents[2] / "roles"
#: bcrypt's own alphabet, in base64's order.
_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BCRYPT = b"./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@functools.lru_cache(maxsize=4096)
def _issue(key: str, certificate: str, names: tuple[str, ...]) -> tuple[str, str]:
    from coldiron.errors import ColdironError
    from coldiron.provision.pki import issue

    try:
        return issue(key, certificate, names)
    except ColdironError as error:
        raise AnsibleFilterError(error.message) from None


def site_certificate(names: Sequence[str], key: str, certificate: str) -> dict[str, str]:
    """Return the ``certificate`` and ``key`` of who is called ``names``, by the site's authority, as PEM."""
    pair = _issue(str(key), str(certificate), tuple(str(name) for name in names if name))
    return {"certificate": pair[0], "key": pair[1]}


@functools.lru_cache(maxsize=64)
def password_bcrypt(password: str) -> str:
    """Return the bcrypt hash of ``password``, the same each time.

    The salt follows from the password by a function that is slower than the hash, so it gives nothing away.
    """
    salt = hashlib.scrypt(password.encode(), salt=b"coldiron web password", n=2**13, r=8, p=1, dklen=16)
    letters = base64.b64encode(salt).rstrip(b"=").translate(bytes.maketrans(_STANDARD, _BCRYPT))
    try:
        crypt = ctypes.CDLL("libcrypt.so.1").crypt
    except OSError:
        try:
            crypt = ctypes.CDLL("libcrypt.so.2").crypt
        except OSError:
            raise AnsibleFilterError(
                "the controller has no libcrypt, which hashes passwords; install libcrypt1 or libxcrypt"
            ) from None
    crypt.restype = ctypes.c_char_p
    made = crypt(password.encode(), b"$2b$06$" + letters)
    if not made or not made.startswith(b"$2b$"):
        raise AnsibleFilterError("the controller's libcrypt makes no bcrypt hashes; install libxcrypt")
    return str(made.decode("ascii"))


def web_config(directory: str, tls: bool, users: Mapping[str, str]) -> str:
    """Return what exporters, Prometheus and Alertmanager call their web configuration, as YAML.

    With ``tls`` certificate.pem and key.pem lie in ``directory``. ``users`` are names with their passwords; where there
    is none, or none has a password, everybody may read.
    """
    words: dict[str, Any] = {}
    if tls:
        words["tls_server_config"] = {
            "cert_file": f"{directory}/certificate.pem",
            "key_file": f"{directory}/key.pem",
            "min_version": "TLS12",
        }
    known = {str(user): password_bcrypt(str(password)) for user, password in users.items() if password}
    if known:
        words["basic_auth_users"] = known
    return yaml.safe_dump(words, sort_keys=True)


def collector_words(collectors: Mapping[str, Any]) -> list[str]:
    """Return node_exporter's flags for ``collectors``: true, false, or a collector's own flags."""
    words = []
    for name, wanted in collectors.items():
        words.append(
            f"--collector.{name}" if wanted or isinstance(wanted, Mapping) else f"--no-collector.{name}"
        )
        if isinstance(wanted, Mapping):
            words += [f"--collector.{name}.{key}={value}" for key, value in wanted.items()]
    return words


def unit_words(words: Sequence[Any]) -> str:
    """Return ``words`` as one ExecStart: quoted, and nothing in them is systemd's to expand."""
    quoted = []
    for word in map(str, words):
        text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
        quoted.append(f'"{text}"' if set(text) & set(" \t'\"\\;") or not text else text)
    return " ".join(quoted)


def unit_environment(variables: Mapping[str, Any]) -> str:
    """Return ``variables`` as a file for EnvironmentFile: each value as it is, whatever is in it."""
    lines = []
    for name, value in variables.items():
        text = re.sub(r'(["\\`$])', r"\\\1", str(value))
        lines.append(f'{name}="{text}"\n')
    return "".join(lines)


def with_runbooks(content: str, base: str) -> str:
    """Return the text of a rules file with ``base`` before each runbook that is no address itself."""
    if not base:
        return content
    return re.sub(
        r"^(\s+runbook:\s+)[\"']?(?!https?:)([\w./-]+)[\"']?\s*$",
        lambda found: f'{found[1]}"{base.rstrip("/")}/{found[2]}"',
        content,
        flags=re.MULTILINE,
    )


def scrape_config(job: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return one job of ``prometheus_jobs`` as Prometheus' own words. Its targets lie in a file of its name."""
    directory = wanted["directory"]
    words: dict[str, Any] = {
        "job_name": job["name"],
        "metrics_path": job.get("path") or "/metrics",
        "file_sd_configs": [{"files": [f"{directory}/targets/{job['name']}.json"]}],
    }
    if job.get("interval_seconds"):
        words["scrape_interval"] = f"{job['interval_seconds']}s"
        words["scrape_timeout"] = f"{min(job['interval_seconds'], wanted['timeout_seconds'])}s"
    words |= _way(job, wanted)
    if job.get("federate"):
        words |= {"honor_labels": True, "metrics_path": "/federate", "params": {"match[]": job["federate"]}}
    if job.get("via"):
        # What a probe is asked about is its target's address; who is asked is the exporter.
        words["relabel_configs"] = [
            {"source_labels": ["__address__"], "target_label": "__param_target"},
            {"source_labels": ["module"], "regex": "(.+)", "target_label": "__param_module"},
            {"source_labels": ["__address__"], "target_label": "target"},
            {"target_label": "__address__", "replacement": job["via"]},
        ]
    return {**words, **(job.get("settings") or {})}


def _way(job: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """How a job's targets, or Alertmanagers, are spoken to."""
    directory = wanted["directory"]
    tls, password = (wanted[name] if job.get(name) is None else job[name] for name in ("tls", "password"))
    words: dict[str, Any] = {}
    if tls:
        words["scheme"] = "https"
        words["tls_config"] = {"ca_file": f"{directory}/ca.pem"} if wanted["ca"] else {}
        if job.get("certificate"):
            words["tls_config"] |= {
                "cert_file": f"{directory}/certificate.pem",
                "key_file": f"{directory}/key.pem",
            }
    if password:
        words["basic_auth"] = {
            "username": wanted["user"],
            "password_file": f"{directory}/scrape-password",
        }
    return words


def prometheus_config(wanted: Mapping[str, Any]) -> str:
    """Return prometheus.yml for what role prometheus wants: ``jobs`` and what holds for all of them."""
    words: dict[str, Any] = {
        "global": {
            "scrape_interval": f"{wanted['interval_seconds']}s",
            "scrape_timeout": f"{wanted['timeout_seconds']}s",
            "evaluation_interval": f"{wanted['interval_seconds']}s",
            "external_labels": {str(name): str(value) for name, value in wanted["labels"].items()},
        },
        "rule_files": [f"{wanted['directory']}/rules/*.yml"],
        "scrape_configs": [scrape_config(job, wanted) for job in wanted["jobs"]],
    }
    if wanted["alertmanagers"]:
        targets = [{"targets": list(wanted["alertmanagers"])}]
        words["alerting"] = {"alertmanagers": [{**_way({}, wanted), "static_configs": targets}]}
    if wanted["remote_write"]:
        words["remote_write"] = [dict(one) for one in wanted["remote_write"]]
    return _yaml({**words, **wanted["settings"]})


def _receiver(one: Mapping[str, Any]) -> dict[str, Any]:
    """One receiver of ``alertmanager_receivers`` as Alertmanager's own words."""
    words: dict[str, Any] = {"name": one["name"]}
    if one.get("mail"):
        words["email_configs"] = [{"to": to, "send_resolved": True} for to in one["mail"]]
    if one.get("webhooks"):
        words["webhook_configs"] = [
            {
                "url": hook["url"],
                "send_resolved": True,
                **(
                    {"http_config": {"authorization": {"credentials": hook["token"]}}}
                    if hook.get("token")
                    else {}
                ),
            }
            for hook in one["webhooks"]
        ]
    if one.get("slack"):
        words["slack_configs"] = [
            {
                "api_url": slack["url"],
                "send_resolved": True,
                **({"channel": slack["channel"]} if slack.get("channel") else {}),
            }
            for slack in one["slack"]
        ]
    return {**words, **(one.get("settings") or {})}


def alertmanager_config(wanted: Mapping[str, Any]) -> str:
    """Return alertmanager.yml for what role alertmanager wants.

    A receiver ``nobody`` is always there. The watchdog and what wants repair have routes before the site's own.
    """
    receivers = [_receiver(one) for one in wanted["receivers"]]
    first = receivers[0]["name"] if receivers else "nobody"
    if "nobody" not in [one["name"] for one in receivers]:
        receivers.append({"name": "nobody"})
    routes: list[dict[str, Any]] = [
        {
            "matchers": ['alertname="Watchdog"'],
            "receiver": "watchdog" if wanted["watchdog"] else "nobody",
            "group_wait": "0s",
            "group_interval": "1m",
            "repeat_interval": "1m",
        }
    ]
    if wanted["watchdog"]:
        hook = {"url": wanted["watchdog"], "send_resolved": False}
        receivers.append({"name": "watchdog", "webhook_configs": [hook]})
    if wanted["repair"]["url"]:
        about = _receiver({"name": "coldiron-repair", "webhooks": [wanted["repair"]]})
        if wanted["repair"].get("ca"):
            http = about["webhook_configs"][0].setdefault("http_config", {})
            http["tls_config"] = {"ca_file": f"{wanted['directory']}/repair-ca.pem"}
        receivers.append(about)
        # People are told too.
        matchers = ['coldiron_repair="true"']
        routes.append({"matchers": matchers, "receiver": "coldiron-repair", "continue": True})
    words: dict[str, Any] = {}
    smtp = wanted["smtp"]
    if smtp:
        keys = {"host": "smarthost", "from": "from", "user": "auth_username", "password": "auth_password"}
        words["global"] = {f"smtp_{keys[key]}": smtp[key] for key in keys if smtp.get(key)}
        words["global"]["smtp_require_tls"] = bool(smtp.get("tls", True))
    words |= {
        "templates": [f"{wanted['directory']}/templates/*.tmpl"],
        "route": {
            "receiver": first,
            "group_by": list(wanted["group_by"]),
            "group_wait": f"{wanted['group_wait_seconds']}s",
            "group_interval": f"{wanted['group_interval_seconds']}s",
            "repeat_interval": f"{wanted['repeat_hours']}h",
            "routes": [*routes, *wanted["routes"]],
        },
        "inhibit_rules": list(wanted["inhibitions"]),
        "receivers": receivers,
    }
    return _yaml({**words, **wanted["settings"]})


def template_files(templates: Sequence[Mapping[str, str]], directory: str) -> list[dict[str, str]]:
    """Return Alertmanager's templates as files, as module converge takes them."""
    return [{"dest": f"{directory}/templates/{one['name']}", "content": one["content"]} for one in templates]


def _yaml(words: Any) -> str:
    """YAML of plain values: Ansible's own marks on strings are none of its business."""
    return yaml.safe_dump(json.loads(json.dumps(words, default=str)), sort_keys=False, width=120)


def target_files(jobs: Sequence[Mapping[str, Any]], directory: str) -> list[dict[str, str]]:
    """Return the files of the jobs' targets, as module converge takes them. Prometheus sees a changed one itself."""
    found = []
    for job in jobs:
        entries = [
            {
                "targets": [str(one["address"])],
                "labels": {str(name): str(value) for name, value in (one.get("labels") or {}).items()},
            }
            for one in job.get("targets") or []
        ]
        path = f"{directory}/targets/{job['name']}.json"
        found.append({"dest": path, "content": json.dumps(entries, indent=1) + "\n"})
    return found


def rule_files(
    rules: Sequence[Mapping[str, str]], directory: str, runbooks: str, command: str
) -> list[dict[str, str]]:
    """Return rules as files, as module converge takes them, each judged by ``command`` before it is swapped in."""
    return [
        {
            "dest": f"{directory}/rules/{one['name']}",
            "content": with_runbooks(one["content"], runbooks),
            "validate": command,
        }
        for one in rules
    ]


def labels_of(
    host: str, hostvars: Mapping[str, Mapping[str, Any]], known: Mapping[str, Any]
) -> dict[str, str]:
    """Return what every metric of a host is labelled with: its name, its kind and its rack, where they are known."""
    variables = known[host] if host in known else hostvars[host]
    labels = {"instance": host}
    for label, name in (("kind", "coldiron_kind"), ("rack", "coldiron_rack_name")):
        if variables.get(name):
            labels[label] = str(variables[name])
    return labels


def scrape_targets(
    addresses: Mapping[str, str],
    hosts: Sequence[str],
    port: int,
    hostvars: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return ``hosts`` as role prometheus takes targets: address with port, and labels."""
    return [
        {"address": f"{addresses[host]}:{port}", "labels": labels_of(host, hostvars, known)} for host in hosts
    ]


def scrape_jobs(
    addresses: Mapping[str, str],
    scrapes: Sequence[Mapping[str, Any]],
    shape: Mapping[str, Sequence[str]],
    hostvars: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return ``scrapes`` (name, port, of: a function in ``shape``, and more of a job) as jobs of role prometheus.

    A job of nobody is left out.
    """
    found = []
    for scrape in scrapes:
        hosts = [host for host in shape[scrape["of"]] if host in addresses]
        more = {key: value for key, value in scrape.items() if key not in ("of", "port")}
        if hosts:
            targets = scrape_targets(addresses, hosts, int(scrape["port"]), hostvars, known)
            found.append({**more, "targets": targets})
    return found


def bmc_targets(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], known: Mapping[str, Any], protocol: str
) -> list[dict[str, Any]]:
    """Return the BMCs of ``hosts``, which speak ``protocol``, as targets with their nodes' labels.

    The IPMI exporter is told an address and who logs in; the Redfish exporter, which knows both, the node's name. Both
    are of one job to whoever reads the metrics.
    """
    found = []
    for host in hosts:
        variables = known[host] if host in known else hostvars[host]
        if not variables.get("coldiron_bmc_address"):
            continue
        labels = {**labels_of(host, hostvars, known), "job": "bmc"}
        if protocol == "ipmi":
            labels["module"] = variables.get("coldiron_bmc_credentials") or "default"
        found.append(
            {"address": variables["coldiron_bmc_address"] if protocol == "ipmi" else host, "labels": labels}
        )
    return found


def bmc_logins(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], known: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    """Return ``user`` and ``password`` by the names of credentials that the BMCs of ``hosts`` have.

    A host is asked for its variables once for each name, as those are dear. What nobody has written is left out.
    """
    found: dict[str, dict[str, str]] = {}
    seen = set()
    for host in hosts:
        name = (known[host] if host in known else hostvars[host]).get("coldiron_bmc_credentials")
        if not name or name in seen:
            continue
        seen.add(name)
        pair = hostvars[host].get(name)
        if isinstance(pair, Mapping):
            found[name] = {key: str(pair.get(key) or "") for key in ("user", "password")}
    return found


def ipmi_modules(
    logins: Mapping[str, Mapping[str, str]], collectors: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return ``logins`` as the IPMI exporter's modules."""
    return {
        name: {
            "user": pair["user"],
            "pass": pair["password"],
            "driver": "LAN_2_0",
            # Reading needs no more, and a session with less can do less harm.
            "privilege": "user",
            "timeout": 20000,
            "collectors": list(collectors),
            # Many BMCs say in the handshake what they do not mean; FreeIPMI's own list of them is long.
            "workaround_flags": ["opensesspriv"],
        }
        for name, pair in logins.items()
    }


def redfish_targets(
    hosts: Sequence[str],
    hostvars: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Any],
    learnt: Mapping[str, Any],
    port: int = 0,
) -> dict[str, dict[str, Any]]:
    """Return the BMCs of ``hosts`` as the Redfish exporter's targets; ``learnt`` are certificates known by name."""
    found: dict[str, dict[str, Any]] = {}
    for host in hosts:
        variables = known[host] if host in known else hostvars[host]
        if variables.get("coldiron_bmc_address"):
            found[host] = {
                "address": variables["coldiron_bmc_address"],
                "credentials": variables.get("coldiron_bmc_credentials") or "",
                **({"port": int(port)} if port else {}),
                **({"fingerprint": learnt[host]["fingerprint"]} if host in learnt else {}),
            }
    return found


def bmc_authority(hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the path on the controller of the authority that the BMCs of ``hosts`` have; the first one's counts."""
    for host in hosts[:1]:
        for name in ("bmc_ca", "coldiron_bmc_ca"):
            if name in hostvars[host] and hostvars[host][name]:
                return str(hostvars[host][name])
    return ""


def probe_targets(
    addresses: Mapping[str, str],
    probes: Sequence[Mapping[str, Any]],
    shape: Mapping[str, Sequence[str]],
    hostvars: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Return the targets of ``probes`` (module, port, of: a function in ``shape``) for the blackbox exporter.

    ``listens`` is an address that it listens on: what only its host hears, as behind a proxy of the site's own, is not
    asked from outside.
    """
    return [
        {
            "address": f"{addresses[host]}:{probe['port']}" if probe.get("port") else addresses[host],
            "labels": {**labels_of(host, hostvars, known), "module": probe["module"]},
        }
        for probe in probes
        for host in shape[probe["of"]]
        if host in addresses and not str(probe.get("listens") or "").startswith("127.")
    ]


def rules_of(roles: Sequence[str]) -> list[dict[str, str]]:
    """Return the rules that the ``roles`` bring, each file's name and content. A role without any brings none."""
    return [
        {"name": path.name, "content": path.read_text(encoding="utf-8")}
        for role in roles
        for path in sorted((ROLES / role / "files").glob("*.rules.yml"))
    ]


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "alertmanager_config": alertmanager_config,
            "collector_words": collector_words,
            "prometheus_config": prometheus_config,
            "rule_files": rule_files,
            "target_files": target_files,
            "template_files": template_files,
            "password_bcrypt": password_bcrypt,
            "bmc_authority": bmc_authority,
            "bmc_logins": bmc_logins,
            "bmc_targets": bmc_targets,
            "ipmi_modules": ipmi_modules,
            "redfish_targets": redfish_targets,
            "probe_targets": probe_targets,
            "scrape_jobs": scrape_jobs,
            "rules_of": rules_of,
            "scrape_targets": scrape_targets,
            "site_certificate": site_certificate,
            "unit_environment": unit_environment,
            "unit_words": unit_words,
            "web_config": web_config,
        }
