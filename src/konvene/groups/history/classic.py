"""Infer why a classic group rebalanced from two successive records of it, without I/O.

`infer` reports new members, departed members, changed subscriptions and changed topics. What the records do
not contain is not guessed: a departed member may have left or lost its session (`MEMBER_DEPARTED`), causes
have no timestamp, and the rebalance has an end but no start. Possible causes are joined by `|`, as in
`member-metadata-changed|leader-rejoined` where the members are the same in both records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from konvene.codec.compile import decode_from
from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.groups.modern.rebalance_trace import MOST_CAUSES
from konvene.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from konvene.records.audit import Cause, RebalancedMember, RebalanceValue
from konvene.records.classic import GroupMetadataValue, MemberMetadata
from konvene.shard import causes

__all__ = ["infer", "is_rejoin"]

_NEWEST_PROTOCOL = 3
S = TypeVar("S", bound=Struct)


def infer(
    previous: GroupMetadataValue | None, current: GroupMetadataValue | None, *, group: str, timestamp_ms: int,
    partition: int, offset: int,
) -> RebalanceValue | None:  # fmt: skip
    """Return the rebalance between two successive records of a classic group; None if there was none.

    Without `previous`, the group is new, or compaction removed its earlier records. A tombstone (`current` is
    None) ends a group without a rebalance; two records of one generation mean that a static member rejoined.
    If generations were skipped, the causes are those of all of them. `group`, `timestamp_ms`, `partition` and
    `offset` are the group id of the record of `current` and its position in the log."""
    if current is None or current.generation <= 0:
        return None
    if previous is not None and previous.generation == current.generation:
        return None
    if previous is not None and previous.generation > current.generation:
        previous = None  # The group was deleted and created again; its tombstone was compacted away.
    joined_ms = current.current_state_timestamp
    found = _causes(previous, current)
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
        causes=tuple(found[:MOST_CAUSES]),
        causes_left_out=max(len(found) - MOST_CAUSES, 0),
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


def _causes(previous: GroupMetadataValue | None, current: GroupMetadataValue) -> list[Cause]:
    """Return the causes that two records prove, strongest first; if there are none, the possible ones.

    Each member that joined or departed is a cause. A member that is in both records may have rejoined with
    changed metadata only because of another cause, so its change is one only where there is no other. Each
    generation in between was superseded; if the causes are fewer, members that no record names did it, as
    where a group has no members in either record."""
    if previous is None and current.generation > 1:
        return [Cause(kind=causes.UNKNOWN)]
    if previous is None:
        return [_cause(causes.MEMBER_JOINED, m) for m in _in_order(current.members)]
    before = {m.member_id: m for m in _in_order(previous.members)}
    after = {m.member_id: m for m in _in_order(current.members)}
    replaced = _replaced(previous, current)
    found = [
        _cause(causes.MEMBER_DEPARTED, m)
        for m in before.values()
        if m.member_id not in after and m.group_instance_id not in replaced
    ]
    found += [
        _cause(causes.MEMBER_JOINED, m)
        for m in after.values()
        if m.member_id not in before and m.group_instance_id not in replaced
    ]
    for m in replaced.values():
        found += _replacement(previous, current, m)
    superseded = current.generation - previous.generation - 1
    if found:
        superseded -= len(found)
    elif previous.members:
        found = _rejoins(previous, current, list(replaced.values()))
    else:
        found = [Cause(kind=causes.MEMBER_JOINED), Cause(kind=causes.MEMBER_DEPARTED)]
        superseded -= 1
    return found + [Cause(kind=causes.SUPERSEDED_UNRECORDED)] * superseded


def _replaced(previous: GroupMetadataValue, current: GroupMetadataValue) -> dict[str, MemberMetadata]:
    """Return the static members of `current` that had another member id in `previous`, by instance id."""
    member_ids = {
        m.group_instance_id: m.member_id for m in previous.members if m.group_instance_id is not None
    }
    return {
        m.group_instance_id: m
        for m in _in_order(current.members)
        if m.group_instance_id is not None and member_ids.get(m.group_instance_id, m.member_id) != m.member_id
    }


def _replacement(
    previous: GroupMetadataValue, current: GroupMetadataValue, member: MemberMetadata
) -> list[Cause]:
    """Return the causes that a static member with a new member id proves, or may be.

    If it rejoined while members joined the generation, it is none. A leader that rejoins stays leader."""
    old = next(m for m in previous.members if m.group_instance_id == member.group_instance_id)
    if current.generation > previous.generation + 1:
        return [_cause(f"{causes.MEMBER_JOINED}|{causes.STATIC_MEMBER_REJOINS}", member)]
    if previous.leader == old.member_id and current.leader != member.member_id:
        return [_cause(causes.MEMBER_DEPARTED, old), _cause(causes.MEMBER_JOINED, member)]
    return []


def _rejoins(
    previous: GroupMetadataValue, current: GroupMetadataValue, replaced: list[MemberMetadata]
) -> list[Cause]:
    """Return the possible causes of a generation whose members all were in the stored one before.

    A member rejoined: the leader perhaps unchanged, others only with other metadata. Or one joined: a static
    member (`replaced`: those with new member ids) that had been removed, or one that departed before this
    generation. The member is named if only one can be meant."""
    before = {m.member_id: m for m in previous.members}
    changed = [
        m
        for m in _in_order(current.members)
        if m.member_id in before and _subscription(current, before[m.member_id]) != _subscription(current, m)
    ]
    revoking = [] if changed or replaced else _revoking(previous)
    topics = _grown_topics(previous, current)
    is_next = current.generation == previous.generation + 1
    kinds = [] if is_next and not replaced else [causes.MEMBER_JOINED]
    kinds += [causes.COOPERATIVE_FOLLOW_UP] if revoking else []
    kinds += [causes.TOPIC_METADATA_CHANGED] if topics and not changed else []
    kinds += [causes.MEMBER_METADATA_CHANGED]
    kinds += [causes.TOPIC_METADATA_CHANGED] if topics and changed else []
    kinds += [causes.LEADER_REJOINED]
    candidates = [*changed, *revoking, *replaced]
    if len(candidates) == 1 and is_next:
        return [_cause("|".join(kinds), candidates[0])]
    return [Cause(kind="|".join(kinds), topic=topics[0] if len(topics) == 1 else None)]


def is_rejoin(cause: Cause) -> bool:
    """Return whether a cause is only possible, since no record shows any: some member may have rejoined."""
    return causes.LEADER_REJOINED in cause.kind.split("|")


def _subscription(group: GroupMetadataValue, member: MemberMetadata) -> object:
    """Return what a member subscribes to, without its owned partitions, which change with every rebalance."""
    if group.protocol_type == "consumer":
        subscription = _decode(ConsumerProtocolSubscription, member.subscription)
        if subscription is not None:
            return (frozenset(subscription.topics), subscription.rack_id or None)
    return bytes(member.subscription)


def _revoking(group: GroupMetadataValue) -> list[MemberMetadata]:
    """Return the members that owned partitions which their generation took from them.

    A cooperative member revokes such partitions and rejoins, which causes the next rebalance."""
    found = []
    for m in _in_order(group.members):
        subscription = _decode(ConsumerProtocolSubscription, m.subscription)
        assignment = _decode(ConsumerProtocolAssignment, m.assignment)
        if subscription is None or assignment is None or group.protocol_type != "consumer":
            continue
        owned = {(t.topic, p) for t in subscription.owned_partitions for p in t.partitions}
        if owned - {(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions}:
            found.append(m)
    return found


def _grown_topics(previous: GroupMetadataValue, current: GroupMetadataValue) -> list[str]:
    """Return the topics whose highest assigned partition changed: their number of partitions changed."""
    if current.protocol_type != "consumer":
        return []
    before, after = _assigned(previous), _assigned(current)
    return sorted(
        topic
        for topic in before.keys() | after.keys()
        if max(before.get(topic, ()), default=-1) != max(after.get(topic, ()), default=-1)
    )


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
