"""The cluster at a glance: what is there, what is wrong, what it does."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from coldiron.dashboards.parts import (
    NONE_IS_BEST,
    NONE_IS_WELL,
    RUNBOOKS,
    WARN,
    WELL,
    Ask,
    Column,
    Row,
    by_rack,
    graph,
    lines,
    number,
    page,
    to_node,
)

# Of nodes the whole, of GPUs those that are no instance of another.
NODES = 'up{job="node", rack=~"$rack", instance=~"$node"}'
GPUS = 'mig="", host=~"$node"'


def dashboard() -> Dashboard:
    """What somebody looks at first, in the morning and after an alert."""
    now = Row(
        "Now",
        [
            number("Nodes", "Nodes that answer Prometheus.", f"sum({NODES})", steps=((None, WELL),), span=3),
            number(
                "Nodes away",
                "Nodes whose exporter does not answer: dead, or cut off, or the exporter alone has died.",
                f"count({NODES} == 0) or vector(0)",
                steps=NONE_IS_WELL,
                span=3,
            ),
            number(
                "Alerts to act on",
                "Alerts of severity page that fire: somebody has to act at once.",
                'count(ALERTS{alertstate="firing", severity="page"}) or vector(0)',
                steps=NONE_IS_WELL,
                span=3,
            ),
            number(
                "Alerts that can wait",
                "Alerts of severity ticket that fire: they can wait until the morning.",
                'count(ALERTS{alertstate="firing", severity="ticket"}) or vector(0)',
                steps=NONE_IS_BEST,
                span=3,
            ),
            number(
                "GPUs",
                "GPUs that exporters tell of; instances (MIG) are not counted.",
                f"count(coldiron:gpu_utilization_percent{{{GPUS}}}) or vector(0)",
                span=3,
            ),
            number(
                "GPUs in jobs",
                "GPUs that Slurm has given to jobs.",
                "sum(slurm_node_gpus_allocated)",
                span=3,
            ),
            number(
                "GPUs at work",
                "Mean utilization of all GPUs: the share of time in which a kernel ran.",
                f"avg(coldiron:gpu_utilization_percent{{{GPUS}}})",
                "percent",
                decimals=0,
                span=3,
            ),
            number(
                "Power",
                "What the nodes draw, as their BMCs say.",
                'sum(max by (instance) (coldiron:bmc_power_watts{instance=~"$node"}))',
                "watt",
                decimals=1,
                span=3,
            ),
        ],
    )
    wrong = Row(
        "What is wrong",
        [
            lines(
                "Alerts that fire",
                "What Prometheus holds for wrong now. The name leads to the runbook, the node to its dashboard.",
                {
                    "severity": Column("Severity"),
                    "alertname": Column("Alert", link=f"{RUNBOOKS}/${{__data.fields.Alert}}/"),
                    "instance": Column("Node", link=to_node()),
                    "rack": Column("Rack"),
                    "Value": Column("Firing"),
                },
                Ask(
                    'max by (severity, alertname, instance, rack) (ALERTS{alertstate="firing", alertname!="Watchdog"})'
                ),
                span=14,
                empty="Nothing is wrong.",
            ),
            lines(
                "Nodes that run no jobs",
                "Nodes that Slurm has taken out, since when, by whom, and the reason that was given.",
                {
                    "node": Column("Node", link=to_node()),
                    "reason": Column("Reason"),
                    "by": Column("By"),
                    "Value": Column("Since", unit="dtdurations"),
                },
                Ask("max by (node, reason, by) (time() - slurm_node_reason_timestamp_seconds)"),
                span=10,
                sort="Since",
                empty="Every node runs jobs.",
            ),
        ],
    )
    does = Row(
        "What it does",
        [
            graph(
                "GPUs: given out and at work",
                "GPUs that jobs hold, and how many of them were busy. The gap is what is held and does nothing.",
                "short",
                Ask("sum(slurm_node_gpus)", "there"),
                Ask("sum(slurm_node_gpus_allocated)", "in jobs"),
                Ask(f"sum(coldiron:gpu_utilization_percent{{{GPUS}}}) / 100", "at work"),
            ),
            graph(
                "Jobs",
                "Jobs by state, of all partitions.",
                "short",
                Ask("sum by (state) (slurm_jobs)", "{{state}}"),
                stacked=True,
            ),
            graph(
                "Processors at work",
                "Share of processor time that was not idle, by rack.",
                "percentunit",
                Ask(
                    "1 - avg by (rack) (rate("
                    'node_cpu_seconds_total{mode="idle", rack=~"$rack", instance=~"$node"}[$__rate_interval]))',
                    "{{rack}}",
                ),
                most=1,
            ),
            graph(
                "Power by rack",
                "What the nodes of each rack draw, as their BMCs say.",
                "watt",
                Ask(
                    'sum by (rack) (max by (rack, instance) (coldiron:bmc_power_watts{instance=~"$node"}))',
                    "{{rack}}",
                ),
                stacked=True,
            ),
        ],
    )
    upkeep = Row(
        "Upkeep",
        [
            number(
                "Boots that wait",
                "Nodes that want a boot: a newer kernel is installed than runs, or a package asks for it.",
                'sum(coldiron_reboot_required{instance=~"$node"})',
                steps=((None, WELL), (1, WARN)),
            ),
            number(
                "Nearest certificate",
                "Time until the first of all certificates runs out.",
                'min(coldiron_certificate_not_after_seconds{instance=~"$node"}) - time()',
                "dtdurations",
                steps=((None, "red"), (7 * 86400, WARN), (21 * 86400, WELL)),
            ),
            number(
                "Collectors that fail",
                "Programs for metrics without an exporter that could not do their work.",
                'count(coldiron_collector_success{instance=~"$node"} == 0) or vector(0)',
                steps=NONE_IS_BEST,
            ),
            lines(
                "Images and kernels",
                "How many nodes run which image and kernel: one line of each is what a fresh cluster has.",
                {
                    "image": Column("Image"),
                    "digest": Column("Digest"),
                    "release": Column("Kernel"),
                    "Value": Column("Nodes"),
                },
                Ask(
                    "count by (image, digest, release) ("
                    'coldiron_node_image_info{instance=~"$node"}'
                    " * on (instance) group_left (release) coldiron_kernel_info"
                    ' or coldiron_kernel_info{instance=~"$node"} unless on (instance) coldiron_node_image_info)'
                ),
                span=12,
                height=6,
                sort="Nodes",
            ),
        ],
    )
    return page(
        "cluster",
        "Cluster",
        "The cluster at a glance: what is there, what is wrong, what it does.",
        [now, wrong, does, upkeep],
        choices=by_rack(),
    )
