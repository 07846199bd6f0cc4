"""What is promised of a group: its log and its life (G), its generations (C), and that each is told why."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.groups.promise import (
    RETENTION,
    SETTLED,
    Event,
    Promise,
    all_offsets,
    is_member,
    who_is,
)  # fmt: skip
from tests.groups.world import State, durable

from konvene.errors import Errors

# --- G: the log and the state machine --------------------------------------------------------------


class ReplayEqualsLive(Promise):
    """G1: the state replayed from the log is the live state, at every offset."""

    def after(self, event: Event) -> None:
        live, shadow = event.life.shard, event.life.shadow
        assert list(all_offsets(live).items()) == list(all_offsets(shadow).items())
        assert list(live.groups) == list(shadow.groups)
        for group_id, group in live.groups.items():
            stored = shadow.groups[group_id]
            if group.state in SETTLED:
                assert durable(group) == stored
                assert list(group.members) == list(stored.members)
            else:
                assert stored.generation <= group.generation


class RefusalLeavesNoTrace(Promise):
    """G5: only replay changes the state: a refusal, and an append that failed, leave it as it was.

    That a decision changes nothing before its replay is asserted by `Life.carry_out`."""

    def after(self, event: Event) -> None:
        if isinstance(event.answer, Errors) and event.kind in ("asked", "too large"):
            assert event.outcome is None
            assert event.after == event.before
            assert event.batch is None
        if event.kind == "append failed":
            assert event.after.offsets == event.before.offsets
            for name, group in event.before.groups.items():
                if group.state in SETTLED and len(group.members) <= event.life.config["group.max.size"]:
                    assert durable(event.after.groups[name]) == durable(group)


class BatchesAreWhole(Promise):
    """G4: all records of one operation are in one batch; a group's record comes with all its members."""

    def after(self, event: Event) -> None:
        if event.batch is None:
            return
        assert event.outcome is not None
        assert len(event.batch) == len(event.outcome.records)
        groups = [key for key, _ in event.batch if key[:2] == b"\0\2"]
        assert len(set(groups)) == len(groups), "one batch says of a group what it is, once"


class HeartbeatsChangeNothing(Promise):
    """Ours: what `same_again` says of a heartbeat is what deciding it says."""

    def after(self, event: Event) -> None:
        if event.kind != "asked" or event.outcome is None:
            return
        same = event.life.shard.same_again(event.request)
        if event.asks("Heartbeat"):
            assert (same is not None) == (event.error is Errors.NONE)
            assert event.before == event.after
            if same is not None:
                assert same[1] == event.outcome.timers
                assert event.life.shard.holds(same[0])


class TimersHaveAReason(Promise):
    """G11: timers are those that the state asks for: no leak, and none forgotten."""

    def after(self, event: Event) -> None:
        wanted, allowed = set(), {RETENTION}
        for group_id, group in event.after.groups.items():
            for member_id in group.pending_joins:
                wanted.add(("session", group_id, member_id))
            for member in group.members.values():
                waits = member.join_waiter is not None or member.sync_waiter is not None
                (allowed if waits and not member.is_new else wanted).add(
                    ("session", group_id, member.member_id)
                )
            if group.state is State.PREPARING_REBALANCE:
                wanted.add(("join", group_id))
            if group.pending_syncs:
                wanted.add(("sync", group_id))
        timers = set(event.life.timers)
        assert wanted <= timers, f"forgotten: {wanted - timers}"
        assert timers <= wanted | allowed, f"leaked: {timers - wanted - allowed}"


class BooksAgree(Promise):
    """G11: what a group counts of itself is what can be counted."""

    def after(self, event: Event) -> None:
        for group in event.after.groups.values():
            members = group.members
            assert group.waiting == sum(m.join_waiter is not None for m in members.values())
            names = Counter(name for m in members.values() for name, _ in m.protocols)
            assert group.protocol_counts == names
            assert group.pending_syncs <= set(members)
            assert not group.pending_joins & set(members)
            assert (group.leader in members) == bool(members)
            assert all(key == m.member_id for key, m in members.items())
            if group.state is State.EMPTY:
                assert not members
            if group.state not in (State.STABLE, State.COMPLETING_REBALANCE):
                assert not group.pending_syncs


class EveryRequestIsAnsweredOnce(Promise):
    """G12: who has no answer waits in a group's waiting room, and nobody waits there twice."""

    def after(self, event: Event) -> None:
        waiters = [
            waiter
            for group in event.after.groups.values()
            for member in group.members.values()
            for waiter in (member.join_waiter, member.sync_waiter)
            if waiter is not None
        ]
        assert sorted(event.life.waiting) == sorted(waiters)
        for group in event.after.groups.values():
            for member in group.members.values():
                assert member.join_waiter is None or group.state is State.PREPARING_REBALANCE
                assert member.sync_waiter is None or group.state is State.COMPLETING_REBALANCE


# --- C: classic groups -----------------------------------------------------------------------------


class GenerationsRise(Promise):
    """C1: the generation rises by one with each rebalance that completes; one leader, who is a member."""

    def after(self, event: Event) -> None:
        for name, group in event.after.groups.items():
            before = event.before.groups.get(name)
            if before is not None and event.kind not in ("restart", "append failed"):
                assert group.generation - before.generation in (0, 1)
        self._answers(event)

    def _answers(self, event: Event) -> None:
        told = [a for _, a in event.answered if type(a).__name__ == "JoinGroupResponse" and not a.error_code]
        if not told:
            return
        group = event.asked_of_after if event.request is not None else event.after.group(event.key[1])
        for answer in told:
            assert answer.generation_id == group.generation
            assert answer.protocol_name == group.protocol
            assert answer.member_id in group.members
            replaced = event.version < 9 and group.state is State.STABLE
            leads = answer.member_id == group.leader
            if not replaced:
                assert answer.leader == group.leader
                assert [m.member_id for m in answer.members] == (list(group.members) if leads else [])


class OtherGenerationsAreRefused(Promise):
    """C2: a member's SyncGroup, Heartbeat or OffsetCommit with another generation: ILLEGAL_GENERATION."""

    def after(self, event: Event) -> None:
        if not event.asks("SyncGroup", "Heartbeat", "OffsetCommit"):
            return
        said, group = event.request, event.asked_of
        commits = event.asks("OffsetCommit")
        generation = said.generation_id_or_member_epoch if commits else said.generation_id
        if not is_member(group, said.member_id, said.group_instance_id):
            assert event.error is not Errors.ILLEGAL_GENERATION or said.group_id not in event.before.groups
        elif generation != group.generation:
            assert event.error is Errors.ILLEGAL_GENERATION
        else:
            assert event.error is not Errors.ILLEGAL_GENERATION


class MembersHoldWhatTheLeaderGave(Promise):
    """C3: a member of a stable group holds, and is told, the bytes that the leader gave for its member id."""

    def __init__(self) -> None:
        self.given: dict[tuple[str, int], dict[str, bytes]] = {}

    def after(self, event: Event) -> None:
        if event.asks("SyncGroup") and event.batch is not None:
            group = event.asked_of
            assert event.request.member_id == group.leader
            told = {a.member_id: a.assignment for a in event.request.assignments}
            self.given[group.group_id, group.generation] = {
                who_is(m): told.get(m.member_id, b"") for m in group.members.values()
            }
        for group in event.after.groups.values():
            if group.state is State.STABLE:
                given = self.given[group.group_id, group.generation]
                for member in group.members.values():
                    assert member.assignment == given[who_is(member)]
        for _, answer in event.answered:
            if type(answer).__name__ == "SyncGroupResponse" and not answer.error_code:
                group = event.asked_of_after
                assert group.state is State.STABLE
                assert answer.assignment in self.given[group.group_id, group.generation].values()
        if event.asks("SyncGroup") and event.error is Errors.NONE:
            member = event.asked_of_after.members[event.request.member_id]
            answer: Any = event.answer
            assert answer.assignment == member.assignment


class RebalancesEnd(Promise):
    """C4: PreparingRebalance ends within the longest rebalance timeout, CompletingRebalance likewise.

    Where nobody came but static members, it goes on until their sessions end."""

    def __init__(self) -> None:
        self.since: dict[str, tuple[State, int, int]] = {}

    def after(self, event: Event) -> None:
        now_ms = event.life.now_ms
        for name, group in event.after.groups.items():
            if group.state in SETTLED:
                # A stable group may still wait for members to ask for what they were given.
                self.since.pop(name, None)
                continue
            delay_ms = event.life.config["group.initial.rebalance.delay.ms"]
            longest = max(group.rebalance_timeout_ms, delay_ms)
            if group.was_empty:
                longest += delay_ms  # Where the setting changes while the first rebalance waits.
            known = self.since.get(name)
            before = event.before.group(name)
            waits_on = event.key == ("join", name) and not before.waiting  # Nobody to make a generation of.
            moved = known is None or known[0] is not group.state or group.generation != before.generation
            if known is None or moved or waits_on or event.kind in ("restart", "append failed"):
                known = group.state, now_ms, 0
            _, since_ms, most_ms = known
            most_ms = max(most_ms, longest)
            self.since[name] = group.state, since_ms, most_ms
            kind = "join" if group.state is State.PREPARING_REBALANCE else "sync"
            assert event.life.timers[kind, name] - since_ms <= most_ms
            assert now_ms - since_ms <= most_ms


class GroupsAreNotTooLarge(Promise):
    """C5: no more members are let in than `group.max.size`. Static ones that stayed away count when back."""

    def after(self, event: Event) -> None:
        most = event.life.config["group.max.size"]
        if event.asks("JoinGroup"):
            before, group = event.asked_of, event.asked_of_after
            if before.state in (State.COMPLETING_REBALANCE, State.STABLE):
                assert len(group.members) <= max(most, len(before.members))
            assert group.waiting <= max(most, before.waiting)
            if event.error is Errors.GROUP_MAX_SIZE_REACHED:
                assert max(len(before.members), before.waiting) >= most


class EveryGenerationWasToldWhy(Promise):
    """Ours: a generation that is over has its story, with at least one cause."""

    def __init__(self) -> None:
        self.told: set[tuple[str, int]] = set()

    def after(self, event: Event) -> None:
        for rebalance in event.outcome.why if event.outcome is not None else ():
            assert rebalance.story.causes
            self.told.add((rebalance.group_id, rebalance.story.epoch))
        for name, group in event.after.groups.items():
            if group.state in SETTLED and group.generation:
                assert (name, group.generation) in self.told
