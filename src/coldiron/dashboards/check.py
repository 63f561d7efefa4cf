"""Ask a server what dashboards ask, and say which panels it does not answer.

``metrics`` asks a Prometheus, ``lines`` an Elasticsearch, of a test as of a site.
"""

from __future__ import annotations

import json
import math
import re
import time
import urllib.parse
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from coldiron.dashboards.read import Dashboard, Panel, labels_shown, lost_columns, panels, variables
from coldiron.errors import ColdironError
from coldiron.status.client import Client

LABEL_VALUES = re.compile(r"label_values\((?:(?P<series>.+),\s*)?(?P<label>\w+)\)", re.DOTALL)
# Of choices that name one thing, such as a node, this many are tried until each panel has been answered.
MOST_CHOICES = 40


@dataclass(frozen=True)
class Fault:
    """What is wrong with a panel."""

    dashboard: str
    panel: str
    why: str

    def __str__(self) -> str:
        return f"{self.dashboard}: {self.panel}: {self.why}"


def filled(text: str, values: Mapping[str, str], rate_interval: str = "1m", span: str = "1h") -> str:
    """``text`` with Grafana's variables put in; one that nobody knows stays as it is."""
    known = {"__rate_interval": rate_interval, "__interval": "15s", "__range": span, **values}
    return re.sub(
        r"\$(?:\{(\w+)(?::\w+)?\}|(\w+))",
        lambda found: known.get(found[1] or found[2], found[0]),
        text,
    )


def _several(found: Sequence[str]) -> str:
    """How Grafana writes a choice of several into PromQL's regular expressions."""
    escaped = [re.sub(r"([\\^$.*+?()\[\]{}|/])", r"\\\\\1", value) for value in found]
    return escaped[0] if len(escaped) == 1 else "(" + "|".join(escaped) + ")"


def _values(server: Client, question: str) -> list[str]:
    """What ``label_values(SERIES, LABEL)`` is on this server."""
    asked = LABEL_VALUES.fullmatch(question.strip())
    if asked is None:
        raise ColdironError(f"the choice {question!r} is no label_values(…)")
    query = {"match[]": asked["series"]} if asked["series"] else {}
    path = f"/api/v1/label/{asked['label']}/values?{urllib.parse.urlencode(query)}"
    return sorted(server.get(path)["data"])


def choices(server: Client, dashboard: Dashboard) -> Iterator[dict[str, str]]:
    """The ways to put values to a dashboard's variables: everything where there may be several, else one after another.

    Raises ColdironError for a variable that has no value.
    """
    taken: dict[str, str] = {}
    single: dict[str, list[str]] = {}
    for variable in variables(dashboard):
        if variable["type"] != "query":
            continue
        name, question = variable["name"], filled(str(variable["query"]), taken)
        found = _values(server, question)
        if variable.get("allValue"):
            taken[name] = variable["allValue"]
        elif not found:
            raise ColdironError(f"the choice {name} has no value: {question}")
        elif variable.get("multi"):
            taken[name] = _several(found)
        else:
            single[name] = found[:MOST_CHOICES]
    for together in product(*single.values()):
        yield {**taken, **dict(zip(single, together, strict=True))}


def _answers(server: Client, target: Mapping[str, Any], values: Mapping[str, str]) -> list[Mapping[str, str]]:
    """The labels of each answer that has a number in it."""
    expr = filled(target["expr"], values)
    now = time.time()
    if target.get("instant"):
        found = server.get("/api/v1/query", query=expr, time=now)["data"]
    else:
        span = {"start": now - 120, "end": now, "step": 5}
        found = server.get("/api/v1/query_range", query=expr, **span)["data"]
    if found["resultType"] == "scalar":
        return [{}]
    numbers = (
        (series["metric"], [value for _, value in series.get("values") or [series["value"]]])
        for series in found["result"]
    )
    return [labels for labels, points in numbers if any(not math.isnan(float(point)) for point in points)]


def _fault(
    server: Client, panel: Panel, values: Mapping[str, str], absent: Collection[str]
) -> tuple[str, bool]:
    """What is wrong with a panel under these values, and whether it is only that there is nothing to show."""
    if lost := lost_columns(panel):
        return f"no question gives column {', '.join(lost)}", False
    empty = []
    for target in panel.targets:
        try:
            found = _answers(server, target, values)
        except ColdironError as error:
            return f"{target['refId']}: {error}: {filled(target['expr'], values)}", False
        if not found:
            empty.append(target)
            continue
        seen = {label for labels in found for label, value in labels.items() if value}
        if lacking := labels_shown(panel, target) - seen - set(absent):
            return f"{target['refId']}: no answer has label {', '.join(sorted(lacking))}", False
    if empty:
        return "; ".join(
            f"{one['refId']} has no answer: {filled(one['expr'], values)}" for one in empty
        ), True
    return "", False


def metrics(
    server: Client,
    found: Mapping[str, Dashboard],
    *,
    all_answered: bool = True,
    absent_labels: Collection[str] = (),
) -> list[Fault]:
    """Ask a Prometheus for every panel of every dashboard that asks one; what is wrong with them.

    Without ``all_answered`` a panel that says what stands there when nothing does may be empty: a healthy site has no
    failing disk, and not every site has InfiniBand. ``absent_labels`` are those that the site's answers need not have,
    such as ``rack`` where there are no racks.
    """
    faults = []
    for name, dashboard in found.items():
        asking = [panel for panel in panels(dashboard) if not panel.of_logs]
        if not asking:
            continue
        # One that is answered for some node is done; a question that is refused is wrong for all.
        open_faults: dict[int, tuple[Panel, str]] = {panel.id: (panel, "was not asked") for panel in asking}
        try:
            for values in choices(server, dashboard):
                for panel, _ in list(open_faults.values()):
                    why, nothing = _fault(server, panel, values, absent_labels)
                    if not why or (nothing and panel.may_be_empty and not all_answered):
                        del open_faults[panel.id]
                    else:
                        open_faults[panel.id] = (panel, why)
                if not open_faults:
                    break
        except ColdironError as error:
            faults.append(Fault(name, "choices", str(error)))
            continue
        faults += [Fault(name, panel.title, why) for panel, why in open_faults.values()]
    return faults


# --- Elasticsearch

# A field, with what follows its colon; fields of a query are words before a colon that is in no quotes.
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
FIELD = re.compile(r"(?<![\w.@-])([\w.@-]+):")
AGGREGATIONS = ("terms", "date_histogram")


def fields_of(target: Mapping[str, Any]) -> set[str]:
    """The fields that a target's query and its buckets name."""
    bare = QUOTED.sub('""', target.get("query") or "")
    named = set(FIELD.findall(bare))
    if "_exists_" in named:
        named = named - {"_exists_"} | set(re.findall(r"_exists_:([\w.@-]+)", bare))
    return named | {bucket["field"] for bucket in target.get("bucketAggs") or []}


def malformed(query: str) -> str:
    """What is wrong with the form of a Lucene query, or an empty text: quotes, brackets, words that join nothing."""
    bare = QUOTED.sub("x", query)
    if '"' in bare:
        return "a quote is not closed"
    depth = 0
    for sign in bare:
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            break
    if depth:
        return "brackets do not match"
    if re.search(
        r"(^|\()\s*(AND|OR)\b|\b(AND|OR|NOT)\s*($|\))|\b(AND|OR)\s+(AND|OR)\b|:\s*($|\)|AND\b|OR\b)", bare
    ):
        return "a word joins nothing"
    return ""


def search(target: Mapping[str, Any], values: Mapping[str, str], span: str = "now-24h") -> dict[str, Any]:
    """The search that Grafana sends to Elasticsearch for a target."""
    text = filled(target.get("query") or "*", values)
    body: dict[str, Any] = {
        "size": 0,
        "track_total_hits": True,
        "query": {
            "bool": {
                "filter": [
                    {"range": {target["timeField"]: {"gte": span, "lte": "now"}}},
                    {"query_string": {"analyze_wildcard": True, "query": text}},
                ]
            }
        },
    }
    inner: dict[str, Any] = {}
    for bucket in reversed(target.get("bucketAggs") or []):
        settings = bucket.get("settings") or {}
        if bucket["type"] == "date_histogram":
            made = {
                "date_histogram": {
                    "field": bucket["field"],
                    "fixed_interval": "30m",
                    "min_doc_count": int(settings.get("min_doc_count", 0)),
                }
            }
        else:
            made = {
                "terms": {
                    "field": bucket["field"],
                    "size": int(settings.get("size", 10)),
                    "order": {settings.get("orderBy", "_count"): settings.get("order", "desc")},
                }
            }
        inner = {bucket["id"]: {**made, **({"aggs": inner} if inner else {})}}
    if inner:
        body["aggs"] = inner
    else:
        body["size"] = 50
        body["sort"] = [{target["timeField"]: {"order": "desc", "unmapped_type": "boolean"}}]
    return body


def _everything(dashboard: Dashboard) -> dict[str, str]:
    """Values of a logs' dashboard: everything that each choice has, and any word."""
    return {
        variable["name"]: variable.get("allValue") or str(variable.get("query") or "*")
        for variable in variables(dashboard)
        if variable["type"] != "datasource"
    }


def forms(found: Mapping[str, Dashboard], fields: Collection[str]) -> list[Fault]:
    """What is wrong with the form of questions to Elasticsearch; ``fields`` are those that lines have."""
    faults = []
    for name, dashboard in found.items():
        values = _everything(dashboard)
        for panel in panels(dashboard):
            if not panel.of_logs:
                continue
            for target in panel.targets:
                text = filled(target.get("query") or "", values)
                why = malformed(text)
                if "$" in text:
                    why = "a variable that the dashboard does not have"
                if unknown := fields_of(target) - set(fields):
                    why = f"no line has field {', '.join(sorted(unknown))}"
                if any(bucket["type"] not in AGGREGATIONS for bucket in target.get("bucketAggs") or []):
                    why = "buckets of a kind that is not known"
                if why:
                    faults.append(Fault(name, panel.title, f"{why}: {text}"))
    return faults


def lines(
    server: Client, index: str, found: Mapping[str, Dashboard], *, all_answered: bool = False
) -> list[Fault]:
    """Ask an Elasticsearch for every panel that asks one; what is wrong with them.

    A field that no mapping has is a fault even where no line was expected. Without ``all_answered`` a panel that says
    what stands there when nothing does may be empty.
    """
    faults = []
    for name, dashboard in found.items():
        values = _everything(dashboard)
        for panel in panels(dashboard):
            if not panel.of_logs:
                continue
            why = ""
            for target in panel.targets:
                try:
                    why = _no_lines(server, index, target, values, panel.may_be_empty and not all_answered)
                except ColdironError as error:
                    why = f"{error}: {filled(target.get('query') or '', values)}"
            if why:
                faults.append(Fault(name, panel.title, why))
    return faults


def _no_lines(
    server: Client, index: str, target: Mapping[str, Any], values: Mapping[str, str], may_be_empty: Any
) -> str:
    place = urllib.parse.quote(index, safe="*,-")
    named = sorted(fields_of(target))
    known = server.get(f"/{place}/_field_caps?fields={urllib.parse.quote(','.join(named), safe=',@')}")[
        "fields"
    ]
    if lacking := [field for field in named if field not in known]:
        return f"no line has field {', '.join(lacking)}"
    answer = server.post(f"/{place}/_search", search(target, values))
    if answer.get("timed_out") or answer["_shards"]["failed"]:
        return f"not all of the index answered: {json.dumps(answer['_shards'])[:300]}"
    if answer["hits"]["total"]["value"] == 0:
        return "" if may_be_empty else f"no line is found by {filled(target.get('query') or '', values)}"
    for made in (answer.get("aggregations") or {}).values():
        if not made["buckets"]:
            return "lines are found, and none has the field that they are counted by"
    return ""
