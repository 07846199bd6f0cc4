"""Which member of a streams group may commit and fetch offsets, and with which epoch (KIP-1071, KIP-1251).

    the member's own epoch          all of it
    a newer one                     STALE_MEMBER_EPOCH
    an older one                    for the source topics of active tasks that it had at that epoch already
    below 0                         while nobody is in the group

The same as in consumer groups, but for what a member has: its tasks, and by the topology their partitions.
To a member of the classic protocol the error is ILLEGAL_GENERATION.
"""

from __future__ import annotations

from konvene.errors import Errors
from konvene.groups.modern.group import known_member
from konvene.groups.streams.group import Member, StreamsGroup
from konvene.shard.errors import GroupError

FIRST_VERSION_WITH_MEMBER_EPOCH = 9


def check_committer(
    group: StreamsGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    version: int,
    *,
    transactional: bool = False,
) -> Member | None:
    """None where all may be committed; the member where each partition is to be looked at.

    Raises `GroupError`."""
    if epoch < 0 and group.is_empty:
        return None
    if transactional and epoch == -1 and not member_id and instance_id is None:
        return None
    member = known_member(group, member_id)
    if not transactional and member.classic is None and version < FIRST_VERSION_WITH_MEMBER_EPOCH:
        raise GroupError(
            Errors.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the streams group protocol",
        )
    if epoch == member.current.epoch:
        return None
    if epoch > member.current.epoch:
        raise _stale(member)
    return member


def check_partition(group: StreamsGroup, member: Member, epoch: int, topic: str, partition: int) -> None:
    """Whether the member had this partition's task at an epoch that is past. Raises `GroupError`."""
    subtopology = group.reader_of(topic)
    current = member.current
    for held in (current.assigned, current.pending_revocation):
        since = held.active.get(subtopology or "", {}).get(partition)
        if since is not None and subtopology is not None:
            if epoch < since:
                break
            return
    raise _stale(member)


def check_fetcher(group: StreamsGroup, member_id: str | None, epoch: int) -> None:
    """Whether this member may fetch offsets; who says neither id nor epoch may. Raises `GroupError`."""
    if member_id is None and epoch < 0:
        return
    member = known_member(group, member_id or "")
    if epoch != member.current.epoch:
        raise _stale(member)


def _stale(member: Member) -> GroupError:
    return GroupError(Errors.STALE_MEMBER_EPOCH if member.classic is None else Errors.ILLEGAL_GENERATION)
