"""Parse the pages of the documentation: fenced examples, links, tables and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


class Block(NamedTuple):
    """A fenced code block; `mark` is the argument of the `<!-- test: ... -->` comment before it."""

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
    """Return the text of a page without its fenced blocks."""
    return _BLOCK.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    """Return the targets of a page's links within the repository."""
    return [found for found in _LINK.findall(prose(page)) if not re.match(r"[a-z]+:", found)]


def spans(page: Path) -> list[str]:
    """Return the code spans of a page."""
    return _SPAN.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return the URL fragments of a page's headings, as GitHub derives them."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def rows(page: Path, table: str) -> list[list[str]]:
    """Return the rows of the table after `<!-- table: ... -->`, without the heading."""
    lines = page.read_text("utf-8").partition(f"<!-- table: {table} -->\n")[2].splitlines()
    found = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def commands() -> Iterator[tuple[str, str]]:
    """Yield the location and text of each `konvene` command in a script, console session or code span."""
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
