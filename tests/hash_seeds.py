"""Run code in processes with different hash seeds, which change the iteration order of sets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def outputs_of_processes(code: str, *hash_seeds: int) -> set[str]:
    """Return the distinct outputs of the code under each PYTHONHASHSEED: one if order has no effect."""
    return {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": f"src{os.pathsep}."},
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in hash_seeds
    }
