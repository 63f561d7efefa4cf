"""The node is who it should be, and behaves as declared."""

from __future__ import annotations

import json
import re

# The letters of bash's ulimit, whose units are those of limits.conf.
ULIMIT = {"core": "c", "cpu": "t", "fsize": "f", "memlock": "l", "nofile": "n", "nproc": "u", "stack": "s"}
JOURNAL_USAGE = "ec387f577b844b8fa948f33cad9a75e6"  # systemd's message id: how much the journal may take


def test_has_its_name_now_and_after_a_boot(host, opts):
    assert host.check_output("uname -n") == opts["base_hostname"]
    assert host.file("/etc/hostname").content_string.strip() == opts["base_hostname"]


def test_a_login_speaks_the_locale(host, opts):
    said = host.run("su --login root --command 'echo $LANG; locale charmap'")
    wanted = "UTF-8" if opts["base_locale"].endswith("UTF-8") else "ANSI_X3.4-1968"
    # The C library complains on stderr about a locale that it does not have.
    assert said.stderr == ""
    assert said.stdout.split() == [opts["base_locale"], wanted]


def test_tells_the_time_of_its_zone(host, opts):
    there = host.check_output(f"TZ={opts['base_timezone']} date -d @0 '+%Z %z'")
    assert host.check_output("env -u TZ date -d @0 '+%Z %z'") == there
    if host.file("/etc/timezone").exists:
        assert host.file("/etc/timezone").content_string == f"{opts['base_timezone']}\n"
    assert host.check_output("readlink /etc/localtime") == f"/usr/share/zoneinfo/{opts['base_timezone']}"


def test_has_its_packages(host, opts):
    for name in opts["base_packages"]:
        assert host.package(name).is_installed, name


def test_kernel_settings_hold(host, opts):
    for name, value in opts["base_sysctl"].items():
        assert host.check_output(f"sysctl -n {name}").split() == str(value).split(), name


def test_kernel_settings_hold_after_a_boot(host, opts):
    at_boot = {}
    for line in host.check_output("systemd-analyze cat-config sysctl.d").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            at_boot[name.strip().lstrip("-").replace("/", ".")] = value.split()
    for name, value in opts["base_sysctl"].items():
        assert at_boot.get(name) == str(value).split(), name


def test_a_fresh_login_has_the_limits(host, opts):
    for limit in opts["base_limits"]:
        if limit["domain"] != "*" or limit["item"] not in ULIMIT:
            continue
        for kind in {"soft": "S", "hard": "H", "-": "SH"}[limit["type"]]:
            asked = f"ulimit -{kind} -{ULIMIT[limit['item']]}"
            given = host.check_output(f"runuser -l nobody -s /bin/bash -c '{asked}'")
            assert given == str(limit["value"]), f"{asked}: {limit}"


def test_the_running_journal_keeps_to_its_place_and_size(host, opts):
    lines = host.check_output(f"journalctl MESSAGE_ID={JOURNAL_USAGE} -o json -n 20 --no-pager").splitlines()
    said = {}
    for entry in map(json.loads, lines):
        kind = "persistent" if entry["JOURNAL_PATH"].startswith("/var/log/") else "volatile"
        said[kind] = int(entry["MAX_USE"])
    storage = opts["base_journald_storage"]
    if storage != "auto":
        assert said[storage] == opts["base_journald_max_use_mib"] * 1024 * 1024
    if storage == "persistent":
        assert host.file(f"/var/log/journal/{host.check_output('cat /etc/machine-id')}").is_directory


def test_the_journal_forgets_in_time(host, opts):
    kept = host.check_output("systemd-analyze cat-config systemd/journald.conf")
    days = re.findall(r"^MaxRetentionSec=(\d+)day$", kept, re.MULTILINE)
    assert int(days[-1]) == opts["base_journald_max_retention_days"]


def test_unattended_upgrades_keep_to_the_policy(host, opts):
    if not host.exists("apt-config"):
        policy = host.file("/etc/dnf/automatic.conf").content_string
        wanted = "yes" if opts["base_unattended_upgrades"] == "security" else "no"
        assert f"apply_updates = {wanted}" in policy
        assert all(f"{name}*" in policy for name in opts["base_unattended_upgrades_held"])
        return
    dump = host.check_output("apt-config dump")
    upgrades = opts["base_unattended_upgrades"] == "security"
    assert f'APT::Periodic::Unattended-Upgrade "{int(upgrades)}";' in dump
    assert 'Unattended-Upgrade::Automatic-Reboot "false";' in dump
    lists = r'^Unattended-Upgrade::(?:Origins-Pattern|Allowed-Origins):: "(.*)";'
    origins = re.findall(lists, dump, re.MULTILINE)
    assert bool(origins) == upgrades
    assert all("-security" in origin for origin in origins)
    held = re.findall(r'^Unattended-Upgrade::Package-Blacklist:: "(.*)";', dump, re.MULTILINE)
    for beginning in opts["base_unattended_upgrades_held"]:
        assert any(re.match(pattern, f"{beginning}1") for pattern in held), beginning
    assert not any(re.match(pattern, "openssl") for pattern in held)
