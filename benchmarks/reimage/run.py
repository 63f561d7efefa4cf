"""How long a machine takes from power-off to ssh, phase by phase, beside two bare boots of the same machine.

    python benchmarks/reimage/run.py -i inventories/metal gpu01 --yes SYSTEM-GPU01
    python benchmarks/reimage/run.py … --way disk --way kexec=deploy_into=kexec --repeat 2

The machine's system disk is written anew. A way is a name and what is told to the playbook besides; ways take turns,
and two bare boots follow them all. The phases are told by the machine itself and by the provisioner. The least that a
re-image can take is two boots and the image's bytes at the rate at which they were streamed and unpacked.

Of a machine of the virtual rack the processor seconds of its emulator are told too: on a busy host they hold better
than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coldiron.provision.store import STORE_DIRECTORY, Store
from coldiron.testing.site import Site
from coldiron.testing.steps import command, environment

PHASES = (
    ("firmware, network boot", "ordered", "netboot"),
    ("kernel, RAM environment", "netboot", "redeem"),
    ("disks, partition", "redeem", "stream"),
    ("image", "stream", "system"),
    ("system, boot loader", "system", "done"),
    ("first boot", "done", "ssh"),
)
# The last phase's step and what the whole is counted from.
FIRST, LAST = "ordered", "ssh"
_LONGEST_SECONDS = 1800
_POLL_SECONDS = 1.0


@dataclass
class Moment:
    """When something was reached: seconds of the clock, and processor seconds of the emulator (0: it is real)."""

    clock: float
    processor: float


@dataclass
class Way:
    """One way to re-image: its name, and what the playbook is told besides."""

    name: str
    told: dict[str, str] = field(default_factory=dict)
    runs: list[dict[str, Moment]] = field(default_factory=list)


def main() -> None:
    """Measure one machine and print a table."""
    parser = argparse.ArgumentParser(
        description="re-images, by phases, against bare boots of the same machine"
    )
    parser.add_argument("node")
    parser.add_argument("--inventory", "-i", type=Path, required=True)
    parser.add_argument(
        "--yes", metavar="SERIAL", required=True, help="the system disk, whose content is lost"
    )
    parser.add_argument(
        "--way", action="append", type=parse_way, help="NAME or NAME=VARIABLE=VALUE[,…]; may be repeated"
    )
    parser.add_argument("--repeat", type=int, default=1, help="so many runs of each way")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    # Whoever opens the vault works from another directory.
    options.inventory = options.inventory.resolve()
    bench = Bench(Site((options.inventory,)), options.inventory, options.node)
    ways = options.way or [Way("as declared")]
    for _ in range(options.repeat):
        for way in ways:
            way.runs.append(bench.reimage(options.yes, way.told))
            # At once: a session that is broken off has told what it had.
            table(way.name, way.runs[-1])
    bare = [bench.bare_boot() for _ in range(2)]
    image = Store(options.inventory / STORE_DIRECTORY).current(bench.image_class)
    size = image.manifest.size_bytes
    worth(ways, bare, size)
    if options.json:
        figures = {
            "bare": [vars(one) for one in bare],
            "bytes": size,
            "ways": {way.name: [steps(run) for run in way.runs] for way in ways},
        }
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def parse_way(text: str) -> Way:
    """A way from the command line: NAME, or NAME=VARIABLE=VALUE with more of them behind commas."""
    name, _, rest = text.partition("=")
    told = dict(word.partition("=")[::2] for word in rest.split(",") if word)
    if not name or not all(told.values()):
        raise argparse.ArgumentTypeError(f"{text}: write NAME or NAME=VARIABLE=VALUE")
    return Way(name, told)


class Bench:
    """One machine of a standing site."""

    def __init__(self, site: Site, inventory: Path, node: str) -> None:
        self.site = site
        self.inventory = inventory
        self.node = node
        self.head = site.hosts("netboot_server")[0]
        self.image_class = str(site.hostvars(node)["coldiron_image_class"])
        self.pid_file = self._pid_file()
        # The emulator's process and its seconds when last seen, and those of the ones before it.
        self.seen, self.before = (0, 0.0), 0.0

    def bare_boot(self) -> Moment:
        """From the BMC's word that there is power to ssh, of the system that is installed."""
        self._play("power_off")
        self._count_anew()
        self._play("power_on")
        begun = time.time()
        self._until_ssh()
        return Moment(time.time() - begun, self._processor())

    def reimage(self, serial: str, told: dict[str, str]) -> dict[str, Moment]:
        """When each step was reached, from the order, which the BMC is asked right behind, to ssh."""
        self._play("power_off")
        self._count_anew()
        begun, ahead = time.time(), self._ahead()
        wishes = {"provision_nodes": [self.node], "provision_consent": [serial], **told}
        process = subprocess.Popen(
            [command("ansible-playbook"), "coldiron.cluster.provision", "-i", str(self.inventory), "-l",
             f"{self.node},{self.head}", "-e", json.dumps(wishes)],
            env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            found = self._followed(process, begun, ahead)
            if process.wait(_LONGEST_SECONDS) or "done" not in found:
                sys.exit(f"{self.node} was not deployed: the playbook ended with {process.returncode}")
        finally:
            # Without us it would go on and switch the machine on.
            process.terminate()
            process.wait()
        # Power comes after the order: the emulator has done nothing before.
        found["ordered"].processor = 0.0
        return found

    def _followed(self, process: subprocess.Popen[bytes], begun: float, ahead: float) -> dict[str, Moment]:
        """The moments of a deployment as far as it comes while ``process`` runs, and the one of ssh."""
        found: dict[str, Moment] = {}
        while process.poll() is None and "done" not in found:
            processor = self._processor()
            for event in self._events():
                if event["at"] - ahead >= begun and event["step"] not in found:
                    found[event["step"]] = Moment(event["at"] - ahead, processor)
            time.sleep(_POLL_SECONDS)
        if "done" in found:
            self._until_ssh()
            found["ssh"] = Moment(time.time(), self._processor())
        return found

    def _events(self) -> list[dict[str, Any]]:
        """What the provisioner has heard of the machine; nothing yet before it was ordered for the first time."""
        done = self.site.connections.run(self.head, f"coldiron-deployd status --json {self.node}", timeout=30)
        lines = json.loads(done.stdout) if done.returncode == 0 else []
        return [event for line in lines if line["node"] == self.node for event in line["events"]]

    def _ahead(self) -> float:
        """Seconds that the provisioner's clock is ahead of this machine's."""
        before = time.time()
        told = float(self.site.connections.run(self.head, "date +%s.%N", timeout=30).stdout)
        return told - (before + time.time()) / 2

    def _until_ssh(self) -> None:
        end = time.time() + _LONGEST_SECONDS
        while time.time() < end:
            self.site.connections.forget()
            if self.site.connections.run(self.node, "true", timeout=5).returncode == 0:
                return
            time.sleep(_POLL_SECONDS)
        sys.exit(f"{self.node} did not answer within {_LONGEST_SECONDS} s")

    def _pid_file(self) -> Path | None:
        """Where the virtual rack keeps the process of the machine's emulator; None for a real machine."""
        done = subprocess.run(
            [command("coldiron"), "rack", "status", "--json", "-i", str(self.inventory)],
            env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        machines = json.loads(done.stdout).get("machines", []) if done.returncode == 0 else []
        for machine in machines:
            if machine["name"] == self.node:
                return Path(machine["console"]).parents[2] / f"metal/libvirt/run/qemu/{self.node}.pid"
        return None

    def _processor(self) -> float:
        """Processor seconds of the emulator since the count began; 0 where there is none.

        A machine that is switched off and on in between is another process.
        """
        try:
            assert self.pid_file
            pid = int(self.pid_file.read_text())
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (AssertionError, OSError, ValueError):
            return self.before + self.seen[1]
        if pid != self.seen[0]:
            self.before += self.seen[1]
        self.seen = pid, (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        return self.before + self.seen[1]

    def _count_anew(self) -> None:
        """Forget the emulators of earlier runs: the machine has no power."""
        self.seen, self.before = (0, 0.0), 0.0

    def _play(self, what: str) -> None:
        """Role bmc's file of this name, for the machine."""
        subprocess.run(
            [command("ansible-playbook"), str(Path(__file__).with_name("bmc.yml")), "-i", str(self.inventory),
             "-l", self.node, "-e", f"what={what}"],
            env=environment(), check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=300,
        )  # fmt: skip


def steps(run: dict[str, Moment]) -> dict[str, dict[str, float]]:
    """The phases of one run: seconds of the clock and of the processor."""
    return {
        name: {
            "clock": round(run[ends].clock - run[begins].clock, 1),
            "processor": round(run[ends].processor - run[begins].processor, 1),
        }
        for name, begins, ends in (*PHASES, ("in all", FIRST, LAST))
    }


def table(name: str, run: dict[str, Moment]) -> None:
    """Print one run's phases."""
    print(f"\n{name:<28} {'seconds':>8} {'processor':>10}")
    for phase, figures in steps(run).items():
        print(f"{phase:<28} {figures['clock']:>8.1f} {figures['processor']:>10.1f}", flush=True)


def worth(ways: list[Way], bare: list[Moment], size: int) -> None:
    """Print the bare boots, and what each run was beside two of them and its image."""
    print(f"\n{'':<28} {'seconds':>8} {'processor':>10}")
    for one in bare:
        print(f"{'bare boot':<28} {one.clock:>8.1f} {one.processor:>10.1f}")
    for way in ways:
        for found in map(steps, way.runs):
            image = found["image"]
            print(f"{way.name}: {size / 1e6:.0f} MB at {size / 1e6 / image['clock']:.1f} MB/s")
            for kind in ("clock", "processor"):
                least = sum(getattr(one, kind) for one in bare) + image[kind]
                if least:
                    print(
                        f"  by the {kind} {found['in all'][kind] / least:.2f} times two boots and the image"
                    )


if __name__ == "__main__":
    main()
