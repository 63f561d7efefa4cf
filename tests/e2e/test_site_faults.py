"""A run that is killed, and a node that is dead: the next run, and the other nodes, go on."""

from __future__ import annotations

import pytest

from tests.e2e.siterun import Record, SiteRun

pytestmark = pytest.mark.site

# After how many percent of its tasks a fresh worker's run is killed; the first is always tried.
KILL_POINTS = (60, 5, 30, 75, 90)


def kill_points(config: pytest.Config) -> list[int]:
    """Return the points to kill at: one, or all of them with --exhaustive."""
    return list(KILL_POINTS if config.getoption("--exhaustive") else KILL_POINTS[:1])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the kill once a point."""
    if "point" in metafunc.fixturenames:
        metafunc.parametrize("point", kill_points(metafunc.config))


def without(record: Record, host: str) -> list[tuple[str, str]]:
    """Return a record's changes on the other hosts."""
    return [(name, task) for name, task in record.changed if name != host]


def test_the_site_is_as_it_was_without_the_removed_node(converged: SiteRun) -> None:
    """The file order puts this behind the tests that add and remove a node."""
    record = converged.run()
    assert record.status == 0, record.told()
    assert record.changed == []


def test_a_killed_run_is_made_up_for(converged: SiteRun, point: int) -> None:
    worker = converged.workers[-1]
    tasks = len(converged.run("--check").tasks[worker])
    converged.reset(worker)
    assert converged.run_killed(worker, max(1, tasks * point // 100)), (
        "the run ended before it could be killed"
    )
    record = converged.run()
    assert record.status == 0, record.told()
    assert without(record, worker) == []
    again = converged.run()
    assert again.status == 0, again.told()
    assert again.changed == []
    state = converged.wait_for_state(worker, ("idle",))
    assert state == "idle"
    assert converged.as_user(f"srun -w {worker} hostname").strip() == worker


def test_a_dead_worker_holds_up_nobody(converged: SiteRun) -> None:
    worker, others = converged.workers[-1], converged.workers[:-1]
    converged.site.connections.run(worker, "systemctl poweroff --no-block", timeout=10)
    converged.wait_for_death(worker)
    # Something to do on another worker, so that "goes on" is more than "has nothing to do".
    converged.on(others[0], "systemctl stop munge")
    try:
        record = converged.run()
        assert record.stats[worker]["unreachable"] == 1, record.told()
        assert {host for host, counts in record.stats.items() if counts["unreachable"]} == {worker}
        assert {host for host, name in record.changed} == {others[0]}, record.told()
        assert converged.on(others[0], "systemctl is-active munge").strip() == "active"
        # It stays what it was to the others: Slurm knows it, its name is there.
        assert f"NodeName={worker}" in converged.on(converged.head, f"scontrol show node {worker}")
        assert worker in converged.on(others[0], f"getent hosts {worker}")
    finally:
        converged.revive()
    again = converged.run()
    assert again.status == 0, again.told()
    assert converged.wait_for_state(worker, ("idle",)) == "idle"


def test_after_a_power_cut_there_is_nothing_to_do(converged: SiteRun) -> None:
    """What a boot puts back, or does not bring up again, would show as a change or as a node out of service."""
    for host in converged.site.hosts("cluster"):
        converged.site.connections.run(host, "systemctl poweroff --no-block", timeout=10)
    for host in converged.site.hosts("cluster"):
        converged.wait_for_death(host)
    converged.revive()
    record = converged.run()
    assert record.status == 0, record.told()
    assert record.changed == [], record.told()
    for worker in converged.workers:
        assert converged.wait_for_state(worker, ("idle",)) == "idle"
    answer = converged.as_user(f"srun --nodes={len(converged.workers)} hostname")
    assert sorted(answer.split()) == sorted(converged.workers)
