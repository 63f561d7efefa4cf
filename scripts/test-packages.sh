#!/usr/bin/env bash
# Install the Debian packages that only the tests need, and say so first: a browser that looks at the
# reports, and the shells that read the completion scripts.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/rack-packages.sh inventories/metal
missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
command -v zsh >/dev/null || missing+=(zsh)
command -v fish >/dev/null || missing+=(fish)
[ "${#missing[@]}" -gt 0 ] || exit 0
exec scripts/install-packages.sh "the test suite" "${missing[@]}"
