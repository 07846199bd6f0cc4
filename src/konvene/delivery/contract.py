"""The types between a share partition and the broker code that serves it (the shell).

A share partition decides at once and writes afterwards. A decision returns a `Change`; the shell sends it to
the share coordinator, and reports the result to the partition (`SharePartition.finished`). Until then no
member can acquire the records of the change. Times are milliseconds of a monotonic clock.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from konvene.errors import Errors
from konvene.share_state.requests import StateBatch

if TYPE_CHECKING:
    from konvene.delivery.runs import PendingChange


class RecordState(IntEnum):
    """States of a record in flight, numbered as in Kafka."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class AcknowledgeType(IntEnum):
    """Acknowledge types, numbered as in ShareAcknowledge."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(IntEnum):
    """How strictly a ShareFetch limits the records that it acquires (KIP-1206).

    BATCH_OPTIMIZED acquires whole batches, even if they exceed the limit; RECORD_LIMIT never exceeds it."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class Terms(NamedTuple):
    """The delivery configs of a share group, such as lock duration and delivery count limit."""

    lock_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2000
    renew: bool = True
    read_committed: bool = False
    dead_letters: bool = False
    """Whether archived records are copied to a dead letter topic first (KIP-1191)."""


class Acquired(NamedTuple):
    """A range of offsets that a member acquired, both ends included."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledged(NamedTuple):
    """A range of acknowledged offsets; `types` has one acknowledge type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]


class DeadLetter(NamedTuple):
    """A range of records to be copied to the group's dead letter topic before they are archived."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: str
    """Why the records are archived, in Kafka's words; a header of the copies."""


class Change(NamedTuple):
    """A change of state that the shell has to write to the share coordinator. `ticket` is opaque to it."""

    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    dead_letters: tuple[DeadLetter, ...]
    ticket: PendingChange


class InFlight(NamedTuple):
    """A range of delivered records that are neither acknowledged nor archived, as operators see it."""

    first_offset: int
    last_offset: int
    state: RecordState
    member_id: str
    delivery_count: int
    acquired_ms: int
    """When the records were acquired; -1 if they are not acquired now."""
    lock_end_ms: int
    """When the acquisition lock ends; -1 if there is none."""


class DeliveryError(Exception):
    """Raised if the partition rejects a member's request; nothing has changed."""

    def __init__(self, error: Errors, message: str = "") -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message or None
