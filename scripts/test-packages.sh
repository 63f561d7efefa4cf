#!/usr/bin/env bash
# test-packages.sh [INVENTORY]: install the Debian packages that only the tests need, and say so first: a browser that
# looks at the reports, the shells that read the completion scripts, what fetches Grafana's types, and what an inventory's
# machines need.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/rack-packages.sh ${1:+"$1"}
missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
command -v zsh >/dev/null || missing+=(zsh)
command -v fish >/dev/null || missing+=(fish)
command -v npm >/dev/null || missing+=(npm)
# One of the tests' own machines has a BMC that speaks IPMI only.
if [ $# -gt 0 ]; then
  command -v ipmi_sim >/dev/null || missing+=(openipmi)
  command -v ipmitool >/dev/null || missing+=(ipmitool)
fi
[ "${#missing[@]}" -gt 0 ] || exit 0
exec scripts/install-packages.sh "the test suite" "${missing[@]}"
