"""What is kept of an event, and what a failure says in one sentence."""

from __future__ import annotations

from typing import Any

import pytest

from coldiron.run.trim import LONGEST_TEXT, seconds, trim, unified
from coldiron.run.why import LONGEST_SENTENCE, explain


def event(kind: str, result: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    data = {"task": "T", "host": "n1", "task_uuid": "u", "playbook_uuid": "p", **more}
    if result is not None:
        data["res"] = result
    return {"event": kind, "created": "2026-11-21T16:53:07.5+00:00", "event_data": data, "stdout": ""}


def kept(kind: str, result: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    found = trim(event(kind, result, **more))
    assert found is not None
    return found[2]


def test_a_good_result_keeps_what_counts() -> None:
    result = {
        "changed": True,
        "dest": "/etc/x",
        "invocation": {"module_args": {"password": "hunter22"}},
        "uid": 0,
    }
    times = {"start": "2026-11-21T16:53:06+00:00", "end": "2026-11-21T16:53:07+00:00"}
    data = kept("runner_on_ok", result, **times)
    assert data["result"] == {"changed": True, "dest": "/etc/x"}
    assert data["end"] - data["start"] == 1.0
    assert "playbook_uuid" not in data


def test_a_failed_result_keeps_all_that_it_said() -> None:
    result = {"msg": "no", "stderr": "e" * 40_000, "invocation": {"a": 1}, "_ansible_verbose": 1, "uid": 0}
    data = kept("runner_on_failed", result, ignore_errors=True)
    assert data["ignored"] is True
    assert set(data["result"]) == {"msg", "stderr", "uid"}
    assert len(data["result"]["stderr"]) < LONGEST_TEXT + 100
    assert "left out here" in data["result"]["stderr"]


def test_a_hidden_result() -> None:
    data = kept("runner_on_failed", {"censored": "the output has been hidden", "secret": "x"})
    assert data["result"] == {"censored": True}
    hidden = event("runner_on_ok", {"censored": "the output has been hidden"})
    hidden["stdout"] = "\x1b[0;33mchanged: [n1] => {...}\x1b[0m"
    found = trim(hidden)
    assert found is not None
    assert found[2]["result"] == {"censored": True, "changed": True}


def test_a_loop_keeps_the_items_that_tell() -> None:
    items = [
        {"item": "a", "changed": False},
        {"item": "b", "changed": True},
        {"item": "c", "failed": True, "msg": "m"},
    ]
    data = kept("runner_on_failed", {"msg": "One or more items failed", "results": [*items, "odd"]})
    assert [item["item"] for item in data["result"]["results"]] == ["b", "c"]
    assert data["result"]["items"] == 3


def test_what_is_dropped() -> None:
    for kind in ("runner_item_on_ok", "runner_retry", "EOF", "on_file_diff", ""):
        assert trim(event(kind)) is None
    assert trim({"event": "verbose", "stdout": "Using ansible.cfg"}) is None
    found = trim({"event": "verbose", "stdout": "\x1b[31mERROR! no playbook\x1b[0m\r"})
    assert found is not None
    assert found[2]["text"] == "ERROR! no playbook"


def test_a_handler_and_a_recap() -> None:
    assert kept("playbook_on_task_start", is_conditional=True)["handler"] is True
    data = kept("playbook_on_stats", ok={"n1": 3}, failures={}, processed={"n1": 1})
    assert data == {"ok": {"n1": 3}, "failures": {}}


def test_times() -> None:
    assert seconds("1970-01-01T00:00:01+00:00") == 1.0
    assert seconds("yesterday") is None
    assert seconds(3) is None


def test_diffs() -> None:
    one = {
        "before_header": "/etc/x",
        "after_header": "/etc/x (0644 root:root)",
        "before": "a\n",
        "after": "b\n",
    }
    (found,) = unified(one)
    assert found["what"] == "/etc/x"
    assert found["diff"].splitlines()[-2:] == ["-a", "+b"]
    assert unified([{"before": "same", "after": "same"}, "odd", {}]) == []
    assert unified({"prepared": "as it is\n"}) == [{"what": "", "diff": "as it is\n"}]
    (state,) = unified(
        {"before": {"path": "/x", "state": "absent"}, "after": {"path": "/x", "state": "directory"}}
    )
    assert "+state: directory" in state["diff"]
    (number,) = unified({"before": 1, "after": 2})
    assert "+2" in number["diff"]
    (long,) = unified({"before": "", "after": "\n".join(map(str, range(5000)))})
    assert "more lines" in long["diff"] or "left out" in long["diff"]
    assert unified(None) == []


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ({"msg": "chrony has no server"}, "chrony has no server"),
        ({"msg": "Task failed: chrony has no server\nmore"}, "chrony has no server"),
        ({"msg": ["a", "b"]}, "a b"),
        ({"msg": "non-zero return code", "rc": 3, "cmd": ["a", "b"], "stderr": "x\nz\n"}, "`a b` ended with 3: z"),
        ({"msg": "non-zero return code", "rc": 3, "cmd": "a", "stderr": ""}, "`a` ended with 3"),
        (
            {"msg": "The command exited with a non-zero return code.", "rc": 3, "cmd": ["a"], "stderr": ""},
            "`a` ended with 3",
        ),
        ({"msg": "", "stdout": "said\n"}, "said"),
        ({}, "it failed and said nothing"),
        ({"censored": True}, "it failed; what it said is hidden, because the task handles a secret (no_log)"),
        ({"msg": "MODULE FAILURE\nx", "module_stderr": "Trace\nKeyError: 'x'"}, "the module broke: KeyError: 'x'"),
        ({"msg": "MODULE FAILURE"}, "MODULE FAILURE"),
        ({"msg": "x" * 9000}, "x" * (LONGEST_SENTENCE - 1) + "…"),
    ],
)  # fmt: skip
def test_a_sentence(result: dict[str, Any], sentence: str) -> None:
    assert explain(result, "n1")[0] == sentence


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("n1: Permission denied (publickey).", "ssh-add -l"),
        ("Load key \"/k\": Permission denied\nroot@n1: Permission denied (publickey).", "private key"),
        ("Host key verification failed.", "ssh-keygen -R"),
        ("ssh: connect to host n1 port 22: No route to host", "is n1 on"),
        ("ssh: Could not resolve hostname n1: Name or service not known", "ansible_host"),
        ("sign_and_send_pubkey: signing failed: agent refused operation", "ssh-agent"),
    ],
)  # fmt: skip
def test_a_hint_for_a_host_out_of_reach(said: str, hint: str) -> None:
    message = f"Failed to connect to the host via ssh: Warning: Permanently added 'n1' to the list.\n{said}"
    sentence, advice = explain({"msg": message}, "n1", unreachable=True)
    assert "Permanently added" not in sentence
    assert sentence in said
    assert hint in advice


def test_a_connection_that_breaks_says_no_more_than_why() -> None:
    message = (
        'Data could not be sent to remote host "10.0.0.1". Make sure this host can be reached over ssh: '
    )
    refused = "ssh: connect to host 10.0.0.1 port 22: Connection refused\r\n"
    assert explain({"msg": message + refused}, "n1", unreachable=True)[0] == refused.strip()


def test_hints_of_roles_and_of_others() -> None:
    assert explain({"msg": "no", "hint": "write\nit"})[1] == "write it"
    assert "df -h" in explain({"msg": "No space left on device"}, "n1")[1]
    started = "chrony.service started and failed; the last words of chrony.service: Fatal error"
    assert explain({"msg": started}, "n1")[1] == "on n1: journalctl -u chrony.service"
    assert "{curly}" in explain({"msg": "unit {curly} does not exist on this node"}, "n1")[1]
    # What a daemon says of its own connections is nothing about ours.
    assert explain({"msg": "mysqld: Connection refused"}, "n1")[1] == ""
    assert explain({}, unreachable=True)[0] == "it could not be reached, and ssh said nothing"
