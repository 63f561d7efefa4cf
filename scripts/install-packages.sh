#!/usr/bin/env bash
# install-packages.sh WHAT PACKAGE...: install Debian packages that WHAT (a word or two) needs, and say so first.
set -euo pipefail
what=$1
shift
if ! command -v apt-get >/dev/null; then
  echo "coldiron: $what needs Debian 12 or 13; here there is no apt-get. Missing: $*" >&2
  exit 5
fi
[ "$(id -u)" = 0 ] || { echo "coldiron: installing packages needs root: run the same command as root, or install sudo" >&2; exit 5; }
echo "coldiron: installing the Debian packages that $what needs: $*"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() { RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >"$log" 2>&1; }
# The lists may be absent or old: fetched only when the packages cannot be had without.
install "$@" || { apt-get update -q >/dev/null 2>&1 || true; install "$@"; } || {
  tail -n 5 "$log" >&2
  echo "coldiron: the packages above could not be installed; is there a network? Then: apt-get update && apt-get install $*" >&2
  exit 5
}
