"""Counts with nouns: one function forms the plural, and texts for people use it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from konvene.plurals import counted, plural

SOURCES = Path(__file__).parents[1] / "src" / "konvene"
TEXTS = (
    "broker/app.py", "cli", "client", "groups/history", "groups/migration", "pipeline/answers", "sim/runs",
    "testing",
)  # fmt: skip
"""Modules with text for people."""

NOUNS = (
    "acknowledgement", "batch", "byte", "cause", "column", "commit", "delivery", "entry", "file", "group",
    "heartbeat", "line", "log", "member", "minute", "offset", "partition", "process", "rebalance", "record",
    "request", "row", "run", "seed", "segment", "standby", "step", "table", "task", "time", "topic",
    "transaction",
)  # fmt: skip

_PLURAL = re.compile(
    rf" (?:(?:more|older|share|active) )?(?:{'|'.join(plural(2, noun) for noun in NOUNS)})\b"
)

EXCEPTIONS = {
    "{header.size} bytes": "a batch has at least 61 bytes",
    "{size} bytes": "the frame is larger than the limit",
    "{action.at_byte} bytes": "the syntax of a fault",
    "{result.steps / wall_s:.0f} steps": "a rate",
    "{result.simulated_s / wall_s:.0f} times": "a ratio",
    "{kind} groups": "a type of groups",
    "{self.protocol} members": "a type of members",
    "{_share(len(chosen), facts.total)} members": "a share of the rebalances, in which members did something",
}
"""Texts without a count, or whose count is never 1, with the reason."""


@pytest.mark.parametrize(
    "count, noun, text",
    [
        (1, "partition", "1 partition"), (0, "partition", "0 partitions"), (1_204, "record", "1,204 records"),
        (1, "batch", "1 batch"), (2, "batch", "2 batches"), (2, "entry", "2 entries"), (3, "key", "3 keys"),
        (2, "process", "2 processes"), (1, "older rebalance", "1 older rebalance"),
    ],
)  # fmt: skip
def test_counted_nouns(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text


def modules() -> list[Path]:
    return [path for name in TEXTS for path in (sorted((SOURCES / name).rglob("*.py")) or [SOURCES / name])]


def texts(tree: ast.AST) -> Iterator[ast.JoinedStr]:
    """Yield the f-strings of a module, without those of `__repr__`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
            continue
        if isinstance(node, ast.JoinedStr):
            yield node
        yield from texts(node)


def test_texts_count_with_the_plural_function() -> None:
    """An f-string has no number before a fixed plural: `{n} records` would print `1 records`."""
    found = []
    for path in modules():
        for text in texts(ast.parse(path.read_text("utf-8"))):
            for value, after in zip(text.values, text.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                    continue
                noun = _PLURAL.match(str(after.value))
                shown = f"{ast.unparse(ast.JoinedStr([value]))[2:-1]}{noun[0] if noun else ''}"
                if noun and shown not in EXCEPTIONS:
                    found.append(f"{path.relative_to(SOURCES)}:{value.lineno}: {shown}")
    assert not found, "\n".join(found)


def test_exceptions_are_needed() -> None:
    shown = "".join(path.read_text("utf-8") for path in modules())
    assert all(text in shown for text in EXCEPTIONS)
