"""What BMCs say by Redfish: a tree with Thermal and Power, and one with their Subsystems and with Sensors.

Shapes by DMTF's schemas (Thermal 1.7, Power 1.7, ThermalSubsystem 1.3, PowerSubsystem 1.1, Sensor 1.9, LogEntry 1.16);
the values and the quirks (null, absent parts, names twice, entries by reference) are made up after what vendors do.
"""

from __future__ import annotations

from typing import Any

OK = {"State": "Enabled", "Health": "OK"}
V1 = "/redfish/v1"


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def members(*paths: str, **more: Any) -> dict[str, Any]:
    return {"Members": [link(path) for path in paths], "Members@odata.count": len(paths), **more}


ROOT = {
    "Systems": link(f"{V1}/Systems"),
    "Chassis": link(f"{V1}/Chassis"),
    "Managers": link(f"{V1}/Managers"),
}
COMMON: dict[str, Any] = {
    f"{V1}/": ROOT,
    f"{V1}/Systems": members(f"{V1}/Systems/1"),
    f"{V1}/Systems/1": {
        "Id": "1",
        "PowerState": "On",
        "Status": {"Health": "OK", "HealthRollup": "Warning"},
        "LogServices": link(f"{V1}/Systems/1/LogServices"),
    },
    f"{V1}/Systems/1/LogServices": members(f"{V1}/Systems/1/LogServices/SEL"),
    f"{V1}/Systems/1/LogServices/SEL": {
        "Id": "SEL",
        "Entries": link(f"{V1}/Systems/1/LogServices/SEL/Entries"),
    },
    f"{V1}/Systems/1/LogServices/SEL/Entries": {
        "Members@odata.count": 3,
        "Members": [{"Id": "1", "Severity": "Critical"}, {"Id": "2", "Severity": "OK"}],
        "Members@odata.nextLink": f"{V1}/Systems/1/LogServices/SEL/Entries?$skip=2",
    },
    f"{V1}/Systems/1/LogServices/SEL/Entries?$skip=2": {"Members": [{"Id": "3", "Severity": "Critical"}]},
    f"{V1}/Managers": members(f"{V1}/Managers/bmc"),
    f"{V1}/Managers/bmc": {"Id": "bmc", "Status": OK},
}

OLD: dict[str, Any] = {
    **COMMON,
    f"{V1}/Chassis": members(f"{V1}/Chassis/1", f"{V1}/Chassis/Blank"),
    f"{V1}/Chassis/Blank": {"Id": "Blank", "Status": {"State": "Absent"}, "Thermal": link("/redfish/nowhere")},
    f"{V1}/Chassis/1": {
        "Id": "1",
        "Status": OK,
        "Thermal": link(f"{V1}/Chassis/1/Thermal"),
        "Power": link(f"{V1}/Chassis/1/Power"),
    },
    f"{V1}/Chassis/1/Thermal": {
        "Temperatures": [
            {"MemberId": "0", "Name": "Inlet Temp", "ReadingCelsius": 23, "Status": OK},
            {
                "MemberId": "1",
                "Name": "CPU1 Temp",
                "ReadingCelsius": 97,
                "UpperThresholdNonCritical": 85,
                "UpperThresholdCritical": 95,
                "Status": {"State": "Enabled", "Health": None},
            },
            {"MemberId": "2", "Name": "CPU2 Temp", "ReadingCelsius": None, "Status": {"State": "Absent"}},
            # Twice the same, as some say it: Prometheus would refuse the whole.
            {"MemberId": "0", "Name": "Inlet Temp", "ReadingCelsius": 99, "Status": OK},
            {"MemberId": "4", "Name": "PCH", "ReadingCelsius": "N/A", "Status": OK},
        ],
        "Fans": [
            {"MemberId": "0", "FanName": "Fan 1A", "Reading": 9360, "ReadingUnits": "RPM", "Status": OK},
            {
                "MemberId": "1",
                "Name": "Fan 2A",
                "Reading": 0,
                "ReadingUnits": "RPM",
                "Status": {"State": "Enabled", "Health": "Critical"},
            },
            {"MemberId": "2", "Name": "Fan 3", "Reading": 31, "ReadingUnits": "Percent", "Status": OK},
            {"MemberId": "3", "Name": "Fan 4", "Reading": 0, "Status": {"State": "Absent"}},
        ],
    },
    f"{V1}/Chassis/1/Power": {
        "PowerControl": [
            {"PowerConsumedWatts": 5430, "PowerLimit": {"LimitInWatts": 8000}},
            {"Name": "CPU", "PowerConsumedWatts": 700},
        ],
        "Voltages": [
            {"MemberId": "0", "Name": "VBAT", "ReadingVolts": 2.1, "Status": {"Health": "Warning"}},
            {"MemberId": "1", "Name": "12V", "ReadingVolts": 12.1, "Status": OK},
        ],
        "PowerSupplies": [
            {
                "MemberId": "0", "Name": "PSU 1", "PowerInputWatts": 2750.5, "LastPowerOutputWatts": 2650,
                "Status": OK,
            },
            {"MemberId": "1", "Name": "PSU 2", "Status": {"State": "UnavailableOffline"}},
            {"MemberId": "2", "Name": "PSU 3", "Status": {"State": "Absent"}},
        ],
    },
}  # fmt: skip

_C = f"{V1}/Chassis/HGX"
NEW: dict[str, Any] = {
    **COMMON,
    f"{V1}/Chassis": members(_C),
    _C: {
        "Id": "HGX",
        "Status": {"State": "Enabled", "Health": "Critical"},
        "Sensors": link(f"{_C}/Sensors"),
        "ThermalSubsystem": link(f"{_C}/ThermalSubsystem"),
        "PowerSubsystem": link(f"{_C}/PowerSubsystem"),
        "EnvironmentMetrics": link(f"{_C}/EnvironmentMetrics"),
    },
    f"{_C}/Sensors": members(f"{_C}/Sensors/T1", f"{_C}/Sensors/T2", f"{_C}/Sensors/V1", f"{_C}/Sensors/P1"),
    f"{_C}/Sensors/T1": {
        "Id": "T1",
        "Name": "GPU 1 Temp",
        "ReadingType": "Temperature",
        "Reading": 88.5,
        "Thresholds": {"UpperCaution": {"Reading": 87}, "UpperCritical": {"Reading": 92}},
    },
    f"{_C}/Sensors/T2": {
        "Id": "T2", "Name": "Inlet", "ReadingType": "Temperature", "Reading": 22, "Status": OK,
    },
    f"{_C}/Sensors/V1": {
        "Id": "V1",
        "Name": "12V",
        "ReadingType": "Voltage",
        "Reading": 10.1,
        "Thresholds": {"LowerCritical": {"Reading": 10.8}},
    },
    f"{_C}/Sensors/P1": {"Id": "P1", "Name": "P", "ReadingType": "Power", "Reading": 5},
    f"{_C}/ThermalSubsystem": {
        "Fans": link(f"{_C}/ThermalSubsystem/Fans"),
        "ThermalMetrics": link(f"{_C}/ThermalSubsystem/ThermalMetrics"),
    },
    f"{_C}/ThermalSubsystem/ThermalMetrics": {
        "TemperatureReadingsCelsius": [{"DeviceName": "Intake", "Reading": 21}]
    },
    f"{_C}/ThermalSubsystem/Fans": members(f"{_C}/ThermalSubsystem/Fans/1"),
    f"{_C}/ThermalSubsystem/Fans/1": {
        "Id": "1", "Name": "Fan 1", "SpeedPercent": {"Reading": 45, "SpeedRPM": 7200}, "Status": OK,
    },
    f"{_C}/PowerSubsystem": {"PowerSupplies": link(f"{_C}/PowerSubsystem/PowerSupplies")},
    f"{_C}/PowerSubsystem/PowerSupplies": members(f"{_C}/PowerSubsystem/PowerSupplies/1"),
    f"{_C}/PowerSubsystem/PowerSupplies/1": {
        "Id": "1",
        "Name": "PSU 1",
        "Status": {"State": "Enabled", "Health": "Warning"},
        "Metrics": link(f"{_C}/PowerSubsystem/PowerSupplies/1/Metrics"),
    },
    f"{_C}/PowerSubsystem/PowerSupplies/1/Metrics": {
        "InputPowerWatts": {"Reading": 1800}, "OutputPowerWatts": {"Reading": 1700},
    },
    f"{_C}/EnvironmentMetrics": {"PowerWatts": {"Reading": 3600}, "PowerLimitWatts": {"SetPoint": 10200}},
}  # fmt: skip


def expanded() -> dict[str, Any]:
    """The new tree of a BMC that shows a collection's members with it; nothing is to be had one by one."""
    tree = {**NEW, f"{V1}/": {**ROOT, "ProtocolFeaturesSupported": {"ExpandQuery": {"NoLinks": True}}}}
    for path, resource in NEW.items():
        if "Members" in resource and "Entries" not in path:
            whole = [NEW[one["@odata.id"]] for one in resource["Members"]]
            tree[f"{path}?$expand=."] = {**resource, "Members": whole}
            for one in resource["Members"]:
                tree.pop(one["@odata.id"], None)
    return tree
