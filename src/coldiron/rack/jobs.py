"""Jobs on a rehearsed cluster: one on all nodes of each partition, one on all GPUs of a node for each kind of GPU."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory import Cluster
from coldiron.rack.remote import ssh_command
from coldiron.rack.state import RackState

JOB_SECONDS = 180.0
SINFO = "%R|%a|%D|%s|%G"
_GRES = re.compile(r"gpu:([a-z0-9_]+):(\d+)")


@dataclass
class Partition:
    """A partition as sinfo tells of it: its nodes, the most that one job may have, its GPUs a node by their type."""

    name: str
    nodes: int
    most: int | None
    gpus: dict[str, int]

    @property
    def at_once(self) -> int:
        """Nodes of the largest job that it takes."""
        return self.nodes if self.most is None else min(self.nodes, self.most)


def partitions(text: str) -> list[Partition]:
    """Partitions that take jobs, from ``sinfo -h -o SINFO``: a line for each kind of node in each."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        name, state, nodes, size, gres = (line.split("|") + [""] * 5)[:5]
        if state != "up" or not nodes.isdigit():
            continue
        most = size.rpartition("-")[2]
        partition = found.setdefault(name, Partition(name, 0, int(most) if most.isdigit() else None, {}))
        partition.nodes += int(nodes)
        partition.gpus |= {kind: int(count) for kind, count in _GRES.findall(gres)}
    return list(found.values())


class Jobs:
    """Runs them as an ordinary user where users log in; as root where the site names no user."""

    def __init__(self, state: RackState, cluster: Cluster) -> None:
        groups = cluster.groups()
        self.state = state
        self.controller = groups["slurm_controller"][0]
        self.login = next(iter(groups["slurm_login"]), self.controller)

    def run(self, say: Callable[[str], None]) -> list[str]:
        """Run them all; returns a line each. Raises ColdironError with Slurm's own words."""
        user = self._user()
        parts = partitions(self._as(user, f"sinfo -h -o '{SINFO}'"))
        if not parts:
            raise ColdironError(
                f"{self.login}: sinfo shows {user} no partition that is up", ExitCode.HOSTS_FAILED
            )
        done = []
        kinds: dict[str, tuple[str, int]] = {}
        for part in parts:
            line = f"srun -p {part.name} -N {part.at_once} --ntasks-per-node=1 -t 5 hostname"
            hosts = set(self._as(user, line).split())
            if len(hosts) != part.at_once:
                raise ColdironError(
                    f"partition {part.name}: a job on {part.at_once} nodes answered from {len(hosts)}",
                    ExitCode.HOSTS_FAILED,
                )
            done.append(f"partition {part.name}: a job of {user}'s on {part.at_once} nodes at once")
            say(done[-1])
            for kind, count in part.gpus.items():
                kinds.setdefault(kind, (part.name, count))
        for kind, (name, count) in kinds.items():
            line = (
                f"srun -p {name} -N 1 -n 1 -t 5 --gres=gpu:{kind}:{count} sh -c 'echo $CUDA_VISIBLE_DEVICES'"
            )
            seen = self._as(user, line).strip().split(",")
            if len(seen) != count:
                raise ColdironError(
                    f"partition {name}: a job that asked for {count} {kind} was given {len(seen)}",
                    ExitCode.HOSTS_FAILED,
                )
            done.append(f"partition {name}: a job of {user}'s on {count} x {kind} (simulated)")
            say(done[-1])
        return done

    def _user(self) -> str:
        """The first user with an account in Slurm who is no administrator."""
        text = self._on(self.controller, "sacctmgr -nP show association format=User")
        names = [name for name in dict.fromkeys(text.split()) if name != "root"]
        return names[0] if names else "root"

    def _as(self, user: str, line: str) -> str:
        return self._on(self.login, f"runuser -l {user} -c {shlex.quote(line)}")

    def _on(self, node: str, line: str) -> str:
        command = ssh_command(self.state, self.state.nodes[node], [line])
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=JOB_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise ColdironError(
                f"{node}: no end after {JOB_SECONDS:.0f} s: {line}", ExitCode.HOSTS_FAILED
            ) from None
        if done.returncode:
            why = " ".join((done.stderr or done.stdout).split())[-300:]
            raise ColdironError(f"{node}: {line}: {why or 'it said nothing'}", ExitCode.HOSTS_FAILED)
        return done.stdout
