"""Filters of the Slurm roles: their words to Slurm's lines. The thinking is in module_utils/slurm_*.py."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.coldiron.cluster.plugins.module_utils import (
    gpu_layout,
    slurm_config,
    slurm_edits,
)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a declared value that Slurm could not run with into one line for the person who wrote it."""

    def filtered(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (slurm_config.SlurmDataError, ValueError) as error:
            raise AnsibleFilterError(str(error)) from error
        except KeyError as error:
            raise AnsibleFilterError(f"{function.__name__}: the key {error} is missing") from error

    return filtered


def long_secret(secret: str, name: str, minimum: int) -> str:
    """Return a base64 secret as it is; refuse one of fewer than ``minimum`` bytes, without showing it."""
    try:
        size = len(base64.b64decode(str(secret), validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size < minimum:
        raise slurm_config.SlurmDataError(
            f"{name} is not base64 of at least {minimum} bytes: write one with `coldiron secrets init`,"
            f" or by hand with `head -c {max(minimum, 128)} /dev/urandom | base64 -w0`"
        )
    return secret


def slurm_settings(layers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Merge layers of settings, the last one wins; null takes a key out."""
    merged: dict[str, str] = slurm_config.merge(*layers)
    return merged


def slurm_release(distributions: Sequence[str], releases: Mapping[str, str]) -> list[str]:
    """Return the Slurm releases that a list of distributions ("debian-13") package, sorted, each once."""
    return sorted({releases.get(name, f"unknown ({name})") for name in distributions})


def slurm_hosts(hosts: Sequence[Mapping[str, str]]) -> list[str]:
    """Return controllers as SlurmctldHost names them: ``head01(10.0.0.1)``."""
    return [f"{host['name']}({host['address']})" for host in hosts]


def slurm_packages(names: Sequence[str], version: str = "", hold: bool | None = None) -> list[dict[str, Any]]:
    """Return packages as converge takes them, each with the version and the hold given."""
    extra: dict[str, Any] = {"version": version} if version else {}
    if hold is not None:
        extra["hold"] = hold
    return [{"name": name, **extra} for name in names]


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by name."""
        return {
            "long_secret": _plain(long_secret),
            "slurm_settings": _plain(slurm_settings),
            "slurm_hosts": _plain(slurm_hosts),
            "slurm_packages": slurm_packages,
            "slurm_release": _plain(slurm_release),
            "slurm_node_lines": _plain(slurm_config.node_lines),
            "slurm_gres_lines": _plain(slurm_config.gres_lines),
            "slurm_constrained": slurm_config.constrained,
            "slurm_gres_types": _plain(slurm_config.gres_types),
            "slurm_mixture_problems": _plain(slurm_config.mixture_problems),
            "slurm_shared": _plain(slurm_config.shared),
            "slurm_tres": _plain(gpu_layout.tres),
            "slurm_partition_lines": _plain(slurm_config.partition_lines),
            "slurm_memory_per_cpu": _plain(slurm_config.default_memory_per_cpu),
            "slurm_start_lines": _plain(slurm_edits.start_lines),
        }
