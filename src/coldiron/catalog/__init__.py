"""The hardware catalog: what GPUs, servers, adapters, switches and cables are, each figure with its source.

A figure for which no text was read is None, and whoever reads it has to say so. A site's own ``catalog.yml``
lies over what the package knows, field by field.
"""

from __future__ import annotations

from coldiron.catalog.load import Catalog, load
from coldiron.catalog.model import Cable, Entry, Gpu, Nic, Server, Source, Switch

__all__ = ["Cable", "Catalog", "Entry", "Gpu", "Nic", "Server", "Source", "Switch", "load"]
