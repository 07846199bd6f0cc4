"""What groups committed in transactions: each commit with what became of it, and what a producer's come to.

A transaction that was committed need not have moved its group: a commit that stands later in the log counts,
whenever the transaction ended. That is no error, and nobody tells the producer; so it is told here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from konvene.pipeline.answers.gold import Gold

__all__ = ["Commit", "Producer", "commits", "document", "producers"]


@dataclass(frozen=True, slots=True)
class Commit:
    """A row of `transactional_commit`."""

    row: dict[str, Any]

    def __repr__(self) -> str:
        return f"<{self.producer}: {self.row['committed_offset']} {self.outcome}>"

    @property
    def producer(self) -> str:
        """Its name; its id where nobody knows that."""
        return self.row["transactional_id"] or str(self.row["producer_id"])

    @property
    def outcome(self) -> str:
        """`committed`, `aborted`, `pending`, or `overtaken`: committed, and it did not count."""
        outcome: str = self.row["outcome"]
        return "overtaken" if outcome == "committed" and not self.row["counted"] else outcome

    @property
    def open_ms(self) -> int | None:
        """For how long it was pending; None while it is."""
        ended = self.row["ended_ms"]
        return None if ended is None else max(ended - self.row["timestamp_ms"], 0)


@dataclass(slots=True)
class Producer:
    """What one producer's commits for a group come to."""

    cluster: str
    group_id: str
    name: str
    outcomes: dict[str, int]
    longest_ms: int | None = None
    """For how long one was pending that is not any more."""

    @property
    def count(self) -> int:
        return sum(self.outcomes.values())


def commits(gold: Gold, groups: Sequence[str] = (), outcomes: Sequence[str] = ()) -> list[Commit]:
    """Those of these groups, none: of all; that came to this, nothing: to anything. Newest first."""
    found = [Commit(row) for row in gold.rows("transactional_commit", groups)]
    chosen = [each for each in found if not outcomes or each.outcome in outcomes]
    chosen.sort(key=_place, reverse=True)
    return chosen


def _place(commit: Commit) -> tuple[int, str, str, int, int]:
    row = commit.row
    return row["timestamp_ms"], row["cluster"], row["group_id"], row["log_partition"], row["log_offset"]


def producers(told: Iterable[Commit]) -> list[Producer]:
    """Who committed these, by group and name."""
    found: dict[tuple[str, str, str], Producer] = {}
    for each in told:
        place = (each.row["cluster"], each.row["group_id"], each.producer)
        producer = found.setdefault(place, Producer(*place, {}))
        producer.outcomes[each.outcome] = producer.outcomes.get(each.outcome, 0) + 1
        if each.open_ms is not None:
            producer.longest_ms = max(each.open_ms, producer.longest_ms or 0)
    return [found[place] for place in sorted(found)]


def document(commit: Commit) -> dict[str, Any]:
    """All that is known of a commit, for programs."""
    return {**commit.row, "outcome": commit.outcome, "open_ms": commit.open_ms}
