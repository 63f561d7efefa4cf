"""The chassis of a BMC that has no machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

from coldiron.testing.bmc_double import CHASSIS, PLACE


def test_its_chassis_is_a_file(tmp_path: Path) -> None:
    script, power = tmp_path / "chassis.sh", tmp_path / "power"
    script.write_text(CHASSIS.replace(PLACE, str(tmp_path)), encoding="utf-8")
    power.write_text("1\n", encoding="utf-8")

    def call(*words: str) -> str:
        return subprocess.run(
            ["sh", script, "0x20", *words], capture_output=True, text=True, check=True
        ).stdout

    assert call("get", "power", "boot") == "power:1\nboot:default\n"
    assert call("set", "boot", "pxe", "power", "0") == ""
    assert call("get", "power") == "power:0\n"
