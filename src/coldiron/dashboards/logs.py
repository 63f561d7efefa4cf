"""Logs in Elasticsearch, by the fields that role log_shipper gives each line."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import common, elasticsearch, logs, table, timeseries
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.dashboard import Dashboard
from grafana_foundation_sdk.models.elasticsearch import TermsOrder

from coldiron.dashboards.parts import LOGS, Row, choose, page

TIME = "@timestamp"
# Grafana writes a choice of several as ("a" OR "b"), and all as *.
NODE = "host.name:$node"
CHOSEN = f"{NODE} AND log.level:$level AND (service.unit:$unit)"
ERRORS = "log.severity:[0 TO 3]"
# What is no service's, such as the kernel's lines, is among all of them.
ALL_UNITS = "* OR (*:* NOT _exists_:service.unit)"


def _by_time() -> elasticsearch.DateHistogram:
    settings = elasticsearch.ElasticsearchDateHistogramSettings().interval("auto").min_doc_count("0")
    return elasticsearch.DateHistogram().field(TIME).id("2").settings(settings)


def _top(field: str, size: int = 10) -> elasticsearch.Terms:
    settings = (
        elasticsearch.ElasticsearchTermsSettings()
        .order(TermsOrder.DESC)
        .order_by("_count")
        .size(str(size))
        .min_doc_count("1")
    )
    return elasticsearch.Terms().field(field).id("3").settings(settings)


def _asked(query: str) -> elasticsearch.Dataquery:
    return elasticsearch.Dataquery().query(query).time_field(TIME).ref_id("A").datasource(LOGS)


def _counted(query: str, *buckets: Any) -> elasticsearch.Dataquery:
    return _asked(query).metrics([elasticsearch.Count().id("1")]).bucket_aggs(list(buckets))


def over_time(
    title: str, about: str, query: str, field: str, *, span: int = 12, empty: str = ""
) -> timeseries.Panel:
    """Lines over time, by the values of a field."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(LOGS)
        .unit("short")
        .span(span)
        .height(8)
        .min(0)
        .draw_style(looks.GraphDrawStyle.BARS)
        .fill_opacity(60)
        .line_width(0)
        .stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL))
        .legend(
            common.VizLegendOptions()
            .display_mode(looks.LegendDisplayMode.LIST)
            .placement(looks.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs([])
        )
        .tooltip(
            common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING)
        )
        .with_target(_counted(query, _top(field), _by_time()))
    )
    return panel.no_value(empty) if empty else panel


def most(title: str, about: str, query: str, field: str, head: str, *, span: int = 8) -> table.Panel:
    """The values of a field that most lines have."""
    return (
        table.Panel()
        .title(title)
        .description(about)
        .datasource(LOGS)
        .span(span)
        .height(8)
        .cell_height(looks.TableCellHeight.SM)
        .no_value("No such line.")
        .with_transformation(
            model.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {},
                    "indexByName": {},
                    "renameByName": {field: head, "Count": "Lines"},
                },
            )
        )
        .with_target(_counted(query, _top(field)))
    )


def stream(
    title: str, about: str, query: str, *, height: int = 14, empty: str = "No such line."
) -> logs.Panel:
    """The lines themselves, the newest first."""
    return (
        logs.Panel()
        .title(title)
        .description(about)
        .datasource(LOGS)
        .span(24)
        .height(height)
        .show_time(True)
        .show_labels(False)
        .show_common_labels(False)
        .wrap_log_message(True)
        .prettify_log_message(False)
        .enable_log_details(True)
        .sort_order(looks.LogsSortOrder.DESCENDING)
        .dedup_strategy(looks.LogsDedupStrategy.NONE)
        .no_value(empty)
        .with_target(
            _asked(query).metrics(
                [
                    elasticsearch.Logs()
                    .id("1")
                    .settings(elasticsearch.ElasticsearchLogsSettings().limit("500"))
                ]
            )
        )
    )


def dashboard() -> Dashboard:
    """What the nodes say, and which of it matters."""
    nodes = Row(
        "All lines",
        [
            over_time("Lines", "Lines by how bad they are.", CHOSEN, "log.level"),
            over_time(
                "Errors",
                "Lines of level err and worse, by node.",
                f"{ERRORS} AND {CHOSEN}",
                "host.name",
                empty="No errors.",
            ),
            most("Who says most", "Nodes by lines.", CHOSEN, "host.name", "Node"),
            most("Which service", "Services by lines.", CHOSEN, "service.unit", "Service"),
            most(
                "Which service has errors",
                "Services by lines of level err and worse.",
                f"{ERRORS} AND {CHOSEN}",
                "service.unit",
                "Service",
            ),
        ],
    )
    matters = Row(
        "What matters",
        [
            over_time(
                "GPUs' errors (Xid)",
                "Lines of the driver with an Xid, by its number.",
                f"event.kind:gpu AND {NODE}",
                "gpu.xid",
                span=8,
                empty="No GPU has met an error.",
            ),
            over_time(
                "Faults of the hardware",
                "Lines of the kernel on broken memory, buses and disks, by what is broken.",
                f"event.kind:hardware AND {NODE}",
                "hardware.error",
                span=8,
                empty="The kernel complains of none.",
            ),
            over_time(
                "Logins that were refused",
                "Wrong passwords and keys, by the address that they came from.",
                f"event.kind:login AND event.action:failed AND {NODE}",
                "source.ip",
                span=8,
                empty="Nobody was turned away.",
            ),
            most(
                "Jobs with errors",
                "Slurm's jobs by lines of level err and worse.",
                f"_exists_:slurm.job_id AND {ERRORS} AND {NODE}",
                "slurm.job_id",
                "Job",
            ),
            most(
                "Nodes with errors of GPUs",
                "Nodes by lines with an Xid.",
                f"event.kind:gpu AND {NODE}",
                "host.name",
                "Node",
            ),
            most(
                "Logins",
                "Who logged in, by times.",
                f"event.kind:login AND event.action:accepted AND {NODE}",
                "user.name",
                "User",
            ),
        ],
    )
    text = Row(
        "The lines",
        [
            stream("Lines", "The lines that were chosen above, and by words.", f"{CHOSEN} AND $words"),
        ],
    )
    return page(
        "logs",
        "Logs",
        "What the nodes say: how much, how bad, and what of it matters.",
        [nodes, matters, text],
        choices=[
            _field("node", "Node", "host.name"),
            _field("level", "Level", "log.level"),
            _field("unit", "Service", "service.unit", ALL_UNITS),
        ],
        logs=True,
        since="now-1h",
        words="words",
    )


def _field(name: str, label: str, field: str, everything: str = "*") -> Any:
    return choose(name, label, f'{{"find": "terms", "field": "{field}"}}', source=LOGS, everything=everything)
