"""CreatePartitions: topics are validated one by one, and all new partitions are written as one batch."""

from __future__ import annotations

from collections import Counter

from konvene.cluster.mutations import MutationCounter
from konvene.cluster.state import CatalogueState, TopicState
from konvene.cluster.topics import (
    CREATE_PARTITIONS,
    MAX_PARTITIONS_PER_REQUEST,
    check_assignment,
    partition_records,
)
from konvene.codec.schema import Struct
from konvene.errors import MESSAGES, Errors
from konvene.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from konvene.shard.contract import Context, Effect, Outcome, Reply
from konvene.shard.errors import ClusterError


def grow(state: CatalogueState, request: CreatePartitionsRequest, context: Context) -> Outcome:
    """Add partitions to each valid topic of a CreatePartitions request."""
    mentions = Counter(t.name for t in request.topics)
    results: list[CreatePartitionsTopicResult] = []
    records: list[Struct] = []
    effects: list[Effect] = []
    partitions_left, counter = MAX_PARTITIONS_PER_REQUEST, MutationCounter(context)
    for wanted in {t.name: t for t in request.topics}.values():
        try:
            if mentions[wanted.name] > 1:
                raise ClusterError(Errors.INVALID_REQUEST, "Duplicate topic name.")
            topic = _growable_topic(state, wanted, context.config["node.id"])
            partitions_left -= wanted.count - topic.partitions
            if partitions_left < 0:
                raise ClusterError(
                    Errors.POLICY_VIOLATION, "Excessively large number of partitions per request."
                )
            counter.count(wanted.count - topic.partitions)
        except ClusterError as refusal:
            results.append(
                CreatePartitionsTopicResult(
                    name=wanted.name, error_code=refusal.error, error_message=refusal.message
                )
            )
            continue
        results.append(CreatePartitionsTopicResult(name=wanted.name))
        records += partition_records(
            topic.id, range(topic.partitions, wanted.count), context.config["node.id"]
        )
        effects.append(Effect(CREATE_PARTITIONS, topic._replace(partitions=wanted.count)))
    reply = Reply(context.waiter, CreatePartitionsResponse(results=tuple(results)))
    if request.validate_only:
        return Outcome((reply,), mutations=counter.mutations)
    return Outcome((reply,), tuple(records), effects=tuple(effects), mutations=counter.mutations)


def _growable_topic(state: CatalogueState, wanted: CreatePartitionsTopic, node_id: int) -> TopicState:
    """Return the topic that a request names. Raises `ClusterError` if it may not get these partitions."""
    topic = state.topics.get(wanted.name)
    if topic is None:
        raise ClusterError(Errors.UNKNOWN_TOPIC_OR_PARTITION, MESSAGES[Errors.UNKNOWN_TOPIC_OR_PARTITION])
    if wanted.count == topic.partitions:
        raise ClusterError(Errors.INVALID_PARTITIONS, f"Topic already has {topic.partitions} partition(s).")
    if wanted.count < topic.partitions:
        raise ClusterError(
            Errors.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {topic.partitions} partition(s); {wanted.count} would not"
            " be an increase.",
        )
    if wanted.assignments is not None:
        additional = wanted.count - topic.partitions
        if len(wanted.assignments) != additional:
            raise ClusterError(
                Errors.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only {len(wanted.assignments)}"
                " assignment(s) were specified.",
            )
        for assignment in wanted.assignments:
            check_assignment(assignment.broker_ids, node_id)
    return topic
