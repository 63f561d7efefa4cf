"""The dashboards as the files that role grafana brings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from coldiron.dashboards import cluster, fabric, gpu, logs, node, power, slurm, storage

FOLDER = Path(__file__).resolve().parents[3] / "roles/grafana/files/dashboards"
DASHBOARDS = {
    "cluster": cluster.dashboard,
    "node": node.dashboard,
    "gpu": gpu.dashboard,
    "slurm": slurm.dashboard,
    "fabric": fabric.dashboard,
    "storage": storage.dashboard,
    "power": power.dashboard,
    "logs": logs.dashboard,
}


def _as_grafana_reads(made: Any) -> Any:
    """What the builders make, without the words that this kind of variable or table does not have in Grafana."""
    found = json.loads(JSONEncoder().encode(made))
    for variable in found["templating"]["list"]:
        for word in ("auto", "auto_count", "auto_min"):
            variable.pop(word, None)
    for panel in found["panels"]:
        if panel["type"] == "table":
            panel["options"].pop("footer", None)
    return found


def files() -> dict[str, str]:
    """Names of files, and what is in them."""
    return {
        f"{name}.json": json.dumps(_as_grafana_reads(make()), sort_keys=True, indent=1, ensure_ascii=False)
        + "\n"
        for name, make in DASHBOARDS.items()
    }
