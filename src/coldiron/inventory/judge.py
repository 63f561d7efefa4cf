"""What every check of a cluster.yml needs: the place of a value, and what is taken already."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network

from coldiron.inventory.findings import did_you_mean, shown
from coldiron.inventory.source import Document, KeyPath
from coldiron.inventory.wiring import Network

# What may be there once only, and the code of the finding where it is there twice.
TWICE = {
    "address": "CI204",
    "node": "CI205",
    "MAC": "CI206",
    "function": "CI211",
    "serial": "CI222",
    "disk": "CI222",
    "rack": "CI205",
}


class Judge:
    """Notes what is wrong with ``document``, and remembers what has been taken and where."""

    def __init__(self, document: Document, networks: Mapping[str, Network]) -> None:
        self.document = document
        self.subnets = {name: IPv4Network(network.subnet) for name, network in networks.items()}
        # What is taken, in words, and the path that took it first.
        self._taken: dict[tuple[str, str], KeyPath] = {}

    def find(self, path: KeyPath, text: str, code: str) -> None:
        """Note that the value at ``path`` is wrong, unless something is known to be wrong with it already."""
        if not self.document.is_spoilt(path):
            self.document.find(path, text, code)

    def once(self, path: KeyPath, what: str, values: Iterable[str], advice: str) -> None:
        """Take ``values``; one finding for each earlier place that has some of them already."""
        clashes: dict[tuple[str, int], list[str]] = {}
        for value in values:
            first = self._taken.setdefault((what, value), path)
            if first is not path:
                clashes.setdefault(self.document.place(first), []).append(value)
        here = self.document.place(path)
        for (file, line), clashing in clashes.items():
            listed = ", ".join(map(shown, clashing[:5])) + (", ..." if len(clashing) > 5 else "")
            if (file, line) == here:
                where = "twice on this line"
            elif file == here[0]:
                where = f"taken on line {line} already"
            else:
                where = f"taken in {file}:{line} already"
            self.find(path, f"{what} {listed} is {where}; {advice}", TWICE[what])

    def twice(self, path: KeyPath, what: str, values: Sequence[str], advice: str) -> None:
        """Take ``values`` that one place lists, each of which may be there once only."""
        seen: set[str] = set()
        again = [value for value in values if value in seen or seen.add(value)]  # type: ignore[func-returns-value]
        if again:
            self.find(
                path,
                f"{what} {', '.join(map(shown, again[:5]))} is twice on this line; {advice}",
                TWICE[what],
            )
        self.once(path, what, seen, advice)

    def inside(self, path: KeyPath, addresses: Iterable[IPv4Address], network: str) -> None:
        """One finding for the first of ``addresses`` that no host of ``network`` can have."""
        subnet = self.subnets.get(network)
        if subnet is None:
            return
        low, high = int(subnet.network_address), int(subnet.broadcast_address)
        for address in addresses:
            number = int(address)
            if low < number < high:
                continue
            if number in (low, high):
                which = "network" if number == low else "broadcast"
                self.find(path, f"{address} is the {which} address of {subnet}; write another", "CI203")
            else:
                hosts = f"{subnet.network_address + 1} to {subnet.broadcast_address - 1}"
                self.find(
                    path,
                    f"{address} is outside {subnet} of network `{network}`; write one of {hosts}",
                    "CI203",
                )
            return

    def known(self, path: KeyPath, what: str, name: str, known: Iterable[str]) -> bool:
        """Whether ``name`` is one of ``known``; a finding if not. ``what`` says what it names, as `rack`."""
        choices = known if isinstance(known, Collection) else list(known)
        if name in choices:
            return True
        if self.document.full:
            return False
        advice = did_you_mean(name, choices) if choices else f"write the {what} first, or leave this out"
        self.find(path, f"there is no {what} `{shown(name)}`; {advice}", "CI219")
        return False
