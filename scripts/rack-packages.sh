#!/usr/bin/env bash
# Install the Debian packages that the rack needs, and say so first.
set -euo pipefail
cd "$(dirname "$0")/.."
missing=$("${COLDIRON_VENV:-.venv}/bin/coldiron" rack requirements --missing)
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086  # one word a package
exec scripts/install-packages.sh "the virtual rack" $missing
