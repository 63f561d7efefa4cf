"""Packages by apt and dnf, accounts: one transaction, repaired and retried where that is known to help."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Node, module


def installs(node: Node) -> list[list[str]]:
    return [argv[argv.index("install") + 1 :] for argv in node.system.said("apt-get") if "install" in argv]


def updates(node: Node) -> int:
    return len([argv for argv in node.system.said("apt-get") if "update" in argv])


def test_one_transaction(node: Node) -> None:
    node.system.packages["old"] = ("ii ", "1")
    result = node.converge(
        packages=["a", {"name": "b", "version": "2.*", "hold": True}, {"name": "old", "state": "absent"}]
    )
    assert result["packages"] == ["a", "b=2.*", "old", "b"]
    assert installs(node) == [["a", "b=2.*", "old-"]]
    assert node.system.said("apt-mark") == [["apt-mark", "hold", "b"]]
    assert updates(node) == 0
    assert not node.converge(packages=["a", {"name": "b", "version": "2.*", "hold": True}])["changed"]


def test_a_pin_that_moves_a_held_package(node: Node) -> None:
    node.system.packages["slurmd"] = ("hi ", "1")
    node.converge(packages=[{"name": "slurmd", "version": "2", "hold": True}])
    order = [argv[:2] for argv in node.system.calls if argv[0] == "apt-mark" or "install" in argv]
    assert order == [["apt-mark", "unhold"], ["apt-get", "-y"], ["apt-mark", "hold"]]


@pytest.mark.parametrize("status", ["rc ", "iU ", "iHR", "un "])
def test_half_installed_is_not_installed(node: Node, status: str) -> None:
    node.system.packages["a"] = (status, "1")
    node.converge(packages=["a"])
    assert installs(node) == [["a"]]


def test_a_virtual_package_is_there_when_provided(node: Node) -> None:
    node.system.packages["mawk"] = ("ii ", "1")
    node.system.provides["mawk"] = "awk (= 1), other"
    assert not node.converge(packages=["awk"])["changed"]
    # By that name it cannot be removed either.
    assert not node.converge(packages=[{"name": "awk", "state": "absent"}])["changed"]


@pytest.mark.parametrize(
    "out",
    [
        "E: Unable to locate package a",
        "E: Version '2' for 'a' was not found",
        "E: Failed to fetch http://m/a.deb  404  Not Found [IP: ::1 80]",
    ],
)
def test_stale_lists_are_refreshed_once(node: Node, out: str) -> None:
    node.system.apt = [(100, out)]
    assert node.converge(packages=["a"])["packages"] == ["a"]
    assert (len(installs(node)), updates(node)) == (2, 1)
    node.system.apt = [(100, out), (100, out)]
    result = node.converge(packages=["b"])
    assert result["msg"] == f"apt cannot install b: {out}"
    assert not result["changed"]


def test_lists_that_were_never_fetched_are(node: Node) -> None:
    (node.root / "var/lib/apt/lists/mirror_Packages").unlink()
    node.converge(packages=["a"])
    assert (len(installs(node)), updates(node)) == (1, 1)


def test_a_dpkg_that_was_cut_off_is_finished(node: Node) -> None:
    node.system.apt = [
        (100, "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct")
    ]
    node.converge(packages=["a"])
    assert node.system.said("dpkg") == [["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"]]
    assert len(installs(node)) == 2


def test_an_error_is_one_sentence(node: Node) -> None:
    said = (
        "Reading package lists...\nSetting up a (1) ...\ndpkg: error processing package a (--configure):\n"
        " installed a package post-installation script subprocess returned error exit status 1\n"
        "Errors were encountered while processing:\n a\n"
        "E: Sub-process /usr/bin/dpkg returned an error code (1)\n"
    )
    node.system.apt = [(100, said)]
    assert node.converge(packages=["a"])["msg"] == (
        "apt cannot install a: dpkg: error processing package a (--configure): | "
        "installed a package post-installation script subprocess returned error exit status 1"
    )


def test_daemons_are_kept_from_starting_meanwhile(node: Node) -> None:
    seen = []

    def look(argv: list[str]) -> None:
        if "install" in argv:
            policy = node.root / "usr/sbin/policy-rc.d"
            seen.append((policy.stat().st_mode & 0o777, "exit 101" in policy.read_text()))

    node.system.other = look
    node.converge(packages=["a"])
    assert seen == [(0o755, True)]
    assert not (node.root / "usr/sbin/policy-rc.d").exists()


@pytest.mark.parametrize("outcome", ["goes well", "fails", "dies"])
def test_another_policy_comes_back(node: Node, outcome: str) -> None:
    node.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 104\n")

    def ends(argv: list[str]) -> tuple[int, str] | None:
        if "install" in argv and outcome == "dies":
            raise KeyboardInterrupt
        return (1, "E: no") if "install" in argv and outcome == "fails" else None

    node.system.other = ends
    if outcome == "dies":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module.Converge, "tidy", lambda self: None)  # killed: nothing is tidied up
            with pytest.raises(KeyboardInterrupt):
                node.converge(packages=["a"])
        assert "coldiron" in node.read("/usr/sbin/policy-rc.d")
        node.system.other = None
        node.converge(files=[])
    else:
        node.converge(packages=["a"])
    assert node.read("/usr/sbin/policy-rc.d") == "#!/bin/sh\nexit 104\n"
    assert not (node.root / "usr/sbin/policy-rc.d.before-converge").exists()


def test_our_own_policy_left_behind_goes(node: Node) -> None:
    node.write("/usr/sbin/policy-rc.d", module.POLICY_TEXT)
    node.converge(files=[])
    assert not (node.root / "usr/sbin/policy-rc.d").exists()


@pytest.fixture
def rpm(node: Node) -> Node:
    """A node of the other family: rpm and dnf answered from a table of versions."""
    (node.root / "usr/bin/dpkg-query").unlink()
    (node.root / "usr/bin/rpm").touch()
    have = {"chrony": "4.5-1.el9", "slurm": "24.11.5-1.el9"}

    def answer(argv: list[str]) -> tuple[int, str] | None:
        if argv[0] == "rpm":
            asked = argv[argv.index("--") + 1 :]
            lines = [f"{n}\t{have[n]}" if n in have else f"package {n} is not installed" for n in asked]
            return 0, "\n".join(lines)
        if argv[0] == "dnf" and "install" in argv:
            have.update(dict.fromkeys(argv[argv.index("install") + 1 :], "1-1"))
        return None

    node.system.other = answer
    return node


def test_dnf(rpm: Node) -> None:
    assert not rpm.converge(packages=["chrony", {"name": "slurm", "version": "24.11.5-1*"}])["changed"]
    rpm.converge(packages=["chrony", {"name": "slurm", "version": "25.*", "hold": True}, "munge"])
    dnf = ["dnf", "-y"]
    assert rpm.system.said("dnf") == [
        [*dnf, "--setopt=install_weak_deps=False", "install", "slurm-25.*", "munge"],
        [*dnf, "versionlock", "add", "slurm"],
    ]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/dnf/plugins/versionlock.list", "# Added lock on Mon\nslurm-0:24.11.5-1.el9.*\n"),
        ("/etc/dnf/versionlock.toml", 'version = "1.0"\n[[packages]]\nname = "slurm"\n'),
    ],
)
def test_versionlock_is_read(rpm: Node, path: str, text: str) -> None:
    rpm.write(path, text)
    assert not rpm.converge(packages=[{"name": "slurm", "hold": True}])["changed"]
    rpm.converge(packages=[{"name": "slurm", "hold": False}, {"name": "chrony", "state": "absent"}])
    assert rpm.system.said("dnf") == [
        ["dnf", "-y", "versionlock", "delete", "slurm"],
        ["dnf", "-y", "--setopt=install_weak_deps=False", "remove", "chrony"],
    ]


def test_neither_apt_nor_dnf(node: Node) -> None:
    (node.root / "usr/bin/dpkg-query").unlink()
    assert "neither apt nor dnf" in node.converge(packages=["a"])["msg"]
    assert not node.converge(files=[]).get("failed")


def test_accounts_that_are_there_cost_no_process(node: Node) -> None:
    declared: dict[str, Any] = {
        "groups": [{"name": "root", "gid": 0}],
        "users": [{"name": "root", "shell": "/bin/bash"}],
    }
    assert not node.converge(**declared)["changed"]
    assert node.system.calls == []


def test_a_password_is_in_no_argument_and_no_result(node: Node) -> None:
    result = node.converge(diff=True, users=[{"name": "root", "password": "$6$hush$hush"}])
    assert result["users"] == ["root"]
    assert "hush" not in str(result)
    assert "hush" not in str(node.system.calls)
    assert node.system.inputs == ["root:$6$hush$hush\n"]


def test_a_home_that_is_missing_is_made(node: Node) -> None:
    node.converge(users=[{"name": "root", "create_home": True}])
    assert node.system.calls == [["mkhomedir_helper", "root", "0077"]]
    (node.root / "root").mkdir()
    assert not node.converge(users=[{"name": "root", "create_home": True}])["changed"]


def test_a_user_tool_that_fails_names_the_account(node: Node) -> None:
    node.system.other = lambda argv: (8, "useradd: UID 7 is not unique") if argv[0] == "useradd" else None
    result = node.converge(users=[{"name": "eve", "uid": 7}])
    assert result["msg"] == "account eve: useradd: useradd: UID 7 is not unique"
    assert result["users"] == []


def test_a_lock_that_is_held(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl
    import os

    held = os.open(node.root / "var/lib", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    monkeypatch.setattr(module.time, "sleep", lambda _: None)
    assert "another converge call has been at work" in node.converge(files=[])["msg"]
    assert not node.converge(check=True, files=[]).get("failed")
    os.close(held)
