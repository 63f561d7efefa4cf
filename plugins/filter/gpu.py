"""Filters of the GPU roles: declared GPUs to what nodes are told. The thinking is in module_utils/gpu_layout.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.coldiron.cluster.plugins.module_utils import gpu_layout as layouts


def gpu_layout(mig: Sequence[Mapping[str, Any]], count: int) -> list[list[str]]:
    """Return the profiles of each of ``count`` GPUs, in the driver's order."""
    try:
        found: list[list[str]] = layouts.layout({"count": count, "mig": mig})
    except layouts.GpuDataError as error:
        raise AnsibleFilterError(str(error)) from error
    return found


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {"gpu_layout": gpu_layout}
