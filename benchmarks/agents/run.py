#!/usr/bin/env python3
"""Measure what the agents of monitoring and logging cost a node, and what its values cost their server.

    python benchmarks/agents/run.py --nodes 16,64

Docs: docs/monitoring.md. Only this file is run by name; the work is in main.py beside it.
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    runpy.run_module("benchmarks.agents.main", run_name="__main__")
