"""What members of a share group are meant to have: when a new target is computed, and of what.

The rules are those of consumer groups (`consumer.targets`): at the next heartbeat after the epoch has moved,
not sooner than `share.assignment.interval.ms` after the last one, elsewhere where the group is large. What
differs: only share partitions that the share coordinator has begun with are assigned.
"""

from __future__ import annotations

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.assignors.contract import (
    NOTHING,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    TopicSpec,
)
from konvene.groups.consumer.targets import HEAVY, SubscribedTopics, ids_of
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT, AssignmentComputed, AssignmentToCompute
from konvene.groups.share import log
from konvene.groups.share.current_assignment import Partitions, next_assignment
from konvene.groups.share.decision import Decision
from konvene.groups.share.group import Member, ShareGroup
from konvene.shard.contract import Context, Effect, Outcome
from konvene.shard.errors import GroupError

Members = dict[str, tuple[Member, Partitions]]


def retarget(decision: Decision, new: Member) -> Partitions:
    """What the member is meant to have, by a new target if it is time for one.

    Raises `GroupError` where the assignor has no answer."""
    group = decision.group
    last = group.targets.get(new.member_id, NOTHING)
    if decision.assignment_epoch >= decision.epoch or not _is_time(decision) or decision.soft.computing:
        return last
    members: Members = {
        member_id: (member, group.targets.get(member_id, NOTHING))
        for member_id, member in group.members.items()
    }
    members[new.member_id] = (new, last)
    spec = _spec(decision, members)
    if decision.config["share.assignor.offload.enable"] and _weight(spec) >= HEAVY:
        wanted = AssignmentToCompute(group.group_id, decision.epoch, decision.assignor, spec)
        decision.effects.append(Effect(COMPUTE_ASSIGNMENT, wanted))
        decision.remember(computing=decision.epoch)
        return last
    try:
        given = decision.assignor.assign(spec)
    except PartitionAssignorError as failed:
        why = f"Failed to compute a new target assignment for epoch {decision.epoch}: {failed.message}"
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR, why) from failed
    _write(decision, members, given)
    return given.get(new.member_id, NOTHING)


def assignment_computed(group: ShareGroup, answer: AssignmentComputed, context: Context) -> Outcome:
    """A target that was computed elsewhere is there."""
    decision, given = Decision(group, context), answer.given
    if decision.soft.computing != answer.epoch:
        return decision.outcome()
    decision.remember(computing=0)
    if isinstance(given, PartitionAssignorError) or not given.keys() <= group.members.keys():
        return decision.outcome()
    if group.epoch == answer.epoch > group.assignment_epoch:
        members = {m: (member, group.targets.get(m, NOTHING)) for m, member in group.members.items()}
        _write(decision, members, given)
    return decision.outcome()


def _is_time(decision: Decision) -> bool:
    last_ms, interval_ms = (
        decision.group.assignment_timestamp_ms,
        decision.config["share.assignment.interval.ms"],
    )
    # A clock that was set back must not hold the group up: then it is time as well. In Kafka it is not.
    waits = last_ms <= decision.context.now_ms < last_ms + interval_ms
    return last_ms == 0 or not waits


def _weight(spec: GroupSpec) -> int:
    return len(spec.members) + sum(topic.partitions for topic in spec.topics.values())


def _spec(decision: Decision, members: Members) -> GroupSpec:
    topics, state = decision.context.topics, decision.state_topics
    subscriptions: dict[frozenset[str], frozenset[Uuid]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, (member, target) in members.items():
        subscribed = subscriptions.get(member.topics)
        if subscribed is None:
            subscribed = subscriptions[member.topics] = ids_of(member.topics, topics)
        assigned = {t: tuple(p) for t, p in target.items() if t in topics.by_id}
        specs[member_id] = MemberSpec(subscribed, assigned, None, member.rack_id)
    known: dict[Uuid, TopicSpec] = {}
    for topic in sorted({t for subscribed in subscriptions.values() for t in subscribed}):
        count, racks = topics.by_id[topic].partitions, topics.by_id[topic].rack_sets
        begun = state.initialized[topic].partitions if topic in state.initialized else ()
        known[topic] = TopicSpec(count, racks, tuple(p for p in begun if p < count))
    return GroupSpec.of(specs, known)


def _write(decision: Decision, members: Members, given: GroupAssignment) -> None:
    """A record for each member whose target is another one, and the epoch."""
    group_id, targets = decision.group.group_id, decision.group.targets
    for member_id, (_, before) in members.items():
        mine = given.get(member_id, NOTHING)
        if member_id not in targets or mine != before:
            decision.record(log.target_record(group_id, member_id, mine))
    decision.assignment_epoch = decision.epoch
    decision.record(log.assignment_record(group_id, decision.epoch, decision.context.now_ms))


def maybe_reconcile(
    decision: Decision, member: Member, target: Partitions, *, subscription_changed: bool
) -> Member:
    """The member has its target, if it is another one than it has."""
    epoch = decision.assignment_epoch
    if not subscription_changed and member.is_reconciled_to(epoch):
        return member
    reads = SubscribedTopics(member.topics, decision.context.topics)
    current = next_assignment(member.current, epoch, target, reads, subscription_changed=subscription_changed)
    return member if current == member.current else decision.settle(member, current)
