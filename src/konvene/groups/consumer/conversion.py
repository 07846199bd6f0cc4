"""A group moves between the classic and the consumer protocol while it runs, both ways (KIP-848).

    classic → consumer   a member of the new protocol joins. The members are taken over as they are, stable at
                         the generation, with what the leader gave them; from here on the coordinator assigns.
                         Those who wait for a join or a sync are told REBALANCE_IN_PROGRESS, and come back.
    consumer → classic   the last member of the new protocol leaves, or is replaced by itself with the classic
                         one. The generation is the group's epoch; a rebalance follows where somebody left.

Both are one batch: tombstones of what the group was, records of what it is. An empty group of either kind
becomes the other with whoever joins it next. Committed offsets stay where they are.

`group.consumer.migration.policy` says which way is open; the sizes must fit; and the classic members must be
consumers whose assignments hold nothing else than partitions, for whatever an assignor of theirs keeps beside
them would be lost.

Unlike Kafka 4.4, a classic group whose first generation is still being made may be converted as well; and a
partition that the leader gave to two members is one's only from here on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

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
from konvene.shard.contract import Context, Outcome
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

POLICY = "group.consumer.migration.policy"


def _policy(context: Context) -> str:
    return str(context.config[POLICY]).lower()


# --- an empty group --------------------------------------------------------------------------------


def replaced_empty(classic: ClassicGroup, context: Context) -> Decision:
    """A new consumer group in the place of a classic one that nobody is in."""
    decision = Decision(ConsumerGroup(classic.group_id), context)
    decision.replace_classic_group(classic)
    return decision


# --- classic to consumer ---------------------------------------------------------------------------


def upgraded(classic: ClassicGroup, context: Context) -> Decision:
    """The group as a consumer group. Raises GROUP_ID_NOT_FOUND where it must stay what it is."""
    _check_upgrade(classic, context)
    records = [classic_log.tombstone(classic.group_id), *_records(classic, context)]
    private: dict[str, Any] = {}
    for record in records[1:]:
        log.replay(private, record)
    decision = Decision(private[classic.group_id], context)
    conversion.convert_classic_members(decision, classic)
    decision.records = records
    return decision


def blockers(classic: ClassicGroup, config: Mapping[str, Any]) -> list[Blocker]:
    """Why the group cannot become a consumer group; the first is what the coordinator refuses it for."""
    found = []
    if str(config[POLICY]).lower() not in (BIDIRECTIONAL, UPGRADE):
        found.append(Blocker("policy", "online upgrade is disabled."))
    if classic.protocol_type != CONSUMER:
        why = "the group does not use the consumer embedded protocol."
        return [*found, Blocker("protocol-type", why)]
    if len(classic.members) > config["group.consumer.max.size"]:
        found.append(Blocker("size", "the group size exceeds the consumer group maximum size."))
    for member in classic.members.values():
        taken = _taken(classic, member)
        if taken is None:
            why = "the embedded consumer protocol is malformed."
            found.append(Blocker("malformed", why, (member.member_id,)))
        elif taken[1].user_data:
            why = (
                "an unsupported custom assignor is in use. Please refer to the documentation or "
                "switch to a default assignor before re-attempting the upgrade."
            )
            found.append(Blocker("assignor", why, (member.member_id,)))
    return found


def _taken(classic: ClassicGroup, member: ClassicMember) -> tuple[Subscription, Assigned] | None:
    """What a member said as it joined last, and what it was given then; None where it cannot be read."""
    said = read_subscription(member.metadata(classic.protocol or classic.select_protocol()))
    given = read_assignment(member.assignment)
    return None if said is None or given is None else (said, given)


def _check_upgrade(classic: ClassicGroup, context: Context) -> None:
    found = blockers(classic, context.config)
    if found:
        head = f"Cannot upgrade classic group {classic.group_id} to consumer group because"
        raise GroupError(Errors.GROUP_ID_NOT_FOUND, f"{head} {found[0].reason}")


def _epoch(classic: ClassicGroup) -> int:
    """The generation. One that is still being made is none, and 0 is no epoch that a member could be at."""
    return max(classic.generation, FIRST_EPOCH)


def _records(classic: ClassicGroup, context: Context) -> list[Any]:
    """What the group is as a consumer group, in Kafka's order."""
    group_id, epoch = classic.group_id, _epoch(classic)
    taken: set[tuple[Uuid, int]] = set()
    members = [_member(classic, member, taken, context.topics) for member in classic.members.values()]
    names = {name for member in members for name in member.topics}
    targets = [(member.member_id, member.current.assigned) for member in members]
    return [
        *(log.member_record(group_id, member) for member in members),
        log.group_record(group_id, epoch, hash_of(names, context)),
        *(log.target_record(group_id, name, {t: tuple(p) for t, p in had.items()}) for name, had in targets),
        log.assignment_record(group_id, epoch, 0),
        *(log.current_record(group_id, member.member_id, member.current) for member in members),
    ]


def _member(
    classic: ClassicGroup, member: ClassicMember, taken: set[tuple[Uuid, int]], topics: Topics
) -> Member:
    taken_over = _taken(classic, member)
    assert taken_over is not None  # Checked: it can be read.
    said, given = taken_over
    epoch = _epoch(classic)
    assigned: dict[Uuid, dict[int, int]] = {}
    for name, partitions in given.partitions:
        for partition in partitions:
            if topics.has(name, partition) and (unit := (topics.by_name[name].id, partition)) not in taken:
                taken.add(unit)
                assigned.setdefault(unit[0], {})[partition] = epoch
    return Member(
        member.member_id,
        member.instance_id,
        said.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        said.topics,
        "",
        None,
        ClassicProtocolMetadata(member.session_timeout_ms, member.protocols),
        CurrentAssignment(MemberState.STABLE, epoch, epoch, assigned),
    )


# --- consumer to classic ---------------------------------------------------------------------------


def may_downgrade(
    group: ConsumerGroup, leaving: Collection[Member], context: Context, *, replaced: bool = False
) -> bool:
    """See `conversion.may_downgrade`."""
    most: int = context.config["group.max.size"]
    return conversion.may_downgrade(group, leaving, _policy(context), most, replaced=replaced)


def downgraded(
    decision: Decision, leaving: Sequence[Member], joining: Member | None = None, *, rebalance: bool = True
) -> Outcome:
    """The group as a classic one, without who leaves, or with `joining` in the place of who leaves.

    Stable at the group's epoch, everybody with their target."""
    group, topics = decision.group, decision.context.topics
    replaced = (leaving[0].member_id, joining.member_id) if joining is not None else None
    decision.records += log.group_tombstones(group, replaced)
    stay = [member for member in group.members.values() if member not in leaving]
    stay += [joining] if joining is not None else []
    classic = conversion.to_classic_group(group, stay, decision.context.now_ms)
    for member_id, known in list(classic.members.items()):
        # Who comes back in another's place has what that one had.
        holder = next((m for m in leaving if m.instance_id == known.instance_id is not None), None)
        target = group.targets.get(holder.member_id if holder is not None else member_id, {})
        told = by_name(target, topics)
        classic.put(replace(known, assignment=write_assignment(told, known.metadata(classic.protocol))))
    return conversion.downgrade(decision, classic, leaving, rebalance=rebalance)


def by_name(partitions: Partitions, topics: Topics) -> list[tuple[str, tuple[int, ...]]]:
    """Partitions by the names of their topics, of those that exist."""
    return sorted(
        (topics.by_id[topic].name, tuple(sorted(some)))
        for topic, some in partitions.items()
        if topic in topics.by_id
    )
