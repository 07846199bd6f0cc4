"""Online migration of groups between the classic and the consumer protocol, in both directions (KIP-848).

    upgrade     a member joins a classic group with the consumer protocol. The other members keep their
                assignments, with the generation as their epoch; from then on the coordinator assigns. Pending
                JoinGroups and SyncGroups fail with REBALANCE_IN_PROGRESS, and the members rejoin.
    downgrade   the last member of the consumer protocol leaves, or rejoins with the classic one. The
                generation is the group's epoch; a rebalance follows if a member left.

Each is one batch: the tombstones of the old group, then the records of the new one. An empty group of either
type is replaced when a member joins with the other protocol. Committed offsets are kept.

`group.consumer.migration.policy` allows or forbids each direction; the maximum group sizes apply; and the
classic members must be consumers whose assignments have no user data, since that would be lost.

Unlike in Kafka 4.4, a classic group may be upgraded before its first generation is complete; and a partition
that the leader assigned to two members belongs to one of them after the upgrade.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.classic.group import Member as ClassicMember
from konvene.groups.classic.subscriptions import (
    CONSUMER,
    Assigned,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from konvene.groups.consumer import log
from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState, Partitions
from konvene.groups.consumer.decision import Decision
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.subscriptions import hash_of
from konvene.groups.modern import conversion
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.modern.conversion import BIDIRECTIONAL, UPGRADE, Blocker
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.records.coordinator import Record
from konvene.shard.contract import Configs, Context, Outcome
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

POLICY = "group.consumer.migration.policy"


def _policy(context: Context) -> str:
    return str(context.config[POLICY]).lower()


# --- an empty group --------------------------------------------------------------------------------


def replace_empty(classic: ClassicGroup, context: Context) -> Decision:
    """Return a decision about a new consumer group that replaces an empty classic one."""
    decision = Decision(ConsumerGroup(classic.group_id), context)
    decision.replace_classic_group(classic)
    return decision


# --- upgrade ---------------------------------------------------------------------------


def upgrade(classic: ClassicGroup, context: Context) -> Decision:
    """Return a decision about the consumer group that a classic group is upgraded to, with its records.

    Raises GROUP_ID_NOT_FOUND if the upgrade is blocked."""
    _check_upgrade(classic, context)
    records = [classic_log.tombstone(classic.group_id), *_records(classic, context)]
    private: dict[str, ConsumerGroup] = {}
    for record in records[1:]:
        log.replay(private, record)
    decision = Decision(private[classic.group_id], context)
    conversion.convert_classic_members(decision, classic)
    decision.records = records
    return decision


def blockers(classic: ClassicGroup, config: Configs) -> list[Blocker]:
    """Return why the group cannot be upgraded; the first reason is the one in the coordinator's error."""
    found: list[Blocker] = []
    if str(config[POLICY]).lower() not in (BIDIRECTIONAL, UPGRADE):
        found.append(Blocker("policy", "online upgrade is disabled."))
    if classic.protocol_type != CONSUMER:
        reason = "the group does not use the consumer embedded protocol."
        return [*found, Blocker("protocol-type", reason)]
    if len(classic.members) > config["group.consumer.max.size"]:
        found.append(Blocker("size", "the group size exceeds the consumer group maximum size."))
    for member in classic.members.values():
        metadata = _metadata_of(classic, member)
        if metadata is None:
            reason = "the embedded consumer protocol is malformed."
            found.append(Blocker("malformed", reason, (member.member_id,)))
        elif metadata[1].user_data:
            reason = (
                "an unsupported custom assignor is in use. Please refer to the documentation or "
                "switch to a default assignor before re-attempting the upgrade."
            )
            found.append(Blocker("assignor", reason, (member.member_id,)))
    return found


def _metadata_of(classic: ClassicGroup, member: ClassicMember) -> tuple[Subscription, Assigned] | None:
    """Return the subscription and the assignment of a member; None if one of them cannot be decoded."""
    subscription = read_subscription(member.metadata(classic.protocol or classic.select_protocol()))
    assignment = read_assignment(member.assignment)
    return None if subscription is None or assignment is None else (subscription, assignment)


def _check_upgrade(classic: ClassicGroup, context: Context) -> None:
    found = blockers(classic, context.config)
    if found:
        head = f"Cannot upgrade classic group {classic.group_id} to consumer group because"
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"{head} {found[0].reason}")


def _epoch(classic: ClassicGroup) -> int:
    """Return the epoch of the upgraded group: its generation, or the first epoch before any generation."""
    return max(classic.generation, FIRST_EPOCH)


def _records(classic: ClassicGroup, context: Context) -> list[Record]:
    """Return the records of the consumer group, in Kafka's order."""
    group_id, epoch = classic.group_id, _epoch(classic)
    assigned_units: set[tuple[Uuid, int]] = set()
    members = [
        _member(classic, member, assigned_units, context.topics) for member in classic.members.values()
    ]
    names = {name for member in members for name in member.topics}
    targets = [(member.member_id, member.current.assigned) for member in members]
    return [
        *(log.member_record(group_id, member) for member in members),
        log.group_record(group_id, epoch, hash_of(names, context)),
        *(
            log.target_record(group_id, name, {t: tuple(p) for t, p in assigned.items()})
            for name, assigned in targets
        ),
        log.assignment_record(group_id, epoch, 0),
        *(log.current_record(group_id, member.member_id, member.current) for member in members),
    ]


def _member(
    classic: ClassicGroup, member: ClassicMember, assigned_units: set[tuple[Uuid, int]], topics: Topics
) -> Member:
    metadata = _metadata_of(classic, member)
    assert metadata is not None  # `blockers` has decoded it.
    subscription, assignment = metadata
    epoch = _epoch(classic)
    assigned: dict[Uuid, dict[int, int]] = {}
    for name, partitions in assignment.partitions:
        for partition in partitions:
            if (
                topics.has(name, partition)
                and (unit := (topics.by_name[name].id, partition)) not in assigned_units
            ):
                assigned_units.add(unit)
                assigned.setdefault(unit[0], {})[partition] = epoch
    return Member(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        subscription.topics,
        "",
        None,
        ClassicProtocolMetadata(member.session_timeout_ms, member.protocols),
        CurrentAssignment(MemberState.STABLE, epoch, epoch, assigned),
    )


# --- downgrade ---------------------------------------------------------------------------


def may_downgrade(
    group: ConsumerGroup, leaving: Collection[Member], context: Context, *, replaced: bool = False
) -> bool:
    """Return whether the group is downgraded when the `leaving` members leave.

    Policy and size must allow it, and all remaining members must be classic. `replaced`: the leaving member
    is a static one that rejoins with the classic protocol, so it counts as remaining."""
    max_size: int = context.config["group.max.size"]
    return conversion.may_downgrade(group, leaving, _policy(context), max_size, replaced=replaced)


def downgrade(
    decision: Decision, leaving: Sequence[Member], joining: Member | None = None, *, rebalance: bool = True
) -> Outcome:
    """Replace the group by a classic one without the `leaving` members, and return the outcome.

    `joining`: the static member that rejoins with the classic protocol and replaces the only leaving one. The
    generation of the classic group is the epoch, and its members are assigned their targets. `rebalance`:
    whether it starts a rebalance at once, instead of being Stable."""
    group, topics = decision.group, decision.context.topics
    replaced = (leaving[0].member_id, joining.member_id) if joining is not None else None
    decision.records += log.group_tombstones(group, replaced)
    remaining = [member for member in group.members.values() if member not in leaving]
    remaining += [joining] if joining is not None else []
    classic = conversion.to_classic_group(group, remaining, decision.context.now_ms)
    for member_id, known in list(classic.members.items()):
        # A static member that rejoined under another id has the target of its old id.
        holder = next((m for m in leaving if m.instance_id == known.instance_id is not None), None)
        target = group.targets.get(holder.member_id if holder is not None else member_id, {})
        partitions = by_name(target, topics)
        classic.put(replace(known, assignment=write_assignment(partitions, known.metadata(classic.protocol))))
    return conversion.downgrade(decision, classic, leaving, rebalance=rebalance)


def by_name(partitions: Partitions, topics: Topics) -> list[tuple[str, tuple[int, ...]]]:
    """Return partitions by topic name; deleted topics are left out."""
    return sorted(
        (topics.by_id[topic].name, tuple(sorted(indexes)))
        for topic, indexes in partitions.items()
        if topic in topics.by_id
    )
