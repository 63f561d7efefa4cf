"""The dashboards' JSON fits Grafana's own types, panels' options included."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coldiron.dashboards.read import dashboards

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOUND = dashboards(ROOT / "roles/grafana/files/dashboards")
# Of a kind of panel: where Grafana has the types of its options, and whether its fields have settings of their own.
KINDS = {
    "stat": ("Stat", False),
    "timeseries": ("TimeSeries", True),
    "table": ("Table", True),
    "bargauge": ("BarGauge", False),
    "logs": ("Logs", False),
}


@pytest.fixture(scope="session")
def compiler() -> Path:
    """The folder with Grafana's types and the compiler, as package.json has them."""
    place = ROOT / ".cache/grafana-schema"
    wanted = (HERE / "schema/package.json").read_text(encoding="utf-8")
    mark = place / "installed.json"
    if not mark.exists() or mark.read_text(encoding="utf-8") != wanted:
        if shutil.which("npm") is None:
            pytest.fail("npm is not installed: scripts/test-packages.sh installs it")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        (place / "package.json").write_text(wanted, encoding="utf-8")
        words = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"npm could not fetch Grafana's types: {done.stderr[-1000:]}")
        mark.write_text(wanted, encoding="utf-8")
    return place


def written(dashboard: Any) -> str:
    """A dashboard as a program that is right if, and only if, the JSON fits the types."""
    lines = [
        'import type { Dashboard, DataQuery } from "@grafana/schema";',
        'import type { Plain } from "./plain";',
    ]
    for kind, (name, fields) in KINDS.items():
        types = ["Options", "FieldConfig"] if fields else ["Options"]
        named = ", ".join(f"{one} as {name}{one}" for one in types)
        path = f"@grafana/schema/dist/esm/raw/composable/{kind}/panelcfg/x/{name}PanelCfg_types.gen"
        lines.append(f'import type {{ {named} }} from "{path}";')
    lines.append(f"export const dashboard: Plain<Dashboard> = {json.dumps(dashboard)};")
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            continue
        name, fields = KINDS[panel["type"]]
        at = panel["id"]
        lines.append(f"// {panel['title']}")
        lines.append(f"export const o{at}: Plain<{name}Options> = {json.dumps(panel['options'])};")
        custom = panel["fieldConfig"]["defaults"].get("custom") or {}
        assert fields or not custom, (
            f"{panel['title']}: settings of fields that this kind of panel does not have"
        )
        if fields:
            # Grafana puts in what a panel leaves out.
            lines.append(f"export const f{at}: Partial<Plain<{name}FieldConfig>> = {json.dumps(custom)};")
        for target in panel["targets"]:
            known = {
                key: target[key] for key in ("refId", "hide", "queryType", "datasource") if key in target
            }
            lines.append(f"export const q{at}{target['refId']}: Plain<DataQuery> = {json.dumps(known)};")
    return "\n".join(lines) + "\n"


def complaints(compiler: Path, folder: Path, found: dict[str, Any]) -> str:
    """What the compiler says; an empty text where everything fits."""
    shutil.copy(HERE / "schema/plain.ts", folder / "plain.ts")
    for name, dashboard in found.items():
        (folder / f"{name}.ts").write_text(written(dashboard), encoding="utf-8")
    options = {
        "compilerOptions": {
            "noEmit": True,
            "strict": True,
            "skipLibCheck": True,
            "module": "esnext",
            "moduleResolution": "bundler",
            "target": "es2022",
            "types": [],
        },
        "include": ["*.ts"],
    }
    (folder / "tsconfig.json").write_text(json.dumps(options), encoding="utf-8")
    (folder / "node_modules").symlink_to(compiler / "node_modules")
    program = compiler / "node_modules/typescript/bin/tsc"
    done = subprocess.run(
        ["node", str(program), "-p", str(folder)], capture_output=True, text=True, cwd=folder, check=False
    )
    assert (done.returncode == 0) == (not done.stdout), done.stderr
    return done.stdout


def test_the_dashboards_fit_grafanas_types(compiler: Path, tmp_path: Path) -> None:
    assert complaints(compiler, tmp_path, dict(FOUND)) == ""


def panel_of(dashboard: Any, kind: str) -> Any:
    return next(one for one in dashboard["panels"] if one["type"] == kind)


def a_word_that_is_none_of_grafanas(dashboard: Any) -> None:
    panel_of(dashboard, "timeseries")["options"]["legend"]["placement"] = "below"


def an_option_that_is_not_there(dashboard: Any) -> None:
    panel_of(dashboard, "stat")["options"]["colour"] = "value"


def a_number_as_text(dashboard: Any) -> None:
    panel_of(dashboard, "table")["gridPos"]["w"] = "24"


def a_field_that_is_wrong(dashboard: Any) -> None:
    panel_of(dashboard, "timeseries")["fieldConfig"]["defaults"]["custom"]["lineWidth"] = "thin"


def no_title_of_thresholds(dashboard: Any) -> None:
    panel_of(dashboard, "stat")["fieldConfig"]["defaults"]["thresholds"]["mode"] = "sum"


PLANTED: list[Callable[[Any], None]] = [
    a_word_that_is_none_of_grafanas,
    an_option_that_is_not_there,
    a_number_as_text,
    a_field_that_is_wrong,
    no_title_of_thresholds,
]


def test_planted_mistakes_are_seen(compiler: Path, tmp_path: Path) -> None:
    broken = {}
    for plant in PLANTED:
        broken[plant.__name__] = copy.deepcopy(FOUND["gpu"])
        plant(broken[plant.__name__])
    said = complaints(compiler, tmp_path, broken)
    for name in broken:
        assert f"{name}.ts" in said
