"""Requests to the share coordinator and their answers, for one share partition each.

The Kafka APIs (InitializeShareGroupState and the others) carry many share partitions in one request; their
handlers split them into these.
"""

from __future__ import annotations

from typing import NamedTuple

from konvene.codec.uuid import Uuid
from konvene.errors import Errors


class SharePartitionKey(NamedTuple):
    """A share partition: a topic partition as one share group consumes it."""

    group_id: str
    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        """Return `group:topicId:partition`, whose hash selects a partition of `__share_group_state`."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"


class StateBatch(NamedTuple):
    """A range of offsets, both ends included, with the same delivery state and count.

    Has the fields of `records.share_state.StateBatch`."""

    first_offset: int
    last_offset: int
    delivery_state: int
    """0 available, 2 acknowledged, 3 archiving, 4 archived. Acquired (1) is never persisted."""
    delivery_count: int

    @property
    def unknown_tags(self) -> tuple[tuple[int, bytes], ...]:
        """Return no tagged fields.

        The codec reads this attribute, so it can encode this tuple like the struct of a record."""
        return ()


class Initialize(NamedTuple):
    """Request to initialize the state with a start offset, -1 if unknown. Answered with an `Answer`."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class Read(NamedTuple):
    """Request of the leader with epoch `leader_epoch` for the state. Answered with a `StateAnswer`."""

    key: SharePartitionKey
    leader_epoch: int


class Write(NamedTuple):
    """Request to write state batches: the delivery states of records. Answered with an `Answer`."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    start_offset: int
    """-1 if it has not moved."""
    delivery_complete_count: int
    """Number of records from the start offset on that are acknowledged or archived; -1 if unknown."""
    batches: tuple[StateBatch, ...]


class Delete(NamedTuple):
    """Request to delete the state. Answered with an `Answer`."""

    key: SharePartitionKey


class ReadSummary(NamedTuple):
    """Request for epochs, start offset and delivery complete count. Answered with a `SummaryAnswer`."""

    key: SharePartitionKey
    leader_epoch: int


class TopicsDeleted(NamedTuple):
    """Notification that topics were deleted: the state of their partitions has to be deleted as well."""

    topic_ids: frozenset[Uuid]


Request = Initialize | Read | Write | Delete | ReadSummary | TopicsDeleted
"""What a shard of the share coordinator handles."""


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
