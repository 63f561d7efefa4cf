"""Secrets are in no output, no artifact and no list of processes, even of a run that installs them."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
from pathlib import Path

import pytest

from coldiron.testing.steps import environment
from tests.e2e.siterun import RUN_SECONDS, SiteRun, watched_processes

pytestmark = pytest.mark.site

# A shorter value could stand somewhere by chance.
LEAST_BYTES = 12


def forms(secret: str) -> set[bytes]:
    """Return the ways in which a secret might show: as it is, quoted, in base64, out of base64."""
    raw = secret.strip().encode()
    found = {raw, json.dumps(secret)[1:-1].encode(), base64.b64encode(raw)}
    with contextlib.suppress(ValueError):
        found.add(base64.b64decode(raw, validate=True))
    return {form for form in found if len(form) >= LEAST_BYTES}


def test_no_secret_is_shown(converged: SiteRun, tmp_path: Path) -> None:
    needles = [form for secret in converged.site.secret_values() for form in forms(secret)]
    assert len(needles) >= 4, "the inventory has no secrets to look for"
    worker = converged.workers[0]
    # Files that hold them differ, so that they are rendered, sent, compared and shown as a diff.
    converged.on(worker, "printf x >> /etc/munge/munge.key")
    converged.on(
        converged.head, "printf '# x\\n' >> /etc/slurm/slurmdbd.conf; printf x >> /etc/munge/munge.key"
    )
    marker = converged.on(converged.head, "date '+%F %T'").strip()
    log = tmp_path / "ansible.log"
    with watched_processes(needles) as seen:
        finished = subprocess.run(
            converged.words("-vvv", "--diff"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment() | {"ANSIBLE_LOG_PATH": str(log)},
            timeout=RUN_SECONDS,
            check=False,
        )
    assert finished.returncode == 0, "the run failed"
    assert b"slurmdbd.conf" in finished.stdout
    shown = {
        "the output": finished.stdout,
        "the log": log.read_bytes(),
        "a process's arguments": "\n".join(seen).encode() + b"\n" * len(seen),
    }
    for host in (converged.head, worker):
        journal = converged.on(host, f"journalctl --no-pager --since '{marker}'")
        shown[f"the journal of {host}"] = journal.encode()
    leaks = [place for place, text in shown.items() if any(needle in text for needle in needles)]
    assert leaks == []
    assert seen == [], f"secrets were in the arguments of {sorted(set(seen))}"
    assert b"munge.key" in finished.stdout


def test_the_repair_left_the_site_converged(converged: SiteRun) -> None:
    record = converged.run()
    assert record.status == 0, record.told()
    assert record.changed == []
