"""Work on a machine behind Redfish, by the kept modules themselves, against a TLS server that can misbehave."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision import bmc_trust
from coldiron.repair import diagnose
from tests.unit.provision.bmc_modules import Do, doing
from tests.unit.provision.bmc_server import PASSWORD, SYSTEM, Machine, Served, serving


@pytest.fixture
def served(tmp_path: Path) -> Any:
    with serving(tmp_path / "bmc", Machine()) as found:
        yield found


@pytest.fixture
def do(served: Served) -> Do:
    return doing(served)


def refused(do: Do, state: str, **given: Any) -> ColdironError:
    """The error that ``state`` ends in: one line, that names node and BMC and shows no secret."""
    with pytest.raises(ColdironError) as caught:
        do(state, **given)
    message = caught.value.message
    assert message.isprintable()
    assert message.startswith("gpu01: BMC 127.0.0.1: ")
    assert PASSWORD not in message
    return caught.value


def test_facts_are_plain_data(do: Do) -> None:
    found = do("facts", serial="sn0001", mac="52:54:00:aa:00:01")
    assert not found.done.changed
    assert found.facts["serials"] == ["SN0001"]
    assert found.facts["macs"] == ["52:54:00:aa:00:01"]
    assert (found.facts["model"], found.facts["bios_version"], found.facts["power"]) == ("T1", "1.2.3", "Off")
    assert json.loads(json.dumps(found.facts)) == found.facts


@pytest.mark.parametrize(
    "state", ["facts", "on", "off", "cycled", "booted_once", "configured", "boots_from_disk"]
)
@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"serial": "OTHER"}, "serial SN0001, and cluster.yml says `serial: OTHER`"),
        ({"mac": "02:00:00:00:00:09"}, "has the MACs 52:54:00:aa:00:01"),
    ],
)
def test_another_machine_is_refused_before_it_is_touched(
    do: Do, served: Served, state: str, declared: dict[str, str], words: str
) -> None:
    error = refused(do, state, target="Pxe", force=True, attributes={"NumLock": "Off"}, **declared)
    assert words in error.message
    assert error.exit_code == ExitCode.REFUSED
    assert served.machine.sent == []


def test_power_is_what_was_asked_for_and_then_left_alone(do: Do, served: Served) -> None:
    assert do("on", check=True).done.changed
    assert served.machine.power == "Off"
    assert do("on").done.changed
    assert served.machine.power == "On"
    assert not do("on").done.changed
    assert do("off", check=True).done.changed
    assert served.machine.power == "On"
    found = do("off")
    assert (found.done.changed, found.done.told, served.machine.power) == (True, ["shut down"], "Off")
    assert not do("off").done.changed
    assert do("cycled", check=True).done.changed
    assert served.machine.starts == 1
    assert do("cycled").done.changed
    assert do("cycled").done.changed
    assert served.machine.starts == 3


def test_the_power_is_cut_only_where_it_may_be(do: Do, served: Served) -> None:
    served.machine.power, served.machine.ignores_shutdown = "On", True
    assert "bmc_power_force: true" in refused(do, "off").message
    assert served.machine.power == "On"
    found = do("off", force=True)
    assert (found.done.told, served.machine.power) == (["power cut"], "Off")


def test_a_bmc_that_has_no_shutdown_does_not_cut_the_power_instead(do: Do, served: Served) -> None:
    """redfish_command would: it maps what a BMC lacks to what it takes for the same."""
    served.machine.power, served.machine.resets = "On", ["On", "ForceOff"]
    error = refused(do, "off")
    assert error.exit_code == ExitCode.REFUSED
    assert served.machine.sent == []
    assert do("off", force=True, grace_seconds=0).done.told == ["power cut"]


def test_a_boot_from_the_network_is_proved(do: Do, served: Served) -> None:
    served.machine.power = "On"
    assert do("booted_once", target="Pxe", check=True).done.changed
    assert served.machine.sent == []
    found = do("booted_once", target="Pxe")
    assert found.done.proof is not None
    assert (found.done.proof.outcome, found.warnings) == ("took", [])
    assert [sent.get("ResetType") for sent in served.machine.sent] == ["GracefulShutdown", None, "On"]


def test_an_override_that_stays_is_told_and_taken_back(do: Do, served: Served) -> None:
    served.machine.keeps_once = True
    found = do("booted_once", target="Pxe")
    assert found.done.proof is not None
    assert (found.done.proof.outcome, found.done.proof.clear) == ("stays", True)
    assert found.warnings == ["gpu01: the override to Pxe is Continuous: each start would use it"]
    assert do("boots_from_disk", check=True).done.changed
    assert do("boots_from_disk").done.changed
    assert served.machine.enabled == "Disabled"
    assert not do("boots_from_disk").done.changed


def test_where_there_is_no_none_the_override_goes_to_the_disk(do: Do, served: Served) -> None:
    served.machine.keeps_once, served.machine.allowed = True, ["Pxe", "Cd", "Hdd"]
    do("booted_once", target="Pxe")
    assert do("booted_once", target="None").done.changed
    assert (served.machine.enabled, served.machine.target) == ("Continuous", "Hdd")
    assert not do("boots_from_disk").done.changed


def test_an_override_that_is_not_kept_ends_before_the_start(do: Do, served: Served) -> None:
    served.machine.ignores_override = True
    error = refused(do, "booted_once", target="Pxe")
    assert "it took one boot from Pxe and did not keep it" in error.message
    assert served.machine.starts == 0


def test_an_override_that_cannot_be_taken_back_is_told(do: Do, served: Served) -> None:
    served.machine.keeps_once = True
    do("booted_once", target="Pxe")
    served.machine.ignores_override = True
    assert "stays at Pxe although it was taken back" in refused(do, "boots_from_disk").message


def test_an_unknown_target_is_refused_while_the_machine_still_runs(do: Do, served: Served) -> None:
    served.machine.power = "On"
    assert "does not boot from `Usb`" in refused(do, "booted_once", target="Usb").message
    assert served.machine.power == "On"


def test_an_override_can_wait_for_somebody_else_s_start(do: Do, served: Served) -> None:
    found = do("booted_once", target="UefiHttp", cycle=False)
    assert (found.done.changed, served.machine.starts, served.machine.target) == (True, 0, "UefiHttp")
    assert not do("booted_once", target="UefiHttp", cycle=False).done.changed


def test_attributes_are_staged_and_wait_or_taken_over_by_one_start(do: Do, served: Served) -> None:
    wanted = {"NumLock": "Off", "BootMode": "Uefi"}
    found = do("configured", attributes=wanted, check=True)
    assert found.done.changed
    assert (found.done.before, found.done.after) == (
        {"bios": {"NumLock": "On"}},
        {"bios": {"NumLock": "Off"}},
    )
    assert served.machine.sent == []
    found = do("configured", attributes=wanted)
    assert found.done.waits == ("BIOS: NumLock=Off",)
    assert "waits for the next start" in found.msg
    assert served.machine.pending == {"NumLock": "Off"}
    # Staged is as far as it goes without a start: nothing changes again.
    again = do("configured", attributes=wanted)
    assert (again.done.changed, again.done.waits) == (False, ("BIOS: NumLock",))
    served.machine.power = "On"
    assert do("configured", attributes=wanted, may_reboot=True).done.changed
    assert (served.machine.bios["NumLock"], served.machine.starts) == ("Off", 1)
    assert not do("configured", attributes=wanted, may_reboot=True).done.changed


def test_an_attribute_that_does_not_take_is_told(do: Do, served: Served) -> None:
    served.machine.power, served.machine.ignores_bios = "On", True
    error = refused(do, "configured", attributes={"NumLock": "Off"}, may_reboot=True)
    assert "it took this and did not do it: BIOS: NumLock=Off" in error.message


def test_a_bios_that_has_no_such_attribute_says_so(do: Do) -> None:
    error = refused(do, "configured", attributes={"Numlok": "Off"})
    assert "the BIOS has no attribute `Numlok`; did you mean `NumLock`?" in error.message


def test_the_boot_order_is_set_once(do: Do, served: Served) -> None:
    found = do("configured", boot_order=["boot0002"])
    assert found.done.after == {"boot_order": ["Boot0002", "Boot0001"]}
    assert served.machine.order == ["Boot0002", "Boot0001"]
    assert not do("configured", boot_order=["boot0002"]).done.changed


def test_logs_and_sensors_become_evidence(do: Do, tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    assert do("events", directory=str(folder), check=True).done.changed
    assert not folder.exists()
    assert do("events", directory=str(folder)).done.changed
    assert sorted(os.listdir(folder)) == ["redfish-1-Sel.json"]
    assert not do("events", directory=str(folder)).done.changed
    found = do("sensors", directory=str(folder))
    assert found.msg == "gpu01: sensors.txt (3 lines)"
    judged = diagnose.judge(diagnose.read(folder))
    assert judged.verdict == diagnose.Severity.HARDWARE
    assert {one.rule for one in judged.evidence} >= {"redfish-hardware", "sensor-limit", "sensor-fan-stopped"}


def test_evidence_that_cannot_be_written_is_said(do: Do, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert "cannot be written" in refused(do, "sensors", directory=str(tmp_path / "file")).message


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"garbage": "<html>router</html>"}, "its answer makes no sense"),
        ({"garbage": "[]"}, "there is no Redfish where it should be"),
        ({"garbage": '{"Systems": 3}'}, "its answer makes no sense"),
        ({"broken": {"/redfish/v1/": 404}}, "no Redfish where it should be"),
        ({"broken": {SYSTEM: 500}}, "answers only in part (system is missing) (asked 2 times)"),
        ({"broken": {f"{SYSTEM}/EthernetInterfaces": 500}}, "answers only in part (nic is missing)"),
        ({"busy": 99}, "it is busy (HTTP 503) (asked 2 times)"),
        ({"hangs": 3.0}, "it does not answer in time"),
    ],
)
def test_every_fault_ends_in_one_line(do: Do, served: Served, fault: dict[str, Any], words: str) -> None:
    for name, value in fault.items():
        setattr(served.machine, name, value)
    error = refused(do, "facts", retries=1, timeout_seconds=1)
    assert words in error.message
    assert error.exit_code == ExitCode.ENVIRONMENT


def test_a_wrong_password_is_tried_once(do: Do, served: Served) -> None:
    error = refused(do, "facts", password="wrong")
    wanted = "it refuses the user `admin`; write the right user and password into `bmc_credentials`"
    assert wanted in error.message
    assert len([line for line in served.machine.asked if line.endswith("/Systems")]) == 1


def test_no_password_is_said_before_anything_is_asked(do: Do, served: Served) -> None:
    assert "write them into the vault: bmc_credentials" in refused(do, "facts", password="").message
    assert served.machine.asked == []


def test_no_bmc_is_said(do: Do) -> None:
    with pytest.raises(ColdironError, match=r"gpu01 has no BMC in the inventory"):
        do("facts", address="")


def test_nothing_there_is_said(do: Do) -> None:
    assert "nothing answers there" in refused(do, "facts", port=1, retries=0).message


def test_a_busy_bmc_is_asked_again(do: Do, served: Served) -> None:
    served.machine.busy = 1
    assert do("on").done.changed


def test_a_lost_answer_does_not_switch_twice(do: Do, served: Served) -> None:
    served.machine.loses_answers = 1
    assert do("on").done.changed
    assert (served.machine.starts, len(served.machine.sent)) == (1, 1)


def test_a_busy_power_switch_is_asked_again(do: Do, served: Served) -> None:
    served.machine.busy, served.machine.busy_on = 1, "POST"
    assert do("on").done.changed
    assert served.machine.starts == 1


def test_another_signer_is_refused_and_nothing_sent(tmp_path: Path, do: Do, served: Served) -> None:
    with serving(tmp_path / "other", Machine()) as other:
        error = refused(do, "facts", ca=str(other.ca))
        assert "vouches for has signed its certificate" in error.message
        assert "bmc_task=trust --limit gpu01" in error.message
    assert served.machine.asked == []
    error = refused(do, "facts", ca="")
    assert "nobody that this machine vouches for" in error.message


def test_another_name_and_another_time_are_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "named", Machine(), name="idrac-ABC") as served:
        assert "its certificate is for another name or address" in refused(doing(served), "facts").message
        assert served.machine.asked == []
    with serving(tmp_path / "old", Machine(), days=-1) as served:
        assert "its certificate is past its time" in refused(doing(served), "facts").message
        assert served.machine.asked == []


def test_a_certificate_is_learnt_by_name_and_held_to(tmp_path: Path) -> None:
    file = tmp_path / "group_vars" / "all" / "bmc_known.yml"
    with serving(tmp_path / "factory", Machine(), name="idrac-ABC", issuer="the factory") as served:
        do = doing(served, ca="", known_file=str(file))
        shown = bmc_trust.fingerprint(served.certificate)
        error = refused(do, "trusted")
        assert error.exit_code == ExitCode.REFUSED
        assert f"-e bmc_fingerprint={shown}" in error.message
        assert "and not SHA256:00, which was typed" in refused(do, "trusted", fingerprint="SHA256:00").message
        assert not file.exists()
        assert do("trusted", fingerprint=shown, check=True).done.changed
        assert not file.exists()
        # As openssl x509 -fingerprint writes it.
        pairs = ":".join(shown[7:][at : at + 2] for at in range(0, 64, 2))
        assert do("trusted", fingerprint=f"sha256 Fingerprint={pairs}").done.changed
        known = yaml.safe_load(file.read_text(encoding="utf-8"))["bmc_known"]
        assert list(known) == ["gpu01"]
        assert not do("trusted", known=known).done.changed
        assert served.machine.asked == []
        assert do("facts", known=known).facts["serials"] == ["SN0001"]
        assert do("booted_once", target="Pxe", known=known).done.changed
        doing(served, ca="", known_file=str(file), node="gpu02")("trusted", fingerprint=shown)
        assert sorted(yaml.safe_load(file.read_text(encoding="utf-8"))["bmc_known"]) == ["gpu01", "gpu02"]
    with serving(tmp_path / "stranger", Machine()) as served:
        do = doing(served, known=known)
        error = refused(do, "facts")
        assert "its certificate has changed" in error.message
        assert error.exit_code == ExitCode.REFUSED
        assert "its certificate has changed" in refused(do, "trusted").message
        assert served.machine.asked == []


def test_a_file_of_certificates_that_is_none_is_said(tmp_path: Path, served: Served) -> None:
    file = tmp_path / "bmc_known.yml"
    file.write_text("bmc_known: [1\n", encoding="utf-8")
    shown = bmc_trust.fingerprint(served.certificate)
    error = refused(doing(served), "trusted", known_file=str(file), fingerprint=shown)
    assert "bmc_known.yml cannot be written" in error.message
    assert "there is no file to keep it in" in refused(doing(served), "trusted", fingerprint=shown).message


def test_nobody_to_show_a_certificate_is_said(do: Do) -> None:
    assert "nothing answers there" in refused(do, "trusted", port=1).message


def test_the_web_proxy_of_the_site_never_sees_a_bmc(do: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    assert do("facts").facts["power"] == "Off"


def test_a_console_is_a_file_or_ipmi(do: Do, tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_text("x" * 70_000 + "\nlogin: ", encoding="utf-8")
    found = do("console", console_file=str(log), directory=str(tmp_path / "out"))
    assert found.msg.endswith("login: ")
    assert len(found.msg) == 65536
    assert found.files == [str(tmp_path / "out" / "console.txt")]
    assert "Redfish gives no console" in refused(do, "console").message
    assert "cannot be read" in refused(do, "console", console_file=str(tmp_path / "no")).message
