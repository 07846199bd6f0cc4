"""Metadata: describe brokers and topics, after creating missing topics (`auto.create.topics.enable`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.authorized_operations import CLUSTER_OPERATIONS, NOT_REQUESTED, TOPIC_OPERATIONS
from konvene.cluster.names import invalid_name_message
from konvene.codec.uuid import ZERO_UUID
from konvene.errors import Errors
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from konvene.shard.image import Topic

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.settings import BrokerSettings
    from konvene.broker.storage.partitions import Partitions
    from konvene.broker.topic_creator import TopicCreator
    from konvene.runtime.coordinator import RequestContext
    from konvene.runtime.deferred import Answer

FIRST_VERSION_WHERE_NULL_IS_ALL = 1
FIRST_VERSION_WITH_NULL_NAME = 12


def handle(
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    topic_creator: TopicCreator,
    partitions: Partitions,
    request: MetadataRequest,
    context: RequestContext,
) -> Answer[MetadataResponse]:
    requested = _requested_topics(request, context.api_version)
    if requested and request.allow_auto_topic_creation and settings.config["auto.create.topics.enable"]:
        names = [t.name for t in requested if t.name is not None and t.topic_id == ZERO_UUID]
        missing = [name for name in names if name not in catalogue.topics.by_name]
        if missing:
            return _create_and_respond(
                settings, catalogue, topic_creator, partitions, request, context, requested, missing
            )
    return _response(settings, catalogue, partitions, request, context, requested)


def _requested_topics(request: MetadataRequest, version: int) -> tuple[MetadataRequestTopic, ...] | None:
    """Return the requested topics; None for all. If any is requested by id, those by name are left out."""
    requested = request.topics
    if requested is None or (version < FIRST_VERSION_WHERE_NULL_IS_ALL and not requested):
        return None
    by_id = tuple(topic for topic in requested if topic.topic_id != ZERO_UUID)
    return by_id or requested


async def _create_and_respond(
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    topic_creator: TopicCreator,
    partitions: Partitions,
    request: MetadataRequest,
    context: RequestContext,
    requested: tuple[MetadataRequestTopic, ...],
    names: list[str],
) -> MetadataResponse:
    await topic_creator.create_missing([name for name in names if invalid_name_message(name) is None])
    return _response(settings, catalogue, partitions, request, context, requested)


def _response(
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    request: MetadataRequest,
    context: RequestContext,
    requested: tuple[MetadataRequestTopic, ...] | None,
) -> MetadataResponse:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_REQUESTED
    if requested is None:
        topics = tuple(
            _topic(catalogue, partitions, topic, operations) for topic in catalogue.topics.by_name.values()
        )
    else:
        topics = tuple(
            _requested_topic(catalogue, partitions, t, operations, context.api_version) for t in requested
        )
    host, port = catalogue.advertised_to(context.session.listener)
    return MetadataResponse(
        brokers=(
            MetadataResponseBroker(
                node_id=catalogue.node_id, host=host, port=port, rack=settings.config["broker.rack"]
            ),
        ),
        cluster_id=catalogue.cluster_id,
        controller_id=catalogue.node_id,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _requested_topic(
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    requested: MetadataRequestTopic,
    operations: int,
    version: int,
) -> MetadataResponseTopic:
    # The Java client requests a topic by id with an empty name.
    if requested.topic_id != ZERO_UUID or requested.name is None:
        topic = catalogue.topics.by_id.get(requested.topic_id)
        if topic is None:
            return MetadataResponseTopic(
                error_code=Errors.UNKNOWN_TOPIC_ID,
                name=None if version >= FIRST_VERSION_WITH_NULL_NAME else "",
                topic_id=requested.topic_id,
            )
        return _topic(catalogue, partitions, topic, operations)
    topic = catalogue.topics.by_name.get(requested.name)
    if topic is not None:
        return _topic(catalogue, partitions, topic, operations)
    is_invalid = invalid_name_message(requested.name) is not None
    error = Errors.INVALID_TOPIC_EXCEPTION if is_invalid else Errors.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(
        error_code=error, name=requested.name, topic_id=ZERO_UUID, topic_authorized_operations=operations
    )


def _topic(
    catalogue: ClusterCatalogue, partitions: Partitions, topic: Topic, operations: int
) -> MetadataResponseTopic:
    epoch = catalogue.state.leader_epoch(topic.name)
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            _partition(catalogue, partitions, topic.name, index, epoch) for index in range(topic.partitions)
        ),
        topic_authorized_operations=operations,
    )


def _partition(
    catalogue: ClusterCatalogue, partitions: Partitions, topic: str, index: int, epoch: int
) -> MetadataResponsePartition:
    """Describe a partition with leader epoch `epoch`: this node is its leader, unless its log is offline."""
    node = (catalogue.node_id,)
    if (topic, index) in partitions.offline:
        return MetadataResponsePartition(
            error_code=Errors.LEADER_NOT_AVAILABLE,
            partition_index=index,
            leader_id=-1,
            replica_nodes=node,
            offline_replicas=node,
        )
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=catalogue.node_id,
        leader_epoch=epoch,
        replica_nodes=node,
        isr_nodes=node,
    )
