"""Work on a machine behind IPMI: ipmitool's words, as it said them of OpenIPMI's ipmi_sim."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.provision.bmc_facts import Asset, Override
from coldiron.provision.bmc_ipmi import Ipmi
from coldiron.provision.bmc_plan import Step
from coldiron.provision.bmc_trouble import Trouble, Where
from coldiron.provision.bmc_work import Patience, Work

PASSWORD = "canary-Ipmi-5e"
WHERE = Where("gpu02", "10.24.1.2", "bmc_credentials", "admin")
FRU = """\
FRU Device Description : Builtin FRU Device (ID 0)
 Chassis Type          : Rack Mount Chassis
 Chassis Serial        : C0001
 Board Mfg             : Maker
 Board Serial          : B0001
 Product Manufacturer  : Maker
 Product Name          : T1
 Product Serial        : C0001
"""


def boot(valid: str, every: str, selector: str) -> str:
    return f"""\
Boot parameter version: 1
Boot parameter 5 is valid/unlocked
Boot parameter data: 0004000000
 Boot Flags :
   - Boot Flag {valid}
   - Options apply to {every}
   - BIOS PC Compatible (legacy) boot
   - Boot Device Selector : {selector}
   - BIOS verbosity : System Default
"""


class Tool:
    """Answers as ipmitool: what it was asked, by the words after its options, and what it then says."""

    def __init__(self, says: dict[str, Any] | None = None) -> None:
        self.power = "off"
        self.boot = boot("Invalid", "only next boot", "No override")
        self.fru: tuple[int, str, str] = (0, FRU, "")
        self.says = says or {}
        self.asked: list[str] = []
        self.words: list[str] = []

    def __call__(self, words: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
        assert given["env"]["IPMI_PASSWORD"] == PASSWORD
        assert PASSWORD not in " ".join(words)
        assert given["timeout"] == 9
        self.words = words
        asked = " ".join(words[words.index("-E") + 1 :])
        assert ("-v" in words) == asked.startswith("-v chassis power status")
        asked = asked.removeprefix("-v ")
        self.asked.append(asked)
        answer = self.says.get(asked)
        if isinstance(answer, Exception):
            raise answer
        status, out, err = answer or self.answer(asked)
        return subprocess.CompletedProcess(words, status, out, err)

    def answer(self, asked: str) -> tuple[int, str, str]:
        if asked == "chassis power status":
            return 0, f"Chassis Power is {self.power}\n", "Loading IANA PEN Registry...\n"
        if asked == "chassis bootparam get 5":
            return 0, self.boot, ""
        if asked == "fru print 0":
            return self.fru
        if asked.startswith("chassis power "):
            self.power = {"on": "on", "soft": "off", "off": "off"}[asked.split()[2]]
        elif asked.startswith("chassis bootdev pxe"):
            self.boot = boot("Valid", "only next boot", "Force PXE")
        elif asked == "chassis bootdev none":
            self.boot = boot("Invalid", "only next boot", "No override")
        return 0, "", ""


def ipmi(tool: Any, **given: Any) -> Ipmi:
    return Ipmi(WHERE, PASSWORD, timeout=9, runner=tool, **given)


def work(tool: Tool) -> Work:
    return Work(ipmi(tool), Patience(1, 1, 1, 0, 0.01, 0.01))


def test_facts_are_read() -> None:
    tool = Tool()
    facts = ipmi(tool).facts(asset=True, bios=True, order=True)
    assert facts.power == "Off"
    assert facts.asset == Asset("Maker", "T1", ("C0001", "B0001"))
    assert facts.override == Override("Disabled", "None", ("None", "BiosSetup", "Cd", "Hdd", "Pxe"))
    assert (facts.attributes, facts.boot_order) == (None, None)
    assert tool.words[:9] == ["ipmitool", "-I", "lanplus", "-H", "10.24.1.2", "-p", "623", "-N", "2"]
    assert tool.words[11:16] == ["-C", "3", "-U", "admin", "-E"]


def test_a_bmc_without_a_fru_is_not_known() -> None:
    tool = Tool()
    tool.fru = (1, " Device not present (Invalid data field in request)\n", "")
    assert ipmi(tool).facts(asset=True).asset == Asset()


@pytest.mark.parametrize(
    ("said", "enabled", "target"),
    [
        (boot("Valid", "only next boot", "Force PXE"), "Once", "Pxe"),
        (boot("Valid", "all future boots", "Force Boot from default Hard-Drive"), "Continuous", "Hdd"),
        (boot("Valid", "only next boot", "Force Boot from CD/DVD"), "Once", "Cd"),
        (boot("Valid", "only next boot", "Force Boot into BIOS Setup"), "Once", "BiosSetup"),
        # ipmi_sim selects, and never says that it is valid.
        (boot("Invalid", "only next boot", "Force PXE"), "kept", "Pxe"),
    ],
)
def test_the_boot_override_is_read(said: str, enabled: str, target: str) -> None:
    tool = Tool()
    tool.boot = said
    override = ipmi(tool).facts().override
    assert override is not None
    assert (override.enabled, override.target) == (enabled, target)


def test_a_flag_that_was_valid_and_is_not_was_used_up() -> None:
    tool = Tool()
    bmc = ipmi(tool)
    tool.boot = boot("Valid", "only next boot", "Force PXE")
    bmc.facts()
    tool.boot = boot("Invalid", "only next boot", "Force PXE")
    assert bmc.facts().override == Override("Disabled", "Pxe", ("None", "BiosSetup", "Cd", "Hdd", "Pxe"))


def test_the_machine_is_switched_and_booted_once() -> None:
    tool = Tool()
    bench = work(tool)
    assert bench.on(bench.facts()).changed
    assert not bench.on(bench.facts()).changed
    tool.says["chassis power on"] = None
    done = bench.boot_once(bench.facts(), "Pxe")
    assert done.proof is not None
    assert done.proof.outcome == "waits"
    sent = [line for line in tool.asked if not line.endswith(("status", "get 5"))]
    assert sent == [
        "chassis power on",
        "chassis power soft",
        "chassis bootdev pxe options=efiboot",
        "chassis power on",
    ]
    assert bench.boot_disk(bench.facts()).changed
    assert not bench.boot_disk(bench.facts()).changed


def test_a_bios_machine_is_asked_for_a_boot_by_its_bios() -> None:
    tool = Tool()
    ipmi(tool, efi=False).send(Step("SetOneTimeBoot", "", target="Pxe"))
    assert tool.asked == ["chassis bootdev pxe"]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            Step("SetOneTimeBoot", "", target="UefiHttp"),
            "IPMI cannot boot from UefiHttp; write one of: BiosSetup",
        ),
        (Step("SetBootOrder", "", boot_order=("a",)), "IPMI has no SetBootOrder"),
    ],
)
def test_what_ipmi_lacks_is_refused(step: Step, words: str) -> None:
    with pytest.raises(ColdironError, match=words) as caught:
        ipmi(Tool()).send(step)
    assert caught.value.exit_code == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("answer", "words", "passing"),
    [
        (
            (1, "", "> RAKP 2 HMAC is invalid\nError: Unable to establish IPMI v2 / RMCP+ session\n"),
            "user `admin`",
            False,
        ),
        (
            (
                1,
                "",
                "RAKP 2 message indicates an error : unauthorized name\nError: Unable to establish IPMI v2\n",
            ),
            "write the right user and password into `bmc_credentials`",
            False,
        ),
        ((1, "", "Error: Unable to establish IPMI v2 / RMCP+ session\n"), "no IPMI session", True),
        ((1, "", "Unable to set Chassis Power Control to Up/On\n"), "does not answer in time", True),
        ((0, "garbage\n", ""), "its answer makes no sense", False),
        ((1, "", f"odd {PASSWORD}\x1b[2J\n"), r"it cannot be asked: odd \*\*\*\\x1b\[2J", False),
        (subprocess.TimeoutExpired("ipmitool", 9), "does not answer in time", True),
    ],
)
def test_every_fault_ends_in_one_line(answer: Any, words: str, passing: bool) -> None:
    with pytest.raises(Trouble, match=words) as caught:
        ipmi(Tool({"chassis power status": answer})).facts()
    assert caught.value.message.startswith("gpu02: BMC 10.24.1.2: ")
    assert caught.value.message.isprintable()
    assert PASSWORD not in caught.value.message
    assert caught.value.passing is passing


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(), "install it: apt-get install ipmitool"),
        (PermissionError(13, "denied"), "denied"),
    ],
)
def test_no_ipmitool_is_said(error: Exception, words: str) -> None:
    with pytest.raises(ColdironError, match=words):
        ipmi(Tool({"chassis power status": error})).facts()


def test_a_password_that_ipmi_cannot_have_is_said() -> None:
    with pytest.raises(ColdironError, match="longer than IPMI's 20 bytes"):
        Ipmi(WHERE, "x" * 21)


def test_logs_and_sensors_are_ipmitool_s_own() -> None:
    sel = "   1 | 01/02/2026 | 03:04:05 | Memory #0x01 | Uncorrectable ECC | Asserted\n"
    tool = Tool({"sel list": (0, sel, ""), "sensor": (0, "Fan 1 | 0.000 | RPM | cr |\n", "")})
    assert ipmi(tool).logs() == {"sel.txt": sel}
    assert ipmi(tool).sensors().startswith("Fan 1")


MET = 'case "$*" in *status*) echo "Chassis Power is on"; exit;; esac\n'


def program(folder: Path, text: str) -> str:
    path = folder / "ipmitool"
    path.write_text("#!/bin/sh\n" + textwrap.dedent(text), encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_the_console_is_listened_to_and_left(tmp_path: Path) -> None:
    """The program gets a terminal, its password by the environment, and its own way to end; nothing else is typed."""
    name = program(
        tmp_path,
        """
        case "$*" in *status*) echo "Chassis Power is on"; exit;; esac
        test -t 0 || exit 7
        stty raw -echo
        echo "[SOL Session operational.  Use ~? for help]"
        echo "login: $IPMI_PASSWORD $*" | tr -d '\\n' | wc -c > "$(dirname "$0")/seen"
        echo "gpu02 login:"
        dd bs=1 count=2 2>/dev/null > "$(dirname "$0")/typed"
        echo "[terminated ipmitool]"
        """,
    )
    assert Ipmi(WHERE, PASSWORD, program=name).console(0.5) == "gpu02 login:\n"
    assert (tmp_path / "typed").read_text(encoding="utf-8") == "~."


def test_a_console_that_is_refused_or_not_there_is_said(tmp_path: Path) -> None:
    name = program(tmp_path, MET + "echo 'Info: SOL payload already active on another session'; exit 1\n")
    with pytest.raises(ColdironError, match="SOL payload already active"):
        Ipmi(WHERE, PASSWORD, program=name).console(0.3)
    # Also where it takes longer to say so than is listened.
    with pytest.raises(ColdironError, match="SOL payload already active"):
        Ipmi(WHERE, PASSWORD, program=name).console(0)
    with pytest.raises(ColdironError, match="install it"):
        Ipmi(WHERE, PASSWORD, program=str(tmp_path / "none")).console(0)


def test_a_console_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = program(tmp_path, MET + "echo here; exec sleep 60\n")
    real = subprocess.Popen.communicate

    def soon(self: Any, input: Any = None, timeout: float | None = None) -> Any:
        return real(self, input, 0.2 if timeout else None)

    monkeypatch.setattr(subprocess.Popen, "communicate", soon)
    assert Ipmi(WHERE, PASSWORD, program=name).console(0.2) == "here\n"
    assert os.environ.get("IPMI_PASSWORD") is None
