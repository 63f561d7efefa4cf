#!/usr/bin/env bash
# rack-packages.sh [INVENTORY]: install the Debian packages that the rack needs, and say so first. With an inventory,
# those too that its machines need: QEMU from the release's backports, where they have it.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${COLDIRON_VENV:-.venv}/bin
missing=$("$bin/coldiron" rack requirements --missing ${1:+-i "$1"})
[ -n "$missing" ] || exit 0
if grep -qx qemu-system-x86 <<<"$missing"; then
  own=$(mktemp -d)
  trap 'rm -rf "$own"' EXIT
  APT_CONFIG=$("$bin/python" -m coldiron.rack.metal.backports "$own") \
    scripts/install-packages.sh "the rack's machines" qemu-system-x86 2>/dev/null ||
    echo "coldiron: no newer QEMU in this release's backports: the release's own is taken"
  missing=$("$bin/coldiron" rack requirements --missing ${1:+-i "$1"})
  [ -n "$missing" ] || exit 0
fi
# shellcheck disable=SC2086  # one word a package
scripts/install-packages.sh "the virtual rack" $missing
