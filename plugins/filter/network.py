"""Filters of the role network: what topology.yml makes interfaces of, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

# ssh, the look at the node and the margin have to fit in; less would take a sound change back.
CONFIRM_LEAST_SECONDS = 20


def network_problems(spec: Mapping[str, Any], confirm_seconds: int = CONFIRM_LEAST_SECONDS) -> list[str]:
    """Return what is wrong with a node's network, a sentence each."""
    from coldiron.provision.network_model import problems

    found = [f"network_interfaces: {one}." for one in problems(spec)] if spec.get("interfaces") else []
    if int(confirm_seconds) < CONFIRM_LEAST_SECONDS:
        found.append(
            f"network_confirm_seconds: {confirm_seconds} is too short for a new connection; "
            f"write at least {CONFIRM_LEAST_SECONDS}."
        )
    return found


def network_interfaces(
    address: str,
    networks: Mapping[str, Mapping[str, Any]],
    addresses: Mapping[str, str],
    mac: str,
    cards: Mapping[str, Sequence[str]],
    mode: str,
) -> list[dict[str, Any]]:
    """Return the interfaces that the inventory describes; see ``coldiron.provision.network.interfaces_of``.

    None where no card of the network ``cluster`` is known: half a network would cut the node off.
    """
    from coldiron.provision.network import interfaces_of

    unknown = [name for name in cards if name not in networks]
    if unknown:
        raise AnsibleFilterError(
            f"network_cards: cluster.yml has no network {unknown[0]!r}; there are {', '.join(networks)}"
        )
    if not mac and not cards.get("cluster"):
        return []
    return interfaces_of(address, networks, addresses, mac, cards, mode)


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"network_interfaces": network_interfaces, "network_problems": network_problems}
