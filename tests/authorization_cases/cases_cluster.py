"""Cases of the APIs about configs and the cluster. The outcomes are those of Kafka 4.4."""

from __future__ import annotations

from tests.authorization_cases.cases import ALL, GROUP, NO_RIGHT, Case, Outcome, World
from tests.authorization_cases.cases_data import DENIED, NAMES, UNKNOWN, state, topics

from konvene.cluster.state import ResourceType as Configured
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
from konvene.messages.describe_cluster import DescribeClusterRequest
from konvene.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from konvene.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from konvene.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from konvene.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from konvene.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from konvene.messages.list_config_resources import ListConfigResourcesRequest
from konvene.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from konvene.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

CLUSTER_DENIED, GROUP_DENIED = "CLUSTER_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"
INVALID = "INVALID_REQUEST"


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
            DescribeConfigsResource(resource_type=type_, resource_name=name or "1", configuration_keys=None)
            for type_, name, *_ in _configured(world)
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


CASES = (
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
    Case("DescribeLogDirs, version 2", 2, lambda w: DescribeLogDirsRequest(topics=()), {
        NO_RIGHT: Outcome("ok"),
        "DESCRIBE|ALTER CLUSTER": Outcome("ok [ok]"),
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
