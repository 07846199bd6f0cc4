"""Who has which records of a share partition, for those who ask for it with the group's offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.codec.compile import encode
from konvene.messages.in_flight_extensions import IN_FLIGHT_EXTENSION, InFlightExtension, InFlightRange
from konvene.share_state.requests import SharePartitionKey

if TYPE_CHECKING:
    from konvene.broker.shares.share_partitions import SharePartitions
    from konvene.delivery.contract import InFlight

Tags = tuple[tuple[int, bytes], ...]


def is_requested(request: Any) -> bool:
    """Whether the request has the tag."""
    return any(tag == IN_FLIGHT_EXTENSION for tag, _ in request.unknown_tags)


def in_flight_tag(share_partitions: SharePartitions, key: SharePartitionKey) -> Tags:
    """The tagged field for a share partition."""
    now_ms = share_partitions.now_ms
    notes = InFlightExtension(records=tuple(_note(one, now_ms) for one in share_partitions.in_flight(key)))
    return ((IN_FLIGHT_EXTENSION, encode(notes, 0)),)


def _note(one: InFlight, now_ms: int) -> InFlightRange:
    return InFlightRange(
        first_offset=one.first_offset,
        last_offset=one.last_offset,
        state=one.state,
        member_id=one.member_id,
        delivery_count=one.delivery_count,
        held_ms=max(0, now_ms - one.acquired_ms) if one.acquired_ms >= 0 else -1,
        lock_left_ms=max(0, one.lock_end_ms - now_ms) if one.lock_end_ms >= 0 else -1,
    )
