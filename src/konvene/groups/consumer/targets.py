"""What members are meant to have: when a new target is computed, and of what.

A target is computed when the group's epoch is ahead of the assignment's, at the next heartbeat of any member,
but not sooner than `consumer.assignment.interval.ms` after the last one (KIP-1263): whatever happens in
between is answered by one target. A large group's is computed elsewhere (`work`), if the broker offloads;
until it is there everybody goes on with the last one, and a target for an epoch that is past is dropped.

What the log says is the same both ways: a record for each member whose target is another one, and the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.assignors import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    MemberSpec,
    PartitionAssignorError,
    TopicSpec,
    each_once,
)
from konvene.groups.assignors.contract import NOTHING
from konvene.groups.consumer import log
from konvene.groups.consumer.current_assignment import Partitions, Target, next_assignment
from konvene.groups.consumer.decision import Decision, offered
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT, AssignmentComputed, AssignmentToCompute
from konvene.shard.contract import NOTHING as NO_OUTCOME
from konvene.shard.contract import Context, Effect, Outcome
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

HEAVY = 20_000
"""Members and partitions together: from here on a target is computed elsewhere. Below, it takes few
milliseconds with the built-in assignors."""

Members = dict[str, tuple[Member, Partitions]]


def retarget(decision: Decision, old: Member, new: Member, *, replaced: str | None = None) -> Partitions:
    """What the member is meant to have, by a new target if it is time for one.

    `replaced`: the member whose place it takes. Raises `GroupError` where the assignor has no answer."""
    group, context = decision.group, decision.context
    last: Partitions = group.targets.get(replaced if replaced is not None else new.member_id, NOTHING)
    if decision.assignment_epoch >= decision.epoch or not _is_time(decision) or decision.soft.computing:
        return last
    assignor = preferred(group, context, old, new)
    members: Members = {
        member_id: (member, group.targets.get(member_id, NOTHING))
        for member_id, member in group.members.items()
        if member_id != replaced
    }
    members[new.member_id] = (new, last)
    spec = _spec(group, members, context)
    if decision.config["consumer.assignor.offload.enable"] and _weight(spec) >= HEAVY:
        wanted = AssignmentToCompute(group.group_id, decision.epoch, assignor, spec)
        decision.effects.append(Effect(COMPUTE_ASSIGNMENT, wanted))
        decision.remember(computing=decision.epoch)
        return last
    try:
        given = assignor.assign(spec)
    except PartitionAssignorError as failed:
        why = f"Failed to compute a new target assignment for epoch {decision.epoch}: {failed.message}"
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR, why) from failed
    for member_id, (_, before) in members.items():
        known = member_id in group.targets or (replaced is not None and member_id == new.member_id)
        _write(decision, member_id, before if known else None, given)
    _at(decision)
    mine: Partitions = given.get(new.member_id, NOTHING)
    return mine


def assignment_computed(group: ConsumerGroup, answer: AssignmentComputed, context: Context) -> Outcome:
    """A target that was computed elsewhere is there."""
    if group.soft.computing != answer.epoch:
        return NO_OUTCOME
    decision = Decision(group, context)
    decision.remember(computing=0)
    given = answer.given
    if isinstance(given, PartitionAssignorError) or not given.keys() <= group.members.keys():
        return decision.outcome()  # Or somebody has another id by now: no epoch moves for that.
    if group.epoch == answer.epoch > group.assignment_epoch:
        for member_id in group.members:
            _write(decision, member_id, group.targets.get(member_id), given)
        _at(decision)
    return decision.outcome()


def preferred(
    group: ConsumerGroup, context: Context, old: Member | None = None, new: Member | None = None
) -> Assignor:
    """The assignor that most members prefer, if the broker offers it; else its first."""
    on_offer = offered(context)
    return on_offer.get(group.preferred_assignor(old, new) or "") or next(iter(on_offer.values()))


def _is_time(decision: Decision) -> bool:
    last_ms, interval_ms = (
        decision.group.assignment_timestamp_ms,
        decision.config["consumer.assignment.interval.ms"],
    )
    # A clock that was set back must not hold the group up: then it is time as well. In Kafka it is not.
    waits = last_ms <= decision.context.now_ms < last_ms + interval_ms
    return last_ms == 0 or not waits


def _weight(spec: GroupSpec) -> int:
    return len(spec.members) + sum(topic.partitions for topic in spec.topics.values())


def _spec(group: ConsumerGroup, members: Members, context: Context) -> GroupSpec:
    topics = context.topics
    subscriptions: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, (member, target) in members.items():
        reads = member.topics, member.regex
        subscribed = subscriptions.get(reads)
        if subscribed is None:
            subscribed = subscriptions[reads] = ids_of(group.topics_of(member), topics)
        assigned = _existing(target, topics)
        specs[member_id] = MemberSpec(subscribed, assigned, member.instance_id, member.rack_id)
    known = {
        topic: TopicSpec(found.partitions, found.rack_sets)
        for subscribed in dict.fromkeys(subscriptions.values())
        for topic in sorted(subscribed)
        for found in (topics.by_id[topic],)
    }
    if group.assignment_timestamp_ms == 0:
        # Nobody knows who assigned last: classic members may have agreed on anything.
        specs = each_once(specs, _all_topics(topics))
    return GroupSpec.of(specs, known)


def _all_topics(topics: Topics) -> dict[Uuid, TopicSpec]:
    return {topic_id: TopicSpec(topic.partitions) for topic_id, topic in topics.by_id.items()}


def _existing(target: Partitions, topics: Topics) -> MemberAssignment:
    """What there still is of it: the very same where all is."""
    if all(topic in topics.by_id for topic in target):
        return target  # type: ignore[return-value]
    return {topic: tuple(some) for topic, some in target.items() if topic in topics.by_id}


def ids_of(names: Iterable[str], topics: Topics) -> frozenset[Uuid]:
    """The ids of these topics, of those that exist."""
    return frozenset(topics.by_name[name].id for name in names if name in topics.by_name)


def _write(decision: Decision, member_id: str, before: Partitions | None, given: GroupAssignment) -> None:
    """The record of a member's target, if it is another one."""
    mine = given.get(member_id, NOTHING)
    if before is None or (mine is not before and mine != before):
        decision.record(log.target_record(decision.group.group_id, member_id, mine))


def _at(decision: Decision) -> None:
    """The target is that of the group's epoch."""
    decision.assignment_epoch = decision.epoch
    decision.record(log.assignment_record(decision.group.group_id, decision.epoch, decision.context.now_ms))


# --- towards it ------------------------------------------------------------------------------------


class Reads:
    """The topics that a member reads and that exist, by id."""

    __slots__ = ("_names", "_topics")

    def __init__(self, names: frozenset[str], topics: Topics) -> None:
        self._names = names
        self._topics = topics

    def __contains__(self, topic_id: object) -> bool:
        topic = self._topics.by_id.get(topic_id)  # type: ignore[call-overload]
        return topic is not None and topic.name in self._names


def maybe_reconcile(
    decision: Decision,
    member: Member,
    target: Partitions,
    owned: Partitions | None,
    *,
    subscription_changed: bool,
) -> Member:
    """The member's next step towards its target, if there is one."""
    epoch = decision.assignment_epoch
    if not subscription_changed and member.is_reconciled_to(epoch):
        return member
    group = decision.group
    reads = Reads(group.topics_of(member), decision.context.topics)
    towards = Target(epoch, target, reads, group.owner_epoch)
    current = next_assignment(member.current, towards, owned, subscription_changed=subscription_changed)
    if current == member.current:
        return member
    return decision.settle(member, current)
