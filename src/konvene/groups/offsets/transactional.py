"""TxnOffsetCommit: a producer stores in its transaction how far its group is; and the end of the transaction.

Who may: as for OffsetCommit (`offsets.commit`), but that

    who names no member at all           may, though the group has members: old producers cannot name one
    a classic group that waits for       is no reason to refuse, and a commit does not keep a session alive:
    its assignments                      the transaction has its own time-out
    an error of newer protocols          is ILLEGAL_GENERATION to clients that know no other (KIP-1319)

Whether the transaction is open, and whether the producer is the last of its name, is not known here: the
transaction coordinator is asked before, and the partition's log refuses an epoch that is past.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.group_type import Group
from konvene.groups.modern.group import ModernGroup
from konvene.groups.offsets.commit import Check, check_keeps_offsets, check_member
from konvene.groups.offsets.committed import Committed, OffsetCommitted
from konvene.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from konvene.messages.write_txn_markers import WriteTxnMarkersResponse
from konvene.shard.contract import Context, Ending, Outcome, Producer, Reply
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic, Topics

FIRST_VERSION_WITH_TOPIC_IDS = 6
FIRST_VERSION_WITH_NEW_ERRORS = 6


def commit_in_transaction(
    groups: Mapping[str, Group], request: TxnOffsetCommitRequest, context: Context
) -> Outcome:
    """Decide a TxnOffsetCommit. Raises `GroupError` where it is refused as a whole."""
    records: list[OffsetCommitted] = []
    try:
        check = _check_committer(groups.get(request.group_id), request, context.api_version)
        topics = tuple(_commit_topic(request.group_id, t, check, context, records) for t in request.topics)
    except GroupError as refused:
        if refused.error is Errors.STALE_MEMBER_EPOCH and context.api_version < FIRST_VERSION_WITH_NEW_ERRORS:
            raise GroupError(Errors.ILLEGAL_GENERATION) from None
        raise
    reply = Reply(context.waiter, TxnOffsetCommitResponse(topics=topics))
    if not records:
        return Outcome((reply,))
    return Outcome((reply,), tuple(records), producer=Producer(request.producer_id, request.producer_epoch))


def end_transaction(ending: Ending, context: Context) -> Outcome:
    """A marker is written whether or not anything was committed here: Kafka's coordinator does the same."""
    return Outcome((Reply(context.waiter, WriteTxnMarkersResponse()),), ending=ending)


def _check_committer(group: Group | None, request: TxnOffsetCommitRequest, version: int) -> Check | None:
    """Whether this member may commit now; what to ask of each partition, if anything. Raises `GroupError`."""
    epoch = request.generation_id_or_member_epoch
    if group is not None:
        check_keeps_offsets(group)
    if isinstance(group, ModernGroup):
        who = request.member_id, request.group_instance_id, epoch, version
        return check_member(group, *who, transactional=True)
    if group is None:
        if epoch < 0:
            return None
        known = version >= FIRST_VERSION_WITH_NEW_ERRORS
        raise GroupError(Errors.GROUP_ID_NOT_FOUND if known else Errors.ILLEGAL_GENERATION)
    _check_classic(group, request, epoch)
    return None


def _check_classic(group: ClassicGroup, request: TxnOffsetCommitRequest, generation: int) -> None:
    if generation < 0 and group.state is State.EMPTY:
        return
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        return
    group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(generation)


def look_up(topics: Topics, topic: TxnOffsetCommitRequestTopic, version: int) -> tuple[Topic | None, Errors]:
    """The topic that a request means, and what is told of its partitions if there is none."""
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return topics.by_id.get(topic.topic_id), Errors.UNKNOWN_TOPIC_ID
    return topics.by_name.get(topic.name), Errors.UNKNOWN_TOPIC_OR_PARTITION


def _commit_topic(
    group_id: str,
    topic: TxnOffsetCommitRequestTopic,
    check: Check | None,
    context: Context,
    records: list[OffsetCommitted],
) -> TxnOffsetCommitResponseTopic:
    known, missing = look_up(context.topics, topic, context.api_version)
    if known is None:
        answers = [_answer(p.partition_index, missing) for p in topic.partitions]
        return TxnOffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=tuple(answers)
        )
    longest: int = context.config["offset.metadata.max.bytes"]
    answers = []
    for p in topic.partitions:
        index, metadata = p.partition_index, p.committed_metadata or ""
        if not 0 <= index < known.partitions:
            answers.append(_answer(index, Errors.UNKNOWN_TOPIC_OR_PARTITION))
        elif len(metadata) > longest:
            answers.append(_answer(index, Errors.OFFSET_METADATA_TOO_LARGE))
        else:
            if check is not None:
                check(known, index)
            told = Committed(
                p.committed_offset, p.committed_leader_epoch, metadata, context.now_ms, topic_id=known.id
            )
            records.append(OffsetCommitted(group_id, known.name, index, told))
            answers.append(_answer(index))
    return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(answers))


@lru_cache(maxsize=16_384)
def _answer(index: int, error: Errors = Errors.NONE) -> TxnOffsetCommitResponsePartition:
    """Always the same for the same: values are shared."""
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)
