"""DescribeShareGroupOffsets: describe the start offsets and lag of share groups.

Offsets come from the share coordinator, not from the share partitions' leaders, so acquired records count as
lag. An unknown offset is -1, without an error. The lag is the number of records from the start offset to the
end of the partition, less those above the start offset whose delivery is complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from konvene.broker.handlers.group_permissions import permits_group
from konvene.broker.handlers.group_requests import share_groups_enabled
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
from konvene.security.resources import Operation
from konvene.share_state.requests import ReadSummary, SharePartitionKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.net.authorization import Authorization
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.broker.shares.state_coordinators import ShareCoordinators
    from konvene.broker.storage.partitions import Partitions
    from konvene.runtime.coordinator import RequestContext

UNKNOWN = -1
TOPIC_DENIED = Errors.TOPIC_AUTHORIZATION_FAILED


async def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    groups: GroupCoordinators,
    share_coordinators: ShareCoordinators,
    share_partitions: SharePartitions,
    request: DescribeShareGroupOffsetsRequest,
    context: RequestContext,
) -> DescribeShareGroupOffsetsResponse:
    describer = _Describer(
        catalogue,
        partitions,
        groups,
        share_coordinators,
        share_partitions if describe_in_flight.is_requested(request) else None,
        context,
        authorization,
    )
    described = [await describer.describe_group(group) for group in request.groups]
    return DescribeShareGroupOffsetsResponse(groups=tuple(described))


class _Describer(NamedTuple):
    """Describes share groups for one request; holds the services and the context that this needs."""

    catalogue: ClusterCatalogue
    partitions: Partitions
    groups: GroupCoordinators
    share_coordinators: ShareCoordinators
    share_partitions: SharePartitions | None
    """Where in-flight records are looked up; None if the client does not request them."""
    context: RequestContext
    authorization: Authorization

    async def describe_group(
        self, group: DescribeShareGroupOffsetsRequestGroup
    ) -> DescribeShareGroupOffsetsResponseGroup:
        """Describe the requested topics, or all initialized ones if the request names none.

        Existing topics come first, then missing ones, then those that the client may not describe."""
        if not share_groups_enabled(self.catalogue):
            return _error_response(group.group_id, Errors.UNSUPPORTED_VERSION)
        if not permits_group(self.authorization, self.context, Operation.DESCRIBE, group.group_id):
            return _error_response(group.group_id, Errors.GROUP_AUTHORIZATION_FAILED)
        topics = group.topics
        if topics is None:
            initialized = await self._initialized_partitions(group.group_id)
            if isinstance(initialized, Errors):
                return _error_response(group.group_id, initialized)
            topics = _by_topic(self.catalogue, initialized)
        found: list[DescribeShareGroupOffsetsResponseTopic] = []
        missing: list[DescribeShareGroupOffsetsResponseTopic] = []
        denied: list[DescribeShareGroupOffsetsResponseTopic] = []
        permitted = self.authorization.permitted_topics(
            self.context, Operation.DESCRIBE, (topic.topic_name for topic in topics)
        )
        for topic in topics:
            if topic.topic_name not in permitted:
                if group.topics is not None:
                    denied.append(_unknown_offsets(topic, TOPIC_DENIED))
            elif topic.topic_name not in self.catalogue.topics.by_name:
                missing.append(_unknown_offsets(topic, Errors.NONE))
            else:
                found.append(await self._describe_topic(group.group_id, topic))
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=(*found, *missing, *denied)
        )

    async def _initialized_partitions(self, group_id: str) -> tuple[SharePartitionKey, ...] | Errors:
        coordinator = self.groups.of(group_id)
        if coordinator is None:
            return Errors.NOT_COORDINATOR
        result: tuple[SharePartitionKey, ...] | Errors
        result = await coordinator.submit(InitializedPartitions(group_id), self.context)
        return result

    async def _describe_topic(
        self, group_id: str, topic: DescribeShareGroupOffsetsRequestTopic
    ) -> DescribeShareGroupOffsetsResponseTopic:
        topic_id = self.catalogue.topics.by_name[topic.topic_name].id
        keys = [SharePartitionKey(group_id, topic_id, partition) for partition in topic.partitions]
        described = [await self._describe_partition(topic.topic_name, key) for key in keys]
        return DescribeShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, topic_id=topic_id, partitions=tuple(described)
        )

    async def _describe_partition(
        self, topic: str, key: SharePartitionKey
    ) -> DescribeShareGroupOffsetsResponsePartition:
        summary = await self.share_coordinators.submit(ReadSummary(key, 0))
        response = DescribeShareGroupOffsetsResponsePartition(
            partition_index=key.partition, start_offset=UNKNOWN
        )
        if summary.error is not Errors.NONE:
            return response
        response = response.replace(start_offset=summary.start_offset, leader_epoch=summary.leader_epoch)
        if self.share_partitions is not None:
            response = response.replace(
                unknown_tags=describe_in_flight.in_flight_tag(self.share_partitions, key)
            )
        if UNKNOWN in (summary.start_offset, summary.delivery_complete_count):
            return response
        partition = self.partitions.get(topic, key.partition)
        if partition is None:
            error = self.partitions.missing_error(topic, key.partition, Errors.UNKNOWN_TOPIC_OR_PARTITION)
            return DescribeShareGroupOffsetsResponsePartition(
                partition_index=key.partition, error_code=error, error_message=MESSAGES.get(error)
            )
        lag = partition.log.end_offset - summary.start_offset - summary.delivery_complete_count
        return response.replace(lag=lag)


def _by_topic(
    catalogue: ClusterCatalogue, keys: Iterable[SharePartitionKey]
) -> tuple[DescribeShareGroupOffsetsRequestTopic, ...]:
    """Group share partitions by topic, leaving out topics that no longer exist."""
    topics_by_id = catalogue.topics.by_id
    partitions: dict[str, list[int]] = {}
    for key in keys:
        if key.topic_id in topics_by_id:
            partitions.setdefault(topics_by_id[key.topic_id].name, []).append(key.partition)
    return tuple(
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=tuple(indexes))
        for name, indexes in partitions.items()
    )


def _unknown_offsets(
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


def _error_response(group_id: str, error: Errors) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, error_code=error)
