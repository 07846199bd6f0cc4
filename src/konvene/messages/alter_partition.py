"""AlterPartition (API key 56): changes a partition's in-sync replicas, sent by its leader.

Kafka's errors (konvene does not serve this API): CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER,
STALE_BROKER_EPOCH, FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA,
NEW_LEADER_ELECTED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, uuid
from konvene.codec.uuid import Uuid


class BrokerState(Struct):
    broker_id: int = int32("3+")
    """Id of the broker."""
    broker_epoch: int = int64("3+", default=-1)
    """Epoch that the broker received when it registered."""


class PartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""
    new_isr: tuple[int, ...] = array(int32, "0-2")
    """Ids of the brokers in the new ISR (up to version 2)."""
    new_isr_with_epochs: tuple[BrokerState, ...] = array(BrokerState, "3+")
    """Brokers in the new ISR, with their epochs."""
    leader_recovery_state: int = int8("1+")
    """1 while the leader recovers from an unclean election, else 0."""
    partition_epoch: int = int32("0+")
    """Epoch of the partition, raised by each change of its replica set."""


class TopicData(Struct):
    topic_id: Uuid = uuid("2+", ignorable=True)
    """Id of the topic."""
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")
    """Partitions of the topic."""


class AlterPartitionRequest(Struct, key=56, versions="2-3", flexible="0+"):
    broker_id: int = int32("0+")
    """Id of the broker."""
    broker_epoch: int = int64("0+", default=-1)
    """Epoch that the broker received when it registered."""
    topics: tuple[TopicData, ...] = array(TopicData, "0+")
    """Topics of the request, or of this part of the answer."""


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    """Partition number."""
    error_code: int = int16("0+")
    """Error of the partition; 0 if there is none."""
    leader_id: int = int32("0+")
    """Id of the leader; -1 if there is none."""
    leader_epoch: int = int32("0+")
    """Epoch of the partition's leader; -1 if it is not known."""
    isr: tuple[int, ...] = array(int32, "0+")
    """Ids of the brokers with an in-sync replica."""
    leader_recovery_state: int = int8("1+", ignorable=True)
    """1 while the leader recovers from an unclean election, else 0."""
    partition_epoch: int = int32("0+")
    """Epoch of the partition, raised by each change of its replica set."""


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid("2+", ignorable=True)
    """Id of the topic."""
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData, "0+")
    """Partitions of the topic."""


class AlterPartitionResponse(Struct, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData, "0+")
    """Topics of the request, or of this part of the answer."""
