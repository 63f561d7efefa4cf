"""python -m coldiron.dashboards [FOLDER]: write the dashboards as Grafana reads them."""

from __future__ import annotations

import sys
from pathlib import Path

from coldiron.dashboards.written import FOLDER, files


def main() -> None:
    """Write every dashboard; one that is made no more goes."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    made = files()
    for name, text in made.items():
        (folder / name).write_text(text, encoding="utf-8")
    for old in set(folder.glob("*.json")) - {folder / name for name in made}:
        old.unlink()
    print(f"{len(made)} dashboards in {folder}")


if __name__ == "__main__":
    main()
