"""The logs that Apache Kafka left behind, record by record as it decoded them itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LOGS = Path(__file__).parents[2] / "vectors" / "logs"
STORIES = sorted(path.name for path in LOGS.iterdir() if path.is_dir())


def expected_rows(story: str) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return the rows that Kafka's own tool printed for each log, by topic and partition."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for path in sorted((LOGS / story).glob("expected.jsonl*")):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="\n") as lines:
            for row in map(json.loads, lines):
                found.setdefault((row["topic"], row["partition"]), []).append(row)
    return found


def segments(story: str) -> Iterator[tuple[str, int, Path]]:
    """Yield topic, partition and file of each log of a scenario."""
    for path in sorted((LOGS / story).glob("*/*.log")):
        topic, _, partition = path.parent.name.rpartition("-")
        yield topic, int(partition), path
