"""What role netboot's options come to, and what speaks against them."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.coldiron.cluster.plugins.filter.netboot import (
    FilterModule,
    netboot_machines,
    netboot_problems,
    netboot_range,
)

from coldiron.provision.deployd_files import files

NET = {"subnet": "10.1.0.0/24"}
ONE = {"name": "gpu01", "mac": "02:00:00:00:00:01", "address": "10.1.0.41"}


def test_a_range_is_named_by_its_first_address() -> None:
    assert netboot_range("10.1.0.0/22") == {"first": "10.1.0.0", "mask": "255.255.252.0"}
    with pytest.raises(AnsibleFilterError, match="is no subnet in CIDR notation"):
        netboot_range("10.1.0.1/24")


def test_only_machines_whose_hardware_address_is_known_are_answered() -> None:
    found = netboot_machines([{**ONE, "serial": "X"}, {**ONE, "name": "gpu02", "mac": ""}])
    assert found == [ONE]


@pytest.mark.parametrize(
    ("machines", "subnets", "dhcp", "says"),
    [
        ([], [], "serve", ""),
        ([ONE], [NET], "serve", ""),
        ([ONE], [], "none", ""),
        ([{**ONE, "mac": "02:00:00:00:00:0A"}], [NET], "proxy", ""),
        ([ONE], [], "serve", "netboot_subnets is empty: no machine would be answered"),
        ([ONE], [{"subnet": "10.1.0.7/24"}], "serve", "netboot_subnets has 10.1.0.7/24, which is no subnet"),
        ([{**ONE, "mac": "02-00"}], [NET], "serve", "gpu01 has mac 02-00, which is none"),
        (
            [{**ONE, "address": "10.1.0"}],
            [NET],
            "serve",
            "gpu01 has address 10.1.0, which is no IPv4 address",
        ),
        ([{**ONE, "address": "10.2.0.1"}], [NET], "serve", "which is in none of netboot_subnets"),
        ([{**ONE, "address": "10.2.0.1"}], [NET], "proxy", ""),
        (
            [ONE, {**ONE, "name": "gpu02", "address": "10.1.0.42"}],
            [NET],
            "serve",
            "gpu02 and gpu01 both have 02:",
        ),
        ([ONE, {**ONE, "name": "gpu02", "mac": "02:00:00:00:00:02"}], [NET], "serve", "both have 10.1.0.41"),
    ],
)
def test_what_an_argument_spec_cannot_say(
    machines: list[dict[str, Any]], subnets: list[dict[str, Any]], dhcp: str, says: str
) -> None:
    problems = netboot_problems(machines, subnets, dhcp)
    assert len(problems) == bool(says)
    assert says in "".join(problems)


def test_a_mirror_is_for_a_subnet() -> None:
    (problem,) = netboot_problems([], [], "serve", [{"subnet": "rack1", "url": "http://x"}])
    assert problem.startswith("netboot_mirrors has rack1, which is no subnet")


def test_the_filters_have_names() -> None:
    assert set(FilterModule().filters()) == {"netboot_machines", "netboot_problems", "netboot_range"}


def test_the_program_is_files_of_a_declaration() -> None:
    from ansible_collections.coldiron.cluster.plugins.lookup.deployd import LookupModule

    (found,) = LookupModule().run(["/usr/lib/x"])
    assert {file["dest"] for file in found} == {f"/usr/lib/x/{path}" for path in files()}
    assert all(file["content"] for file in found if file["dest"].endswith("main__.py"))
