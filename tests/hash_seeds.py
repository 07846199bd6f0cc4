"""Runs code in processes whose sets and dictionaries of text have other orders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def told_by_processes(code: str, *hash_seeds: int) -> set[str]:
    """What the code prints, under each PYTHONHASHSEED: one text if no order shows."""
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
