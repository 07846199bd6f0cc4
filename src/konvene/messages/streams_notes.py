"""What members of a streams group have yet to give up, told beside the group's description to who asks; and
what their warm-ups are measured by; and what its target costs by tags and racks.

Kafka's description shows what a member has, without what it was told to give up and has not confirmed: so it
does not show what others wait for, nor on whom. It shows how far tasks are, and not how far they have to be.
It has no place for either. As with `heartbeat_notes`, it is a
tagged field of a number that Kafka does not use: who sends it, empty, with StreamsGroupDescribe is answered
it with each group. Other brokers pass over it and say nothing.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int32, int64, string
from konvene.messages.streams_group_describe import TaskIds

STREAMS_NOTES = 27_504
"""The tag, in the request and in each described group."""

ASKED = (STREAMS_NOTES, b"")


class StreamsNote(Struct):
    member_id: str = string("0+")
    """Id of the member."""
    owes_active: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Active tasks that the member still has to revoke."""
    owes_standby: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Standby tasks that the member still has to revoke."""
    owes_warmup: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Warm-up tasks that the member still has to revoke."""


class PlacementNote(Struct):
    """What a target costs (`groups.assignors.tasks.racks.Cost`), and the tags by which."""

    rack_aware_assignment_tags: tuple[str, ...] = array(string, "0+")
    """Tags over which standby tasks are spread."""
    actives_outside: int = int32("0+")
    """Active tasks outside of their partition's rack."""
    copies_outside: int = int32("0+")
    """Standby and warm-up tasks outside of their partition's rack."""
    pairs_sharing_all: int = int32("0+")
    """Pairs of copies of a task whose clients have the same value for every tag."""
    pairs_sharing_some: int = int32("0+")
    """Pairs of copies of a task whose clients have the same value for some tag."""
    tasks_apart: int = int32("0+")
    """Tasks whose copies differ in all tags."""
    tasks_with_copies: int = int32("0+")
    """Tasks with at least one standby or warm-up."""


class StreamsNotes(Struct, versions="0", flexible="0+"):
    members: tuple[StreamsNote, ...] = array(StreamsNote, "0+")
    """Those that owe something."""
    acceptable_recovery_lag: int = int64("0+", default=-1, tag=0)
    """A warm-up that is behind by no more records has caught up; -1: it is not told."""
    num_warmup_replicas: int = int32("0+", default=-1, tag=1)
    """So many tasks warm up at a time; -1: it is not told."""
    silent: tuple[str, ...] = array(string, "0+", tag=2)
    """Member ids of those that are known not to say how far their tasks are."""
    placement: tuple[PlacementNote, ...] = array(PlacementNote, "0+", tag=3)
    """One where tags are configured or racks are known; none elsewhere."""
