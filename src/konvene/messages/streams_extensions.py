"""Extension of streams group descriptions: pending revocations, warm-up limits and the cost of the target
assignment.

Kafka's description omits tasks that a member has to revoke and still owns, so it does not show which tasks
other members wait for. It shows how far tasks have restored their state, but not the lag up to which a
warm-up counts as caught up. As in `heartbeat_extensions`, the extension is a tagged field with a number that
Kafka does not use: a client that sends it, empty, with StreamsGroupDescribe receives it with each group.
Other brokers ignore the tag.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, int32, int64, string
from konvene.messages.streams_group_describe import TaskIds

STREAMS_EXTENSION = 27_504
"""Number of the tagged field, in the request and in each described group."""

REQUEST_FIELD = (STREAMS_EXTENSION, b"")


class PendingTaskRevocations(Struct):
    member_id: str = string("0+")
    """Id of the member."""
    pending_active: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Active tasks that the member still has to revoke."""
    pending_standby: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Standby tasks that the member still has to revoke."""
    pending_warmup: tuple[TaskIds, ...] = array(TaskIds, "0+")
    """Warm-up tasks that the member still has to revoke."""


class PlacementCost(Struct):
    """Cost of a target assignment (`groups.assignors.tasks.racks.Cost`) and the tags that it depends on."""

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


class StreamsExtension(Struct, versions="0", flexible="0+"):
    members: tuple[PendingTaskRevocations, ...] = array(PendingTaskRevocations, "0+")
    """Members with tasks that they still have to revoke."""
    acceptable_recovery_lag: int = int64("0+", default=-1, tag=0)
    """Lag up to which a warm-up counts as caught up, in records; -1 if not reported."""
    num_warmup_replicas: int = int32("0+", default=-1, tag=1)
    """Largest number of simultaneous warm-ups; -1 if not reported."""
    not_reporting: tuple[str, ...] = array(string, "0+", tag=2)
    """Ids of the members that report no task offsets."""
    placement: tuple[PlacementCost, ...] = array(PlacementCost, "0+", tag=3)
    """Cost of the assignment; at most one, present if tags are configured or racks are known."""
