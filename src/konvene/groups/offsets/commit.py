"""OffsetCommit: store offsets for a member of a group, or for a client that is in no group.

Members of the current generation or epoch may commit (`modern.commits` for consumer and streams groups). So
may any client with generation -1 if the group has no members or does not exist yet (a so-called simple
group). A partition that does not exist, or whose metadata is too long, gets an error; the others are
committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from konvene.codec.uuid import ZERO_UUID
from konvene.errors import Errors
from konvene.groups.classic.decision import session_key
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.group_type import Group, group_type_of
from konvene.groups.modern import commits
from konvene.groups.modern.group import ModernGroup
from konvene.groups.offsets.committed import Committed, OffsetCommitted
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from konvene.shard.contract import Arm, Context, Outcome, Reply
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic, Topics

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 9
FIRST_VERSION_WITH_TOPIC_IDS = 10
DEFAULT_RETENTION = -1


def commit(groups: Mapping[str, Group], request: OffsetCommitRequest, context: Context) -> Outcome:
    """Record the committed offsets, and respond for each partition.

    Raises `GroupError` if the request is rejected as a whole."""
    group = groups.get(request.group_id)
    if group is not None:
        check_keeps_offsets(group)
    timers: tuple[Arm, ...] = ()
    check: Check | None = None
    if isinstance(group, ModernGroup):
        epoch = request.generation_id_or_member_epoch
        check = check_member(group, request.member_id, request.group_instance_id, epoch, context.api_version)
    else:
        timers = _check_committer(group, request, context)
    expire_ms = -1
    if request.retention_time_ms != DEFAULT_RETENTION:
        expire_ms = context.now_ms + request.retention_time_ms
    records: list[OffsetCommitted] = []
    topics = tuple(_commit_topic(request, t, check, expire_ms, context, records) for t in request.topics)
    return Outcome(
        (Reply(context.waiter, OffsetCommitResponse(topics=topics)),), tuple(records), timers=timers
    )


def check_keeps_offsets(group: Group) -> None:
    """Check that the group's type has committed offsets. Raises GROUP_ID_NOT_FOUND for a share group."""
    if not group_type_of(group).keeps_offsets:
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a consumer group.")


Check = Callable[[Topic, int], None]
"""A function that checks that a partition of a topic may be committed. Raises `GroupError`."""


def check_member(
    group: ModernGroup[Any],
    member_id: str,
    instance_id: str | None,
    epoch: int,
    version: int,
    *,
    transactional: bool = False,
) -> Check | None:
    """Check that a member of a consumer or streams group may commit. Raises `GroupError`.

    Return None if it may commit every partition; for an older epoch, the check to make for each partition.
    `version`: the version of the request; `transactional`: it is a TxnOffsetCommit."""
    stale = commits.check_committer(
        group, member_id, instance_id, epoch, version, transactional=transactional
    )
    if stale is None:
        return None
    return lambda topic, partition: commits.check_partition(group, stale, epoch, topic, partition)


def _check_committer(
    group: ClassicGroup | None, request: OffsetCommitRequest, context: Context
) -> tuple[Arm, ...]:
    """Check that a client may commit to a classic group; return the session timer if it is a member.

    A commit restarts that timer. `group` is None if it does not exist. Raises `GroupError`."""
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return ()
        if context.api_version >= FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND:
            raise GroupError(Errors.GROUP_ID_NOT_FOUND)
        raise GroupError(Errors.ILLEGAL_GENERATION)
    if generation < 0 and group.state is State.EMPTY:
        return ()
    if generation < 0 and not request.member_id and request.group_instance_id is None:
        raise GroupError(Errors.UNKNOWN_MEMBER_ID)
    member = group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(generation)
    if group.state is State.COMPLETING_REBALANCE:
        raise GroupError(Errors.REBALANCE_IN_PROGRESS)
    return (Arm(session_key(group.group_id, member.member_id), member.session_timeout_ms),)


def resolve_topic(
    topics: Topics, topic: OffsetCommitRequestTopic, version: int
) -> tuple[Topic | None, Errors]:
    """Return the topic that a request names by id or, in older versions, by name; None if it does not exist.

    Also return the error code with which to answer for its partitions in that case."""
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return topics.by_id.get(topic.topic_id), Errors.UNKNOWN_TOPIC_ID
    return topics.by_name.get(topic.name), Errors.UNKNOWN_TOPIC_OR_PARTITION


def _commit_topic(
    request: OffsetCommitRequest,
    topic: OffsetCommitRequestTopic,
    check: Check | None,
    expire_ms: int,
    context: Context,
    records: list[OffsetCommitted],
) -> OffsetCommitResponseTopic:
    """Append the records of a topic's committed offsets to `records`, and return the response for the topic.

    `check`: called for each partition, to check that the member may commit it; None if it may commit all.
    `expire_ms`: when the offsets expire, -1 unless the request has a retention time. Raises `GroupError`."""
    group_id = request.group_id
    known, missing = resolve_topic(context.topics, topic, context.api_version)
    if known is None:
        responses = [_response(p.partition_index, missing) for p in topic.partitions]
        return OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=tuple(responses)
        )
    name, partition_count, now_ms = known.name, known.partitions, context.now_ms
    # The only version of the record with an expiry timestamp has no field for the topic's id.
    topic_id = known.id if expire_ms == -1 else ZERO_UUID
    max_metadata_bytes: int = context.config["offset.metadata.max.bytes"]
    responses = []
    for p in topic.partitions:
        index, metadata = p.partition_index, p.committed_metadata or ""
        if not 0 <= index < partition_count:
            responses.append(_response(index, Errors.UNKNOWN_TOPIC_OR_PARTITION))
        elif len(metadata) > max_metadata_bytes:
            responses.append(_response(index, Errors.OFFSET_METADATA_TOO_LARGE))
        else:
            if check is not None:
                check(known, index)
            committed = Committed(
                p.committed_offset, p.committed_leader_epoch, metadata, now_ms, expire_ms, topic_id
            )
            records.append(OffsetCommitted(group_id, name, index, committed))
            responses.append(_response(index))
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=tuple(responses))


@lru_cache(maxsize=16_384)
def _response(index: int, error: Errors = Errors.NONE) -> OffsetCommitResponsePartition:
    """Return a partition's response. Equal responses are one cached object."""
    return OffsetCommitResponsePartition(partition_index=index, error_code=error)
