"""Invariants of classic groups: their record, their timers, their waiting rooms, their sessions.

A group is looked at when it changed, and all of them at every look. Time is the agenda's: the wall clock may
step, and no session and no rebalance is longer or shorter for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeGuard

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.records.classic import GroupMetadataKey
from konvene.runtime.coordinator import TIMER_RETRY_MS
from konvene.sim.world.event import EMPTY_VIEW, MODERN_GROUP_TYPES, Event, Invariant

KINDS = ("classic", "static", "migration", "streams-migration")

SETTLED = (State.STABLE, State.EMPTY)
"""The states that a record tells of. In the others a group is on its way; the log still has the last one."""

NEW_MEMBER_MS = 5 * 60 * 1000
"""For how long a new member may wait for its first generation."""

REQUESTS_THAT_WAIT = ("JoinGroupRequest", "SyncGroupRequest")


# --- G: the log and the state machine --------------------------------------------------------------


class SettledGroupsAreStored(Invariant):
    """G1: a group that is stable or empty is in the log as it is; one on its way was there in a generation
    that is not a later one."""

    def after(self, event: Event) -> None:
        if not (event.changed or event.is_complete):
            return
        stored = event.runtime.shadow.groups
        for name, group in classic(event):
            told = stored.get(name)
            assert isinstance(told, ClassicGroup), f"{group!r} is not in the log"
            if group.state in SETTLED:
                live, log = durable_part(group), durable_part(told)
                assert live == log, f"{group!r}: live {live}, in the log {log}"
            else:
                assert told.generation <= group.generation, f"{group!r} is behind the log's {told!r}"


class SettledGroupsAreRestored(Invariant):
    """G1, G3: a settled group is loaded as it was when the last shard ended; a group that is too large for a
    limit that shrank begins a rebalance, and so does one that became a classic one while somebody left it, as
    its record says; and nobody else does."""

    def after(self, event: Event) -> None:
        if event.kind != "loaded":
            return
        most = event.runtime.config["group.max.size"]
        for _, group in classic(event):
            is_due = bool(group.members) and group.group_id in _due(event)
            rebalances = len(group.members) > most or is_due
            assert (group.state in SETTLED) != rebalances, f"loaded as {group!r}; the limit is {most}"
        if event.before is EMPTY_VIEW or event.lost:
            return
        for name, group in event.before.groups.items():
            again = event.after.groups.get(name)
            if isinstance(group, ClassicGroup) and group.state in SETTLED and _is_settled(again):
                was, loaded = durable_part(group), durable_part(again)
                assert loaded == was, f"{name} was {was}, loaded it is {loaded}"


def _due(event: Event) -> set[str]:
    """The groups whose last record says that a rebalance has yet to begin."""
    told: dict[str, Any] = {}
    for batch in event.runtime.log.batches:
        for record in batch.records:
            key: Any = getattr(record, "key", None)
            if isinstance(key, GroupMetadataKey):
                told[key.group] = record.value
    return {name for name, value in told.items() if value is not None and value.current_state_timestamp == -2}


class TimersMatchState(Invariant):
    """G11: timers are those that the state asks for: no leak, none forgotten, none late."""

    def after(self, event: Event) -> None:
        runtime = event.runtime
        armed = runtime.coordinator.deadlines
        if event.is_complete:
            self._all(event, armed)
        elif event.changed:
            for name, group in classic(event):
                wanted, allowed = timers_of(group)
                forgotten = wanted - armed.keys()
                assert not forgotten, f"timers were forgotten: {sorted(forgotten)}"
                old = event.before.groups.get(name)
                if old is not None and old is not group:
                    leaked = (_timers(old) - wanted - allowed) & armed.keys()
                    assert not leaked, f"timers outlived their reason: {sorted(leaked)}"
            for name, old in event.before.groups.items():
                if name not in event.after.groups:
                    leaked = _timers(old) & armed.keys()
                    assert not leaked, f"timers outlived group {name}: {sorted(leaked)}"
        elif event.kind == "timer" and len(event.key) > 1:
            rung = runtime.core.groups.get(event.key[1])
            if isinstance(rung, ClassicGroup):
                forgotten = timers_of(rung)[0] - armed.keys()
                assert not forgotten, f"{event.key} rang for nothing and is not armed again: {forgotten}"

    def _all(self, event: Event, armed: Any) -> None:
        wanted: set[Any] = set()
        allowed: set[Any] = set()
        for _, group in classic(event):
            needs, may = timers_of(group)
            wanted |= needs
            allowed |= may
        forgotten = wanted - armed.keys()
        assert not forgotten, f"timers were forgotten: {sorted(forgotten)}"
        groups = event.after.groups
        leaked = sorted(
            key
            for key in armed.keys() - wanted - allowed
            if len(key) > 1 and isinstance(groups.get(key[1], ClassicGroup("")), ClassicGroup)
        )
        assert not leaked, f"timers without a reason: {leaked}"
        next_ms = event.runtime.event_queue.next_ms()
        if next_ms is None or next_ms > event.runtime.event_queue.now_ms:
            late = sorted(key for key in armed if (event.runtime.due_ms(key) or 0) < 0)
            assert not late, f"timers did not ring in time: {late}"


class CountersMatchMembers(Invariant):
    """G11: what a group counts of itself is what can be counted."""

    def after(self, event: Event) -> None:
        if event.changed or event.is_complete:
            for name, group in classic(event):
                if event.kind in ("audit", "loaded") or group is not event.before.groups.get(name):
                    self._look(group)

    def _look(self, group: ClassicGroup) -> None:
        members, state = group.members, group.state
        waiting = sum(m.join_waiter is not None for m in members.values())
        assert group.waiting == waiting, f"{group!r} counts {group.waiting} who wait, there are {waiting}"
        names = Counter(name for m in members.values() for name, _ in m.protocols)
        assert group.protocol_counts == names, f"{group!r} counts {group.protocol_counts}, not {names}"
        strangers = group.pending_syncs - members.keys()
        assert not strangers, f"{group!r} waits for SyncGroups of {sorted(strangers)}, who are no members"
        both = group.pending_joins & members.keys()
        assert not both, f"{group!r}: {sorted(both)} are members and are waited for to become some"
        assert (group.leader in members) == bool(members), f"{group!r} is led by {group.leader}"
        wrong = [key for key, m in members.items() if key != m.member_id]
        assert not wrong, f"{group!r} keeps members under other names: {wrong}"
        assert state is not State.DEAD, f"{group!r} is kept"
        assert state is not State.EMPTY or not members, f"{group!r} has members"
        types = {m.protocol_type for m in members.values()}
        assert types <= {group.protocol_type}, (
            f"{group!r} is of {group.protocol_type}, its members of {types}"
        )
        if members:
            common = len(members) in group.protocol_counts.values()
            assert common, f"{group!r}: the members have no protocol in common: {group.protocol_counts}"
        if state is State.STABLE or state is State.COMPLETING_REBALANCE:
            assert members, f"{group!r} has nobody"
            new = [key for key, m in members.items() if m.is_new]
            assert not new, f"{group!r}: {new} are in a generation, and are taken for new"
            wanted = group.protocol is not None and group.protocol_counts[group.protocol] == len(members)
            assert wanted, f"{group!r} has chosen {group.protocol}, of {group.protocol_counts}"
        else:
            assert not group.pending_syncs, f"{group!r} waits for {sorted(group.pending_syncs)}"


class PendingRequestsAreTracked(Invariant):
    """G12: who has no answer waits in a group's waiting room, where it is its turn, and nobody does twice."""

    def after(self, event: Event) -> None:
        if event.is_complete:
            waiters = [waiter for _, group in classic(event) for waiter in _waiters(group)]
            asked = event.runtime.undecided.items()
            wait = [waiter for waiter, request in asked if type(request).__name__ in REQUESTS_THAT_WAIT]
            assert sorted(waiters) == sorted(wait), f"{sorted(wait)} wait, in waiting rooms {sorted(waiters)}"
            return
        if event.kind == "request" and event.api not in ("JoinGroup", "SyncGroup"):
            assert event.answer is not None, f"{event.api} is not answered"
        if not event.changed:
            return
        before = {w for g in event.before.groups.values() for w in _waiters(g)}
        after = [w for g in event.after.groups.values() for w in _waiters(g)]
        if event.kind == "request":
            before.add(event.waiter)
        expected = before.difference([waiter for waiter, _ in event.answered])
        assert len(after) == len(expected), f"{sorted(after)} wait, {sorted(expected)} have no answer"
        assert expected.issuperset(after), f"{sorted(after)} wait, {sorted(expected)} have no answer"


# --- L: who is silent ------------------------------------------------------------------------------


class SilentMembersExpire(Invariant):
    """L4: a member of which nothing was heard for its session timeout is gone, and so is who was handed a
    member id and did not come back with it. Who waits for an answer is there."""

    def __init__(self) -> None:
        self.heard: dict[tuple[str, str], tuple[int, int]] = {}
        """By group and member id: when it was heard, and for how long it may be silent then."""

    def after(self, event: Event) -> None:
        now_ms = event.runtime.event_queue.now_ms
        if event.kind == "loaded":
            self.heard.clear()
        if event.kind == "timer" and event.outcome is None and event.key[0] == "session":
            # What was decided did not fit: it rings again. Members of consumer groups are not looked at here.
            known = self.heard.get(event.key[1:])
            if known is not None:
                self.heard[event.key[1:]] = now_ms, known[1] + TIMER_RETRY_MS
        if event.kind == "timer" and event.changed and event.key[0] == "session":
            self._ended(event)
        if event.kind == "request" and event.outcome is not None and event.api in HEARS:
            said, group = event.request, event.group_after
            member = group.members.get(said.member_id)
            # A SyncGroup of a stable group is answered from what is there, and moves no session.
            hears = event.api != "SyncGroup" or event.group_before.state is not State.STABLE
            if member is not None and hears:
                self.heard[group.group_id, said.member_id] = now_ms, _may_be_silent_ms(member)
        if event.changed or event.is_complete:
            for name, group in classic(event):
                self._group(event, name, group, now_ms)
            self._became_classic(event, now_ms)
            for name, old in event.before.groups.items():
                if not isinstance(old, ClassicGroup):
                    continue
                gone = event.after.groups.get(name)
                if not isinstance(gone, ClassicGroup):
                    gone = None
                for member_id in (*old.members, *sorted(old.pending_joins)):
                    kept = gone is not None and (member_id in gone.members or member_id in gone.pending_joins)
                    if not kept:
                        self.heard.pop((name, member_id), None)

    def _became_classic(self, event: Event, now_ms: int) -> None:
        """Who was handed an id by what made its group a classic one."""
        if event.is_complete or not event.is_request("JoinGroup"):
            return
        name = event.request.group_id
        group = event.after.groups.get(name)
        if isinstance(group, ClassicGroup) and isinstance(event.before.groups.get(name), MODERN_GROUP_TYPES):
            for member_id in group.pending_joins:
                self.heard[name, member_id] = now_ms, event.request.session_timeout_ms

    def _ended(self, event: Event) -> None:
        """Who cannot send heartbeats because it waits is not silent; only a new one waits for so long."""
        _, name, member_id = event.key
        member = event.before.group(name).members.get(member_id)
        if member is not None and member_id not in event.after.group(name).members:
            assert not _waits(member) or member.is_new, (
                f"{member_id} waits for an answer, and its session ended"
            )

    def _group(self, event: Event, name: str, group: ClassicGroup, now_ms: int) -> None:
        before = event.before.groups.get(name)
        old: dict[str, Member] = {}
        again = event.kind == "loaded" or before is None or group.generation != before.generation
        if not again and before is not None:
            old = before.members
        for member_id, member in group.members.items():
            known = self.heard.get((name, member_id))
            if known is None or old.get(member_id) is not member:
                # It changed, so it was answered or came back: its session begins again, or goes on.
                longest = _may_be_silent_ms(member)
                if not again and known is not None:
                    longest = max(longest, known[1])
                elif not again:  # In another's place, whose session timeout goes on.
                    longest = max([longest, *(_may_be_silent_ms(m) for m in old.values())])
                self.heard[name, member_id] = now_ms, longest
                continue
            if member.join_waiter is None and member.sync_waiter is None:
                silent = now_ms - known[0]
                assert silent <= known[1], f"{group!r}: {member_id} is silent for {silent} ms, and still in"
        for member_id in sorted(group.pending_joins):
            known = self.heard.get((name, member_id))
            if known is None:
                told_ms = getattr(event.request, "session_timeout_ms", NEW_MEMBER_MS)
                known = self.heard[name, member_id] = now_ms, told_ms
            silent = now_ms - known[0]
            assert silent <= known[1], f"{group!r}: {member_id} was handed out {silent} ms ago"


class ResponsesRestartSessions(Invariant):
    """L4: who is heard by a heartbeat, or is answered after it waited, has its whole session before it; and
    who is new and waits for its first generation has the longer time of a new member."""

    def after(self, event: Event) -> None:
        if event.outcome is None:
            return
        if event.is_classic_request("Heartbeat"):
            group = event.group_after
            self._has(event, group, group.members[event.request.member_id])
        elif event.changed and event.kind != "loaded":
            answered = {waiter for waiter, _ in event.answered}
            for name, group in classic(event):
                old = event.before.group(name)
                if old is not group:
                    self._group(event, old, group, answered)

    def _group(self, event: Event, old: ClassicGroup, group: ClassicGroup, answered: set[int]) -> None:
        for member_id, before in old.members.items():
            member = group.members.get(member_id)
            if (
                member is not None
                and not _waits(member)
                and {before.join_waiter, before.sync_waiter} & answered
            ):
                self._has(event, group, member)
        if event.is_classic_request("JoinGroup"):
            known = {who_is(m) for m in old.members.values()}
            for member in group.members.values():
                if member.is_new and who_is(member) not in known:
                    due_ms = event.runtime.due_ms(("session", group.group_id, member.member_id))
                    assert due_ms == NEW_MEMBER_MS, f"{member.member_id} is new and has {due_ms} ms to wait"

    def _has(self, event: Event, group: ClassicGroup, member: Member) -> None:
        due_ms = event.runtime.due_ms(("session", group.group_id, member.member_id))
        assert due_ms == member.session_timeout_ms, (
            f"{group!r}: {member.member_id} has {due_ms} ms of its session"
        )


# --- ours ------------------------------------------------------------------------------------------


class HeartbeatsChangeNothing(Invariant):
    """Ours: what `cacheable` says of a heartbeat is what deciding it says."""

    def after(self, event: Event) -> None:
        if event.kind != "request":
            return
        same = event.runtime.core.cacheable(event.request, event.context)
        if event.concerns_modern_group:
            return
        if event.api != "Heartbeat":
            assert same is None, f"{event.api} is said to be the same again"
            return
        assert not event.changed, "a heartbeat changed the group"
        accepted = event.outcome is not None and event.error is Errors.NONE
        assert (same is not None) == accepted, f"the same again: {same}, answered {event.error!r}"
        if same is not None and event.outcome is not None:
            assert same[1] == event.outcome.timers, (
                f"{same[1]} are the same again, not {event.outcome.timers}"
            )
            assert event.runtime.core.is_current(same[0]), "what was just accepted does not hold"


# --- what they all ask -----------------------------------------------------------------------------

HEARS = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit")


def classic(event: Event) -> Iterator[tuple[str, ClassicGroup]]:
    """The classic groups that an event touched, after it. One that was of another kind until now began with
    what that had: `migration` looks after it."""
    for name, group in event.after.groups.items():
        was_another = not event.is_complete and isinstance(event.before.groups.get(name), MODERN_GROUP_TYPES)
        if isinstance(group, ClassicGroup) and not was_another:
            yield name, group


def is_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> bool:
    """Whether these are the ids of one member, said independently of the group's own check."""
    member = group.members.get(member_id)
    return member is not None and instance_id in (None, member.instance_id)


def _is_settled(group: Any) -> TypeGuard[ClassicGroup]:
    return isinstance(group, ClassicGroup) and group.state in SETTLED


def who_is(member: Member) -> str:
    """What a member is across changes of its member id."""
    return f"instance {member.instance_id}" if member.instance_id is not None else member.member_id


def durable_part(group: ClassicGroup) -> tuple[Any, ...]:
    """What the log has to say of a group."""
    protocol = group.protocol
    return (
        group.state,
        group.state_timestamp_ms,
        group.generation,
        group.protocol_type,
        protocol,
        group.leader,
        [
            (
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.protocol_type,
                m.metadata(protocol or ""),
                m.assignment,
            )
            for m in group.members.values()
        ],
        group.instances,
        group.subscribed,
    )


def timers_of(group: ClassicGroup) -> tuple[set[Any], set[Any]]:
    """The timers that a group needs, and those that it may have."""
    name = group.group_id
    wanted: set[Any] = {("session", name, member_id) for member_id in group.pending_joins}
    allowed: set[Any] = set()
    for member_id, member in group.members.items():
        waits = member.join_waiter is not None or member.sync_waiter is not None
        (allowed if waits and not member.is_new else wanted).add(("session", name, member_id))
    if group.state is State.PREPARING_REBALANCE:
        wanted.add(("join", name))
    if group.pending_syncs:
        wanted.add(("sync", name))
    return wanted, allowed


def _timers(group: Any) -> set[Any]:
    """All that a group may have had."""
    if not isinstance(group, ClassicGroup):
        return set()
    name = group.group_id
    keys: set[Any] = {("session", name, member_id) for member_id in (*group.members, *group.pending_joins)}
    return keys | {("join", name), ("sync", name)}


def _waiters(group: Any) -> list[int]:
    """Who waits in a group's waiting room, each where it is its turn."""
    found: list[int] = []
    if isinstance(group, ClassicGroup):
        for member in group.members.values():
            if member.join_waiter is not None:
                assert group.state is State.PREPARING_REBALANCE, f"{group!r}: a JoinGroup waits"
                found.append(member.join_waiter)
            if member.sync_waiter is not None:
                assert group.state is State.COMPLETING_REBALANCE, f"{group!r}: a SyncGroup waits"
                found.append(member.sync_waiter)
    return found


def _waits(member: Member) -> bool:
    return member.join_waiter is not None or member.sync_waiter is not None


def _may_be_silent_ms(member: Member) -> int:
    return NEW_MEMBER_MS if member.is_new else member.session_timeout_ms
