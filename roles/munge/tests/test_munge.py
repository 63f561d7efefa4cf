"""munge vouches, with the cluster's key, and the cluster believes it."""

from __future__ import annotations

import base64
import hashlib

KEY = "/etc/munge/munge.key"


def test_the_daemon_runs_and_starts_at_boot(host):
    munge = host.service("munge")
    assert munge.is_running
    assert munge.is_enabled


def test_the_key_is_the_clusters(host, opts):
    wanted = hashlib.sha256(base64.b64decode(str.__str__(opts["munge_key"]))).hexdigest()
    # Digests are compared: a failing assertion must not print the key.
    assert host.file(KEY).sha256sum == wanted


def test_nobody_else_reads_or_replaces_the_key(host):
    key = host.file(KEY)
    assert (key.user, key.group, key.mode) == ("munge", "munge", 0o400)
    directory = host.file("/etc/munge")
    assert (directory.user, directory.mode) == ("munge", 0o700)


def test_a_credential_goes_round(host):
    answer = host.run("munge -n | unmunge")
    assert answer.rc == 0, answer.stdout + answer.stderr
    assert "Success (0)" in answer.stdout


def test_the_daemon_holds_the_key_of_the_file(host):
    """Another munged with the file's key makes a credential, and the daemon believes it.

    A daemon that was not restarted after its key changed shows here and nowhere else on one host.
    """
    script = r"""
work=$(mktemp -d)
trap 'kill "$(cat "$work/pid")"; rm -rf "$work"' EXIT
chown munge: "$work" && chmod 0755 "$work"
install -o munge -g munge -m 0400 /etc/munge/munge.key "$work/key"
runuser -u munge -- munged --force --key-file="$work/key" --socket="$work/socket" --pid-file="$work/pid" \
    --log-file="$work/log" --seed-file="$work/seed" </dev/null >/dev/null 2>&1
munge -n --socket="$work/socket" | unmunge
"""
    answer = host.run("sh -c %s", script)
    assert "Success (0)" in answer.stdout, answer.stdout + answer.stderr


def test_another_host_believes_it(host, hostname, role_hosts, run_on):
    """The next host of the cluster decodes what this one vouches for: same key, and clocks close enough."""
    hosts = role_hosts("munge")
    other = hosts[(hosts.index(hostname) + 1) % len(hosts)]
    credential = host.check_output("munge -n")
    answer = run_on(other).run("printf %%s %s | unmunge", credential)
    assert answer.rc == 0, f"{other}: {answer.stdout} {answer.stderr}"
