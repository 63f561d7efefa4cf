"""Storage: how full, how worn, how fast; NFS from both sides."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from coldiron.dashboards.parts import (
    BAD,
    NONE_IS_BEST,
    NONE_IS_WELL,
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

ON = 'instance=~"$node"'
# What is read from elsewhere is asked for where it is kept.
DISKS = f'{ON}, fstype!~"tmpfs|ramfs|overlay|squashfs|iso9660|autofs|fuse.*|nfs.*"'
FULL: tuple[tuple[float | None, str], ...] = ((None, WELL), (0.85, WARN), (0.95, BAD))
WITHOUT_NFS = "The nodes have no NFS."


def dashboard() -> Dashboard:
    """What runs full, what wears out, what is slow."""
    now = Row(
        "Now",
        [
            number(
                "Fullest",
                "The fullest file system of all nodes.",
                f"max(1 - node_filesystem_avail_bytes{{{DISKS}}} / node_filesystem_size_bytes{{{DISKS}}})",
                "percentunit",
                steps=FULL,
                decimals=0,
            ),
            number(
                "Read-only",
                "File systems that the kernel has made read-only, mostly after an error of a disk.",
                f"sum(node_filesystem_readonly{{{DISKS}}})",
                steps=NONE_IS_WELL,
            ),
            number(
                "Failing disks",
                "Disks that hold themselves for failing (SMART).",
                f"count(coldiron_disk_healthy{{{ON}}} == 0) or vector(0)",
                steps=NONE_IS_WELL,
            ),
            number(
                "Worn NVMe",
                "NVMe disks that have used up nine tenths of what they are rated for.",
                f"count(coldiron_nvme_percentage_used_ratio{{{ON}}} >= 0.9) or vector(0)",
                steps=NONE_IS_BEST,
            ),
            number(
                "Arrays with a disk missing",
                "Software RAID that runs without all of its disks.",
                f"count(coldiron_raid_degraded{{{ON}}} > 0) or vector(0)",
                steps=NONE_IS_WELL,
            ),
            number(
                "Written",
                "What all disks of the nodes write.",
                f"sum(rate(node_disk_written_bytes_total{{{ON}}}[$__rate_interval]))",
                "Bps",
                decimals=1,
            ),
        ],
    )
    space = Row(
        "Space",
        [
            lines(
                "Fullest file systems",
                "The twenty fullest, how full of files they are, and how full they will be in a day if it goes on as in"
                " the last six hours.",
                {
                    "instance": Column("Node", link=to_node()),
                    "mountpoint": Column("Path"),
                    "Value #A": Column("Full", unit="percentunit", steps=FULL, most=1),
                    "Value #B": Column("Free", unit="bytes"),
                    "Value #C": Column("Files", unit="percentunit", steps=FULL, most=1),
                    "Value #D": Column("Full in a day", unit="percentunit", steps=FULL),
                },
                Ask(
                    "topk(20, max by (instance, mountpoint) ("
                    f"1 - node_filesystem_avail_bytes{{{DISKS}}} / node_filesystem_size_bytes{{{DISKS}}}))"
                ),
                Ask(f"max by (instance, mountpoint) (node_filesystem_avail_bytes{{{DISKS}}})"),
                Ask(
                    "max by (instance, mountpoint) ("
                    f"1 - node_filesystem_files_free{{{DISKS}}} / (node_filesystem_files{{{DISKS}}} > 0))"
                ),
                Ask(
                    "max by (instance, mountpoint) ("
                    f"1 - predict_linear(node_filesystem_avail_bytes{{{DISKS}}}[6h], 86400)"
                    f" / node_filesystem_size_bytes{{{DISKS}}})"
                ),
                sort="Full",
                height=10,
            ),
        ],
    )
    disks = Row(
        "Disks",
        [
            graph(
                "Read and written",
                "Bytes a second, by node.",
                "Bps",
                Ask(
                    f"sum by (instance) (rate(node_disk_read_bytes_total{{{ON}}}[$__rate_interval]))",
                    "{{instance}} read",
                ),
                Ask(
                    f"sum by (instance) (rate(node_disk_written_bytes_total{{{ON}}}[$__rate_interval]))",
                    "{{instance}} written",
                ),
                span=8,
            ),
            graph(
                "Busiest disk",
                "Share of time in which the busiest disk of each node had something to do.",
                "percentunit",
                Ask(
                    f"max by (instance) (rate(node_disk_io_time_seconds_total{{{ON}}}[$__rate_interval]))",
                    "{{instance}}",
                ),
                most=1,
                span=8,
            ),
            graph(
                "How long a write takes",
                "Mean time of a write, at the slowest disk of each node.",
                "s",
                Ask(
                    f"max by (instance) (rate(node_disk_write_time_seconds_total{{{ON}}}[$__rate_interval])"
                    f" / (rate(node_disk_writes_completed_total{{{ON}}}[$__rate_interval]) > 0))",
                    "{{instance}}",
                ),
                span=8,
                empty="Nothing is written.",
            ),
            lines(
                "Disks that worry",
                "Disks that hold themselves for failing, or with sectors that were replaced, wait for it or are lost.",
                {
                    "instance": Column("Node", link=to_node()),
                    "device": Column("Disk"),
                    "Value #A": Column("Failing", steps=NONE_IS_WELL),
                    "Value #B": Column("Replaced", steps=NONE_IS_BEST),
                    "Value #C": Column("Waiting", steps=NONE_IS_WELL),
                    "Value #D": Column("Lost", steps=NONE_IS_WELL),
                },
                Ask(f"max by (instance, device) (1 - coldiron_disk_healthy{{{ON}}}) > 0"),
                Ask(f"max by (instance, device) (coldiron_disk_reallocated_sectors{{{ON}}}) > 0"),
                Ask(f"max by (instance, device) (coldiron_disk_pending_sectors{{{ON}}}) > 0"),
                Ask(f"max by (instance, device) (coldiron_disk_uncorrectable_sectors{{{ON}}}) > 0"),
                span=12,
                empty="No disk worries.",
            ),
            lines(
                "NVMe",
                "What is used up of the rated life, the spare that is left, and errors of the medium.",
                {
                    "instance": Column("Node", link=to_node()),
                    "device": Column("Disk"),
                    "Value #A": Column(
                        "Used up", unit="percentunit", steps=((None, WELL), (0.9, WARN), (1, BAD)), most=1
                    ),
                    "Value #B": Column("Spare", unit="percentunit"),
                    "Value #C": Column("Errors", steps=NONE_IS_BEST),
                    "Value #D": Column("Written", unit="bytes"),
                },
                Ask(f"max by (instance, device) (coldiron_nvme_percentage_used_ratio{{{ON}}})"),
                Ask(f"max by (instance, device) (coldiron_nvme_available_spare_ratio{{{ON}}})"),
                Ask(f"max by (instance, device) (coldiron_nvme_media_errors_total{{{ON}}})"),
                Ask(f"max by (instance, device) (coldiron_nvme_data_written_bytes_total{{{ON}}})"),
                sort="Used up",
                span=12,
                empty="The nodes have no NVMe disks, or no program to ask them.",
            ),
            lines(
                "Arrays",
                "Software RAID: disks that are missing, and how far a resynchronization has come.",
                {
                    "instance": Column("Node", link=to_node()),
                    "array": Column("Array"),
                    "Value #A": Column("Missing", steps=NONE_IS_WELL),
                    "Value #B": Column("Done", unit="percentunit", bar=True, most=1),
                },
                Ask(f"max by (instance, array) (coldiron_raid_degraded{{{ON}}})"),
                Ask(f"max by (instance, array) (coldiron_raid_sync_ratio{{{ON}}})"),
                span=12,
                height=6,
                empty="The nodes have no software RAID.",
            ),
            graph(
                "Temperature",
                "The hottest disk of each node.",
                "celsius",
                Ask(f"max by (instance) (coldiron_disk_temperature_celsius{{{ON}}})", "{{instance}}"),
                steps=((None, "transparent"), (70, BAD)),
                least=None,
                height=6,
                empty="No disk says.",
            ),
        ],
    )
    nfs = Row(
        "NFS",
        [
            graph(
                "Requests to servers",
                "Requests that each server answers, by method.",
                "reqps",
                Ask(
                    f"sum by (instance, method) (rate(node_nfsd_requests_total{{{ON}}}[$__rate_interval])) > 0",
                    "{{instance}} {{method}}",
                ),
                empty=WITHOUT_NFS,
                span=8,
            ),
            graph(
                "Servers' threads",
                "Threads of each NFS server.",
                "short",
                Ask(f"max by (instance) (node_nfsd_server_threads{{{ON}}})", "{{instance}}"),
                empty=WITHOUT_NFS,
                span=8,
            ),
            graph(
                "Clients ask again",
                "Requests that clients sent again, as no answer had come: the server or the network is away or slow.",
                "reqps",
                Ask(
                    f"sum by (instance) (rate(node_nfs_rpc_retransmissions_total{{{ON}}}[$__rate_interval]))",
                    "{{instance}}",
                ),
                empty=WITHOUT_NFS,
                span=8,
            ),
        ],
    )
    return page(
        "storage",
        "Storage",
        "What runs full, what wears out, what is slow, and NFS from both sides.",
        [now, space, disks, nfs],
        choices=by_rack(),
        since="now-24h",
    )
