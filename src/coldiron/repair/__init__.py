"""Repairing and reimaging one node: which state follows which, the journal of it, and what the evidence says.

A pure core: nothing here speaks to a node, a scheduler or a BMC. The only things touched are the journal's own files.
"""
