"""The heads answer for every name, and every node asks them, whatever a DHCP client says."""

from __future__ import annotations

import ipaddress
import json
import shlex

import pytest

# A resolver of a few lines, run on the node: it asks one server, past /etc/hosts and resolv.conf. Prints a
# list of [rcode, answers] for a list of [name, type, class].
ASK = r"""
import json, socket, struct, sys
def name_at(data, at):
    labels, after = [], None
    while data[at]:
        if data[at] >= 192:
            after = after or at + 2
            at = struct.unpack_from("!H", data, at)[0] & 0x3FFF
            continue
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += data[at] + 1
    return ".".join(labels), after or at + 1
def ask(name, kind, family):
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(2)
        link.connect((server, 53))
        for attempt in range(2):
            head, tail = struct.pack("!6H", 7, 256, 1, 0, 0, 0), struct.pack("!2H", kind, family)
            try:
                link.send(head + question + tail)
                data = link.recv(4096)
                break
            except socket.timeout:
                if attempt:
                    return [-1, []]
            except OSError:
                return [-1, []]
    at = name_at(data, 12)[1] + 4
    answers = []
    for _ in range(struct.unpack_from("!H", data, 6)[0]):
        at = name_at(data, at)[1]
        found, size = struct.unpack_from("!H6xH", data, at)
        at += 10
        if found == 1:
            answers.append(socket.inet_ntop(socket.AF_INET, data[at : at + size]))
        elif found == 28:
            answers.append(socket.inet_ntop(socket.AF_INET6, data[at : at + size]))
        elif found == 12:
            answers.append(name_at(data, at)[0])
        elif found == 16:
            word, end = at, at + size
            while word < end:
                answers.append(data[word + 1 : word + 1 + data[word]].decode())
                word += 1 + data[word]
        at += size
    return [data[3] & 15, answers]
server = sys.argv[1]
print(json.dumps([ask(*question) for question in json.load(sys.stdin)]))
"""
A, PTR, TXT, AAAA = 1, 12, 16, 28
IN, CHAOS = 1, 3
OK, NO_SUCH_NAME = 0, 3
STRANGER = "192.0.2.53"  # RFC 5737: an address for documentation


def ask(host, server, questions):
    """Ask a server from a node; one (rcode, answers) for each (name, type, class)."""
    asked = shlex.quote(json.dumps(questions))
    return json.loads(host.check_output(f"echo {asked} | python3 -c {shlex.quote(ASK)} {server}"))


@pytest.fixture
def servers(opts):
    return [server["address"] for server in opts["dns_servers"]]


def test_every_server_knows_every_name_and_its_way_back(host, opts, servers):
    questions, wanted = [], []
    ways_back = {}
    for record in [*opts["dns_records"], *opts["dns_extra_records"]]:
        kind = AAAA if ":" in record["address"] else A
        names = [f"{name}.{opts['dns_domain']}" for name in [record["name"], *record.get("aliases", [])]]
        for name in names:
            questions.append([name, kind, IN])
            wanted.append([OK, [record["address"]]])
        ways_back.setdefault(ipaddress.ip_address(record["address"]).reverse_pointer, []).append(names[0])
    for pointer, names in ways_back.items():
        questions.append([pointer, PTR, IN])
        wanted.append([OK, names])
    assert questions
    for server in servers:
        assert ask(host, server, questions) == wanted, server


def test_a_name_that_is_not_there_does_not_exist(host, opts, servers):
    unknown = f"no-such-node.{opts['dns_domain']}"
    for server in servers:
        assert ask(host, server, [[unknown, A, IN]]) == [[NO_SUCH_NAME, []]], server


def test_a_server_passes_the_rest_on_as_told(host, opts):
    if not opts["dns_serve"]:
        assert not host.file("/etc/dnsmasq.d/10-coldiron-names.conf").exists
        return
    wanted = {*opts["dns_forwarders"], *(s for zone in opts["dns_forward_zones"] for s in zone["servers"])}
    # dnsmasq tells those who ask in class CHAOS whom it asks itself.
    [[rcode, answers]] = ask(host, "127.0.0.1", [["servers.bind", TXT, CHAOS]])
    assert rcode == OK
    assert {answer.split("#")[0] for answer in answers if answer} == wanted


def test_the_server_starts_at_boot(host, opts):
    assert (host.run("systemctl is-enabled dnsmasq").stdout.strip() == "enabled") == opts["dns_serve"]


def test_the_resolver_asks_the_heads(host, opts, servers):
    assert not host.file("/etc/resolv.conf").is_symlink
    lines = [line.split() for line in host.file("/etc/resolv.conf").content_string.splitlines()]
    assert [line[1] for line in lines if line and line[0] == "nameserver"] == servers[:3]
    assert ["search", opts["dns_domain"]] in lines
    assert ["options", f"timeout:{opts['dns_timeout_seconds']}", "attempts:2"] in lines
    # A short name, by the C library's own way, past /etc/hosts.
    record = opts["dns_records"][-1]
    assert host.check_output(f"getent -s dns ahosts {record['name']}").split()[0] == record["address"]


def test_a_node_carries_itself_and_the_heads_only(host, opts):
    known = {}
    for line in host.file("/etc/hosts").content_string.splitlines():
        words = line.split("#")[0].split()
        known |= dict.fromkeys(words[1:], "".join(words[:1]))
    itself = [record for record in opts["dns_records"] if record["name"] == opts["dns_host"]]
    wanted = {}
    for one in [*opts["dns_servers"], *itself]:
        for name in [one["name"], *one.get("aliases", [])]:
            wanted |= {name: one["address"], f"{name}.{opts['dns_domain']}": one["address"]}
    assert {name: address for name, address in known.items() if address not in ("127.0.0.1", "::1")} == wanted
    assert host.check_output("hostname --fqdn") == f"{opts['dns_host']}.{opts['dns_domain']}"


@pytest.mark.acts
def test_a_dhcp_client_leaves_the_resolver_alone(host):
    before = host.file("/etc/resolv.conf").content_string
    # The clients' own scripts, as after a lease, on an interface that does not exist.
    lease = (
        f"reason=BOUND interface=none0 new_domain_name=stranger.example new_domain_name_servers={STRANGER}"
    )
    for script in ("/sbin/dhclient-script", "/usr/sbin/dhclient-script"):
        if host.file(script).exists:
            host.run(f"{lease} {script}")
    if host.file("/usr/lib/dhcpcd/dhcpcd-run-hooks").exists:
        host.run(f"{lease} if_up=true if_configured=true protocol=dhcp /usr/lib/dhcpcd/dhcpcd-run-hooks")
    if host.exists("resolvconf"):
        host.run(f"echo nameserver {STRANGER} | resolvconf -a none0.test; resolvconf -d none0.test")
    assert host.file("/etc/resolv.conf").content_string == before
    told_not_to = {
        "/etc/NetworkManager/conf.d/90-coldiron-dns.conf": "dns=none",
        "/etc/cloud/cloud.cfg.d/90-coldiron-dns.cfg": "manage_resolv_conf: false",
        "/etc/dhcpcd.enter-hook": "resolv.conf",
        "/etc/resolvconf.conf": "resolvconf=NO",
    }
    for path, word in told_not_to.items():
        assert word in host.file(path).content_string, path
