"""Invariants of the generations of classic groups: that they rise, end, are told and explained.

Time is the agenda's, as in `classic`.
"""

from __future__ import annotations

from konvene.errors import Errors
from konvene.groups.classic.decision import SHORTEST_INITIAL_DELAY_MS
from konvene.groups.classic.group import ClassicGroup, State
from konvene.messages.join_group import JoinGroupResponse
from konvene.messages.sync_group import SyncGroupResponse
from konvene.runtime.coordinator import TIMER_RETRY_MS
from konvene.sim.invariants.classic.state import SETTLED, classic, is_member, who_is
from konvene.sim.world.event import EMPTY_VIEW, MODERN_GROUP_TYPES, Event, Invariant

KINDS = ("classic", "static", "migration", "streams-migration")

MADE_BY_A_REBALANCE = (State.COMPLETING_REBALANCE, State.EMPTY)
"""The states into which a group comes when its rebalance completes: with members, and without any."""


class GenerationsIncrease(Invariant):
    """C1: the generation rises by one with each rebalance that completes; one leader, who is a member."""

    def after(self, event: Event) -> None:
        if not event.changed:
            return
        for name, group in classic(event):
            old = event.before.groups.get(name)
            if isinstance(old, ClassicGroup) and old is not group:
                step = group.generation - old.generation
                assert step in (0, 1), f"{old!r} became {group!r}"
                made = group.state in MADE_BY_A_REBALANCE and group.state is not old.state
                assert step or not made, f"{old!r} became {group!r}, in the same generation"
        for _, answer in event.answered:
            if (
                type(answer) is JoinGroupResponse
                and not answer.error_code
                and not event.concerns_modern_group
            ):
                self._answered(event, answer)

    def _answered(self, event: Event, answer: JoinGroupResponse) -> None:
        group = event.group_after if event.request is not None else event.after.group(event.key[1])
        told = (answer.generation_id, answer.protocol_name)
        assert told == (group.generation, group.protocol), f"{group!r}, but {answer.member_id} is told {told}"
        assert answer.member_id in group.members, f"{answer.member_id} is told of {group!r} and is no member"
        replaced = event.version < 9 and group.state is State.STABLE
        if not replaced:
            leads = answer.member_id == group.leader
            assert answer.leader == group.leader, f"{group!r} is led by {group.leader}, not {answer.leader}"
            listed = [m.member_id for m in answer.members]
            assert listed == (list(group.members) if leads else []), f"{answer.member_id} hears of {listed}"


class OtherGenerationsAreFenced(Invariant):
    """C2: a member's SyncGroup, Heartbeat or OffsetCommit with another generation: ILLEGAL_GENERATION. An
    earlier one is heard by a group that was a streams group until now, while its first rebalance lasts."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("SyncGroup", "Heartbeat", "OffsetCommit"):
            return
        said, group, error = event.request, event.group_before, event.error
        commits = event.api == "OffsetCommit"
        generation = said.generation_id_or_member_epoch if commits else said.generation_id
        if not is_member(group, said.member_id, said.group_instance_id):
            known = said.group_id in event.before.groups
            assert error is not Errors.ILLEGAL_GENERATION or not known, f"{said.member_id} is no member"
        elif generation != group.generation and not hears(group, generation):
            assert error is Errors.ILLEGAL_GENERATION, f"{group!r}, generation {generation}: {error!r}"
        else:
            assert error is not Errors.ILLEGAL_GENERATION, f"{group!r}, generation {generation}: {error!r}"


def hears(group: ClassicGroup, generation: int) -> bool:
    is_due = group.accepts_earlier_epochs and group.state is State.PREPARING_REBALANCE
    return is_due and 0 < generation < group.generation


class NonMembersAreRejected(Invariant):
    """C2: a SyncGroup or Heartbeat of who is no member of the group is refused; a Heartbeat that is not
    refused says whether a rebalance is under way."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("SyncGroup", "Heartbeat"):
            return
        said, group = event.request, event.group_before
        if not is_member(group, said.member_id, said.group_instance_id):
            assert event.outcome is None, f"{said.member_id} is no member of {group!r} and was heard"
        elif event.api == "Heartbeat" and event.outcome is not None:
            under_way = group.state is State.PREPARING_REBALANCE
            expected = Errors.REBALANCE_IN_PROGRESS if under_way else Errors.NONE
            assert event.error is expected, f"{group!r}: a heartbeat is answered {event.error!r}"


class AssignmentsComeFromTheLeader(Invariant):
    """C3: a member of a stable group holds, and is told, the bytes that the leader gave for its member id."""

    def __init__(self) -> None:
        self.given: dict[tuple[str, int], dict[str, bytes]] = {}

    def after(self, event: Event) -> None:
        if event.kind == "loaded" and event.before is EMPTY_VIEW:
            self._believe(event)
        if not (event.changed or event.is_complete):
            return
        if event.batch is not None and event.is_classic_request("SyncGroup"):
            self._write(event)
        for name, group in downgraded(event):
            self.given[name, group.generation] = {who_is(m): m.assignment for m in group.members.values()}
        for name, group in classic(event):
            if group.state is not State.STABLE:
                continue
            if event.kind != "audit" and group is event.before.groups.get(name):
                continue
            given = self.given.get((name, group.generation))
            assert given is not None, f"{group!r} is stable, and no leader gave anything"
            for member in group.members.values():
                gave = given.get(who_is(member))
                holds = member.assignment
                assert holds == gave, f"{group!r}: {member.member_id} holds {holds!r}, was given {gave!r}"
        for _, answer in event.answered:
            if (
                type(answer) is SyncGroupResponse
                and not answer.error_code
                and not event.concerns_modern_group
            ):
                self._answered(event, answer)

    def _believe(self, event: Event) -> None:
        """What was in a log that somebody else wrote."""
        for name, group in classic(event):
            members = group.members.values()
            self.given[name, group.generation] = {who_is(m): m.assignment for m in members}

    def _write(self, event: Event) -> None:
        said, group = event.request, event.group_before
        assert said.member_id == group.leader, f"{said.member_id} assigned, {group.leader} leads"
        told = {a.member_id: a.assignment for a in said.assignments}
        self.given[group.group_id, group.generation] = {
            who_is(m): told.get(m.member_id, b"") for m in group.members.values()
        }

    def _answered(self, event: Event, answer: SyncGroupResponse) -> None:
        group = event.group_after
        assert group.state is State.STABLE, f"{group!r}: a SyncGroup is answered"
        given = self.given[group.group_id, group.generation]
        assert answer.assignment in given.values(), f"{group!r}: nobody was given {answer.assignment!r}"
        if answer is event.answer:
            member = group.members.get(event.request.member_id)
            holds = member.assignment if member is not None else None
            assert answer.assignment == holds, f"{event.request.member_id} is told another's assignment"


class RebalancesEnd(Invariant):
    """C4: PreparingRebalance ends within the longest rebalance timeout of the members, CompletingRebalance
    likewise; the first rebalance of a group waits for its initial delay, and for no longer than that again.

    Where nobody came but static members, it goes on until their sessions end."""

    def __init__(self) -> None:
        self.since: dict[str, tuple[State, int, int]] = {}
        """Of a group under way: its state, since when, and how long it may last."""

    def after(self, event: Event) -> None:
        if event.kind == "timer" and event.outcome is None and len(event.key) > 1:
            known = self.since.get(event.key[1])
            if known is not None:  # What was decided did not fit: it rings again.
                self.since[event.key[1]] = (
                    known[0],
                    event.runtime.event_queue.now_ms,
                    known[2] + TIMER_RETRY_MS,
                )
        if not (event.changed or event.is_complete):
            return
        if event.kind == "loaded":
            self.since.clear()
        for name, group in [*classic(event), *downgraded(event)]:
            if group.state in SETTLED:
                # A stable group may still wait for members to ask for what they were given.
                self.since.pop(name, None)
            else:
                self._under_way(event, name, group)
        for name in event.before.groups:
            if not isinstance(event.after.groups.get(name), ClassicGroup):
                self.since.pop(name, None)

    def _under_way(self, event: Event, name: str, group: ClassicGroup) -> None:
        now_ms, known = event.runtime.event_queue.now_ms, self.since.get(name)
        delay_ms = max(event.runtime.config["group.initial.rebalance.delay.ms"], SHORTEST_INITIAL_DELAY_MS)
        longest = max(group.rebalance_timeout_ms, 0)
        if group.was_empty and group.state is State.PREPARING_REBALANCE:
            # Where the setting changes while the first rebalance waits, one delay follows another.
            longest = max(longest, delay_ms) + delay_ms
        before = event.before.group(name)
        waits_on = event.key == ("join", name) and not before.waiting  # Nobody to make a generation of.
        moved = known is None or known[0] is not group.state
        if known is None or moved or group.generation != before.generation or waits_on:
            known = group.state, now_ms, 0
        state, since_ms, most_ms = known
        most_ms = max(most_ms, longest)
        self.since[name] = state, since_ms, most_ms
        kind = "join" if state is State.PREPARING_REBALANCE else "sync"
        due_ms = event.runtime.due_ms((kind, name))
        assert due_ms is not None, f"{group!r} has no end: it waits without a timer"
        lasts = now_ms - since_ms + due_ms
        assert lasts <= most_ms, f"{group!r} lasts for {lasts} ms, and may for {most_ms}"


class GroupSizeIsLimited(Invariant):
    """C5: no more members are let in than `group.max.size`. Static ones that stayed away count when back."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("JoinGroup"):
            return
        most, before, group = event.runtime.config["group.max.size"], event.group_before, event.group_after
        if before.state in (State.COMPLETING_REBALANCE, State.STABLE):
            size = len(group.members)
            assert size <= max(most, len(before.members)), f"{group!r} is larger than {most}"
        assert group.waiting <= max(most, before.waiting), f"{group!r}: {group.waiting} were let in"
        if event.error is Errors.GROUP_MAX_SIZE_REACHED:
            full = max(len(before.members), before.waiting) >= most
            assert full, f"{before!r} has room, {most} may be in"


class EveryGenerationHasATrace(Invariant):
    """Ours: a generation that is over has its story, with at least one cause."""

    def __init__(self) -> None:
        self.told: set[tuple[str, int]] = set()

    def after(self, event: Event) -> None:
        if not (event.changed or event.is_complete):
            return
        if event.kind == "loaded" and event.before is EMPTY_VIEW:
            self.told.update((name, group.generation) for name, group in classic(event))
        self.told.update((name, group.generation) for name, group in downgraded(event))
        for rebalance in event.outcome.why if event.outcome is not None else ():
            assert rebalance.value.causes, f"{rebalance.group_id} moved to {rebalance.value.epoch}: no cause"
            self.told.add((rebalance.group_id, rebalance.value.epoch))
        for name, group in classic(event):
            if group.state in SETTLED and group.generation:
                assert (name, group.generation) in self.told, f"nobody was told why there is {group!r}"


def downgraded(event: Event) -> list[tuple[str, ClassicGroup]]:
    """Groups whose coordinator assigned until now: their members begin with what they were meant to have."""
    return [
        (name, group)
        for name, group in event.after.groups.items()
        if isinstance(group, ClassicGroup) and isinstance(event.before.groups.get(name), MODERN_GROUP_TYPES)
    ]
