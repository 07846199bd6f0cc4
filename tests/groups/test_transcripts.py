"""Each file of `tests/scenarios/classic` is a conversation and what must follow from it, line by line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.groups.transcript import Transcript

SCENARIOS = sorted((Path(__file__).parent.parent / "scenarios" / "classic").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_transcript(path: Path) -> None:
    """What happens is what the file says happens; KONVENE_REWRITE=1 writes it down anew."""
    text = path.read_text()
    happened = run(text)
    if os.environ.get("KONVENE_REWRITE"):
        path.write_text(happened)
    assert happened == text


def run(text: str) -> str:
    """The same file with what happened as its expectations."""
    transcript = Transcript()
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.split("\n")
        if "----" not in lines:
            blocks.append(block)
            transcript.run([line for line in lines if line.startswith("config ")])
            continue
        commands = lines[: lines.index("----")]
        said = transcript.run([line for line in commands if line and not line.startswith("#")])
        blocks.append("\n".join([*commands, "----", *said]))
    return "\n\n".join(blocks) + "\n"
