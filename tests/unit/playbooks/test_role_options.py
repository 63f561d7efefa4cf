"""The check of every role's options, as Ansible runs it, on the controller alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOUND = {
    "dns_domain": "x.internal",
    "dns_servers": [{"name": "head01", "address": "10.0.0.1"}],
    "time_servers": ["10.0.0.1"],
}
PLAY = """
- name: Check
  hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - name: Check
      coldiron.cluster.role_options:
        roles: ROLES
"""


ROLES = ("base", "dns", "time", "users", "munge")
PROBE = {"blackbox_exporter_address": "10.0.0.1"}


def check(tmp_path: Path, roles: tuple[str, ...] = ROLES, **variables: object) -> tuple[int, str]:
    """Run the check over ``variables`` and return the exit code and all that was printed."""
    play = tmp_path / "play.yml"
    play.write_text(PLAY.replace("ROLES", json.dumps(roles)))
    ansible = Path(sys.executable).parent / "ansible-playbook"
    result = subprocess.run(
        [str(ansible), "-i", "localhost,", "-e", json.dumps(SOUND | variables), str(play)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"ANSIBLE_NOCOLOR": "1"},
        timeout=60,
    )
    return result.returncode, result.stdout + result.stderr


def test_sound_options_pass(tmp_path: Path) -> None:
    key = "c2VjcmV0" * 200
    code, shown = check(tmp_path, munge_key=key)
    assert code == 0, shown


def test_everything_wrong_is_named_at_once_with_its_role(tmp_path: Path) -> None:
    code, shown = check(tmp_path, base_limits="x", base_hostname="UPPER", users_accounts=[{"name": "a"}])
    assert code == 2
    flat = " ".join(shown.split())
    assert "role base: " in flat
    assert "role users: missing required arguments: uid found in users_accounts" in flat
    assert "role munge: missing required arguments: munge_key" in flat


def test_what_a_spec_cannot_say_is_found_too(tmp_path: Path) -> None:
    code, shown = check(tmp_path, base_timezone="../etc", munge_key="c2VjcmV0" * 200)
    assert code == 2
    assert 'role base: base_timezone "../etc" is not usable' in " ".join(shown.split())


@pytest.mark.parametrize("secret", ["canary-4711", ["canary-4711"]], ids=["short", "list"])
def test_a_secret_is_never_shown(tmp_path: Path, secret: object) -> None:
    accounts = [{"name": "a", "uid": "no number", "password": "canary-0815"}]
    code, shown = check(tmp_path, munge_key=secret, users_accounts=accounts)
    assert code == 2
    assert "canary" not in shown


def test_a_secret_that_may_be_left_out_may_be_empty_and_no_other(tmp_path: Path) -> None:
    code, shown = check(tmp_path, ("blackbox_exporter",), **PROBE, blackbox_exporter_password="")
    assert code == 0, shown
    code, shown = check(tmp_path, ("munge",), munge_key="")
    assert code == 2
    assert "munge_key must be a non-empty string" in " ".join(shown.split())
