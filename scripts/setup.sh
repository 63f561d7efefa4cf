#!/usr/bin/env bash
# Make .venv: locked Python packages, the package itself, and the checkout as collection coldiron.cluster.
# Runs again at no cost; an interrupted run is made up for (the stamp is written last).
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${COLDIRON_VENV:-.venv}
die() { echo "coldiron: $*" >&2; exit 5; }

find_python() {
  local candidate
  for candidate in ${COLDIRON_PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  die "no Python 3.11 or newer was found; install one (apt-get install python3 python3-venv) or name it: COLDIRON_PYTHON=/path make setup"
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "installing Debian packages needs root: run as root or install sudo"
  fi
}

python=$(find_python)
wanted="$("$python" --version) $(cat requirements.lock pyproject.toml galaxy.yml hatch_build.py scripts/setup.sh | sha256sum | cut -d' ' -f1) $PWD"
if [ "$(cat "$venv/.coldiron-setup" 2>/dev/null)" = "$wanted" ]; then
  exit 0
fi

[ -w . ] || die "$PWD cannot be written by $(id -un): clone the repository as this user, or run as $(stat -c %U .)"
free_kib=$(df --output=avail -k . | tail -n 1)
[ "$free_kib" -ge 1500000 ] || die "set-up needs 1.5 GB of free space here, $((free_kib / 1024)) MB are left; free some and run the same command again"

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  echo "coldiron: installing the Debian package python3-venv"
  as_root apt-get install -y -q python3-venv >/dev/null || die "python3-venv could not be installed; run: apt-get update && apt-get install python3-venv"
fi

echo "coldiron: setting up $venv ($("$python" --version)); about half a minute"
"$python" -m venv --clear "$venv"
# No byte code is compiled here: most of what is installed is never imported.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock \
  || die "the Python packages could not be installed (see above); is there a network? The same command goes on from here"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-compile -e . \
  || die "the checkout could not be installed into $venv (see above)"
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# What every run imports is compiled once, also for whoever has no right to write here or tells Python not to.
"$venv/bin/python" -m compileall -q -j 0 -x '/ansible_collections/' "$packages" >/dev/null || true
collection=$packages/ansible_collections/coldiron/cluster
mkdir -p "$collection"
# Its parts, not the checkout as a whole: what walks through the environment would come by here again without end.
for part in CHANGELOG.md LICENSE README.md galaxy.yml meta playbooks plugins roles; do
  ln -sfn "$PWD/$part" "$collection/$part"
done
echo "$wanted" >"$venv/.coldiron-setup"
