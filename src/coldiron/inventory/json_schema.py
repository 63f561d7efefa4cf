"""The JSON schema of a cluster.yml, for editors: what each key may hold, with its description."""

from __future__ import annotations

import json
from typing import Any

from coldiron.inventory.model import ClusterFile

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Where `coldiron init` puts it: hidden, since Ansible takes every other file beside cluster.yml for an inventory.
FILE = ".cluster.schema.json"


def schema() -> dict[str, Any]:
    """The schema as plain data."""
    return {"$schema": DIALECT, **ClusterFile.model_json_schema()}


def schema_text() -> str:
    """The schema as the text of a file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def editor_line(where: str) -> str:
    """The first line of a cluster.yml, by which an editor's YAML language server finds the schema at ``where``."""
    return f"# yaml-language-server: $schema={where}"
