"""Orders and identities are read strictly: what nobody knows, or what makes no sense, is refused in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from coldiron.errors import ColdironError
from coldiron.provision.order import LONGEST, parse_identity, parse_order
from tests.unit.provision import deployd_samples as samples

Change = Callable[[dict[str, Any]], object]


def test_an_order_comes_back_as_it_went() -> None:
    order = parse_order(samples.order())
    assert parse_order(json.dumps(order.as_dict())) == order
    assert parse_order(json.dumps(order.as_dict()).encode()) == order
    assert order.image.node_class == "gpu-debian-13"
    assert order.disks[1] == {"use": "data", "wwn": "0x5"}


def test_an_identity_comes_back_as_it_went_and_shows_nothing() -> None:
    identity = parse_identity(samples.identity())
    assert parse_identity(json.dumps(identity.as_dict())) == identity
    assert samples.CANARY not in repr(identity)
    assert identity.files["/etc/munge/munge.key"].mode == "0400"


def test_rules_may_say_null_for_what_they_do_not_say() -> None:
    rule = {"use": "system", "serial": "S1", "wwn": None, "size_gb": None, "model": None, "count": 1}
    order = parse_order(samples.order(disks=[rule]))
    assert order.disks[0] == {"use": "system", "serial": "S1", "count": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda o: o.update(format=2), "has format 2, and this version of coldiron reads 1"),
        (lambda o: o.update(format=True), "has format True"),
        (lambda o: o.pop("boot"), "the order has no boot"),
        (lambda o: o.update(extra=1), "the order has a key that nobody knows: extra"),
        (lambda o: o.update(node="../etc"), "node is no host name"),
        (lambda o: o.update(node=7), "the order's node is not text"),
        (lambda o: o.update(fqdn="other.hopper.internal"), "is not of node gpu01"),
        (lambda o: o.update(fqdn="GPU01.x"), "no domain name"),
        (lambda o: o.update(mac="02-95-00-00-00-09"), "mac is not a MAC address in lower case"),
        (lambda o: o.update(purpose="wipe"), "purpose is not one of deploy"),
        (lambda o: o.update(firmware="coreboot"), "firmware is not one of bios, uefi"),
        (lambda o: o.update(serial="a\nb"), "serial is not one printable line"),
        (lambda o: o.update(disks=[]), "disks are empty"),
        (lambda o: o.update(disks="all"), "disks is not a list"),
        (lambda o: o.update(disks=["all"]), "disks[1] is not a mapping"),
        (lambda o: o["disks"][0].update(sort="fast"), "disks[1] has a key that nobody knows: sort"),
        (lambda o: o["disks"][0].update(use="fun"), "disks[1]'s use is not one of system"),
        (lambda o: o["disks"][0].update(serial=""), "disks[1]'s serial is empty"),
        (lambda o: o["disks"][0].update(size_gb=float("nan")), "size_gb is not a number from"),
        (lambda o: o["disks"][0].update(count=0), "count is not a whole number from 1 to 128"),
        (lambda o: o.update(disks=[{"use": "system", "model": "X"}]), "it would mean any disk"),
        (lambda o: o.update(consent=[""]), "consent[1] is empty"),
        (lambda o: o.update(consent=[5]), "consent[1] is not text"),
        (lambda o: o["sizes"].update(esp=-1), "sizes's esp is not a whole number"),
        (lambda o: o["sizes"].update(scratch=1), "scratch is not true or false"),
        (lambda o: o["sizes"].update(home=1), "sizes has a key that nobody knows: home"),
        (lambda o: o.update(sizes=[]), "sizes is not a mapping"),
        (lambda o: o["image"].update(sha256="AB" * 32), "sha256 is not 64 hexadecimal digits"),
        (lambda o: o["image"].update({"class": "../../x"}), "class is not a class of images"),
        (lambda o: o["image"].update(oldest=1.5), "oldest is not a whole number"),
        (lambda o: o.update(kernel_arguments=["a b"]), "kernel_arguments[1] is not one word"),
        (lambda o: o.update(kernel_arguments=["a=${net0/ip}"]), "kernel_arguments[1] is not one word"),
        (lambda o: o.update(boot="usb"), "boot is not one of disk, kexec"),
    ],
)
def test_orders_that_are_refused(change: Change, says: str) -> None:
    data = samples.order()
    change(data)
    with pytest.raises(ColdironError) as caught:
        parse_order(data)
    assert says in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda i: i.update(host_keys={}), "has no host key"),
        (lambda i: i["host_keys"].update(dsa="x"), "is one of ed25519, ecdsa, rsa, not dsa"),
        (lambda i: i["host_keys"].update(ed25519="canary"), "ed25519 host key is no private key"),
        (lambda i: i.update(authorized_keys=["a\nb"]), "authorized_keys[1] is not one line"),
        (lambda i: i.update(network={"etc/x": ""}), "name etc/x, which is no plain absolute path"),
        (lambda i: i.update(network={"/etc/../x": ""}), "no plain absolute path"),
        (lambda i: i.update(network={"/": ""}), "no plain absolute path"),
        (lambda i: i.update(network={"/x": "\0"}), "/x holds a NUL"),
        (lambda i: i.update(files={"/x": "text"}), "/x is not a mapping"),
        (lambda i: i.update(files={"/x": {"text": "", "mode": "4755"}}), "mode is not four octal digits"),
        (lambda i: i.update(files={"/x": {"text": 1, "mode": "0600"}}), "text is not text"),
        (lambda i: i.update(hostname="a.b"), "hostname is no host name"),
        (lambda i: i.update(more=1), "a key that nobody knows: more"),
    ],
)
def test_identities_that_are_refused_unquoted(change: Change, says: str) -> None:
    data = samples.identity()
    change(data)
    with pytest.raises(ColdironError) as caught:
        parse_identity(data)
    assert says in caught.value.message
    assert samples.CANARY not in caught.value.message


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", "{", "[" * 100_000, '{"format": 1, "format": 1}', '{"a": NaN}', b"\xff", None, {1: 2}],
)
def test_what_is_no_mapping_in_json(text: object) -> None:
    with pytest.raises(ColdironError):
        parse_order(text)
    with pytest.raises(ColdironError):
        parse_identity(text)


def test_what_is_too_long_is_not_read() -> None:
    with pytest.raises(ColdironError, match="is longer than 1024 KiB"):
        parse_order(" " * (LONGEST + 1))


def test_it_travels_light() -> None:
    """A RAM environment has the standard library only."""
    code = "import sys, coldiron.provision.order; print({m.split('.')[0] for m in sys.modules} & {'pydantic', 'yaml'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
