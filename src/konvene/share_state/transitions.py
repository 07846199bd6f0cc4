"""What may be done with the state of a share partition, and which record says that it was.

Every function is a rule of Kafka's ShareCoordinatorShard, with its checks in its order: a request is refused
for what is wrong with it, then for what is not there, then for an epoch that is over, then for a topic that
does not exist. Start offsets never go back; neither epoch ever does, and a write moves none of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.errors import MESSAGES, Errors
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
BACKWARDS = "A state batch ends before it begins."

Refused = tuple[Errors, str]


def initialize(shard: ShareStateShard, request: Initialize, context: Context) -> Outcome:
    """Begin, or begin anew: what was known before is gone, but for the epochs that are over."""
    key, state_epoch, start_offset = request
    known = shard.states.get(key)
    wrong = (
        _negative(key, (state_epoch, NEGATIVE_STATE_EPOCH))
        or _old_state(known, state_epoch)
        or _no_topic(key, context)
    )
    if wrong:
        return _told(context, Answer(*wrong))
    begun = SharePartitionState(
        snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
        state_epoch=state_epoch,
        leader_epoch=0,
        start_offset=start_offset,
        delivery_complete_count=UNKNOWN_COUNT if start_offset == UNKNOWN_OFFSET else 0,
        batches=(),
        create_timestamp=context.now_ms,
        write_timestamp=context.now_ms,
    )
    return _told(context, Answer(), snapshot(key, begun, context.end_offset))


def read(shard: ShareStateShard, request: Read, context: Context) -> Outcome:
    """What is known, for a leader whose epoch is written down if it is a new one."""
    key, leader_epoch = request
    wrong = _negative(key, (leader_epoch, NEGATIVE_LEADER_EPOCH))
    if wrong:
        return _told(context, StateAnswer(*wrong))
    known = shard.states.get(key)
    if known is None:
        return _told(context, StateAnswer(Errors.INVALID_REQUEST, READ_UNINITIALIZED))
    wrong = _old_leader(known, leader_epoch) or _no_topic(key, context)
    if wrong:
        return _told(context, StateAnswer(*wrong))
    answer = StateAnswer(
        state_epoch=known.state_epoch, start_offset=known.start_offset, batches=known.batches
    )
    if leader_epoch == known.highest_leader_epoch:
        return _told(context, answer)
    taken_over = known._replace(leader_epoch=leader_epoch, batches=())
    # Leaders' epochs are the cluster's, and on the disk before anybody leads: to lose this one loses nothing.
    outcome = _told(context, answer, _record(shard, key, known, taken_over, context))
    return outcome._replace(when_written=True)


def write(shard: ShareStateShard, request: Write, context: Context) -> Outcome:
    """Merge what is told into what is known."""
    key, state_epoch, leader_epoch, start_offset, count, batches = request
    wrong = _negative(key, (leader_epoch, NEGATIVE_LEADER_EPOCH), (state_epoch, NEGATIVE_STATE_EPOCH))
    if wrong:
        return _told(context, Answer(*wrong))
    known = shard.states.get(key)
    if known is None:
        return _told(context, Answer(Errors.INVALID_REQUEST, WRITE_UNINITIALIZED))
    wrong = _old_leader(known, leader_epoch) or _old_state(known, state_epoch) or _no_topic(key, context)
    if wrong:
        return _told(context, Answer(*wrong))
    if any(batch.first_offset > batch.last_offset for batch in batches):
        return _told(context, Answer(Errors.INVALID_REQUEST, BACKWARDS))
    if start_offset == known.start_offset:
        count = max(count, known.delivery_complete_count)
    elif start_offset < known.start_offset:
        count = known.delivery_complete_count
    start_offset = max(start_offset, known.start_offset)
    told = known._replace(
        start_offset=start_offset,
        delivery_complete_count=count,
        batches=combine((), batches, start_offset),
    )
    return _told(context, Answer(), _record(shard, key, known, told, context))


def read_summary(shard: ShareStateShard, request: ReadSummary, context: Context) -> Outcome:
    """How far the group is. Of a share partition that is not known there is nothing to say, and no error."""
    key = request.key
    wrong = _negative(key) or _no_topic(key, context)
    if wrong:
        return _told(context, SummaryAnswer(*wrong))
    known = shard.states.get(key)
    if known is None:
        return _told(context, SummaryAnswer())
    return _told(
        context,
        SummaryAnswer(
            state_epoch=known.state_epoch,
            leader_epoch=known.leader_epoch,
            start_offset=known.start_offset,
            delivery_complete_count=known.delivery_complete_count,
        ),
    )


def delete(shard: ShareStateShard, request: Delete, context: Context) -> Outcome:
    """Forget it; what nobody knows is forgotten already."""
    key = request.key
    wrong = _negative(key) or _no_topic(key, context)
    if wrong:
        return _told(context, Answer(*wrong))
    if key not in shard.states:
        return _told(context, Answer())
    return _told(context, Answer(), tombstone(key, context.end_offset))


def _told(context: Context, answer: Any, *records: Any) -> Outcome:
    return Outcome((Reply(context.waiter, answer),), records)


def _record(
    shard: ShareStateShard,
    key: SharePartitionKey,
    known: SharePartitionState,
    told: SharePartitionState,
    context: Context,
) -> Any:
    """What is told, as an update; or all that is then known, as a snapshot, after so many updates."""
    if known.updates < shard.updates_per_snapshot:
        return update(key, told)
    due = told._replace(
        snapshot_epoch=known.snapshot_epoch + 1,
        batches=combine(known.batches, told.batches, told.start_offset),
        create_timestamp=context.now_ms,
        write_timestamp=context.now_ms,
    )
    return snapshot(key, due, context.end_offset)


# --- what can be wrong ---------------------------------------------------------------------------


def _negative(key: SharePartitionKey, *told: tuple[int, str]) -> Refused | None:
    if key.partition < 0:
        return Errors.INVALID_REQUEST, NEGATIVE_PARTITION
    for number, message in told:
        if number < 0:
            return Errors.INVALID_REQUEST, message
    return None


def _old_leader(known: SharePartitionState, leader_epoch: int) -> Refused | None:
    return _refused(Errors.FENCED_LEADER_EPOCH) if leader_epoch < known.highest_leader_epoch else None


def _old_state(known: SharePartitionState | None, state_epoch: int) -> Refused | None:
    if known is None or state_epoch >= known.highest_state_epoch:
        return None
    return _refused(Errors.FENCED_STATE_EPOCH)


def _no_topic(key: SharePartitionKey, context: Context) -> Refused | None:
    topic = context.topics.by_id.get(key.topic_id)
    if topic is None or topic.partitions <= key.partition:
        return _refused(Errors.UNKNOWN_TOPIC_OR_PARTITION)
    return None


def _refused(error: Errors) -> Refused:
    return error, MESSAGES[error]
