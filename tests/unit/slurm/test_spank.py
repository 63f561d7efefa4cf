"""A SPANK plugin is built for the Slurm that is installed, again when that changes, and never loaded by another one."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest
import yaml
from ansible_collections.coldiron.cluster.plugins.module_utils import spank
from ansible_collections.coldiron.cluster.plugins.modules import spank_build, spank_install

from coldiron.testing.aptrepo import sources

ROOT = Path(__file__).parents[3]


def test_the_release_is_read_out_of_the_header_and_out_of_the_commands() -> None:
    header = "#define SLURM_VERSION_NUM(a,b,c) x\n#define SLURM_VERSION_NUMBER 0x180b05\n"
    assert spank.release_of(header) == "24.11.5"
    assert spank.release_of("#define SLURM_VERSION_NUMBER 0x160508") == "22.05.8"
    assert spank.release_of("nothing") == ""
    assert spank.release_said("slurm-wlm 24.11.5\n") == "24.11.5"
    assert spank.release_said("slurm 25.05.0-0rc1") == "25.05.0"
    assert spank.release_said("no such command") == ""


@pytest.mark.parametrize(
    ("built", "runs", "machine", "word"),
    [
        ("24.11.5", "24.11.5", "x86_64", ""),
        ("24.11.5", "24.11.9", "x86_64", ""),
        ("24.11.5", "25.05.1", "x86_64", "24.11.5"),
        ("24.11.5", "24.11.5", "aarch64", "aarch64"),
        ("24.11.5", "", "x86_64", "slurm_common"),
    ],
)
def test_a_plugin_that_slurm_would_refuse_is_refused_before(
    built: str, runs: str, machine: str, word: str
) -> None:
    why = spank.misfit(built, "x86_64", runs, machine)
    assert bool(why) == bool(word)
    assert word in why


def test_what_is_kept_counts_only_as_a_whole(tmp_path: Path) -> None:
    assert spank_build.kept(tmp_path, "p.so") == ({}, b"")
    digest = hashlib.sha256(b"built").hexdigest()
    note = spank_build.note_of("A" * 64, "24.11.5", "x86_64", digest)
    (tmp_path / "built.json").write_text(json.dumps(note))
    spank_build.place(tmp_path, "p.so", b"built")
    assert spank_build.kept(tmp_path, "p.so") == (note, b"built")
    assert note == spank_build.note_of("a" * 64, "24.11.5", "x86_64", digest)
    assert note != spank_build.note_of("a" * 64, "25.05.0", "x86_64", digest)
    (tmp_path / "p.so").write_bytes(b"half")
    assert spank_build.kept(tmp_path, "p.so") == ({}, b"")


def archive(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w") as stream:
        for name in names:
            stream.addfile(tarfile.TarInfo(name), io.BytesIO())
    return path


def test_a_source_stays_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    assert spank_build.unpack(archive(tmp_path / "a.tar", "p-1/Makefile"), tmp_path / "good").name == "p-1"
    for number, names in enumerate([("../x",), ("/etc/x",), ("a/x", "b/x"), ("x",)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(ValueError, match=r"neither|directories"):
            spank_build.unpack(archive(tmp_path / "b.tar", *names), folder)
        assert not (tmp_path / "x").exists()


def test_a_file_that_anybody_may_write_is_not_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spank_install.os, "chown", lambda *_: None)
    path = tmp_path / "lib" / "p.so"
    spank_install.write(path, b"built")
    assert path.read_bytes() == b"built"
    assert path.stat().st_mode & 0o777 == 0o644
    digest = hashlib.sha256(b"built").hexdigest()
    assert spank_install.is_there(path, digest) == (path.stat().st_uid == 0)
    path.chmod(0o666)
    assert not spank_install.is_there(path, digest)
    assert not spank_install.is_there(tmp_path / "none", digest)


def test_the_fixture_source_is_the_one_that_the_scenario_names() -> None:
    name, content = sources.pyxis()
    scenario = yaml.safe_load((ROOT / "molecule" / "pyxis" / "molecule.yml").read_text(encoding="utf-8"))
    said = scenario["provisioner"]["inventory"]["group_vars"]["enroot"]["pyxis_source"]
    assert said["url"].rpartition("/")[2] == name
    assert said["sha256"] == hashlib.sha256(content).hexdigest()
    assert said["version"] in name
