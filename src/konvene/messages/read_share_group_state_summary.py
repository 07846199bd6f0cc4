"""ReadShareGroupStateSummary (API key 87): read where the delivery state of share partitions starts."""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int16, int32, int64, string, uuid
from konvene.codec.uuid import Uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateSummaryData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionData, ...] = array(PartitionData, "0+")


class ReadShareGroupStateSummaryRequest(Struct, key=87, versions="0-1", flexible="0+"):
    group_id: str = string("0+")
    topics: tuple[ReadStateSummaryData, ...] = array(ReadStateSummaryData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[PartitionResult, ...] = array(PartitionResult, "0+")


class ReadShareGroupStateSummaryResponse(Struct, key=87, versions="0-1", flexible="0+"):
    results: tuple[ReadStateSummaryResult, ...] = array(ReadStateSummaryResult, "0+")
