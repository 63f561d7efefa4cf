"""Bring up the one network card that the machine was booted from, by DHCP, and no other."""

from __future__ import annotations

from pathlib import Path

from coldiron.provision.deploy_tools import CommandFailed, DeployFailed, Tools, waited

# A server's card may take long to be found, and a switch port to forward (spanning tree without PortFast: 30 s).
CARD_SECONDS = 60.0
LINK_SECONDS = 45.0
_DHCP_SECONDS = 60
_SCRIPT = "/usr/share/coldiron/udhcpc.sh"


def bring_up(
    tools: Tools, mac: str, *, card_seconds: float = CARD_SECONDS, link_seconds: float = LINK_SECONDS
) -> str:
    """The name of the card of address ``mac``, which has an address by DHCP now. Raises DeployFailed."""
    cards = tools.places.at("/sys/class/net")
    if not waited(lambda: bool(_named(cards, mac)), card_seconds, tools.sleep):
        raise DeployFailed(f"no network card has the address {mac}; found: {_listed(cards)}")
    name = _named(cards, mac)
    tools.run("ip", "link", "set", "dev", name, "up", timeout=10)
    carrier = cards / name / "carrier"
    if not waited(lambda: _read(carrier) == "1", link_seconds, tools.sleep):
        raise DeployFailed(f"the network card {mac} has no link; look at its cable and its switch port")
    # -n: end without a lease; -q: end with one, which lasts longer than a deployment.
    command = ("udhcpc", "-i", name, "-n", "-q", "-f", "-t", "6", "-T", "2", "-A", "2", "-s", _SCRIPT)
    try:
        tools.run(*command, timeout=_DHCP_SECONDS, attempts=3)
    except CommandFailed as error:
        raise DeployFailed(f"no address by DHCP for {mac}: {error.message}") from None
    return name


def _named(cards: Path, mac: str) -> str:
    """The card with that address and a device behind it: bridges and VLANs borrow addresses."""
    found = [
        card.name
        for card in _cards(cards)
        if _read(card / "address").lower() == mac.lower() and (card / "device").exists()
    ]
    return found[0] if found else ""


def _cards(cards: Path) -> list[Path]:
    return sorted(cards.iterdir()) if cards.is_dir() else []


def _listed(cards: Path) -> str:
    found = [f"{card.name} {_read(card / 'address')}" for card in _cards(cards) if (card / "device").exists()]
    return ", ".join(found) or "none (no driver for it?)"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
