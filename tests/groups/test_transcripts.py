"""Each file of `tests/scenarios` is a conversation and what must follow from it, line by line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from konvene.sim.transcript.scenario import run_file

SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios").glob("*/*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_transcript(path: Path) -> None:
    """What happens is what the file says happens, and every invariant holds; KONVENE_REWRITE=1 writes it
    down anew."""
    text = path.read_text()
    happened = run_file(text)
    if os.environ.get("KONVENE_REWRITE"):
        path.write_text(happened)
    assert happened == text
