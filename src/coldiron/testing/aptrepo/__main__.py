"""``python -m coldiron.testing.aptrepo OUT``: the repository of fixture packages, and the fingerprint of its key."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from coldiron.errors import ColdironError
from coldiron.testing.aptrepo.fixtures import fixtures
from coldiron.testing.aptrepo.key import SigningKey
from coldiron.testing.aptrepo.package import Deb
from coldiron.testing.aptrepo.repository import build


def main(arguments: Sequence[str] | None = None) -> int:
    """Build it; print the key's fingerprint. The key is made once, in ``aptrepo-key`` beside the repository."""
    parser = argparse.ArgumentParser(prog="python -m coldiron.testing.aptrepo", description=__doc__)
    parser.add_argument("out", type=Path, help="the repository's folder; what is in it is replaced")
    parser.add_argument(
        "--deb", type=Path, action="append", default=[], help="a package that is made already"
    )
    given = parser.parse_args(arguments)
    simulated = any(path.name.startswith("coldiron-simulated-gpu_") for path in given.deb)
    try:
        key = SigningKey.make(given.out.resolve().parent / "aptrepo-key")
        build(given.out, [*fixtures(simulated), *(Deb(path) for path in given.deb)], key)
    except ColdironError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    print(key.fingerprint)
    return 0


if __name__ == "__main__":
    sys.exit(main())
