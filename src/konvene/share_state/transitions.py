"""State transitions of a share partition: the checks of each request, and the record that it writes.

Every function follows Kafka's ShareCoordinatorShard, with its checks in its order: invalid fields, missing
state, fenced epochs, unknown topic. Epochs below the highest ever seen are fenced. A write never decreases
the start offset and changes no epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import MESSAGES, Errors
from konvene.records.coordinator import Record
from konvene.shard.contract import Context, Outcome, Reply
from konvene.share_state.combine import UNKNOWN_OFFSET, combine
from konvene.share_state.requests import (
    Answer,
    Delete,
    Initialize,
    Read,
    ReadSummary,
    SharePartitionKey,
    StateAnswer,
    SummaryAnswer,
    Write,
)
from konvene.share_state.state import (
    UNKNOWN_COUNT,
    PositionedRecord,
    SharePartitionState,
    snapshot,
    tombstone,
    update,
)

if TYPE_CHECKING:
    from konvene.share_state.shard import ShareStateShard

NEGATIVE_PARTITION = "The partition id cannot be a negative number."
NEGATIVE_LEADER_EPOCH = "The leader epoch cannot be a negative number."
NEGATIVE_STATE_EPOCH = "The state epoch cannot be a negative number."
WRITE_UNINITIALIZED = "Write operation on uninitialized share partition not allowed."
READ_UNINITIALIZED = "Read operation on uninitialized share partition not allowed."
REVERSED_BATCH = "A state batch ends before it begins."

Rejection = tuple[Errors, str]


def initialize(shard: ShareStateShard, request: Initialize, context: Context) -> Outcome:
    """Initialize the state of a share partition, or reset it; fenced epochs stay fenced."""
    key, state_epoch, start_offset = request
    known = shard.states.get(key)
    rejection = (
        _negative(key, (state_epoch, NEGATIVE_STATE_EPOCH))
        or _fenced_state(known, state_epoch)
        or _unknown_topic(key, context)
    )
    if rejection:
        return _answered(context, Answer(*rejection))
    initialized = SharePartitionState(
        snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=0,
        start_offset=start_offset,
        delivery_complete_count=UNKNOWN_COUNT if start_offset == UNKNOWN_OFFSET else 0,
        batches=(),
        create_timestamp=context.now_ms,
        write_timestamp=context.now_ms,
    )
    return _answered(context, Answer(), snapshot(key, initialized, context.end_offset))


def read(shard: ShareStateShard, request: Read, context: Context) -> Outcome:
    """Answer a share-partition leader with the state, and write its leader epoch if that is new."""
    key, leader_epoch = request
    rejection = _negative(key, (leader_epoch, NEGATIVE_LEADER_EPOCH))
    if rejection:
        return _answered(context, StateAnswer(*rejection))
    known = shard.states.get(key)
    if known is None:
        return _answered(context, StateAnswer(Errors.INVALID_REQUEST, READ_UNINITIALIZED))
    rejection = _fenced_leader(known, leader_epoch) or _unknown_topic(key, context)
    if rejection:
        return _answered(context, StateAnswer(*rejection))
    answer = StateAnswer(
        state_epoch=known.state_epoch, start_offset=known.start_offset, batches=known.batches
    )
    if leader_epoch == known.highest_leader_epoch:
        return _answered(context, answer)
    taken_over = known._replace(leader_epoch=leader_epoch, batches=())
    # Leader epochs are durable in the cluster's log before a leader acts: losing this record loses nothing.
    outcome = _answered(context, answer, _record(shard, key, known, taken_over, context))
    return outcome._replace(when_written=True)


def write(shard: ShareStateShard, request: Write, context: Context) -> Outcome:
    """Merge state batches, which have delivery states of records, into the state of a share partition.

    The record has only the new batches; `replay` merges them. A lower start offset than the current one is
    ignored."""
    key, state_epoch, leader_epoch, start_offset, count, batches = request
    rejection = _negative(key, (leader_epoch, NEGATIVE_LEADER_EPOCH), (state_epoch, NEGATIVE_STATE_EPOCH))
    if rejection:
        return _answered(context, Answer(*rejection))
    known = shard.states.get(key)
    if known is None:
        return _answered(context, Answer(Errors.INVALID_REQUEST, WRITE_UNINITIALIZED))
    rejection = (
        _fenced_leader(known, leader_epoch)
        or _fenced_state(known, state_epoch)
        or _unknown_topic(key, context)
    )
    if rejection:
        return _answered(context, Answer(*rejection))
    if any(batch.first_offset > batch.last_offset for batch in batches):
        return _answered(context, Answer(Errors.INVALID_REQUEST, REVERSED_BATCH))
    if start_offset == known.start_offset:
        count = max(count, known.delivery_complete_count)
    elif start_offset < known.start_offset:
        count = known.delivery_complete_count
    start_offset = max(start_offset, known.start_offset)
    written = known._replace(
        start_offset=start_offset,
        delivery_complete_count=count,
        batches=combine((), batches, start_offset),
    )
    return _answered(context, Answer(), _record(shard, key, known, written, context))


def read_summary(shard: ShareStateShard, request: ReadSummary, context: Context) -> Outcome:
    """Answer with the epochs, start offset and delivery complete count of a share partition.

    If it has no state, the answer has defaults and no error."""
    key = request.key
    rejection = _negative(key) or _unknown_topic(key, context)
    if rejection:
        return _answered(context, SummaryAnswer(*rejection))
    known = shard.states.get(key)
    if known is None:
        return _answered(context, SummaryAnswer())
    return _answered(
        context,
        SummaryAnswer(
            state_epoch=known.state_epoch,
            leader_epoch=known.leader_epoch,
            start_offset=known.start_offset,
            delivery_complete_count=known.delivery_complete_count,
        ),
    )


def delete(shard: ShareStateShard, request: Delete, context: Context) -> Outcome:
    """Delete the state; deleting a missing one succeeds."""
    key = request.key
    rejection = _negative(key) or _unknown_topic(key, context)
    if rejection:
        return _answered(context, Answer(*rejection))
    if key not in shard.states:
        return _answered(context, Answer())
    return _answered(context, Answer(), tombstone(key, context.end_offset))


def _answered(
    context: Context, answer: Answer | StateAnswer | SummaryAnswer, *records: Record | PositionedRecord
) -> Outcome:
    return Outcome((Reply(context.waiter, answer),), records)


def _record(
    shard: ShareStateShard,
    key: SharePartitionKey,
    known: SharePartitionState,
    written: SharePartitionState,
    context: Context,
) -> Record | PositionedRecord:
    """Return an update record, or a snapshot of the merged state if many updates precede it."""
    if known.updates < shard.updates_per_snapshot:
        return update(key, written)
    merged = written._replace(
        snapshot_epoch=known.snapshot_epoch + 1,
        batches=combine(known.batches, written.batches, written.start_offset),
        create_timestamp=context.now_ms,
        write_timestamp=context.now_ms,
    )
    return snapshot(key, merged, context.end_offset)


# --- checks --------------------------------------------------------------------------------------


def _negative(key: SharePartitionKey, *numbers: tuple[int, str]) -> Rejection | None:
    if key.partition < 0:
        return Errors.INVALID_REQUEST, NEGATIVE_PARTITION
    for number, message in numbers:
        if number < 0:
            return Errors.INVALID_REQUEST, message
    return None


def _fenced_leader(known: SharePartitionState, leader_epoch: int) -> Rejection | None:
    return _rejected(Errors.FENCED_LEADER_EPOCH) if leader_epoch < known.highest_leader_epoch else None


def _fenced_state(known: SharePartitionState | None, state_epoch: int) -> Rejection | None:
    if known is None or state_epoch >= known.highest_state_epoch:
        return None
    return _rejected(Errors.FENCED_STATE_EPOCH)


def _unknown_topic(key: SharePartitionKey, context: Context) -> Rejection | None:
    topic = context.topics.by_id.get(key.topic_id)
    if topic is None or topic.partitions <= key.partition:
        return _rejected(Errors.UNKNOWN_TOPIC_OR_PARTITION)
    return None


def _rejected(error: Errors) -> Rejection:
    return error, MESSAGES[error]
