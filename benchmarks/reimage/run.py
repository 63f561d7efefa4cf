"""How long a machine takes from power-off to ssh, phase by phase, beside two bare boots of the same machine.

    python benchmarks/reimage/run.py -i inventories/metal gpu01 --yes SYSTEM-GPU01

The site has to stand (`coldiron apply`). The machine's system disk is written anew; nothing else runs on it meanwhile.
The phases are told by the machine itself and by the provisioner; a bare boot is from the power to ssh, twice. The least
that a re-image can take is two boots and the image's bytes at the rate at which they were streamed and unpacked.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coldiron.provision.store import STORE_DIRECTORY, Store
from coldiron.testing.site import Site
from coldiron.testing.steps import command, environment

PHASES = (
    ("firmware", "power", "netboot"),
    ("netboot, RAM environment", "netboot", "redeem"),
    ("disks, partition", "redeem", "stream"),
    ("stream", "stream", "system"),
    ("system, boot loader", "system", "done"),
    ("boot", "done", "ssh"),
)
_LONGEST_SECONDS = 1800


def main() -> None:
    """Measure one machine and print a table."""
    parser = argparse.ArgumentParser(description="a re-image, by phases, against two bare boots")
    parser.add_argument("node")
    parser.add_argument("--inventory", "-i", type=Path, required=True)
    parser.add_argument(
        "--yes", metavar="SERIAL", required=True, help="the system disk, whose content is lost"
    )
    options = parser.parse_args()
    site = Site((options.inventory,))
    bench = Bench(site, options.inventory, options.node)
    bare = [bench.bare_boot() for _ in range(2)]
    phases = bench.reimage(options.yes)
    image = Store(options.inventory / STORE_DIRECTORY).current(bench.image_class)
    table(phases, bare, image.manifest.size_bytes)


class Bench:
    """One machine of a standing site."""

    def __init__(self, site: Site, inventory: Path, node: str) -> None:
        self.site = site
        self.inventory = inventory
        self.node = node
        self.head = site.hosts("netboot_server")[0]
        self.image_class = str(site.hostvars(node)["coldiron_image_class"])

    def bare_boot(self) -> float:
        """Seconds from the power to ssh, of the system that is installed."""
        self._play("power_off")
        begun = time.time()
        self._play("power_on")
        return self._until(self._answers) - begun

    def reimage(self, serial: str) -> dict[str, float]:
        """When each thing happened, in seconds since the epoch."""
        self._play("power_off")
        begun = time.time()
        process = subprocess.Popen(
            [command("coldiron"), "provision", self.node, "--yes", serial, "-i", str(self.inventory)],
            env=environment(),
            stdin=subprocess.DEVNULL,
        )
        found: dict[str, float] = {}
        while process.poll() is None:
            events = self._events()
            if events and events[0]["at"] >= begun:
                for event in events:
                    found.setdefault(event["step"], event["at"])
            time.sleep(1)
        if process.returncode:
            sys.exit(f"coldiron provision ended with {process.returncode}")
        found["ssh"] = time.time()
        # The BMC is asked at once after the order; what it needs is the firmware's phase.
        found["power"] = found["ordered"]
        return found

    def _events(self) -> list[dict[str, Any]]:
        done = self.site.connections.run(self.head, f"coldiron-deployd status --json {self.node}", timeout=30)
        return list(json.loads(done.stdout)[0]["events"]) if done.returncode == 0 else []

    def _answers(self) -> bool:
        self.site.connections.forget()
        return self.site.connections.run(self.node, "true", timeout=5).returncode == 0

    def _until(self, there: Callable[[], bool]) -> float:
        end = time.time() + _LONGEST_SECONDS
        while not there():
            if time.time() > end:
                sys.exit(f"{self.node} did not answer within {_LONGEST_SECONDS} s")
            time.sleep(1)
        return time.time()

    def _play(self, what: str) -> None:
        """Role bmc's file of this name, for the machine."""
        subprocess.run(
            [command("ansible-playbook"), str(Path(__file__).with_name("bmc.yml")), "-i", str(self.inventory),
             "-l", self.node, "-e", f"what={what}"],
            env=environment(), check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=300,
        )  # fmt: skip


def table(times: dict[str, float], bare: list[float], size: int) -> None:
    """Print phases and what they are worth."""
    whole = times["ssh"] - times["power"]
    print(f"{'phase':<28} {'seconds':>8}")
    for name, begins, ends in PHASES:
        print(f"{name:<28} {times[ends] - times[begins]:>8.1f}")
    streamed = times["system"] - times["stream"]
    print(f"{'power to ssh':<28} {whole:>8.1f}")
    print(f"{'bare boots':<28} {' '.join(f'{one:.1f}' for one in bare):>8}")
    print(f"{'image':<28} {size / 1e6:>8.0f} MB, {size / 1e6 / streamed:.1f} MB/s streamed and unpacked")
    print(f"{'of two boots + stream':<28} {whole / (sum(bare) + streamed):>8.2f} times")


if __name__ == "__main__":
    main()
