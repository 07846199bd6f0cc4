"""What happened in a share partition, as numbers that only grow: for metrics."""

from __future__ import annotations

from konvene.delivery.contract import AcknowledgeType


class Counts:
    """See the top of this file."""

    __slots__ = ("acknowledged", "archived", "delivered", "lock_timeouts", "redelivered")

    def __init__(self) -> None:
        self.delivered = 0
        """Records that were acquired."""
        self.redelivered = 0
        """Of these, how many were not for the first time."""
        self.acknowledged = [0] * len(AcknowledgeType)
        """Records by what was said of them, once that is written."""
        self.archived = 0
        """Records that were given up: rejected, or delivered too often."""
        self.lock_timeouts = 0
        """Records that were not acknowledged in time."""

    def add(self, other: Counts) -> None:
        """Count what another has counted as well."""
        self.delivered += other.delivered
        self.redelivered += other.redelivered
        for said, records in enumerate(other.acknowledged):
            self.acknowledged[said] += records
        self.archived += other.archived
        self.lock_timeouts += other.lock_timeouts

    def __repr__(self) -> str:
        return (
            f"<delivered {self.delivered}, again {self.redelivered}, acknowledged {self.acknowledged}, "
            f"archived {self.archived}, timed out {self.lock_timeouts}>"
        )
