"""Metadata: describe brokers and topics, after creating missing topics (`auto.create.topics.enable`).

A topic needs DESCRIBE. Without it the response does not show whether the topic exists: a requested one has
TOPIC_AUTHORIZATION_FAILED, and a request for all topics leaves it out. Creating missing topics also needs
CREATE on the cluster or on each of them. Denied topics come last in the response, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from konvene.broker.handlers.describe_cluster import cluster_operations
from konvene.broker.net.authorization import NOT_REQUESTED, Authorization
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
from konvene.security.resources import Operation
from konvene.security.resources import topic as topic_resource
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
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    topic_creator: TopicCreator,
    partitions: Partitions,
    request: MetadataRequest,
    context: RequestContext,
) -> Answer[MetadataResponse]:
    view = _View(authorization, settings, catalogue, partitions, request, context)
    requested, denied = view.permitted(_requested_topics(request, context.api_version))
    if requested and request.allow_auto_topic_creation and settings.config["auto.create.topics.enable"]:
        names = [t.name for t in requested if t.name is not None and t.topic_id == ZERO_UUID]
        missing = [name for name in names if name not in catalogue.topics.by_name]
        if missing:
            creatable = view.creatable(missing)
            rejected = dict.fromkeys(name for name in missing if name not in creatable)
            denied = (*map(_creation_denied, rejected), *denied)
            requested = tuple(topic for topic in requested if topic.name not in rejected)
            if creatable:
                names = [name for name in missing if name in creatable]
                return _create_and_respond(view, topic_creator, requested, denied, names)
    return _response(view, requested, denied)


def _requested_topics(request: MetadataRequest, version: int) -> tuple[MetadataRequestTopic, ...] | None:
    """Return the requested topics; None for all. If any is requested by id, those by name are left out."""
    requested = request.topics
    if requested is None or (version < FIRST_VERSION_WHERE_NULL_IS_ALL and not requested):
        return None
    by_id = tuple(topic for topic in requested if topic.topic_id != ZERO_UUID)
    return by_id or requested


class _View(NamedTuple):
    """The cluster as the client of one request may see it."""

    authorization: Authorization
    settings: BrokerSettings
    catalogue: ClusterCatalogue
    partitions: Partitions
    request: MetadataRequest
    context: RequestContext

    def permitted(
        self, requested: tuple[MetadataRequestTopic, ...] | None
    ) -> tuple[tuple[MetadataRequestTopic, ...] | None, tuple[MetadataResponseTopic, ...]]:
        """Return the requested topics that the client may describe, and the results of the others."""
        if requested is None or not self.authorization.is_enabled:
            return requested, ()
        names = [self._name(topic) for topic in requested]
        permitted = self.authorization.permitted_topics(
            self.context, Operation.DESCRIBE, (name for name in names if name is not None)
        )
        denied: dict[str, MetadataResponseTopic] = {}
        for topic, name in zip(requested, names, strict=True):
            if name is not None and name not in permitted:
                denied[name] = self._denied(topic)
        kept = (t for t, name in zip(requested, names, strict=True) if name not in denied)
        return tuple(kept), tuple(denied.values())

    def _denied(self, topic: MetadataRequestTopic) -> MetadataResponseTopic:
        name = topic.name
        if topic.topic_id != ZERO_UUID:
            name = None if self.context.api_version >= FIRST_VERSION_WITH_NULL_NAME else ""
        return MetadataResponseTopic(
            error_code=Errors.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=topic.topic_id
        )

    def _name(self, topic: MetadataRequestTopic) -> str | None:
        """Return the name of a requested topic; None if its id is unknown."""
        if topic.topic_id == ZERO_UUID and topic.name is not None:
            return topic.name
        found = self.catalogue.topics.by_id.get(topic.topic_id)
        return None if found is None else found.name

    def creatable(self, names: list[str]) -> set[str]:
        """Return the names of the topics that the client may create."""
        if self.authorization.permits_cluster(self.context, Operation.CREATE, logs_denied=False):
            return set(names)
        return self.authorization.permitted_topics(self.context, Operation.CREATE, names)

    def all_topics(self) -> list[Topic]:
        """Return all topics that the client may describe."""
        topics = self.catalogue.topics.by_name
        permitted = self.authorization.permitted_topics(
            self.context, Operation.DESCRIBE, topics, logs_denied=False
        )
        return [topic for name, topic in topics.items() if name in permitted]

    def operations(self, topic: str) -> int:
        """Return the operations that the client may perform on a topic, if it requested them."""
        if not self.request.include_topic_authorized_operations:
            return NOT_REQUESTED
        return self.authorization.operations(self.context, topic_resource(topic))


async def _create_and_respond(
    view: _View,
    topic_creator: TopicCreator,
    requested: tuple[MetadataRequestTopic, ...],
    denied: tuple[MetadataResponseTopic, ...],
    names: list[str],
) -> MetadataResponse:
    usage = view.context.usage
    quota = None if usage is None else usage.mutation_quota(strict=True)
    valid = [name for name in names if invalid_name_message(name) is None]
    await topic_creator.create_missing(valid, quota)
    return _response(view, requested, denied)


def _response(
    view: _View,
    requested: tuple[MetadataRequestTopic, ...] | None,
    denied: tuple[MetadataResponseTopic, ...],
) -> MetadataResponse:
    catalogue, partitions, request = view.catalogue, view.partitions, view.request
    if requested is None:
        topics = tuple(
            _topic(catalogue, partitions, topic, view.operations(topic.name)) for topic in view.all_topics()
        )
    else:
        topics = tuple(
            _requested_topic(catalogue, partitions, t, view.operations, view.context.api_version)
            for t in requested
        )
    host, port = catalogue.advertised_to(view.context.session.listener)
    return MetadataResponse(
        brokers=(
            MetadataResponseBroker(
                node_id=catalogue.node_id, host=host, port=port, rack=view.settings.config["broker.rack"]
            ),
        ),
        cluster_id=catalogue.cluster_id,
        controller_id=catalogue.node_id,
        topics=topics + denied,
        cluster_authorized_operations=(
            cluster_operations(view.authorization, view.context)
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED
        ),
    )


def _creation_denied(name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=Errors.TOPIC_AUTHORIZATION_FAILED, name=name, is_internal=name in INTERNAL_TOPICS
    )


def _requested_topic(
    catalogue: ClusterCatalogue,
    partitions: Partitions,
    requested: MetadataRequestTopic,
    operations: Callable[[str], int],
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
        return _topic(catalogue, partitions, topic, operations(topic.name))
    topic = catalogue.topics.by_name.get(requested.name)
    if topic is not None:
        return _topic(catalogue, partitions, topic, operations(topic.name))
    is_invalid = invalid_name_message(requested.name) is not None
    error = Errors.INVALID_TOPIC_EXCEPTION if is_invalid else Errors.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(
        error_code=error,
        name=requested.name,
        topic_id=ZERO_UUID,
        topic_authorized_operations=operations(requested.name),
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
