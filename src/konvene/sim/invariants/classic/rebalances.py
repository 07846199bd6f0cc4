"""Invariants of a rebalance: what starts one, who is waited for, for how long, and whom it is told of.

Time is the agenda's, as in `classic`. The time-outs of members are counted here by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from konvene.errors import Errors
from konvene.groups.classic.decision import SHORTEST_INITIAL_DELAY_MS
from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.messages.join_group import JoinGroupResponse
from konvene.shard import causes
from konvene.sim.invariants.classic.state import classic, who_is
from konvene.sim.invariants.classic.static import rebalance_timeout_ms
from konvene.sim.world.event import Event, Invariant

KINDS = ("classic", "static", "migration", "streams-migration")


class RejoinsStartRebalances(Invariant):
    """L3, L5: in a stable group the JoinGroup of the leader starts a rebalance, and so does that of anybody
    who says something new; who says what it said before is told the generation that stands, at once."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("JoinGroup") or event.error not in (None, Errors.NONE):
            return
        said, before, group = event.request, event.group_before, event.group_after
        member = before.members.get(said.member_id)
        if member is None or before.state not in (State.STABLE, State.COMPLETING_REBALANCE):
            return
        says_new = member.protocols != tuple((p.name, p.metadata) for p in said.protocols)
        leads = before.state is State.STABLE and before.leader == member.member_id
        starts = group.state is State.PREPARING_REBALANCE or group.generation > before.generation
        who = f"{member.member_id} (leads: {leads}, says something new: {says_new})"
        assert starts == (says_new or leads), f"{who} joins {before!r}: {group!r}"
        if not starts:
            assert event.answer is not None, f"{who} joins {before!r} and is left waiting"
            assert group.state is before.state, f"{who} joins {before!r}: {group!r}"


class JoinsUpdateMembers(Invariant):
    """ST6: the protocols and time-outs of a member that is let into a rebalance are those that it says now,
    whatever it said before."""

    def after(self, event: Event) -> None:
        if not event.is_classic_request("JoinGroup") or event.outcome is None:
            return
        said, group = event.request, event.group_after
        member = self._joins(event, group)
        if member is None:
            return
        told = (said.session_timeout_ms, rebalance_timeout_ms(said), said.protocol_type)
        has = (member.session_timeout_ms, member.rebalance_timeout_ms, member.protocol_type)
        assert has == told, f"{member.member_id} said {told}, it is known as {has}"
        protocols = tuple((p.name, p.metadata) for p in said.protocols)
        assert member.protocols == protocols, f"{member.member_id} has {member.protocols}, said {protocols}"

    def _joins(self, event: Event, group: ClassicGroup) -> Member | None:
        """Who asked, where it waits for the next generation or has just come into it."""
        answer: Any = event.answer
        if answer is None:
            return next((m for m in group.members.values() if m.join_waiter == event.waiter), None)
        if event.error is Errors.NONE and group.generation > event.group_before.generation:
            return group.members[answer.member_id]
        return None


class GenerationsIncludeAllMembers(Invariant):
    """C4: a generation that is made before the time to join is up is of everybody, and nobody is on the way
    who was handed a member id; and it is made at once when the last one missing came, or is gone. When the
    time is up, it is of those who joined, and of static members. C1: its leader joined."""

    def after(self, event: Event) -> None:
        if not event.changed:
            return
        for name, group in classic(event):
            old = event.before.group(name)
            if group.generation == old.generation:
                no_room = (
                    event.error is Errors.GROUP_MAX_SIZE_REACHED
                )  # The others go on when one of them asks.
                stuck = _waits_for_nobody(group) and not _waits_for_nobody(old) and not no_room
                assert not stuck, f"{group!r}: everybody is there, and it waits on"
                continue
            if not group.members:
                continue
            joined = {
                answer.member_id
                for _, answer in event.answered
                if type(answer) is JoinGroupResponse and not answer.error_code
            }
            assert group.leader in joined, f"{group!r} is led by {group.leader}, who did not join"
            late = [m for m in group.members.values() if m.member_id not in joined]
            if event.key == ("join", name):
                dynamic = [m.member_id for m in late if m.instance_id is None]
                assert not dynamic, f"{group!r} has {dynamic}, who did not join"
            else:
                assert not late, f"{group!r} is made without {[m.member_id for m in late]}"
                coming = sorted(group.pending_joins)
                assert not coming, f"{group!r} is made, {coming} were handed out and are on their way"


def _waits_for_nobody(group: ClassicGroup) -> bool:
    """The first generation of a group that was empty waits for whoever else may come."""
    if group.state is not State.PREPARING_REBALANCE or group.was_empty or group.pending_joins:
        return False
    return all(m.join_waiter is not None for m in group.members.values())


class RebalanceTimeoutsAreTheLongest(Invariant):
    """C4: members have the longest of their rebalance timeouts to join, and again to ask for their
    assignment; no impatient one makes it shorter for the others."""

    def after(self, event: Event) -> None:
        if not event.changed:
            return
        for name, group in classic(event):
            old = event.before.group(name)
            if group.state is State.COMPLETING_REBALANCE:
                began = group.generation > old.generation
            else:
                began = old.state in (State.STABLE, State.COMPLETING_REBALANCE)
                began = began and group.state is State.PREPARING_REBALANCE
            if began:
                kind = "sync" if group.state is State.COMPLETING_REBALANCE else "join"
                longest = max((m.rebalance_timeout_ms for m in group.members.values()), default=0)
                due_ms = event.runtime.due_ms((kind, name))
                assert due_ms == longest, f"{group!r}: to {kind} there are {due_ms} ms, not {longest}"


@dataclass(slots=True)
class _First:
    """The wait for the first generation of a group."""

    since_ms: int
    most_ms: int
    delay_ms: int
    steady: bool = True
    """Whether the delay was the same all the time."""
    came: bool = False
    """Whether somebody new came in the delay that runs."""


class FirstGenerationsAreDelayed(Invariant):
    """C4, L5: the first generation of a group that was empty is made when a whole
    `group.initial.rebalance.delay.ms` went by and nobody new came, or when the rebalance timeout is over:
    members that start together begin together, and nobody waits for nobody."""

    def __init__(self) -> None:
        self.waits: dict[str, _First] = {}

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            self.waits.clear()
        if not event.changed:
            return
        for name, group in classic(event):
            old = event.before.group(name)
            if old.state is State.EMPTY and group.state is not State.EMPTY:
                self._begins(event, name, group)
            elif name in self.waits:
                self._goes_on(event, name, old, group)
        for name in event.before.groups:
            if not isinstance(event.after.groups.get(name), ClassicGroup):
                self.waits.pop(name, None)

    def _begins(self, event: Event, name: str, group: ClassicGroup) -> None:
        delay_ms, due_ms = _delay_ms(event), event.runtime.due_ms(("join", name))
        assert group.state is State.PREPARING_REBALANCE, f"{group!r} does not wait for others"
        assert due_ms == delay_ms, f"{group!r} waits for {due_ms} ms for others, not {delay_ms}"
        most_ms = max(delay_ms, *(m.rebalance_timeout_ms for m in group.members.values()))
        self.waits[name] = _First(event.runtime.event_queue.now_ms, most_ms, delay_ms)

    def _goes_on(self, event: Event, name: str, old: ClassicGroup, group: ClassicGroup) -> None:
        first, waits = self.waits[name], group.state is State.PREPARING_REBALANCE
        known = {who_is(m) for m in old.members.values()}
        if event.key == ("join", name):
            lasted_ms = event.runtime.event_queue.now_ms - first.since_ms
            if waits and old.waiting:
                assert first.came, f"{group!r} waits on, though nobody new came for {first.delay_ms} ms"
                due_ms, delay_ms = event.runtime.due_ms(("join", name)), _delay_ms(event)
                assert due_ms is not None and due_ms <= delay_ms, f"{group!r} waits on for {due_ms} ms"
                first.steady = first.steady and delay_ms == first.delay_ms
                first.delay_ms = delay_ms
            elif not waits and first.came and first.steady:
                assert lasted_ms >= first.most_ms, (
                    f"{group!r} is made after {lasted_ms} ms, somebody just came"
                )
            first.came = False
        elif not waits and event.kind == "request":
            raise AssertionError(f"{group!r} is made by {event.api}, before its delay is over")
        if not waits or (event.key == ("join", name) and not old.waiting):
            del self.waits[name]
        elif any(who_is(m) not in known for m in group.members.values()):
            first.came = True


def _delay_ms(event: Event) -> int:
    told: int = event.runtime.config["group.initial.rebalance.delay.ms"]
    return max(told, SHORTEST_INITIAL_DELAY_MS)


# --- what is told of it ------------------------------------------------------------------------------


class CausesAreReportedOnce(Invariant):
    """Ours: what is told as a cause of a generation came about since the one before was told."""

    def __init__(self) -> None:
        self.told: dict[str, tuple[Any, ...]] = {}
        """By group: the causes in its last story."""

    def after(self, event: Event) -> None:
        for rebalance in event.outcome.why if event.outcome is not None else ():
            if rebalance.value.group_type != "classic":
                continue  # Told when its epoch moves, and once more when all have followed.
            name, now = rebalance.group_id, rebalance.value.causes
            again = [cause for cause in now if any(cause is old for old in self.told.get(name, ()))]
            assert not again, f"{name} moved to {rebalance.value.epoch}; told before: {again}"
            self.told[name] = now


GOES_BY = {
    "session": (causes.SESSION_EXPIRED,),
    "sync": (causes.SYNC_TIMEOUT,),
    "join": (causes.REBALANCE_TIMEOUT,),
    "LeaveGroup": (causes.MEMBER_LEFT, causes.REMOVED_BY_ADMIN),
}
"""What is told of a member that goes, by the timer or the request that it goes by."""


class MembershipChangesHaveACause(Invariant):
    """Ours: who comes and who goes is named among the causes of the next generation, and by what it goes.

    Not who finds no room: it may be one of those who wait, and then the others go on as they were."""

    def after(self, event: Event) -> None:
        outcome = event.outcome
        if not event.changed or outcome is None or event.error is Errors.GROUP_MAX_SIZE_REACHED:
            return
        for name, group in classic(event):
            before = event.before.group(name).members
            if before.keys() == group.members.keys():
                continue
            story = group.trace.causes if group.trace is not None else ()
            told = {(c.member_id, c.kind) for r in outcome.why if r.group_id == name for c in r.value.causes}
            told.update((c.member_id, c.kind) for c in story)
            old, new = _by_who(before.values()), _by_who(group.members.values())
            by = event.api if event.kind == "request" else event.key[0]
            for who in old.keys() - new.keys():
                kinds = {(old[who], kind) for kind in GOES_BY.get(by, ())}
                assert kinds & told, f"{old[who]} is gone from {group!r} by {by}; told is {sorted(told)}"
            for who in new.keys() - old.keys():
                came = (new[who], causes.MEMBER_JOINED)
                assert came in told, f"{new[who]} came to {group!r}; told is {sorted(told)}"


def _by_who(members: Any) -> dict[str, str]:
    return {who_is(m): m.member_id for m in members}
