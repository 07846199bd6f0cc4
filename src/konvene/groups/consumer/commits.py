"""Which member of a consumer group may commit and fetch offsets, and with which epoch (KIP-848, KIP-1251).

    the member's own epoch          all of it
    a newer one                     STALE_MEMBER_EPOCH
    an older one                    for partitions that it had at that epoch already, or STALE_MEMBER_EPOCH
    below 0                         while nobody is in the group

A commit that was on its way while the epoch moved is thus taken. To a member of the classic protocol the
error is ILLEGAL_GENERATION. One partition that may not be committed refuses the whole request, as in Kafka.
"""

from __future__ import annotations

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.modern.group import known_member
from konvene.shard.errors import GroupError

FIRST_VERSION_WITH_MEMBER_EPOCH = 9


def check_committer(
    group: ConsumerGroup,
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
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    if epoch == member.current.epoch:
        return None
    if epoch > member.current.epoch:
        raise _stale(member)
    return member


def check_partition(member: Member, epoch: int, topic: Uuid, partition: int) -> None:
    """Whether the member had this partition at an epoch that is past. Raises `GroupError`."""
    current = member.current
    since = current.assigned.get(topic, {}).get(partition)
    if since is None:
        since = current.pending_revocation.get(topic, {}).get(partition)
    if since is None or epoch < since:
        raise _stale(member)


def check_fetcher(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Whether this member may fetch offsets; who says neither id nor epoch may. Raises `GroupError`."""
    if member_id is None and epoch < 0:
        return
    member = known_member(group, member_id or "")
    if epoch != member.current.epoch:
        raise _stale(member)


def _stale(member: Member) -> GroupError:
    return GroupError(Errors.STALE_MEMBER_EPOCH if member.classic is None else Errors.ILLEGAL_GENERATION)
