"""The nouns between a share partition and the shell that serves it.

A share partition decides at once and writes afterwards: what it decided is a `Change`, which the shell has
written by the share coordinator, and then tells the partition how that went (`finished`). Until then the
records of a change are nobody else's. Clocks are told as milliseconds that only grow.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from konvene.errors import Errors
from konvene.share_state.requests import StateBatch


class RecordState(IntEnum):
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class AcknowledgeType(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """KIP-1206."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class Terms(NamedTuple):
    """What a group's records are delivered by: its settings, as of now."""

    lock_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2000
    renew: bool = True
    read_committed: bool = False
    dead_letters: bool = False
    """Whether records that are given up go to a topic first (KIP-1191)."""


class Acquired(NamedTuple):
    """Offsets that a member now has, both ends included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledged(NamedTuple):
    """What a member says of offsets: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]


class DeadLetter(NamedTuple):
    """Records that were given up and go to the group's dead letter topic before they are archived."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: str
    """In Kafka's words, for the header of the copy."""


class Change(NamedTuple):
    """What has to be written of a decision. `ticket` is the partition's own."""

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    dead_letters: tuple[DeadLetter, ...] = ()
    ticket: Any = None


class InFlight(NamedTuple):
    """What an operator sees of records that were delivered and are not done."""

    first_offset: int
    last_offset: int
    state: RecordState
    member_id: str
    delivery_count: int
    acquired_ms: int
    """When it was acquired; -1 where nobody has it."""
    lock_end_ms: int
    """When its lock ends; -1 where nobody has it."""


class DeliveryError(Exception):
    """Nothing has changed, and the member is told why."""

    def __init__(self, error: Errors, message: str = "") -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message or None
