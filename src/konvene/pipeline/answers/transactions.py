"""Offsets that groups commit in transactions: each commit with its outcome, and totals per producer.

A committed transaction need not change the group's offset: a commit that stands later in the log wins,
whenever the transaction ended. This is no error, and the producer is not notified; so it is reported here as
`overtaken`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from konvene.pipeline.answers.gold import Gold
from konvene.pipeline.row import Row

__all__ = ["Commit", "Producer", "commits", "document", "producers"]


@dataclass(frozen=True, slots=True)
class Commit:
    """An offset committed in a transaction: a row of `transactional_commit`, and what follows from it."""

    row: Row

    def __repr__(self) -> str:
        return f"<{self.producer}: {self.row['committed_offset']} {self.outcome}>"

    @property
    def producer(self) -> str:
        """The transactional id, or the producer id if that is unknown."""
        name: str | None = self.row["transactional_id"]
        return name or str(self.row["producer_id"])

    @property
    def outcome(self) -> str:
        """`committed`, `aborted`, `pending`, or `overtaken`: committed, but a later commit in the log won."""
        outcome: str = self.row["outcome"]
        return "overtaken" if outcome == "committed" and not self.row["counted"] else outcome

    @property
    def open_ms(self) -> int | None:
        """Milliseconds that the transaction was pending; None while it still is."""
        ended = self.row["ended_ms"]
        return None if ended is None else max(ended - self.row["timestamp_ms"], 0)


@dataclass(slots=True)
class Producer:
    """Totals of one producer's commits for a group."""

    cluster: str
    group_id: str
    name: str
    outcomes: dict[str, int]
    longest_ms: int | None = None
    """The longest time that a completed commit was pending."""

    @property
    def count(self) -> int:
        return sum(self.outcomes.values())


def commits(gold: Gold, groups: Sequence[str] = (), outcomes: Sequence[str] = ()) -> list[Commit]:
    """Return the commits of these groups with these outcomes, newest first; empty means all groups or all
    outcomes."""
    found = [Commit(row) for row in gold.rows("transactional_commit", groups)]
    chosen = [each for each in found if not outcomes or each.outcome in outcomes]
    chosen.sort(key=_position, reverse=True)
    return chosen


def _position(commit: Commit) -> tuple[int, str, str, int, int]:
    row = commit.row
    return row["timestamp_ms"], row["cluster"], row["group_id"], row["log_partition"], row["log_offset"]


def producers(commits: Iterable[Commit]) -> list[Producer]:
    """Return the totals of each producer and group, sorted by cluster, group and name."""
    found: dict[tuple[str, str, str], Producer] = {}
    for each in commits:
        key = (each.row["cluster"], each.row["group_id"], each.producer)
        producer = found.setdefault(key, Producer(*key, {}))
        producer.outcomes[each.outcome] = producer.outcomes.get(each.outcome, 0) + 1
        if each.open_ms is not None:
            producer.longest_ms = max(each.open_ms, producer.longest_ms or 0)
    return [found[key] for key in sorted(found)]


def document(commit: Commit) -> dict[str, object]:
    """Return the row of a commit, its outcome and how long it was pending, for JSON output."""
    return {**commit.row, "outcome": commit.outcome, "open_ms": commit.open_ms}
