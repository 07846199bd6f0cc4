"""Invariants of the decisions of consumer groups: errors, responses, revocation, and members' epochs.

The rules are implemented here a second time, from the protocol and not from the code that is checked.
"""

from __future__ import annotations

import re
from typing import Any

from konvene.client.consumer.protocol import read_subscription
from konvene.codec.errors import CodecError
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.messages.join_group import JoinGroupResponse
from konvene.shard.image import Topic
from konvene.sim.invariants.consumer.state import UNREVOKED, Unit, owned_units, target_units, touched, units
from konvene.sim.invariants.modern import (
    LEFT_TEMPORARILY,
    CacheableResponses,
    ExpectedHeartbeatErrors,
    FencedCommits,
    FixedRevocationTimeouts,
    ServedClassicMembers,
)
from konvene.sim.world.event import Event, Invariant

KINDS = ("consumer", "consumer-static", "migration")

HEARTBEAT = "ConsumerGroupHeartbeat"


# --- M10, M11, M13: errors -------------------------------------------------------------------------


class HeartbeatErrorsAreExpected(ExpectedHeartbeatErrors[ConsumerGroup]):
    """M10, M13: a heartbeat is answered with the error that its group, epoch, member and instance id require,
    or with none. M11: a member that joins owns nothing, and reports that."""

    group_type = ConsumerGroup
    api = HEARTBEAT

    def expected_error(self, event: Event) -> Errors | None:
        return expected_heartbeat_error(event)


def expected_heartbeat_error(event: Event) -> Errors | None:
    """Return the error that a heartbeat must be answered with; None if another invariant decides that."""
    request, config = event.request, event.context.config
    error = _validate(event)
    if error is not None:
        return error
    group = event.before.groups.get(request.group_id)
    if isinstance(group, ClassicGroup) and group.state is not State.EMPTY and request.member_epoch == 0:
        return None  # It may become a consumer group: `sim.invariants.consumer.migration`.
    if not isinstance(group, ConsumerGroup):
        if request.member_epoch != 0:
            return Errors.GROUP_ID_NOT_FOUND
        group = ConsumerGroup(request.group_id)
    member, static_member = group.members.get(request.member_id), group.static_member(request.instance_id)
    full = len(group.members) >= config["group.consumer.max.size"]
    if request.member_epoch >= 0 and full and member is None and static_member is None:
        return Errors.GROUP_MAX_SIZE_REACHED
    error = _check_identity(request, member, static_member)
    if error is None and member is not None and request.member_epoch > 0:
        error = _check_epoch(request, member)
    if error is None and request.member_epoch >= 0 and request.subscribed_topic_regex:
        error = _check_regex(request.subscribed_topic_regex, group)
    return error or Errors.NONE


def _validate(event: Event) -> Errors | None:
    request = event.request
    joins = request.member_epoch == 0
    named = request.member_id.strip() or (event.version == 0 and request.member_epoch in (0, -2))
    blank = any(text is not None and not text.strip() for text in (request.instance_id, request.rack_id))
    if not named or blank or request.member_epoch < LEFT_TEMPORARILY:
        return Errors.INVALID_REQUEST
    if request.member_epoch == LEFT_TEMPORARILY and request.instance_id is None:
        return Errors.INVALID_REQUEST
    if joins:
        owns_nothing = request.topic_partitions is not None and not request.topic_partitions
        if request.rebalance_timeout_ms == -1 or not owns_nothing or not _has_subscription(request):
            return Errors.INVALID_REQUEST
    if request.server_assignor is not None and request.server_assignor not in event.context.assignors:
        return Errors.UNSUPPORTED_ASSIGNOR
    return None


def _has_subscription(request: ConsumerGroupHeartbeatRequest) -> bool:
    return request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None


def _check_identity(
    request: ConsumerGroupHeartbeatRequest, member: Member | None, static_member: Member | None
) -> Errors | None:
    joins = request.member_epoch == 0
    if request.instance_id is None:
        return None if member is not None or joins else Errors.UNKNOWN_MEMBER_ID
    if static_member is None:
        return None if joins else Errors.UNKNOWN_MEMBER_ID
    if static_member.member_id == request.member_id:
        return None
    if not joins:
        return Errors.FENCED_INSTANCE_ID
    released = static_member.current.epoch == LEFT_TEMPORARILY or static_member.classic is not None
    return None if released else Errors.UNRELEASED_INSTANCE_ID


def _check_epoch(request: ConsumerGroupHeartbeatRequest, member: Member) -> Errors | None:
    current = member.current
    if request.member_epoch == current.epoch:
        return None
    is_previous = request.member_epoch == current.previous_epoch and request.member_epoch < current.epoch
    reports = request.topic_partitions is not None
    if is_previous and reports and reported_units(request) <= units(current.assigned):
        return None
    return Errors.FENCED_MEMBER_EPOCH


def _check_regex(regex: str, group: ConsumerGroup) -> Errors | None:
    if regex in group.regex_users:
        return None
    try:
        re.compile(regex)
    except re.error:
        return Errors.INVALID_REGULAR_EXPRESSION
    return None


def reported_units(request: ConsumerGroupHeartbeatRequest) -> set[Unit]:
    """Return the partitions that a heartbeat reports as owned."""
    return {(t.topic_id, p) for t in request.topic_partitions or () for p in t.partitions}


# --- M10: responses --------------------------------------------------------------------------------


class HeartbeatResponsesAreCurrent(Invariant):
    """M10: a response has the member's epoch. It has the assignment if the member joins, if it sends a full
    heartbeat, or if the assignment changed."""

    def after(self, event: Event) -> None:
        request = event.request
        if not event.is_request(HEARTBEAT) or event.error is not Errors.NONE or request.member_epoch < 0:
            return
        response = event.answer
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        group = group_after(event)
        member = group.members.get(response.member_id or "")
        assert member is not None, f"{response.member_id} gets a response, but is no member"
        member_id, epoch = member.member_id, member.current.epoch
        assert response.member_epoch == epoch, f"{member_id} gets {response.member_epoch}, is at {epoch}"
        before = event.before.groups.get(request.group_id)
        old = before.members.get(member_id) if isinstance(before, ConsumerGroup) else None
        previous = units(old.current.assigned) if old is not None else set()
        assigned = units(member.current.assigned)
        if response.assignment is not None:
            returned = {(t.topic_id, p) for t in response.assignment.topic_partitions for p in t.partitions}
            assert returned == assigned, f"{member_id} gets {sorted(returned)}, but has {sorted(assigned)}"
        else:
            is_full = (
                request.rebalance_timeout_ms != -1
                and _has_subscription(request)
                and request.topic_partitions is not None
            )
            required = request.member_epoch == 0 or is_full or previous != assigned
            assert not required, f"{member_id} gets no assignment, but has {sorted(assigned)}"
        max_ms = event.context.group_configs.of(request.group_id)["consumer.heartbeat.interval.ms"]
        interval_ms = response.heartbeat_interval_ms
        assert 0 < interval_ms <= max_ms, f"the heartbeat interval is {interval_ms} ms, more than {max_ms}"


class CacheableHeartbeatsAreRepeatable(CacheableResponses[ConsumerGroup]):
    """Ours: deciding a cacheable heartbeat again changes nothing, sets the same timers and returns the same
    epoch."""

    group_type = ConsumerGroup

    def after(self, event: Event) -> None:
        if event.is_request(HEARTBEAT) and event.error is Errors.NONE:
            response: Any = event.answer
            repeated = self.repeated_response(event)
            if repeated is not None:
                epoch, epoch_again = response.member_epoch, repeated.member_epoch
                assert epoch == epoch_again, f"the response has epoch {epoch}, repeated {epoch_again}"


def group_after(event: Event) -> ConsumerGroup:
    """Return the consumer group that a request names, after the event."""
    group = event.after.groups.get(event.request.group_id)
    assert isinstance(group, ConsumerGroup), f"{event.request.group_id} is {group!r}"
    return group


# --- M3, M5, M6: reconciliation --------------------------------------------------------------------


class RevocationsAreConfirmed(Invariant):
    """M6: a member loses ownership of partitions only when it reports owned partitions without them, or when
    it leaves temporarily. A heartbeat without owned partitions confirms nothing."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if old is None or event.is_complete:
                continue
            for member_id, member in group.members.items():
                before = old.members.get(member_id)
                revoked = owned_units(before) - owned_units(member) if before is not None else set()
                if not revoked:
                    continue
                reported = self._reported_units(event, member_id, before)
                trigger = event.api or event.key
                assert reported is not None, f"{name}: {trigger} revoked {sorted(revoked)} of {member_id}"
                unconfirmed = reported & revoked
                assert not unconfirmed, f"{name}: {member_id} still reports the revoked {sorted(unconfirmed)}"

    def _reported_units(self, event: Event, member_id: str, before: Member | None) -> set[Unit] | None:
        """Return the partitions that the member reports as owned; None if it reports nothing. M13: a member
        that leaves temporarily revokes what it has to, and keeps the rest."""
        request = event.request
        if request is None or request.member_id != member_id:
            return None
        if event.api == HEARTBEAT:
            if request.member_epoch == LEFT_TEMPORARILY and before is not None:
                return units(before.current.assigned)
            return None if request.topic_partitions is None else reported_units(request)
        if event.api == "JoinGroup":
            return units_reported_by_join(event)
        return None


def units_reported_by_join(event: Event) -> set[Unit]:
    """Return the partitions that a JoinGroup of a member of the classic protocol reports as owned."""
    topics = event.runtime.topics.by_name
    try:
        subscription = read_subscription(event.request.protocols[0].metadata, None)
    except CodecError:
        return set()
    return {(topics[tp.topic].id, tp.partition) for tp in subscription.owned if tp.topic in topics}


class MembersAdvanceAfterRevocation(Invariant):
    """M3: a member advances to an epoch when it owns nothing outside its target of that epoch. M5: a member
    that has to revoke partitions gets no new ones."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete:
                continue
            for member_id, member in group.members.items():
                before = old.members.get(member_id) if old is not None else None
                if before is member:
                    continue
                if before is not None and member.current.epoch > before.current.epoch >= 0:
                    self._check_advance(name, group, member)
                if before is not None and old is not None:
                    self._check_assigned(name, old, group, before, member)

    def _check_advance(self, name: str, group: ConsumerGroup, member: Member) -> None:
        member_id, epoch = member.member_id, member.current.epoch
        unrevoked = owned_units(member) - target_units(group, member_id)
        assert not unrevoked, f"{name}: {member_id} advanced to {epoch} with {sorted(unrevoked)}"
        assert epoch == group.assignment_epoch, f"{name}: {member_id} advanced to {epoch}, not the target's"

    def _check_assigned(
        self, name: str, old: ConsumerGroup, group: ConsumerGroup, before: Member, member: Member
    ) -> None:
        member_id, target = member.member_id, target_units(group, member.member_id)
        added = units(member.current.assigned) - owned_units(before)
        assert added <= target, f"{name}: {member_id} gets {sorted(added - target)}, outside its target"
        was_owned = {u for m in old.members.values() if m.member_id != member_id for u in owned_units(m)}
        is_owned = {u for m in group.members.values() if m.member_id != member_id for u in owned_units(m)}
        unreleased = added & was_owned & is_owned
        assert not unreleased, f"{name}: {member_id} gets {sorted(unreleased)}, which other members own"
        if member.current.state is UNREVOKED:
            assert not added, f"{name}: {member_id} gets {sorted(added)} before its revocation"


class RevocationTimeoutsAreFixed(FixedRevocationTimeouts[ConsumerGroup]):
    """M5: a member has its rebalance timeout to confirm a revocation; later targets and heartbeats do not
    extend it."""

    group_type = ConsumerGroup


# --- O1: commits -----------------------------------------------------------------------------------


class CommitErrorsAreExpected(FencedCommits[ConsumerGroup]):
    """O1: a commit is accepted from a member at its epoch; at an older one for partitions that it has owned
    at least since that epoch; from any client in an empty group. Any other epoch is answered with
    STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION for a member of the classic protocol."""

    group_type = ConsumerGroup

    def owned_since(self, group: ConsumerGroup, member: Member, topic: Topic, partition: int) -> int | None:
        current = member.current
        for epochs in (current.assigned, current.pending_revocation):
            since = epochs.get(topic.id, {}).get(partition)
            if since is not None:
                return since
        return None


# --- MG2: members of the classic protocol ----------------------------------------------------------


class ClassicMembersRejoinOnChanges(ServedClassicMembers[ConsumerGroup]):
    """MG2: the generation of a classic member is its epoch, and it has to rejoin exactly when its assignment
    changes: for a newer target, a revocation, or released partitions. If all members of the group are
    classic, it has to rejoin as soon as the group epoch increases."""

    group_type = ConsumerGroup

    def rejoin_causes(self, event: Event, group: ConsumerGroup, member: Member) -> list[str]:
        current = event.after.groups[group.group_id]  # A heartbeat may notice changed topics.
        assert isinstance(current, ConsumerGroup)
        return ["its assignment changes"] if self._changes(current, member) else []

    def _changes(self, group: ConsumerGroup, member: Member) -> bool:
        current = member.current
        all_classic = all(m.classic is not None for m in group.members.values())
        latest_epoch = group.epoch if all_classic else group.assignment_epoch
        if current.epoch < latest_epoch or current.state is UNREVOKED:
            return True
        missing = target_units(group, member.member_id) - units(current.assigned)
        owned = {unit for m in group.members.values() for unit in owned_units(m)}
        return current.state.name == "UNRELEASED_PARTITIONS" and not missing & owned

    def check_join(self, event: Event) -> None:
        response = event.answer
        group = event.after.groups.get(event.request.group_id)
        if event.error is not Errors.NONE or not isinstance(group, ConsumerGroup):
            return
        assert isinstance(response, JoinGroupResponse)
        member_id, generation = response.member_id, response.generation_id
        member = group.members.get(member_id)
        assert member is not None, f"{member_id} joined, but is no member"
        epoch = member.current.epoch
        assert generation == epoch, f"{member_id} gets generation {generation}, but is at {epoch}"
        assert response.leader != member_id, f"{member_id} is the leader, though the coordinator assigns"
