"""The benchmark's course: for each size a rack of its own that is watched, a quiet while, and what it took.

A node's processor seconds are those of its control groups: of an agent's unit while it runs, and of everything that
began and ended meanwhile, which is what the timers start. Memory is each process' proportional share (Pss), so that a
library that several have in common is counted once. What Prometheus holds is asked of Prometheus; what a value takes on
its disk is seen by writing what it has into blocks, as it does itself every two hours.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.converge.report import machine
from benchmarks.converge.scratch import ROOT, Failed, Scratch, cpu_seconds, interrupts_raise
from benchmarks.converge.ways import Playbook
from coldiron.errors import ColdironError
from coldiron.status.client import Prometheus
from coldiron.status.where import watch_of

# Units that monitoring and logging bring to every node.
AGENTS = ("prometheus-node-exporter.service", "coldiron-log-shipper.service")
TIMERS = "programs that timers start"
CLUSTER = """\
plugin: coldiron.cluster.cluster
name: {name}
domain: bench.internal
networks:
  cluster: {{subnet: {net}.0/24, gateway: {net}.254}}
features: {{scheduler: none, home_backend: provided, monitoring: prometheus, logging: elasticsearch}}
defaults: {{platform: container, distribution: {distribution}}}
nodes:
  - {{name: {head}, kind: head, address: {net}.1}}
  - name: cpu[{first}-{last}]
    kind: cpu
    address: {net}.41
    hardware: {{sockets: 1, cores_per_socket: 2, memory_gib: 2}}
"""
POLICY = {
    "elasticsearch_repository": "{{ (coldiron_rack | default({})).elastic | default({}) }}",
    "elasticsearch_heap_mib": 512,
    "elasticsearch_watermarks": {"low": "95%", "high": "97%", "flood_stage": "99%"},
}
DIRECTORY = "/var/lib/prometheus/metrics2"
PROJECTED_NODES = 1000


class Watched(Scratch):
    """A rack of nodes that are watched, and do nothing else."""

    cluster, name, kind = CLUSTER, "agents-bench", "cpu"

    def __enter__(self) -> Watched:
        super().__enter__()
        path = self.inventory / "group_vars" / "all" / "agents.yml"
        path.write_text(json.dumps(POLICY), encoding="utf-8")
        return self


@dataclass
class Agent:
    """What one agent takes of a node: the mean over the nodes, and the worst of them."""

    name: str
    core_percent: float
    worst_core_percent: float
    memory_mb: float
    worst_memory_mb: float


@dataclass
class Server:
    """What the nodes' values take of Prometheus: of all nodes together, and by node and value."""

    nodes: int
    series: float
    series_a_node: float
    values_a_second: float
    memory_mb: float
    core_percent: float
    bytes_a_value: float


def memory(group: Path) -> float:
    """Megabytes of a control group's processes, each page shared out among those who have it."""
    found = 0.0
    for process in (group / "cgroup.procs").read_text(encoding="utf-8").split():
        # One that has just ended has none.
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()
            found += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6
    return found


def units(rack: Scratch, node: str) -> tuple[Path, dict[str, Path]]:
    """The control group of a node's system services, and those in it."""
    for slices in rack.control_group(node).rglob("system.slice"):
        return slices, {path.name: path for path in slices.iterdir() if path.is_dir()}
    raise Failed(f"{node} has no system.slice")


def spent(rack: Scratch, node: str) -> dict[str, float]:
    """Processor seconds by unit; of all units and of those that are gone too under ``""``."""
    slices, there = units(rack, node)
    found = {"": cpu_seconds(slices)}
    for name, path in there.items():
        # Units of a template come and go in a slice that stays.
        if name.endswith(".slice"):
            continue
        with contextlib.suppress(OSError):
            found[name] = cpu_seconds(path)
    return found


def of_timers(before: dict[str, float], after: dict[str, float]) -> float:
    """Processor seconds of what began and ended in between: of all, less those who stayed."""
    stayed = sum(after[name] - before[name] for name in before.keys() & after.keys() - {""})
    return max(0.0, after[""] - before[""] - stayed)


def agents(rack: Scratch, seconds: float) -> list[Agent]:
    """Watch the nodes for a while."""
    before = {node: spent(rack, node) for node in rack.workers}
    begun = time.monotonic()
    time.sleep(seconds)
    after = {node: spent(rack, node) for node in rack.workers}
    took = time.monotonic() - begun
    found = []
    for name in (*AGENTS, TIMERS):
        if name == TIMERS:
            shares = [of_timers(before[node], after[node]) for node in rack.workers]
            sizes = [0.0]
        else:
            shares = [after[node][name] - before[node][name] for node in rack.workers]
            sizes = [memory(units(rack, node)[1][name]) for node in rack.workers]
        percent = [100 * share / took for share in shares]
        found.append(Agent(name, mean(percent), max(percent), mean(sizes), max(sizes)))
    return found


def size_of_values(rack: Scratch) -> float:
    """Bytes that a value takes in a block, index included, out of all that Prometheus has by now.

    Its chunks are not full yet and their index is for minutes alone: of two hours' values it is less.
    """
    script = f"""set -e
    place=$(mktemp -d /var/tmp/values.XXXXXX)
    trap 'rm -rf "$place"' EXIT
    promtool tsdb dump-openmetrics --sandbox-dir-root="$place" {DIRECTORY} | grep -v '^# EOF$' > $place/values
    echo '# EOF' >> $place/values
    promtool tsdb create-blocks-from openmetrics --quiet $place/values $place/blocks >/dev/null
    grep -vc '^#' $place/values
    du -sb --apparent-size $place/blocks | cut -f1
    """
    values, size = rack.everywhere({rack.nodes[0]: script}, ("bash", "-s"))[rack.nodes[0]].split()[-2:]
    return int(size) / int(values)


def server(rack: Scratch, seconds: float) -> Server:
    """Ask Prometheus what it holds."""
    prometheus = Prometheus(watch_of(rack.inventory).prometheus, 60)

    def ask(question: str) -> float:
        found = prometheus.query(question)
        if not found:
            raise Failed(f"Prometheus has no answer to {question}")
        return found[0].value

    while_ = f"[{int(seconds)}s]"
    own = '{job="prometheus"}'
    nodes = "|".join(rack.workers)
    return Server(
        nodes=len(rack.workers),
        series=ask(f"prometheus_tsdb_head_series{own}"),
        series_a_node=ask(f'count({{instance=~"{nodes}"}})') / len(rack.workers),
        values_a_second=ask(f"rate(prometheus_tsdb_head_samples_appended_total{own}{while_})"),
        memory_mb=ask(f"process_resident_memory_bytes{own}") / 1e6,
        core_percent=100 * ask(f"rate(process_cpu_seconds_total{own}{while_})"),
        bytes_a_value=size_of_values(rack),
    )


def projected(found: list[Server], nodes: int) -> dict[str, float]:
    """What so many nodes would take: by a line through the smallest and the largest measured; of one, in proportion."""
    small, large = min(found, key=lambda one: one.nodes), max(found, key=lambda one: one.nodes)

    def line(what: str) -> float:
        first, last = float(getattr(small, what)), float(getattr(large, what))
        if small is large:
            return last * nodes / large.nodes
        return last + (last - first) / (large.nodes - small.nodes) * (nodes - large.nodes)

    wanted = {what: line(what) for what in ("series", "values_a_second", "memory_mb", "core_percent")}
    return wanted | {"gb_a_day": wanted["values_a_second"] * large.bytes_a_value * 86400 / 1e9}


def say(words: str) -> None:
    """Progress, beside the report."""
    print(words, file=sys.stderr, flush=True)


def report(results: dict[int, tuple[list[Agent], Server]]) -> str:
    """Markdown: the agents of a node, their server, and the projection."""
    lines = [
        "| nodes | agent | % of a core, mean and worst node | MB, mean and worst node |",
        "|---|---|---|---|",
    ]
    for nodes, (found, _) in results.items():
        for one in found:
            lines.append(
                f"| {nodes} | {one.name} | {one.core_percent:.2f}, {one.worst_core_percent:.2f} "
                f"| {one.memory_mb:.1f}, {one.worst_memory_mb:.1f} |"
            )
        core, size = sum(one.core_percent for one in found), sum(one.memory_mb for one in found)
        lines.append(f"| {nodes} | all together | {core:.2f} | {size:.1f} |")
    lines += [
        "",
        "| nodes | series | series a node | values/s | Prometheus, MB | % of a core | bytes a value | GB a day |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for nodes, (_, one) in results.items():
        day = one.values_a_second * one.bytes_a_value * 86400 / 1e9
        lines.append(
            f"| {nodes} | {one.series:.0f} | {one.series_a_node:.0f} | {one.values_a_second:.0f} "
            f"| {one.memory_mb:.0f} | {one.core_percent:.1f} | {one.bytes_a_value:.2f} | {day:.2f} |"
        )
    if results:
        far = projected([one for _, one in results.values()], PROJECTED_NODES)
        lines.append(
            f"| {PROJECTED_NODES}, projected | {far['series']:.0f} | | {far['values_a_second']:.0f} "
            f"| {far['memory_mb']:.0f} | {far['core_percent']:.0f} | | {far['gb_a_day']:.1f} |"
        )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="What the agents cost a node, and its values their server.")
    parser.add_argument(
        "--nodes", default="4", help="CPU nodes beside the head, sizes by comma, up to 200 [4]"
    )
    parser.add_argument("--seconds", type=int, default=300, help="how long the nodes are watched [300]")
    parser.add_argument("--settle", type=int, default=120, help="how long they are left alone before [120]")
    parser.add_argument("--net", default="10.77.108", help="first three bytes of a free /24 [10.77.108]")
    parser.add_argument("--distribution", default="debian-13", help="of the nodes [debian-13]")
    parser.add_argument(
        "--run-seconds", type=int, default=1800, help="the most that one command may take [1800]"
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    return parser.parse_args()


def one_size(rack: Scratch, nodes: int, options: argparse.Namespace) -> tuple[list[Agent], Server]:
    """Bring up, converge, leave alone, watch."""
    say(f"{nodes} nodes: the rack, and site.yml")
    rack.up(nodes)
    begun = time.monotonic()
    Playbook(rack, ROOT / "ansible.cfg").play()
    say(f"{nodes} nodes: converged in {time.monotonic() - begun:.0f} s")
    rack.disconnect()
    time.sleep(options.settle)
    found = agents(rack, options.seconds)
    held = server(rack, options.seconds)
    rack.down()
    return found, held


def main() -> int:
    """Measure, report; 0 if every size was measured."""
    options = arguments()
    results: dict[int, tuple[list[Agent], Server]] = {}
    code = 0
    try:
        with interrupts_raise(), Watched(options.net, options.distribution, options.run_seconds) as rack:
            for nodes in (int(size) for size in options.nodes.split(",")):
                results[nodes] = one_size(rack, nodes, options)
                say(report(results))
    except (Failed, ColdironError) as error:
        say(f"error: {error}")
        code = 1
    except KeyboardInterrupt:
        say("interrupted; the rack is taken away")
        code = 130
    print(f"{machine()}\n\n{report(results)}")
    if options.json:
        sizes: dict[str, Any] = {
            str(nodes): {"agents": [asdict(one) for one in found], "server": asdict(held)}
            for nodes, (found, held) in results.items()
        }
        text = json.dumps({"machine": machine(), "nodes": sizes}, indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
