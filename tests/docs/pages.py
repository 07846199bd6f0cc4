"""The pages that tests read: their fenced examples, links, tables and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


class Block(NamedTuple):
    """A fenced block; `mark` is what the comment in front of it asks tests to do with it."""

    page: Path
    line: int
    mark: str
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


_BLOCK = re.compile(r"(?:<!-- test: (\w+) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")


def blocks() -> list[Block]:
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in _BLOCK.finditer(text):
            line = text[: match.start(3)].count("\n")
            found.append(Block(page, line, match[1] or "", match[2], match[3]))
    return found


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _BLOCK.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """Where a page's links within the repository point to."""
    return [found for found in _LINK.findall(prose(page)) if not re.match(r"[a-z]+:", found)]


def spans(page: Path) -> list[str]:
    """What stands in backticks."""
    return _SPAN.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """The fragments that a page's headings make, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def rows(page: Path, table: str) -> list[list[str]]:
    """The cells of the table behind the comment that names it, without its head."""
    lines = page.read_text("utf-8").partition(f"<!-- table: {table} -->\n")[2].splitlines()
    found = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def commands() -> Iterator[tuple[str, str]]:
    """Every `konvene ...` that a page shows, with where: in sessions, scripts and between backticks."""
    for block in blocks():
        if block.language in ("sh", "console"):
            for line in block.text.splitlines():
                if block.language == "console" and not line.startswith("$ "):
                    continue
                for part in re.split(r"[|;]|&&", line.removeprefix("$ ")):
                    if part.strip().startswith("konvene "):
                        yield str(block), re.split(r"\s[&>]|\s#", part.strip())[0]
    for page in PAGES:
        for span in spans(page):
            if span.startswith("konvene "):
                yield str(page.relative_to(ROOT)), span
