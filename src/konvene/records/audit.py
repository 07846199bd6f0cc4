"""Why groups rebalanced, in `__konvene_audit`: a log of ours beside Kafka's, never in it.

In the envelope of coordinator records: of a classic group one record per generation; of a consumer or
streams group one when its epoch is raised, and one when all members have what was made of the epochs since. A
row names the partition of `__consumer_offsets` and the offsets of the records that it explains; where these
were written but their row was lost in a crash, the row is derived again from the records and marked inferred.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int32, int64, string


class RebalanceKey(Struct, key=0, versions="0"):
    group: str = string("0")
    """Id of the group."""


class Cause(Struct):
    """One thing that happened to the group, and to whom."""

    kind: str = string("0+")
    """A word of `shard.causes`, such as `member-joined` or `session-expired`."""
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
    """The client's own words (JoinGroup v8+, LeaveGroup v5+). Of causes to which clients say nothing, the
    coordinator's: which task, which change (`shard.causes.DETAILED`)."""
    topic: str | None = string("0+", nullable="0+", default=None)
    """Name of the topic; None if the cause is not a topic's."""


class RebalancedMember(Struct):
    """A member of the generation that came out."""

    member_id: str = string("0+")
    """Id of the member; None if the cause is not a member's."""
    instance_id: str | None = string("0+", nullable="0+", default=None)
    """Instance id of a static member; None for a dynamic one."""
    client_id: str = string("0+")
    """Client id of the member; None if unknown."""
    client_host: str = string("0+")
    """Address of the member; None if unknown."""
    joined_ms: int = int64("0+", default=-1)
    """When it asked to be in this generation, or had all of its target; -1 where that is not known."""


class RebalanceValue(Struct, key=0, versions="0", flexible="0+"):
    group_type: str = string("0+")
    """Type of the group: classic, consumer, share or streams."""
    epoch: int = int32("0+")
    """The generation of a classic group, the group epoch of the others."""
    state: str = string("0+")
    """The state that it led to: Stable or Empty; or Superseded by the next one before it was stable.
    Assigning where an epoch was raised: no time passes then, and members are not listed. NotReady where a
    streams group has come to the end of a rebalance with nothing to do, for topics are missing."""
    started_ms: int = int64("0+", default=-1)
    """Of a Stable row of a consumer group: when the first epoch was raised since it was last stable."""
    joined_ms: int = int64("0+", default=-1)
    """When all members were in and the generation was made; of a consumer group, when its target was."""
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
    """So many more there were than a row has room for."""
    moved: tuple[int, ...] = array(int32, "0+", tag=2)
    """Where a streams group's rebalance ends: how many tasks members were to have by the targets since that
    they were not to have before; in each role: active, standby, warm-up. Empty where that is not told."""


LONGEST_TEXT = 256


def shortened(story: RebalanceValue) -> RebalanceValue:
    """A story with less in it: first long texts are cut, then, each time, half of what is listed."""
    causes = tuple(
        c.replace(
            client_id=c.client_id and c.client_id[:LONGEST_TEXT],
            reason=c.reason and c.reason[:LONGEST_TEXT],
        )
        for c in story.causes
    )
    members = tuple(m.replace(client_id=m.client_id[:LONGEST_TEXT]) for m in story.members)
    if (causes, members) == (story.causes, story.members):
        causes, members = causes[: len(causes) // 2], members[: len(members) // 2]
    return story.replace(
        causes=causes,
        members=members,
        causes_left_out=story.causes_left_out + len(story.causes) - len(causes),
        members_left_out=story.members_left_out + len(story.members) - len(members),
    )
