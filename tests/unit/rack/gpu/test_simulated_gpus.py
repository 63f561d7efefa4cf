"""Simulated GPUs as the rack describes, packs and breaks them; no node, no compiler."""

from __future__ import annotations

import configparser
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coldiron.catalog.load import load
from coldiron.errors import ColdironError
from coldiron.inventory.model import Gpus
from coldiron.rack.aptsource import AptSource
from coldiron.rack.connection import connection_vars
from coldiron.rack.gpu import cards, faults, package, repository
from coldiron.rack.layout import Layout, Machine
from coldiron.rack.spec import simulated_model
from coldiron.testing.aptrepo import SigningKey

CATALOG = load().gpus
H100 = CATALOG["h100-sxm5-80gb"]


def described(model: str, count: int = 1) -> configparser.ConfigParser:
    """The cards of a node, read as its driver reads them."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(cards.description(CATALOG[model], count, "a rack/gpu01"))
    return parser


def test_a_card_says_what_the_catalog_says_and_that_it_is_simulated() -> None:
    node = described("h100-sxm5-80gb", 4)
    card = node["card"]
    assert card["name"] == "NVIDIA H100 80GB HBM3 SIMULATED"
    assert (card["power_min_mw"], card["power_max_mw"], card["power_default_mw"]) == (
        "200000",
        "700000",
        "700000",
    )
    assert (card["nvlink_links"], card["pcie_generation"], card["pcie_lanes"]) == ("18", "5", "16")
    assert 80 * 1000**3 < int(card["memory_mib"]) * 1024**2 < 80 * 1024**3
    gpus = [node[f"gpu {index}"] for index in range(4)]
    assert len({gpu["uuid"] for gpu in gpus}) == len({gpu["pci_bus"] for gpu in gpus}) == 4
    for gpu in gpus:
        assert gpu["uuid"].startswith("GPU-51300000-")
        assert len(gpu["uuid"]) == len("GPU-51300000-0000-0000-0000-000000000000")
        assert gpu["serial"].startswith("SIM")


def test_instances_are_the_catalogs_with_ids_places_and_counts() -> None:
    node = described("h100-sxm5-80gb")
    found = {node[name]["name"]: node[name] for name in node.sections() if name.startswith("profile")}
    assert set(found) == {profile.name for profile in H100.mig.profiles or ()}
    for profile in H100.mig.profiles or ():
        assert profile.placements is not None
        one = found[profile.name]
        assert (one["id"], one["count"], one["slices"]) == (
            str(profile.id),
            str(profile.count),
            str(profile.slices),
        )
        assert one["starts"].split() == [str(start) for start in profile.placements.starts]


def test_a_model_without_places_in_the_catalog_gets_those_of_its_shape() -> None:
    node = described("h200-sxm5-141gb")
    found = {node[name]["name"]: node[name] for name in node.sections() if name.startswith("profile")}
    assert (found["3g.71gb"]["id"], found["3g.71gb"]["size"], found["3g.71gb"]["starts"]) == ("9", "4", "0 4")
    assert (found["7g.141gb"]["size"], found["7g.141gb"]["starts"]) == ("8", "0")
    assert found["1g.35gb"]["kind"] == "9"


@pytest.mark.parametrize("model", sorted(CATALOG))
def test_every_model_of_the_catalog_can_be_simulated(model: str) -> None:
    card = described(model)["card"]
    assert "SIMULATED" in card["name"]
    assert "(" not in card["name"]
    assert 0 < int(card["power_min_mw"]) <= int(card["power_default_mw"]) <= int(card["power_max_mw"])
    assert all(value.isdigit() for key, value in card.items() if key not in {"name", "vbios", "part_number"})


def test_the_same_node_has_the_same_cards_again_and_another_has_others() -> None:
    once, again = (cards.description(H100, 2, "x/gpu01") for _ in range(2))
    assert once == again
    assert once != cards.description(H100, 2, "x/gpu02")


def test_more_cards_than_the_tables_hold_are_refused() -> None:
    with pytest.raises(ColdironError, match="holds 1 to 16"):
        cards.description(H100, 17, "x")


def test_the_marker_says_simulated() -> None:
    assert json.loads(cards.marker(H100, 4)) == {
        "simulated": True,
        "model": "h100-sxm5-80gb",
        "product": "NVIDIA H100 80GB HBM3 SIMULATED",
        "count": 4,
    }


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ({"model": "a30", "type": "x"}, "a30"),
        ({"type": "h100"}, "h100-sxm5-80gb"),
        ({"type": "a100"}, "a100-sxm4-40gb"),
    ],
)
def test_the_model_is_the_one_written_else_the_types(written: dict[str, str], found: str) -> None:
    gpus = Gpus(count=1, **written)  # type: ignore[arg-type]
    assert simulated_model(gpus, "debian-13", "gpu01", Path("cluster.yml")) == found


@pytest.mark.parametrize(
    ("kind", "distribution", "words"),
    [
        ("abacus", "debian-13", "write `model` beside"),
        ("h100", "debian-12", "simulated on debian-13, and it runs debian-12"),
    ],
)
def test_what_cannot_be_simulated_is_refused(kind: str, distribution: str, words: str) -> None:
    with pytest.raises(ColdironError, match=words):
        simulated_model(Gpus(count=1, type=kind), distribution, "gpu01", Path("cluster.yml"))


@dataclass
class Bench:
    """A host that writes down what it is asked to run, and makes the files that compilers and packers would."""

    ran: list[list[str]] = field(default_factory=list)

    @contextmanager
    def lock(self, _: Path, *__: Any) -> Iterator[None]:
        yield

    def run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.ran.append(command)
        if command[0] == "gcc":
            Path(command[command.index("-o") + 1]).write_text("library")
        if command[0] == "dpkg-deb":
            Path(command[-1]).write_text("package")
        if command[0] == "env" and command[-1] in repository.PROGRAMS:
            (Path(command[2]) / "nvidia-smi_1_amd64.deb").write_text("package")
        return subprocess.CompletedProcess(command, 0, "amd64\n", "")


def test_packages_are_compiled_once_for_all_versions(tmp_path: Path) -> None:
    host, machine = Bench(), Machine(cache=tmp_path)
    first = package.build(host, machine, ["580.95.05", "580.105.08"])  # type: ignore[arg-type]
    assert [path.name for path in first] == [
        "coldiron-simulated-gpu_580.95.05_amd64.deb",
        "coldiron-simulated-gpu_580.105.08_amd64.deb",
    ]
    assert [command[0] for command in host.ran].count("gcc") == 2
    host.ran.clear()
    assert package.build(host, machine, ["580.95.05", "580.105.08"]) == first  # type: ignore[arg-type]
    assert {command[0] for command in host.ran} == {"dpkg"}
    assert not [path for path in first[0].parent.iterdir() if path.name.startswith(".")]


def test_the_package_stands_for_the_library_in_the_version_that_nvidia_smi_pins() -> None:
    text = package.control("amd64", "580.95.05")
    assert "Version: 580.95.05\n" in text
    assert "libnvidia-ml1 (= 550.163.01-2)" in text
    assert "SIMULATED" in text


def test_another_source_is_another_build() -> None:
    texts = package.sources()
    assert package.digest(texts) != package.digest({**texts, "state.c": ""})


def test_debians_programs_come_from_the_machines_own_archive(tmp_path: Path) -> None:
    host = Bench()
    parts = (
        ("", "http://archive.example/debian", ("main",)),
        ("-updates", "http://archive.example/debian", ("main",)),
    )
    store = tmp_path / "programs"
    found = repository.programs(host, store, AptSource(parts), "http://127.0.0.1:1")  # type: ignore[arg-type]
    assert [path.name for path in found] == ["nvidia-smi_1_amd64.deb"]
    assert [command[-1] for command in host.ran] == ["update", repository.PROGRAMS[-1]]
    host.ran.clear()
    assert repository.programs(host, store, AptSource(parts), "") == found  # type: ignore[arg-type]
    assert not host.ran


class Index(Bench):
    """An index of Python packages that has what it is asked for."""

    def run(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.ran.append(command)
        place = Path(command[command.index("--dest") + 1])
        place.mkdir(parents=True)
        (place / "nvitop_exporter-1-py3-none-any.whl").write_text("wheel")
        return subprocess.CompletedProcess(command, 0, "", "")


def test_python_packages_are_fetched_by_their_hashes_once_for_each_list(tmp_path: Path) -> None:
    host, wanted, target = Index(), tmp_path / "requirements.txt", tmp_path / "served"
    for text, times in (("nvitop-exporter==1", 1), ("nvitop-exporter==1", 1), ("nvitop-exporter==2", 2)):
        wanted.write_text(text)
        repository.wheels(host, tmp_path / "store", wanted, target)  # type: ignore[arg-type]
        assert [path.name for path in target.iterdir()] == ["nvitop_exporter-1-py3-none-any.whl"]
        assert len(host.ran) == times
    assert "--require-hashes" in host.ran[0]
    assert (repository.find_collection() / repository.REQUIREMENTS).is_file()


def test_a_rack_says_where_its_repository_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout("r", tmp_path / "inventory", Machine(cache=tmp_path / "cache", lib=tmp_path / "lib"))
    key = SigningKey(tmp_path, "A" * 40)
    monkeypatch.setattr(repository.SigningKey, "make", lambda _: key)
    monkeypatch.setattr(repository.SigningKey, "public", "KEY")
    made: list[Path] = []

    def build(root: Path, packages: object, key: object) -> None:
        root.mkdir(parents=True)
        made.append(root)

    monkeypatch.setattr(repository, "build", build)
    monkeypatch.setattr(repository, "programs", lambda *_: [])
    monkeypatch.setattr(repository, "build_toolkit", lambda *_: None)
    monkeypatch.setattr(repository, "wheels", lambda *_: None)
    said: list[str] = []
    for _ in range(2):
        repository.make(Bench(), layout, AptSource(()), "", said.append)  # type: ignore[arg-type]
    assert made == [layout.data / "fixtures"]
    assert len(said) == 1
    layout.state.write_text(json.dumps({
        "nodes": {}, "name": "r", "sockets": "/run/x", "home_backend": "provided", "apt_mirror": "", "apt_proxy": "",
    }))  # fmt: skip
    found = connection_vars(tmp_path / "inventory")
    assert found is not None
    assert found["coldiron_rack"]["fixtures"] == {
        "uris": ["file:/srv/coldiron-fixtures"],
        "suites": ["./"],
        "key": str(layout.own / "fixtures.asc"),
        "fingerprints": ["A" * 40],
    }


def test_a_fault_is_asked_of_the_node() -> None:
    assert faults.command(["3", "xid79"], clear=False) == ["simulated-gpu", "fault", "3", "xid79"]
    assert faults.command(["3"], clear=True) == ["simulated-gpu", "fault", "3", "--clear"]
    for words in ([], ["three"], ["3", "xid79", "now"]):
        with pytest.raises(ColdironError, match="coldiron rack fault gpu02 gpu 3 xid79"):
            faults.command(words, clear=False)


class _Rack:
    """A rack with one node."""

    def standing(self) -> None:
        """Its state is not looked at."""

    def reachable(self, _: object, names: list[str]) -> list[str]:
        return names


@pytest.mark.parametrize(
    ("code", "out", "error", "words"),
    [
        (127, "", "not found", "gpu01 has no simulated driver"),
        (255, "", "no route", "gpu01 does not answer: no route"),
        (2, "", "simulated-gpu: no GPU 9; there are 4, from 0\n", "^gpu01: no GPU 9; there are 4, from 0$"),
    ],
)
def test_what_the_node_refuses_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, code: int, out: str, error: str, words: str
) -> None:
    monkeypatch.setattr(faults, "ssh_command", lambda *_: ["ssh"])
    monkeypatch.setattr(
        faults.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], code, out, error)
    )
    with pytest.raises(ColdironError, match=words):
        faults.fault(_Rack(), "gpu01", ["3", "ecc"], clear=False)  # type: ignore[arg-type]


def test_what_the_node_did_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "ssh_command", lambda *_: ["ssh"])
    done = subprocess.CompletedProcess([], 0, "GPU 3: ecc cleared\n", "")
    monkeypatch.setattr(faults.subprocess, "run", lambda *_, **__: done)
    assert faults.fault(_Rack(), "gpu01", ["3"], clear=True) == ["gpu01: GPU 3: ecc cleared"]  # type: ignore[arg-type]
