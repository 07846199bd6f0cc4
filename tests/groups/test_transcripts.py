"""Transcripts: each file of `tests/scenarios` is a sequence of commands and their exact output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from konvene.sim.transcript.scenario import run_file

SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios").glob("*/*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_transcript(path: Path) -> None:
    """The output is that of the file, and every invariant holds; KONVENE_REWRITE=1 rewrites the file."""
    text = path.read_text()
    transcript = run_file(text)
    if os.environ.get("KONVENE_REWRITE"):
        path.write_text(transcript)
    assert transcript == text
