"""Deliveries of share groups: the state of each share partition, its problems, and the worst minutes.

A redelivered record was released, its lock expired, or its member departed: the state does not record which.
An archived record was rejected or delivered too often. A share partition is stuck if its start offset has not
moved for a long time although states were written and a record that was delivered more than once is still in
flight: records behind it wait, and the in-flight window may fill up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from konvene.groups.history import duration
from konvene.pipeline.answers.gold import Gold
from konvene.pipeline.row import Row
from konvene.plurals import counted

__all__ = ["STUCK_MS", "Delivery", "deliveries", "document", "minutes", "problems", "summary"]

STUCK_MS = 30_000
"""A start offset that has not moved for this long may be stuck; it is the default lock duration."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A share partition with its deliveries: a row of `share_delivery`, and figures derived from it."""

    row: Row

    def __repr__(self) -> str:
        return f"<{self.row['group_id']} {self.name}: {self.row['delivered']} deliveries>"

    @property
    def name(self) -> str:
        return f"{self.row['topic']}:{self.row['partition']}"

    @property
    def stood_ms(self) -> int:
        """Milliseconds for which the start offset had not moved when the last state was written."""
        return max(int(self.row["last_ms"]) - int(self.row["moved_ms"]), 0)

    @property
    def stuck(self) -> bool:
        """True if the share partition is stuck, as defined in the module docstring."""
        again = self.row["in_flight"] > 0 and self.row["in_flight_deliveries"] > 1
        return bool(again) and self.row["deleted_ms"] is None and self.stood_ms >= STUCK_MS


def deliveries(gold: Gold, groups: Sequence[str] = ()) -> list[Delivery]:
    """Return the share partitions of these groups (empty: all groups), those with problems first."""
    found = [Delivery(row) for row in gold.rows("share_delivery", groups)]
    found.sort(key=_rank)
    return found


def _rank(each: Delivery) -> tuple[bool, int, int, str, str, str, int]:
    row = each.row
    key = (row["cluster"], row["group_id"], row["topic"], row["partition"])
    return (not each.stuck, -row["archived"], -row["redelivered"], *key)


def minutes(gold: Gold, groups: Sequence[str] = ()) -> list[Row]:
    """Return the rows of `share_progress` with redelivered or archived records, worst first."""
    found = [r for r in gold.rows("share_progress", groups) if r["redelivered"] or r["archived"]]
    found.sort(
        key=lambda r: (
            -r["redelivered"] - r["archived"], -r["minute_ms"], r["group_id"], r["topic"], r["partition"],
        )
    )  # fmt: skip
    return found


def problems(each: Delivery) -> list[str]:
    """Return a sentence for each problem of a share partition: redeliveries, archived records, being
    stuck."""
    row = each.row
    found = []
    if row["redelivered"]:
        were = "was a redelivery" if row["redelivered"] == 1 else "were redeliveries"
        most = counted(row["max_delivery_count"], "time")
        found.append(
            f"{row['redelivered']:,} of {counted(row['delivered'], 'delivery')} {were}; "
            f"one record was delivered {most}"
        )
    if row["archived"]:
        were = "was" if row["archived"] == 1 else "were"
        found.append(
            f"{counted(row['archived'], 'record')} {were} archived: rejected, delivered too often, or no "
            "longer "
            "in the log"
        )
    if each.stuck:
        most = counted(row["in_flight_deliveries"], "time")
        found.append(
            f"blocked at offset {row['start_offset']:,} for {duration(each.stood_ms)}: "
            f"{counted(row['in_flight'], 'record')} in flight, delivered up to {most}"
        )
    return found


def summary(partitions: Iterable[Delivery]) -> str:
    """Return a phrase with the totals of all problems; empty if there are none."""
    rows = [each for each in partitions if problems(each)]
    again, archived = sum(e.row["redelivered"] for e in rows), sum(e.row["archived"] for e in rows)
    stuck = sum(each.stuck for each in rows)
    parts = [
        f"{again:,} {'redelivery' if again == 1 else 'redeliveries'}" if again else "",
        counted(archived, "archived record") if archived else "",
        counted(stuck, "stuck share partition") if stuck else "",
    ]
    return ", ".join(part for part in parts if part)


def document(each: Delivery) -> dict[str, object]:
    """Return the row of a share partition and the figures derived from it, for JSON output."""
    return {**each.row, "stood_ms": each.stood_ms, "stuck": each.stuck, "trouble": problems(each)}
