"""Checks of members that commit or fetch offsets of consumer and streams groups (KIP-848, KIP-1251).

    epoch of the request            commit accepted for
    the member's current epoch      all partitions
    a newer one                     none: STALE_MEMBER_EPOCH
    an older one                    partitions that were assigned to the member in that epoch or earlier
    below 0                         all partitions, while the group is empty

A commit that was in flight while the epoch advanced is thus accepted. A member of the classic protocol gets
ILLEGAL_GENERATION instead. One partition that may not be committed rejects the whole request, as in Kafka.
"""

from __future__ import annotations

from typing import Any, TypeVar

from konvene.errors import Errors
from konvene.groups.modern.group import Member, ModernGroup, get_or_throw_member
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic

M = TypeVar("M", bound=Member)

FIRST_VERSION_WITH_MEMBER_EPOCH = 9


def check_committer(
    group: ModernGroup[M],
    member_id: str,
    instance_id: str | None,
    epoch: int,
    version: int,
    *,
    transactional: bool = False,
) -> M | None:
    """Check the member and the epoch of a commit. Raises `GroupError`.

    Return None if the member may commit every partition. If the request has an older epoch, return the
    member: then each partition has to be checked with `check_partition`. `version`: the version of the
    request; `transactional`: it is a TxnOffsetCommit, which need not name a member."""
    if epoch < 0 and group.is_empty:
        return None
    if transactional and epoch == -1 and not member_id and instance_id is None:
        return None
    member = get_or_throw_member(group, member_id)
    if not transactional and member.classic is None and version < FIRST_VERSION_WITH_MEMBER_EPOCH:
        raise GroupError(
            Errors.UNSUPPORTED_VERSION,
            f"OffsetCommit version 9 or above must be used by members using the {group.group_type} group "
            "protocol",
        )
    if epoch == member.current.epoch:
        return None
    if epoch > member.current.epoch:
        raise _stale(member)
    return member


def check_partition(group: Any, member: Member, epoch: int, topic: Topic, partition: int) -> None:
    """Check that the partition was assigned to the member in `epoch` or earlier. Raises `GroupError`."""
    since = group.assigned_since(member, topic, partition)
    if since is None or epoch < since:
        raise _stale(member)


def check_fetcher(group: ModernGroup[Any], member_id: str | None, epoch: int) -> None:
    """Check the member and the epoch of an OffsetFetch. Raises `GroupError`.

    A request without member id and epoch is always allowed."""
    if member_id is None and epoch < 0:
        return
    member = get_or_throw_member(group, member_id or "")
    if epoch != member.current.epoch:
        raise _stale(member)


def _stale(member: Member) -> GroupError:
    return GroupError(Errors.STALE_MEMBER_EPOCH if member.classic is None else Errors.ILLEGAL_GENERATION)
