"""Render the reference page of all settings: `python -m konvene.configs.reference FILE` writes it.

A test compares the page in the repository with the rendered one, so that no setting changes unnoticed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from konvene.configs.broker.table import BROKER_TABLES
from konvene.configs.group import GROUP, LIMITS
from konvene.configs.setting import Setting
from konvene.configs.topic import TOPIC

__all__ = ["render_reference"]

HEAD = """# Settings

All settings of konvene, rendered from the tables in `konvene.configs`. After a change there, run
`python -m konvene.configs.reference docs/reference/configs.md`.

- **Default** is konvene's; Kafka's is beside it if it differs.
- **Changed** is how a setting can be changed while the broker runs: for the *cluster*, for one *broker*,
  or not at all (*start*).
- A setting marked *no effect* is accepted with a notice, so that a file made for Kafka works, and changes
  nothing on a single node. A setting marked *internal* is listed by DescribeConfigs only if it is set.
- Unknown names are rejected, with similar known names as suggestions.
"""

CHANGED = {"no": "start", "cluster-wide": "cluster", "per-broker": "broker"}


def render_reference() -> str:
    """Return the text of the page docs/reference/configs.md."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield HEAD
    yield "## Broker\n"
    yield "Set in `server.properties` or with `--set name=value`.\n"
    for title, rows in BROKER_TABLES.items():
        yield f"### {title}\n"
        yield from _table(rows, "Changed")
    yield "## Topic\n"
    yield "Set when a topic is created or altered. A topic without an override follows the broker.\n"
    yield from _table(TOPIC.values(), "Follows")
    yield "## Group\n"
    yield "Set by altering a GROUP resource. A group without an override follows the broker; an override must"
    yield "be within the broker's limits.\n"
    yield from _table(GROUP.values(), "Follows")
    yield "| Group setting | Lowest | Highest |"
    yield "| --- | --- | --- |"
    for name, (low, high) in LIMITS.items():
        yield f"| `{name}` | {f'`{low}`' if low else ''} | {f'`{high}`' if high else ''} |"


def _table(rows: Iterable[Setting], last: str) -> Iterator[str]:
    yield f"| Name | Kind | Default | Bounds | {last} | Meaning |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for row in rows:
        link = CHANGED.get(row.dynamic) or ", ".join(f"`{name}`" for name in row.synonyms)
        cells = (f"`{row.name}`", row.kind.name.lower(), _default(row), row.bounds(), link, _meaning(row))
        yield f"| {' | '.join(cells)} |"
    yield ""


def _default(row: Setting) -> str:
    ours = _value(row.render(row.default))
    if row.kafka_default is None:
        return ours
    return f"{ours} (Kafka: {_value(row.render(row.kafka_default))})"


def _value(text: str | None) -> str:
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"


def _meaning(row: Setting) -> str:
    marks = ["*No effect.*"] * row.unused + ["*Internal.*"] * row.internal
    return " ".join([row.sentence, *([row.note] if row.note else ()), *marks]).replace("|", "\\|")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reference(), encoding="utf-8")
