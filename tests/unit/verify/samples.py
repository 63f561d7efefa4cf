"""A verification as the tests of the page and of the terminal want it: a bit of everything."""

from __future__ import annotations

from coldiron.verify.results import Command, Node, Result, Test, Verification

STARTED = 1_790_000_000.0


def passed(role: str, node: str, name: str = "test_the_daemon_runs", *commands: str) -> Test:
    """A test that passed."""
    return Test(
        role,
        node,
        name,
        Result.PASSED,
        0.2,
        commands=[Command(node, text, 0, seconds=0.1) for text in commands],
    )


def failed(role: str, node: str, name: str = "test_the_daemon_runs", **more: object) -> Test:
    """A test that failed, with the command that shows it."""
    command = Command(node, "systemctl is-active chrony", 3, "inactive\n", "", 0.1)
    fields: dict[str, object] = {"message": "Does not hold: is_running", "commands": [command], **more}
    return Test(role, node, name, Result.FAILED, 1.5, **fields)  # type: ignore[arg-type]


def verification(*tests: Test, **more: object) -> Verification:
    """A verification of head01, gpu01 and gpu02 with these tests."""
    fields: dict[str, object] = {
        "cluster": "lab",
        "inventory": "inventories/lab",
        "command": ["coldiron", "verify", "-i", "inventories/lab"],
        "started": STARTED,
        "ended": STARTED + 21,
        "nodes": [Node("head01", "head"), Node("gpu01", "gpu"), Node("gpu02", "gpu")],
        "roles": list(dict.fromkeys(test.role for test in tests)),
        "tests": list(tests),
        "versions": {"coldiron": "1.2.3"},
        **more,
    }
    return Verification(**fields)  # type: ignore[arg-type]


def mixed() -> Verification:
    """Two nodes where the clock is stopped, one that cannot be tested, one that is silent, and good news."""
    nodes = [Node("head01", "head"), Node("gpu01", "gpu"), Node("gpu02", "gpu")]
    nodes.append(Node("gpu03", "gpu", "ssh: connect to host 192.0.2.3 port 22: No route to host"))
    return verification(
        *(passed("base", node.name, "test_has_its_name", "uname -n") for node in nodes[:3]),
        passed("time", "head01", "test_the_daemon_runs", "systemctl is-active chrony"),
        failed("time", "gpu01"),
        failed("time", "gpu02"),
        Test("time", "gpu02", "test_the_clocks_agree", Result.ERROR, message="set-up broke", hint="a hint"),
        Test("nfs", "head01", "test_mounts_are_there[a]", Result.SKIPPED, message="no mounts"),
        nodes=nodes,
        left_out=["slurm_worker: A job runs here"],
        simulated_gpus=True,
        revision="abc1234+",
    )
