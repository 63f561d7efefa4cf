"""A site from bare nodes: what the first run, the second one and --check do. The tests run in their order."""

from __future__ import annotations

import pytest

from tests.e2e.siterun import Record, SiteRun, hand_written

pytestmark = pytest.mark.site

# From the first stage to the last, a worker's tasks that run; so that speed does not rot.
TASKS_A_WORKER = 25


@pytest.fixture(scope="module")
def second(converged: SiteRun) -> tuple[Record, dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """A run on the converged site, with every node's daemons before and after it."""
    before = converged.identities()
    record = converged.run()
    return record, before, converged.identities()


def test_check_on_bare_nodes_foretells_the_first_run(run: SiteRun) -> None:
    run.reset()
    record = run.run("--check", "--diff")
    assert record.status == 0, record.told()
    # Every node is told what would be done to it, task by task.
    assert set(record.restless) == set(run.site.hosts()), record.told()
    assert {host for host, name in record.changed} == set(run.site.hosts())


def test_check_has_changed_nothing(run: SiteRun) -> None:
    for host in run.site.hosts():
        assert run.on(host, "ls /etc/chrony /etc/slurm /etc/munge 2>/dev/null || true").strip() == ""


def test_the_first_run_makes_the_site(run: SiteRun) -> None:
    record = run.run()
    run.converged = record.status == 0
    assert record.status == 0, record.told()
    assert set(record.restless) == set(run.site.hosts())


def test_the_second_run_changes_nothing(
    second: tuple[Record, dict[str, dict[str, str]], dict[str, dict[str, str]]], run: SiteRun
) -> None:
    record = second[0]
    assert record.status == 0, record.told()
    assert set(record.stats) >= set(run.site.hosts())
    assert record.changed == []
    assert record.restless == {}


def test_the_second_run_restarts_no_daemon(
    second: tuple[Record, dict[str, dict[str, str]], dict[str, dict[str, str]]],
) -> None:
    _, before, after = second
    assert all(len(services) > 3 for services in before.values()), "no daemons were seen"
    for host, services in before.items():
        assert {name: after[host].get(name) for name in services} == services, host


def test_a_worker_has_few_tasks(
    second: tuple[Record, dict[str, dict[str, str]], dict[str, dict[str, str]]], run: SiteRun
) -> None:
    for worker in run.workers:
        tasks = second[0].tasks[worker]
        assert len(tasks) <= TASKS_A_WORKER, f"{worker}: {len(tasks)} tasks: {tasks}"


def test_check_on_the_converged_site_is_silent(converged: SiteRun) -> None:
    record = converged.run("--check", "--diff")
    assert record.status == 0, record.told()
    assert record.changed == []


def test_a_hand_written_inventory_says_the_same(converged: SiteRun) -> None:
    record = converged.run(inventory=hand_written(converged))
    assert record.status == 0, record.told()
    assert set(record.stats) >= set(converged.site.hosts())
    assert record.changed == []
