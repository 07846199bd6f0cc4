"""Why a classic group rebalanced, told from two successive records of it. Pure.

`infer` says what can be said from them alone: who is new, who is gone, whose subscription changed, which
topic grew. What a record does not hold is not guessed: a member that is gone may have left or lost its
session (`member-gone`), causes have no time, and the rebalance has an end but no start.
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
    """The rebalance between two successive records of a classic group, or None where there was none.

    `previous` None: nothing is known from before (the group is new, or compaction took its past). A tombstone
    (`current` None) ends a group without a rebalance; so does a record of the same generation (a static
    member came back). Where generations were skipped, the row is about the one that was seen.
    `timestamp_ms`, `partition` and `offset` are those of the record of `current` (of `group`).
    """
    if current is None or current.generation <= 0:
        return None
    if previous is not None and previous.generation == current.generation:
        return None
    if previous is not None and previous.generation > current.generation:
        previous = None  # Deleted and made anew; the tombstone was compacted away.
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
    """What differs between the two, strongest first; one `unknown` where nothing that tells does."""
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
        elif _wants(current, before[m.member_id]) != _wants(current, m):
            found.append(_cause(causes.MEMBER_METADATA_CHANGED, m))
    if found or previous is None:
        return found
    return _follow_up(previous) or _grown_topics(previous, current) or [Cause(kind=causes.UNKNOWN)]


def _wants(group: GroupMetadataValue, member: MemberMetadata) -> object:
    """What a member asks for, without what it reports of its last assignment (which always changes)."""
    if group.protocol_type == "consumer":
        said = _read(ConsumerProtocolSubscription, member.subscription)
        if said is not None:
            return (frozenset(said.topics), said.rack_id or None)
    return bytes(member.subscription)


def _follow_up(previous: GroupMetadataValue) -> list[Cause]:
    """Members that owned more than they were then given: they gave it up and rejoined (cooperative)."""
    found = []
    for m in _in_order(previous.members):
        said = _read(ConsumerProtocolSubscription, m.subscription)
        given = _read(ConsumerProtocolAssignment, m.assignment)
        if said is None or given is None or previous.protocol_type != "consumer":
            continue
        owned = {(t.topic, p) for t in said.owned_partitions for p in t.partitions}
        if owned - {(t.topic, p) for t in given.assigned_partitions for p in t.partitions}:
            found.append(_cause(causes.COOPERATIVE_FOLLOW_UP, m))
    return found


def _grown_topics(previous: GroupMetadataValue, current: GroupMetadataValue) -> list[Cause]:
    """Topics of which the group now has partitions, or is rid of all, that it could not have had before."""
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
    found: dict[str, set[int]] = {}
    for m in group.members:
        given = _read(ConsumerProtocolAssignment, m.assignment)
        for t in given.assigned_partitions if given is not None else ():
            found.setdefault(t.topic, set()).update(t.partitions)
    return found


def _read(cls: type[S], data: bytes) -> S | None:
    """A member's own bytes, behind their version; None where they are something else."""
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
