#!/usr/bin/env bash
# Install the Debian packages that the rack needs, and say so first.
set -euo pipefail
cd "$(dirname "$0")/.."
missing=$("${COLDIRON_VENV:-.venv}/bin/coldiron" rack requirements --missing)
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086  # one word a package
set -- $missing
if ! command -v apt-get >/dev/null; then
  echo "coldiron: the virtual rack runs on Debian 12 or 13; here there is no apt-get. Missing: $*" >&2
  exit 5
fi
[ "$(id -u)" = 0 ] || { echo "coldiron: installing packages needs root: run \`sudo make demo\`" >&2; exit 5; }
echo "coldiron: installing the Debian packages that the rack needs: $*"
install() { RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >/tmp/coldiron-apt.$$ 2>&1; }
trap 'rm -f /tmp/coldiron-apt.$$' EXIT
# The lists may be absent or old: fetched only when the packages cannot be had without.
install "$@" || { apt-get update -q >/dev/null 2>&1 || true; install "$@"; } || {
  tail -n 5 /tmp/coldiron-apt.$$ >&2
  echo "coldiron: the packages above could not be installed; is there a network? Then: apt-get update && apt-get install $*" >&2
  exit 5
}
