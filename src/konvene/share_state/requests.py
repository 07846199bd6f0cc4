"""What a share coordinator is asked, and what it answers: about one share partition at a time.

The wire's requests (InitializeShareGroupState and the others) are about many; they are taken apart before.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.codec.uuid import Uuid
from konvene.errors import Errors


class SharePartitionKey(NamedTuple):
    """A partition of a topic as one share group reads it."""

    group_id: str
    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        """As Kafka writes it, and as it is hashed to a partition of `__share_group_state`."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class StateBatch(NamedTuple):
    """Offsets, both ends included, that are in one state and were delivered equally often.

    Reads like `records.share_state.StateBatch`."""

    first_offset: int
    last_offset: int
    delivery_state: int
    """0 available, 2 acknowledged, 3 archiving, 4 archived. That it is acquired is never written down."""
    delivery_count: int

    @property
    def unknown_tags(self) -> tuple[tuple[int, bytes], ...]:
        """None: so that it can be written as it is."""
        return ()


class Initialize(NamedTuple):
    """Begin with this start offset; -1 where it is not known yet. Answered with an `Answer`."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class Read(NamedTuple):
    """Who delivers takes the state over, at this leader epoch. Answered with a `StateAnswer`."""

    key: SharePartitionKey
    leader_epoch: int


class Write(NamedTuple):
    """What was delivered and what became of it. Answered with an `Answer`."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    """-1 where it has not moved."""
    delivery_complete_count: int
    """How many records from the start offset on are acknowledged or archived; -1 where that is not known."""
    batches: tuple[StateBatch, ...]


class Delete(NamedTuple):
    """Forget it. Answered with an `Answer`."""

    key: SharePartitionKey


class ReadSummary(NamedTuple):
    """How far the group is, for who describes it. Answered with a `SummaryAnswer`."""

    key: SharePartitionKey
    leader_epoch: int


class TopicsDeleted(NamedTuple):
    """News: these topics are no more, and nothing that was known of their partitions."""

    topic_ids: frozenset[Uuid]


class Answer(NamedTuple):
    error: Errors = Errors.NONE
    message: str | None = None


class StateAnswer(NamedTuple):
    error: Errors = Errors.NONE
    message: str | None = None
    state_epoch: int = 0
    start_offset: int = -1
    batches: tuple[StateBatch, ...] = ()


class SummaryAnswer(NamedTuple):
    error: Errors = Errors.NONE
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = -1
    delivery_complete_count: int = -1
