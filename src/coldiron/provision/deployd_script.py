"""The text that iPXE runs: what a machine boots, by whether it has an open order.

A script goes over plain HTTP. The one secret in it is a token that is good once, for one node and for a while; see
docs/netboot.md for what that is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from coldiron.provision.order import Order
from coldiron.provision.token import Token

# UEFI goes to its next boot option for a failed one; a BIOS that is left would try the network again. A blank disk in
# place of a mirror's first half comes before the half that is left.
LOCAL = """\
#!ipxe
echo coldiron: this machine has no order, booting from its disk
iseq ${platform} efi && exit 1 ||
sanboot --no-describe --drive 0x80 || sanboot --no-describe --drive 0x81 || exit 1
"""


@dataclass(frozen=True)
class Mirror:
    """A server near the machines of ``subnet`` that has the same files: ``url`` comes before /deploy and /images."""

    subnet: IPv4Network
    url: str


def nearest(mirrors: Sequence[Mirror], address: str, default: str) -> str:
    """The URL of the mirror whose subnet ``address`` is in, the smallest such subnet; ``default`` without one."""
    try:
        where = IPv4Address(address)
    except ValueError:
        return default
    near = [mirror for mirror in mirrors if where in mirror.subnet]
    return max(near, key=lambda mirror: mirror.subnet.prefixlen).url if near else default


def deploy(
    order: Order,
    token: Token,
    *,
    server: str,
    files: Sequence[str],
    again: str,
    arguments: Sequence[str],
) -> str:
    """The script that starts the RAM environment.

    ``server`` is the HTTPS base URL that the token is shown to, ``files`` are the base URLs that kernel and initrd are
    fetched from, one after the other until one has them; ``again`` is this script's own URL, ``arguments`` further
    words of the kernel's command line. The order's own words are the installed system's; its consoles are the RAM
    environment's too.
    """
    words = [
        "initrd=initrd",
        f"coldiron.node={order.node}",
        f"coldiron.server={server}",
        f"coldiron.token={token.reveal()}",
        f"coldiron.mac={order.mac}",
        *arguments,
        *(word for word in order.kernel_arguments if word.startswith("console=")),
    ]
    tries = "".join(
        f"""\
kernel {url}/deploy/vmlinuz {" ".join(words)} || goto failed{number}
initrd --name initrd {url}/deploy/initrd || goto failed{number}
boot || goto failed{number}
:failed{number}
imgfree
"""
        for number, url in enumerate(files)
    )
    return f"""\
#!ipxe
echo coldiron: {order.node} has an order to be deployed
{tries}\
echo coldiron: {order.node} could not fetch or start the RAM environment, trying again in 20 s
sleep 20
chain {again} || exit 1
"""
