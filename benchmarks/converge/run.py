#!/usr/bin/env python3
"""Measure what bringing a cluster to its declared state costs, beside the least that it could cost.

    python benchmarks/converge/run.py --workers 1,4,16 --repeat 3

Docs: docs/performance.md. Only this file is run by name; the work is in main.py beside it.
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    runpy.run_module("benchmarks.converge.main", run_name="__main__")
