"""Records of topics, partitions, configurations, features and brokers in `__cluster_metadata`."""

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
    """Reason for the abort; None if there is none."""


class AccessControlEntryRecord(Struct, key=18, versions="0", flexible="0+"):
    id: Uuid = uuid("0+")
    """Id of the access rule."""
    resource_type: int = int8("0+")
    """Type of the resource."""
    resource_name: str = string("0+")
    """Name of the resource."""
    pattern_type: int = int8("0+")
    """Pattern type of the resource name: literal or prefixed."""
    principal: str = string("0+")
    """Principal of the access rule, as `type:name`."""
    host: str = string("0+")
    """Host of the access rule; `*` stands for any."""
    operation: int = int8("0+")
    """Operation of the access rule."""
    permission_type: int = int8("0+")
    """Permission of the access rule: deny or allow."""


class BeginTransactionRecord(Struct, key=23, versions="0", flexible="0+"):
    name: str | None = string("0+", nullable="0+", default=None, tag=0)
    """Name of the transaction; None if it has none."""


class BrokerRegistrationChangeRecord(Struct, key=17, versions="0-3", flexible="0+"):
    broker_id: int = int32("0+")
    """Id of the broker."""
    broker_epoch: int = int64("0+")
    """Epoch that the broker received when it registered."""
    fenced: int = int8("0+", tag=0)
    """Whether the broker is fenced; in a change record 1 fences, -1 unfences, 0 leaves it."""
    in_controlled_shutdown: int = int8("1+", tag=1)
    """Whether the broker is shutting down; in a change record 1 if it begins."""
    log_dirs: tuple[Uuid, ...] = array(uuid, "2+", tag=2)
    """Ids of the broker's log directories."""
    cordoned_log_dirs: tuple[Uuid, ...] | None = array(uuid, "3+", nullable="3+", default=None, tag=3)
    """Ids of the log directories that take no new partitions."""


class ClearElrRecord(Struct, key=28, versions="0", flexible="0+"):
    topic_name: str = string("0+")
    """Name of the topic; empty for all topics."""


class EntityData(Struct):
    entity_type: str = string("0+")
    """Type of the entity, such as `user` or `client-id`."""
    entity_name: str | None = string("0+", nullable="0+")
    """Name of the entity; None for the default of its type."""


class ClientQuotaRecord(Struct, key=14, versions="0", flexible="0+"):
    entity: tuple[EntityData, ...] = array(EntityData, "0+")
    """Components of the entity."""
    key: str = string("0+")
    """Name of the quota."""
    value: float = float64("0+")
    """Value of the quota."""
    remove: bool = boolean("0+")
    """True to remove the quota."""


class ConfigRecord(Struct, key=4, versions="0", flexible="0+"):
    resource_type: int = int8("0+")
    """Type of the resource."""
    resource_name: str = string("0+")
    """Name of the resource."""
    name: str = string("0+")
    """Name of the configuration."""
    value: str | None = string("0+", nullable="0+")
    """Value; None removes the configuration."""


class DelegationTokenRecord(Struct, key=10, versions="0", flexible="0+"):
    owner: str = string("0+")
    """Principal that owns the token."""
    requester: str = string("0+")
    """Principal that requested the token."""
    renewers: tuple[str, ...] = array(string, "0+")
    """Principals that may renew the token."""
    issue_timestamp: int = int64("0+")
    """Time when the token was issued, in milliseconds."""
    max_timestamp: int = int64("0+")
    """Time when the token expires for good, in milliseconds."""
    expiration_timestamp: int = int64("0+")
    """Time when the token expires unless it is renewed, in milliseconds."""
    token_id: str = string("0+")
    """Id of the token."""


class EndTransactionRecord(Struct, key=24, versions="0", flexible="0+"):
    pass


class FeatureLevelRecord(Struct, key=12, versions="0", flexible="0+"):
    name: str = string("0+")
    """Name of the feature."""
    feature_level: int = int16("0+")
    """Finalized level of the feature; 0 removes it."""


class FenceBrokerRecord(Struct, key=7, versions="0", flexible="0+"):
    id: int = int32("0+")
    """Id of the broker."""
    epoch: int = int64("0+")
    """Epoch of the broker."""


class NoOpRecord(Struct, key=20, versions="0", flexible="0+"):
    pass


class PartitionChangeRecord(Struct, key=5, versions="0-2", flexible="0+"):
    partition_id: int = int32("0+", default=-1)
    """Partition number."""
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    isr: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None, tag=0)
    """Ids of the brokers with an in-sync replica; None if unchanged."""
    leader: int = int32("0+", default=-2, tag=1)
    """Id of the leader; -1 if there is none, -2 in a change record if unchanged."""
    replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None, tag=2)
    """Ids of the brokers with a replica; None if unchanged."""
    removing_replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None, tag=3)
    """Ids of the brokers that a reassignment removes; None if unchanged."""
    adding_replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", default=None, tag=4)
    """Ids of the brokers that a reassignment adds; None if unchanged."""
    leader_recovery_state: int = int8("0+", default=-1, tag=5)
    """1 while the leader recovers from an unclean election, -1 if unchanged."""
    directories: tuple[Uuid, ...] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    """Ids of the log directories of the replicas."""
    eligible_leader_replicas: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    """Ids of the replicas outside the ISR that may still be elected; None if there are none."""
    last_known_elr: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=7)
    """Ids of the last known eligible leader replicas; None if there are none."""


class PartitionRecord(Struct, key=3, versions="0-2", flexible="0+"):
    partition_id: int = int32("0+", default=-1)
    """Partition number."""
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""
    replicas: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers with a replica; the first one is preferred."""
    isr: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers with an in-sync replica."""
    removing_replicas: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers that a reassignment removes."""
    adding_replicas: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers that a reassignment adds."""
    leader: int = int32("0+", default=-1)
    """Id of the leader; -1 if there is none."""
    leader_recovery_state: int = int8("0+", tag=0)
    """1 while the leader recovers from an unclean election, else 0."""
    leader_epoch: int = int32("0+", default=-1)
    """Epoch of the partition's leader; -1 if it is not known."""
    partition_epoch: int = int32("0+", default=-1)
    """Epoch of the partition, raised by each change of its replica set."""
    directories: tuple[Uuid, ...] = array(uuid, "1+")
    """Ids of the log directories of the replicas."""
    eligible_leader_replicas: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    """Ids of the replicas outside the ISR that may still be elected; None if there are none."""
    last_known_elr: tuple[int, ...] | None = array(int32, "2+", nullable="2+", default=None, tag=2)
    """Ids of the last known eligible leader replicas; None if there are none."""


class ProducerIdsRecord(Struct, key=15, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    """Id of the broker."""
    broker_epoch: int = int64("0+", default=-1)
    """Epoch that the broker received when it registered."""
    next_producer_id: int = int64("0+")
    """First producer id that has not been allocated."""


class BrokerEndpoint(Struct):
    name: str = string("0+")
    """Name of the listener."""
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = uint16("0+")
    """Port of the endpoint."""
    security_protocol: int = int16("0+")
    """Number of the security protocol."""


class BrokerFeature(Struct):
    name: str = string("0+")
    """Name of the feature."""
    min_supported_version: int = int16("0+")
    """Lowest supported version."""
    max_supported_version: int = int16("0+")
    """Highest supported version."""


class RegisterBrokerRecord(Struct, key=0, versions="0-4", flexible="0+"):
    broker_id: int = int32("0+")
    """Id of the broker."""
    is_migrating_zk_broker: bool = boolean("2+")
    """True for a broker that migrates from ZooKeeper."""
    incarnation_id: Uuid = uuid("0+")
    """Id of this run of the process."""
    broker_epoch: int = int64("0+")
    """Epoch that the broker received when it registered."""
    end_points: tuple[BrokerEndpoint, ...] = array(BrokerEndpoint, "0+")
    """Endpoints, by listener."""
    features: tuple[BrokerFeature, ...] = array(BrokerFeature, "0+")
    """Supported features and their versions."""
    rack: str | None = string("0+", nullable="0+")
    """Rack of the broker; None if it is not configured."""
    fenced: bool = boolean("0+", default=True)
    """Whether the broker is fenced; in a change record 1 fences, -1 unfences, 0 leaves it."""
    in_controlled_shutdown: bool = boolean("1+")
    """Whether the broker is shutting down; in a change record 1 if it begins."""
    log_dirs: tuple[Uuid, ...] = array(uuid, "3+", tag=0)
    """Ids of the broker's log directories."""
    cordoned_log_dirs: tuple[Uuid, ...] | None = array(uuid, "4+", nullable="4+", default=None, tag=1)
    """Ids of the log directories that take no new partitions."""


class ControllerEndpoint(Struct):
    name: str = string("0+")
    """Name of the listener."""
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = uint16("0+")
    """Port of the endpoint."""
    security_protocol: int = int16("0+")
    """Number of the security protocol."""


class ControllerFeature(Struct):
    name: str = string("0+")
    """Name of the feature."""
    min_supported_version: int = int16("0+")
    """Lowest supported version."""
    max_supported_version: int = int16("0+")
    """Highest supported version."""


class RegisterControllerRecord(Struct, key=27, versions="0", flexible="0+"):
    controller_id: int = int32("0+")
    """Id of the controller; -1 if there is none."""
    incarnation_id: Uuid = uuid("0+")
    """Id of this run of the process."""
    zk_migration_ready: bool = boolean("0+")
    """True if the node supports the migration from ZooKeeper."""
    end_points: tuple[ControllerEndpoint, ...] = array(ControllerEndpoint, "0+")
    """Endpoints, by listener."""
    features: tuple[ControllerFeature, ...] = array(ControllerFeature, "0+")
    """Supported features and their versions."""


class RemoveAccessControlEntryRecord(Struct, key=19, versions="0", flexible="0+"):
    id: Uuid = uuid("0+")
    """Id of the access rule."""


class RemoveDelegationTokenRecord(Struct, key=26, versions="0", flexible="0+"):
    token_id: str = string("0+")
    """Id of the token."""


class RemoveTopicRecord(Struct, key=9, versions="0", flexible="0+"):
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""


class RemoveUserScramCredentialRecord(Struct, key=22, versions="0", flexible="0+"):
    name: str = string("0+")
    """Name of the user."""
    mechanism: int = int8("0+")
    """SCRAM mechanism."""


class TopicRecord(Struct, key=2, versions="0", flexible="0+"):
    name: str = string("0+")
    """Name of the topic."""
    topic_id: Uuid = uuid("0+")
    """Id of the topic."""


class UnfenceBrokerRecord(Struct, key=8, versions="0", flexible="0+"):
    id: int = int32("0+")
    """Id of the broker."""
    epoch: int = int64("0+")
    """Epoch of the broker."""


class UnregisterBrokerRecord(Struct, key=1, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    """Id of the broker."""
    broker_epoch: int = int64("0+")
    """Epoch that the broker received when it registered."""


class UnregisterControllerRecord(Struct, key=29, versions="0", flexible="0+"):
    controller_id: int = int32("0+")
    """Id of the controller; -1 if there is none."""


class UserScramCredentialRecord(Struct, key=11, versions="0", flexible="0+"):
    name: str = string("0+")
    """Name of the user."""
    mechanism: int = int8("0+")
    """SCRAM mechanism."""
    salt: bytes = bytes_("0+")
    """Salt of the password hash."""
    stored_key: bytes = bytes_("0+")
    """Stored key of the SCRAM exchange."""
    server_key: bytes = bytes_("0+")
    """Server key of the SCRAM exchange."""
    iterations: int = int32("0+")
    """Number of hash iterations."""


class ZkMigrationStateRecord(Struct, key=21, versions="0", flexible="0+"):
    zk_migration_state: int = int8("0+")
    """State of the migration from ZooKeeper."""
