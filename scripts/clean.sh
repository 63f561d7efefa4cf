#!/usr/bin/env bash
# Take every trace away: running racks of this checkout, their caches, generated secrets, .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
coldiron="${COLDIRON_VENV:-.venv}/bin/coldiron"
failed=0
for state in inventories/*/.rack molecule/default/inventory/.rack .cache/site/virtual/.rack \
  /var/lib/coldiron/rehearsal/*/.rack; do
  [ -d "$state" ] || continue
  if [ -x "$coldiron" ]; then
    "$coldiron" rack down -i "$(dirname "$state")" || failed=1
  else
    echo "coldiron: $(dirname "$state") has a rack but ${COLDIRON_VENV:-.venv} is gone; run \`make setup\`, then \`make clean\` again" >&2
    failed=1
  fi
done
[ "$failed" = 0 ] || exit 1
rm -rf /var/lib/coldiron/rehearsal
if [ -x "$coldiron" ]; then "$coldiron" rack purge; fi
rm -rf .venv .venv-* .cache artifacts dist build context site .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage* htmlcov .ansible
rm -f inventories/virtual/.vault-password inventories/virtual/group_vars/all/vault.yml
find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
