"""Invariants of the steps of consumer groups: who is let in, who moves on, and what they are told.

The rules are said here once more, from the protocol and not from the code that keeps them.
"""

from __future__ import annotations

import re
from typing import Any

from konvene.client.consumer.protocol import read_subscription
from konvene.codec.errors import CodecError
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from konvene.messages.join_group import JoinGroupResponse
from konvene.shard.image import Topic
from konvene.sim.invariants.consumer.state import OWES, Unit, has, touched, units
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


# --- M10, M11, M13: who is let in ------------------------------------------------------------------


class HeartbeatErrorsAreExpected(ExpectedHeartbeatErrors):
    """M10, M13: a heartbeat is answered with the error that its group, epoch, member and instance id require,
    or with none. M11: a member that joins owns nothing, and reports that."""

    group_type = ConsumerGroup
    api = HEARTBEAT

    def expected_error(self, event: Event) -> Errors | None:
        return judged(event)


def judged(event: Event) -> Errors | None:
    """The error that a heartbeat deserves; None where that is not for us to tell."""
    said, config = event.request, event.context.config
    wrong = _malformed(event)
    if wrong is not None:
        return wrong
    found = event.before.groups.get(said.group_id)
    if isinstance(found, ClassicGroup) and found.state is not State.EMPTY and said.member_epoch == 0:
        return None  # It may become a consumer group: `sim.invariants.consumer.migration`.
    if not isinstance(found, ConsumerGroup):
        if said.member_epoch != 0:
            return Errors.GROUP_ID_NOT_FOUND
        found = ConsumerGroup(said.group_id)
    member, holder = found.members.get(said.member_id), found.static_member(said.instance_id)
    full = len(found.members) >= config["group.consumer.max.size"]
    if said.member_epoch >= 0 and full and member is None and holder is None:
        return Errors.GROUP_MAX_SIZE_REACHED
    wrong = _identity(said, member, holder)
    if wrong is None and member is not None and said.member_epoch > 0:
        wrong = _epoch(said, member)
    if wrong is None and said.member_epoch >= 0 and said.subscribed_topic_regex:
        wrong = _expression(said, found)
    return wrong or Errors.NONE


def _malformed(event: Event) -> Errors | None:
    said = event.request
    named = said.member_id.strip() or (event.version == 0 and said.member_epoch in (0, -2))
    blank = any(text is not None and not text.strip() for text in (said.instance_id, said.rack_id))
    if not named or blank or said.member_epoch < LEFT_TEMPORARILY:
        return Errors.INVALID_REQUEST
    if said.member_epoch == LEFT_TEMPORARILY and said.instance_id is None:
        return Errors.INVALID_REQUEST
    if said.member_epoch == 0:
        owns_nothing = said.topic_partitions is not None and not said.topic_partitions
        reads = said.subscribed_topic_names is not None or said.subscribed_topic_regex is not None
        if said.rebalance_timeout_ms == -1 or not owns_nothing or not reads:
            return Errors.INVALID_REQUEST
    if said.server_assignor is not None and said.server_assignor not in event.context.assignors:
        return Errors.UNSUPPORTED_ASSIGNOR
    return None


def _identity(said: Any, member: Member | None, holder: Member | None) -> Errors | None:
    if said.instance_id is None:
        return None if member is not None or said.member_epoch == 0 else Errors.UNKNOWN_MEMBER_ID
    if holder is None:
        return None if said.member_epoch == 0 else Errors.UNKNOWN_MEMBER_ID
    if holder.member_id == said.member_id:
        return None
    if said.member_epoch != 0:
        return Errors.FENCED_INSTANCE_ID
    free = holder.current.epoch == LEFT_TEMPORARILY or holder.classic is not None
    return None if free else Errors.UNRELEASED_INSTANCE_ID


def _epoch(said: Any, member: Member) -> Errors | None:
    current = member.current
    if said.member_epoch == current.epoch:
        return None
    behind = said.member_epoch == current.previous_epoch and said.member_epoch < current.epoch
    if behind and said.topic_partitions is not None and owned_by(said) <= units(current.assigned):
        return None
    return Errors.FENCED_MEMBER_EPOCH


def _expression(said: Any, group: ConsumerGroup) -> Errors | None:
    if said.subscribed_topic_regex in group.regex_users:
        return None
    try:
        re.compile(said.subscribed_topic_regex)
    except re.error:
        return Errors.INVALID_REGULAR_EXPRESSION
    return None


def owned_by(said: Any) -> set[Unit]:
    """What a heartbeat says that its member owns."""
    return {(t.topic_id, p) for t in said.topic_partitions or () for p in t.partitions}


# --- M10: what they are told -----------------------------------------------------------------------


class HeartbeatResponsesAreCurrent(Invariant):
    """M10: an answer has the member's epoch; and what is assigned to it where it joins, where it said
    everything, and where that changed."""

    def after(self, event: Event) -> None:
        answer: Any = event.answer
        if (
            not event.is_request(HEARTBEAT)
            or event.error is not Errors.NONE
            or event.request.member_epoch < 0
        ):
            return
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        said = event.request
        group = live(event)
        member = group.members.get(answer.member_id or "")
        assert member is not None, f"{answer.member_id} is answered and is no member"
        assert answer.member_epoch == member.current.epoch, (
            f"{member.member_id} is told {answer.member_epoch}, it is at {member.current.epoch}"
        )
        before = event.before.groups.get(said.group_id)
        old = before.members.get(member.member_id) if isinstance(before, ConsumerGroup) else None
        had = units(old.current.assigned) if old is not None else set()
        holds = units(member.current.assigned)
        has_all_tags = (
            said.rebalance_timeout_ms != -1
            and (said.subscribed_topic_names is not None or said.subscribed_topic_regex is not None)
            and said.topic_partitions is not None
        )
        if answer.assignment is not None:
            told = {(t.topic_id, p) for t in answer.assignment.topic_partitions for p in t.partitions}
            assert told == holds, f"{member.member_id} is told {sorted(told)}, it has {sorted(holds)}"
        else:
            must = said.member_epoch == 0 or has_all_tags or had != holds
            assert not must, f"{member.member_id} is told nothing, and has {sorted(holds)}"
        told_ms = event.context.group_configs.of(said.group_id)["consumer.heartbeat.interval.ms"]
        assert 0 < answer.heartbeat_interval_ms <= told_ms, f"told to wait {answer.heartbeat_interval_ms} ms"


class CacheableHeartbeatsAreRepeatable(CacheableResponses):
    """Ours: where a heartbeat is called cacheable, deciding it again changes nothing, sets the same timers
    and returns the same epoch."""

    group_type = ConsumerGroup

    def after(self, event: Event) -> None:
        if event.is_request(HEARTBEAT) and event.error is Errors.NONE:
            answer: Any = event.answer
            repeated = self.repeated_response(event)
            if repeated is not None:
                same = answer.member_epoch == repeated.member_epoch
                assert same, f"answered {answer.member_epoch}, again {repeated.member_epoch}"


def live(event: Event) -> ConsumerGroup:
    """The group that was asked, as it is now."""
    group = event.after.groups.get(event.request.group_id)
    assert isinstance(group, ConsumerGroup), f"{event.request.group_id} is {group!r}"
    return group


# --- M3, M5, M6: who moves on ----------------------------------------------------------------------


class RevocationsAreConfirmed(Invariant):
    """M6: what a member had is not its own any more when it says what it owns, without that, or that it
    leaves for a while. A heartbeat that does not say what it owns confirms nothing."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if old is None or event.is_complete:
                continue
            for member_id, member in group.members.items():
                before = old.members.get(member_id)
                gone = has(before) - has(member) if before is not None else set()
                if gone:
                    kept = self._kept(event, member_id, before)
                    assert kept is not None, (
                        f"{name}: {sorted(gone)} are taken from {member_id} by {by(event)}"
                    )
                    still = kept & gone
                    assert not still, f"{name}: {sorted(still)} are taken from {member_id}, who has them"

    def _kept(self, event: Event, member_id: str, before: Member | None) -> set[Unit] | None:
        """What the member says that it still has; None where it says nothing. M13: who leaves for a while
        gives up what it owes, and keeps the rest."""
        said = event.request
        if said is None or said.member_id != member_id:
            return None
        if event.api == HEARTBEAT:
            if said.member_epoch == LEFT_TEMPORARILY and before is not None:
                return units(before.current.assigned)
            return None if said.topic_partitions is None else owned_by(said)
        if event.api == "JoinGroup":
            return owned_by_join(event)
        return None


def by(event: Event) -> str:
    return event.api or str(event.key)


def owned_by_join(event: Event) -> set[Unit]:
    """What a member of the classic protocol says that it owns when it joins."""
    topics = event.runtime.topics.by_name
    try:
        said = read_subscription(event.request.protocols[0].metadata, None)
    except CodecError:
        return set()
    return {(topics[tp.topic].id, tp.partition) for tp in said.owned if tp.topic in topics}


class MembersAdvanceAfterRevocation(Invariant):
    """M3: a member comes to an epoch when nothing is its own any more that is not in its target of that
    epoch. M5: who has yet to give something up is given nothing."""

    def after(self, event: Event) -> None:
        for name, old, group in touched(event):
            if event.is_complete:
                continue
            for member_id, member in group.members.items():
                before = old.members.get(member_id) if old is not None else None
                if before is member:
                    continue
                target = {(t, p) for t, some in group.targets.get(member_id, {}).items() for p in some}
                now, was = member.current, before.current if before is not None else None
                if was is not None and now.epoch > was.epoch >= 0:
                    left = has(member) - target
                    assert not left, f"{name}: {member_id} came to {now.epoch} with {sorted(left)}"
                    assert now.epoch == group.assignment_epoch, f"{name}: {member_id} came to {now.epoch}"
                if before is None or old is None:
                    continue
                added = units(now.assigned) - has(before)
                assert added <= target, f"{name}: {member_id} is given {sorted(added - target)}"
                taken = {u for m in old.members.values() if m.member_id != member_id for u in has(m)} & added
                others = {u for m in group.members.values() if m.member_id != member_id for u in has(m)}
                assert not taken & others, f"{name}: {member_id} is given {sorted(taken)}, which others have"
                if now.state is OWES:
                    assert not added, f"{name}: {member_id} owes a revocation and is given {sorted(added)}"


class RevocationTimeoutsAreFixed(FixedRevocationTimeouts):
    """M5: a member has its rebalance timeout to confirm a revocation; later targets and heartbeats do not
    extend it."""

    group_type = ConsumerGroup


# --- O1: commits -----------------------------------------------------------------------------------


class CommitErrorsAreExpected(FencedCommits):
    """O1: a commit is accepted from a member at its epoch; at an older one for partitions that it owned by
    then; from anyone in an empty group. Others get STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION."""

    group_type = ConsumerGroup

    def owned_since(self, group: ConsumerGroup, member: Member, topic: Topic, partition: int) -> int | None:
        current = member.current
        for epochs in (current.assigned, current.pending_revocation):
            since = epochs.get(topic.id, {}).get(partition)
            if since is not None:
                return since
        return None


# --- MG2: members of the classic protocol ----------------------------------------------------------


class ClassicMembersRejoinOnChanges(ServedClassicMembers):
    """MG2: the generation of a classic member is its epoch, and it has to rejoin exactly when it has
    something to learn: a newer target, something to revoke, or partitions that it waited for; in a group of
    classic members only, already when the group epoch moves."""

    group_type = ConsumerGroup

    def rejoin_causes(self, event: Event, group: ConsumerGroup, member: Member) -> list[str]:
        now = event.after.groups[group.group_id]  # A heartbeat may notice that topics changed.
        assert isinstance(now, ConsumerGroup)
        return ["its assignment changes"] if self._learns(now, member) else []

    def _learns(self, group: ConsumerGroup, member: Member) -> bool:
        current = member.current
        alone = all(m.classic is not None for m in group.members.values())
        if current.epoch < (group.epoch if alone else group.assignment_epoch) or current.state is OWES:
            return True
        target = {(t, p) for t, some in group.targets.get(member.member_id, {}).items() for p in some}
        missing = target - units(current.assigned)
        taken = {unit for m in group.members.values() for unit in has(m)}
        return current.state.name == "UNRELEASED_PARTITIONS" and not missing & taken

    def check_join(self, event: Event) -> None:
        answer: Any = event.answer
        group = event.after.groups.get(event.request.group_id)
        if event.error is not Errors.NONE or not isinstance(group, ConsumerGroup):
            return
        assert isinstance(answer, JoinGroupResponse)
        member = group.members.get(answer.member_id)
        assert member is not None, f"{answer.member_id} joined and is no member"
        assert answer.generation_id == member.current.epoch, (
            f"{answer.member_id} is told {answer.generation_id}, it is at {member.current.epoch}"
        )
        assert answer.leader != answer.member_id, f"{answer.member_id} leads, and nobody is to"
