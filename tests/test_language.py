"""Names and docstrings use the field's words (`docs/STYLE.md`): people words are for people, not for data."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

PEOPLE_WORDS = {
    "told", "tells", "telling", "said", "says", "saying", "heard", "hears", "hearing", "asked", "gone",
    "whoever", "whom", "nobody", "somebody", "everybody", "anybody", "farewell", "unsaid", "untold",
}  # fmt: skip
"""Words that do not name responses, requests, configs or members that left."""

ANY_PEOPLE_WORD = re.compile("|".join(sorted(PEOPLE_WORDS)), re.IGNORECASE)

SOURCES = [
    path
    for folder in ("src", "bench", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != Path(__file__)
]


def identifier_words(name: str) -> set[str]:
    """Return the lower-case words of an identifier in snake_case or CamelCase."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def names(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each identifier of a module."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring: of modules, classes, functions, fields and constants."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            value = node.value.value
            if isinstance(value, str):
                yield node.lineno, value


def people_words(path: Path) -> list[str]:
    """Return the line and text of each people word in a name or a docstring."""
    text = path.read_text("utf-8")
    if not ANY_PEOPLE_WORD.search(text):
        return []  # Most files, which need not be tokenized.
    found = [f"{line}: {name}" for line, name in names(text) if identifier_words(name) & PEOPLE_WORDS]
    return found + [
        f"{line}: {' '.join(sorted(words))}"
        for line, docstring in docstrings(text)
        if (words := set(re.findall(r"[a-z]+", docstring.lower())) & PEOPLE_WORDS)
    ]


def test_names_and_docstrings_use_the_fields_words() -> None:
    """A people word in a name or a docstring is an error; the message names the lines."""
    found = {str(path.relative_to(ROOT)): words for path in SOURCES if (words := people_words(path))}
    assert found == {}
