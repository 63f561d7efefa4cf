"""Known machines are given an address and what their firmware boots; secrets go over TLS, once, to who has a token.

The questions come from another node, as a machine's would: real DHCP, TFTP, HTTP and TLS.
"""

from __future__ import annotations

import ipaddress
import json
import shlex

import pytest

STRANGER = "02:00:5e:00:53:01"  # RFC 7042: a range for documentation, locally administered
# What a machine's firmware says of itself, and what it is to boot; the architectures are IANA's.
BIOS = {"arch": 0, "vendor": "PXEClient:Arch:00000:UNDI:002001"}
UEFI = {"arch": 7, "vendor": "PXEClient:Arch:00007:UNDI:003016"}
UEFI_HTTP = {"arch": 16, "vendor": "HTTPClient:Arch:00016:UNDI:003001"}
IPXE = {"arch": 7, "vendor": "PXEClient:Arch:00007:UNDI:003016", "ipxe": True}

# Runs on another node with the Python that is there. It asks one question and prints the answer as JSON.
PROBE = r"""
import hashlib, json, os, socket, ssl, struct, subprocess, sys, time, http.client

asked = json.loads(sys.argv[1])
server = asked["server"]

def route():
    words = subprocess.check_output(["ip", "-o", "-4", "route", "get", server], text=True).split()
    return words[words.index("dev") + 1], words[words.index("src") + 1]

def question(number, own, mac, arch=None, vendor="", ipxe=False, relay=False, subnet="", boot_server=False, item=None):
    gateway = socket.inet_aton(own) if relay else bytes(4)
    packet = bytes([1, 1, 6, int(relay)]) + number + b"\0\0\x80\0"
    packet += (socket.inet_aton(own) if boot_server else bytes(4)) + bytes(8) + gateway
    packet += bytes.fromhex(mac.replace(":", "")) + bytes(10) + bytes(192) + b"\x63\x82\x53\x63"
    options = (b"\x35\x01\x03" if boot_server else b"\x35\x01\x01") + bytes([55, 9, 1, 3, 6, 15, 42, 43, 60, 66, 67])
    if arch is not None:
        options += bytes([93, 2]) + struct.pack("!H", arch) + b"\x61\x11\x00" + bytes(16) + b"\x5e\x03\x01\x03\x10"
    if vendor:
        options += bytes([60, len(vendor)]) + vendor.encode()
    if ipxe:
        options += b"\xaf\x03\x01\x01\x01"
    if item is not None:
        # Intel's PXE 2.1: the entry of the boot menu that was chosen.
        options += b"\x2b\x07\x47\x04" + struct.pack("!H", item) + b"\0\0\xff"
    if subnet:
        # RFC 3527: the machine is on another link than the address that the relay is asked back at.
        options += b"\x52\x06\x05\x04" + socket.inet_aton(subnet)
    return packet + options + b"\xff"

def dhcp(mac, kinds=None, **kind):
    # With several kinds all are asked at once, and the first answer to any of them counts.
    device, own = route()
    relay, boot_server = kind.get("relay", False), kind.get("boot_server", False)
    connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    if relay:
        connection.bind((own, 67))
    elif boot_server:
        connection.bind((own, 0))
    else:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        connection.bind(("", 68))
    asked = {number: question(number, own, mac, **one) for one in kinds or [kind] for number in [os.urandom(4)]}
    for _ in range(3):
        where = (server, 4011) if boot_server else (server if relay else "255.255.255.255", 67)
        for packet in asked.values():
            connection.sendto(packet, where)
        end = time.time() + 1.5
        while time.time() < end:
            connection.settimeout(max(0.01, end - time.time()))
            try:
                data, sender = connection.recvfrom(4096)
            except socket.timeout:
                break
            if data[4:8] in asked and data[0] == 2 and sender[0] == server:
                return offer(data)
    return None

def parts(data, place):
    found = {}
    while place < len(data) and data[place] != 255:
        if data[place] == 0:
            place += 1
            continue
        kind, size = data[place], data[place + 1]
        found[kind] = data[place + 2 : place + 2 + size]
        place += 2 + size
    return found

def offer(data):
    found = parts(data, 240)
    menu = parts(found.get(43, b""), 0).get(9, b"")
    text = lambda value: value.split(b"\0")[0].decode("latin-1")
    address = lambda value: socket.inet_ntoa(value[:4]) if len(value) >= 4 else ""
    return {
        "address": address(data[16:20]),
        "next": address(data[20:24]),
        "file": text(found.get(67, b"")) or text(data[108:236]),
        "vendor": text(found.get(60, b"")),
        "mask": address(found.get(1, b"")),
        "item": struct.unpack("!H", menu[:2])[0] if menu else None,
        "router": address(found.get(3, b"")),
        "names": [address(found[6][at:at + 4]) for at in range(0, len(found.get(6, b"")), 4)],
    }

def tftp(name):
    connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    connection.settimeout(5)
    connection.sendto(b"\0\1" + name.encode() + b"\0octet\0", (server, 69))
    got, block = b"", 1
    while True:
        data, sender = connection.recvfrom(2048)
        if data[:2] == b"\0\5":
            return {"error": data[4:-1].decode("latin-1")}
        if struct.unpack("!H", data[2:4])[0] != block & 0xFFFF:
            continue
        got += data[4:]
        connection.sendto(b"\0\4" + data[2:4], sender)
        block += 1
        if len(data) < 516:
            return {"sha256": hashlib.sha256(got).hexdigest()}

def http_(url_path, method="GET", headers=None, body=None, ca=None, port=80, least=None):
    if ca is None:
        connection = http.client.HTTPConnection(server, port, timeout=20)
    else:
        context = ssl.create_default_context(cadata=ca)
        if least == "1.1":
            context.minimum_version = ssl.TLSVersion.TLSv1_1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
            context.set_ciphers("ALL:@SECLEVEL=0")
        connection = http.client.HTTPSConnection(server, port, timeout=20, context=context)
    try:
        connection.request(method, url_path, body, headers or {})
        answer = connection.getresponse()
        data = answer.read()
    except (ssl.SSLError, OSError) as error:
        return {"status": 0, "text": type(error).__name__ + " " + str(error)}
    return {"status": answer.status, "text": data.decode("latin-1") if len(data) < 100000 else "", "size": len(data)}

print(json.dumps({"dhcp": dhcp, "tftp": tftp, "http": http_}[asked["what"]](**asked["words"])))
"""


@pytest.fixture(scope="module")
def ask(hostname, opts, site, role_hosts, run_on):
    """Ask the server from another node of the cluster, as a machine would."""
    others = [
        name for name in site.hosts("cluster:!netboot_server:!bare_metal") if name in role_hosts("base")
    ]
    assert others, f"there is no other node to ask {hostname} from"
    other = run_on(others[0])

    def _ask(what, **words):
        question = json.dumps({"server": opts["netboot_address"], "what": what, "words": words})
        found = other.run(f"python3 -c {shlex.quote(PROBE)} {shlex.quote(question)}")
        assert found.rc == 0, found.stderr
        return json.loads(found.stdout)

    return _ask


@pytest.fixture(scope="module")
def tls(ask, opts):
    """Ask over TLS, as who trusts the site's authority and nobody else."""

    def _tls(path, **words):
        return ask(
            "http",
            url_path=path,
            ca=str(opts["netboot_ca_certificate"]),
            port=opts["netboot_https_port"],
            **words,
        )

    return _tls


def script_of(mac):
    return f"/boot/{mac.replace(':', '-')}.ipxe"


def subnet_of(address, opts):
    networks = [ipaddress.ip_network(net["subnet"]) for net in opts["netboot_subnets"]]
    return next((network for network in networks if ipaddress.ip_address(address) in network), None)


def here(machines, opts):
    """The machines of the server's own subnet, which need no relay."""
    own = subnet_of(opts["netboot_address"], opts)
    return [machine for machine in machines if own and ipaddress.ip_address(machine["address"]) in own]


def test_the_services_run_and_start_at_boot(host, opts):
    units = ["coldiron-deployd.socket", "coldiron-deployd", "nginx"]
    for unit in units + ([] if opts["netboot_dhcp"] == "none" else ["coldiron-netboot"]):
        assert host.service(unit).is_running, unit
        assert host.service(unit).is_enabled, unit


def test_nothing_answers_elsewhere(host, opts):
    """DHCP's own socket hears broadcasts and so has no address; which interface it answers is dnsmasq's to know."""
    lines = host.check_output("ss --no-header --listening --numeric --tcp --udp --processes").splitlines()
    pids = {host.check_output(f"systemctl show -p MainPID --value {unit}") for unit in ("coldiron-netboot",)}
    places = set()
    for line in lines:
        if '"nginx"' in line or any(f"pid={pid}," in line for pid in pids):
            places.add((line.split()[0], line.split()[4].split("%")[0]))
    address = opts["netboot_address"]
    wanted = {("tcp", f"{address}:80"), ("tcp", f"{address}:{opts['netboot_https_port']}")}
    if opts["netboot_dhcp"] != "none":
        wanted |= {("udp", "0.0.0.0:67"), ("udp", f"{address}:69")}
    if opts["netboot_dhcp"] == "proxy":
        wanted |= {("udp", "0.0.0.0:4011")}
    assert places == wanted


@pytest.mark.acts
def test_a_known_machine_gets_its_address_and_what_its_firmware_boots(ask, opts):
    if opts["netboot_dhcp"] != "serve":
        return
    address = opts["netboot_address"]
    for machine in here(opts["netboot_machines"], opts)[:2]:
        for firmware, file in (
            (BIOS, "undionly.kpxe"),
            (UEFI, "snponly.efi"),
            (UEFI_HTTP, f"http://{address}/snponly.efi"),
            (IPXE, f"http://{address}/boot.ipxe"),
        ):
            offer = ask("dhcp", mac=machine["mac"], **firmware)
            assert offer is not None, firmware
            assert (offer["address"], offer["file"]) == (machine["address"], file)
            assert offer["names"] == opts["netboot_name_servers"]
            if firmware is UEFI_HTTP:
                assert offer["vendor"] == "HTTPClient"
            elif firmware is not IPXE:
                assert offer["next"] == address


@pytest.mark.acts
def test_a_stranger_gets_nothing(ask, opts):
    if opts["netboot_dhcp"] == "none":
        return
    # dnsmasq looks for three seconds whether an address is free: no shorter silence says that there is none.
    assert ask("dhcp", mac=STRANGER, kinds=[{}, BIOS, UEFI_HTTP]) is None


@pytest.mark.acts
def test_a_machine_behind_a_relay_gets_its_address(ask, opts):
    if opts["netboot_dhcp"] != "serve":
        return
    near = here(opts["netboot_machines"], opts)
    for machine in [machine for machine in opts["netboot_machines"] if machine not in near][:1] + near[:1]:
        network = subnet_of(machine["address"], opts)
        offer = ask("dhcp", mac=machine["mac"], relay=True, subnet=str(network.network_address), **BIOS)
        assert offer is not None
        assert (offer["address"], offer["mask"]) == (machine["address"], str(network.netmask))
        gateway = next(
            net.get("gateway") or "" for net in opts["netboot_subnets"] if net["subnet"] == str(network)
        )
        assert offer["router"] == gateway


@pytest.mark.acts
def test_beside_the_site_s_own_server_only_the_boot_is_said(ask, opts):
    if opts["netboot_dhcp"] != "proxy":
        return
    for machine in here(opts["netboot_machines"], opts)[:1]:
        for firmware, file in ((BIOS, "undionly.kpxe"), (UEFI, "snponly.efi")):
            offer = ask("dhcp", mac=machine["mac"], **firmware)
            assert offer is not None, firmware
            assert (offer["address"], offer["vendor"]) == ("0.0.0.0", "PXEClient")
            # The second question of firmware that has two servers: what to boot, on the port of boot servers.
            offer = ask("dhcp", mac=machine["mac"], boot_server=True, item=offer["item"], **firmware)
            assert offer is not None, firmware
            assert (offer["file"], offer["next"]) == (file, opts["netboot_address"])
        offer = ask("dhcp", mac=machine["mac"], **IPXE)
        assert offer is not None
        assert (offer["address"], offer["file"]) == ("0.0.0.0", f"http://{opts['netboot_address']}/boot.ipxe")


def test_the_loaders_are_those_of_the_package(host, ask, opts):
    for name, path in (
        ("undionly.kpxe", opts["__netboot_os"]["bios_loader"]),
        ("snponly.efi", opts["__netboot_os"]["uefi_loader"]),
    ):
        digest = host.check_output(f"sha256sum {path}").split()[0]
        if opts["netboot_dhcp"] != "none":
            assert ask("tftp", name=name) == {"sha256": digest}
    assert ask("http", url_path="/snponly.efi")["size"] == host.file(opts["__netboot_os"]["uefi_loader"]).size
    if opts["netboot_dhcp"] != "none":
        assert "error" in ask("tftp", name="../../../etc/passwd")


def test_a_machine_without_an_order_boots_from_its_disk(ask, opts):
    first = ask("http", url_path="/boot.ipxe")["text"]
    assert f"chain http://{opts['netboot_address']}/boot/${{netX/mac:hexhyp}}.ipxe" in first
    script = ask("http", url_path=script_of(STRANGER))["text"]
    assert script.startswith("#!ipxe\n")
    assert "sanboot" in script
    assert "token" not in script


def test_no_secret_goes_over_plain_http(ask):
    for call in ("redeem", "identity", "events", "done"):
        answer = ask(
            "http",
            url_path=f"/api/v1/nodes/x1/{call}",
            method="POST",
            headers={"X-Coldiron-Transport": "tls"},
        )
        assert answer["status"] == 403, call
        assert "TLS only" in answer["text"]


def test_the_server_is_who_the_site_s_authority_says(host, opts, tls):
    assert tls("/nothing")["status"] == 404
    old = tls("/nothing", least="1.1")
    assert old["status"] == 0, old
    days = opts["netboot_certificate_renew_days"]
    assert (
        host.run(f"openssl x509 -noout -checkend {days * 86400} -in /etc/coldiron/netboot/server.crt").rc == 0
    )


def test_a_wrong_token_opens_nothing(tls):
    answer = tls("/api/v1/nodes/x1/redeem", method="POST", headers={"Authorization": "Bearer wrong"})
    assert answer["status"] == 403
    assert "not one that was issued" in answer["text"]


def test_nothing_else_is_served(ask, tls):
    for path in (
        "/",
        "/images/",
        "/deploy/",
        "/tftp/snponly.efi",
        "/images/../../../etc/passwd",
        "/.incoming-1",
    ):
        for answer in (ask("http", url_path=path), tls(path)):
            assert answer["status"] in (400, 403, 404), path


def test_keys_and_orders_are_private(host, opts):
    key = host.file("/etc/coldiron/netboot/server.key")
    assert (key.user, key.mode) == ("root", 0o600)
    state = host.file(opts["__netboot_state"])
    assert (state.user, state.mode) == ("coldiron-deploy", 0o700)
    # The authority's key stays on the controller.
    found = host.run("grep -rlE 'PRIVATE KEY' /etc/coldiron /usr/lib/coldiron").stdout.split()
    assert found == ["/etc/coldiron/netboot/server.key"]


def test_the_daemon_is_confined(host):
    words = "User PrivateNetwork ProtectSystem NoNewPrivileges CapabilityBoundingSet MemoryDenyWriteExecute"
    shown = host.check_output(
        f"systemctl show coldiron-deployd {' '.join(f'-p {word}' for word in words.split())}"
    )
    assert set(shown.splitlines()) == {
        "User=coldiron-deploy",
        "PrivateNetwork=yes",
        "ProtectSystem=strict",
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "MemoryDenyWriteExecute=yes",
    }
    pid = host.check_output("systemctl show -p MainPID --value coldiron-deployd")
    networks = [host.check_output(f"readlink /proc/{one}/ns/net") for one in (pid, "1")]
    assert networks[0] != networks[1]


@pytest.mark.acts
def test_a_machine_goes_from_its_order_to_its_record(host, ask, tls, opts):
    """The order of a machine that is not there: it leaves nothing behind."""
    node, canary = "coldiron-selftest", "canary-netboot-selftest"
    mac = STRANGER
    key = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{canary}\n-----END OPENSSH PRIVATE KEY-----\n"
    order = {
        "format": 1, "node": node, "fqdn": node, "mac": mac, "purpose": "deploy", "firmware": "uefi", "serial": "",
        "disks": [{"use": "system", "serial": "NONE"}], "consent": [], "sizes": {}, "kernel_arguments": [],
        "image": {"sha256": "0" * 64, "class": "selftest", "oldest": 0}, "boot": "disk",
    }  # fmt: skip
    identity = {
        "format": 1, "hostname": node, "host_keys": {"ed25519": key}, "authorized_keys": [], "network": {},
        "files": {}, "hosts": "",
    }  # fmt: skip
    text = json.dumps({"order": order, "identity": identity})
    begun = host.check_output("date +%s")
    try:
        done = host.run(f"printf %s {shlex.quote(text)} | coldiron-deployd order --stdin")
        assert done.rc == 0, done.stderr
        script = ask("http", url_path=script_of(mac))["text"]
        assert f"coldiron.node={node} coldiron.server={opts['__netboot_server']} coldiron.token=" in script
        token = script.split("coldiron.token=")[1].split()[0]
        # A restart between any two steps loses nothing.
        host.check_output("systemctl restart coldiron-deployd")
        plain = {"Authorization": f"Bearer {token}"}
        assert (
            ask("http", url_path=f"/api/v1/nodes/{node}/redeem", method="POST", headers=plain)["status"]
            == 403
        )
        answer = tls(f"/api/v1/nodes/{node}/redeem", method="POST", headers=plain)
        assert answer["status"] == 200, answer
        assert json.loads(answer["text"])["order"]["image"]["class"] == "selftest"
        assert tls(f"/api/v1/nodes/{node}/redeem", method="POST", headers=plain)["status"] == 403
        host.check_output("systemctl restart coldiron-deployd")
        session = {"Authorization": f"Bearer {json.loads(answer['text'])['session']}"}
        assert canary in tls(f"/api/v1/nodes/{node}/identity", headers=session)["text"]
        event = json.dumps({"step": "stream", "seconds": 5})
        assert (
            tls(f"/api/v1/nodes/{node}/events", method="POST", headers=session, body=event)["status"] == 200
        )
        lines = json.loads(host.check_output(f"coldiron-deployd status --json {node}"))
        assert [(line["state"], line["step"]) for line in lines] == [("running", "stream")]
        body = json.dumps({"serials": ["NONE"]})
        assert tls(f"/api/v1/nodes/{node}/done", method="POST", headers=session, body=body)["status"] == 200
        assert "token" not in ask("http", url_path=script_of(mac))["text"]
        record = json.loads(host.check_output(f"coldiron-deployd record {node}"))["record"]
        assert record["serials"] == ["NONE"]
        journal = host.check_output(f"journalctl --since=@{begun} -u coldiron-deployd -u nginx -o cat")
        logs = host.check_output("cat /var/log/nginx/*.log")
        for secret in (canary, token, session["Authorization"].split()[1]):
            assert secret not in journal + logs
        assert (
            host.run(f"grep -rl {canary} {opts['netboot_directory']} /etc/coldiron /var/lib/coldiron").stdout
            == ""
        )
    finally:
        host.run(f"coldiron-deployd cancel {node}; coldiron-deployd forget {node}")


def test_a_new_machine_needs_no_restart(host, opts):
    """dnsmasq reads the machines' file again at a reload, so it has to be a file of its own."""
    if opts["netboot_dhcp"] == "none":
        return
    assert "dhcp-host=" not in host.file("/etc/coldiron/netboot/dnsmasq.conf").content_string
    lines = host.file("/etc/coldiron/netboot/machines").content_string.splitlines()
    known = [line.split(",")[0] for line in lines if line and not line.startswith("#")]
    assert known == [machine["mac"].lower() for machine in opts["netboot_machines"]]
