"""``python -m coldiron.rack.gpu [VERSION]...``: build the simulated driver's packages, and print where they lie."""

from __future__ import annotations

import sys

from coldiron.rack.gpu.package import DRIVER, build
from coldiron.rack.host import Host
from coldiron.rack.layout import Machine

if __name__ == "__main__":
    print(*build(Host(), Machine(), sys.argv[1:] or (DRIVER,)), sep="\n")
