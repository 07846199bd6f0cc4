"""Read and write the files of conversations and recordings.

A conversation is a list of lines; empty lines and lines with # are comments. A recording has the same lines,
each followed by Kafka's responses, indented.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CONVERSATIONS = HERE / "conversations"
RECORDED = HERE / "recorded"
VERSION = "Apache Kafka 4.4.0"
HEADER = f"# Answers of {VERSION}. Not written by hand: KONVENE_DIFFERENTIAL=record\n"
INDENT = "    "

Step = tuple[str, list[str]]


@dataclass(frozen=True)
class Conversation:
    """The lines of a conversation and the profile of broker configs that it runs with."""

    profile: str
    name: str
    lines: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.profile}/{self.name}"

    @property
    def recording(self) -> Path:
        return RECORDED / self.profile / f"{self.name}.txt"


def written() -> list[Conversation]:
    """Read the conversations that are written by hand."""
    found = []
    for path in sorted(CONVERSATIONS.glob("*/*.txt")):
        lines = (line.strip() for line in path.read_text("utf-8").split("\n"))
        uncommented = tuple(line for line in lines if line and not line.startswith("#"))
        found.append(Conversation(path.parent.name, path.stem, uncommented))
    return found


def read(path: Path) -> list[Step]:
    """Read the steps of a recording: each line with its responses."""
    header, _, text = path.read_text("utf-8").partition("\n")
    assert header + "\n" == HEADER, f"{path.name} is not a recording of {VERSION}"
    steps: list[Step] = []
    for line in text.split("\n"):
        if line.startswith(INDENT):
            steps[-1][1].append(line.removeprefix(INDENT))
        elif line:
            steps.append((line, []))
    return steps


def write(path: Path, steps: list[Step]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines_ = [HEADER]
    for line, answers in steps:
        lines_.append(line + "\n")
        lines_ += [f"{INDENT}{answer}\n" for answer in answers]
    path.write_text("".join(lines_), "utf-8")
