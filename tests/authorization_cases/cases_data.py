"""Cases of the APIs about topics, records, configs and the cluster.

The outcomes are those of Kafka 4.4's `KafkaApis` and `ControllerApis`.
"""

from __future__ import annotations

from tests.authorization_cases.cases import (
    ALL,
    DESCRIBING,
    GROUP,
    NO_RIGHT,
    TRANSACTIONAL_ID,
    Case,
    Outcome,
    World,
    produce_to,
)

from konvene.cluster.state import ResourceType as Configured
from konvene.codec.uuid import Uuid
from konvene.messages.alter_configs import AlterableConfig as WholeConfig
from konvene.messages.alter_configs import AlterConfigsRequest
from konvene.messages.alter_configs import AlterConfigsResource as WholeResource
from konvene.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from konvene.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from konvene.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.describe_cluster import DescribeClusterRequest
from konvene.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from konvene.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from konvene.messages.describe_producers import DescribeProducersRequest
from konvene.messages.describe_producers import TopicRequest as ProducersOfTopic
from konvene.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from konvene.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from konvene.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from konvene.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.list_config_resources import ListConfigResourcesRequest
from konvene.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from konvene.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from konvene.messages.metadata import MetadataRequest, MetadataRequestTopic
from konvene.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from konvene.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

DENIED, UNKNOWN = "TOPIC_AUTHORIZATION_FAILED", "UNKNOWN_TOPIC_OR_PARTITION"
CLUSTER_DENIED, GROUP_DENIED = "CLUSTER_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
INVALID = "INVALID_REQUEST"
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


def _configured(world: World) -> tuple[tuple[int, str, str, str], ...]:
    """Return type and name of the resources to configure, and a setting of each."""
    return (
        (Configured.TOPIC, world.name("seen"), "retention.ms", "1000"),
        (Configured.TOPIC, world.name("other"), "retention.ms", "1000"),
        (Configured.TOPIC, world.name("new"), "retention.ms", "1000"),
        (Configured.GROUP, world.name(GROUP), "consumer.session.timeout.ms", "50000"),
        (Configured.BROKER, "", "log.cleaner.threads", "1"),
    )


def describe_configs(world: World) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=type_, resource_name=name, configuration_keys=None)
            for type_, name, *_ in (*_configured(world)[:4], (Configured.BROKER, "1"))
        )
    )


def incremental(world: World) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=tuple(
            AlterConfigsResource(
                resource_type=type_,
                resource_name=name,
                configs=(AlterableConfig(name=key, config_operation=0, value=value),),
            )
            for type_, name, key, value in _configured(world)
        )
    )


def invalid_configs(world: World) -> IncrementalAlterConfigsRequest:
    """Return what Kafka rejects before permissions are checked, and a broker that does not exist."""
    rows = (
        (Configured.TOPIC, world.name("seen"), "retention.ms", None),
        (Configured.BROKER, "77", "log.cleaner.threads", "1"),
        (77, "unknown", "retention.ms", "1000"),
    )
    return IncrementalAlterConfigsRequest(
        resources=tuple(
            AlterConfigsResource(
                resource_type=type_,
                resource_name=name,
                configs=(AlterableConfig(name=key, config_operation=0, value=value),),
            )
            for type_, name, key, value in rows
        )
    )


def whole(world: World) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        resources=tuple(
            WholeResource(
                resource_type=type_, resource_name=name, configs=(WholeConfig(name=key, value=value),)
            )
            for type_, name, key, value in _configured(world)
        )
    )


def configs(
    seen: str = DENIED, others: str = DENIED, group: str = GROUP_DENIED, cluster: str = CLUSTER_DENIED,
    *, new: str = "", broker: str = "",
) -> str:  # fmt: skip
    items = [
        f"{seen} seen", f"{others} other", f"{new or others} new", f"{group} group",
        f"{cluster} {broker}".strip(),
    ]  # fmt: skip
    return "[" + "; ".join(sorted(items)) + "]"


LOG_DIR = "/no such directory"


def log_dirs(world: World) -> AlterReplicaLogDirsRequest:
    wanted = tuple(AlterReplicaLogDirTopic(name=world.name(n), partitions=(0,)) for n in NAMES)
    return AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=LOG_DIR, topics=wanted),))


def elect(world: World) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=0,
        topic_partitions=tuple(TopicPartitions(topic=world.name(n), partitions=(0,)) for n in NAMES),
    )


def reassign(world: World) -> AlterPartitionReassignmentsRequest:
    partitions = (ReassignablePartition(partition_index=0, replicas=None),)
    return AlterPartitionReassignmentsRequest(
        topics=tuple(ReassignableTopic(name=world.name(n), partitions=partitions) for n in NAMES)
    )


def reassignments(world: World) -> ListPartitionReassignmentsRequest:
    wanted = tuple(
        ListPartitionReassignmentsTopics(name=world.name(n), partition_indexes=(0,)) for n in NAMES
    )
    return ListPartitionReassignmentsRequest(topics=wanted)


def quorum(world: World) -> DescribeQuorumRequest:
    partitions = (PartitionData(partition_index=0),)
    return DescribeQuorumRequest(topics=(TopicData(topic_name="__cluster_metadata", partitions=partitions),))


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
    Case("CreatePartitions", 3, create_partitions, {
        NO_RIGHT: Outcome(f"[new {DENIED}; other {DENIED}; seen {DENIED}]"),
        "ALTER TOPIC seen": Outcome(
            f"[new {DENIED}; other {DENIED}; seen ok]", f"seen: {state(partitions=3)}"),
        ALL: Outcome(
            f"[new {UNKNOWN}; other ok; seen ok]",
            f"seen: {state(partitions=3)}; other: {state(partitions=3)}"),
    }),
    Case("DescribeConfigs", 4, describe_configs, {
        NO_RIGHT: Outcome(configs(broker="1")),
        "DESCRIBE_CONFIGS|ALTER_CONFIGS TOPIC seen": Outcome(
            configs("ok", broker="1").replace("ok seen", "ok seen with configs")),
        "DESCRIBE_CONFIGS|ALTER_CONFIGS GROUP group": Outcome(
            configs(group="ok", broker="1").replace("ok group", "ok group with configs")),
        "DESCRIBE_CONFIGS|ALTER_CONFIGS CLUSTER": Outcome(
            configs(cluster="ok", broker="1").replace("ok 1", "ok 1 with configs")),
    }),
    Case("IncrementalAlterConfigs", 1, incremental, {
        NO_RIGHT: Outcome(configs()),
        "ALTER_CONFIGS TOPIC seen": Outcome(configs("ok"), f"seen: {state(retention_ms=1000)}"),
        "ALTER_CONFIGS TOPIC new": Outcome(configs(new=UNKNOWN)),
        "ALTER_CONFIGS GROUP group": Outcome(configs(group="ok")),
        "ALTER_CONFIGS CLUSTER": Outcome(configs(cluster="ok")),
        ALL: Outcome(
            configs("ok", "ok", "ok", "ok", new=UNKNOWN),
            f"seen: {state(retention_ms=1000)}; other: {state(retention_ms=1000)}"),
    }),
    Case("IncrementalAlterConfigs, invalid", 1, invalid_configs, {
        NO_RIGHT: Outcome(f"[{CLUSTER_DENIED} 77; {INVALID} seen; {INVALID} unknown]"),
        "ALTER_CONFIGS CLUSTER": Outcome(f"[{INVALID} 77; {INVALID} seen; {INVALID} unknown]"),
    }),
    Case("AlterConfigs", 2, whole, {
        NO_RIGHT: Outcome(configs()),
        "ALTER_CONFIGS TOPIC seen": Outcome(configs("ok"), f"seen: {state(retention_ms=1000)}"),
        "ALTER_CONFIGS GROUP group": Outcome(configs(group="ok")),
        "ALTER_CONFIGS CLUSTER": Outcome(configs(cluster="ok")),
    }),
    Case("ListConfigResources", 1, lambda w: ListConfigResourcesRequest(resource_types=(4,)), {
        NO_RIGHT: Outcome(CLUSTER_DENIED),
        "DESCRIBE_CONFIGS|ALTER_CONFIGS CLUSTER": Outcome("ok [1]"),
        ALL: Outcome("ok [1]"),
    }),
    Case("DescribeLogDirs", 4, lambda w: DescribeLogDirsRequest(
        topics=tuple(DescribableLogDirTopic(topic=w.name(n), partitions=(0,)) for n in NAMES)
    ), {
        NO_RIGHT: Outcome(CLUSTER_DENIED),
        "DESCRIBE|ALTER CLUSTER": Outcome("ok [ok [other [0]; seen [0]]]"),
        ALL: Outcome("ok [ok [other [0]; seen [0]]]"),
    }),
    Case("AlterReplicaLogDirs", 2, log_dirs, {
        NO_RIGHT: Outcome(topics(CLUSTER_DENIED)),
        "ALTER CLUSTER": Outcome(topics("LOG_DIR_NOT_FOUND")),
        ALL: Outcome(topics("LOG_DIR_NOT_FOUND")),
    }),
    Case("ElectLeaders", 2, elect, {
        NO_RIGHT: Outcome(f"{CLUSTER_DENIED} {topics(CLUSTER_DENIED)}"),
        "ALTER CLUSTER": Outcome(f"ok {topics('ELECTION_NOT_NEEDED', new=UNKNOWN)}"),
        ALL: Outcome(f"ok {topics('ELECTION_NOT_NEEDED', new=UNKNOWN)}"),
    }),
    Case("ElectLeaders, version 0", 0, elect, {
        NO_RIGHT: Outcome(f"ok {topics(CLUSTER_DENIED)}"),
        "ALTER CLUSTER": Outcome(f"ok {topics('ELECTION_NOT_NEEDED', new=UNKNOWN)}"),
    }),
    Case("AlterPartitionReassignments", 0, reassign, {
        NO_RIGHT: Outcome(f"{CLUSTER_DENIED} {topics(CLUSTER_DENIED)}"),
        "ALTER CLUSTER": Outcome(f"ok {topics('NO_REASSIGNMENT_IN_PROGRESS', new=UNKNOWN)}"),
        ALL: Outcome(f"ok {topics('NO_REASSIGNMENT_IN_PROGRESS', new=UNKNOWN)}"),
    }),
    Case("ListPartitionReassignments", 0, reassignments, {
        NO_RIGHT: Outcome(f"{CLUSTER_DENIED} [new [0]; other [0]; seen [0]]"),
        "DESCRIBE|ALTER CLUSTER": Outcome("ok"),
        ALL: Outcome("ok"),
    }),
    Case("DescribeCluster", 1, lambda w: DescribeClusterRequest(include_cluster_authorized_operations=True), {
        NO_RIGHT: Outcome("ok operations none"),
        "DESCRIBE|ALTER CLUSTER": Outcome("ok operations {cluster}"),
        ALL: Outcome("ok operations {cluster}"),
    }),
    Case("DescribeQuorum", 2, quorum, {
        NO_RIGHT: Outcome(CLUSTER_DENIED),
        "DESCRIBE|ALTER CLUSTER": Outcome("ok [__cluster_metadata [0 ok]]"),
        ALL: Outcome("ok [__cluster_metadata [0 ok]]"),
    }),
    Case("UpdateFeatures", 2, lambda w: UpdateFeaturesRequest(
        feature_updates=(FeatureUpdateKey(feature="no.such.feature", max_version_level=1),)
    ), {
        NO_RIGHT: Outcome(CLUSTER_DENIED),
        "ALTER CLUSTER": Outcome("INVALID_UPDATE_VERSION"),
        ALL: Outcome("INVALID_UPDATE_VERSION"),
    }),
)  # fmt: skip
