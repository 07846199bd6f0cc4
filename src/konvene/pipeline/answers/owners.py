"""Names of the owners of partitions and tasks in timelines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from konvene.pipeline.answers.sentences import short
from konvene.pipeline.row import Row

__all__ = ["owner_names"]


def owner_names(rows: Iterable[Row]) -> dict[str, str]:
    """Return display names by member id, from rows of `ownership` of one group: the instance or client id, or
    the short member id where members share it.

    Java's clients have the same client id in each process (`consumer-GROUP-1`). A member that only took the
    place of a former one, after a restart, keeps the name."""
    owned = list(rows)
    by_client: dict[str, str] = {
        row["member_id"]: row["instance_id"] or row["client_id"] or row["member_id"] for row in owned
    }
    busy: dict[str, list[tuple[int, float, str]]] = defaultdict(list)
    for row in owned:
        to_ms = float("inf") if row["to_ms"] is None else row["to_ms"]
        busy[by_client[row["member_id"]]].append((row["from_ms"], to_ms, row["member_id"]))
    shared = {name for name, spans in busy.items() if _overlap(sorted(spans))}
    return {
        member: short(member) if name in shared or name == member else name
        for member, name in by_client.items()
    }


def _overlap(spans: Sequence[tuple[int, float, str]]) -> bool:
    """Return True if two different members are present at the same time.

    A span has start, end and member id; spans are sorted by start."""
    ends: dict[str, float] = {}
    for from_ms, to_ms, member in spans:
        if any(end > from_ms for other, end in ends.items() if other != member):
            return True
        ends[member] = max(to_ms, ends.get(member, 0))
    return False
