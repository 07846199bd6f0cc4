"""What became of the records of share groups: each share partition, what went wrong in it, and when.

A record that is delivered again was released, or its lock ran out, or its member died: the state does not
say which. One that is given up was rejected, or delivered too often. A share partition is stuck where its
start offset has not moved for long, while states went on being written and a record that was delivered more
than once is still to be done with: all that is behind it waits in the window, which may fill up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from konvene.groups.history import duration
from konvene.pipeline.answers.gold import Gold
from konvene.pipeline.answers.sentences import counted

__all__ = ["STUCK_MS", "Delivery", "deliveries", "document", "minutes", "summary", "told"]

STUCK_MS = 30_000
"""Who has not moved for so long may be stuck: as long as a lock lasts where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row of `share_delivery`."""

    row: dict[str, Any]

    def __repr__(self) -> str:
        return f"<{self.row['group_id']} {self.name}: {self.row['delivered']} deliveries>"

    @property
    def name(self) -> str:
        return f"{self.row['topic']}:{self.row['partition']}"

    @property
    def stood_ms(self) -> int:
        """For how long the start offset had not moved when the state was written last."""
        return max(int(self.row["last_ms"]) - int(self.row["moved_ms"]), 0)

    @property
    def stuck(self) -> bool:
        """See the top of this file."""
        again = self.row["in_flight"] > 0 and self.row["in_flight_deliveries"] > 1
        return bool(again) and self.row["deleted_ms"] is None and self.stood_ms >= STUCK_MS


def deliveries(gold: Gold, groups: Sequence[str] = ()) -> list[Delivery]:
    """The share partitions of these groups, none: of all; those in trouble first."""
    found = [Delivery(row) for row in gold.rows("share_delivery", groups)]
    found.sort(key=_trouble)
    return found


def _trouble(each: Delivery) -> tuple[Any, ...]:
    row = each.row
    place = (row["cluster"], row["group_id"], row["topic"], row["partition"])
    return (not each.stuck, -row["archived"], -row["redelivered"], *place)


def minutes(gold: Gold, groups: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The rows of `share_progress` in which records were delivered again or given up, the worst first."""
    found = [r for r in gold.rows("share_progress", groups) if r["redelivered"] or r["archived"]]
    found.sort(
        key=lambda r: (
            -r["redelivered"] - r["archived"], -r["minute_ms"], r["group_id"], r["topic"], r["partition"],
        )
    )  # fmt: skip
    return found


def told(each: Delivery) -> list[str]:
    """What went wrong in a share partition, a sentence each; nothing where nothing did."""
    row = each.row
    found = []
    if row["redelivered"]:
        were = "was" if row["redelivered"] == 1 else "were"
        found.append(
            f"{row['redelivered']:,} of {row['delivered']:,} deliveries {were} not the first of their "
            f"record; one was delivered {counted(row['max_delivery_count'], 'time')}"
        )
    if row["archived"]:
        were = "was" if row["archived"] == 1 else "were"
        found.append(
            f"{counted(row['archived'], 'record')} {were} given up: rejected, delivered too often, or not "
            "there"
        )
    if each.stuck:
        most = counted(row["in_flight_deliveries"], "time")
        found.append(
            f"it stood at offset {row['start_offset']:,} for {duration(each.stood_ms)}: "
            f"{counted(row['in_flight'], 'record')} in flight, delivered up to {most}"
        )
    return found


def summary(some: Iterable[Delivery]) -> str:
    """What all of it comes to; empty where nothing went wrong."""
    rows = [each for each in some if told(each)]
    again, given_up = sum(e.row["redelivered"] for e in rows), sum(e.row["archived"] for e in rows)
    stuck = sum(each.stuck for each in rows)
    parts = [
        f"{again:,} were repeated" if again else "",
        f"{counted(given_up, 'record')} given up" if given_up else "",
        f"{counted(stuck, 'share partition')} stuck" if stuck else "",
    ]
    return ", ".join(part for part in parts if part)


def document(each: Delivery) -> dict[str, Any]:
    """All that is known of a share partition, for programs."""
    return {**each.row, "stood_ms": each.stood_ms, "stuck": each.stuck, "trouble": told(each)}
