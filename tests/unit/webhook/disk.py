"""A disk that is full, for a ledger that is open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from coldiron.webhook.ledger import Ledger


@contextmanager
def full(ledger: Ledger) -> Iterator[None]:
    """While inside, no byte more can be written to the ledger's file."""
    descriptor = ledger._writer._descriptor
    kept, device = os.dup(descriptor), os.open("/dev/full", os.O_WRONLY)
    os.dup2(device, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
        os.close(device)
