"""Infer why a classic group rebalanced from two successive records of it, without I/O.

`infer` reports new members, departed members, changed subscriptions and changed topics. What the records do
not contain is not guessed: a departed member may have left or lost its session (`MEMBER_DEPARTED`), causes
have no timestamp, and the rebalance has an end but no start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from konvene.codec.compile import decode_from
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from konvene.records.audit import Cause, RebalancedMember, RebalanceValue
from konvene.records.classic import GroupMetadataValue, MemberMetadata
from konvene.shard import causes

__all__ = ["infer"]

_NEWEST_PROTOCOL = 3
S = TypeVar("S", bound=Struct)


def infer(
    previous: GroupMetadataValue | None, current: GroupMetadataValue | None, *, group: str, timestamp_ms: int,
    partition: int, offset: int,
) -> RebalanceValue | None:  # fmt: skip
    """Return the rebalance between two successive records of a classic group; None if there was none.

    Without `previous`, the group is new, or compaction removed its earlier records. A tombstone (`current` is
    None) ends a group without a rebalance; two records of one generation mean that a static member rejoined.
    If generations were skipped, the rebalance is that of `current`. `group`, `timestamp_ms`, `partition` and
    `offset` are the group id of the record of `current` and its position in the log."""
    if current is None or current.generation <= 0:
        return None
    if previous is not None and previous.generation == current.generation:
        return None
    if previous is not None and previous.generation > current.generation:
        previous = None  # The group was deleted and created again; its tombstone was compacted away.
    joined_ms = current.current_state_timestamp
    return RebalanceValue(
        group_type="classic",
        epoch=current.generation,
        state="Stable" if current.members else "Empty",
        joined_ms=joined_ms if 0 <= joined_ms <= timestamp_ms else -1,
        ended_ms=timestamp_ms,
        partition=partition,
        base_offset=offset,
        last_offset=offset,
        inferred=True,
        protocol=current.protocol or None,
        leader=current.leader or None,
        causes=tuple(_causes(previous, current)),
        members=tuple(
            RebalancedMember(
                member_id=m.member_id,
                instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
            )
            for m in _in_order(current.members)
        ),
    )


def _causes(previous: GroupMetadataValue | None, current: GroupMetadataValue) -> Iterable[Cause]:
    """Return the differences between two records as causes, strongest first; UNKNOWN if there is none."""
    if previous is None and current.generation > 1:
        return [Cause(kind=causes.UNKNOWN)]
    before = {m.member_id: m for m in _in_order(previous.members)} if previous is not None else {}
    after = {m.member_id: m for m in _in_order(current.members)}
    instances = {m.group_instance_id for m in before.values() if m.group_instance_id is not None}
    returned = {m.group_instance_id for m in after.values()} & instances
    found = [
        _cause(causes.MEMBER_DEPARTED, m)
        for m in before.values()
        if m.member_id not in after and m.group_instance_id not in returned
    ]
    for m in after.values():
        if m.member_id not in before:
            static = m.group_instance_id in instances
            found.append(_cause(causes.STATIC_MEMBER_REJOINS if static else causes.MEMBER_JOINED, m))
        elif _subscription(current, before[m.member_id]) != _subscription(current, m):
            found.append(_cause(causes.MEMBER_METADATA_CHANGED, m))
    if found or previous is None:
        return found
    return (
        _cooperative_follow_up(previous) or _grown_topics(previous, current) or [Cause(kind=causes.UNKNOWN)]
    )


def _subscription(group: GroupMetadataValue, member: MemberMetadata) -> object:
    """Return what a member subscribes to, without its owned partitions, which change with every rebalance."""
    if group.protocol_type == "consumer":
        subscription = _decode(ConsumerProtocolSubscription, member.subscription)
        if subscription is not None:
            return (frozenset(subscription.topics), subscription.rack_id or None)
    return bytes(member.subscription)


def _cooperative_follow_up(previous: GroupMetadataValue) -> list[Cause]:
    """Return a cause for each member that owned partitions which the previous generation took from it.

    A cooperative member revokes such partitions and rejoins, which causes the next rebalance."""
    found = []
    for m in _in_order(previous.members):
        subscription = _decode(ConsumerProtocolSubscription, m.subscription)
        assignment = _decode(ConsumerProtocolAssignment, m.assignment)
        if subscription is None or assignment is None or previous.protocol_type != "consumer":
            continue
        owned = {(t.topic, p) for t in subscription.owned_partitions for p in t.partitions}
        if owned - {(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions}:
            found.append(_cause(causes.COOPERATIVE_FOLLOW_UP, m))
    return found


def _grown_topics(previous: GroupMetadataValue, current: GroupMetadataValue) -> list[Cause]:
    """Return a cause for each topic whose highest assigned partition changed: its partition count changed."""
    if current.protocol_type != "consumer":
        return []
    before, after = _assigned(previous), _assigned(current)
    changed = sorted(
        topic
        for topic in before.keys() | after.keys()
        if max(before.get(topic, ()), default=-1) != max(after.get(topic, ()), default=-1)
    )
    return [Cause(kind=causes.TOPIC_METADATA_CHANGED, topic=topic) for topic in changed]


def _assigned(group: GroupMetadataValue) -> Mapping[str, set[int]]:
    """Return the partitions of each topic that any member is assigned."""
    found: dict[str, set[int]] = {}
    for m in group.members:
        assignment = _decode(ConsumerProtocolAssignment, m.assignment)
        for t in assignment.assigned_partitions if assignment is not None else ():
            found.setdefault(t.topic, set()).update(t.partitions)
    return found


def _decode(cls: type[S], data: bytes) -> S | None:
    """Decode a member's subscription or assignment, which begins with a version; None if it is malformed."""
    if len(data) < 2:
        return None
    try:
        return decode_from(cls, min(int.from_bytes(data[:2], "big"), _NEWEST_PROTOCOL), bytes(data), 2)[0]
    except CodecError:
        return None


def _cause(kind: str, member: MemberMetadata) -> Cause:
    return Cause(
        kind=kind,
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
    )


def _in_order(members: Iterable[MemberMetadata]) -> list[MemberMetadata]:
    return sorted(members, key=lambda m: m.member_id)
