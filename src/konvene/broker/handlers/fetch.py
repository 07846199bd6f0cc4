"""Fetch: record batches as they stand in the log; a consumer that finds too few waits for more.

Every fetch is answered in full: the broker opens no fetch session (session id 0), which tells the client
to send all its partitions each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.broker.later import Later
from konvene.broker.partitions import Partition, Refused
from konvene.errors import Errors
from konvene.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.coordinator import Call

FIRST_VERSION_WITH_TOPIC_IDS = 13
NO_SESSION = 0


def handle(broker: Broker, request: FetchRequest, call: Call) -> Any:
    if request.session_id != NO_SESSION:
        return FetchResponse(error_code=Errors.FETCH_SESSION_ID_NOT_FOUND)
    response, size, wait_for = _read(broker, request, call)
    if wait_for is None or size >= request.min_bytes or request.max_wait_ms <= 0:
        return response
    return _Wait(broker, request, call, wait_for).later


class _Wait:
    """A fetch that waits: looked at again when one of its partitions has grown, and when time is up."""

    __slots__ = ("alarm", "broker", "call", "later", "partitions", "request")

    def __init__(
        self, broker: Broker, request: FetchRequest, call: Call, partitions: list[Partition]
    ) -> None:
        self.broker, self.request, self.call, self.partitions = broker, request, call, partitions
        self.later: Later[FetchResponse] = Later()
        longest = min(request.max_wait_ms, 0x7FFFFFFF) / 1000
        self.alarm = broker.loop.call_later(longest, self.finish)
        for partition in partitions:
            partition.waiting.add(self)

    def look(self) -> None:
        """A partition has grown."""
        response, size, wait_for = _read(self.broker, self.request, self.call)
        if wait_for is None or size >= self.request.min_bytes:
            self.end(response)

    def finish(self) -> None:
        """Time is up: whatever is there is the answer."""
        self.end(_read(self.broker, self.request, self.call)[0])

    def end(self, response: FetchResponse) -> None:
        self.alarm.cancel()
        for partition in self.partitions:
            partition.waiting.discard(self)
        self.later.resolve(response)


def _read(
    broker: Broker, request: FetchRequest, call: Call
) -> tuple[FetchResponse, int, list[Partition] | None]:
    """The response as it is now, its record bytes, and the partitions to wait for; None: do not wait."""
    left = min(request.max_bytes, broker.config["fetch.max.bytes"])
    total = 0
    waits: list[Partition] = []
    failed = False
    topics = []
    for wanted in request.topics:
        name, missing = _name(broker, wanted, call)
        answers = []
        for p in wanted.partitions:
            partition = broker.partitions.get(name, p.partition)
            if partition is None:
                answers.append(_error(p, broker.partitions.why_not(name, p.partition, missing)))
                failed = True
                continue
            answer = _partition(partition, p, left, first=total == 0)
            failed = failed or answer.error_code != Errors.NONE
            size = len(answer.records or b"")
            left -= size
            total += size
            waits.append(partition)
            answers.append(answer)
        topics.append(
            FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=tuple(answers))
        )
    return FetchResponse(responses=tuple(topics)), total, None if failed or not waits else waits


def _name(broker: Broker, wanted: FetchTopic, call: Call) -> tuple[str, Errors]:
    """The topic's name ("" if there is none), and the error for a partition that is not there."""
    if call.api_version < FIRST_VERSION_WITH_TOPIC_IDS:
        return wanted.topic, Errors.UNKNOWN_TOPIC_OR_PARTITION
    topic = broker.topics.by_id.get(wanted.topic_id)
    if topic is None:
        return "", Errors.UNKNOWN_TOPIC_ID
    return topic.name, Errors.UNKNOWN_TOPIC_OR_PARTITION


def _partition(partition: Partition, wanted: FetchPartition, left: int, *, first: bool) -> PartitionData:
    try:
        partition.check_leader_epoch(wanted.current_leader_epoch)
        limit = max(min(wanted.partition_max_bytes, left), 0)
        records = partition.read(wanted.fetch_offset, limit, min_one=first)
    except Refused as refused:
        return _error(wanted, refused.error, partition)
    end = partition.end_offset
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=partition.start_offset,
        aborted_transactions=None,
        records=records,
    )


def _error(wanted: FetchPartition, error: Errors, partition: Partition | None = None) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        error_code=error,
        high_watermark=-1,
        log_start_offset=-1 if partition is None else partition.start_offset,
        aborted_transactions=None,
        records=b"",
    )
