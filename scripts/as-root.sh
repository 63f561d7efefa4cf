#!/usr/bin/env bash
# Run a command as root: as it is, or through sudo.
set -euo pipefail
if [ "$(id -u)" = 0 ]; then
  exec "$@"
elif command -v sudo >/dev/null; then
  exec sudo --preserve-env=CI,NO_COLOR,COLDIRON_VENV env "PATH=$PATH" "$@"
fi
echo "coldiron: the virtual rack needs root; run the same command as root, or install sudo" >&2
exit 5
