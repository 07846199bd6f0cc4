"""CreateTopics and DeleteTopics: each topic is decided by itself, all that pass become one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from konvene.cluster.names import collision_key, what_is_wrong
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
"""This node is the cluster."""

FIRST_VERSION_WITH_IDS = 6

CREATE_PARTITIONS = "create-partitions"
"""Effect: the topic's partitions need logs. Subject: the TopicState."""

DELETE_PARTITIONS = "delete-partitions"
"""Effect: the topic's logs can go. Subject: the TopicState."""


def create(state: CatalogueState, request: CreateTopicsRequest, context: Context) -> Outcome:
    """Decide a CreateTopics. `context.fresh_ids` holds an id for each topic."""
    names = Counter(t.name for t in request.topics)
    results: list[CreatableTopicResult] = []
    records: list[Struct] = []
    effects: list[Effect] = []
    partitions_left = MAX_PARTITIONS_PER_REQUEST
    taken = {collision_key(name): name for name in state.topics}
    for topic, fresh_id in zip(request.topics, context.fresh_ids, strict=False):
        try:
            if names[topic.name] > 1:
                raise ClusterError(Errors.INVALID_REQUEST, "Duplicate topic name.")
            made = _plan(state, taken, topic, Uuid.parse(fresh_id), context)
            partitions_left -= made.partitions
            if partitions_left < 0:
                raise ClusterError(
                    Errors.POLICY_VIOLATION, "Excessively large number of partitions per request."
                )
        except ClusterError as refused:
            results.append(
                CreatableTopicResult(
                    name=topic.name, error_code=refused.error, error_message=refused.message, configs=()
                )
            )
            continue
        taken[collision_key(topic.name)] = topic.name
        told = {c.name: c.value for c in topic.configs if c.value is not None}
        results.append(_created(made, told, context.config))
        records += _records(made, told, context.config["node.id"])
        effects.append(Effect(CREATE_PARTITIONS, made))
    # A topic that was named twice is answered once.
    answered = {r.name: r for r in results}
    reply = Reply(context.waiter, CreateTopicsResponse(topics=tuple(answered.values())))
    if request.validate_only:
        return Outcome((reply,))
    return Outcome((reply,), tuple(records), effects=tuple(effects))


def _plan(
    state: CatalogueState, taken: Mapping[str, str], topic: CreatableTopic, topic_id: Uuid, context: Context
) -> TopicState:
    """The topic as it will be, or a refusal that says why not."""
    wrong = what_is_wrong(topic.name)
    if wrong is not None:
        raise ClusterError(Errors.INVALID_TOPIC_EXCEPTION, wrong)
    if topic.name in state.topics:
        raise ClusterError(Errors.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise ClusterError(Errors.INVALID_REQUEST, f"Creation of internal topic {topic.name} is prohibited.")
    other = taken.get(collision_key(topic.name))
    if other is not None:
        raise ClusterError(
            Errors.INVALID_TOPIC_EXCEPTION, f"Topic '{topic.name}' collides with existing topic: {other}"
        )
    partitions = _assigned(topic, context) if topic.assignments else _counted(topic, context)
    try:
        validate_topic(context.config, {c.name: c.value for c in topic.configs})
    except ConfigError as error:
        raise ClusterError(Errors(error.code), str(error)) from None
    return TopicState(topic.name, topic_id, partitions)


def _counted(topic: CreatableTopic, context: Context) -> int:
    partitions: int = topic.num_partitions
    if partitions == -1:
        partitions = context.config["num.partitions"]
    elif partitions < 1:
        raise ClusterError(
            Errors.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    copies = topic.replication_factor
    if copies == -1:
        copies = context.config["default.replication.factor"]
    elif copies < 1:
        raise ClusterError(
            Errors.INVALID_REPLICATION_FACTOR, "Replication factor was set to an invalid non-positive value."
        )
    if copies > BROKERS:
        raise ClusterError(
            Errors.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {copies} time(s): The target replication factor of {copies}"
            f" cannot be reached because only {BROKERS} broker(s) are registered or some brokers have all"
            " their log directories cordoned.",
        )
    return partitions


def _assigned(topic: CreatableTopic, context: Context) -> int:
    """The client says which broker holds which partition: all of them this one."""
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
    """Raise what is wrong with the brokers that a client chose for a partition, the lowest id first."""
    said = "The manual partition assignment includes"
    if not broker_ids:
        raise ClusterError(Errors.INVALID_REPLICA_ASSIGNMENT, f"{said} an empty replica list.")
    unknown = sorted(broker for broker in broker_ids if broker != node_id)
    twice = len(broker_ids) - len(unknown) > 1
    if unknown and (unknown[0] < node_id or not twice):
        words = f"{said} broker {unknown[0]}, but no such broker is registered."
    elif twice:
        words = f"{said} the broker {node_id} more than once."
    else:
        return
    raise ClusterError(Errors.INVALID_REPLICA_ASSIGNMENT, words)


def _created(topic: TopicState, told: Mapping[str, str], config: BrokerConfig) -> CreatableTopicResult:
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
            for entry in describe_topic(config, told)
        ),
    )


def _records(topic: TopicState, told: Mapping[str, str], node_id: int) -> list[Struct]:
    records: list[Struct] = [TopicRecord(name=topic.name, topic_id=topic.id)]
    for name, value in told.items():
        records.append(
            ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        )
    return [*records, *partition_records(topic.id, range(topic.partitions), node_id)]


def partition_records(topic_id: Uuid, indexes: range, node_id: int) -> list[Struct]:
    """New partitions of a topic, led by the one node."""
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
    """Decide a DeleteTopics."""
    if not context.config["delete.topic.enable"]:
        if context.api_version < 3:
            raise ClusterError(Errors.INVALID_REQUEST, "Topic deletion is disabled.")
        raise ClusterError(Errors.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    asked = request.topics
    if context.api_version < FIRST_VERSION_WITH_IDS:
        asked = tuple(DeleteTopicState(name=name) for name in request.topic_names)
    results: list[DeletableTopicResult] = []
    records: list[Struct] = []
    effects: list[Effect] = []
    gone: set[str] = set()
    for wanted in asked:
        try:
            topic = _find(state, wanted)
            if topic.name in gone:
                raise ClusterError(Errors.INVALID_REQUEST, "Duplicate topic name or id.")
        except ClusterError as refused:
            results.append(
                DeletableTopicResult(
                    name=wanted.name,
                    topic_id=wanted.topic_id,
                    error_code=refused.error,
                    error_message=refused.message,
                )
            )
            continue
        gone.add(topic.name)
        results.append(DeletableTopicResult(name=topic.name, topic_id=topic.id))
        records.append(RemoveTopicRecord(topic_id=topic.id))
        effects.append(Effect(DELETE_PARTITIONS, topic))
    reply = Reply(context.waiter, DeleteTopicsResponse(responses=tuple(results)))
    return Outcome((reply,), tuple(records), effects=tuple(effects))


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
