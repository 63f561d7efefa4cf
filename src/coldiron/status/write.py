"""``coldiron status --html``: ask, and write the page."""

from __future__ import annotations

import time
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.inventory.findings import shown_path
from coldiron.provision.whole import replace_file
from coldiron.status.client import Alertmanager, Prometheus
from coldiron.status.overview import look
from coldiron.status.page import headline, overview_page
from coldiron.status.where import watch_of


def write_status(inventory: Path, file: Path) -> str:
    """Write how the cluster of ``inventory`` is into ``file``; return that in a line.

    Raises ColdironError where the cluster is not watched, its Prometheus does not answer, or the file cannot be
    written; then an older file is left as it was.
    """
    if file.is_dir() or not file.absolute().parent.is_dir():
        raise ColdironError(f"{shown_path(file)}: give a file in a directory that is there", ExitCode.USAGE)
    watch = watch_of(inventory)
    manager = Alertmanager(watch.alertmanager) if watch.alertmanager else None
    overview = look(Prometheus(watch.prometheus), manager, watch.cluster, watch.nodes, time.time())
    page = overview_page(overview, watch.prometheus.address)
    try:
        # Where a web server shows it, that reads it.
        replace_file(file, page, 0o644)
    except OSError as error:
        raise ColdironError(f"{shown_path(file)} cannot be written: {error.strerror}") from error
    return f"{watch.cluster}: {headline(overview)}; {shown_path(file)}"
