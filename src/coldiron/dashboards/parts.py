"""What the dashboards are put together from: one look for every number, graph, table and link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, dashboard, stat, table, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

TAG = "coldiron"
METRICS = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
LOGS = model.DataSourceRef(type_val="elasticsearch", uid="${logs}")
# Role grafana puts the site's address of the runbooks here.
RUNBOOKS = "https://runbooks.invalid"
WIDTH = 24
# Colours by meaning: nothing is green or red for its beauty.
WELL, NOTE, WARN, BAD = "green", "blue", "orange", "red"

Steps = Sequence[tuple[float | None, str]]
# A number that nobody has to act on.
PLAIN: Steps = ((None, NOTE),)
# None is well, one is one too many.
NONE_IS_WELL: Steps = ((None, WELL), (1, BAD))
# The same, where it can wait until the morning.
NONE_IS_BEST: Steps = ((None, WELL), (1, WARN))
ONE_IS_WELL: Steps = ((None, BAD), (1, WELL))


# What not every site has, and what stands in a panel that asks for it where it is not there. A panel's own words win.
NOT_EVERYWHERE = (
    ("coldiron:gpu_", "No GPU is told of."),
    ("coldiron:bmc_", "No BMC says."),
    ("slurm_node_gpus", "No node has GPUs."),
    ("slurm_job_pending_seconds", "No job waits."),
    ("node_hwmon_", "No sensor says."),
    ("node_disk_", "No disk is told of."),
    ("node_filesystem_", "No disk is told of."),
)


@dataclass(frozen=True)
class Ask:
    """A question in PromQL, and what its answers are called: ``{{label}}`` in a graph, a column's name in a table."""

    expr: str
    name: str = ""


@dataclass(frozen=True)
class Column:
    """A label or value of a table: its head, its unit, the steps that colour it, and where a click leads."""

    head: str
    unit: str = ""
    steps: Steps = ()
    link: str = ""
    bar: bool = False
    most: float | None = None


@dataclass
class Row:
    """A row of a dashboard: its title, and its panels from left to right."""

    title: str
    panels: list[Any]


def to_node(field: str = "Node") -> str:
    """A link to the dashboard of the node that a table's row names."""
    return f"/d/coldiron-node?var-node=${{__data.fields.{field}}}&${{__url_time_range}}"


def _thresholds(steps: Steps) -> dashboard.ThresholdsConfig:
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=color) for value, color in steps])
    )


def _query(ask: Ask, ref: str, at_once: bool = False) -> Dataquery:
    query = Dataquery().expr(ask.expr).ref_id(ref).datasource(METRICS)
    return query.instant() if at_once else query.range().legend_format(ask.name)


def number(
    title: str,
    about: str,
    expr: str,
    unit: str = "short",
    *,
    steps: Steps = PLAIN,
    decimals: int | None = None,
    span: int = 4,
    empty: str = "",
) -> stat.Panel:
    """One number as it is now; ``empty`` is what stands there when the server has none, and none is all right."""
    panel = (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(METRICS)
        .unit(unit)
        .span(span)
        .height(4)
        .thresholds(_thresholds(steps))
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .color_mode(looks.BigValueColorMode.VALUE)
        .graph_mode(looks.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_query(Ask(expr), "A", at_once=True))
    )
    if decimals is not None:
        panel = panel.decimals(decimals)
    return panel.no_value(empty) if empty else panel


def graph(
    title: str,
    about: str,
    unit: str,
    *asks: Ask,
    span: int = 12,
    height: int = 8,
    stacked: bool = False,
    steps: Steps = (),
    least: float | None = 0,
    most: float | None = None,
    empty: str = "",
) -> timeseries.Panel:
    """A graph over time. ``steps`` draws lines at limits; ``least`` and ``most`` are the axis' ends."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(METRICS)
        .unit(unit)
        .span(span)
        .height(height)
        .line_width(1)
        .fill_opacity(25 if stacked else 8)
        .show_points(looks.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(looks.LegendDisplayMode.TABLE)
            .placement(looks.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["lastNotNull", "max"])
        )
        .tooltip(
            common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING)
        )
    )
    for at, ask in enumerate(asks):
        panel = panel.with_target(_query(ask, chr(ord("A") + at)))
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL))
    if steps:
        panel = panel.thresholds(_thresholds(steps)).thresholds_style(
            common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.DASHED)
        )
    if least is not None:
        panel = panel.min(least)
    if most is not None:
        panel = panel.max(most)
    return panel.no_value(empty) if empty else panel


def bars(
    title: str,
    about: str,
    unit: str,
    ask: Ask,
    *,
    steps: Steps = PLAIN,
    span: int = 12,
    height: int = 8,
    most: float | None = None,
    empty: str = "",
) -> bargauge.Panel:
    """A bar for each answer, as they are now."""
    panel = (
        bargauge.Panel()
        .title(title)
        .description(about)
        .datasource(METRICS)
        .unit(unit)
        .span(span)
        .height(height)
        .min(0)
        .thresholds(_thresholds(steps))
        .orientation(looks.VizOrientation.HORIZONTAL)
        .display_mode(looks.BarGaugeDisplayMode.BASIC)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .with_target(_query(ask, "A", at_once=True).legend_format(ask.name))
    )
    if most is not None:
        panel = panel.max(most)
    return panel.no_value(empty) if empty else panel


def _column(column: Column) -> list[model.DynamicConfigValue]:
    found: list[tuple[str, Any]] = []
    if column.unit:
        found.append(("unit", column.unit))
    if column.steps:
        steps = [{"value": value, "color": color} for value, color in column.steps]
        found.append(("thresholds", {"mode": "absolute", "steps": steps}))
        found.append(("custom.cellOptions", {"type": "color-text"}))
    if column.bar:
        found.append(("custom.cellOptions", {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}))
        found.append(("min", 0))
    if column.most is not None:
        found.append(("max", column.most))
    if column.link:
        found.append(("links", [{"title": f"Go to {column.head.lower()}", "url": column.link}]))
    return [model.DynamicConfigValue(id_val=name, value=value) for name, value in found]


def lines(
    title: str,
    about: str,
    columns: Mapping[str, Column],
    *asks: Ask,
    sort: str = "",
    span: int = WIDTH,
    height: int = 9,
    empty: str = "",
) -> table.Panel:
    """A table: a line for each set of labels that the questions share.

    ``columns`` maps labels, and ``Value #A`` and on for the questions' values, to columns, from left to right; what it
    does not name is left out.
    """
    panel = (
        table.Panel()
        .title(title)
        .description(about)
        .datasource(METRICS)
        .span(span)
        .height(height)
        .filterable(True)
        .cell_height(looks.TableCellHeight.SM)
        .with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            model.DataTransformerConfig(
                id_val="filterFieldsByName", options={"include": {"names": list(columns)}}
            )
        )
        .with_transformation(
            model.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {},
                    "indexByName": {name: at for at, name in enumerate(columns)},
                    "renameByName": {name: column.head for name, column in columns.items()},
                },
            )
        )
    )
    for at, ask in enumerate(asks):
        query = _query(ask, chr(ord("A") + at), at_once=True).format(PromQueryFormat.TABLE)
        panel = panel.with_target(query)
    for column in columns.values():
        if properties := _column(column):
            panel = panel.override_by_name(column.head, properties)
    if sort:
        panel = panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(True)])
    return panel.no_value(empty) if empty else panel


def choose(
    name: str,
    label: str,
    query: str,
    *,
    several: bool = True,
    source: model.DataSourceRef = METRICS,
    everything: str = "",
) -> dashboard.QueryVariable:
    """A choice from what the server knows.

    ``everything`` is what stands for all; without it all are named one by one. A choice of ``.*`` also takes what lacks
    the label, such as a node in no rack.
    """
    variable = (
        dashboard.QueryVariable(name)
        .label(label)
        .query(query)
        .datasource(source)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
        .multi(several)
        .include_all(several)
    )
    if several:
        variable = variable.current(model.VariableOption(selected=True, text="All", value="$__all"))
    return variable.all_value(everything) if everything else variable


def by_rack() -> list[dashboard.QueryVariable]:
    """The choice of racks, and of the nodes in them."""
    return [
        choose("rack", "Rack", 'label_values(up{job="node"}, rack)', everything=".*"),
        choose("node", "Node", 'label_values(up{job="node", rack=~"$rack"}, instance)'),
    ]


def _source(name: str, label: str, kind: str) -> dashboard.DatasourceVariable:
    return dashboard.DatasourceVariable(name).label(label).type(kind)


def page(
    name: str,
    title: str,
    about: str,
    rows: Sequence[Row],
    *,
    choices: Sequence[dashboard.QueryVariable] = (),
    logs: bool = False,
    since: str = "now-3h",
    words: str = "",
) -> model.Dashboard:
    """A dashboard of rows; every one leads to the others, and to the runbooks.

    ``logs``: it asks Elasticsearch in place of Prometheus. ``words`` names a box for words to look for.
    """
    made = (
        dashboard.Dashboard(title)
        .uid(f"coldiron-{name}")
        .description(about)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .time(since, "now")
        .refresh("1m")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("coldiron")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .link(
            dashboard.DashboardLink("Runbooks")
            .type(model.DashboardLinkType.LINK)
            .icon("doc")
            .url(RUNBOOKS)
            .target_blank(True)
            .tooltip("What each alert means and what to do")
        )
    )
    if logs:
        made = made.with_variable(_source("logs", "Logs", "elasticsearch"))
    else:
        made = made.with_variable(_source("datasource", "Prometheus", "prometheus"))
    for choice in choices:
        made = made.with_variable(choice)
    if words:
        made = made.with_variable(dashboard.TextBoxVariable(words).label("Words").default_value("*"))
    number_of_panel = 0
    for row in rows:
        number_of_panel += 1
        made = made.with_row(dashboard.Row(row.title).id(number_of_panel))
        for panel in row.panels:
            number_of_panel += 1
            made = made.with_panel(_said_if_empty(panel).id(number_of_panel))
    return made.build()


def _said_if_empty(panel: Any) -> Any:
    """The panel, with words for a site that lacks what it asks for."""
    built = panel.build()
    asked = " ".join(getattr(target, "expr", None) or "" for target in built.targets or [])
    words = next((words for metric, words in NOT_EVERYWHERE if metric in asked), "")
    own = built.field_config and built.field_config.defaults.no_value
    return panel.no_value(words) if words and not own else panel
