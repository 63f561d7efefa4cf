"""The kinds of value that stand in a cluster.yml: text, names, addresses, ranges, and the block they stand in.

Each is checked where it is read; a wrong one raises Wrong, whose text says what to write instead.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from coldiron.inventory.findings import shown
from coldiron.inventory.names import LABEL, Wrong, check_host_name
from coldiron.inventory.ranges import expand

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def _text(value: object) -> object:
    """Text only, with a hint that YAML, not the reader, made a number of it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise Wrong(f'YAML takes {shown(value)} for a number; put it in quotes ("{shown(value)}")')
    return value


def _word(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", value):
        raise Wrong(
            f"`{shown(value)}` is no name for a cluster; write up to 32 lower-case letters, digits, - and _, "
            "beginning with a letter"
        )
    return value


def _domain(value: str) -> str:
    if value != value.lower():
        raise Wrong(f"`{shown(value)}` has capitals, which DNS ignores; write {shown(value.lower())}")
    labels = value.split(".")
    if len(value) > 200 or not all(LABEL.fullmatch(label) for label in labels):
        raise Wrong(
            f"`{shown(value)}` is no domain name; write lower-case letters, digits and hyphens between dots, "
            "e.g. cluster.example.org"
        )
    if labels[-1] == "local":
        raise Wrong(f"`{value}` ends in .local, which is multicast DNS's; write e.g. cluster.internal")
    if labels[-1].isdigit():
        raise Wrong(f"`{value}` looks like an address; write a domain such as cluster.internal")
    return value


def _ipv4(value: str) -> str:
    try:
        return str(IPv4Address(value))
    except AddressValueError:
        hint = "; IPv6 is not supported here" if ":" in value else ""
        raise Wrong(f"`{shown(value)}` is no IPv4 address{hint}; write e.g. 10.77.0.254") from None


def _subnet(value: str) -> str:
    try:
        network = IPv4Network(value, strict=False)
    except (AddressValueError, NetmaskValueError, ValueError):
        raise Wrong(f"`{shown(value)}` is no IPv4 subnet; write e.g. 10.77.0.0/24") from None
    if "/" not in value:
        raise Wrong(f"`{value}` has no prefix length; write e.g. {value}/24")
    if str(network.network_address) != value.split("/", maxsplit=1)[0]:
        raise Wrong(f"`{value}` is an address inside a subnet; write {network}")
    if not 8 <= network.prefixlen <= 30:
        raise Wrong(f"`{value}` must have a prefix length from 8 to 30; write e.g. 10.77.0.0/24")
    return str(network)


def _names(value: str) -> str:
    for name in expand(value)[:1]:
        check_host_name(name)
    return value


def _addresses(value: str) -> str:
    if "[" in value or "," in value:
        expand(value)
        return value
    return _ipv4(value)


def _macs(value: object) -> object:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise Wrong("the list is empty; list at least one, or remove the line")
    result: list[str] = []
    for one in values:
        if not isinstance(one, str):
            said = "nothing" if one is None else f"`{shown(one)}`"
            raise Wrong(f'{said} is no MAC address; write "52:54:00:12:34:56", in quotes')
        mac = one.lower().replace("-", ":")
        if not _MAC.fullmatch(mac):
            raise Wrong(f'`{shown(one)}` is no MAC address; write six hex pairs: "52:54:00:12:34:56"')
        if int(mac[:2], 16) & 1:
            raise Wrong(f"`{shown(one)}` is a multicast address, which no card has; copy the card's own")
        result.append(mac)
    return tuple(result)


def _one_or_many(value: object) -> object:
    """A list as a tuple; a single value as a tuple of one."""
    if value == []:
        raise Wrong("the list is empty; list at least one, or remove the line")
    return tuple(value) if isinstance(value, list) else (value,)


def _range_of(value: str) -> str:
    expand(value)
    return value


def _label_range(value: str) -> str:
    """A range of names of things that are no hosts: racks, PDUs."""
    for name in expand(value)[:1]:
        if not _THING.fullmatch(name):
            raise Wrong(
                f"`{shown(name)}` is no name; write up to 32 letters, digits, - and _, beginning with a letter"
            )
    return value


def _beside(value: str) -> str:
    """The name of a file that lies beside cluster.yml, or below it."""
    parts = value.split("/")
    if (
        len(value) > 200
        or not value.isprintable()
        or value.startswith("/")
        or any(part in ("", ".", "..") for part in parts)
    ):
        raise Wrong(
            f"`{shown(value)}` must lie beside cluster.yml or below it; write a name such as nodes.csv"
        )
    return value


def _span(value: str) -> str:
    first, dash, last = value.partition("-")
    if not dash:
        raise Wrong(
            f"`{shown(value)}` is no span of addresses; write FIRST-LAST, e.g. 10.77.0.200-10.77.0.240"
        )
    low, high = IPv4Address(_ipv4(first.strip())), IPv4Address(_ipv4(last.strip()))
    if high < low:
        raise Wrong(f"`{shown(value)}` counts down; write {high}-{low}")
    return f"{low}-{high}"


def _numbers(value: object) -> object:
    """``1-4,7`` as the numbers it stands for."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        said = "nothing" if value is None else "a list" if isinstance(value, list) else f"`{shown(value)}`"
        raise Wrong(f"{said} is no range of numbers; write e.g. 1-16 or 1-4,7")
    found: list[int] = []
    for part in value.split(","):
        match = _SPAN.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not 1 <= first <= last <= _MOST:
            raise Wrong(
                f"`{shown(value)}` is no range of numbers from 1 to {_MOST}; write e.g. 1-16 or 1-4,7"
            )
        found.extend(range(first, last + 1))
        if len(found) > _MOST:
            break
    if len(set(found)) < len(found):
        raise Wrong(f"`{shown(value)}` holds a number twice; write each once")
    return tuple(found)


_SPAN = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_MOST = 1024
_THING = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_ONE_OR_MANY = BeforeValidator(_one_or_many)


def _either(kind: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": kind}, {"type": "array", "items": {"type": kind}}]})


Text = Annotated[str, BeforeValidator(_text)]
Word = Annotated[Text, AfterValidator(_word)]
DomainName = Annotated[Text, AfterValidator(_domain)]
SubnetText = Annotated[Text, AfterValidator(_subnet)]
Ipv4Text = Annotated[Text, AfterValidator(_ipv4), Field(examples=["10.77.0.254"])]
AddressRange = Annotated[Text, AfterValidator(_addresses)]
# FIRST-LAST, both included.
AddressSpan = Annotated[Text, AfterValidator(_span), Field(examples=["10.77.0.200-10.77.0.240"])]
NodeNames = Annotated[Text, AfterValidator(_names)]
# A range of nodes that stand elsewhere in the file.
NodesThere = Annotated[Text, AfterValidator(_range_of)]
ThingNames = Annotated[Text, AfterValidator(_label_range)]
FileBeside = Annotated[Text, AfterValidator(_beside)]
# An entry of the catalog.
CatalogName = Annotated[Text, Field(pattern=r"^[a-z0-9]+([.-][a-z0-9]+)*$")]
Version = Annotated[Text, Field(pattern=r"^[0-9]+(\.[0-9]+){0,3}$")]
Numbers = Annotated[
    tuple[int, ...],
    BeforeValidator(_numbers),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
]
Macs = Annotated[tuple[str, ...], BeforeValidator(_macs), _either("string")]
# One, or one a node: a tuple either way.
Texts = Annotated[tuple[Annotated[Text, Field(min_length=1)], ...], _ONE_OR_MANY, _either("string")]
Counts = Annotated[tuple[Annotated[int, Field(ge=0, le=1000)], ...], _ONE_OR_MANY, _either("integer")]


class Block(BaseModel):
    """A block of cluster.yml: unknown keys are errors, and nothing is turned into another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
