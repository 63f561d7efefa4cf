"""A site that another Python and another ansible-core made: this one finds it as it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.siterun import SiteRun

pytestmark = pytest.mark.site


def test_a_run_changes_nothing(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    run = SiteRun(Path(pytestconfig.getoption("--inventory")[0]).resolve(), tmp_path)
    record = run.run()
    assert record.status == 0, record.told()
    assert set(record.stats) >= set(run.site.hosts())
    assert record.changed == []
