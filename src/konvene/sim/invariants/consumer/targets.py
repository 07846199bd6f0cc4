"""Invariants of the target assignments of consumer groups, and of the causes that bump their epoch."""

from __future__ import annotations

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.work import COMPUTE_ASSIGNMENT, RESOLVE_REGEXES, RegexesResolved
from konvene.groups.modern.group import FIRST_EPOCH
from konvene.shard.image import Topics
from konvene.sim.invariants.consumer.state import touched
from konvene.sim.invariants.subscriptions import expected_metadata_hash
from konvene.sim.world.event import Event, Invariant
from konvene.sim.world.faults import SECRET

KINDS = ("consumer", "consumer-static", "migration")


class TargetsAreComplete(Invariant):
    """M8: a target assigns each partition of each subscribed topic to exactly one member that subscribes to
    it, and nothing else. If all members have the same subscription, their sizes differ by at most one."""

    def __init__(self) -> None:
        self.requested: dict[tuple[str, int], Topics] = {}
        """By group and epoch: the topics when the assignment was requested in the background."""

    def after(self, event: Event) -> None:
        for effect in event.outcome.effects if event.outcome is not None else ():
            if effect.verb == COMPUTE_ASSIGNMENT:
                self.requested[effect.subject.group_id, effect.subject.epoch] = event.runtime.topics
        for name, old, group in touched(event):
            if event.is_complete or (old is not None and old.assignment_epoch == group.assignment_epoch):
                continue
            if not group.assignment_timestamp_ms:
                continue  # The assignment of the leader, before the upgrade from a classic group.
            if group.assignment_epoch == group.epoch and group.members:
                topics = event.runtime.topics
                if event.kind == "completion":
                    if _has_unresolved_regexes(group):
                        continue  # The subscriptions changed since the request, without another epoch.
                    topics = self.requested[name, group.epoch]
                self._check_target(group, topics)

    def _check_target(self, group: ConsumerGroup, topics: Topics) -> None:
        subscriptions = {
            member_id: {
                topics.by_name[name].id for name in subscription_of(group, m) if name in topics.by_name
            }
            for member_id, m in group.members.items()
        }
        expected = {
            (topic, p)
            for ids in subscriptions.values()
            for topic in ids
            for p in range(topics.by_id[topic].partitions)
        }
        assigned: dict[tuple[Uuid, int], str] = {}
        for member_id, target in group.targets.items():
            for topic, partitions in target.items():
                for p in partitions:
                    assert topic in subscriptions.get(member_id, ()), (
                        f"{group!r}: the target of {member_id} has {topic}, which it does not subscribe to"
                    )
                    other = assigned.setdefault((topic, p), member_id)
                    assert other == member_id, f"{group!r}: {topic}-{p} is assigned to {other}, {member_id}"
        missing, unknown = sorted(expected - assigned.keys()), sorted(assigned.keys() - expected)
        assert not missing, f"{group!r}: {missing} are not assigned"
        assert not unknown, f"{group!r}: {unknown} are assigned, but do not exist"
        same = len({frozenset(ids) for ids in subscriptions.values()}) == 1
        if same and set(group.assignors) <= {"uniform"}:
            counts = [sum(map(len, group.targets.get(m, {}).values())) for m in group.members]
            assert max(counts) - min(counts) <= 1 or not group.assignors, (
                f"{group!r}: the sizes of the targets are {counts}"
            )


class EpochBumpsHaveACause(Invariant):
    """M12, L5: a decision bumps the epoch by at most one. A bump is required if a member that subscribes to
    topics joins or leaves, or if a member subscribes to other topics than before, by name or by regex; it is
    not required while a regex of the group is unresolved. It is permitted if other members join or leave, if
    a static member gets another id, or if regexes, preferred assignors or the metadata of topics change. For
    any other reason it is forbidden."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if not event.is_complete:
                self._check_epoch(event, name, old, group)

    def _check_epoch(self, event: Event, name: str, old: ConsumerGroup | None, group: ConsumerGroup) -> None:
        before = event.before.groups.get(name)
        first, was_classic = 1 if before is None or not before.members else 0, False
        if old is not None:
            first = old.epoch
        elif isinstance(before, ClassicGroup) and before.members:
            first, was_classic = max(before.generation, FIRST_EPOCH), True
        bumps = group.epoch - first
        assert bumps in (0, 1), f"{name} moved from {first} to {group.epoch} at once"
        if old is None:
            exempt = not self._subscriptions(group, group) or _has_unresolved_regexes(group)
            # A classic member that returns with the consumer protocol does not bump the epoch.
            assert bumps or exempt or was_classic, f"{name} was created at {group.epoch}"
            return
        same = self._subscriptions(old, group) == self._subscriptions(group, old)
        assert bumps or same or _has_unresolved_regexes(group), (
            f"{group!r}: members or topics changed, but not the epoch"
        )
        same = same and _requested_topics(old) == _requested_topics(group)
        same = same and old.assignors == group.assignors
        assert not (bumps and same and old.metadata_hash == group.metadata_hash), (
            f"{group!r}: the epoch moved without a change"
        )

    def _subscriptions(
        self, group: ConsumerGroup, other: ConsumerGroup
    ) -> dict[str, tuple[object, set[str]]]:
        """Return the subscription of each member of `group` that has one, by member id. A static member whose
        member id is not in `other` (the group at another time) is listed by its instance id."""
        return {
            m.member_id if m.member_id in other.members else m.instance_id or m.member_id: (
                m.topics,
                subscription_of(group, m),
            )
            for m in group.members.values()
            if subscription_of(group, m)
        }


def _requested_topics(group: ConsumerGroup) -> tuple[object, object]:
    """Return the topics and regexes of all members, and the matches of each regex."""
    members = {member_id: (m.topics, m.regex) for member_id, m in group.members.items()}
    matches = {expression: resolved.topics for expression, resolved in group.regexes.items()}
    return members, matches


class MetadataHashIsCurrent(Invariant):
    """M12: after a heartbeat, and whenever the epoch moves, the group's hash is that of the current topics of
    its subscriptions: a change takes effect with the next heartbeat of any member."""

    def after(self, event: Event) -> None:
        if event.is_request("ConsumerGroupHeartbeat") and event.error is Errors.NONE:
            group = event.after.groups.get(event.request.group_id)
            stays = event.request.member_epoch >= 0
            if isinstance(group, ConsumerGroup) and stays and not _has_unresolved_regexes(group):
                self._check_hash(event, group)
        for _, old, group in touched(event):
            if not event.is_complete and (old is None or old.epoch != group.epoch):
                self._check_hash(event, group)

    def _check_hash(self, event: Event, group: ConsumerGroup) -> None:
        names = {name for m in group.members.values() for name in subscription_of(group, m)}
        expected = expected_metadata_hash(names, event.runtime.topics)
        assert group.metadata_hash == expected, (
            f"{group!r}: the hash is {group.metadata_hash}, of {sorted(names)} it is {expected}"
        )


class RegexesMatchAuthorizedTopics(Invariant):
    """M15: a regex matches no topic that the client is not authorized to describe. An unused regex is not
    kept."""

    def after(self, event: Event) -> None:
        for _, _, group in touched(event):
            for expression, resolved in group.regexes.items():
                unauthorized = [name for name in resolved.topics if name.startswith(SECRET)]
                assert not unauthorized, f"{group!r}: {expression} matches {unauthorized}"
            unused = group.regexes.keys() - {m.regex for m in group.members.values()}
            assert not unused, f"{group!r}: {sorted(unused)} are kept, but unused"


class CompletedWorkIsNotPending(Invariant):
    """L1, M12: when regexes are resolved or an assignment is computed, the group does not wait for that
    result any more; later changes request a new one."""

    def after(self, event: Event) -> None:
        if event.kind != "completion" or event.outcome is None:
            return
        group = event.after.groups.get(event.news.group_id)
        if not isinstance(group, ConsumerGroup):
            return
        requested = {effect.verb for effect in event.outcome.effects}
        if isinstance(event.news, RegexesResolved):
            is_pending, verb = group.soft.resolving, RESOLVE_REGEXES
        else:
            is_pending, verb = group.soft.computing == event.news.epoch, COMPUTE_ASSIGNMENT
        assert not is_pending or verb in requested, f"{group!r} still waits for the completed {event.news}"


def _has_unresolved_regexes(group: ConsumerGroup) -> bool:
    return any(m.regex and m.regex not in group.regexes for m in group.members.values())


def subscription_of(group: ConsumerGroup, member: Member) -> set[str]:
    """Return the topics that a member subscribes to, by name and by its resolved regex."""
    resolved = group.regexes.get(member.regex)
    return set(member.topics) | (set(resolved.topics) if resolved is not None else set())
