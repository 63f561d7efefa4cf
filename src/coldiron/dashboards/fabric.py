"""The fabric: InfiniBand and RoCE, Ethernet, and the PCIe links behind them."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from coldiron.dashboards.parts import (
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
CARDS = f'{ON}, device!~"lo|veth.*|docker.*|cni.*|virbr.*"'
WITHOUT_IB = "The nodes have no InfiniBand or RoCE."
# The physical state of a link that is up.
LINK_UP = 5


def dashboard() -> Dashboard:
    """Whether every link is up at its speed, what goes over it, and what is lost."""
    now = Row(
        "Now",
        [
            number(
                "Ports",
                "Ports of InfiniBand and RoCE cards.",
                f"count(node_infiniband_physical_state_id{{{ON}}}) or vector(0)",
            ),
            number(
                "Ports down",
                "Ports whose link is not up.",
                f"count(node_infiniband_physical_state_id{{{ON}}} != {LINK_UP}) or vector(0)",
                steps=NONE_IS_WELL,
            ),
            number(
                "Slow ports",
                "Ports that run below the fastest port of the nodes that were chosen.",
                f"count(node_infiniband_rate_bytes_per_second{{{ON}}}"
                f" < scalar(max(node_infiniband_rate_bytes_per_second{{{ON}}}))) or vector(0)",
                steps=NONE_IS_BEST,
            ),
            number(
                "Narrow PCIe links",
                "Devices with fewer lanes than they and their slot can have.",
                f"count(coldiron_pcie_link_width{{{ON}}} < coldiron_pcie_link_width_max{{{ON}}}) or vector(0)",
                steps=NONE_IS_WELL,
            ),
            number(
                "Ethernet down",
                "Cards that are meant to be up and have no carrier.",
                f"count(node_network_up{{{CARDS}}} == 0 and node_network_carrier{{{CARDS}}} == 0) or vector(0)",
                steps=NONE_IS_BEST,
            ),
            number(
                "Through the fabric",
                "What all ports send.",
                f"sum(rate(node_infiniband_port_data_transmitted_bytes_total{{{ON}}}[$__rate_interval])) or vector(0)",
                "Bps",
                decimals=1,
            ),
        ],
    )
    infiniband = Row(
        "InfiniBand and RoCE",
        [
            graph(
                "Sent",
                "What each node's ports send.",
                "Bps",
                Ask(
                    "sum by (instance) (rate("
                    f"node_infiniband_port_data_transmitted_bytes_total{{{ON}}}[$__rate_interval]))",
                    "{{instance}}",
                ),
                empty=WITHOUT_IB,
            ),
            graph(
                "Received",
                "What each node's ports receive.",
                "Bps",
                Ask(
                    "sum by (instance) (rate("
                    f"node_infiniband_port_data_received_bytes_total{{{ON}}}[$__rate_interval]))",
                    "{{instance}}",
                ),
                empty=WITHOUT_IB,
            ),
            lines(
                "Ports",
                "State and speed of each port, how often its link went down and recovered, and symbols that were wrong,"
                " in 24 hours.",
                {
                    "instance": Column("Node", link=to_node()),
                    "device": Column("Card"),
                    "port": Column("Port"),
                    "Value #A": Column("Link", steps=((None, "red"), (LINK_UP, WELL))),
                    "Value #B": Column("Speed", unit="Bps"),
                    "Value #C": Column("Went down", steps=NONE_IS_BEST),
                    "Value #D": Column("Recovered", steps=NONE_IS_BEST),
                    "Value #E": Column("Wrong symbols", steps=NONE_IS_BEST),
                },
                Ask(f"max by (instance, device, port) (node_infiniband_physical_state_id{{{ON}}})"),
                Ask(f"max by (instance, device, port) (node_infiniband_rate_bytes_per_second{{{ON}}})"),
                Ask(
                    f"max by (instance, device, port) (increase(node_infiniband_link_downed_total{{{ON}}}[24h]))"
                ),
                Ask(
                    "max by (instance, device, port) ("
                    f"increase(node_infiniband_link_error_recovery_total{{{ON}}}[24h]))"
                ),
                Ask(
                    f"max by (instance, device, port) (increase(node_infiniband_symbol_error_total{{{ON}}}[24h]))"
                ),
                sort="Went down",
                empty=WITHOUT_IB,
            ),
            graph(
                "Errors of ports",
                "Packets that were broken on arrival, by node.",
                "pps",
                Ask(
                    "sum by (instance) (rate("
                    f"node_infiniband_port_errors_received_total{{{ON}}}[$__rate_interval]))",
                    "{{instance}}",
                ),
                empty=WITHOUT_IB,
                span=8,
            ),
            graph(
                "Waiting to send",
                "How often ports had something to send and no credit: the fabric is full ahead of them.",
                "ops",
                Ask(
                    f"sum by (instance) (rate(node_infiniband_port_transmit_wait_total{{{ON}}}[$__rate_interval]))",
                    "{{instance}}",
                ),
                empty=WITHOUT_IB,
                span=8,
            ),
            graph(
                "RoCE: lost and told to slow down",
                "Packets out of sequence, lost answers, no room for a packet, and notices of congestion, by counter.",
                "ops",
                Ask(
                    "sum by (counter) (rate(coldiron_infiniband_hw_counter_total{"
                    f'{ON}, counter=~"out_of_sequence|packet_seq_err|local_ack_timeout_err|out_of_buffer'
                    '|rnr_nak_retry_err|np_cnp_sent|rp_cnp_handled"}[$__rate_interval]))',
                    "{{counter}}",
                ),
                empty=WITHOUT_IB,
                span=8,
            ),
        ],
    )
    ethernet = Row(
        "Ethernet",
        [
            graph(
                "Traffic",
                "What each node receives and sends.",
                "Bps",
                Ask(
                    f"sum by (instance) (rate(node_network_receive_bytes_total{{{CARDS}}}[$__rate_interval]))",
                    "{{instance}} in",
                ),
                Ask(
                    f"- sum by (instance) (rate(node_network_transmit_bytes_total{{{CARDS}}}[$__rate_interval]))",
                    "{{instance}} out",
                ),
                least=None,
                span=8,
            ),
            graph(
                "Lost",
                "Packets that were dropped or broken, by node.",
                "pps",
                Ask(
                    "sum by (instance) ("
                    f"rate(node_network_receive_drop_total{{{CARDS}}}[$__rate_interval])"
                    f" + rate(node_network_receive_errs_total{{{CARDS}}}[$__rate_interval])"
                    f" + rate(node_network_transmit_drop_total{{{CARDS}}}[$__rate_interval])"
                    f" + rate(node_network_transmit_errs_total{{{CARDS}}}[$__rate_interval]))",
                    "{{instance}}",
                ),
                span=8,
            ),
            graph(
                "Links that came and went",
                "Changes of carrier in an hour, by node.",
                "short",
                Ask(
                    f"sum by (instance) (increase(node_network_carrier_changes_total{{{CARDS}}}[1h]))",
                    "{{instance}}",
                ),
                span=8,
            ),
        ],
    )
    pcie = Row(
        "PCIe",
        [
            lines(
                "Narrow links",
                "Devices with fewer lanes than they and their slot can have: badly seated, or broken.",
                {
                    "instance": Column("Node", link=to_node()),
                    "device": Column("Device"),
                    "class": Column("Kind"),
                    "name": Column("Name"),
                    "Value #A": Column("Lanes", steps=((None, WARN),)),
                    "Value #B": Column("Possible"),
                },
                Ask(
                    "max by (instance, device, class, name) ("
                    f"coldiron_pcie_link_width{{{ON}}} < coldiron_pcie_link_width_max{{{ON}}})"
                ),
                Ask(
                    "max by (instance, device, class, name) ("
                    f"coldiron_pcie_link_width_max{{{ON}}} > coldiron_pcie_link_width{{{ON}}})"
                ),
                span=12,
                empty="Every link has its lanes.",
            ),
            graph(
                "Errors of PCIe",
                "In an hour, by node and severity. Many that were corrected announce one that will not be.",
                "short",
                Ask(
                    f"sum by (instance, severity) (increase(coldiron_pcie_aer_errors_total{{{ON}}}[1h]))",
                    "{{instance}} {{severity}}",
                ),
                empty="The nodes do not count them.",
            ),
        ],
    )
    return page(
        "fabric",
        "Fabric",
        "Whether every link is up at its speed, what goes over it, and what is lost.",
        [now, infiniband, ethernet, pcie],
        choices=by_rack(),
    )
