"""Cases of the APIs about topics and records. The outcomes are those of Kafka 4.4."""

from __future__ import annotations

from tests.authorization_cases.cases import (
    ALL,
    DESCRIBING,
    NO_RIGHT,
    TRANSACTIONAL_ID,
    Case,
    Outcome,
    World,
    produce_to,
)

from konvene.codec.uuid import Uuid
from konvene.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.describe_producers import DescribeProducersRequest
from konvene.messages.describe_producers import TopicRequest as ProducersOfTopic
from konvene.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

DENIED, UNKNOWN = "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PARTITION"
TRANSACTION_DENIED = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
NAMES = ("new", "other", "seen")
UNKNOWN_ID = Uuid(b"unknown topic id")
RETENTION_MS = 604_800_000
TRANSACTIONAL = 0x10
"""Attribute of a transactional batch."""


def topics(state: str = DENIED, **states: str) -> str:
    """Return the rendered topics with partition 0 of each in `state`, or as `states` has it."""
    return "[" + "; ".join(f"{name} [0 {states.get(name, state)}]" for name in NAMES) + "]"


def state(offsets: str = "0-1", partitions: int = 1, retention_ms: int = RETENTION_MS) -> str:
    return f"{partitions} partitions, {offsets}, {retention_ms} ms"


def fetch(world: World) -> FetchRequest:
    partitions = (FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),)
    return FetchRequest(
        max_wait_ms=0, topics=tuple(FetchTopic(topic=world.name(n), partitions=partitions) for n in NAMES)
    )


def fetch_by_id(world: World) -> FetchRequest:
    partitions = (FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),)
    ids = (UNKNOWN_ID, world.id("other"), world.id("seen"))
    return FetchRequest(
        max_wait_ms=0, topics=tuple(FetchTopic(topic_id=id_, partitions=partitions) for id_ in ids)
    )


def list_offsets(world: World) -> ListOffsetsRequest:
    partitions = (ListOffsetsPartition(partition_index=0, timestamp=-1),)
    return ListOffsetsRequest(
        replica_id=-1,
        topics=tuple(ListOffsetsTopic(name=world.name(n), partitions=partitions) for n in NAMES),
    )


def epochs(world: World) -> OffsetForLeaderEpochRequest:
    partitions = (OffsetForLeaderPartition(partition=0, leader_epoch=0),)
    return OffsetForLeaderEpochRequest(
        topics=tuple(OffsetForLeaderTopic(topic=world.name(n), partitions=partitions) for n in NAMES)
    )


def delete_records(world: World) -> DeleteRecordsRequest:
    partitions = (DeleteRecordsPartition(partition_index=0, offset=-1),)
    return DeleteRecordsRequest(
        timeout_ms=5_000,
        topics=tuple(DeleteRecordsTopic(name=world.name(n), partitions=partitions) for n in NAMES),
    )


def producers(world: World) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=tuple(ProducersOfTopic(name=world.name(n), partition_indexes=(0,)) for n in NAMES)
    )


def metadata(*names: str, **flags: bool) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=n) for n in names),
        **{"allow_auto_topic_creation": False} | flags,
    )


def with_operations(world: World) -> MetadataRequest:
    names = (world.name(n) for n in NAMES)
    return metadata(
        *names, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )


def metadata_by_id(world: World) -> MetadataRequest:
    ids = (UNKNOWN_ID, world.id("other"), world.id("seen"))
    return MetadataRequest(topics=tuple(MetadataRequestTopic(topic_id=id_, name=None) for id_ in ids))


def create_topics(world: World) -> CreateTopicsRequest:
    names = (*map(world.name, ("new", "seen")), "__cluster_metadata")
    return CreateTopicsRequest(
        timeout_ms=10_000,
        topics=tuple(CreatableTopic(name=n, num_partitions=2, replication_factor=1) for n in names),
    )


def create_twice(world: World) -> CreateTopicsRequest:
    topic = CreatableTopic(name=world.name("new"), num_partitions=2, replication_factor=1)
    return CreateTopicsRequest(timeout_ms=10_000, topics=(topic, topic))


def delete_by_name(world: World) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(
        timeout_ms=10_000, topics=tuple(DeleteTopicState(name=world.name(n)) for n in NAMES)
    )


def delete_by_id(world: World) -> DeleteTopicsRequest:
    ids = (UNKNOWN_ID, world.id("other"), world.id("seen"))
    return DeleteTopicsRequest(timeout_ms=10_000, topics=tuple(DeleteTopicState(topic_id=id_) for id_ in ids))


def create_partitions(world: World) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        timeout_ms=10_000,
        topics=tuple(CreatePartitionsTopic(name=world.name(n), count=3, assignments=None) for n in NAMES),
    )


WRITTEN = f"seen: {state('0-2')}"
BOTH_WRITTEN = f"seen: {state('0-2')}; other: {state('0-2')}"

CASES = (
    Case("Produce", 12, lambda w: produce_to(w, *NAMES), {
        NO_RIGHT: Outcome(topics()),
        "WRITE TOPIC seen": Outcome(topics(seen="ok"), WRITTEN),
        ALL: Outcome(topics("ok", new=UNKNOWN), BOTH_WRITTEN),
    }),
    Case("Produce by id", 13, lambda w: produce_to(w, "seen", "other", by_id=True), {
        NO_RIGHT: Outcome(f"[#other [0 {DENIED}]; #seen [0 {DENIED}]]"),
        "WRITE TOPIC seen": Outcome(f"[#other [0 {DENIED}]; #seen [0 ok]]", WRITTEN),
        ALL: Outcome("[#other [0 ok]; #seen [0 ok]]", BOTH_WRITTEN),
    }),
    Case("Produce without acknowledgement", 12, lambda w: produce_to(w, "seen", "other", acks=0), {
        NO_RIGHT: Outcome("closed"),
        "WRITE TOPIC seen": Outcome("closed", WRITTEN),
    }),
    Case("Produce in a transaction", 11, lambda w: produce_to(
        w, "seen", attributes=TRANSACTIONAL, transactional_id=w.name(TRANSACTIONAL_ID)
    ), {
        NO_RIGHT: Outcome(f"[seen [0 {TRANSACTION_DENIED}]]"),
        "WRITE TRANSACTIONAL_ID transaction": Outcome(f"[seen [0 {DENIED}]]"),
    }),
    Case("Fetch", 12, fetch, {
        NO_RIGHT: Outcome(f"ok {topics()}"),
        "READ TOPIC seen": Outcome(f"ok {topics(seen='ok records')}"),
        ALL: Outcome(f"ok {topics('ok records', new=UNKNOWN)}"),
    }),
    Case("Fetch of a replica", 12, lambda w: fetch(w).replace(replica_id=7), {
        NO_RIGHT: Outcome(f"ok {topics()}"),
        "CLUSTER_ACTION CLUSTER": Outcome(f"ok {topics('NOT_LEADER_OR_FOLLOWER', new=UNKNOWN)}"),
    }),
    Case("Fetch of a replica by id", 17, lambda w: fetch_by_id(w).replace(
        replica_state=ReplicaState(replica_id=7)
    ), {
        NO_RIGHT: Outcome(f"ok [#id [0 {DENIED}]; #other [0 {DENIED}]; #seen [0 {DENIED}]]"),
        "CLUSTER_ACTION CLUSTER": Outcome(
            "ok [#id [0 UNKNOWN_TOPIC_ID]; #other [0 NOT_LEADER_OR_FOLLOWER];"
            " #seen [0 NOT_LEADER_OR_FOLLOWER]]"),
    }),
    Case("Fetch by id", 17, fetch_by_id, {
        NO_RIGHT: Outcome(f"ok [#id [0 UNKNOWN_TOPIC_ID]; #other [0 {DENIED}]; #seen [0 {DENIED}]]"),
        "READ TOPIC seen": Outcome(
            f"ok [#id [0 UNKNOWN_TOPIC_ID]; #other [0 {DENIED}]; #seen [0 ok records]]"),
        ALL: Outcome("ok [#id [0 UNKNOWN_TOPIC_ID]; #other [0 ok records]; #seen [0 ok records]]"),
    }),
    Case("ListOffsets", 10, list_offsets, {
        NO_RIGHT: Outcome(topics()),
        f"{DESCRIBING} TOPIC seen": Outcome(topics(seen="ok")),
        ALL: Outcome(topics("ok", new=UNKNOWN)),
    }),
    Case("OffsetForLeaderEpoch", 4, epochs, {
        NO_RIGHT: Outcome(f"[new [{DENIED} 0]; other [{DENIED} 0]; seen [{DENIED} 0]]"),
        f"{DESCRIBING} TOPIC seen": Outcome(f"[new [{DENIED} 0]; other [{DENIED} 0]; seen [ok 0]]"),
        "CLUSTER_ACTION CLUSTER": Outcome(f"[new [{UNKNOWN} 0]; other [ok 0]; seen [ok 0]]"),
        ALL: Outcome(f"[new [{UNKNOWN} 0]; other [ok 0]; seen [ok 0]]"),
    }),
    Case("DeleteRecords", 2, delete_records, {
        NO_RIGHT: Outcome(topics()),
        "DELETE TOPIC seen": Outcome(topics(seen="ok"), f"seen: {state('1-1')}"),
        ALL: Outcome(topics("ok", new=UNKNOWN), f"seen: {state('1-1')}; other: {state('1-1')}"),
    }),
    Case("DescribeProducers", 0, producers, {
        NO_RIGHT: Outcome(topics()),
        "READ TOPIC seen": Outcome(topics(seen="ok")),
        ALL: Outcome(topics("ok", new=UNKNOWN)),
    }),
    Case("Metadata", 10, with_operations, {
        NO_RIGHT: Outcome(f"[{DENIED} new; {DENIED} other; {DENIED} seen] operations none ok"),
        f"{DESCRIBING} TOPIC seen": Outcome(
            f"[{DENIED} new; {DENIED} other; ok seen #seen [ok 0] operations {{operations}}]"
            " operations none ok"),
        "DESCRIBE|ALTER CLUSTER": Outcome(
            f"[{DENIED} new; {DENIED} other; {DENIED} seen] operations {{cluster}} ok"),
        ALL: Outcome(
            "[UNKNOWN_TOPIC_OR_PARTITION new operations {operations};"
            " ok other #other [ok 0] operations {operations}; ok seen #seen [ok 0] operations {operations}]"
            " operations {cluster} ok"),
    }),
    Case("Metadata by id", 12, metadata_by_id, {
        NO_RIGHT: Outcome(f"[{DENIED} #other; {DENIED} #seen; UNKNOWN_TOPIC_ID #id] ok"),
        f"{DESCRIBING} TOPIC seen": Outcome(
            f"[{DENIED} #other; UNKNOWN_TOPIC_ID #id; ok seen #seen [ok 0]] ok"),
        ALL: Outcome("[UNKNOWN_TOPIC_ID #id; ok other #other [ok 0]; ok seen #seen [ok 0]] ok"),
    }),
    Case("Metadata, version 0", 0, lambda w: metadata(
        *map(w.name, NAMES), allow_auto_topic_creation=True
    ), {
        NO_RIGHT: Outcome(f"[{DENIED} new; {DENIED} other; {DENIED} seen] ok"),
        f"{DESCRIBING} TOPIC seen": Outcome(f"[{DENIED} new; {DENIED} other; ok seen [ok 0]] ok"),
    }),
    Case("Metadata of all topics, version 0", 0, lambda w: MetadataRequest(topics=()), {
        NO_RIGHT: Outcome("ok"),
        f"{DESCRIBING} TOPIC seen": Outcome("[ok seen [ok 0]] ok"),
    }),
    Case("Metadata of all topics", 12, lambda w: MetadataRequest(topics=None), {
        NO_RIGHT: Outcome("ok"),
        f"{DESCRIBING} TOPIC seen": Outcome("[ok seen #seen [ok 0]] ok"),
    }),
    Case("DescribeTopicPartitions", 0, lambda w: DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=w.name(n)) for n in NAMES)
    ), {
        NO_RIGHT: Outcome(f"[{DENIED} new; {DENIED} other; {DENIED} seen]"),
        f"{DESCRIBING} TOPIC seen": Outcome(
            f"[{DENIED} new; {DENIED} other; ok seen #seen [ok 0] operations {{operations}}]"),
        ALL: Outcome(
            "[UNKNOWN_TOPIC_OR_PARTITION new operations {operations};"
            " ok other #other [ok 0] operations {operations}; ok seen #seen [ok 0] operations {operations}]"),
    }),
    Case("DescribeTopicPartitions of all topics", 0, lambda w: DescribeTopicPartitionsRequest(), {
        NO_RIGHT: Outcome(""),
        f"{DESCRIBING} TOPIC seen": Outcome("[ok seen #seen [ok 0] operations {operations}]"),
    }),
    Case("CreateTopics", 7, create_topics, {
        NO_RIGHT: Outcome(f"[__cluster_metadata INVALID_REQUEST; new {DENIED}; seen {DENIED}]"),
        "CREATE TOPIC seen": Outcome(
            f"[__cluster_metadata INVALID_REQUEST; new {DENIED}; seen TOPIC_ALREADY_EXISTS]"),
        "CREATE TOPIC new": Outcome(
            f"[__cluster_metadata INVALID_REQUEST; new #id ok configs {DENIED}; seen {DENIED}]",
            f"new: {state('0-0', 2)}"),
        "CREATE CLUSTER": Outcome(
            f"[__cluster_metadata INVALID_REQUEST; new #id ok configs {DENIED}; seen TOPIC_ALREADY_EXISTS]",
            f"new: {state('0-0', 2)}"),
        "DESCRIBE_CONFIGS|ALTER_CONFIGS TOPIC new, CREATE TOPIC new": Outcome(
            "[__cluster_metadata INVALID_REQUEST;"
            f" new #id ok num_partitions=2 replication_factor=1 with configs; seen {DENIED}]",
            f"new: {state('0-0', 2)}"),
    }),
    Case("CreateTopics, version 4", 4, create_topics, {
        NO_RIGHT: Outcome(f"[__cluster_metadata INVALID_REQUEST; new {DENIED}; seen {DENIED}]"),
        "CREATE TOPIC seen": Outcome(
            f"[__cluster_metadata INVALID_REQUEST; new {DENIED}; seen TOPIC_ALREADY_EXISTS]"),
        "CREATE TOPIC new": Outcome(
            f"[__cluster_metadata INVALID_REQUEST; new ok; seen {DENIED}]", f"new: {state('0-0', 2)}"),
        "CREATE CLUSTER": Outcome(
            "[__cluster_metadata INVALID_REQUEST; new ok; seen TOPIC_ALREADY_EXISTS]",
            f"new: {state('0-0', 2)}"),
    }),
    Case("CreateTopics with a duplicate", 7, create_twice, {NO_RIGHT: Outcome("[new INVALID_REQUEST]")}),
    Case("DeleteTopics by name", 6, delete_by_name, {
        NO_RIGHT: Outcome(f"[new {DENIED}; other {DENIED}; seen {DENIED}]"),
        "DELETE TOPIC seen": Outcome(f"[new {DENIED}; other {DENIED}; seen #seen ok]", "seen: absent"),
        "DESCRIBE TOPIC new": Outcome(f"[new {UNKNOWN}; other {DENIED}; seen {DENIED}]"),
        "DELETE CLUSTER": Outcome(
            f"[new {UNKNOWN}; other #other ok; seen #seen ok]", "seen: absent; other: absent"),
        ALL: Outcome(f"[new {UNKNOWN}; other #other ok; seen #seen ok]", "seen: absent; other: absent"),
    }),
    Case("DeleteTopics by id", 6, delete_by_id, {
        NO_RIGHT: Outcome(f"[#id UNKNOWN_TOPIC_ID; #other {DENIED}; #seen {DENIED}]"),
        "DESCRIBE|READ|WRITE|ALTER TOPIC seen": Outcome(
            f"[#id UNKNOWN_TOPIC_ID; #other {DENIED}; seen #seen {DENIED}]"),
        "DELETE TOPIC seen": Outcome(
            f"[#id UNKNOWN_TOPIC_ID; #other {DENIED}; seen #seen ok]", "seen: absent"),
        ALL: Outcome(
            "[#id UNKNOWN_TOPIC_ID; other #other ok; seen #seen ok]", "seen: absent; other: absent"),
    }),
    Case("DeleteTopics with duplicates", 6, lambda w: DeleteTopicsRequest(timeout_ms=10_000, topics=(
        *[DeleteTopicState(name=w.name("seen"))] * 2, *[DeleteTopicState(topic_id=w.id("other"))] * 2,
    )), {
        NO_RIGHT: Outcome("[#other INVALID_REQUEST; seen INVALID_REQUEST]"),
        ALL: Outcome("[#other INVALID_REQUEST; seen INVALID_REQUEST]"),
    }),
    Case("DeleteTopics by name and id", 6, lambda w: DeleteTopicsRequest(timeout_ms=10_000, topics=(
        DeleteTopicState(name=w.name("seen")), DeleteTopicState(topic_id=w.id("seen")),
    )), {
        NO_RIGHT: Outcome(f"[#seen {DENIED}; seen {DENIED}]"),
        "DESCRIBE|READ|WRITE|ALTER TOPIC seen": Outcome(f"[seen #seen {DENIED}; seen {DENIED}]"),
        "DELETE TOPIC seen": Outcome("[seen #seen INVALID_REQUEST]"),
        "DELETE CLUSTER": Outcome("[seen #seen INVALID_REQUEST]"),
        ALL: Outcome("[seen #seen INVALID_REQUEST]"),
    }),
    Case("DeleteTopics, version 5", 5, lambda w: DeleteTopicsRequest(
        timeout_ms=10_000, topic_names=tuple(map(w.name, NAMES))
    ), {
        NO_RIGHT: Outcome(f"[new {DENIED}; other {DENIED}; seen {DENIED}]"),
        "DELETE TOPIC seen": Outcome(f"[new {DENIED}; other {DENIED}; seen ok]", "seen: absent"),
        ALL: Outcome(f"[new {UNKNOWN}; other ok; seen ok]", "seen: absent; other: absent"),
    }),
    Case("CreatePartitions", 3, create_partitions, {
        NO_RIGHT: Outcome(f"[new {DENIED}; other {DENIED}; seen {DENIED}]"),
        "ALTER TOPIC seen": Outcome(
            f"[new {DENIED}; other {DENIED}; seen ok]", f"seen: {state(partitions=3)}"),
        ALL: Outcome(
            f"[new {UNKNOWN}; other ok; seen ok]",
            f"seen: {state(partitions=3)}; other: {state(partitions=3)}"),
    }),
)  # fmt: skip
