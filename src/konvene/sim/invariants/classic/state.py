"""Invariants of the state of classic groups: records, timers, pending requests, counters and sessions.

A group is checked when it changed, and all groups at every audit. Time is that of the event queue: a step of
the wall clock makes no session and no rebalance longer or shorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, Member, State
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue
from konvene.runtime.coordinator import TIMER_RETRY_MS
from konvene.shard.contract import TimerKey
from konvene.sim.world.event import EMPTY_VIEW, MODERN_GROUP_TYPES, Event, Invariant

KINDS = ("classic", "static", "migration", "streams-migration")

SETTLED = (State.STABLE, State.EMPTY)
"""States that are written to the log. During a rebalance the log still holds the last generation."""

NEW_MEMBER_MS = 5 * 60 * 1000
"""Session timeout of a new member until its first generation."""

REBALANCE_DUE = -2
"""State timestamp of a record that makes the group rebalance when it is loaded."""

HELD_REQUESTS = ("JoinGroupRequest", "SyncGroupRequest")
"""Requests whose response a group may hold."""

SESSION_APIS = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit")
"""Requests that restart a member's session."""


# --- G: the log and the state machine --------------------------------------------------------------


class SettledGroupsAreStored(Invariant):
    """G1: the log holds a stable or empty group as it is; of a group in a rebalance it holds no later
    generation than the current one."""

    def after(self, event: Event) -> None:
        if not (event.changed or event.is_complete):
            return
        shadow = event.runtime.shadow.groups
        for name, group in classic_groups(event):
            stored = shadow.get(name)
            assert isinstance(stored, ClassicGroup), f"{group!r} is not in the log"
            if group.state in SETTLED:
                live, logged = durable_part(group), durable_part(stored)
                assert live == logged, f"{group!r}: live {live}, in the log {logged}"
            else:
                assert stored.generation <= group.generation, f"{group!r} is older than the logged {stored!r}"


class SettledGroupsAreRestored(Invariant):
    """G1, G3: a settled (stable or empty) group is loaded as it was when the previous process ended. A loaded
    group rebalances only if it exceeds the maximum size, or if its record requires that: it became a classic
    group while a member left."""

    def after(self, event: Event) -> None:
        if event.kind != "loaded":
            return
        max_size = event.runtime.config["group.max.size"]
        for _, group in classic_groups(event):
            is_due = bool(group.members) and group.group_id in _groups_due_to_rebalance(event)
            rebalances = len(group.members) > max_size or is_due
            assert (group.state in SETTLED) != rebalances, f"loaded as {group!r}; the maximum is {max_size}"
        if event.before is EMPTY_VIEW or event.lost:
            return
        for name, group in event.before.groups.items():
            restored = event.after.groups.get(name)
            if isinstance(group, ClassicGroup) and group.state in SETTLED and _is_settled(restored):
                before, loaded = durable_part(group), durable_part(restored)
                assert loaded == before, f"{name} was {before}, but is loaded as {loaded}"


def _groups_due_to_rebalance(event: Event) -> set[str]:
    """Return the ids of the groups whose last record makes them rebalance when they are loaded."""
    last: dict[str, GroupMetadataValue | None] = {}
    for batch in event.runtime.log.batches:
        for record in batch.records:
            key: Any = getattr(record, "key", None)
            if isinstance(key, GroupMetadataKey):
                last[key.group] = record.value
    return {
        name
        for name, value in last.items()
        if value is not None and value.current_state_timestamp == REBALANCE_DUE
    }


class TimersMatchState(Invariant):
    """G11: exactly the timers that the state requires are armed: none leaked, none missing, none overdue."""

    def after(self, event: Event) -> None:
        runtime = event.runtime
        armed = runtime.coordinator.deadlines
        if event.is_complete:
            self._check_all(event, armed)
        elif event.changed:
            self._check_changed(event, armed)
        elif event.kind == "timer" and len(event.key) > 1:
            group = runtime.core.groups.get(event.key[1])
            if isinstance(group, ClassicGroup):
                missing = timers_of(group)[0] - armed.keys()
                assert not missing, f"{event.key} expired without effect and was not armed again: {missing}"

    def _check_changed(self, event: Event, armed: Mapping[Any, float]) -> None:
        for name, group in classic_groups(event):
            required, allowed = timers_of(group)
            missing = required - armed.keys()
            assert not missing, f"timers are not armed: {sorted(missing)}"
            old = event.before.groups.get(name)
            if old is not None and old is not group:
                leaked = (_possible_timers(old) - required - allowed) & armed.keys()
                assert not leaked, f"timers are still armed: {sorted(leaked)}"
        for name, old in event.before.groups.items():
            if name not in event.after.groups:
                leaked = _possible_timers(old) & armed.keys()
                assert not leaked, f"timers of the deleted group {name} are still armed: {sorted(leaked)}"

    def _check_all(self, event: Event, armed: Mapping[Any, float]) -> None:
        required: set[TimerKey] = set()
        allowed: set[TimerKey] = set()
        for _, group in classic_groups(event):
            required_by_group, allowed_by_group = timers_of(group)
            required |= required_by_group
            allowed |= allowed_by_group
        missing = required - armed.keys()
        assert not missing, f"timers are not armed: {sorted(missing)}"
        groups = event.after.groups
        leaked = sorted(
            key
            for key in armed.keys() - required - allowed
            if len(key) > 1 and isinstance(groups.get(key[1], ClassicGroup("")), ClassicGroup)
        )
        assert not leaked, f"timers are armed that no group requires: {leaked}"
        next_ms = event.runtime.event_queue.next_ms()
        if next_ms is None or next_ms > event.runtime.event_queue.now_ms:
            overdue = sorted(key for key in armed if (event.runtime.due_ms(key) or 0) < 0)
            assert not overdue, f"timers are overdue: {overdue}"


class CountersMatchMembers(Invariant):
    """G11: the counters and indexes of a group equal those counted from its members."""

    def after(self, event: Event) -> None:
        if event.changed or event.is_complete:
            for name, group in classic_groups(event):
                if event.kind in ("audit", "loaded") or group is not event.before.groups.get(name):
                    self._check_group(group)

    def _check_group(self, group: ClassicGroup) -> None:
        members, state = group.members, group.state
        joining = sum(m.join_waiter is not None for m in members.values())
        assert group.waiting == joining, f"{group!r} counts {group.waiting} pending joins of {joining}"
        counts = Counter(name for m in members.values() for name, _ in m.protocols)
        assert group.protocol_counts == counts, f"{group!r} counts {group.protocol_counts}, not {counts}"
        unknown = group.pending_syncs - members.keys()
        assert not unknown, f"{group!r} waits for SyncGroups of {sorted(unknown)}, which are not members"
        joined = group.pending_joins & members.keys()
        assert not joined, f"{group!r}: the members {sorted(joined)} are also pending joins"
        assert (group.leader in members) == bool(members), f"{group!r} has the leader {group.leader}"
        wrong = [key for key, m in members.items() if key != m.member_id]
        assert not wrong, f"{group!r} has members under other ids than theirs: {wrong}"
        assert state is not State.DEAD, f"{group!r} still exists"
        assert state is not State.EMPTY or not members, f"{group!r} has members"
        types = {m.protocol_type for m in members.values()}
        assert types <= {group.protocol_type}, (
            f"{group!r} has the protocol type {group.protocol_type}, its members {types}"
        )
        if members:
            repeated = any(len(dict(m.protocols)) < len(m.protocols) for m in members.values())
            common = repeated or len(members) in group.protocol_counts.values()
            assert common, f"{group!r}: the members have no protocol in common: {group.protocol_counts}"
        if state is State.STABLE or state is State.COMPLETING_REBALANCE:
            assert members, f"{group!r} has no members"
            new = [key for key, m in members.items() if m.is_new]
            assert not new, f"{group!r}: {new} are in a generation, but marked as new"
            supported = group.protocol is not None and group.protocol_counts[group.protocol] == len(members)
            assert supported, f"{group!r} uses {group.protocol}, of {group.protocol_counts}"
        else:
            assert not group.pending_syncs, f"{group!r} waits for {sorted(group.pending_syncs)}"


class PendingRequestsAreTracked(Invariant):
    """G12: each JoinGroup or SyncGroup without a response is held by exactly one group, in the state that
    holds such requests; no other request is held."""

    def after(self, event: Event) -> None:
        if event.is_complete:
            held = sorted(waiter for _, group in classic_groups(event) for waiter in _waiters(group))
            undecided = event.runtime.undecided.items()
            pending = sorted(
                waiter for waiter, request in undecided if type(request).__name__ in HELD_REQUESTS
            )
            assert held == pending, f"{pending} are pending, the groups hold {held}"
            return
        if event.kind == "request" and event.api not in ("JoinGroup", "SyncGroup"):
            assert event.answer is not None, f"{event.api} has no response"
        if not event.changed:
            return
        before = {w for g in event.before.groups.values() for w in _waiters(g)}
        after = [w for g in event.after.groups.values() for w in _waiters(g)]
        if event.kind == "request":
            before.add(event.waiter)
        expected = before.difference([waiter for waiter, _ in event.answered])
        assert len(after) == len(expected), f"{sorted(after)} are held, {sorted(expected)} have no response"
        assert expected.issuperset(after), f"{sorted(after)} are held, {sorted(expected)} have no response"


# --- L: sessions -----------------------------------------------------------------------------------


class SilentMembersExpire(Invariant):
    """L4: a member that sends nothing for its session timeout is removed, and so is a member id that was
    handed out and not used. The session of a member with a pending request does not expire."""

    def __init__(self) -> None:
        self.last_seen: dict[tuple[str, ...], tuple[int, int]] = {}
        """By group and member id: time of the last request, and for how long the member may be silent."""

    def after(self, event: Event) -> None:
        now_ms = event.runtime.event_queue.now_ms
        if event.kind == "loaded":
            self.last_seen.clear()
        if event.kind == "timer" and event.outcome is None and event.key[0] == "session":
            # The decision exceeded a batch: the timer expires again. Members of modern groups are not listed.
            seen = self.last_seen.get(event.key[1:])
            if seen is not None:
                self.last_seen[event.key[1:]] = now_ms, seen[1] + TIMER_RETRY_MS
        if event.kind == "timer" and event.changed and event.key[0] == "session":
            self._check_expired(event)
        if event.kind == "request" and event.outcome is not None and event.api in SESSION_APIS:
            self._record_request(event, now_ms)
        if event.changed or event.is_complete:
            for name, group in classic_groups(event):
                self._check_group(event, name, group, now_ms)
            self._record_conversion(event, now_ms)
            self._forget_removed(event)

    def _record_request(self, event: Event, now_ms: int) -> None:
        request, group = event.request, event.group_after
        member = group.members.get(request.member_id)
        # A stable group answers a SyncGroup from its state, which restarts no session.
        restarts = event.api != "SyncGroup" or event.group_before.state is not State.STABLE
        if member is not None and restarts:
            self.last_seen[group.group_id, request.member_id] = now_ms, _max_silence_ms(member)

    def _record_conversion(self, event: Event, now_ms: int) -> None:
        """Record the member ids handed out by a JoinGroup that converted its group to a classic one."""
        if event.is_complete or not event.is_request("JoinGroup"):
            return
        name = event.request.group_id
        group = event.after.groups.get(name)
        if isinstance(group, ClassicGroup) and isinstance(event.before.groups.get(name), MODERN_GROUP_TYPES):
            for member_id in group.pending_joins:
                self.last_seen[name, member_id] = now_ms, event.request.session_timeout_ms

    def _forget_removed(self, event: Event) -> None:
        for name, old in event.before.groups.items():
            if not isinstance(old, ClassicGroup):
                continue
            group = event.after.groups.get(name)
            if not isinstance(group, ClassicGroup):
                group = None
            for member_id in (*old.members, *sorted(old.pending_joins)):
                remains = group is not None and (
                    member_id in group.members or member_id in group.pending_joins
                )
                if not remains:
                    self.last_seen.pop((name, member_id), None)

    def _check_expired(self, event: Event) -> None:
        """Check that the session that expired is not that of a member with a pending request: it cannot send
        heartbeats meanwhile. A new member that waits for its first generation is exempt."""
        _, name, member_id = event.key
        member = event.before.group(name).members.get(member_id)
        if member is not None and member_id not in event.after.group(name).members:
            assert not _has_pending_request(member) or member.is_new, (
                f"the session of {member_id} expired while its request was pending"
            )

    def _check_group(self, event: Event, name: str, group: ClassicGroup, now_ms: int) -> None:
        before = event.before.groups.get(name)
        old: dict[str, Member] = {}
        restarted = event.kind == "loaded" or before is None or group.generation != before.generation
        if not restarted and before is not None:
            old = before.members
        for member_id, member in group.members.items():
            seen = self.last_seen.get((name, member_id))
            if seen is None or old.get(member_id) is not member:
                # The member changed: it was answered or it rejoined. Its session restarts or continues.
                max_silence_ms = _max_silence_ms(member)
                if not restarted and seen is not None:
                    max_silence_ms = max(max_silence_ms, seen[1])
                elif not restarted:  # A static member with a new id: the session of its old id continues.
                    max_silence_ms = max([max_silence_ms, *(_max_silence_ms(m) for m in old.values())])
                self.last_seen[name, member_id] = now_ms, max_silence_ms
                continue
            if not _has_pending_request(member):
                silent_ms = now_ms - seen[0]
                assert silent_ms <= seen[1], f"{group!r}: {member_id} remains after {silent_ms} ms of silence"
        for member_id in sorted(group.pending_joins):
            seen = self.last_seen.get((name, member_id))
            if seen is None:
                timeout_ms = getattr(event.request, "session_timeout_ms", NEW_MEMBER_MS)
                seen = self.last_seen[name, member_id] = now_ms, timeout_ms
            silent_ms = now_ms - seen[0]
            assert silent_ms <= seen[1], (
                f"{group!r}: the member id {member_id} is unused after {silent_ms} ms"
            )


class ResponsesRestartSessions(Invariant):
    """L4: an accepted heartbeat, and the response to a held request, give the member its full session
    timeout. A new member that waits for its first generation has the longer timeout of new members."""

    def after(self, event: Event) -> None:
        if event.outcome is None:
            return
        if event.is_classic_request("Heartbeat"):
            group = event.group_after
            self._check_session(event, group, group.members[event.request.member_id])
        elif event.changed and event.kind != "loaded":
            answered = {waiter for waiter, _ in event.answered}
            for name, group in classic_groups(event):
                old = event.before.group(name)
                if old is not group:
                    self._check_answered(event, old, group, answered)

    def _check_answered(
        self, event: Event, old: ClassicGroup, group: ClassicGroup, answered: set[int]
    ) -> None:
        for member_id, before in old.members.items():
            member = group.members.get(member_id)
            if member is None or _has_pending_request(member):
                continue
            if {before.join_waiter, before.sync_waiter} & answered:
                self._check_session(event, group, member)
        if event.is_classic_request("JoinGroup"):
            known = {identity_of(m) for m in old.members.values()}
            for member in group.members.values():
                if member.is_new and identity_of(member) not in known:
                    due_ms = event.runtime.due_ms(("session", group.group_id, member.member_id))
                    assert due_ms == NEW_MEMBER_MS, (
                        f"the session of the new member {member.member_id} ends in {due_ms} ms,"
                        f" not {NEW_MEMBER_MS}"
                    )

    def _check_session(self, event: Event, group: ClassicGroup, member: Member) -> None:
        due_ms = event.runtime.due_ms(("session", group.group_id, member.member_id))
        timeout_ms = member.session_timeout_ms
        assert due_ms == timeout_ms, (
            f"{group!r}: the session of {member.member_id} ends in {due_ms} ms, not {timeout_ms}"
        )


# --- ours ------------------------------------------------------------------------------------------


class HeartbeatsChangeNothing(Invariant):
    """Ours: an accepted heartbeat changes no state, and its response can be cached together with the timers
    that it arms; the response to any other request or to a rejected heartbeat cannot."""

    def after(self, event: Event) -> None:
        if event.kind != "request":
            return
        cacheable = event.runtime.core.cacheable(event.request, event.context)
        if event.concerns_modern_group:
            return
        if event.api != "Heartbeat":
            assert cacheable is None, f"the response to {event.api} is cacheable"
            return
        assert not event.changed, "a heartbeat changed the group"
        accepted = event.outcome is not None and event.error is Errors.NONE
        assert (cacheable is not None) == accepted, f"cacheable: {cacheable}, answered {event.error!r}"
        if cacheable is not None and event.outcome is not None:
            assert cacheable[1] == event.outcome.timers, (
                f"{cacheable[1]} are the cached timers, not {event.outcome.timers}"
            )
            assert event.runtime.core.is_current(cacheable[0]), "the cacheable response is already outdated"


# --- shared by the invariants of classic groups ----------------------------------------------------


def classic_groups(event: Event) -> Iterator[tuple[str, ClassicGroup]]:
    """Yield the id of each classic group that an event touched, and the group after the event. Groups that
    the event converted to classic groups are left to the invariants of migrations."""
    for name, group in event.after.groups.items():
        converted = not event.is_complete and isinstance(event.before.groups.get(name), MODERN_GROUP_TYPES)
        if isinstance(group, ClassicGroup) and not converted:
            yield name, group


def is_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> bool:
    """Return True if the group has a member with this member id and, unless `instance_id` is None, this
    instance id. The group's own check is not used, because it is under test."""
    member = group.members.get(member_id)
    return member is not None and instance_id in (None, member.instance_id)


def _is_settled(group: object) -> TypeGuard[ClassicGroup]:
    return isinstance(group, ClassicGroup) and group.state in SETTLED


def identity_of(member: Member) -> str:
    """Return what identifies a member when its member id changes: its instance id, or else the member id."""
    return f"instance {member.instance_id}" if member.instance_id is not None else member.member_id


def durable_part(group: ClassicGroup) -> tuple[object, ...]:
    """Return the fields of a group that the log stores, for comparison."""
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


def timers_of(group: ClassicGroup) -> tuple[set[TimerKey], set[TimerKey]]:
    """Return the keys of the timers that the group requires, and of those that may be armed as well."""
    name = group.group_id
    required: set[TimerKey] = {("session", name, member_id) for member_id in group.pending_joins}
    allowed: set[TimerKey] = set()
    for member_id, member in group.members.items():
        suspended = _has_pending_request(member) and not member.is_new
        (allowed if suspended else required).add(("session", name, member_id))
    if group.state is State.PREPARING_REBALANCE:
        required.add(("join", name))
    if group.pending_syncs:
        required.add(("sync", name))
    return required, allowed


def _possible_timers(group: object) -> set[TimerKey]:
    """Return the keys of all timers that a classic group can have; none for any other group."""
    if not isinstance(group, ClassicGroup):
        return set()
    name = group.group_id
    keys: set[TimerKey] = {
        ("session", name, member_id) for member_id in (*group.members, *group.pending_joins)
    }
    return keys | {("join", name), ("sync", name)}


def _waiters(group: object) -> list[int]:
    """Return the waiter numbers of the requests that a group has not answered yet; assert that its state
    allows it to hold them."""
    waiters: list[int] = []
    if isinstance(group, ClassicGroup):
        for member in group.members.values():
            if member.join_waiter is not None:
                assert group.state is State.PREPARING_REBALANCE, f"{group!r} holds a JoinGroup"
                waiters.append(member.join_waiter)
            if member.sync_waiter is not None:
                assert group.state is State.COMPLETING_REBALANCE, f"{group!r} holds a SyncGroup"
                waiters.append(member.sync_waiter)
    return waiters


def _has_pending_request(member: Member) -> bool:
    return member.join_waiter is not None or member.sync_waiter is not None


def _max_silence_ms(member: Member) -> int:
    return NEW_MEMBER_MS if member.is_new else member.session_timeout_ms
