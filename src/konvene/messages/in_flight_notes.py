"""Who has which records of a share partition, told beside its offsets to whoever asks for it.

Kafka tells where a share group stands in a partition, and how many records are left. Who has the ones that
were delivered, since when, how often they were tried and how long they stay locked it has no place for. As
with `heartbeat_notes`, it is a tagged field of a number that Kafka does not use: who sends it, empty, with
DescribeShareGroupOffsets is answered it with each partition that is described without an error. Other brokers
pass over it and say nothing.

Times are distances from the moment of the answer, so that nobody has to compare clocks.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int8, int16, int64, string

IN_FLIGHT_NOTES = 27_505
"""The tag, in the request and in each partition of the answer."""

ASKED = (IN_FLIGHT_NOTES, b"")


class InFlightNote(Struct):
    first_offset: int = int64("0+")
    """First offset of the range."""
    last_offset: int = int64("0+")
    """Both ends are included."""
    state: int = int8("0+")
    """0 available again, 1 acquired, 2 acknowledged, 3 archiving, 4 archived."""
    member_id: str = string("0+")
    """Who has them; empty where nobody does."""
    delivery_count: int = int16("0+")
    """Number of times that the records were delivered."""
    held_ms: int = int64("0+", default=-1)
    """How long it has had them; -1 where nobody does."""
    lock_left_ms: int = int64("0+", default=-1)
    """When others may have them; -1 where nobody has them."""


class InFlightNotes(Struct, versions="0", flexible="0+"):
    records: tuple[InFlightNote, ...] = array(InFlightNote, "0+")
    """In the order of their offsets."""
