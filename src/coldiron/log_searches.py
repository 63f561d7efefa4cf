"""python -m coldiron.log_searches [FILE]: write the data view and the searches of the logs as Kibana imports them.

What people ask of the logs at three in the morning. Each query is of what Kibana's language (KQL) and Lucene's have in
common, so that Elasticsearch can be asked it without Kibana too. Fields are those of roles log_shipper and
elasticsearch, as docs/logging.md has them.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path("roles/kibana/files/logs.ndjson")
VIEW = "coldiron-logs"
# What stands in the file for the site's data stream.
INDEX = "logs-coldiron-*"
TIME = "@timestamp"
# From these on Kibana's own exports have this form; an older form is brought up by each later Kibana.
CORE, OBJECT = "8.8.0", "8.0.0"
_SOURCE = "kibanaSavedObjectMeta.searchSourceJSON.index"
_FIELD = re.compile(r"(?<![\w\"])([@A-Za-z][\w.]*):")
_GRAVE = "(emerg OR alert OR crit OR err)"


@dataclass(frozen=True)
class Search:
    """``hours``: how far back it looks at first. ``by``: what its lines are sorted by before their time, which is
    last first. ``first``: the time is first first, as one reads what happened."""

    name: str
    title: str
    about: str
    query: str
    columns: tuple[str, ...]
    hours: int
    by: tuple[str, ...] = ()
    first: bool = False


SEARCHES = (
    Search(
        "hardware",
        "Hardware errors",
        "What the kernel tells of memory, PCIe, disks, processors and heat.",
        "event.kind:hardware",
        ("host.name", "hardware.error", "message"),
        168,
    ),
    Search(
        "xid",
        "GPU errors (Xid) by GPU",
        "Xids of the driver, by node and GPU. One number alone: gpu.xid:79.",
        "gpu.xid:*",
        ("host.name", "gpu.pci", "gpu.xid", "message"),
        168,
        by=("host.name", "gpu.pci"),
    ),
    Search(
        "job",
        "Lines of a job",
        "Write the job's number in place of the star: what its processes logged, and Slurm of it, on all nodes.",
        "slurm.job_id:*",
        ("slurm.job_id", "host.name", "process.name", "message"),
        24,
        first=True,
    ),
    Search(
        "logins",
        "Failed logins by ssh",
        "Who tried, from where. A stranger's name is what he typed.",
        "event.kind:login AND event.action:failed",
        ("host.name", "user.name", "source.ip", "message"),
        24,
    ),
    Search(
        "errors",
        "Errors by unit",
        "Lines of error and above, by the unit that logged them.",
        f"log.level:{_GRAVE}",
        ("service.unit", "host.name", "process.name", "message"),
        24,
        by=("service.unit",),
    ),
    Search(
        "node",
        "Lines of one node",
        "Write the node's name in place of the star.",
        "host.name:*",
        ("host.name", "log.level", "service.unit", "process.name", "message"),
        1,
        first=True,
    ),
    Search(
        "slurm",
        "What Slurm complains of",
        "Warnings and errors of Slurm's own daemons.",
        "service.unit:(slurmctld.service OR slurmd.service OR slurmdbd.service) AND "
        "(log.level:(emerg OR alert OR crit OR err OR warning) OR message:error)",
        ("host.name", "service.unit", "slurm.job_id", "message"),
        24,
    ),
    Search(
        "memory",
        "Out of memory",
        "What the kernel ended because memory was at its end, a node's or a job's.",
        'process.name:kernel AND message:"out of memory"',
        ("host.name", "message"),
        168,
    ),
    Search(
        "disk",
        "Disk full",
        "Who could not write because there was no room.",
        'message:"no space left on device"',
        ("host.name", "service.unit", "process.name", "message"),
        24,
    ),
)


def fields(search: Search) -> set[str]:
    """All fields that a search names: in its query, its columns and its order."""
    return {*_FIELD.findall(search.query), *search.columns, *search.by, TIME}


def _object(
    kind: str, name: str, attributes: dict[str, Any], references: list[dict[str, str]]
) -> dict[str, Any]:
    return {
        "type": kind,
        "id": name,
        "attributes": attributes,
        "references": references,
        "coreMigrationVersion": CORE,
        "typeMigrationVersion": OBJECT,
    }


def objects() -> Iterator[dict[str, Any]]:
    """The data view, and each search after it."""
    view = {"title": INDEX, "name": "Logs of the cluster", "timeFieldName": TIME}
    yield _object("index-pattern", VIEW, view, [])
    for search in SEARCHES:
        source = {
            "query": {"query": search.query, "language": "kuery"},
            "filter": [],
            "indexRefName": _SOURCE,
        }
        attributes = {
            "title": search.title,
            "description": search.about,
            "columns": list(search.columns),
            "sort": [*([field, "asc"] for field in search.by), [TIME, "asc" if search.first else "desc"]],
            "timeRestore": True,
            "timeRange": {"from": f"now-{search.hours}h", "to": "now"},
            "kibanaSavedObjectMeta": {"searchSourceJSON": json.dumps(source)},
        }
        reference = {"name": _SOURCE, "type": "index-pattern", "id": VIEW}
        yield _object("search", f"coldiron-{search.name}", attributes, [reference])


def text() -> str:
    """The file."""
    return "".join(json.dumps(one, sort_keys=True, ensure_ascii=False) + "\n" for one in objects())


def main() -> None:
    """Write the file."""
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    file.write_text(text(), encoding="utf-8")
    print(f"{len(SEARCHES)} searches in {file}")


if __name__ == "__main__":
    main()
