"""Extension of share group offsets: which members have acquired which records.

Kafka reports a share group's start offset and lag in a partition. It has no field for the member that
acquired records, the time of the acquisition, the delivery count, or the time until the lock expires. As in
`heartbeat_extensions`, the extension is a tagged field with a number that Kafka does not use: a client that
sends it, empty, with DescribeShareGroupOffsets receives it with each partition that is described without an
error. Other brokers ignore the tag.

Times are relative to the response, so that no clocks have to be compared.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int64, string

IN_FLIGHT_EXTENSION = 27_505
"""Number of the tagged field, in the request and in each partition of the response."""

REQUEST_FIELD = (IN_FLIGHT_EXTENSION, b"")


class InFlightRange(Struct):
    first_offset: int = int64("0+")
    """First offset of the range."""
    last_offset: int = int64("0+")
    """Last offset of the range, inclusive."""
    state: int = int8("0+")
    """State: 0 available again, 1 acquired, 2 acknowledged, 3 archiving, 4 archived."""
    member_id: str = string("0+")
    """Id of the member that acquired the records; empty if none has."""
    delivery_count: int = int16("0+")
    """Number of times that the records were delivered."""
    held_ms: int = int64("0+", default=-1)
    """Time since the records were acquired, in milliseconds; -1 if they are not."""
    lock_left_ms: int = int64("0+", default=-1)
    """Time until the acquisition lock expires, in milliseconds; -1 if there is none."""


class InFlightExtension(Struct, versions="0", flexible="0+"):
    records: tuple[InFlightRange, ...] = array(InFlightRange, "0+")
    """Ranges of records, ascending by offset."""
