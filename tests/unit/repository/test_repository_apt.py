"""The module beside a real apt in a root of its own: what it writes is read, refused and put back by apt itself."""

from __future__ import annotations

import importlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.coldiron.cluster.plugins.module_utils import repository_files as texts

from coldiron.testing.aptrepo import Package, SigningKey, build
from coldiron.testing.aptrepo.repository import sign

repository = importlib.import_module("ansible_collections.coldiron.cluster.plugins.modules.repository")
SETTINGS = """
Dir "{root}/";
Dir::Etc::sourcelist "/dev/null";
Dir::State::status "{root}/status";
APT::Sandbox::User "";
Acquire::http::Proxy "DIRECT";
"""
INSTALLED = "Package: tool\nStatus: install ok installed\nVersion: {}\nArchitecture: all\nMaintainer: a\n\n"


@dataclass
class Node:
    """An apt of its own, the module as it runs there, and a repository to use."""

    root: Path
    served: Path
    capsys: pytest.CaptureFixture[str]

    def run(self, *given: dict[str, Any], check: bool = False) -> dict[str, Any]:
        arguments = {"repositories": [*given], "_ansible_check_mode": check}
        with patch_module_args(arguments), pytest.raises(SystemExit):
            repository.main()
        return json.loads(self.capsys.readouterr().out)

    def of(self, name: str, signer: SigningKey, **own: Any) -> dict[str, Any]:
        address = f"file:{self.served}"
        base = {"name": name, "uris": [address], "suites": ["./"], "key": signer.public}
        return {**base, "fingerprints": [signer.fingerprint], **own}

    def apt(self, *words: str) -> str:
        """What apt answers. It fails where apt does, as when it cannot read its sources."""
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def candidate(self) -> str:
        said = self.apt("apt-cache", "policy", "tool")
        return next((line.split()[1] for line in said.splitlines() if "Candidate:" in line), "")

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted((self.root / "etc").rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Node:
    root = tmp_path / "root"
    for directory in ("etc/apt/sources.list.d", "etc/apt/preferences.d", "etc/apt/keyrings",
                      "var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):  # fmt: skip
        (root / directory).mkdir(parents=True)
    (root / "status").touch()
    settings = root / "apt.conf"
    settings.write_text(SETTINGS.format(root=root))
    monkeypatch.setenv("APT_CONFIG", str(settings))
    places = {kind: f"{root}{path}" for kind, path in repository.APT.items()}
    monkeypatch.setattr(repository, "APT", places)
    return Node(root, tmp_path / "served", capsys)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[SigningKey]:
    """The key that a maker has, and the one that the maker has next. Short paths, as gpg's sockets want."""
    home = tmp_path_factory.mktemp("k")
    return [SigningKey.make(home / name) for name in ("a", "b")]


def serve(node: Node, key: SigningKey, *versions: str) -> None:
    build(node.served, [Package("tool", version) for version in versions or ("1.0",)], key)


def test_two_roles_use_one_address_and_apt_reads_both(node, keys):
    serve(node, keys[0])
    assert node.run(node.of("driver", keys[0]))["changed"]
    assert node.run(node.of("toolkit", keys[0], priority=600))["changed"]
    node.apt("apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update")
    assert node.candidate() == "1.0"
    for name in ("driver", "toolkit"):
        assert not node.run(node.of(name, keys[0], priority=600 if name == "toolkit" else None))["changed"]
    assert [path for path in node.files() if "keyrings" in path] == []


def test_a_key_file_of_before_goes_and_is_not_fetched_again(node, keys):
    serve(node, keys[0])
    for name in ("driver", "toolkit"):
        file = node.root / f"etc/apt/keyrings/coldiron-{name}.asc"
        file.write_text(texts.trusted_key(keys[0].public.encode(), [keys[0].fingerprint]))
        text = texts.sources_text(node.of(name, keys[0], components=[]), str(file))
        (node.root / f"etc/apt/sources.list.d/coldiron-{name}.sources").write_text(text)
    for name in ("driver", "toolkit"):
        answer = node.run(node.of(name, keys[0], key="file:/there/is/none"))
        assert answer.get("changed"), answer
        node.apt("apt-get", "-q", "update")
    assert [path for path in node.files() if "keyrings" in path] == []


def test_a_new_key_is_taken_by_its_fingerprint_and_by_all_that_use_the_address(node, keys):
    serve(node, keys[0])
    for name in ("driver", "toolkit"):
        node.run(node.of(name, keys[0]))
    serve(node, keys[1], "2.0")
    assert node.run(node.of("driver", keys[1]))["changed"]
    # The other role has not run yet, and nothing that is installed in between fails.
    node.apt("apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update")
    assert node.candidate() == "2.0"
    assert not node.run(node.of("toolkit", keys[1]))["changed"]


def test_a_key_file_with_the_old_and_the_new_key_serves_before_and_after(node, keys):
    both = {
        "key": texts.armoured(b"".join(texts.dearmoured(key.public.encode()) for key in keys)),
        "fingerprints": [key.fingerprint for key in keys],
    }
    serve(node, keys[0])
    assert node.run(node.of("driver", keys[0]))["changed"]
    assert node.run(node.of("driver", keys[0], **both))["changed"]
    serve(node, keys[1], "2.0")
    node.apt("apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update")
    assert node.candidate() == "2.0"
    assert not node.run(node.of("driver", keys[0], **both))["changed"]


def test_the_old_key_is_refused_and_the_node_stays_as_it_was(node, keys):
    serve(node, keys[1])
    node.run(node.of("driver", keys[1]))
    before = node.files()
    answer = node.run(node.of("driver", keys[0]))
    assert "The node is as it was" in answer["msg"]
    assert node.files() == before
    answer = node.run(node.of("driver", keys[0], key=keys[1].public))
    assert f"holds the key {keys[1].fingerprint}" in answer["msg"]
    assert node.files() == before
    assert node.candidate() == "1.0"


def test_somebody_else_s_source_of_the_address_with_another_key_is_said(node, keys):
    serve(node, keys[0])
    (node.root / "etc/apt/keyrings/own.asc").write_text(keys[0].public)
    own = node.root / "etc/apt/sources.list.d/own.list"
    own.write_text(f"deb [signed-by={node.root}/etc/apt/keyrings/own.asc] file:{node.served} ./\n")
    before = node.files()
    answer = node.run(node.of("driver", keys[0]))
    assert "Conflicting values set for option Signed-By" in answer["msg"]
    assert node.files() == before


def test_a_repository_that_is_gone_hurts_only_who_needs_it(node, keys):
    serve(node, keys[0])
    node.run(node.of("driver", keys[0]))
    node.served.rename(node.served.with_name("away"))
    assert not node.run(node.of("driver", keys[0]))["changed"]
    before = node.files()
    answer = node.run(node.of("toolkit", keys[0]))
    assert "cannot be used" in answer["msg"]
    assert node.files() == before
    # What others serve can be read and installed.
    assert node.apt("apt-get", "-s", "install")


def test_a_pin_moves_a_package_down(node, keys):
    serve(node, keys[0], "1.0", "2.0")
    (node.root / "status").write_text(INSTALLED.format("2.0"))
    node.run(node.of("driver", keys[0]))
    assert node.candidate() == "2.0"
    pins = [{"packages": ["tool"], "version": "1.*"}]
    assert node.run(node.of("driver", keys[0], pins=pins))["changed"]
    assert node.candidate() == "1.0"
    said = node.apt("apt-get", "-s", "--allow-downgrades", "upgrade")
    assert "Inst tool [2.0] (1.0" in said


def test_a_check_says_what_would_change_and_writes_nothing(node, keys):
    serve(node, keys[0])
    assert node.run(node.of("driver", keys[0], key=f"file:{node.served}/key.asc"), check=True)["changed"]
    assert node.files() == {}
    node.run(node.of("driver", keys[0]))
    assert not node.run(node.of("driver", keys[0]), check=True)["changed"]
    sign(node.served, keys[1])
    before = node.files()
    said = node.run(node.of("driver", keys[1]), check=True)
    assert said["changed"]
    assert node.files() == before


def test_one_that_goes_leaves_the_others_their_key(node, keys):
    serve(node, keys[0])
    for name in ("driver", "toolkit"):
        node.run(node.of(name, keys[0]))
    assert node.run({"name": "driver", "state": "absent"})["changed"]
    node.apt("apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update")
    assert [*node.files()] == ["etc/apt/sources.list.d/coldiron-toolkit.sources"]
