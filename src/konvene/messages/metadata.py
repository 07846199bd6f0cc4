"""Metadata (API key 3): describes brokers, topics, partitions and leaders.

Errors: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION,
LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND, INVALID_REQUEST, REBOOTSTRAP_REQUIRED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, string, uuid
from konvene.codec.uuid import Uuid


class MetadataRequestTopic(Struct):
    topic_id: Uuid = uuid("10+", ignorable=True)
    """Id of the topic."""
    name: str | None = string("0+", nullable="10+")
    """Name of the topic; None if it is given by id."""


class MetadataRequest(Struct, key=3, versions="0-13", flexible="9+"):
    topics: tuple[MetadataRequestTopic, ...] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    """Topics to describe; None describes all."""
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    """If true, missing topics may be created."""
    include_cluster_authorized_operations: bool = boolean("8-10")
    """True to include the operations on the cluster that the caller may perform."""
    include_topic_authorized_operations: bool = boolean("8+")
    """True to include the operations on topics that the caller may perform."""


class MetadataResponseBroker(Struct):
    node_id: int = int32("0+")
    """Id of the broker."""
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = int32("0+")
    """Port of the endpoint."""
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)
    """Rack of the broker; None if it is not configured."""


class MetadataResponsePartition(Struct):
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    partition_index: int = int32("0+")
    """Partition number."""
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    """Epoch of the partition's leader; -1 if it is not known."""
    replica_nodes: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers with a replica."""
    isr_nodes: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers with an in-sync replica."""
    offline_replicas: tuple[int, ...] = array(int32, "5+", ignorable=True)
    """Ids of the brokers whose replica is offline."""


class MetadataResponseTopic(Struct):
    error_code: int = int16("0+")
    """Error of the topic; 0 if there is none."""
    name: str | None = string("0+", nullable="12+")
    """Name of the topic; None if the id is unknown."""
    topic_id: Uuid = uuid("10+", ignorable=True)
    """Id of the topic."""
    is_internal: bool = boolean("1+", ignorable=True)
    """True for an internal topic."""
    partitions: tuple[MetadataResponsePartition, ...] = array(MetadataResponsePartition, "0+")
    """Partitions of the topic."""
    topic_authorized_operations: int = int32("8+", default=-2147483648)
    """Bit set of the operations on the topic that the caller may perform."""


class MetadataResponse(Struct, key=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    brokers: tuple[MetadataResponseBroker, ...] = array(MetadataResponseBroker, "0+")
    """Brokers of the cluster."""
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    """Id of the cluster; None if it is not known."""
    controller_id: int = int32("1+", default=-1, ignorable=True)
    """Id of the controller; -1 if there is none."""
    topics: tuple[MetadataResponseTopic, ...] = array(MetadataResponseTopic, "0+")
    """Topics, their partitions and leaders."""
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    """Bit set of the operations on the cluster that the caller may perform."""
    error_code: int = int16("13+", ignorable=True)
    """Error of the whole request; 0 if there is none."""
