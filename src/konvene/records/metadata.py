"""The cluster: topics, partitions, configs, features and brokers, in `__cluster_metadata`."""

from __future__ import annotations

from konvene.codec.schema import (
    Struct,
    array,
    boolean,
    bytes_,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)
from konvene.codec.uuid import Uuid


class AbortTransactionRecord(Struct, key=25, versions="0", flexible="0+"):
    reason: str | None = string("0+", nullable="0+", default=None, tag=0)


class AccessControlEntryRecord(Struct, key=18, versions="0", flexible="0+"):
    id: Uuid = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class BeginTransactionRecord(Struct, key=23, versions="0", flexible="0+"):
    name: str | None = string("0+", nullable="0+", default=None, tag=0)


class BrokerRegistrationChangeRecord(Struct, key=17, versions="0-3", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: tuple[Uuid, ...] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: tuple[Uuid, ...] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)


class ClearElrRecord(Struct, key=28, versions="0", flexible="0+"):
    topic_name: str = string("0+")


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ClientQuotaRecord(Struct, key=14, versions="0", flexible="0+"):
    entity: tuple[EntityData, ...] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class ConfigRecord(Struct, key=4, versions="0", flexible="0+"):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class DelegationTokenRecord(Struct, key=10, versions="0", flexible="0+"):
    owner: str = string("0+")
    requester: str = string("0+")
    renewers: tuple[str, ...] = array(string, "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


class EndTransactionRecord(Struct, key=24, versions="0", flexible="0+"):
    pass


class FeatureLevelRecord(Struct, key=12, versions="0", flexible="0+"):
    name: str = string("0+")
    feature_level: int = int16("0+")


class FenceBrokerRecord(Struct, key=7, versions="0", flexible="0+"):
    id: int = int32("0+")
    epoch: int = int64("0+")


class NoOpRecord(Struct, key=20, versions="0", flexible="0+"):
    pass


class PartitionChangeRecord(Struct, key=5, versions="0-2", flexible="0+"):
    partition_id: int = int32("0+", default=-1)
    topic_id: Uuid = uuid("0+")
    isr: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None, tag=0)
    leader: int = int32("0+", default=-2, tag=1)
    replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None, tag=2)
    removing_replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None, tag=3)
    adding_replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8("0+", default=-1, tag=5)
    directories: tuple[Uuid, ...] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


class PartitionRecord(Struct, key=3, versions="0-2", flexible="0+"):
    partition_id: int = int32("0+", default=-1)
    topic_id: Uuid = uuid("0+")
    replicas: tuple[int, ...] = array(int32, "0+")
    isr: tuple[int, ...] = array(int32, "0+")
    removing_replicas: tuple[int, ...] = array(int32, "0+")
    adding_replicas: tuple[int, ...] = array(int32, "0+")
    leader: int = int32("0+", default=-1)
    leader_recovery_state: int = int8("0+", tag=0)
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: tuple[Uuid, ...] = array(uuid, "1+")
    eligible_leader_replicas: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    last_known_elr: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


class ProducerIdsRecord(Struct, key=15, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")


class BrokerEndpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class BrokerFeature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterBrokerRecord(Struct, key=0, versions="0-4", flexible="0+"):
    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: Uuid = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: tuple[BrokerEndpoint, ...] = array(BrokerEndpoint, "0+")
    features: tuple[BrokerFeature, ...] = array(BrokerFeature, "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: tuple[Uuid, ...] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: tuple[Uuid, ...] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)


class ControllerEndpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class ControllerFeature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterControllerRecord(Struct, key=27, versions="0", flexible="0+"):
    controller_id: int = int32("0+")
    incarnation_id: Uuid = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    end_points: tuple[ControllerEndpoint, ...] = array(ControllerEndpoint, "0+")
    features: tuple[ControllerFeature, ...] = array(ControllerFeature, "0+")


class RemoveAccessControlEntryRecord(Struct, key=19, versions="0", flexible="0+"):
    id: Uuid = uuid("0+")


class RemoveDelegationTokenRecord(Struct, key=26, versions="0", flexible="0+"):
    token_id: str = string("0+")


class RemoveTopicRecord(Struct, key=9, versions="0", flexible="0+"):
    topic_id: Uuid = uuid("0+")


class RemoveUserScramCredentialRecord(Struct, key=22, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")


class TopicRecord(Struct, key=2, versions="0", flexible="0+"):
    name: str = string("0+")
    topic_id: Uuid = uuid("0+")


class UnfenceBrokerRecord(Struct, key=8, versions="0", flexible="0+"):
    id: int = int32("0+")
    epoch: int = int64("0+")


class UnregisterBrokerRecord(Struct, key=1, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")


class UnregisterControllerRecord(Struct, key=29, versions="0", flexible="0+"):
    controller_id: int = int32("0+")


class UserScramCredentialRecord(Struct, key=11, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = bytes_("0+")
    stored_key: bytes = bytes_("0+")
    server_key: bytes = bytes_("0+")
    iterations: int = int32("0+")


class ZkMigrationStateRecord(Struct, key=21, versions="0", flexible="0+"):
    zk_migration_state: int = int8("0+")
