"""Target assignments of a consumer group: when a new one is computed, from which input.

A target is computed at the next heartbeat of any member when the group's epoch is ahead of the assignment
epoch, but not sooner than `consumer.assignment.interval.ms` after the last one (KIP-1263), so one target
covers several changes. A large group's target is computed outside the core (`work`), if
`consumer.assignor.offload.enable` is set; until then members keep the last target, and a result for an
outdated epoch is dropped.

The records are the same either way: one for each member whose target changed, and the assignment epoch.
"""

from __future__ import annotations

from collections.abc import Iterable

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.assignors import (
    Assignor,
    GroupSpec,
    MemberAssignment,
    MemberSpec,
    PartitionAssignorError,
    TopicSpec,
    each_once,
)
from konvene.groups.assignors.contract import NOTHING
from konvene.groups.consumer.current_assignment import Partitions, Target, next_assignment
from konvene.groups.consumer.decision import Decision, offered
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT, AssignmentComputed, AssignmentToCompute
from konvene.shard.contract import NOTHING as NO_OUTCOME
from konvene.shard.contract import Context, Effect, Outcome
from konvene.shard.errors import GroupError
from konvene.shard.image import Topics

OFFLOAD_WEIGHT = 20_000
"""The number of members and partitions from which on a target is computed outside the core. Below, it takes a
few milliseconds with the built-in assignors."""

Members = dict[str, tuple[Member, Partitions]]
"""Each member with its last target, by member id."""


def retarget(decision: Decision, old: Member, new: Member, *, replaced: str | None = None) -> Partitions:
    """Return the member's target, after computing new targets of all members if necessary.

    That is so if the group's epoch is ahead of the assignment epoch and the assignment interval has passed.
    The targets of a large group are computed outside the core; until then the last one is returned. `new` is
    the member after the heartbeat, `old` before; `replaced`: the id of the static member that it replaces.
    Raises `GroupError` if the assignor fails."""
    group, context = decision.group, decision.context
    last: Partitions = group.targets.get(replaced if replaced is not None else new.member_id, NOTHING)
    if decision.assignment_epoch >= decision.epoch or not _is_due(decision) or decision.soft.computing:
        return last
    assignor = preferred(group, context, old, new)
    members: Members = {
        member_id: (member, group.targets.get(member_id, NOTHING))
        for member_id, member in group.members.items()
        if member_id != replaced
    }
    members[new.member_id] = (new, last)
    spec = _spec(group, members, context)
    if decision.config["consumer.assignor.offload.enable"] and _weight(spec) >= OFFLOAD_WEIGHT:
        request = AssignmentToCompute(group.group_id, decision.epoch, assignor, spec)
        decision.effects.append(Effect(COMPUTE_ASSIGNMENT, request))
        decision.remember(computing=decision.epoch)
        return last
    try:
        assignment = assignor.assign(spec)
    except PartitionAssignorError as failed:
        message = f"Failed to compute a new target assignment for epoch {decision.epoch}: {failed.message}"
        raise GroupError(Errors.UNKNOWN_SERVER_ERROR, message) from failed
    for member_id, (_, before) in members.items():
        known = member_id in group.targets or (replaced is not None and member_id == new.member_id)
        decision.record_target(member_id, before if known else None, assignment.get(member_id, NOTHING))
    decision.complete_assignment(context.now_ms)
    target: Partitions = assignment.get(new.member_id, NOTHING)
    return target


def assignment_computed(group: ConsumerGroup, event: AssignmentComputed, context: Context) -> Outcome:
    """Record the targets that were computed outside the core, unless they are outdated."""
    if group.soft.computing != event.epoch:
        return NO_OUTCOME
    decision = Decision(group, context)
    decision.remember(computing=0)
    assignment = event.result
    if isinstance(assignment, PartitionAssignorError) or not assignment.keys() <= group.members.keys():
        return decision.outcome()  # A static member may have another id by now, without an epoch bump.
    if group.epoch == event.epoch > group.assignment_epoch:
        for member_id in group.members:
            decision.record_target(
                member_id, group.targets.get(member_id), assignment.get(member_id, NOTHING)
            )
        decision.complete_assignment(context.now_ms)
    return decision.outcome()


def preferred(
    group: ConsumerGroup, context: Context, old: Member | None = None, new: Member | None = None
) -> Assignor:
    """Return the assignor that most members prefer, or the broker's default if that one is not available.

    `new` is counted in place of `old`, where given."""
    available = offered(context)
    return available.get(group.preferred_assignor(old, new) or "") or next(iter(available.values()))


def _is_due(decision: Decision) -> bool:
    last_ms, interval_ms = (
        decision.group.assignment_timestamp_ms,
        decision.config["consumer.assignment.interval.ms"],
    )
    # If the clock was set back, the target is due at once. Kafka waits.
    is_early = last_ms <= decision.context.now_ms < last_ms + interval_ms
    return last_ms == 0 or not is_early


def _weight(spec: GroupSpec) -> int:
    return len(spec.members) + sum(topic.partitions for topic in spec.topics.values())


def _spec(group: ConsumerGroup, members: Members, context: Context) -> GroupSpec:
    topics = context.topics
    subscriptions: dict[tuple[frozenset[str], str], frozenset[Uuid]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, (member, target) in members.items():
        subscription = member.topics, member.regex
        subscribed = subscriptions.get(subscription)
        if subscribed is None:
            subscribed = subscriptions[subscription] = ids_of(group.topics_of(member), topics)
        assigned = _existing(target, topics)
        specs[member_id] = MemberSpec(subscribed, assigned, member.instance_id, member.rack_id)
    known = {
        topic: TopicSpec(found.partitions, found.rack_sets)
        for subscribed in dict.fromkeys(subscriptions.values())
        for topic in sorted(subscribed)
        for found in (topics.by_id[topic],)
    }
    if group.assignment_timestamp_ms == 0:
        # The last assignment was a classic leader's, which may have assigned a partition twice.
        specs = each_once(specs, _all_topics(topics))
    return GroupSpec.of(specs, known)


def _all_topics(topics: Topics) -> dict[Uuid, TopicSpec]:
    return {topic_id: TopicSpec(topic.partitions) for topic_id, topic in topics.by_id.items()}


def _existing(target: Partitions, topics: Topics) -> MemberAssignment:
    """Return the target without deleted topics; the same object if it has none."""
    if all(topic in topics.by_id for topic in target):
        return target  # type: ignore[return-value]
    return {topic: tuple(partitions) for topic, partitions in target.items() if topic in topics.by_id}


def ids_of(names: Iterable[str], topics: Topics) -> frozenset[Uuid]:
    """Return the ids of the topics with these names; names of no existing topic are left out."""
    return frozenset(topics.by_name[name].id for name in names if name in topics.by_name)


# --- reconciliation ------------------------------------------------------------------------------------


class SubscribedTopics:
    """A container of the ids of the existing topics that a member subscribes to, for `topic_id in ...`."""

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
    """Return the member after its next step towards the target; the same object if there is none.

    `owned`: the partitions that its request lists as owned; None if it has no such list."""
    epoch = decision.assignment_epoch
    if not subscription_changed and member.is_reconciled_to(epoch):
        return member
    group = decision.group
    subscribed = SubscribedTopics(group.topics_of(member), decision.context.topics)
    reconciled_target = Target(epoch, target, subscribed, group.owner_epoch)
    current = next_assignment(
        member.current, reconciled_target, owned, subscription_changed=subscription_changed
    )
    if current == member.current:
        return member
    return decision.settle(member, current)
