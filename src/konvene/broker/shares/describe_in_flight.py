"""Adds the in-flight records of share partitions to DescribeShareGroupOffsets responses, as a tagged field.

Only responses to requests that contain the tag have the field; Kafka's clients never send the tag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.codec.compile import encode
from konvene.messages.in_flight_extensions import IN_FLIGHT_EXTENSION, InFlightExtension, InFlightRange
from konvene.share_state.requests import SharePartitionKey

if TYPE_CHECKING:
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.delivery.contract import InFlight
    from konvene.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest

Tags = tuple[tuple[int, bytes], ...]


def is_requested(request: DescribeShareGroupOffsetsRequest) -> bool:
    """Return True if the request has the tag of the in-flight records."""
    return any(tag == IN_FLIGHT_EXTENSION for tag, _ in request.unknown_tags)


def in_flight_tag(share_partitions: SharePartitions, key: SharePartitionKey) -> Tags:
    """Return the tagged field that lists the in-flight records of a share partition."""
    now_ms = share_partitions.now_ms
    extension = InFlightExtension(
        records=tuple(_range(in_flight, now_ms) for in_flight in share_partitions.in_flight(key))
    )
    return ((IN_FLIGHT_EXTENSION, encode(extension, 0)),)


def _range(in_flight: InFlight, now_ms: int) -> InFlightRange:
    return InFlightRange(
        first_offset=in_flight.first_offset,
        last_offset=in_flight.last_offset,
        state=in_flight.state,
        member_id=in_flight.member_id,
        delivery_count=in_flight.delivery_count,
        held_ms=max(0, now_ms - in_flight.acquired_ms) if in_flight.acquired_ms >= 0 else -1,
        lock_left_ms=max(0, in_flight.lock_end_ms - now_ms) if in_flight.lock_end_ms >= 0 else -1,
    )
