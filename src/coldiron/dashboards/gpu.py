"""GPUs: who uses which, which are held and idle, and what they draw against what they may."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from coldiron.dashboards.parts import (
    BAD,
    NONE_IS_BEST,
    NONE_IS_WELL,
    NOTE,
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

GPUS = 'mig="", host=~"$node"'
# A GPU below this share of time with a kernel is idle.
IDLE_PERCENT = 5


def per_gpu(metric: str) -> str:
    """A metric of GPUs by node and number, under the label that Slurm's metrics have for a node."""
    return f'max by (node, gpu) (label_replace({metric}{{{GPUS}}}, "node", "$1", "host", "(.*)"))'


# Slurm says how many GPUs a job holds on a node, not which: a node's GPUs are its job's where it has one alone.
OWNER = (
    "(max by (node, job_id, user, account) (slurm_job_gpu)"
    " and on (node) (count by (node) (slurm_job_gpu) == 1)"
    " or label_replace(label_replace(label_replace(count by (node) (slurm_job_gpu) > 1,"
    ' "job_id", "several", "", ""), "user", "several", "", ""), "account", "several", "", ""))'
)
BUSY = (
    "count by (node) (max by (node, gpu) (label_replace("
    f'avg_over_time(coldiron:gpu_utilization_percent{{{GPUS}}}[15m]), "node", "$1", "host", "(.*)")) >= {IDLE_PERCENT})'
)
# Where none is busy there is no such series: none of those that are held is.
IDLE_HELD = (
    'clamp_min(sum by (node) (slurm_node_gpus_allocated{node=~"$node"}) - on (node) '
    f'({BUSY} or 0 * sum by (node) (slurm_node_gpus_allocated{{node=~"$node"}})), 0)'
)


def owned(metric: str) -> str:
    """A metric of each GPU that a job holds, with the job's labels."""
    return (
        "sum by (node, gpu, job_id, user, account) ("
        f"({per_gpu(metric)}) * on (node) group_left (job_id, user, account) ({OWNER} > bool 0))"
    )


def dashboard() -> Dashboard:
    """What GPUs do, for whom, and what is wrong with them."""
    now = Row(
        "Now",
        [
            number("GPUs", "GPUs that exporters tell of.", f"count(coldiron:gpu_power_watts{{{GPUS}}})"),
            number(
                "In jobs",
                "GPUs that Slurm has given to jobs.",
                'sum(slurm_node_gpus_allocated{node=~"$node"})',
            ),
            number(
                "Held and idle",
                f"GPUs that jobs hold and that were under {IDLE_PERCENT} % for 15 minutes: those of the node that jobs"
                " hold, less those that are busy.",
                f"sum({IDLE_HELD})",
                steps=NONE_IS_BEST,
            ),
            number(
                "Busy without a job",
                "GPUs at work on nodes where no job holds one: somebody passes Slurm by.",
                f"count(({per_gpu('coldiron:gpu_utilization_percent')} >= {IDLE_PERCENT})"
                " unless on (node) slurm_job_gpu) or vector(0)",
                steps=NONE_IS_WELL,
            ),
            number(
                "With errors",
                "GPUs whose last Xid is not 0, that met memory errors which nothing corrected, or without a spare row.",
                "count(max by (host, gpu) (("
                f"coldiron:gpu_xid{{{GPUS}}} > 0) or (coldiron:gpu_ecc_uncorrected_errors{{{GPUS}}} > 0)"
                f" or (coldiron:gpu_row_remap_failure{{{GPUS}}} > 0))) or vector(0)",
                steps=NONE_IS_WELL,
            ),
            number(
                "Power",
                "What all GPUs draw.",
                f"sum(coldiron:gpu_power_watts{{{GPUS}}})",
                "watt",
                decimals=1,
            ),
        ],
    )
    who = Row(
        "Who uses which GPU",
        [
            lines(
                "GPUs in jobs",
                "Each GPU of a node with jobs. Slurm says how many GPUs of a node a job holds, and not which: where a"
                " node has several jobs that stands here, and the table beside says who they are.",
                {
                    "node": Column("Node", link=to_node()),
                    "gpu": Column("GPU"),
                    "job_id": Column("Job"),
                    "user": Column("User"),
                    "account": Column("Account"),
                    "Value #A": Column("Busy", unit="percent", bar=True, most=100),
                    "Value #B": Column("Memory", unit="bytes"),
                    "Value #C": Column("Power", unit="watt"),
                },
                Ask(owned("coldiron:gpu_utilization_percent")),
                Ask(owned("coldiron:gpu_memory_used_bytes")),
                Ask(owned("coldiron:gpu_power_watts")),
                span=14,
                height=12,
                empty="No job holds a GPU.",
            ),
            lines(
                "Jobs with GPUs",
                "GPUs that each job holds on each node, and how busy that node's GPUs are on the mean.",
                {
                    "job_id": Column("Job"),
                    "user": Column("User"),
                    "account": Column("Account"),
                    "node": Column("Node", link=to_node()),
                    "Value #A": Column("GPUs"),
                    "Value #B": Column("Busy", unit="percent", bar=True, most=100),
                },
                Ask('max by (job_id, user, account, node) (slurm_job_gpu{node=~"$node"})'),
                Ask(
                    'max by (job_id, user, account, node) (slurm_job_gpu{node=~"$node"}'
                    " * 0 + on (node) group_left ()"
                    f" avg by (node) ({per_gpu('coldiron:gpu_utilization_percent')}))"
                ),
                span=10,
                height=12,
                empty="No job holds a GPU.",
            ),
            lines(
                "Held and idle, by node",
                f"Nodes with GPUs that jobs hold and that were under {IDLE_PERCENT} % for 15 minutes.",
                {
                    "node": Column("Node", link=to_node()),
                    "Value": Column("Idle GPUs", steps=((None, NOTE), (1, WARN))),
                },
                Ask(f"{IDLE_HELD} > 0"),
                sort="Idle GPUs",
                span=8,
                empty="Whoever holds a GPU uses it.",
            ),
            lines(
                "GPUs by user",
                "GPUs that each user's jobs hold.",
                {
                    "user": Column("User"),
                    "account": Column("Account"),
                    "Value": Column("GPUs"),
                },
                Ask("sum by (user, account) (slurm_user_gpus_running)"),
                sort="GPUs",
                span=8,
                empty="No job holds a GPU.",
            ),
            lines(
                "Nodes with free GPUs",
                "GPUs that no job holds, on nodes that take jobs.",
                {"node": Column("Node", link=to_node()), "Value": Column("Free")},
                Ask(
                    'max by (node) (slurm_node_gpus{node=~"$node"} - slurm_node_gpus_allocated{node=~"$node"}) > 0'
                    ' and on (node) slurm_node_state{state=~"idle|mixed|allocated"} == 1'
                ),
                sort="Free",
                span=8,
                empty="Every GPU is given out.",
            ),
        ],
    )
    load = Row(
        "Load",
        [
            graph(
                "Utilization",
                "Share of time in which a kernel ran, by node: the mean of its GPUs.",
                "percent",
                Ask(f"avg by (host) (coldiron:gpu_utilization_percent{{{GPUS}}})", "{{host}}"),
                most=100,
            ),
            graph(
                "Memory in use",
                "Share of the GPUs' memory that is taken, by node.",
                "percentunit",
                Ask(
                    f"sum by (host) (coldiron:gpu_memory_used_bytes{{{GPUS}}})"
                    f" / sum by (host) (coldiron:gpu_memory_total_bytes{{{GPUS}}})",
                    "{{host}}",
                ),
                most=1,
            ),
            graph(
                "Power against cap",
                "What GPUs draw of what their limits let them, by node. At 100 % they are slowed down by it.",
                "percentunit",
                Ask(
                    f"sum by (host) (coldiron:gpu_power_watts{{{GPUS}}})"
                    f" / sum by (host) (coldiron:gpu_power_limit_watts{{{GPUS}}})",
                    "{{host}}",
                ),
                steps=((None, "transparent"), (1, WARN)),
            ),
            graph(
                "Temperature",
                "The hottest GPU of each node.",
                "celsius",
                Ask(f"max by (host) (coldiron:gpu_temperature_celsius{{{GPUS}}})", "{{host}}"),
                steps=((None, "transparent"), (85, BAD)),
                least=None,
            ),
            graph(
                "Clocks",
                "The slowest GPU of each node that is at work: a GPU that lags holds up the others of its job.",
                "hertz",
                Ask(
                    f"min by (host) (coldiron:gpu_clock_sm_mhz{{{GPUS}}}"
                    f" and on (host, gpu) coldiron:gpu_utilization_percent{{{GPUS}}} > 50) * 1000000",
                    "{{host}}",
                ),
                empty="No GPU is at work.",
            ),
            graph(
                "Instances (MIG)",
                "Memory that is taken in instances of divided GPUs.",
                "bytes",
                Ask(
                    'max by (host, gpu, mig, mig_profile) (coldiron:gpu_memory_used_bytes{mig!="", host=~"$node"})',
                    "{{host}} GPU {{gpu}} {{mig_profile}} {{mig}}",
                ),
                empty="No GPU is divided.",
            ),
        ],
    )
    health = Row(
        "Health",
        [
            lines(
                "GPUs with errors",
                "The last Xid, memory errors that nothing corrected, rows to remap, and rows for which none is spare.",
                {
                    "host": Column("Node", link=to_node()),
                    "gpu": Column("GPU"),
                    "Value #A": Column("Xid", steps=NONE_IS_WELL),
                    "Value #B": Column("Memory errors", steps=NONE_IS_WELL),
                    "Value #C": Column("Row waits", steps=((None, WELL), (1, WARN))),
                    "Value #D": Column("No row left", steps=((None, WELL), (1, BAD))),
                },
                Ask(f"max by (host, gpu) (coldiron:gpu_xid{{{GPUS}}}) > 0"),
                Ask(f"max by (host, gpu) (coldiron:gpu_ecc_uncorrected_errors{{{GPUS}}}) > 0"),
                Ask(f"max by (host, gpu) (coldiron:gpu_row_remap_pending{{{GPUS}}}) > 0"),
                Ask(f"max by (host, gpu) (coldiron:gpu_row_remap_failure{{{GPUS}}}) > 0"),
                span=12,
                empty="No GPU has met an error.",
            ),
            graph(
                "Memory errors that were corrected",
                "In an hour, by node. A GPU that has more and more of them will have to be replaced.",
                "short",
                Ask(f"sum by (host) (increase(coldiron:gpu_ecc_corrected_errors{{{GPUS}}}[1h]))", "{{host}}"),
            ),
        ],
    )
    return page(
        "gpu",
        "GPUs",
        "Who uses which GPU, which are held and idle, what they draw of what they may, and what is wrong with them.",
        [now, who, load, health],
        choices=by_rack(),
    )
