"""Every alert fires when it must and is quiet when it must be, and none of its parts can break unseen."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.rules.alerts import Alert, alerts, asked, mutants, rule_files

ALERTS = alerts()


@pytest.mark.parametrize("file", rule_files(), ids=lambda path: path.parts[-3])
def test_promtool_takes_the_file(promtool: str, file: Path) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_it_fires_and_is_quiet_and_its_breaks_are_seen(promtool: str, tmp_path: Path, alert: Alert) -> None:
    whole = {"as it is": dict(alert.rule)}
    found = asked(promtool, alert, {**whole, **mutants(alert.rule)}, tmp_path)
    assert found.pop("as it is") == []
    assert [broken for broken, wrong in found.items() if not wrong] == []
