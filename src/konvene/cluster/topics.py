"""CreateTopics and DeleteTopics: topics are validated one by one and written as one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from konvene.cluster.mutations import MutationCounter
from konvene.cluster.names import collision_key, invalid_name_message
from konvene.cluster.state import CatalogueState, ResourceType, TopicState
from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.configs import BrokerConfig, ConfigError
from konvene.configs.alter import validate_topic
from konvene.configs.describe import describe_topic
from konvene.errors import MESSAGES, Errors
from konvene.internal_topics import CLUSTER_METADATA_TOPIC
from konvene.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from konvene.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from konvene.records.metadata import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from konvene.shard.contract import Context, Effect, Outcome, Reply
from konvene.shard.errors import ClusterError

MAX_PARTITIONS_PER_REQUEST = 10_000
"""Kafka's limit."""

BROKERS = 1
"""Size of the cluster."""

FIRST_VERSION_WITH_IDS = 6

CREATE_PARTITIONS = "create-partitions"
"""Effect: create the logs of the topic's partitions. Subject: the TopicState."""

DELETE_PARTITIONS = "delete-partitions"
"""Effect: delete the topic's logs. Subject: the TopicState."""


def create(state: CatalogueState, request: CreateTopicsRequest, context: Context) -> Outcome:
    """Create each valid topic of a CreateTopics request, with the ids of `context.fresh_ids` in sequence."""
    names = Counter(t.name for t in request.topics)
    results: list[CreatableTopicResult] = []
    records: list[Struct] = []
    effects: list[Effect] = []
    partitions_left, counter = MAX_PARTITIONS_PER_REQUEST, MutationCounter(context)
    taken = {collision_key(name): name for name in state.topics}
    for topic, fresh_id in zip(request.topics, context.fresh_ids, strict=False):
        try:
            if names[topic.name] > 1:
                raise ClusterError(Errors.INVALID_REQUEST, "Duplicate topic name.")
            created = _plan(state, taken, topic, Uuid.parse(fresh_id), context)
            partitions_left -= created.partitions
            if partitions_left < 0:
                raise ClusterError(
                    Errors.POLICY_VIOLATION, "Excessively large number of partitions per request."
                )
            counter.count(created.partitions)
        except ClusterError as refusal:
            results.append(
                CreatableTopicResult(
                    name=topic.name, error_code=refusal.error, error_message=refusal.message, configs=()
                )
            )
            continue
        taken[collision_key(topic.name)] = topic.name
        configs = {c.name: c.value for c in topic.configs if c.value is not None}
        results.append(_created(created, configs, context.config))
        records += _records(created, configs, context.config["node.id"])
        effects.append(Effect(CREATE_PARTITIONS, created))
    # A duplicate name gets one result.
    by_name = {result.name: result for result in results}
    reply = Reply(context.waiter, CreateTopicsResponse(topics=tuple(by_name.values())))
    if request.validate_only:
        return Outcome((reply,), mutations=counter.mutations)
    return Outcome((reply,), tuple(records), effects=tuple(effects), mutations=counter.mutations)


def _plan(
    state: CatalogueState, taken: Mapping[str, str], topic: CreatableTopic, topic_id: Uuid, context: Context
) -> TopicState:
    """Return the topic to create. Raises `ClusterError`.

    `taken`: names of existing topics, and of those before it in the request, by collision key.
    """
    message = invalid_name_message(topic.name)
    if message is not None:
        raise ClusterError(Errors.INVALID_TOPIC_EXCEPTION, message)
    if topic.name in state.topics:
        raise ClusterError(Errors.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise ClusterError(Errors.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited.")
    other = taken.get(collision_key(topic.name))
    if other is not None:
        raise ClusterError(
            Errors.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' collides with existing topic: {other}"
        )
    partitions = (
        _assigned_partitions(topic, context) if topic.assignments else _requested_partitions(topic, context)
    )
    try:
        validate_topic(context.config, {c.name: c.value for c in topic.configs})
    except ConfigError as error:
        raise ClusterError(Errors(error.code), str(error)) from None
    return TopicState(topic.name, topic_id, partitions)


def _requested_partitions(topic: CreatableTopic, context: Context) -> int:
    partitions: int = topic.num_partitions
    if partitions == -1:
        partitions = context.config["num.partitions"]
    elif partitions < 1:
        raise ClusterError(
            Errors.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    replicas = topic.replication_factor
    if replicas == -1:
        replicas = context.config["default.replication.factor"]
    elif replicas < 1:
        raise ClusterError(
            Errors.INVALID_REPLICATION_FACTOR, "Replication factor was set to an invalid non-positive value."
        )
    if replicas > BROKERS:
        raise ClusterError(
            Errors.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): The target replication factor of"
            f" {replicas} cannot be reached because only {BROKERS} broker(s) are registered or some brokers"
            " have all their log directories cordoned.",
        )
    return partitions


def _assigned_partitions(topic: CreatableTopic, context: Context) -> int:
    """Return the number of partitions of a topic that is created with a manual assignment of replicas.

    Raises `ClusterError` if the assignment is invalid.
    """
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise ClusterError(
            Errors.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions or replicationFactor was not"
            " set to -1.",
        )
    indexes = sorted(a.partition_index for a in topic.assignments)
    if indexes != list(range(len(indexes))):
        raise ClusterError(
            Errors.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence."
        )
    for assignment in topic.assignments:
        check_assignment(assignment.broker_ids, context.config["node.id"])
    return len(indexes)


def check_assignment(broker_ids: tuple[int, ...], node_id: int) -> None:
    """Raise `ClusterError` unless a partition's manual replica list contains this broker alone, once."""
    prefix = "The manual partition assignment includes"
    if not broker_ids:
        raise ClusterError(Errors.INVALID_REPLICA_ASSIGNMENT, f"{prefix} an empty replica list.")
    unknown = sorted(broker for broker in broker_ids if broker != node_id)
    twice = len(broker_ids) - len(unknown) > 1
    if unknown and (unknown[0] < node_id or not twice):
        message = f"{prefix} broker {unknown[0]}, but no such broker is registered."
    elif twice:
        message = f"{prefix} the broker {node_id} more than once."
    else:
        return
    raise ClusterError(Errors.INVALID_REPLICA_ASSIGNMENT, message)


def _created(topic: TopicState, configs: Mapping[str, str], config: BrokerConfig) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.id,
        num_partitions=topic.partitions,
        replication_factor=BROKERS,
        configs=tuple(
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in describe_topic(config, configs)
        ),
    )


def _records(topic: TopicState, configs: Mapping[str, str], node_id: int) -> list[Struct]:
    records: list[Struct] = [TopicRecord(name=topic.name, topic_id=topic.id)]
    for name, value in configs.items():
        records.append(
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        )
    return [*records, *partition_records(topic.id, range(topic.partitions), node_id)]


def partition_records(topic_id: Uuid, indexes: range, node_id: int) -> list[Struct]:
    """Return the records of new partitions of a topic, led by this node."""
    return [
        PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=(node_id,),
            isr=(node_id,),
            leader=node_id,
            leader_epoch=0,
            partition_epoch=0,
            directories=(ZERO_UUID,),
        )
        for index in indexes
    ]


def delete(state: CatalogueState, request: DeleteTopicsRequest, context: Context) -> Outcome:
    """Delete each valid topic of a DeleteTopics request, by name or id. Raises `ClusterError` if disabled."""
    if not context.config["delete.topic.enable"]:
        if context.api_version < 3:
            raise ClusterError(Errors.INVALID_REQUEST, "Topic deletion is disabled.")
        raise ClusterError(Errors.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    requested = request.topics
    if context.api_version < FIRST_VERSION_WITH_IDS:
        requested = tuple(DeleteTopicState(name=name) for name in request.topic_names)
    results: list[DeletableTopicResult] = []
    records: list[Struct] = []
    effects: list[Effect] = []
    counter = MutationCounter(context)
    counts = Counter((t.name, t.topic_id) for t in requested)
    ids = {t.topic_id for t in requested if t.name is None}
    for wanted in {(t.name, t.topic_id): t for t in requested}.values():
        try:
            if counts[wanted.name, wanted.topic_id] > 1:
                kind = "id" if wanted.name is None else "name"
                raise ClusterError(Errors.INVALID_REQUEST, f"Duplicate topic {kind}.")
            topic = _find(state, wanted)
            if counts[topic.name, ZERO_UUID] and topic.id in ids:
                # The entry by id has no result of its own, as in Kafka.
                if wanted.name is None:
                    continue
                wanted = wanted.replace(topic_id=topic.id)
                raise ClusterError(
                    Errors.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
                )
            wanted = wanted.replace(name=topic.name, topic_id=topic.id)
            counter.count(topic.partitions)
        except ClusterError as refusal:
            results.append(
                DeletableTopicResult(
                    name=wanted.name,
                    topic_id=wanted.topic_id,
                    error_code=refusal.error,
                    error_message=refusal.message,
                )
            )
            continue
        results.append(DeletableTopicResult(name=topic.name, topic_id=topic.id))
        records.append(RemoveTopicRecord(topic_id=topic.id))
        effects.append(Effect(DELETE_PARTITIONS, topic))
    reply = Reply(context.waiter, DeleteTopicsResponse(responses=tuple(results)))
    return Outcome((reply,), tuple(records), effects=tuple(effects), mutations=counter.mutations)


def _find(state: CatalogueState, wanted: DeleteTopicState) -> TopicState:
    if wanted.name is not None:
        if wanted.topic_id != ZERO_UUID:
            raise ClusterError(Errors.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        found = state.topics.get(wanted.name)
        if found is None:
            raise ClusterError(Errors.UNKNOWN_TOPIC_OR_PARTITION, MESSAGES[Errors.UNKNOWN_TOPIC_OR_PARTITION])
        return found
    if wanted.topic_id == ZERO_UUID:
        raise ClusterError(Errors.INVALID_REQUEST, "Neither topic name nor id were specified.")
    name = state.names.get(wanted.topic_id)
    if name is None:
        raise ClusterError(Errors.UNKNOWN_TOPIC_ID, MESSAGES[Errors.UNKNOWN_TOPIC_ID])
    return state.topics[name]
