"""All nodes follow the heads' clock, and the heads serve whatever happens outside."""

from __future__ import annotations

import ipaddress
import re

STRANGER = "192.0.2.7"  # RFC 5737: an address for documentation
NEAR_SECONDS = 1.0


def is_address(name):
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def sources(host):
    """Return the daemon's live sources: address, whether it is followed, and its last offset in seconds."""
    lines = host.check_output("chronyc -n -c sources").splitlines()
    rows = [line.split(",") for line in lines]
    return {row[2]: (row[1] == "*", float(row[7])) for row in rows if row[0] in "^="}


def unit(host):
    return "chrony" if host.file("/etc/chrony/chrony.conf").exists else "chronyd"


def test_the_daemon_runs_and_starts_at_boot(host):
    assert host.service(unit(host)).is_running
    assert host.service(unit(host)).is_enabled


def test_a_node_follows_the_heads_and_nobody_else(host, opts, eventually):
    if opts["time_serve"]:
        upstream = {name for name in opts["time_upstream_servers"] if is_address(name)}
        assert upstream | set(opts["time_peers"]) <= set(sources(host))
        return
    wanted = set(opts["time_servers"])
    eventually(lambda: set(sources(host)) == wanted, seconds=3)
    eventually(lambda: any(followed for followed, _ in sources(host).values()), seconds=180, every=1)


def test_the_first_of_two_heads_is_right_where_they_differ(host, opts):
    """Of one there is nothing to choose, of three the majority is right."""
    if opts["time_serve"]:
        return
    lines = [line.split(",") for line in host.check_output("chronyc -n -c selectdata").splitlines()]
    # State, address, authentication, then a column for each option that the configuration may set.
    trusted = [row[1] for row in lines if "T" in row[3:8]]
    assert trusted == (opts["time_servers"][:1] if len(opts["time_servers"]) == 2 else [])


def test_the_clocks_agree(host, opts):
    for address, (followed, offset) in sources(host).items():
        if followed:
            assert abs(offset) < NEAR_SECONDS, address


def test_a_head_serves_its_networks_with_or_without_an_upstream(host, opts, eventually):
    if not opts["time_serve"]:
        assert "Access denied" in host.run(f"chronyc accheck {STRANGER}").stdout
        return
    for network in opts["time_allow"]:
        inside = ipaddress.ip_network(network)[1]
        assert "Access allowed" in host.check_output(f"chronyc accheck {inside}"), network
    assert "Access denied" in host.run(f"chronyc accheck {STRANGER}").stdout
    # Stratum 0 means "not synchronised": nobody would follow such a server.
    stratum = eventually(lambda: int(host.check_output("chronyc -c tracking").split(",")[2]), seconds=8)
    followed = any(followed for followed, _ in sources(host).values())
    assert stratum == opts["time_local_stratum"] or followed


def test_the_clock_jumps_only_when_it_may(host, opts):
    path = "/etc/chrony/chrony.conf" if host.file("/etc/chrony/chrony.conf").exists else "/etc/chrony.conf"
    words = [line.split() for line in host.check_output(f"chronyd -p -f {path}").splitlines()]
    jumps = [line[1:] for line in words if line and line[0] == "makestep"]
    wanted = [float(opts["time_makestep_seconds"]), float(opts["time_makestep_updates"])]
    assert [[float(word) for word in line] for line in jumps] == [wanted]
    assert (["rtcsync"] in words) == opts["time_control_clock"]


def test_the_daemon_sets_the_clock_only_where_it_is_the_node_s(host, opts):
    pid = host.check_output(f"systemctl show -p MainPID --value {unit(host)}")
    line = host.check_output(f"tr '\\0' ' ' < /proc/{pid}/cmdline")
    assert (" -x " in line) == (not opts["time_control_clock"])
    # The package's system-call filter stays on.
    assert re.search(r" -F [1-9]", line)
