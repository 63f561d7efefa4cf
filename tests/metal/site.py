"""The site of machines under test: its inventory, its rack, and what is asked of its provisioner."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from coldiron.testing.steps import call, command, environment
from tests.e2e.siterun import SiteRun

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "inventories" / "metal"
# Images are kept with the key that signed them: both are this inventory's, and the next run bakes nothing anew.
INVENTORY = ROOT / ".cache" / "metal" / "inventory"
KEPT = (".images", ".vault-password", ".rack")
VAULT = Path("group_vars", "all", "vault.yml")
CLASSES = ("deploy", "gpu-debian-13")
BAKE_SECONDS = 900


def make_inventory(source: Path = SOURCE, target: Path = INVENTORY) -> Path:
    """Copy the reference inventory under a name and a subnet of its own; images and secrets of an earlier copy stay."""
    if (target / ".rack").is_dir():
        call([command("coldiron"), "rack", "down", "-i", str(target)], "coldiron rack down")
    vault = (target / VAULT).read_bytes() if (target / VAULT).exists() else None
    for path in target.iterdir() if target.is_dir() else ():
        if path.name not in KEPT:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    generated = shutil.ignore_patterns(*KEPT, "vault.yml", ".known_hosts")
    shutil.copytree(source, target, ignore=generated, dirs_exist_ok=True)
    if vault is not None:
        (target / VAULT).write_bytes(vault)
    text = (source / "cluster.yml").read_text(encoding="utf-8")
    text = text.replace("name: metal\n", "name: metal-test\n").replace("10.77.", "10.98.")
    (target / "cluster.yml").write_text(text.replace("02:cd:08:", "02:cd:98:"), encoding="utf-8")
    return target


class Metal(SiteRun):
    """A SiteRun whose workers are machines."""

    def playbook(self, path: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a playbook of the test's own, with the stages' variables, which lie beside theirs."""
        folder = path.parent / "group_vars"
        if not folder.exists():
            folder.symlink_to(ROOT / "playbooks" / "group_vars")
        return subprocess.run(
            [command("ansible-playbook"), str(path), "-i", str(self.inventory), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
            timeout=180,
            check=False,
        )

    def machine(self, name: str) -> dict[str, Any]:
        """What the rack says of a machine."""
        status = json.loads(self.verb("rack", "status", "--json"))
        return next(one for one in status["machines"] if one["name"] == name)

    def console(self, name: str) -> str:
        """All that a machine's serial console said."""
        return Path(self.machine(name)["console"]).read_text(encoding="utf-8", errors="replace")

    def wipe_system_disk(self, name: str) -> None:
        """Empty the disk of a machine that is off, as a new one from the shelf is."""
        disk = Path(self.machine(name)["console"]).parent / "disk-vda.raw"
        size = disk.stat().st_size
        os.truncate(disk, 0)
        os.truncate(disk, size)

    def deployd(self, *words: str) -> Any:
        """What coldiron-deployd says on the head."""
        return json.loads(self.on(self.head, f"coldiron-deployd {' '.join(words)}"))

    def boot_id(self, name: str) -> str:
        """The identity of a node's boot."""
        return self.on(name, "cat /proc/sys/kernel/random/boot_id").strip()

    def times(self, name: str) -> list[tuple[str, float]]:
        """The steps of a machine's last deployment, with the seconds since it was ordered."""
        line = next(one for one in self.deployd("status", "--json") if one["node"] == name)
        events = line["events"]
        return [(event["step"], round(event["at"] - events[0]["at"], 1)) for event in events]

    def wait_until_off(self, name: str, seconds: float = 120) -> None:
        """Wait until a machine has no power."""
        end = time.monotonic() + seconds
        while self.machine(name)["state"] != "off":
            assert time.monotonic() < end, f"{name} is still on"
            time.sleep(1)
