"""``make demo``: the virtual rack from bare systemd nodes to Slurm jobs, and a second run that changes nothing.

Every step is a command that a person could type; the demo only types them in order. Each can be run again,
so an interrupted demo goes on from where it stood.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster, load

INVENTORY = Path("inventories/virtual")
RECAP = re.compile(
    r"^(?P<host>\S+)\s+: ok=\d+\s+changed=(?P<changed>\d+)\s+unreachable=(?P<unreachable>\d+)\s+failed=(?P<failed>\d+)"
)
STEPS = 6


@dataclass(frozen=True)
class Recap:
    """One host's line of Ansible's PLAY RECAP."""

    changed: int
    unreachable: int
    failed: int


def parse_recap(output: str) -> dict[str, Recap]:
    """Return the hosts of a PLAY RECAP with their counts; empty when the run printed none."""
    recap = {}
    for line in output.splitlines():
        if match := RECAP.match(line):
            recap[match["host"]] = Recap(*(int(match[name]) for name in ("changed", "unreachable", "failed")))
    return recap


class Demo:
    """The steps in their order; ``user`` is an ordinary user of the cluster, ``login`` the node they log in to."""

    def __init__(self, inventory: Path, console: Console, user: str = "alice") -> None:
        self.inventory = inventory
        self.console = console
        self.user = user
        self.cluster: Cluster = load(inventory)
        self.step = 0
        groups = self.cluster.groups()
        self.login = groups["slurm_login"][0]
        self.workers = groups["slurm_worker"]

    def say(self, title: str, command: str) -> None:
        """Announce a step with the command that does it."""
        self.step += 1
        self.console.print(f"\n[bold cyan]{self.step}/{STEPS}[/] [bold]{title}[/]")
        self.console.print(f"    [dim]$ {command}[/]", highlight=False)

    def run(self, *command: str, quiet: bool = False) -> str:
        """Run a command, show what it prints as it comes and return it; a failure ends the demo."""
        lines: list[str] = []
        env = os.environ | {
            "ANSIBLE_DISPLAY_OK_HOSTS": "false",
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
            "PYTHONUNBUFFERED": "1",
        }
        if self.console.is_terminal:
            env["ANSIBLE_FORCE_COLOR"] = "true"
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(re.sub(r"\x1b\[[0-9;]*m", "", line))
                if not quiet and line.strip():
                    print(f"    {line}", end="", flush=True)
        if process.returncode != 0:
            if quiet:
                print("".join(lines), end="", file=sys.stderr)
            raise ColdironError(
                f"the demo stopped at step {self.step}: `{' '.join(command)}` ended with {process.returncode} "
                "(its last lines are above); `make demo` goes on from here",
                ExitCode.HOSTS_FAILED,
            )
        return "".join(lines)

    def as_user(self, script: str) -> str:
        """Run a shell line as the ordinary user on the login node, over the rack's own ssh."""
        self.console.print(f"    [dim]{self.user}@{self.login}$ {script}[/]", highlight=False, markup=True)
        return self.run(
            "coldiron", "rack", "ssh", "-i", str(self.inventory), self.login, "--",
            "runuser", "-l", self.user, "-c", f"'{script}'",
        )  # fmt: skip

    def site(self) -> dict[str, Recap]:
        """Run site.yml on the whole inventory."""
        return parse_recap(self.run("ansible-playbook", "-i", str(self.inventory), "site.yml"))

    def play(self) -> None:
        """Play the whole demo."""
        started = time.monotonic()
        inventory = str(self.inventory)
        nodes = len(self.cluster.expand())

        self.say(
            "Secrets of this cluster, generated once into a vault", f"coldiron secrets init -i {inventory}"
        )
        self.run("coldiron", "secrets", "init", "-i", inventory)

        self.say(
            f"A rack of {nodes} bare nodes: systemd, ssh and nothing else", f"coldiron rack up -i {inventory}"
        )
        self.run("coldiron", "rack", "up", "-i", inventory)

        self.say("From bare nodes to a cluster", f"ansible-playbook -i {inventory} site.yml")
        self.site()

        self.say(
            f"Jobs of an ordinary user: one on all {len(self.workers)} workers at once, one on two GPUs",
            "sbatch, srun",
        )
        self.as_user(
            f"sbatch --wait --nodes={len(self.workers)} --ntasks-per-node=1 --job-name=everywhere "
            '--output=everywhere.out --wrap "srun hostname" && sort everywhere.out'
        )
        self.as_user(
            'srun --job-name=two-gpus --gres=gpu:2 sh -c "echo \\$(hostname) sees GPUs \\$CUDA_VISIBLE_DEVICES"'
        )
        self.as_user(
            "sacct -X --starttime=now-1hour --format=JobID,JobName%12,User,NodeList%20,AllocTRES%48,State"
        )

        self.say("The same run again changes nothing", f"ansible-playbook -i {inventory} site.yml")
        recap = self.site()
        restless = {host: counts.changed for host, counts in recap.items() if counts.changed}
        if restless or len(recap) < nodes:
            raise ColdironError(
                f"the second run was to change nothing, but: {restless or 'hosts are missing'}",
                ExitCode.HOSTS_FAILED,
            )

        self.say("What stands now", f"coldiron rack status -i {inventory}")
        self.run("coldiron", "rack", "status", "-i", inventory)
        minutes, seconds = divmod(int(time.monotonic() - started), 60)
        self.console.print(
            f"\n[bold green]A Slurm cluster of {nodes} nodes stands[/] (GPUs simulated), "
            f"in {minutes} min {seconds} s.\n"
            "Next, with [bold]source .venv/bin/activate[/]:\n"
            f"  coldiron rack ssh {self.login}        log in; then: su - {self.user}; sinfo; srun -N2 hostname\n"
            f"  $EDITOR {inventory}/cluster.yml\n"
            "                                make it gpu[01-04]; then: coldiron rack up && coldiron node add gpu04\n"
            "  make clean                    take every trace away",
            highlight=False,
        )


def main() -> None:
    """Play the demo; errors are one line."""
    console = Console(soft_wrap=True)
    try:
        Demo(INVENTORY, console).play()
    except ColdironError as error:
        print(f"coldiron: {error.message}", file=sys.stderr)
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        print(
            "\ncoldiron: interrupted; `make demo` goes on from here, `make clean` takes everything away",
            file=sys.stderr,
        )
        sys.exit(int(ExitCode.INTERRUPTED))


if __name__ == "__main__":
    main()
