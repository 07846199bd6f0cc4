"""OffsetForLeaderEpoch (API key 23): where an epoch of a partition ends."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


class OffsetForLeaderTopic(Struct):
    topic: str = string("0+")
    partitions: tuple[OffsetForLeaderPartition, ...] = array(OffsetForLeaderPartition, "0+")


class OffsetForLeaderEpochRequest(Struct, key=23, versions="2-4", flexible="4+"):
    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: tuple[OffsetForLeaderTopic, ...] = array(OffsetForLeaderTopic, "0+")


class EpochEndOffset(Struct):
    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64("0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string("0+")
    partitions: tuple[EpochEndOffset, ...] = array(EpochEndOffset, "0+")


class OffsetForLeaderEpochResponse(Struct, key=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = array(OffsetForLeaderTopicResult, "0+")
