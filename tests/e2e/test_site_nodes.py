"""A node comes and goes while a job runs elsewhere: nobody else is disturbed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coldiron.testing.steps import rack
from tests.e2e.siterun import SiteRun

pytestmark = pytest.mark.site

NEW = "gpu04"
VERB_SECONDS = 300


@pytest.fixture(scope="module")
def grown(converged: SiteRun) -> Iterator[SiteRun]:
    """The same site, its cluster.yml with one worker more, and that one's node up and bare."""
    with converged.edited("gpu[01-03]", "gpu[01-04]") as grown:
        rack("up", grown.inventory, NEW)
        yield grown
        rack("down", grown.inventory, NEW)


@pytest.fixture(scope="module")
def job(converged: SiteRun) -> Iterator[str]:
    """A long job on the first GPU node."""
    with converged.job_on("gpu01") as number:
        yield number


def facts_of(run: SiteRun, job: str) -> dict[str, str]:
    """Return what must not change about a running job."""
    words = dict(
        word.split("=", 1) for word in run.on(run.head, f"scontrol -o show job {job}").split() if "=" in word
    )
    return {key: words[key] for key in ("JobState", "StartTime", "Restarts", "NodeList")}


def without_new(run: SiteRun) -> dict[str, dict[str, str]]:
    """Return the daemons of all hosts but the new one."""
    return run.identities(f"cluster:!{NEW}")


def test_a_node_is_added(grown: SiteRun, converged: SiteRun, job: str) -> None:
    before, daemons = facts_of(converged, job), without_new(grown)
    assert before["JobState"] == "RUNNING"
    grown.verb("node", "add", NEW, seconds=VERB_SECONDS)
    assert grown.wait_for_state(NEW, ("idle",)) == "idle"
    assert grown.as_user(f"srun -w {NEW} --gres=gpu:1 hostname").strip() == NEW
    assert facts_of(converged, job) == before
    assert without_new(grown) == daemons


def test_the_whole_site_has_nothing_left_to_do(grown: SiteRun) -> None:
    record = grown.run()
    assert record.status == 0, record.told()
    assert record.changed == []


def test_a_node_is_removed(grown: SiteRun, converged: SiteRun, job: str) -> None:
    before, daemons = facts_of(converged, job), without_new(grown)
    grown.verb("node", "remove", NEW, "--yes", seconds=VERB_SECONDS)
    assert facts_of(converged, job) == before
    assert without_new(grown) == daemons
    assert NEW not in grown.on(grown.head, "scontrol show nodes")
    lookup = grown.site.connections.run(grown.head, f"getent hosts {NEW}")
    assert lookup.returncode != 0, lookup.stdout
