"""What community.general.redfish_info returns as ``redfish_facts``, in its shape."""

from __future__ import annotations

from typing import Any

URI = {"system_uri": "/redfish/v1/Systems/1"}
BIOS = {
    "BootMode": "Uefi",
    "LogicalProc": "Enabled",
    "NumaNodesPerSocket": "1",
    "FanOffset": 10,
    "QuietBoot": True,
    "SystemModelName": "PowerEdge XE9680",
    "Unsaid": None,
    "SetupPassword": None,
}
REGISTRY: list[dict[str, Any]] = [
    {
        "AttributeName": "BootMode",
        "Type": "Enumeration",
        "ReadOnly": False,
        "Value": [
            {"ValueName": "Bios", "ValueDisplayName": "BIOS"},
            {"ValueName": "Uefi", "ValueDisplayName": "UEFI"},
        ],
    },
    {
        "AttributeName": "LogicalProc",
        "Type": "Enumeration",
        "Value": [{"ValueName": "Enabled"}, {"ValueName": "Disabled"}],
    },
    {"AttributeName": "FanOffset", "Type": "Integer", "LowerBound": 0, "UpperBound": 100},
    {"AttributeName": "QuietBoot", "Type": "Boolean", "GrayOut": False},
    {"AttributeName": "SystemModelName", "Type": "String", "ReadOnly": True},
    {"AttributeName": "Unsaid", "Type": "Password"},
]


def entries(value: object) -> dict[str, Any]:
    return {"ret": True, "entries": [[URI, value]]}


def redfish_facts(
    power: str = "On",
    enabled: str = "Disabled",
    target: str = "None",
    progress: object = None,
    bios: object = None,
    registry: object = None,
) -> dict[str, Any]:
    return {
        "system": entries(
            {
                "PowerState": power,
                "SerialNumber": "ABC",
                "BootProgress": progress or {"LastState": "OSRunning"},
            }
        ),
        "bios_attribute": entries(BIOS if bios is None else bios),
        "bios_registries": {
            "ret": True,
            "bios_registry": {"RegistryEntries": {"Attributes": REGISTRY if registry is None else registry}},
        },
        "boot_order": entries(
            [
                {"BootOptionReference": "Boot0001", "Name": "Boot0001", "DisplayName": "PXE NIC 1"},
                {"BootOptionReference": "Boot0002", "Name": "Boot0002", "DisplayName": "debian"},
                {"BootOptionReference": "Boot0003", "Name": "Boot0003", "DisplayName": "debian"},
                {"BootOptionReference": "Boot0004"},
            ]
        ),
        "boot_override": entries(
            {
                "BootSourceOverrideEnabled": enabled,
                "BootSourceOverrideTarget": target,
                "BootSourceOverrideMode": "UEFI",
                "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd", "UefiHttp"],
            }
        ),
    }
