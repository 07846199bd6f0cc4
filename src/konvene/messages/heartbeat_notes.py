"""How the members of a group heartbeat, told beside the group's description to whoever asks for it.

Kafka's descriptions have no place for that. So it is a tagged field of a number that Kafka does not use. Who
sends it, empty, with ConsumerGroupDescribe or DescribeGroups (from version 5 on) is answered it with each
group; who does not is answered as by Kafka. Other brokers pass over it and say nothing.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int32, string

HEARTBEAT_NOTES = 27_503
"""The tag, in the request and in each described group."""

ASKED = (HEARTBEAT_NOTES, b"")


class HeartbeatNote(Struct):
    member_id: str = string("0+")
    """Id of the member."""
    told_ms: int = int32("0+", default=-1)
    """What it is told with its next answer; -1 for a member of the classic protocol, who is told nothing."""
    is_held: bool = boolean("0+")
    """Whether it waits for the answer to a heartbeat with nothing to tell."""


class HeartbeatNotes(Struct, versions="0", flexible="0+"):
    policy: str = string("0+")
    """Heartbeat policy of the group."""
    members: tuple[HeartbeatNote, ...] = array(HeartbeatNote, "0+")
    """Heartbeats, by member."""
