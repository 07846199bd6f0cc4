"""Cumulative counts of a share partition's deliveries, for metrics."""

from __future__ import annotations

from konvene.delivery.contract import AcknowledgeType


class Counts:
    """Cumulative counts of delivered, acknowledged and archived records of one or more share partitions."""

    __slots__ = ("acknowledged", "archived", "delivered", "lock_timeouts", "redelivered")

    def __init__(self) -> None:
        self.delivered = 0
        """Acquired records."""
        self.redelivered = 0
        """Acquired records whose delivery count was above 1."""
        self.acknowledged = [0] * len(AcknowledgeType)
        """Acknowledged records by acknowledge type, counted once written."""
        self.archived = 0
        """Archived records: rejected, or at the delivery count limit."""
        self.lock_timeouts = 0
        """Records whose acquisition lock timed out."""

    def add(self, other: Counts) -> None:
        """Add the counts of another share partition."""
        self.delivered += other.delivered
        self.redelivered += other.redelivered
        for ack_type, records in enumerate(other.acknowledged):
            self.acknowledged[ack_type] += records
        self.archived += other.archived
        self.lock_timeouts += other.lock_timeouts

    def __repr__(self) -> str:
        return (
            f"<delivered {self.delivered}, again {self.redelivered}, acknowledged {self.acknowledged}, "
            f"archived {self.archived}, timed out {self.lock_timeouts}>"
        )
