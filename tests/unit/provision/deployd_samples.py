"""A sound order and identity, and words that must never turn up where they do not belong."""

from __future__ import annotations

from typing import Any

CANARY = "canary-3f1c9a-never-in-a-log"
MAC = "02:95:00:00:00:09"


def order(node: str = "gpu01", mac: str = MAC, **changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "node": node,
        "fqdn": f"{node}.hopper.internal",
        "mac": mac,
        "purpose": "deploy",
        "firmware": "uefi",
        "serial": "CHASSIS-1",
        "disks": [{"use": "system", "serial": "S1", "size_gb": 10}, {"use": "data", "wwn": "0x5"}],
        "consent": ["S1"],
        "sizes": {"esp": 2**30, "root": None, "swap": 0, "scratch": False},
        "image": {"sha256": "ab" * 32, "class": "gpu-debian-13", "oldest": 1_700_000_000},
        "kernel_arguments": ["console=ttyS1,115200", "mitigations=off"],
        "boot": "disk",
        **changes,
    }


def identity(node: str = "gpu01", **changes: Any) -> dict[str, Any]:
    key = f"-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n-----END OPENSSH PRIVATE KEY-----\n"
    return {
        "format": 1,
        "hostname": node,
        "host_keys": {"ed25519": key},
        "authorized_keys": ["ssh-ed25519 AAAA root@head01"],
        "network": {"/etc/systemd/network/10-cluster.network": "[Match]\n"},
        "files": {"/etc/munge/munge.key": {"text": CANARY, "mode": "0400"}},
        "hosts": "127.0.0.1 localhost\n",
        **changes,
    }
