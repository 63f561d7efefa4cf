"""Networks that the tests render: a bond with a VLAN, one of each careful mode, and cards with both IP versions."""

from __future__ import annotations

from typing import Any

from coldiron.provision.network import interfaces_of

FIRST, SECOND = "52:54:00:00:00:01", "52:54:00:00:00:02"
NETWORKS: dict[str, dict[str, Any]] = {
    "cluster": {"subnet": "10.77.0.0/24", "gateway": "10.77.0.254", "mtu": 9000},
    "storage": {"subnet": "10.79.0.0/24", "vlan": 120, "port_of": "cluster", "mtu": 9000},
}


def bonded(mode: str = "active-backup") -> dict[str, Any]:
    """Two cards in a bond that carries the cluster's network and, as a VLAN, the storage's."""
    interfaces = interfaces_of(
        "10.77.0.31", NETWORKS, {"storage": "10.79.0.31"}, cards={"cluster": [FIRST, SECOND]}, mode=mode
    )
    return {
        "interfaces": interfaces,
        "resolvers": ["10.77.0.1", "10.77.0.2"],
        "search": ["hopper.internal"],
    }


def plain() -> dict[str, Any]:
    """A card with all that can be said of one, and a card with nothing."""
    return {
        "interfaces": [
            {
                "name": "lan",
                "mac": FIRST,
                "addresses": ["10.1.0.2/24", "fd00::2/64"],
                "gateway": "10.1.0.1",
                "metric": 50,
                "mtu": 1400,
                "routes": [
                    {"to": "10.9.0.0/16", "via": "10.1.0.9", "metric": 7},
                    {"to": "fd01::/48", "via": "fd00::1"},
                ],
                "required": False,
            },
            {"name": "idle", "mac": SECOND},
        ],
        "resolvers": ["10.1.0.1", "fd00::1"],
        "search": ["hopper.internal", "corp.example"],
    }


SAMPLES = {
    "bonded": bonded(),
    "lacp": bonded("802.3ad"),
    "plain": plain(),
}
