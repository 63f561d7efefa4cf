"""munge vouches, with the cluster's key, and the cluster believes it."""

import base64
import hashlib

import pytest

KEY = "/etc/munge/munge.key"


def test_the_daemon_runs_and_is_enabled(host):
    munge = host.service("munge")
    assert munge.is_running
    assert munge.is_enabled


def test_the_key_is_the_clusters(host, opts):
    wanted = hashlib.sha256(base64.b64decode(opts["munge_key"])).hexdigest()
    # Digests are compared: a failing assertion must not print the key.
    assert host.file(KEY).sha256sum == wanted


def test_nobody_else_reads_the_key(host):
    key = host.file(KEY)
    assert (key.user, key.group, key.mode) == ("munge", "munge", 0o400)
    directory = host.file("/etc/munge")
    assert (directory.user, directory.mode) == ("munge", 0o700)


def test_a_credential_goes_round(host):
    answer = host.run("munge -n | unmunge")
    assert answer.rc == 0, answer.stdout + answer.stderr
    assert "STATUS:" in answer.stdout
    assert "Success (0)" in answer.stdout


def test_the_daemon_uses_the_key_of_the_file(host, opts):
    """A credential made with the declared key, by another munged, is believed by the running daemon.

    The other munged has its own socket and a copy of the key, so a daemon that still holds an older key shows.
    """
    script = r"""
set -eu
work=$(mktemp -d); trap 'test -s "$work/pid" && kill "$(cat "$work/pid")"; rm -rf "$work"' EXIT
chown munge "$work"; chmod 0755 "$work"
install -o munge -m 0400 /etc/munge/munge.key "$work/key"
runuser -u munge -- munged --force --key-file="$work/key" --socket="$work/socket" --pid-file="$work/pid" \
    --log-file="$work/log" --seed-file="$work/seed" </dev/null >/dev/null 2>&1
munge -n --socket="$work/socket" | unmunge
"""
    answer = host.run("sh -c %s", script)
    assert answer.rc == 0, answer.stdout + answer.stderr
    assert "Success (0)" in answer.stdout


@pytest.mark.parametrize("mode", ["-c 0", "-c 5"])
def test_other_hosts_believe_it(host, peers, mode):
    """``peers``: the other hosts of this role; each decodes what this one vouches for."""
    for peer in peers:
        credential = host.check_output("munge -n")
        answer = peer.run("printf %%s %s | unmunge", credential)
        assert answer.rc == 0, f"{peer.backend.hostname}: {answer.stdout} {answer.stderr}"
