"""Package files are fetched by their checksum, from where they are said to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.coldiron.cluster.plugins.modules import package_file

GOOD = {"name": "tool", "version": "1-1", "url": "https://mirror.example.com/tool.deb", "sha256": "a" * 64}


class Failed(Exception):
    """What the module would have ended with."""


class Module:
    """What the functions ask of a module: programs' answers, and an end."""

    def __init__(self, answers: dict[str, tuple[int, str, str]] | None = None) -> None:
        self.answers = answers or {}
        self.calls: list[list[str]] = []

    def run_command(self, command: list[str], **_: Any) -> tuple[int, str, str]:
        self.calls.append(command)
        return self.answers.get(command[0], (1, "", ""))

    def fail_json(self, msg: str) -> None:
        raise Failed(msg)

    def sha256(self, path: str) -> str:
        return "b" * 64 if Path(path).read_text() == "other" else "a" * 64


def test_a_declaration_is_looked_at_first() -> None:
    assert package_file.problems([GOOD, {**GOOD, "url": "mirror:pool/t.deb"}]) == []
    wrong = package_file.problems([{**GOOD, "sha256": "abc", "url": "ftp://x"}])
    assert len(wrong) == 2
    assert "64 hexadecimal digits" in wrong[0]
    assert "ftp://x" in wrong[1]


def test_what_is_removed_but_not_purged_is_not_installed() -> None:
    assert package_file.installed(Module({"dpkg-query": (0, "installed 1-1", "")}), "tool", True) == "1-1"
    assert package_file.installed(Module({"dpkg-query": (0, "config-files 1-1", "")}), "tool", True) == ""
    assert package_file.installed(Module(), "tool", True) == ""
    assert package_file.installed(Module({"rpm": (0, "installed 1-1", "")}), "tool", False) == "1-1"


def test_the_node_s_own_archive_stands_for_mirror(tmp_path: Path) -> None:
    module = Module({"apt-get": (0, "https://one.example/debian\nhttps://two.example/\n", "")})
    module.answers[package_file.APT_HELPER] = (0, "", "")
    assert package_file.download(module, "mirror:/pool/t.deb", str(tmp_path / "t"), True) == ""
    assert module.calls[-1][2] == "https://one.example/debian/pool/t.deb"
    assert "name no Debian archive" in package_file.download(Module(), "mirror:pool/t.deb", "/x", True)
    assert "name no Debian archive" in package_file.download(module, "mirror:pool/t.deb", "/x", False)


def test_why_a_file_cannot_be_fetched_is_said() -> None:
    module = Module({package_file.APT_HELPER: (100, "", "E: Failed to fetch\nE: Download Failed\n")})
    assert package_file.download(module, GOOD["url"], "/x", True) == "Failed to fetch Download Failed"
    assert "No such file" in package_file.download(Module(), "file:///no/such/file", "/no/x", True)


def test_another_file_is_never_installed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("right")
    item = {**GOOD, "url": f"file://{source}"}
    assert package_file.fetch(Module(), item, str(tmp_path), True) == str(tmp_path / "tool.deb")
    source.write_text("other")
    with pytest.raises(Failed, match="not the declared one"):
        package_file.fetch(Module(), item, str(tmp_path), True)
    with pytest.raises(Failed, match="cannot be fetched"):
        package_file.fetch(Module(), {**item, "url": "file:///no/such/file"}, str(tmp_path), True)
