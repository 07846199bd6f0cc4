"""Target assignments of a share group: when a new one is computed, and from which input.

The rules are those of consumer groups (`consumer.targets`): a target is computed at the next heartbeat after
an epoch bump, not sooner than `share.assignment.interval.ms` after the last one, and outside the core if the
group is large. Only share partitions that the share coordinator has initialized are assigned.

The first target of a group is empty, since its share partitions are not initialized yet. In Kafka the next
one waits for the interval, and so do the first records. With `konvene.heartbeat.policy=responsive` the target
that follows an initialization is computed at once.
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
from konvene.groups.consumer.targets import OFFLOAD_WEIGHT, SubscribedTopics, ids_of
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT, AssignmentComputed, AssignmentToCompute
from konvene.groups.heartbeat_intervals import is_responsive
from konvene.groups.share.current_assignment import Partitions, next_assignment
from konvene.groups.share.decision import Decision
from konvene.groups.share.group import Member, ShareGroup
from konvene.shard.contract import Context, Effect, Outcome
from konvene.shard.errors import GroupError

Members = dict[str, tuple[Member, Partitions]]


def retarget(decision: Decision, new: Member) -> Partitions:
    """Return the member's target, after computing new targets of all members if necessary.

    That is so if the group's epoch is ahead of the assignment epoch and the assignment interval has passed,
    or share partitions were initialized (`_is_due`).
    The targets of a large group are computed outside the core; until then the last one is returned. Raises
    `GroupError` if the assignor fails.
    """
    group = decision.group
    last = group.targets.get(new.member_id, NOTHING)
    if decision.assignment_epoch >= decision.epoch or not _is_due(decision) or decision.soft.computing:
        return last
    members: Members = {
        member_id: (member, group.targets.get(member_id, NOTHING))
        for member_id, member in group.members.items()
    }
    members[new.member_id] = (new, last)
    spec = _spec(decision, members)
    if decision.config["share.assignor.offload.enable"] and _weight(spec) >= OFFLOAD_WEIGHT:
        request = AssignmentToCompute(group.group_id, decision.epoch, decision.assignor, spec)
        decision.effects.append(Effect(COMPUTE_ASSIGNMENT, request))
        decision.remember(computing=decision.epoch, has_new_partitions=False)
        return last
    try:
        assignment = decision.assignor.assign(spec)
    except PartitionAssignorError as failed:
        message = f"Failed to compute a new target assignment for epoch {decision.epoch}: {failed.message}"
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR, message) from failed
    if decision.soft.has_new_partitions:
        decision.remember(has_new_partitions=False)
    _write(decision, members, assignment)
    return assignment.get(new.member_id, NOTHING)


def assignment_computed(group: ShareGroup, event: AssignmentComputed, context: Context) -> Outcome:
    """Record the targets that were computed outside the core, unless the group's epoch was bumped since."""
    decision, assignment = Decision(group, context), event.result
    if decision.soft.computing != event.epoch:
        return decision.outcome()
    decision.remember(computing=0)
    if isinstance(assignment, PartitionAssignorError) or not assignment.keys() <= group.members.keys():
        return decision.outcome()
    if group.epoch == event.epoch > group.assignment_epoch:
        members = {m: (member, group.targets.get(m, NOTHING)) for m, member in group.members.items()}
        _write(decision, members, assignment)
    return decision.outcome()


def _is_due(decision: Decision) -> bool:
    if decision.soft.has_new_partitions and is_responsive(decision.context.config):
        return True
    last_ms, interval_ms = (
        decision.group.assignment_timestamp_ms,
        decision.config["share.assignment.interval.ms"],
    )
    # If the clock was set back, the target is due at once. Kafka waits.
    is_early = last_ms <= decision.context.now_ms < last_ms + interval_ms
    return last_ms == 0 or not is_early


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
        initialized = state.initialized[topic].partitions if topic in state.initialized else ()
        known[topic] = TopicSpec(count, racks, tuple(p for p in initialized if p < count))
    return GroupSpec.of(specs, known)


def _write(decision: Decision, members: Members, assignment: GroupAssignment) -> None:
    """Record the targets that changed, and the epoch of the assignment."""
    targets = decision.group.targets
    for member_id, (_, before) in members.items():
        old = before if member_id in targets else None
        decision.record_target(member_id, old, assignment.get(member_id, NOTHING))
    decision.complete_assignment(decision.context.now_ms)


def maybe_reconcile(
    decision: Decision, member: Member, target: Partitions, *, subscription_changed: bool
) -> Member:
    """Return the member after its next step towards the target; the same object if there is none."""
    epoch = decision.assignment_epoch
    if not subscription_changed and member.is_reconciled_to(epoch):
        return member
    subscribed = SubscribedTopics(member.topics, decision.context.topics)
    current = next_assignment(
        member.current, epoch, target, subscribed, subscription_changed=subscription_changed
    )
    return member if current == member.current else decision.settle(member, current)
