"""Power and heat by rack, as BMCs and GPUs say."""

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
    bars,
    by_rack,
    graph,
    lines,
    number,
    page,
    to_node,
)

BMC = 'job="bmc", rack=~"$rack", instance=~"$node"'
GPUS = 'mig="", host=~"$node"'
DRAWN = f"max by (rack, instance) (coldiron:bmc_power_watts{{{BMC}}})"
# By whatever name the makers have for it.
AIR = f'coldiron:bmc_temperature_celsius{{{BMC}, name=~"(?i).*(inlet|intake|ambient).*"}}'
# GPUs know their node; racks are known of the targets.
RACKS = (
    'label_replace(max by (rack, instance) (up{job="node", rack=~"$rack"}) * 0 + 1, '
    '"host", "$1", "instance", "(.*)")'
)
WITHOUT = "No BMC says."


def by_racks(metric: str) -> str:
    """A metric of GPUs, summed by the rack that their node is in."""
    return f"sum by (rack) (sum by (host) ({metric}{{{GPUS}}}) * on (host) group_left (rack) {RACKS})"


def dashboard() -> Dashboard:
    """What each rack draws, and how hot it is."""
    now = Row(
        "Now",
        [
            number("Power", "What the nodes draw.", f"sum({DRAWN})", "watt", decimals=1),
            number(
                "GPUs' power",
                "What the GPUs draw.",
                f"sum(coldiron:gpu_power_watts{{{GPUS}}})",
                "watt",
                decimals=1,
            ),
            number(
                "Hottest air",
                "The warmest air that a node takes in.",
                f"max({AIR})",
                "celsius",
                steps=((None, WELL), (32, WARN), (38, BAD)),
                decimals=0,
            ),
            number(
                "Hottest GPU",
                "The hottest of all GPUs.",
                f"max(coldiron:gpu_temperature_celsius{{{GPUS}}})",
                "celsius",
                steps=((None, WELL), (80, WARN), (87, BAD)),
                decimals=0,
            ),
            number(
                "Sensors that warn",
                "Temperatures, fans and power supplies that the BMC holds for outside their bounds.",
                f"count(coldiron:bmc_sensor_state{{{BMC}}} > 0) or vector(0)",
                steps=NONE_IS_WELL,
            ),
            number(
                "BMCs away",
                "BMCs that do not answer.",
                f"count(coldiron:bmc_up{{{BMC}}} == 0) or vector(0)",
                steps=NONE_IS_BEST,
            ),
        ],
    )
    racks = Row(
        "Racks",
        [
            graph(
                "Power",
                "What the nodes of each rack draw, as their BMCs say.",
                "watt",
                Ask(f"sum by (rack) ({DRAWN})", "{{rack}}"),
                stacked=True,
                empty=WITHOUT,
            ),
            graph(
                "GPUs' power",
                "What the GPUs of each rack draw.",
                "watt",
                Ask(by_racks("coldiron:gpu_power_watts"), "{{rack}}"),
                stacked=True,
            ),
            bars(
                "GPUs' power of what they may draw",
                "At 100 % the GPUs of a rack are slowed down by their limits.",
                "percentunit",
                Ask(
                    f"{by_racks('coldiron:gpu_power_watts')} / {by_racks('coldiron:gpu_power_limit_watts')}",
                    "{{rack}}",
                ),
                steps=((None, WELL), (0.95, WARN)),
                most=1,
            ),
            graph(
                "Air taken in",
                "The warmest air that a node of each rack takes in.",
                "celsius",
                Ask(f"max by (rack) ({AIR})", "{{rack}}"),
                steps=((None, "transparent"), (38, BAD)),
                least=None,
                empty=WITHOUT,
            ),
        ],
    )
    nodes = Row(
        "Nodes",
        [
            lines(
                "Power and heat",
                "What each node draws, the warmest air that it takes in, and its slowest fan.",
                {
                    "rack": Column("Rack"),
                    "instance": Column("Node", link=to_node()),
                    "Value #A": Column("Power", unit="watt", bar=True),
                    "Value #B": Column("Air", unit="celsius", steps=((None, WELL), (32, WARN), (38, BAD))),
                    "Value #C": Column("Slowest fan", unit="rotrpm"),
                },
                Ask(DRAWN),
                Ask(f"max by (rack, instance) ({AIR})"),
                Ask(f"min by (rack, instance) (coldiron:bmc_fan_rpm{{{BMC}}})"),
                sort="Power",
                span=12,
                height=10,
                empty=WITHOUT,
            ),
            lines(
                "Sensors that warn",
                "What the BMC holds for outside its bounds: 1 warns, 2 is critical.",
                {
                    "rack": Column("Rack"),
                    "instance": Column("Node", link=to_node()),
                    "name": Column("Sensor"),
                    "Value": Column("State", steps=((None, WELL), (1, WARN), (2, BAD))),
                },
                Ask(f"max by (rack, instance, name) (coldiron:bmc_sensor_state{{{BMC}}}) > 0"),
                span=12,
                height=10,
                empty="Every sensor is within its bounds.",
            ),
            graph(
                "Power of nodes",
                "The ten nodes that draw most.",
                "watt",
                Ask(f"topk(10, {DRAWN})", "{{instance}}"),
                empty=WITHOUT,
            ),
            graph(
                "Hottest GPU of each node",
                "The ten nodes with the hottest GPUs.",
                "celsius",
                Ask(f"topk(10, max by (host) (coldiron:gpu_temperature_celsius{{{GPUS}}}))", "{{host}}"),
                least=None,
            ),
        ],
    )
    return page(
        "power",
        "Power and heat",
        "What each rack draws of what it may, and how hot it is.",
        [now, racks, nodes],
        choices=by_rack(),
        since="now-24h",
    )
