"""One node: from its processors to its certificates."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from coldiron.dashboards.parts import (
    NONE_IS_WELL,
    ONE_IS_WELL,
    WARN,
    WELL,
    Ask,
    Column,
    Row,
    choose,
    graph,
    lines,
    number,
    page,
)

HERE = 'instance="$node"'
# Real file systems that somebody writes to.
DISKS = f'{HERE}, fstype!~"tmpfs|ramfs|overlay|squashfs|iso9660|autofs|fuse.*"'
CARDS = f'{HERE}, device!~"lo|veth.*|docker.*|cni.*|virbr.*"'


def dashboard() -> Dashboard:
    """Everything that is known of one node."""
    now = Row(
        "Now",
        [
            number(
                "Answers",
                "1 while the node's exporter answers.",
                f'up{{job="node", {HERE}}}',
                steps=ONE_IS_WELL,
            ),
            number(
                "Up for",
                "Time since the node was booted.",
                f"node_time_seconds{{{HERE}}} - node_boot_time_seconds{{{HERE}}}",
                "dtdurations",
            ),
            number(
                "Clock's fault",
                "How far the node's clock is from the cluster's, as the kernel keeps it.",
                f"abs(node_timex_offset_seconds{{{HERE}}})",
                "s",
                steps=((None, WELL), (0.05, WARN), (0.5, "red")),
                decimals=6,
            ),
            number(
                "Memory in use",
                "Memory that programs hold, of all that there is.",
                f"1 - node_memory_MemAvailable_bytes{{{HERE}}} / node_memory_MemTotal_bytes{{{HERE}}}",
                "percentunit",
                steps=((None, WELL), (0.9, WARN), (0.97, "red")),
                decimals=0,
            ),
            number(
                "Failed units",
                "Services that systemd holds for failed.",
                f'sum(node_systemd_unit_state{{{HERE}, state="failed"}}) or vector(0)',
                steps=NONE_IS_WELL,
            ),
            number(
                "Boot waits",
                "1 where a boot is wanted: for a newer kernel, or by a package.",
                f"max(coldiron_reboot_required{{{HERE}}})",
                steps=((None, WELL), (1, WARN)),
            ),
        ],
    )
    work = Row(
        "Work",
        [
            graph(
                "Processors",
                "Share of processor time by what it was spent on; idle is left out.",
                "percentunit",
                Ask(
                    "sum by (mode) (rate("
                    f'node_cpu_seconds_total{{{HERE}, mode!="idle"}}[$__rate_interval]))'
                    f' / scalar(count(node_cpu_seconds_total{{{HERE}, mode="idle"}}))',
                    "{{mode}}",
                ),
                stacked=True,
                most=1,
            ),
            graph(
                "Memory",
                "What programs hold, what the kernel keeps of files, and what there is.",
                "bytes",
                Ask(
                    f"node_memory_MemTotal_bytes{{{HERE}}} - node_memory_MemAvailable_bytes{{{HERE}}}", "held"
                ),
                Ask(f"node_memory_Cached_bytes{{{HERE}}} + node_memory_Buffers_bytes{{{HERE}}}", "files"),
                Ask(f"node_memory_MemTotal_bytes{{{HERE}}}", "there"),
            ),
            graph(
                "Load",
                "Tasks that run or wait for a disk, against the number of processors.",
                "short",
                Ask(f"node_load1{{{HERE}}}", "one minute"),
                Ask(f"node_load15{{{HERE}}}", "fifteen minutes"),
                Ask(f'count(node_cpu_seconds_total{{{HERE}, mode="idle"}})', "processors"),
            ),
            graph(
                "Waiting",
                "Share of time in which some task waited for a processor, for memory or for a disk.",
                "percentunit",
                Ask(
                    f"rate(node_pressure_cpu_waiting_seconds_total{{{HERE}}}[$__rate_interval])",
                    "for a processor",
                ),
                Ask(
                    f"rate(node_pressure_memory_waiting_seconds_total{{{HERE}}}[$__rate_interval])",
                    "for memory",
                ),
                Ask(
                    f"rate(node_pressure_io_waiting_seconds_total{{{HERE}}}[$__rate_interval])", "for a disk"
                ),
            ),
        ],
    )
    traffic = Row(
        "Disks and network",
        [
            graph(
                "Disks: bytes",
                "What disks were read and written.",
                "Bps",
                Ask(f"rate(node_disk_read_bytes_total{{{HERE}}}[$__rate_interval])", "{{device}} read"),
                Ask(f"rate(node_disk_written_bytes_total{{{HERE}}}[$__rate_interval])", "{{device}} written"),
            ),
            graph(
                "Disks: busy",
                "Share of time in which a disk had something to do.",
                "percentunit",
                Ask(f"rate(node_disk_io_time_seconds_total{{{HERE}}}[$__rate_interval])", "{{device}}"),
                most=1,
            ),
            graph(
                "Network: bytes",
                "What cards received and sent.",
                "Bps",
                Ask(f"rate(node_network_receive_bytes_total{{{CARDS}}}[$__rate_interval])", "{{device}} in"),
                Ask(
                    f"rate(node_network_transmit_bytes_total{{{CARDS}}}[$__rate_interval])", "{{device}} out"
                ),
            ),
            graph(
                "Network: lost",
                "Packets that cards dropped, or took for broken.",
                "pps",
                Ask(
                    f"rate(node_network_receive_errs_total{{{CARDS}}}[$__rate_interval])"
                    f" + rate(node_network_receive_drop_total{{{CARDS}}}[$__rate_interval])",
                    "{{device}} in",
                ),
                Ask(
                    f"rate(node_network_transmit_errs_total{{{CARDS}}}[$__rate_interval])"
                    f" + rate(node_network_transmit_drop_total{{{CARDS}}}[$__rate_interval])",
                    "{{device}} out",
                ),
            ),
            lines(
                "File systems",
                "How full file systems are, and how full of files.",
                {
                    "mountpoint": Column("Path"),
                    "device": Column("Device"),
                    "fstype": Column("Kind"),
                    "Value #A": Column("Size", unit="bytes"),
                    "Value #B": Column(
                        "Full", unit="percentunit", steps=((None, WELL), (0.85, WARN), (0.95, "red")), most=1
                    ),
                    "Value #C": Column(
                        "Files", unit="percentunit", steps=((None, WELL), (0.85, WARN), (0.95, "red")), most=1
                    ),
                },
                Ask(f"max by (mountpoint, device, fstype) (node_filesystem_size_bytes{{{DISKS}}})"),
                Ask(
                    "max by (mountpoint, device, fstype) ("
                    f"1 - node_filesystem_avail_bytes{{{DISKS}}} / node_filesystem_size_bytes{{{DISKS}}})"
                ),
                Ask(
                    "max by (mountpoint, device, fstype) ("
                    f"1 - node_filesystem_files_free{{{DISKS}}} / (node_filesystem_files{{{DISKS}}} > 0))"
                ),
                sort="Full",
                height=7,
            ),
        ],
    )
    hardware = Row(
        "Hardware",
        [
            graph(
                "Temperatures",
                "What the node's own sensors say.",
                "celsius",
                Ask(f"node_hwmon_temp_celsius{{{HERE}}}", "{{chip}} {{sensor}}"),
                Ask('coldiron:gpu_temperature_celsius{host="$node", mig=""}', "GPU {{gpu}}"),
                Ask(f"coldiron:bmc_temperature_celsius{{{HERE}}}", "BMC {{name}}"),
                least=None,
                span=8,
            ),
            graph(
                "Memory errors",
                "Errors of memory that were corrected, since the node was booted, by module.",
                "short",
                Ask(f"coldiron_memory_corrected_errors_total{{{HERE}}}", "{{controller}} {{dimm}}"),
                span=8,
                empty="The node does not count them.",
            ),
            graph(
                "PCIe errors",
                "Errors of the PCIe bus since the node was booted, by device.",
                "short",
                Ask(
                    f"sum by (device, severity) (coldiron_pcie_aer_errors_total{{{HERE}}})",
                    "{{device}} {{severity}}",
                ),
                span=8,
                empty="The node does not count them.",
            ),
            lines(
                "What it runs",
                "The node's kernel.",
                {"release": Column("Kernel"), "Value": Column("Runs")},
                Ask(f"max by (release) (coldiron_kernel_info{{{HERE}}})"),
                span=6,
                height=5,
            ),
            lines(
                "Driver of the GPUs",
                "The driver's modules in the kernel, and its library; they have to be one version.",
                {"version": Column("Modules"), "library": Column("Library"), "Value": Column("Runs")},
                Ask(f"max by (version, library) (coldiron_nvidia_driver_info{{{HERE}}})"),
                span=6,
                height=5,
                empty="There is no driver.",
            ),
            lines(
                "Certificates",
                "Time until each certificate on the node runs out.",
                {
                    "path": Column("Path"),
                    "subject": Column("Of"),
                    "Value": Column(
                        "Left",
                        unit="dtdurations",
                        steps=((None, "red"), (7 * 86400, WARN), (21 * 86400, WELL)),
                    ),
                },
                Ask(f"min by (path, subject) (coldiron_certificate_not_after_seconds{{{HERE}}} - time())"),
                height=5,
                span=12,
                empty="None is watched.",
            ),
        ],
    )
    jobs = Row(
        "Jobs",
        [
            lines(
                "Jobs with GPUs here",
                "Jobs that hold GPUs of this node.",
                {
                    "job_id": Column("Job"),
                    "user": Column("User"),
                    "account": Column("Account"),
                    "partition": Column("Partition"),
                    "Value": Column("GPUs"),
                },
                Ask('max by (job_id, user, account, partition) (slurm_job_gpu{node="$node"})'),
                span=12,
                empty="No job holds GPUs here.",
            ),
            graph(
                "GPUs",
                "Utilization of the node's GPUs.",
                "percent",
                Ask('coldiron:gpu_utilization_percent{host="$node", mig=""}', "GPU {{gpu}}"),
                most=100,
                empty="The node has none.",
            ),
        ],
    )
    return page(
        "node",
        "Node",
        "One node: its work, its disks and network, its hardware and the jobs on it.",
        [now, work, traffic, hardware, jobs],
        choices=[choose("node", "Node", 'label_values(up{job="node"}, instance)', several=False)],
    )
