"""Units: started once, restarted once, and no restart lost, whatever the run died of."""

from __future__ import annotations

from typing import Any

import pytest
from harness import Node, Unit, module


def declare(content: str, **unit: Any) -> dict[str, Any]:
    return {
        "files": [{"dest": "/etc/demo.conf", "content": content}],
        "units": [{"name": "demo", "restart_on": ["/etc/demo.conf"], **unit}],
    }


@pytest.fixture
def running(node: Node) -> Node:
    """A node whose demo.service runs on the contents "one"."""
    node.system.units["demo.service"] = Unit()
    result = node.converge(**declare("one"))
    assert result["units"]["enabled"] == result["units"]["started"] == ["demo.service"]
    assert result["units"]["restarted"] == []
    node.system.calls.clear()
    return node


def restarts(node: Node) -> int:
    return len(node.system.said("systemctl", "restart"))


def test_the_first_start_has_loaded_everything(running: Node) -> None:
    assert not running.converge(**declare("one"))["changed"]
    assert restarts(running) == 0


def test_nothing_to_do_costs_one_look(running: Node) -> None:
    running.system.packages["p"] = ("ii ", "1")
    running.converge(packages=["p"], **declare("one"))
    assert [argv[:2] for argv in running.system.calls] == [["dpkg-query", "-W"], ["systemctl", "show"]]


def test_a_change_restarts_once(running: Node) -> None:
    assert running.converge(**declare("two"))["units"]["restarted"] == ["demo.service"]
    assert not running.converge(**declare("two"))["changed"]
    assert restarts(running) == 1


def test_two_changes_restart_once(running: Node) -> None:
    declared = declare("two", restart_on=["/etc/demo*"])
    declared["files"].append({"dest": "/etc/demo2.conf", "content": "x"})
    assert running.converge(**declared)["units"]["restarted"] == ["demo.service"]
    assert restarts(running) == 1


def test_a_reload_where_reload_is_enough(running: Node) -> None:
    wanted = {"restart_on": [], "reload_on": ["/etc/demo.conf"]}
    assert running.converge(**declare("two", **wanted))["units"]["reloaded"] == ["demo.service"]
    assert running.system.said("systemctl", "reload", "demo.service")
    assert not running.converge(**declare("two", **wanted))["changed"]


def test_its_own_reload_command(running: Node) -> None:
    wanted = {"restart_on": [], "reload_on": ["/etc/demo.conf"], "reload_command": "democtl 'now then'"}
    assert running.converge(**declare("two", **wanted))["units"]["reloaded"] == ["demo.service"]
    assert running.system.said("timeout", "120", "democtl", "now then")


def test_a_unit_that_does_not_run_is_not_restarted(running: Node) -> None:
    running.system.units["demo.service"].active = "inactive"
    result = running.converge(**declare("two", state="none"))
    assert result["paths"] == ["/etc/demo.conf"]
    assert not any(result["units"].values())
    running.system.units["demo.service"].active = "active"  # somebody started it: it has loaded the new file
    assert not running.converge(**declare("two", state="none"))["changed"]


@pytest.mark.parametrize("where", ["put", "do_units", "say"])
def test_a_restart_that_was_cut_off_is_made_up_for(
    running: Node, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    real = getattr(module.Converge, where)

    def dies(self: Any, *args: Any) -> None:
        if where == "put":
            real(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Converge, where, dies)
    with pytest.raises(KeyboardInterrupt):
        running.converge(**declare("two"))
    monkeypatch.undo()
    assert running.read("/etc/demo.conf") == "two"
    result = running.converge(**declare("two"))
    assert result["paths"] == []
    assert result["units"]["restarted"] == ["demo.service"]
    assert not running.converge(**declare("two"))["changed"]


def test_a_hand_edit_repaired_by_a_run_that_died_is_no_exception(
    running: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.write("/etc/demo.conf", "edited by hand, and the daemon restarted by hand")
    monkeypatch.setattr(module.Converge, "do_units", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        running.converge(**declare("one"))
    monkeypatch.undo()
    assert running.converge(**declare("one"))["units"]["restarted"] == ["demo.service"]


def test_a_file_lost_by_an_exclusive_directory_counts(running: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    running.write("/etc/demo.d/stranger", "x")
    declared: dict[str, Any] = {
        "directories": [{"path": "/etc/demo.d", "exclusive": True}],
        "units": [{"name": "demo", "restart_on": ["/etc/demo.d/*"]}],
    }
    monkeypatch.setattr(module.Converge, "do_units", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        running.converge(**declared)
    monkeypatch.undo()
    assert running.converge(**declared)["units"]["restarted"] == ["demo.service"]
    assert not running.converge(**declared)["changed"]
    assert "" not in running.record("demo.service").values()


def test_a_restart_that_fails_is_tried_again(running: Node) -> None:
    running.system.units["demo.service"].fails = True
    running.system.other = lambda argv: (0, "cannot read\nbad line 7\n") if argv[0] == "journalctl" else None
    result = running.converge(**declare("two"))
    assert result["failed"]
    assert result["paths"] == ["/etc/demo.conf"]
    assert result["units"]["restarted"] == []
    assert "systemctl restart demo.service failed" in result["msg"]
    assert "the last words of demo.service: cannot read | bad line 7" in result["msg"]
    running.system.units["demo.service"].fails = False
    result = running.converge(**declare("two"))
    assert result["units"]["started"] == ["demo.service"]
    assert running.system.said("systemctl", "reset-failed", "demo.service")


def test_a_unit_that_dies_after_its_start_is_a_failure(node: Node) -> None:
    unit = node.system.units["demo.service"] = Unit()

    def dies(argv: list[str]) -> tuple[int, str] | None:
        if argv[:2] == ["systemctl", "start"]:
            unit.active, unit.sub = "activating", "auto-restart"
            return 0, ""
        return None

    node.system.other = dies
    result = node.converge(**declare("one"))
    assert "demo.service started and failed; the last words of demo.service: none" in result["msg"]


def test_a_unit_that_does_not_exist_is_named(node: Node) -> None:
    result = node.converge(units=[{"name": "nosuch"}])
    assert result["msg"] == "unit nosuch.service does not exist on this node: is its package among packages?"


def test_a_unit_that_should_be_stopped_may_be_missing(node: Node) -> None:
    assert not node.converge(units=[{"name": "nosuch", "state": "stopped", "enabled": False}])["changed"]


def test_unit_files_are_read_again_before_anything_starts(node: Node) -> None:
    node.system.units["demo.service"] = Unit()
    node.converge(
        files=[{"dest": "/etc/systemd/system/demo.service", "content": "[Service]\n"}],
        units=[{"name": "demo"}],
    )
    verbs = [argv[1] for argv in node.system.said("systemctl")]
    assert verbs == ["daemon-reload", "show", "enable", "start", "show"]


def test_units_that_systemd_knows_to_be_stale_are_read_again(running: Node) -> None:
    running.system.units["demo.service"].stale = "yes"
    running.converge(**declare("one"))
    assert running.system.said("systemctl", "daemon-reload")


def test_a_chroot_only_enables(node: Node) -> None:
    (node.root / "run/systemd/system").rmdir()
    node.system.units["demo.service"] = Unit()
    result = node.converge(
        sysctl=[{"name": "no.such", "value": 1}], sysctl_file="/etc/s.conf", **declare("one")
    )
    assert result["units"]["enabled"] == ["demo.service"]
    assert not result["units"]["started"]
    assert {argv[1] for argv in node.system.said("systemctl")} == {"is-enabled", "enable"}
    assert not node.converge(**declare("one"))["changed"]


def test_a_damaged_record_is_no_obstacle(running: Node) -> None:
    running.write("/var/lib/coldiron/converge/demo.service.json", '{"/etc/de')
    assert not running.converge(**declare("one"))["changed"]
    assert running.converge(**declare("two"))["units"]["restarted"] == ["demo.service"]


def test_records_are_for_root_alone(running: Node) -> None:
    folder = running.root / "var/lib/coldiron/converge"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_sysctl_is_written_where_it_differs(node: Node) -> None:
    node.write("/proc/sys/net/core/somaxconn", "128\n")
    node.write("/proc/sys/net/ipv4/tcp_rmem", "1\t2\t3\n")
    declared: dict[str, Any] = {
        "sysctl": [
            {"name": "net.core.somaxconn", "value": 4096},
            {"name": "net.ipv4.tcp_rmem", "value": "1 2 3"},
        ],
        "sysctl_file": "/etc/sysctl.d/90-x.conf",
    }
    module_files = node.converge(**declared)
    assert module_files["sysctl"] == ["net.core.somaxconn"]
    assert node.read("/proc/sys/net/core/somaxconn") == "4096"
    assert "net.core.somaxconn = 4096\nnet.ipv4.tcp_rmem = 1 2 3\n" in node.read("/etc/sysctl.d/90-x.conf")
    assert not node.converge(**declared)["changed"]


def test_an_unknown_sysctl_is_named(node: Node) -> None:
    declared: dict[str, Any] = {"sysctl": [{"name": "net.nosuch", "value": 1}], "sysctl_file": "/etc/s.conf"}
    assert "sysctl net.nosuch: this kernel does not know it" in node.converge(**declared)["msg"]
    assert not node.converge(check=True, **declared).get("failed")


def test_no_command_is_held_up_by_init_scripts_or_questions() -> None:
    said = module.spawn(["env"]).out.splitlines()
    assert {"SYSTEMCTL_SKIP_SYSV=1", "NEEDRESTART_SUSPEND=1", "DEBIAN_FRONTEND=noninteractive"} <= set(said)
