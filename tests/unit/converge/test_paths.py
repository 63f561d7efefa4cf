"""Files, directories and links: the node ends as declared, nothing is written when it is, never half a file."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from harness import Node, module

FILES = [
    {"dest": "/etc/demo/a.conf", "content": "one\ntwo\n"},
    {"dest": "/etc/demo/key", "content": "hush-hush", "secret": True},
]


def test_makes_what_is_declared_and_then_nothing(node: Node) -> None:
    declared: dict[str, Any] = {
        "directories": [{"path": "/srv/demo", "mode": "0750"}],
        "files": FILES,
        "links": [{"path": "/etc/localtime", "src": "/usr/share/zoneinfo/UTC"}],
    }
    result = node.converge(**declared)
    assert result["changed"]
    assert result["paths"] == ["/srv/demo", "/etc/demo/a.conf", "/etc/demo/key", "/etc/localtime"]
    assert node.read("/etc/demo/a.conf") == "one\ntwo\n"
    assert stat.S_IMODE((node.root / "srv/demo").stat().st_mode) == 0o750
    assert stat.S_IMODE((node.root / "etc/demo/a.conf").stat().st_mode) == 0o644
    assert stat.S_IMODE((node.root / "etc/demo/key").stat().st_mode) == 0o600
    assert os.readlink(node.root / "etc/localtime") == "/usr/share/zoneinfo/UTC"
    before = node.tree()
    again = node.converge(**declared)
    assert not again["changed"]
    assert node.tree() == before


def test_no_directory_for_staging_stays(node: Node) -> None:
    node.converge(files=FILES)
    assert not [path for path in node.root.rglob("*") if module.STAGE in path.name]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"content": "x", "mode": "0644"}, {"content": "x", "mode": "0600"}),
        ({"content": "x", "mode": "0600"}, {"content": "longer", "mode": "0600"}),
    ],
    ids=["mode", "contents"],
)
def test_one_difference_is_enough(node: Node, first: dict[str, str], then: dict[str, str]) -> None:
    node.converge(files=[{"dest": "/etc/f", **first}])
    assert node.converge(files=[{"dest": "/etc/f", **then}])["paths"] == ["/etc/f"]
    assert node.read("/etc/f") == then["content"]
    assert stat.S_IMODE((node.root / "etc/f").stat().st_mode) == int(then["mode"], 8)


def test_check_writes_nothing_and_predicts(node: Node) -> None:
    before = node.tree()
    result = node.converge(
        check=True,
        diff=True,
        packages=["chrony"],
        groups=[{"name": "hpc"}],
        users=[{"name": "alice", "group": "hpc"}],
        directories=[{"path": "/srv/a", "owner": "alice"}],
        files=[{"dest": "/etc/a", "content": "x", "owner": "alice", "group": "hpc"}],
        sysctl=[{"name": "net.core.somaxconn", "value": 1}],
        sysctl_file="/etc/sysctl.d/90-x.conf",
        units=[{"name": "chrony"}],
    )
    assert node.tree() == before
    assert result["changed"]
    assert result["packages"] == ["chrony"]
    assert result["users"] == ["hpc", "alice"]
    assert result["paths"] == ["/srv/a", "/etc/a", "/etc/sysctl.d/90-x.conf"]
    assert result["units"]["enabled"] == result["units"]["started"] == ["chrony.service"]
    assert [argv[0] for argv in node.system.calls if argv[0] not in ("dpkg-query", "systemctl")] == []
    assert node.system.said("systemctl") == node.system.said("systemctl", "show")


def test_check_of_a_converged_node_is_silent(node: Node) -> None:
    node.converge(files=FILES)
    result = node.converge(check=True, diff=True, files=FILES)
    assert not result["changed"]
    assert result["diff"] == []


def test_one_diff_a_file_with_headers(node: Node) -> None:
    node.write("/etc/demo/a.conf", "one\n")
    result = node.converge(diff=True, files=FILES)
    assert [entry["before_header"] for entry in result["diff"]] == ["/etc/demo/a.conf", "/etc/demo/key"]
    assert result["diff"][0]["before"] == "one\n"
    assert result["diff"][0]["after"] == "one\ntwo\n"
    assert result["diff"][0]["after_header"].startswith("/etc/demo/a.conf (0644 ")


def test_a_mode_is_a_diff_too(node: Node) -> None:
    node.converge(files=[{"dest": "/etc/f", "content": "x"}])
    shown = node.converge(diff=True, files=[{"dest": "/etc/f", "content": "x", "mode": "0600"}])["diff"]
    assert "mode 0644" in shown[0]["before"]
    assert "mode 0600" in shown[0]["after"]


def test_binary_contents_are_not_shown(node: Node) -> None:
    node.write("/templates/blob", "\0\1\2")
    shown = node.converge(diff=True, files=[{"dest": "/etc/blob", "src": "blob"}])["diff"]
    assert shown[0]["after"] == "[3 bytes: not shown]\n"


def test_secrets_are_not_shown(node: Node) -> None:
    node.write("/etc/demo/key", "older-hush")
    assert "hush" not in str(node.converge(diff=True, files=FILES))


def test_absent_paths_go(node: Node) -> None:
    node.write("/etc/old.d/sub/x", "x")
    node.write("/etc/old.conf", "x")
    declared: dict[str, Any] = {
        "files": [{"dest": "/etc/old.conf", "state": "absent"}],
        "directories": [{"path": "/etc/old.d", "state": "absent"}],
        "links": [{"path": "/etc/no-link", "state": "absent"}],
    }
    assert node.converge(**declared)["paths"] == ["/etc/old.d", "/etc/old.conf"]
    assert not (node.root / "etc/old.d").exists()
    assert not node.converge(**declared)["changed"]


def test_exclusive_removes_what_is_not_named(node: Node) -> None:
    node.write("/etc/d/stranger", "x")
    node.write("/etc/d/tree/deep/file", "x")
    (node.root / "etc/d/link").symlink_to("/etc")
    declared: dict[str, Any] = {
        "directories": [{"path": "/etc/d", "exclusive": True}, {"path": "/etc/d/kept"}],
        "files": [{"dest": "/etc/d/mine", "content": "x"}, {"dest": "/etc/d/sub/too", "content": "x"}],
        "links": [{"path": "/etc/d/here", "src": "mine"}],
    }
    result = node.converge(**declared)
    assert {"/etc/d/stranger", "/etc/d/tree", "/etc/d/link"} <= set(result["paths"])
    assert sorted(os.listdir(node.root / "etc/d")) == ["here", "kept", "mine", "sub"]
    assert not node.converge(**declared)["changed"]


def test_a_mount_point_is_neither_removed_nor_entered(node: Node) -> None:
    node.write("/etc/d/mnt/inside", "x")
    node.write("/proc/self/mountinfo", "1 0 0:1 / /etc/d/mnt rw - tmpfs tmpfs rw\n")
    result = node.converge(directories=[{"path": "/etc/d", "exclusive": True}])
    assert node.read("/etc/d/mnt/inside") == "x"
    assert "/etc/d/mnt" not in result["paths"]
    refused = node.converge(directories=[{"path": "/etc/d", "state": "absent"}])
    assert refused["failed"]
    assert "holds a mount point" in refused["msg"]


def test_a_link_in_the_way_is_replaced_not_followed(node: Node) -> None:
    node.write("/etc/precious", "precious")
    (node.root / "etc/f").symlink_to(node.root / "etc/precious")
    node.converge(files=[{"dest": "/etc/f", "content": "mine"}])
    assert node.read("/etc/precious") == "precious"
    assert not (node.root / "etc/f").is_symlink()


def test_a_directory_in_the_way_is_refused(node: Node) -> None:
    node.write("/etc/f/x", "x")
    result = node.converge(files=[{"dest": "/etc/f", "content": "mine"}])
    assert result["msg"] == "files[0] /etc/f is a directory on this node"
    assert not result["changed"]


def test_a_file_in_a_directorys_place_is_refused(node: Node) -> None:
    node.write("/etc/d", "x")
    assert (
        "directories[0] /etc/d is not a directory" in node.converge(directories=[{"path": "/etc/d"}])["msg"]
    )


def test_another_users_link_is_not_followed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.write("/etc/target/x", "x")
    (node.root / "home").mkdir()
    (node.root / "home/ssh").symlink_to(node.root / "etc/target")
    real = os.stat

    def theirs(path: Any, **kwargs: Any) -> os.stat_result:
        status = list(real(path, **kwargs))
        status[4] = 1234 if str(path).rstrip("/").endswith("/home") else 0
        return os.stat_result(status)

    monkeypatch.setattr(module.os, "stat", theirs)
    result = node.converge(files=[{"dest": "/home/ssh/keys", "content": "mine"}])
    assert "is a link made by another user than root" in result["msg"]
    assert not (node.root / "etc/target/keys").exists()


def test_an_unknown_owner_is_named(node: Node) -> None:
    result = node.converge(files=[{"dest": "/etc/f", "content": "x", "owner": "nosuchuser7"}])
    assert result["msg"] == "user nosuchuser7 does not exist on this node; declare it in users"


def test_an_invalid_set_changes_nothing(node: Node) -> None:
    node.write("/etc/a", "old")
    node.system.other = lambda argv: (1, "line 1: bad\nmore\n") if "checker" in argv else None
    result = node.converge(
        files=[
            {"dest": "/etc/a", "content": "new"},
            {"dest": "/etc/b", "content": "x", "validate": "checker -f %s"},
        ]
    )
    assert result["msg"] == "files[1] /etc/b is not valid, nothing was changed: checker: line 1: bad | more"
    assert not result["changed"]
    assert node.read("/etc/a") == "old"
    assert not [path for path in node.root.rglob("*") if module.STAGE in path.name]


def test_a_validator_sees_the_staged_file(node: Node) -> None:
    seen = []

    def look(argv: list[str]) -> None:
        if "checker" in argv:
            seen.append((Path(argv[-1]).read_text(), stat.S_IMODE(os.stat(argv[-1]).st_mode)))

    node.system.other = look
    file = {"dest": "/etc/b", "content": "new", "mode": "0640", "validate": "checker %s"}
    node.converge(files=[file])
    assert seen == [("new", 0o640)]
    node.converge(files=[file])
    assert len(seen) == 1


def test_what_cannot_be_shown_in_place_is_said(node: Node) -> None:
    result = node.converge(files=[{"dest": "/etc/b", "content": "new", "validate": "sshd -t"}])
    assert "/etc/b is not validated" in result["warnings"][0]


def test_a_secret_quoted_by_a_validator_is_masked(node: Node) -> None:
    node.system.other = lambda argv: (1, "bad word: swordfish") if "checker" in argv else None
    file = {"dest": "/etc/b", "content": "password=swordfish\n", "secret": True, "validate": "checker %s"}
    assert "swordfish" not in str(node.converge(files=[file]))


@pytest.mark.parametrize("number", range(1, 7))
def test_dying_between_two_swaps_leaves_whole_files(
    node: Node, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    old = {f"/etc/f{index}": "old" * 1000 for index in range(5)}
    for path, text in old.items():
        node.write(path, text)
    files = [{"dest": path, "content": "new" * 2000} for path in old]
    real, left = os.rename, [number]

    def dies(source: str, target: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(module.os, "rename", dies)
    monkeypatch.setattr(module.Converge, "erase", lambda *_: None)  # nor is anything tidied up
    with pytest.raises(KeyboardInterrupt) if number <= 5 else contextlib.nullcontext():
        node.converge(files=files)
    for path in old:
        assert node.read(path) in ("old" * 1000, "new" * 2000)
    monkeypatch.undo()
    node.converge(files=files)
    assert {node.read(path) for path in old} == {"new" * 2000}
    assert not [path for path in node.root.rglob("*") if module.STAGE in path.name]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (28, "the file system is full"),
        (30, "mounted read-only"),
        (122, "the quota is used up"),
        (1, "not permitted"),
    ],
)
def test_what_the_kernel_refuses_is_one_sentence(
    node: Node, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    node.write("/etc/f", "old")

    def refuses(self: Any, real: str, content: bytes, mode: int = 0) -> None:
        raise OSError(number, os.strerror(number), real)

    monkeypatch.setattr(module.Converge, "write", refuses)
    result = node.converge(files=[{"dest": "/etc/f", "content": "new"}])
    assert result["failed"]
    assert words in result["msg"]
    assert "/etc/f" in result["msg"]
    assert "\n" not in result["msg"]
    assert node.read("/etc/f") == "old"


def test_a_fault_of_our_own_quotes_no_secret(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(self: Any) -> None:
        raise KeyError("swordfish")

    monkeypatch.setattr(module.Converge, "do_paths", breaks)
    result = node.converge(files=[{"dest": "/etc/b", "content": "swordfish", "secret": True}])
    assert "KeyError" in result["msg"]
    assert "swordfish" not in str(result)
