"""What members of a streams group have yet to give up, told beside the group's description to who asks.

Kafka's description shows what a member has, without what it was told to give up and has not confirmed: so it
does not show what others wait for, nor on whom. It has no place for that. As with `heartbeat_notes`, it is a
tagged field of a number that Kafka does not use: who sends it, empty, with StreamsGroupDescribe is answered
it with each group. Other brokers pass over it and say nothing.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, string
from konvene.messages.streams_group_describe import TaskIds

STREAMS_NOTES = 27_504
"""The tag, in the request and in each described group."""

ASKED = (STREAMS_NOTES, b"")


class StreamsNote(Struct):
    member_id: str = string("0+")
    owes_active: tuple[TaskIds, ...] = array(TaskIds, "0+")
    owes_standby: tuple[TaskIds, ...] = array(TaskIds, "0+")
    owes_warmup: tuple[TaskIds, ...] = array(TaskIds, "0+")


class StreamsNotes(Struct, versions="0", flexible="0+"):
    members: tuple[StreamsNote, ...] = array(StreamsNote, "0+")
    """Those that owe something."""
