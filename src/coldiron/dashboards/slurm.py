"""Slurm: the queue, how well accounts use what they hold, how long jobs wait, and the daemons."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from coldiron.dashboards.parts import (
    BAD,
    NONE_IS_BEST,
    ONE_IS_WELL,
    WARN,
    WELL,
    Ask,
    Column,
    Row,
    bars,
    choose,
    graph,
    lines,
    number,
    page,
    to_node,
)

IN = 'partition=~"$partition"'
# The mean utilization of a node's GPUs, at each job that holds some there, times how many it holds.
USED = (
    f"slurm_job_gpu{{{IN}}} * on (node) group_left () avg by (node) ("
    'label_replace(avg_over_time(coldiron:gpu_utilization_percent{mig=""}[15m]), "node", "$1", "host", "(.*)"))'
)


def dashboard() -> Dashboard:
    """What waits, what runs, for whom, and whether Slurm itself is well."""
    now = Row(
        "Now",
        [
            number("Running", "Jobs that run.", f'sum(slurm_jobs{{{IN}, state="running"}}) or vector(0)'),
            number("Waiting", "Jobs that wait.", f'sum(slurm_jobs{{{IN}, state="pending"}}) or vector(0)'),
            number(
                "Longest wait",
                "The longest wait of a job that could start: held jobs, and those that wait for others, are left out.",
                f"max(slurm_job_pending_seconds_max{{{IN}}})",
                "dtdurations",
            ),
            number(
                "Nodes out",
                "Nodes that Slurm gives no jobs: drained, down or failing.",
                'sum(slurm_nodes{state=~"drained|draining|down|fail"})',
                steps=NONE_IS_BEST,
            ),
            number(
                "Controller",
                "1 while slurmctld answers.",
                "min(slurm_up)",
                steps=ONE_IS_WELL,
            ),
            number(
                "Accounting waits",
                "Messages that slurmctld keeps for slurmdbd: they pile up while the database is away.",
                "max(slurm_dbd_queue_size)",
                steps=((None, WELL), (100, WARN), (5000, BAD)),
            ),
        ],
    )
    queue = Row(
        "Queue",
        [
            graph(
                "Jobs",
                "Jobs by state.",
                "short",
                Ask(f"sum by (state) (slurm_jobs{{{IN}}})", "{{state}}"),
                stacked=True,
            ),
            graph(
                "Why jobs wait",
                "Jobs that wait, by Slurm's reason.",
                "short",
                Ask(f"sum by (reason) (slurm_jobs_pending_by_reason{{{IN}}})", "{{reason}}"),
                stacked=True,
                empty="No job waits.",
            ),
            graph(
                "Longest wait",
                "The longest wait of a job that could start, by partition.",
                "s",
                Ask(f"max by (partition) (slurm_job_pending_seconds_max{{{IN}}})", "{{partition}}"),
            ),
            graph(
                "Nodes",
                "Nodes by state.",
                "short",
                Ask("sum by (state) (slurm_nodes) > 0", "{{state}}"),
                stacked=True,
            ),
        ],
    )
    accounts = Row(
        "Accounts",
        [
            bars(
                "Efficiency",
                "How busy the GPUs are that each account's jobs hold, on the mean of 15 minutes. On a node that several"
                " jobs share they count alike, as Slurm does not say which GPU is whose.",
                "percent",
                Ask(f"sum by (account) ({USED}) / sum by (account) (slurm_job_gpu{{{IN}}})", "{{account}}"),
                steps=((None, BAD), (30, WARN), (60, WELL)),
                most=100,
                span=8,
                empty="No job holds a GPU.",
            ),
            graph(
                "GPUs",
                "GPUs that each account's jobs hold.",
                "short",
                Ask("sum by (account) (slurm_account_gpus_running)", "{{account}}"),
                stacked=True,
                span=8,
                empty="No job runs.",
            ),
            graph(
                "Processors",
                "Processors that each account's jobs hold.",
                "short",
                Ask("sum by (account) (slurm_account_cpus_running)", "{{account}}"),
                stacked=True,
                span=8,
                empty="No job runs.",
            ),
            lines(
                "Accounts now",
                "Jobs that run and wait, and what those that run hold.",
                {
                    "account": Column("Account"),
                    "Value #A": Column("Running"),
                    "Value #B": Column("Waiting"),
                    "Value #C": Column("GPUs"),
                    "Value #D": Column("Processors"),
                    "Value #E": Column("Memory", unit="bytes"),
                },
                Ask('sum by (account) (slurm_account_jobs{state="running"})'),
                Ask('sum by (account) (slurm_account_jobs{state="pending"})'),
                Ask("sum by (account) (slurm_account_gpus_running)"),
                Ask("sum by (account) (slurm_account_cpus_running)"),
                Ask("sum by (account) (slurm_account_memory_bytes_running)"),
                sort="GPUs",
                height=7,
                empty="There are no jobs.",
            ),
        ],
    )
    nodes = Row(
        "Nodes",
        [
            graph(
                "Given out",
                "Share of processors, memory and GPUs that jobs hold.",
                "percentunit",
                Ask("sum(slurm_node_cpus_allocated) / sum(slurm_node_cpus)", "processors"),
                Ask("sum(slurm_node_memory_allocated_bytes) / sum(slurm_node_memory_bytes)", "memory"),
                Ask("sum(slurm_node_gpus_allocated) / (sum(slurm_node_gpus) > 0)", "GPUs"),
                most=1,
            ),
            lines(
                "Nodes that run no jobs",
                "Nodes that were taken out, and why.",
                {
                    "node": Column("Node", link=to_node()),
                    "reason": Column("Reason"),
                    "by": Column("By"),
                    "Value": Column("Since", unit="dtdurations"),
                },
                Ask("max by (node, reason, by) (time() - slurm_node_reason_timestamp_seconds)"),
                sort="Since",
                span=12,
                height=8,
                empty="Every node runs jobs.",
            ),
        ],
    )
    daemons = Row(
        "Daemons",
        [
            lines(
                "Controllers",
                "Which controllers answer, and which of them is in command.",
                {
                    "host": Column("Host"),
                    "role": Column("Role"),
                    "Value #A": Column("Answers", steps=ONE_IS_WELL),
                    "Value #B": Column("In command"),
                },
                Ask("max by (host, role) (slurm_controller_up)"),
                Ask("max by (host, role) (slurm_controller_active)"),
                span=8,
            ),
            graph(
                "Scheduler's cycle",
                "How long a round of the scheduler took; jobs start late when it takes long.",
                "s",
                Ask("max(slurm_scheduler_cycle_seconds)", "main"),
                Ask("max(slurm_scheduler_backfill_cycle_seconds)", "backfill"),
                span=8,
            ),
            graph(
                "Accounting",
                "Messages that wait for slurmdbd.",
                "short",
                Ask("max(slurm_dbd_queue_size)", "waiting"),
                span=8,
            ),
            graph(
                "Questions to slurmctld",
                "The ten kinds of requests that come most, by second.",
                "reqps",
                Ask("topk(10, sum by (type) (rate(slurm_rpcs_total[$__rate_interval])))", "{{type}}"),
            ),
            graph(
                "Slurm's threads",
                "Threads of slurmctld that serve a request, and messages to nodes that wait to be sent.",
                "short",
                Ask("max(slurm_scheduler_threads)", "threads"),
                Ask("max(slurm_scheduler_agent_queue_size)", "messages"),
            ),
        ],
    )
    return page(
        "slurm",
        "Slurm",
        "The queue, how well accounts use what they hold, how long jobs wait, and whether Slurm itself is well.",
        [now, queue, accounts, nodes, daemons],
        choices=[
            choose("partition", "Partition", "label_values(slurm_partition_up, partition)", everything=".*")
        ],
        since="now-24h",
    )
