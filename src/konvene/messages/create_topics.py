"""CreateTopics (API key 19): creates topics.

Errors: CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, NOT_CONTROLLER, INVALID_REQUEST,
INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, POLICY_VIOLATION, THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, string, uuid
from konvene.codec.uuid import Uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    broker_ids: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers with a replica."""


class CreatableTopicConfig(Struct):
    name: str = string("0+")
    """Name of the configuration."""
    value: str | None = string("0+", nullable="0+")
    """Value; None stands for the default."""


class CreatableTopic(Struct):
    name: str = string("0+")
    """Name of the topic."""
    num_partitions: int = int32("0+")
    """Number of partitions; -1 in a request stands for the broker's default."""
    replication_factor: int = int16("0+")
    """Replication factor; -1 in a request stands for the broker's default."""
    assignments: tuple[CreatableReplicaAssignment, ...] = array(CreatableReplicaAssignment, "0+")
    """Manual replica assignment; empty lets the broker choose."""
    configs: tuple[CreatableTopicConfig, ...] = array(CreatableTopicConfig, "0+")
    """Configurations of the topic or resource."""


class CreateTopicsRequest(Struct, key=19, versions="2-7", flexible="5+"):
    topics: tuple[CreatableTopic, ...] = array(CreatableTopic, "0+")
    """Topics to create."""
    timeout_ms: int = int32("0+", default=60000)
    """Time after which the request gives up, in milliseconds."""
    validate_only: bool = boolean("1+")
    """If true, the request is checked and nothing is changed."""


class CreatableTopicConfigs(Struct):
    name: str = string("5+")
    """Name of the configuration."""
    value: str | None = string("5+", nullable="5+")
    """Value; None stands for the default."""
    read_only: bool = boolean("5+")
    """True if the configuration cannot be changed while the broker runs."""
    config_source: int = int8("5+", default=-1, ignorable=True)
    """Where the value comes from: topic, broker, default or group."""
    is_sensitive: bool = boolean("5+")
    """True if the value is a secret and is left out."""


class CreatableTopicResult(Struct):
    name: str = string("0+")
    """Name of the topic."""
    topic_id: Uuid = uuid("7+", ignorable=True)
    """Id of the topic."""
    error_code: int = int16("0+")
    """Error of the topic; 0 if there is none."""
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    """Explanation of the error; None if there is none."""
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    """Error that prevents returning the configurations; 0 if there is none."""
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    """Number of partitions; -1 in a request stands for the broker's default."""
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    """Replication factor; -1 in a request stands for the broker's default."""
    configs: tuple[CreatableTopicConfigs, ...] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True
    )
    """Configurations of the new topic; None if they are not returned."""


class CreateTopicsResponse(Struct, key=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    topics: tuple[CreatableTopicResult, ...] = array(CreatableTopicResult, "0+")
    """Results, by topic."""
