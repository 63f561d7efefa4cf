#!/usr/bin/env bash
# Write requirements.lock anew from pyproject.toml; what is locked stays unless --upgrade or -P PACKAGE is given.
# It needs uv, which nothing else here does: pip install uv
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "coldiron: uv is not here; type: pip install uv" >&2; exit 5; }
# One lock for every Python from 3.11 on: markers say what belongs to which.
uv pip compile pyproject.toml --group build --group test --group docs --group dashboards \
  --universal --python-version 3.11 --generate-hashes --no-header --quiet --output-file requirements.lock "$@"
