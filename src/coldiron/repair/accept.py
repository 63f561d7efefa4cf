"""Whether a node may take jobs again: ``python -m coldiron.repair.accept INVENTORY NODE``.

The roles' own tests run on it as ``coldiron verify`` runs them, and their page lies beside the inventory as always.
"""

from __future__ import annotations

import sys
from pathlib import Path

from coldiron.errors import ColdironError, ExitCode
from coldiron.verify.results import Node, Result, Test

# What cannot hold while the node is drained; Slurm itself is asked for it, before and after.
DRAINED = frozenset({("slurm_worker", "test_the_node_is_in_service")})
_NAMED = 3


class _Quiet:
    def begin(self, totals: dict[str, int], silent: list[Node]) -> None:
        """Say nothing."""

    def test(self, test: Test) -> None:
        """Say nothing."""


def verdict(tests: list[Test], silent: list[Node]) -> tuple[bool, str]:
    """Whether the node is accepted, and why not, or how many tests say so, in a line."""
    if silent:
        return False, f"the node does not answer: {silent[0].silent}"
    bad = [test for test in tests if test.result.bad and (test.role, test.name) not in DRAINED]
    passed = sum(test.result is Result.PASSED for test in tests)
    if not bad:
        return passed > 0, f"{passed} tests passed" if passed else "no test ran on it"
    named = "; ".join(f"{test.role}: {test.title}" for test in bad[:_NAMED])
    more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    return False, f"{len(bad)} of {len(tests)} tests failed: {named}{more}"


def main(words: list[str]) -> int:
    """Test the node ``words[1]`` of the inventory ``words[0]``; 0 where it is accepted."""
    from coldiron.testing.site import load_site
    from coldiron.verify import store
    from coldiron.verify.run import Wish, inventory_folder, verify

    source = Path(words[0])
    try:
        site = load_site((source,))
        found = verify(
            Wish((source,), limit=words[1]), site, _Quiet(), ["coldiron", "verify", "-l", words[1]]
        )
        store.keep(found, inventory_folder(source))
    except ColdironError as error:
        print(error.message, file=sys.stderr)
        return int(error.exit_code)
    well, why = verdict(found.tests, found.silent)
    print(why, file=sys.stdout if well else sys.stderr)
    return int(ExitCode.OK if well else ExitCode.HOSTS_FAILED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
