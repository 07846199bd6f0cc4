"""DescribeShareGroupOffsets: where a share group stands, and how many records are left to it.

Read from the share coordinator, without a word to who delivers: what members have acquired is left as well.
What nobody knows has offset -1, and no error. The records that are left are those from the start offset to
the end of the partition, less those behind the start offset that are done with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.group_requests import share_groups_are_on
from konvene.broker.net.authorizer import Authorizer, Operation, Resource, ResourceType, allow_all
from konvene.broker.shares import describe_in_flight
from konvene.codec.uuid import ZERO_UUID
from konvene.errors import MESSAGES, Errors
from konvene.groups.share.work import InitializedPartitions
from konvene.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from konvene.share_state.requests import ReadSummary, SharePartitionKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.coordinator import RequestContext

UNKNOWN = -1
HIDDEN = Errors.TOPIC_AUTHORIZATION_FAILED


async def handle(
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    groups: GroupCoordinators,
    share_coordinators: ShareCoordinators,
    share_partitions: SharePartitions,
    request: DescribeShareGroupOffsetsRequest,
    context: RequestContext,
    *,
    authorize: Authorizer = allow_all,
) -> DescribeShareGroupOffsetsResponse:
    with_extension = describe_in_flight.wanted(request)
    described = [
        await _group(
            catalogue,
            partitions,
            groups,
            share_coordinators,
            share_partitions,
            group,
            context,
            authorize,
            with_extension,
        )
        for group in request.groups
    ]
    return DescribeShareGroupOffsetsResponse(groups=tuple(described))


async def _group(
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    groups: GroupCoordinators,
    share_coordinators: ShareCoordinators,
    share_partitions: SharePartitions,
    group: DescribeShareGroupOffsetsRequestGroup,
    context: RequestContext,
    authorize: Authorizer,
    with_extension: bool,
) -> DescribeShareGroupOffsetsResponseGroup:
    if not share_groups_are_on(catalogue):
        return _refused(group.group_id, Errors.UNSUPPORTED_VERSION)
    if not authorize(context, Operation.DESCRIBE, Resource(ResourceType.GROUP, group.group_id)):
        return _refused(group.group_id, Errors.GROUP_AUTHORIZATION_FAILED)
    topics = group.topics
    if topics is None:
        found = await _initialized(groups, group.group_id, context)
        if isinstance(found, Errors):
            return _refused(group.group_id, found)
        topics = _by_topic(catalogue, found)
        topics = tuple(t for t in topics if _is_seen(authorize, context, t.topic_name))
    read: list[DescribeShareGroupOffsetsResponseTopic] = []
    absent: list[DescribeShareGroupOffsetsResponseTopic] = []
    hidden: list[DescribeShareGroupOffsetsResponseTopic] = []
    for topic in topics:
        if not _is_seen(authorize, context, topic.topic_name):
            hidden.append(_not_told(topic, HIDDEN))
        elif topic.topic_name not in catalogue.topics.by_name:
            absent.append(_not_told(topic, Errors.NONE))
        else:
            read.append(
                await _topic(
                    catalogue,
                    partitions,
                    share_coordinators,
                    share_partitions,
                    group.group_id,
                    topic,
                    with_extension,
                )
            )
    return DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=(*read, *absent, *hidden))


def _is_seen(authorize: Authorizer, context: RequestContext, topic: str) -> bool:
    return authorize(context, Operation.DESCRIBE, Resource(ResourceType.TOPIC, topic))


async def _initialized(
    groups: GroupCoordinators, group_id: str, context: RequestContext
) -> tuple[SharePartitionKey, ...] | Errors:
    coordinator = groups.of(group_id)
    if coordinator is None:
        return Errors.NOT_COORDINATOR
    found: tuple[SharePartitionKey, ...] | Errors
    found = await coordinator.submit(InitializedPartitions(group_id), context)
    return found


def _by_topic(
    catalogue: ClusterCatalogue, keys: Iterable[SharePartitionKey]
) -> tuple[DescribeShareGroupOffsetsRequestTopic, ...]:
    """The topics that there are, with these partitions."""
    known = catalogue.topics.by_id
    partitions: dict[str, list[int]] = {}
    for key in keys:
        if key.topic_id in known:
            partitions.setdefault(known[key.topic_id].name, []).append(key.partition)
    return tuple(
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=tuple(some))
        for name, some in partitions.items()
    )


async def _topic(
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    share_coordinators: ShareCoordinators,
    share_partitions: SharePartitions,
    group_id: str,
    topic: DescribeShareGroupOffsetsRequestTopic,
    with_extension: bool,
) -> DescribeShareGroupOffsetsResponseTopic:
    topic_id = catalogue.topics.by_name[topic.topic_name].id
    keys = [SharePartitionKey(group_id, topic_id, partition) for partition in topic.partitions]
    described = [
        await _partition(
            partitions, share_coordinators, share_partitions, topic.topic_name, key, with_extension
        )
        for key in keys
    ]
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name, topic_id=topic_id, partitions=tuple(described)
    )


async def _partition(
    partitions: Partitions,
    share_coordinators: ShareCoordinators,
    share_partitions: SharePartitions,
    topic: str,
    key: SharePartitionKey,
    with_extension: bool,
) -> DescribeShareGroupOffsetsResponsePartition:
    known = await share_coordinators.submit(ReadSummary(key, 0))
    told = DescribeShareGroupOffsetsResponsePartition(partition_index=key.partition, start_offset=UNKNOWN)
    if known.error is not Errors.NONE:
        return told
    told = told.replace(start_offset=known.start_offset, leader_epoch=known.leader_epoch)
    if with_extension:
        told = told.replace(unknown_tags=describe_in_flight.note(share_partitions, key))
    if UNKNOWN in (known.start_offset, known.delivery_complete_count):
        return told
    partition = partitions.get(topic, key.partition)
    if partition is None:
        error = partitions.why_not(topic, key.partition, Errors.UNKNOWN_TOPIC_OR_PARTITION)
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=key.partition, error_code=error, error_message=MESSAGES.get(error)
        )
    left = partition.log.end_offset - known.start_offset - known.delivery_complete_count
    return told.replace(lag=left)


def _not_told(
    topic: DescribeShareGroupOffsetsRequestTopic, error: Errors
) -> DescribeShareGroupOffsetsResponseTopic:
    message = MESSAGES.get(error)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=tuple(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=partition, start_offset=UNKNOWN, error_code=error, error_message=message
            )
            for partition in topic.partitions
        ),
    )


def _refused(group_id: str, error: Errors) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, error_code=error)
