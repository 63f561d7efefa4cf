"""What the documentation says that the code already knows: written from the code, so that it cannot drift.

``tables`` fills the options tables of the roles' READMEs; those are committed, and a contract test compares
them. ``cluster_file`` writes the reference of cluster.yml into docs/reference, ``repair_tables`` the tables of
docs/repair.md; both are committed too. ``pages`` makes the generated pages of the site (roles, plugins, command line)
anew at every build; ``hook`` hands them to MkDocs.
"""

from __future__ import annotations

from coldiron.docs_gen.tables import main, run, table, table_findings

__all__ = ["main", "run", "table", "table_findings"]
