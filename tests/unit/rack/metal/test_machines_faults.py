"""Machines come up powered off, are broken, mended and taken away; what stands is left alone."""

from __future__ import annotations

import base64
import http.client
import io
import json
import ssl
import threading
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from coldiron.errors import ColdironError
from coldiron.rack import requirements
from coldiron.rack.build import Builder, Wishes
from coldiron.rack.connection import machine_vars
from coldiron.rack.host import CommandError, Host
from coldiron.rack.metal import client, inject, keeper, redfish_bmc, verbs
from coldiron.rack.metal.certificates import make_ca, make_certificate
from coldiron.rack.metal.faults import FAULTS, changed, silence_rules
from coldiron.rack.metal.spec import MachineSpec
from coldiron.rack.preserve import reset, take
from coldiron.rack.spec import from_cluster
from coldiron.rack.teardown import down


def up(toy: Any, *only: str) -> Any:
    rack = toy.rack()
    Builder(rack, from_cluster(toy.inventory), Wishes(only)).up()
    return rack


def test_machines_are_defined_and_off(toy: Any, metal: Any) -> None:
    rack = up(toy)
    assert set(metal.xml) == {"cpu01", "cpu02"}
    assert metal.on == set()
    state = rack.standing()
    assert list(state.nodes) == ["head01"]
    assert list(state.machines) == ["cpu01", "cpu02"]
    status = rack.status()
    assert status["up"]
    assert [(one["name"], one["state"], one["bmc_state"]) for one in status["machines"]] == [
        ("cpu01", "off", "running"),
        ("cpu02", "off", "running"),
    ]
    assert "cj-toy" in toy.host.links
    found = machine_vars(toy.inventory)["cpu01"]
    assert found["coldiron_bmc_credentials"] == "bmc_credentials"
    assert set(found["bmc_credentials"]) == {"user", "password"}
    assert found["coldiron_bmc_ca"].endswith(".rack/bmc-ca.crt")
    credentials = toy.inventory / ".rack/bmc-credentials.json"
    assert credentials.stat().st_mode & 0o777 == 0o600


def test_a_second_up_leaves_machines_alone(toy: Any, metal: Any) -> None:
    rack = up(toy)
    metal.on.add("cpu01")
    metal.said.clear()
    before = len(toy.host.ran("redfish_bmc.py")), len(toy.host.ran("ipmi_sim"))
    up(toy)
    assert not [said for said in metal.said if said[0] in ("define", "destroy", "undefine")]
    assert (len(toy.host.ran("redfish_bmc.py")), len(toy.host.ran("ipmi_sim"))) == before == (1, 1)
    assert rack.status()["machines"][0]["state"] == "on"


def test_one_machine_goes_and_comes_back(toy: Any, metal: Any) -> None:
    rack = up(toy)
    assert down(rack, ["cpu02"])
    assert set(metal.xml) == {"cpu01"}
    assert list(rack.standing().machines) == ["cpu01"]
    up(toy, "cpu02")
    assert set(metal.xml) == {"cpu01", "cpu02"}
    assert down(rack)
    assert "cj-toy" not in toy.host.links
    assert toy.host.alive == set()


def test_what_differs_from_the_file_is_said(toy: Any, metal: Any) -> None:
    up(toy)
    file = toy.inventory / "cluster.yml"
    text = file.read_text()
    file.write_text(text.replace("SYSTEM-1", "SYSTEM-9"))
    up(toy)
    assert "cpu01: cluster.yml says something else" in toy.said.getvalue()
    file.write_text(text[: text.index("  - name: cpu02")])
    up(toy)
    assert "left as they are: cpu02" in toy.said.getvalue()


def test_a_reset_machine_is_as_delivered(toy: Any, metal: Any) -> None:
    rack = up(toy)
    disk = next(rack.layout.node("cpu01").glob("disk-vda.raw"))
    disk.open("r+b").write(b"data")
    metal.on.add("cpu01")
    reset(rack, ["cpu01"])
    assert disk.open("rb").read(4) == bytes(4)
    assert metal.on == set()
    with pytest.raises(ColdironError, match="only containers can be frozen"):
        take(rack, "one", ["cpu01"])
    with pytest.raises(ColdironError, match="only containers can be frozen"):
        reset(rack, ["cpu01"], "one")


def test_power_goes_through_the_bmc(toy: Any, metal: Any) -> None:
    rack = up(toy)
    assert verbs.power(rack, ["cpu01", "cpu02"]) == {"cpu01": False, "cpu02": False}
    assert verbs.power(rack, ["cpu01"], "cycle") == {"cpu01": True}
    assert verbs.power(rack, ["cpu01"], "off") == {"cpu01": False}
    assert [said[1] for said in metal.said if said[0] == "bmc"] == ["on", "off"]
    with pytest.raises(ColdironError, match="write on, off or cycle"):
        verbs.power(rack, ["cpu01"], "up")
    with pytest.raises(ColdironError, match="head01 is a container"):
        verbs.power(rack, ["head01"])


def test_faults_change_the_definition_and_leave_no_trace(toy: Any, metal: Any) -> None:
    rack = up(toy)
    before = ET.canonicalize(metal.xml["cpu01"], strip_text=True)
    for name in (
        "disk-gone",
        "disk-read-only",
        "nic-down",
        "clock-off",
        "dhcp-silent",
        "bmc-503",
        "boot-ignored",
    ):
        said = verbs.fault(rack, "cpu01", name, "", clear=False)
        assert said == [f"cpu01: {name}: {FAULTS[name].text}"]
    assert "disk-vda" not in metal.xml["cpu01"]
    assert 'state="down"' in metal.xml["cpu01"]
    assert "variable" in metal.xml["cpu01"]
    assert metal.said[-1][0] != "nft" or "dport 68" in metal.said[-1][-1]
    faults = json.loads((rack.layout.node("cpu01") / "bmc/faults.json").read_text())
    assert "bmc-503" in faults
    assert sum(line.startswith("*") for line in verbs.catalogue(rack.standing().machines["cpu01"])) == 7
    assert len(verbs.fault(rack, "cpu01", "", "", clear=True)) == 7
    found = ET.fromstring(metal.xml["cpu01"])
    assert sorted(str(one.get("dev")) for one in found.findall(".//disk/target")) == ["vda", "vdb"]
    assert len(ET.canonicalize(metal.xml["cpu01"], strip_text=True)) == len(before)
    assert verbs.fault(rack, "cpu01", "", "", clear=True) == ["cpu01: nothing to clear"]


def test_faults_that_cannot_be_are_refused(toy: Any, metal: Any) -> None:
    rack = up(toy)
    for words, said in (
        (("cpu01", "fire", ""), "no fault is called fire"),
        (("cpu02", "bmc-503", ""), "speaks IPMI, which knows no bmc-503"),
        (("cpu01", "nic-down", "DATA-1"), "--disk says nothing to nic-down"),
        (("cpu01", "disk-gone", "DATA-9"), "its disks: SYSTEM-1, DATA-1"),
        (("cpu01", "power-cut", ""), "is off already"),
        (("head01", "power-cut", ""), "is a container"),
    ):
        with pytest.raises(ColdironError, match=said):
            verbs.fault(rack, *words, clear=False)
    with pytest.raises(ColdironError, match="coldiron rack power cpu01 on"):
        verbs.fault(rack, "cpu01", "power-cut", "", clear=True)
    metal.on.add("cpu01")
    verbs.fault(rack, "cpu01", "power-cut", "", clear=False)
    assert metal.on == set()


def test_an_ipmi_bmc_hangs_and_forgets_its_password(
    toy: Any, metal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rack = up(toy)
    verbs.fault(rack, "cpu02", "bmc-hang", "", clear=False)
    verbs.fault(rack, "cpu02", "bmc-password", "", clear=False)
    assert len(toy.host.ran("ipmi_sim")) == 2
    monkeypatch.setattr(keeper.wait_until, "__call__", lambda *_: False, raising=False)
    verbs.fault(rack, "cpu02", "disk-gone", "cpu02-data1", clear=False)
    assert "disk-vdb" not in metal.xml["cpu02"]


def test_a_disk_that_comes_back_has_its_place_among_the_disks_again(
    specs: dict[str, MachineSpec], places: Any
) -> None:
    spec = specs["cpu01"]
    spec.faults = []
    text = """<domain><clock/><devices><disk><target dev='vdb'/><boot order='2'/></disk>
    <interface><boot order='1'/></interface><interface><boot order='3'/></interface></devices></domain>"""
    found = changed(ET.fromstring(text), spec, places)
    assert {
        disk.find("target").get("dev"): disk.find("boot").get("order")  # type: ignore[union-attr]
        for disk in found.findall(".//disk")
    } == {"vda": "2", "vdb": "3"}
    assert [boot.get("order") for boot in found.findall(".//interface/boot")] == ["1", "4"]


def test_with_its_last_disk_gone_a_machine_boots_from_what_is_left(
    specs: dict[str, MachineSpec], places: Any
) -> None:
    spec = specs["cpu01"]
    spec.faults = ["disk-gone:vda", "disk-gone:vdb"]
    text = """<domain><clock/><devices><disk><target dev='vdb'/><boot order='1'/></disk>
    <interface><boot order='2'/></interface></devices></domain>"""
    gone = changed(ET.fromstring(text), spec, places)
    assert [boot.get("order") for boot in gone.iter("boot")] == ["1"]
    spec.faults = []
    assert [boot.get("order") for boot in changed(gone, spec, places).iter("boot")] == ["2", "3", "1"]


def test_no_dhcp_answer_leaves_the_cables() -> None:
    text = silence_rules("coldiron_ci_toy", ["civ1", "civ2"])
    assert 'oifname { "civ1", "civ2" } udp dport 68 counter drop' in text
    assert text.startswith("table bridge coldiron_ci_toy {}\ndelete table")
    assert "chain" not in silence_rules("coldiron_ci_toy", [])


class Qmp:
    """QEMU's block nodes: what blockdev-add, -reopen and -del make of them."""

    def __init__(self) -> None:
        self.nodes = [
            {"node-name": "f", "drv": "raw", "file": "/x/disk-vda.raw", "ro": False},
            {"node-name": "s", "drv": "file", "file": "/x/disk-vda.raw", "ro": False},
        ]
        self.file = "s"
        self.rules: list[Any] = []

    def __call__(self, command: str, arguments: Any = None) -> Any:
        if command == "query-named-block-nodes":
            return self.nodes
        if command == "blockdev-add":
            self.rules = arguments["inject-error"]
            self.nodes.append(
                {"node-name": arguments["node-name"], "drv": "blkdebug", "file": "", "ro": False}
            )
        elif command == "blockdev-reopen":
            self.file = arguments["options"][0]["file"]
        elif command == "blockdev-del":
            self.nodes = [node for node in self.nodes if node["node-name"] != arguments["node-name"]]
        return {}


def test_errors_are_put_before_a_disk_and_taken_away() -> None:
    monitor = Qmp()
    wanted = inject.disk_errors(["disk-full:vda", "bmc-503"])
    assert list(wanted) == ["disk-vda.raw"]
    inject.set_errors(monitor, "disk-vda.raw", wanted["disk-vda.raw"])
    assert monitor.file == "fault-disk-vda"
    assert monitor.rules == [{"event": "none", "iotype": "write", "errno": 28}]
    inject.set_errors(monitor, "disk-vda.raw", inject.ERRORS["disk-gone"])
    assert len(monitor.rules) == 3
    inject.set_errors(monitor, "disk-vda.raw", {})
    assert monitor.file == "s"
    assert len(monitor.nodes) == 2
    inject.set_errors(monitor, "disk-vdz.raw", {"write": 5})
    assert monitor.file == "s"


def test_the_hook_speaks_qmp(tmp_path: Path) -> None:
    import socket

    path, faults = tmp_path / "qmp.sock", tmp_path / "faults.json"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    qmp = Qmp()

    def serve() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rw") as file:
            file.write('{"QMP": {}}\n')
            file.flush()
            for line in file:
                asked = json.loads(line)
                file.write('{"event": "X"}\n')
                if asked["execute"] == "blockdev-add" and not qmp.file:
                    file.write('{"error": {"desc": "no"}}\n')
                else:
                    file.write(json.dumps({"return": qmp(asked["execute"], asked["arguments"])}) + "\n")
                file.flush()

    faults.write_text("[]")
    inject.main(str(path), str(faults))
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    faults.write_text('["disk-full:vda"]')
    inject.main(str(path), str(faults))
    thread.join(5)
    assert qmp.file == "fault-disk-vda"
    server.close()
    with pytest.raises(OSError):
        inject.Monitor(str(path))


@pytest.fixture
def bmc(tmp_path: Path) -> Any:
    """A Redfish BMC on the loopback, before an emulator that remembers what it was asked."""
    ca = (tmp_path / "ca.key", tmp_path / "ca.crt")
    make_ca(*ca, "toy")
    for name, signer in (("good", ca), ("wrong", None)):
        make_certificate(tmp_path / f"{name}.key", tmp_path / f"{name}.crt", "bmc", "127.0.0.1", signer)
    (tmp_path / "pair.json").write_text('{"user": "admin", "password": "canary"}')
    config = {
        "address": "127.0.0.1", "port": 0, "system": "u",
        "certificate": str(tmp_path / "good.crt"), "key": str(tmp_path / "good.key"),
        "wrong_certificate": str(tmp_path / "wrong.crt"), "wrong_key": str(tmp_path / "wrong.key"),
        "credentials": str(tmp_path / "pair.json"), "faults": str(tmp_path / "faults.json"),
    }  # fmt: skip
    asked: list[tuple[str, str, bytes]] = []

    def app(environ: Any, start: Any) -> list[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        asked.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], body))
        start("200 OK", [("Content-Type", "application/json")])
        return [b'{"RedfishVersion": "1.0", "PowerState": "On"}']

    server = redfish_bmc.Server(config, redfish_bmc.Front(app, config))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()

    def ask(method: str, path: str, body: str = "", password: str = "canary") -> int:
        context = ssl.create_default_context(cafile=str(ca[1]))
        connection = http.client.HTTPSConnection("127.0.0.1", server.server_port, context=context, timeout=2)
        pair = base64.b64encode(f"admin:{password}".encode()).decode()
        try:
            connection.request(method, path, body, {"Authorization": f"Basic {pair}"})
            return connection.getresponse().status
        finally:
            connection.close()

    ask.asked = asked  # type: ignore[attr-defined]
    ask.break_it = lambda *names: (tmp_path / "faults.json").write_text(json.dumps(names))  # type: ignore[attr-defined]
    yield ask
    server.shutdown()
    server.server_close()


def test_the_bmc_lets_in_who_knows_the_password(bmc: Any) -> None:
    assert bmc("GET", "/redfish/v1/Systems") == 200
    assert bmc("GET", "/redfish/v1/Systems", password="wrong") == 401
    assert bmc("GET", "/redfish/v1/", password="wrong") == 200
    bmc.break_it("bmc-password")
    assert bmc("GET", "/redfish/v1/Systems") == 401


def test_a_boot_by_http_is_told_as_one() -> None:
    """The emulator makes Pxe of it; whoever has asked for HTTP would find another boot than the one that was set."""
    kept = {"Boot": {"BootSourceOverrideTarget": "Hdd"}}

    def emulator(environ: Any, start: Any) -> list[bytes]:
        if environ["REQUEST_METHOD"] == "PATCH":
            target = json.loads(environ["wsgi.input"].read())["Boot"]["BootSourceOverrideTarget"]
            kept["Boot"]["BootSourceOverrideTarget"] = target.replace("UefiHttp", "Pxe")
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", "1")])
        return [json.dumps(kept).encode()]

    front = redfish_bmc.Front.__new__(redfish_bmc.Front)
    front.app, front.faults_path, front.system, front.by_http = (
        emulator,
        "/nonexistent",
        "/redfish/v1/Systems/u",
        False,
    )
    front.expected = ""

    def ask(method: str, boot: object = None) -> str:
        body = json.dumps({"Boot": boot}).encode() if boot is not None else b""
        told: list[Any] = []
        environ = {
            "REQUEST_METHOD": method, "PATH_INFO": front.system, "CONTENT_LENGTH": str(len(body)),
            "wsgi.input": io.BytesIO(body),
        }  # fmt: skip
        text = b"".join(front(environ, lambda *words: told.extend(words)))
        if method == "GET" and front.by_http:
            assert dict(told[1])["Content-Length"] == str(len(text))
        return str(json.loads(text)["Boot"]["BootSourceOverrideTarget"])

    assert ask("GET") == "Hdd"
    ask("PATCH", {"BootSourceOverrideTarget": "UefiHttp"})
    assert ask("GET") == "UefiHttp"
    ask("PATCH", {"BootSourceOverrideTarget": "Pxe"})
    assert ask("GET") == "Pxe"
    ask("PATCH", {"BootSourceOverrideTarget": "UefiHttp"})
    ask("PATCH", {"BootSourceOverrideTarget": "Hdd"})
    assert ask("GET") == "Hdd"


def test_the_bmc_s_faults_begin_and_end_without_a_restart(bmc: Any) -> None:
    bmc.break_it("bmc-503")
    assert bmc("GET", "/redfish/v1/") == 503
    bmc.break_it("bmc-certificate")
    with pytest.raises(ssl.SSLCertVerificationError):
        bmc("GET", "/redfish/v1/")
    bmc.break_it("bmc-hang")
    with pytest.raises(TimeoutError):
        bmc("GET", "/redfish/v1/")
    bmc.break_it()
    assert bmc("GET", "/redfish/v1/") == 200


def test_a_boot_override_is_forgotten_at_the_start(bmc: Any) -> None:
    reset_path = "/redfish/v1/Systems/u/Actions/ComputerSystem.Reset"
    bmc.break_it("boot-ignored")
    assert bmc("PATCH", "/redfish/v1/Systems/u", '{"Boot": {"BootSourceOverrideTarget": "Pxe"}}') == 200
    bmc("POST", reset_path, '{"ResetType": "ForceOff"}')
    bmc("POST", reset_path, "no json")
    assert [one[0] for one in bmc.asked] == ["PATCH", "POST", "POST"]
    bmc("POST", reset_path, '{"ResetType": "On"}')
    assert [one[0] for one in bmc.asked[3:]] == ["PATCH", "POST"]
    assert b"Hdd" in bmc.asked[3][2]
    assert json.loads(bmc.asked[4][2]) == {"ResetType": "On"}


def test_the_client_names_machine_and_bmc_when_something_is_wrong(
    specs: dict[str, MachineSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = (tmp_path / "ca.key", tmp_path / "ca.crt")
    make_ca(*ca, "toy")
    answers: list[Any] = []

    class Connection:
        def __init__(self, *words: Any, **options: Any) -> None: ...
        def request(self, method: str, path: str, body: Any, headers: Any) -> None:
            answers.append((method, path, body))

        def getresponse(self) -> Any:
            if isinstance(reply, Exception):
                raise reply
            status, text = reply
            answer = io.BytesIO(text)
            return type("Answer", (), {"status": status, "reason": "Because", "read": answer.read})()

        def close(self) -> None: ...

    monkeypatch.setattr(client.http.client, "HTTPSConnection", Connection)
    one = client.BmcClient(Host(), specs["cpu01"], "admin", "canary", ca[1])
    reply: Any = (200, b'{"PowerState": "On", "RedfishVersion": "1"}')
    assert one.power()
    assert one.answers()
    reply = (204, b"")
    one.set_power("cycle")
    assert json.loads(answers[-1][2]) == {"ResetType": "ForceRestart"}
    for answer, said in (
        ((503, b""), "cpu01: its BMC https://10.9.0.131: 503 Because"),
        ((200, b"garbage"), "is no JSON"),
        (TimeoutError("timed out"), "timed out"),
    ):
        reply = answer
        with pytest.raises(ColdironError, match=said):
            one.power()
        assert not one.answers()


def test_ipmi_s_password_is_in_no_process_list(specs: dict[str, MachineSpec]) -> None:
    calls: list[list[str]] = []

    class Recorder(Host):
        def run(self, argv, **options):  # type: ignore[no-untyped-def]
            calls.append(list(argv))
            assert Path(argv[argv.index("-f") + 1]).read_text() == "canary"
            if argv[-1] == "cycle":
                raise CommandError("ipmitool", "no session")
            return type("Done", (), {"stdout": "Chassis Power is on"})()

    one = client.BmcClient(Recorder(), specs["cpu02"], "admin", "canary", Path("/none"))
    assert one.power()
    assert one.answers()
    one.set_power("off")
    assert not any("canary" in word for call in calls for word in call)
    with pytest.raises(ColdironError, match=r"cpu02: its BMC ipmi://10\.9\.0\.132: no session"):
        one.set_power("cycle")
    assert not Path(calls[0][calls[0].index("-f") + 1]).exists()


def test_a_console_is_shown_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    assert verbs.tail(path, 2) == ""
    path.write_text("one\ntwo\nthree\n")
    assert verbs.tail(path, 2) == "two\nthree\n"
    assert verbs.tail(path, 0) == "one\ntwo\nthree\n"
    turns = iter([True, True, False])
    lines = verbs.follow(path, lambda: next(turns) and bool(path.open("a").write("four\n")))
    assert next(iter(lines)).startswith("four")


def test_a_newer_qemu_is_asked_for(toy: Any, specs: dict[str, MachineSpec]) -> None:
    toy.host.installed = False
    with pytest.raises(ColdironError, match=r"qemu-system-x86 .*from your release's backports"):
        requirements.refuse_missing(toy.host, [specs["cpu01"]])
    with pytest.raises(ColdironError) as plain:
        requirements.refuse_missing(toy.host)
    assert "backports" not in str(plain.value)


def test_packages_are_asked_for_only_where_there_are_machines(specs: dict[str, MachineSpec]) -> None:
    def names(*machines: MachineSpec) -> set[str]:
        return {one.package for one in requirements.needed(machines)}

    plain = names()
    assert not {"qemu-system-x86", "libvirt-daemon", "openipmi", "python3-venv", "nftables"} & plain
    assert {"qemu-system-x86", "ovmf", "python3-venv"} <= names(specs["cpu01"])
    assert "openipmi" not in names(specs["cpu01"])
    assert {"openipmi", "ipmitool"} <= names(specs["cpu02"])
    assert "python3-libvirt" not in names(specs["cpu02"])
