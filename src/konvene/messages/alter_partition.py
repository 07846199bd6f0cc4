"""AlterPartition (API key 56): a leader changes the in-sync set of a partition."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int32, int64, uuid
from konvene.codec.uuid import Uuid


class BrokerState(Struct):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class PartitionData(Struct):
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: tuple[int, ...] = array(int32, "0-2")
    new_isr_with_epochs: tuple[BrokerState, ...] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")


class TopicData(Struct):
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class AlterPartitionRequest(Struct, key=56, versions="2-3", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: tuple[TopicData, ...] = array(TopicData, "0+")


class ResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: tuple[int, ...] = array(int32, "0+")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32("0+")


class ResponseTopicData(Struct):
    topic_id: Uuid = uuid("2+", ignorable=True)
    partitions: tuple[ResponsePartitionData, ...] = array(ResponsePartitionData, "0+")


class AlterPartitionResponse(Struct, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: tuple[ResponseTopicData, ...] = array(ResponseTopicData, "0+")
