"""Options and fixtures of the tests on a whole site (test_site*.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldiron.testing.plugin import DEFAULT_INVENTORY
from tests.e2e.siterun import SiteRun

# The site's tests build on one another.
ORDER = (
    "test_site.py",
    "test_site_jobs.py",
    "test_verify.py",
    "test_runs.py",
    "test_slurm_edits.py",
    "test_site_secrets.py",
    "test_site_nodes.py",
    "test_repair.py",
    "test_site_faults.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what only these tests need."""
    parser.addoption("--exhaustive", action="store_true", help="kill a site's run at five points, not at one")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of the site's tests into their order; others keep theirs and come first."""
    items.sort(key=lambda item: ORDER.index(item.path.name) + 1 if item.path.name in ORDER else 0)


@pytest.fixture(scope="session")
def run(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> SiteRun:
    """The site under test: the first --inventory."""
    given = pytestconfig.getoption("--inventory") or [DEFAULT_INVENTORY]
    site = SiteRun(Path(given[0].split(",")[0]).resolve(), tmp_path_factory.mktemp("site"))
    site.mend()
    return site


@pytest.fixture(scope="session")
def converged(run: SiteRun) -> SiteRun:
    """The site with all stages done; done here when a test is run by itself."""
    if not run.converged:
        record = run.run()
        assert record.status == 0, record.told()
        run.converged = True
    return run
