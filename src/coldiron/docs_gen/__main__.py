"""``python -m coldiron.docs_gen``: the options tables of the roles' READMEs, and the reference of cluster.yml."""

from __future__ import annotations

import sys

from coldiron.docs_gen.tables import main

sys.exit(main())
