"""The hardware catalog: what GPUs, servers, adapters, switches and cables are, each figure with its source.

A figure for which no text was read is None, and whoever reads it has to say so. A site's own ``catalog.yml``
lies over what the package knows, field by field. ``load`` reads it all; ``model`` says what an entry holds.
"""
