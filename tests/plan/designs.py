"""The reference designs: their plans, and the figures that their pages show.

    python -m tests.plan.designs        # writes the plan's figures into docs/designs/*.md

A page shows them between ``<!-- plan NAME -->`` and ``<!-- /plan -->``.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import textwrap
from pathlib import Path

from coldiron.plan import Plan, make
from coldiron.plan.findings import Finding
from coldiron.plan.show import shown_site
from coldiron.secrets.store import Store

ROOT = Path(__file__).parents[2]
INVENTORIES = ROOT / "inventories"
PAGES = ROOT / "docs" / "designs"
NAMES = ("starter", "edge", "dgx-h100-12", "hgx-h200-256")
BLOCK = re.compile(r"<!-- plan (?P<words>[a-z0-9 -]+) -->\n.*?<!-- /plan -->", re.DOTALL)
CAP = "    power: {fit_circuit: true}\n"
_WIDTH = 100


def copied(name: str, directory: Path, *, without_cap: bool = False) -> Path:
    """A design's inventory in ``directory``, with secrets; ``without_cap`` leaves the plan no cap to find."""
    inventory = directory / name
    shutil.copytree(INVENTORIES / name, inventory, ignore=shutil.ignore_patterns(".*", "vault.yml"))
    (inventory / ".vault-password").write_text("only for the test\n", encoding="utf-8")
    (inventory / ".vault-password").chmod(0o600)
    Store(inventory, b"only for the test").add_missing()
    if without_cap:
        file = inventory / "cluster.yml"
        text = file.read_text(encoding="utf-8")
        assert CAP in text
        file.write_text(text.replace(CAP, ""), encoding="utf-8")
    return inventory


def planned(name: str, *, without_cap: bool = False) -> Plan:
    """The whole plan of a design."""
    with tempfile.TemporaryDirectory() as directory:
        return make(copied(name, Path(directory), without_cap=without_cap))


def _sentence(finding: Finding) -> list[str]:
    text = f"{finding.severity}: {finding.what}; {finding.advice} [{finding.code}]"
    return textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)


def block(words: str) -> str:
    """What a page shows of a plan: its verdict, its findings, and what the site comes to."""
    name, _, how = words.partition(" ")
    plan = planned(name, without_cap=how == "without-cap")
    assert plan.design is not None
    lines = [plan.verdict]
    for finding in plan.findings:
        lines += ["", *_sentence(finding)]
    if not how:
        lines += ["", *shown_site(plan.design)]
    shown = "\n".join(lines)
    return f"<!-- plan {words} -->\n```\n{shown}\n```\n<!-- /plan -->"


def filled(page: str) -> str:
    """A page with the plan's figures as they are now."""
    return BLOCK.sub(lambda match: block(match["words"]), page)


def main() -> None:
    """Write the plan's figures into every page that is not current."""
    for path in sorted(PAGES.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (now := filled(text)) != text:
            path.write_text(now, encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: written")


if __name__ == "__main__":
    main()
