"""TxnOffsetCommit: store a group's offsets as part of a transaction; and the end of the transaction.

The same clients may commit as with OffsetCommit (`offsets.commit`), with these differences:

    a request without a member       is allowed even if the group has members: old producers cannot name one
    a classic group that waits for   accepts commits, and a commit does not extend a session: the transaction
    its assignments                  has its own timeout
    an error of newer protocols      becomes ILLEGAL_GENERATION for clients without KIP-1319

Whether the transaction is open and the producer is current is not checked here: the transaction coordinator
verifies it before, and the partition's log rejects a stale producer epoch.
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
    """Record the offsets as part of the producer's transaction, and respond for each partition.

    Raises `GroupError` if the request is rejected as a whole."""
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
    """Write the end marker of a transaction, even if it committed no offsets here, as Kafka does."""
    return Outcome((Reply(context.waiter, WriteTxnMarkersResponse()),), ending=ending)


def _check_committer(group: Group | None, request: TxnOffsetCommitRequest, version: int) -> Check | None:
    """Check that a client may commit; return the check to make for each partition, None if there is none.

    Raises `GroupError`."""
    epoch = request.generation_id_or_member_epoch
    if group is not None:
        check_keeps_offsets(group)
    if isinstance(group, ModernGroup):
        identity = request.member_id, request.group_instance_id, epoch, version
        return check_member(group, *identity, transactional=True)
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


def resolve_topic(
    topics: Topics, topic: TxnOffsetCommitRequestTopic, version: int
) -> tuple[Topic | None, Errors]:
    """Return the topic that a request names by id or, in older versions, by name; None if it does not exist.

    Also return the error code with which to answer for its partitions in that case."""
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
    known, missing = resolve_topic(context.topics, topic, context.api_version)
    if known is None:
        responses = [_response(p.partition_index, missing) for p in topic.partitions]
        return TxnOffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=tuple(responses)
        )
    max_metadata_bytes: int = context.config["offset.metadata.max.bytes"]
    responses = []
    for p in topic.partitions:
        index, metadata = p.partition_index, p.committed_metadata or ""
        if not 0 <= index < known.partitions:
            responses.append(_response(index, Errors.UNKNOWN_TOPIC_OR_PARTITION))
        elif len(metadata) > max_metadata_bytes:
            responses.append(_response(index, Errors.OFFSET_METADATA_TOO_LARGE))
        else:
            if check is not None:
                check(known, index)
            committed = Committed(
                p.committed_offset, p.committed_leader_epoch, metadata, context.now_ms, topic_id=known.id
            )
            records.append(OffsetCommitted(group_id, known.name, index, committed))
            responses.append(_response(index))
    return TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(responses))


@lru_cache(maxsize=16_384)
def _response(index: int, error: Errors = Errors.NONE) -> TxnOffsetCommitResponsePartition:
    """Return a partition's response. Equal responses are one cached object."""
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)
