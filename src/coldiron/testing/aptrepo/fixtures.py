"""The makers' packages as fixtures, from fixtures.yml, enroot.yml, grafana.yml, kibana.yml and filebeat.yml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import yaml

from coldiron.testing.aptrepo.package import RELATIONS, Package

USER_SPACE = "nvidia-driver-cuda"


def _data() -> dict[str, Any]:
    folder = resources.files("coldiron.testing.aptrepo")
    data: dict[str, Any]
    data, *others = (
        yaml.safe_load(folder.joinpath(name).read_text(encoding="utf-8"))
        for name in ("fixtures.yml", "enroot.yml", "grafana.yml")
    )
    for other in others:
        data["single"] += other["single"]
    return data


def named(name: str) -> Iterator[Package]:
    """The fixture packages of the file ``name``.yml, which are in no repository but one that asks for them."""
    text = resources.files("coldiron.testing.aptrepo").joinpath(f"{name}.yml").read_text(encoding="utf-8")
    for entry in yaml.safe_load(text)["single"]:
        yield _made(entry, {}, entry["version"])


def driver_versions() -> tuple[str, ...]:
    """The versions in which the driver's packages are there, oldest first."""
    return tuple(_data()["driver_versions"])


def _put(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace("{" + word + "}", value)
    return text


def _made(entry: Mapping[str, Any], words: Mapping[str, str], version: str) -> Package:
    files = {_put(path, words): _put(text, words) for path, text in (entry.get("files") or {}).items()}
    relations: dict[str, Any] = {
        relation: tuple(_put(one, words) for one in entry[relation])
        for relation in RELATIONS
        if relation in entry
    }
    return Package(
        name=entry["name"],
        version=version,
        architecture=entry.get("architecture", "all"),
        files=files,
        modes={
            path: 0o755 for path in files if path.rpartition("/")[2] in entry.get("executable", ())
        },
        scripts=entry.get("scripts") or {},
        about=_put(entry["about"], words),
        **relations,
    )  # fmt: skip


def fixtures(simulated: bool = False) -> Iterator[Package]:
    """Every fixture package.

    With ``simulated`` the driver's user space wants the simulated GPUs' package, which has to be in the repository too
    and stands for NVML (so libnvidia-ml1 is left out), and Debian's nvidia-smi.
    """
    data = _data()
    for version in data["driver_versions"]:
        full = f"{version}-{data['revision']}"
        for known in data["drivers"]:
            if simulated and known["name"] == "libnvidia-ml1":
                continue
            entry = dict(known)
            if simulated and entry["name"] == USER_SPACE:
                entry["depends"] = ["coldiron-simulated-gpu", "nvidia-smi"]
            words = {"version": version, "full": full, "branch": version.split(".")[0], "name": entry["name"]}
            yield _made(entry, words, full)
    for entry in data["single"]:
        words = {"release": str(entry.get("release", "")), "name": entry["name"], "version": entry["version"]}
        yield _made(entry, words, entry["version"])
