"""Records of the audit log `__konvene_audit`: why groups rebalanced.

They are encoded as coordinator records (`coordinator`). A classic group gets one record, called a row, for
each generation; a consumer or streams group gets one when its epoch is bumped, and one when all members have
reached their targets. A row has the partition of `__consumer_offsets` and the offsets of the records that it
explains. If a crash loses a row whose records were written, it is derived from them and marked as inferred.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int32, int64, string


class RebalanceKey(Struct, key=0, versions="0"):
    group: str = string("0")
    """Id of the group."""


class Cause(Struct):
    """One cause of a rebalance, and the member or topic concerned."""

    kind: str = string("0+")
    """Kind of the cause, from `shard.causes`, such as `member-joined` or `session-expired`."""
    at_ms: int = int64("0+", default=-1)
    """Time of the event, in milliseconds; -1 if unknown."""
    member_id: str | None = string("0+", nullable="0+", default=None)
    """Id of the member; None if the cause is not a member's."""
    instance_id: str | None = string("0+", nullable="0+", default=None)
    """Instance id of a static member; None for a dynamic one."""
    client_id: str | None = string("0+", nullable="0+", default=None)
    """Client id of the member; None if unknown."""
    client_host: str | None = string("0+", nullable="0+", default=None)
    """Address of the member; None if unknown."""
    reason: str | None = string("0+", nullable="0+", default=None)
    """Reason that the client gave (JoinGroup v8+, LeaveGroup v5+), or details from the coordinator: which
    task, which change (`shard.causes.DETAILED`)."""
    topic: str | None = string("0+", nullable="0+", default=None)
    """Name of the topic; None if the cause is not a topic's."""


class RebalancedMember(Struct):
    """A member of the group after the rebalance."""

    member_id: str = string("0+")
    """Id of the member."""
    instance_id: str | None = string("0+", nullable="0+", default=None)
    """Instance id of a static member; None for a dynamic one."""
    client_id: str = string("0+")
    """Client id of the member."""
    client_host: str = string("0+")
    """Address of the member."""
    joined_ms: int = int64("0+", default=-1)
    """Time when it joined the generation or reached its target, in milliseconds; -1 if unknown."""


class RebalanceValue(Struct, key=0, versions="0", flexible="0+"):
    group_type: str = string("0+")
    """Type of the group: classic, consumer, share or streams."""
    epoch: int = int32("0+")
    """Generation of a classic group, group epoch of the others."""
    state: str = string("0+")
    """Resulting state: Stable, Empty, or Superseded if the next rebalance began before it was stable.
    Assigning for a raised epoch, without duration and members. NotReady if a streams group finished
    without an assignment because topics are missing."""
    started_ms: int = int64("0+", default=-1)
    """Time when the rebalance began, in milliseconds: for a Stable row of a consumer group, when its epoch
    was first raised since it was last stable."""
    joined_ms: int = int64("0+", default=-1)
    """Time when all members had joined and the generation was formed, or the target was computed, in
    milliseconds."""
    ended_ms: int = int64("0+", default=-1)
    """Time when the rebalance ended, in milliseconds; -1 if it has not."""
    partition: int = int32("0+", default=-1)
    """Partition of `__consumer_offsets` that the row explains."""
    base_offset: int = int64("0+", default=-1)
    """First offset that the row explains."""
    last_offset: int = int64("0+", default=-1)
    """Last offset that the row explains."""
    inferred: bool = boolean("0+")
    """True if the row was derived from the records after a crash."""
    protocol: str | None = string("0+", nullable="0+", default=None)
    """Protocol of a classic group, or assignor of the others."""
    leader: str | None = string("0+", nullable="0+", default=None)
    """Id of the leader of a classic group."""
    causes: tuple[Cause, ...] = array(Cause, "0+")
    """Causes of the rebalance, the first one first."""
    members: tuple[RebalancedMember, ...] = array(RebalancedMember, "0+")
    """Members of the new generation."""
    causes_left_out: int = int32("0+", tag=0)
    """Number of causes that did not fit into the row."""
    members_left_out: int = int32("0+", tag=1)
    """Number of members that did not fit into the row."""
    moved: tuple[int, ...] = array(int32, "0+", tag=2)
    """Number of tasks that the rebalance of a streams group newly assigned, by role: active, standby,
    warm-up. Empty if not recorded."""
    session_timeout_ms: int = int64("0+", default=-1, tag=3)
    """Session timeout of a consumer, share or streams group, if a session expired, in milliseconds; -1
    otherwise. Members of the classic protocol have their own, which are in the group's records."""


LONGEST_TEXT = 256


def shortened(row: RebalanceValue) -> RebalanceValue:
    """Return a smaller copy of a row that is too large for the log; call it until the row fits.

    Texts beyond `LONGEST_TEXT` are cut; if there are none, half of the causes and of the members are dropped.
    """
    causes = tuple(
        c.replace(
            client_id=c.client_id and c.client_id[:LONGEST_TEXT],
            reason=c.reason and c.reason[:LONGEST_TEXT],
        )
        for c in row.causes
    )
    members = tuple(m.replace(client_id=m.client_id[:LONGEST_TEXT]) for m in row.members)
    if (causes, members) == (row.causes, row.members):
        causes, members = causes[: len(causes) // 2], members[: len(members) // 2]
    return row.replace(
        causes=causes,
        members=members,
        causes_left_out=row.causes_left_out + len(row.causes) - len(causes),
        members_left_out=row.members_left_out + len(row.members) - len(members),
    )
