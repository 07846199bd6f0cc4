"""Base classes of the invariants that consumer, share and streams groups have in common.

A subclass in the package of a group type names the class of group, its unit of ownership and its record keys,
and its docstring has the numbers in the catalogue. This module has no `KINDS`: only subclasses are checked.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from konvene.errors import Errors
from konvene.groups.modern.group import Member, ModernGroup
from konvene.shard.contract import TimerKey
from konvene.shard.image import Topic
from konvene.sim.world.event import EMPTY_VIEW, Event, Invariant

G = TypeVar("G", bound=ModernGroup[Any])

LEFT_TEMPORARILY = -2
"""Epoch of a static member that left and may return."""
MEMBER_TIMERS = ("session", "revocation", "rejoin", "resync")
"""Timers that are armed per member."""


def touched_groups(event: Event, group_type: type[G]) -> Iterator[tuple[str, G | None, G]]:
    """Yield the id of each group of a type that an event changed, the group before, if any, and after."""
    if not (event.changed or event.is_complete):
        return
    for name, group in event.after.groups.items():
        if isinstance(group, group_type):
            old = event.before.groups.get(name)
            yield name, old if isinstance(old, group_type) else None, group


def requesting_members(event: Event) -> set[str]:
    """Return the member ids of a request, with the one that its response assigns."""
    if event.request is None:
        return set()
    return {getattr(event.request, "member_id", ""), str(getattr(event.answer, "member_id", ""))}


class ModernInvariant(Invariant, Generic[G]):
    """Base class of invariants that check groups of the class `group_type` only."""

    group_type: type[G]


# --- ownership and epochs --------------------------------------------------------------------------


class OneOwnerInTheLog(ModernInvariant[G]):
    """By the records of current assignments alone, no unit has two owners, and every owner is a member."""

    record_key: type[Any]
    """Key of the record that holds the current assignment of a member."""
    verb = "own"

    def __init__(self) -> None:
        self.owned: dict[str, dict[str, set[Hashable]]] = {}
        """Units by group and member."""

    def units_of(self, value: Any) -> Iterable[Hashable]:
        """Return the units (partitions or tasks) that a current assignment record holds."""
        raise NotImplementedError

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            self.owned.clear()
            for batch in event.runtime.log.batches:
                self._replay(batch.records)
        elif event.batch is not None:
            self._replay(event.batch.records)
        for name, _, group in touched_groups(event, self.group_type):
            owners: dict[Hashable, str] = {}
            for member_id, units in self.owned.get(name, {}).items():
                for unit in units:
                    other = owners.setdefault(unit, member_id)
                    assert other == member_id, (
                        f"{name}: by the log {other} and {member_id} {self.verb} {unit}"
                    )
            unknown = set(owners.values()) - group.members.keys()
            assert not unknown, f"{name}: by the log {sorted(unknown)} {self.verb} units, but are not members"

    def _replay(self, records: Iterable[Any]) -> None:
        for record in records:
            key = getattr(record, "key", None)
            if isinstance(key, self.record_key):
                members = self.owned.setdefault(key.group_id, {})
                if record.value is None:
                    members.pop(key.member_id, None)
                else:
                    members[key.member_id] = set(self.units_of(record.value))


class OrderedEpochs(ModernInvariant[G]):
    """Group epoch >= assignment epoch >= each member epoch; none of them decreases, except that of a member
    that leaves temporarily."""

    allows_temporary_leave = True
    """Whether a member of such a group may leave temporarily."""

    def after(self, event: Event) -> None:
        for name, old, group in touched_groups(event, self.group_type):
            assert group.epoch >= group.assignment_epoch, f"{group!r}: assigned for {group.assignment_epoch}"
            for member in group.members.values():
                epoch = member.current.epoch
                assert epoch <= group.assignment_epoch, (
                    f"{name}: {member.member_id} is at {epoch}, the assignment at {group.assignment_epoch}"
                )
                assert epoch >= 0 or epoch == LEFT_TEMPORARILY, f"{name}: {member.member_id} is at {epoch}"
            if old is not None and event.kind != "loaded":
                self._check_order(name, old, group)

    def _check_order(self, name: str, old: G, group: G) -> None:
        assert group.epoch >= old.epoch, f"{name} fell from {old.epoch} to {group.epoch}"
        assert group.assignment_epoch >= old.assignment_epoch, f"{name}: the assignment's epoch fell"
        for member_id, member in group.members.items():
            before = old.members.get(member_id)
            now = member.current.epoch
            left = self.allows_temporary_leave and now == LEFT_TEMPORARILY
            if before is not None and not left:
                assert now >= before.current.epoch, (
                    f"{name}: {member_id} fell from {before.current.epoch} to {now}"
                )


class AssignedWhenEmpty(ModernInvariant[G]):
    """The assignment epoch of an empty group is its group epoch, and it has no target assignments."""

    def after(self, event: Event) -> None:
        for _, _, group in touched_groups(event, self.group_type):
            if not group.members:
                assert group.assignment_epoch == group.epoch, (
                    f"{group!r}: the assignment is of {group.assignment_epoch}"
                )
                assert not group.targets, f"{group!r}: there are targets for {sorted(group.targets)}"


class ConsistentIndexes(ModernInvariant[G]):
    """At most one member has a given instance id, and every index of a group equals one that is rebuilt from
    its members."""

    indexes: tuple[str, ...]
    """Attributes of the group that are derived from its members."""
    member_tables: tuple[str, ...] = ("targets",)
    """Attributes of the group whose keys are ids of members."""

    def after(self, event: Event) -> None:
        for name, _, group in touched_groups(event, self.group_type):
            named = {m.instance_id: i for i, m in group.members.items() if m.instance_id is not None}
            static = sum(m.instance_id is not None for m in group.members.values())
            assert static == len(named), f"{name}: two members of one instance id: {named}"
            rebuilt: Any = self.group_type(name)
            for member in group.members.values():
                rebuilt.put(member)
            rebuilt.set_assignment_epoch(group.assignment_epoch, 0)
            for index in self.indexes:
                current, expected = getattr(group, index), getattr(rebuilt, index)
                assert current == expected, f"{name}: {index} is {current}, rebuilt {expected}"
            for table in self.member_tables:
                unknown = getattr(group, table).keys() - group.members.keys()
                assert not unknown, f"{name}: {table} has entries for non-members: {sorted(unknown)}"


# --- the log ---------------------------------------------------------------------------------------


class DurableState(ModernInvariant[G]):
    """Base class of invariants about the state of a group that survives a restart."""

    def durable_part(self, group: G) -> G:
        """Return a copy of the group without the state that a restart may lose."""
        raise NotImplementedError


class StoredInTheLog(DurableState[G]):
    """At every moment the log holds a group as it is, with its members in the same order."""

    def after(self, event: Event) -> None:
        shadow = event.runtime.shadow.groups
        for name, _, group in touched_groups(event, self.group_type):
            stored = shadow.get(name)
            assert isinstance(stored, self.group_type), f"{group!r} is {stored!r} in the log"
            live, log = self.durable_part(group), self.durable_part(stored)
            assert live == log, f"{group!r}: live {live}, in the log {log}"
            assert list(group.members) == list(stored.members), f"{group!r}: members in another order"


class RestoredFromTheLog(DurableState[G]):
    """A group is loaded as it was when the previous process ended, unless the log lost batches."""

    def after(self, event: Event) -> None:
        if event.kind != "loaded" or event.before is EMPTY_VIEW or event.lost:
            return
        for name, group in event.before.groups.items():
            restored = event.after.groups.get(name)
            if isinstance(group, self.group_type):
                assert isinstance(restored, self.group_type), f"{group!r} is loaded as {restored!r}"
                past, loaded = self.durable_part(group), self.durable_part(restored)
                assert loaded == past, f"{name} was {past}, loaded it is {loaded}"


# --- timers ----------------------------------------------------------------------------------------


class TimersAsNeeded(ModernInvariant[G]):
    """A group has the timers that its members need, and no others."""

    def timers_of(self, group: G) -> tuple[set[TimerKey], set[TimerKey]]:
        """Return the keys of the timers that a group needs, and of those that it may have as well."""
        raise NotImplementedError

    def after(self, event: Event) -> None:
        armed: Mapping[Any, float] = event.runtime.coordinator.deadlines
        for name, old, group in touched_groups(event, self.group_type):
            required, allowed = self.timers_of(group)
            missing = required - armed.keys()
            assert not missing, f"{group!r}: timers are not armed: {sorted(missing)}"
            if event.is_complete:
                found = {key for key in armed if len(key) > 1 and key[1] == name}
            else:
                ids = {*group.members, *(old.members if old is not None else ())}
                found = {(kind, name, i) for kind in MEMBER_TIMERS for i in ids} & armed.keys()
            leaked = found - required - allowed
            assert not leaked, f"{group!r}: timers are armed that it does not require: {sorted(leaked)}"


def timers_of_members(group: ModernGroup[Any], unrevoked: object) -> tuple[set[TimerKey], set[TimerKey]]:
    """Return the keys of the timers that members require, and of those that may be armed as well. Each member
    requires a session timer; a member in state `unrevoked` also a revocation timer. Members of the classic
    protocol may have timers to rejoin and to sync."""
    name = group.group_id
    required: set[TimerKey] = {("session", name, member_id) for member_id in group.members}
    allowed: set[TimerKey] = set()
    for member_id, member in group.members.items():
        if member.classic is not None:
            allowed |= {("rejoin", name, member_id), ("resync", name, member_id)}
        elif member.current.state is unrevoked and member.current.epoch >= 0:
            required.add(("revocation", name, member_id))
    return required, allowed


class SessionsRestartOnRequests(ModernInvariant[G]):
    """The session of a member restarts with its own requests only; an accepted heartbeat gives it the full
    timeout."""

    api: str
    setting: str
    """Name of the group setting with the session timeout."""

    def __init__(self) -> None:
        self.deadlines: dict[tuple[str, str], float] = {}

    def after(self, event: Event) -> None:
        if event.kind in ("loaded", "append failed"):
            self.deadlines.clear()
        if event.kind == "append failed":
            return
        for name, group in event.after.groups.items():
            if isinstance(group, self.group_type):
                self._check_group(event, name, group)
        if event.is_request(self.api) and event.error is Errors.NONE:
            self._check_heartbeat(event)

    def _check_group(self, event: Event, name: str, group: G) -> None:
        old = event.before.groups.get(name)
        requesting = requesting_members(event)
        for member_id in group.members:
            deadline = event.runtime.coordinator.deadlines.get(("session", name, member_id))
            assert deadline is not None, f"{group!r}: {member_id} has no session"
            known = self.deadlines.get((name, member_id))
            stayed = isinstance(old, self.group_type) and member_id in old.members
            rearmed = event.kind == "timer" and event.outcome is None
            if known is not None and stayed and member_id not in requesting and not rearmed:
                assert deadline == known, f"{group!r}: {member_id} sent nothing, but its session restarted"
            self.deadlines[name, member_id] = deadline

    def _check_heartbeat(self, event: Event) -> None:
        request: Any = event.request
        response: Any = event.answer
        if request.member_epoch < 0:
            return
        due_ms = event.runtime.due_ms(("session", request.group_id, response.member_id))
        timeout_ms = event.context.group_configs.of(request.group_id)[self.setting]
        assert due_ms == timeout_ms, (
            f"{response.member_id} sent a heartbeat, but its session ends in {due_ms} ms, not {timeout_ms}"
        )


class ExpiredMembersLeave(ModernInvariant[G]):
    """A session or a rebalance timeout that expires removes its member, and no other."""

    unrevoked: object
    """State of a member that has to confirm a revocation."""

    def after(self, event: Event) -> None:
        if event.kind != "timer" or event.outcome is None or len(event.key) < 3:
            return
        kind, name, member_id = event.key
        old, group = event.before.groups.get(name), event.after.groups.get(name)
        if not isinstance(old, self.group_type):
            return
        removed = old.members.keys() - (set(group.members) if group is not None else set())
        expires = kind != "revocation" or old.members[member_id].current.state is self.unrevoked
        expected = {member_id} if expires else set()
        assert removed == expected, (
            f"{event.key} removed {sorted(removed)} from {old!r}, expected {sorted(expected)}"
        )


class FixedRevocationTimeouts(ModernInvariant[G]):
    """A member has its rebalance timeout to confirm a revocation; later targets and heartbeats do not extend
    it."""

    def __init__(self) -> None:
        self.deadlines: dict[tuple[str, str], float] = {}

    def after(self, event: Event) -> None:
        if event.kind == "loaded":
            self.deadlines.clear()
        for name, group in event.after.groups.items():
            if isinstance(group, self.group_type):
                for member_id, member in group.members.items():
                    self._check_member(event, name, member_id, member)

    def _check_member(self, event: Event, name: str, member_id: str, member: Member) -> None:
        deadline = event.runtime.coordinator.deadlines.get(("revocation", name, member_id))
        known = self.deadlines.pop((name, member_id), None)
        if deadline is None:
            return
        self.deadlines[name, member_id] = deadline
        if event.kind in ("timer", "append failed") and event.outcome is None:
            return  # The decision exceeded a batch: the timer expires again.
        if known is None or deadline == known:
            return
        before = event.before.groups.get(name)
        old = before.members.get(member_id) if isinstance(before, self.group_type) else None
        assert old is not None, f"{name}: {member_id} has to revoke, but was no member before"
        changed = old.current.pending_revocation != member.current.pending_revocation
        assert changed, f"{name}: the revocation timeout of {member_id} was extended"
        due_ms = event.runtime.due_ms(("revocation", name, member_id))
        assert due_ms == member.rebalance_timeout_ms, (
            f"{name}: {member_id} has {due_ms} ms to revoke, not {member.rebalance_timeout_ms}"
        )


# --- requests --------------------------------------------------------------------------------------


class ExpectedHeartbeatErrors(ModernInvariant[G]):
    """A heartbeat is answered with the error that the protocol requires; a rejected one changes nothing."""

    api: str

    def expected_error(self, event: Event) -> Errors | None:
        """Return the error that a heartbeat must be answered with; None if another invariant decides that."""
        raise NotImplementedError

    def after(self, event: Event) -> None:
        if not event.is_request(self.api):
            return
        expected = self.expected_error(event)
        if expected is None:
            return
        request, error = event.request, event.error
        sender = f"{request.member_id!r} ({request.instance_id}) at {request.member_epoch}"
        group = event.before.groups.get(request.group_id)
        assert error is expected, f"{sender} of {group!r} is answered {error!r}, not {expected!r}"
        rejected = error is not Errors.NONE
        assert not (rejected and event.changed), f"{sender} is rejected, but something changed"


class CacheableResponses(ModernInvariant[G]):
    """A response that the coordinator declares cacheable is repeatable: deciding its request again writes
    nothing, and sets the same timers."""

    def repeated_response(self, event: Event) -> Any:
        """Decide the request of the event a second time, and return that response; None if the response is
        not cacheable."""
        core = event.runtime.core
        cacheable = core.cacheable(event.request, event.context)
        if cacheable is None:
            return None
        assert core.is_current(cacheable[0]), "the cacheable response is already outdated"
        repeated = core.handle(event.request, event.context)
        assert not repeated.records, f"the same request again would write {repeated.records}"
        assert not repeated.soft_records, f"the same request again would store {repeated.soft_records}"
        assert not repeated.effects, f"the same request again has the effects {repeated.effects}"
        assert cacheable[1] == repeated.timers, f"{cacheable[1]} are cached, not {repeated.timers}"
        return repeated.replies[0].response


class FencedCommits(ModernInvariant[G]):
    """A commit is accepted at the member's epoch; at an older one, for partitions that the member has owned
    at least since that epoch."""

    def owned_since(self, group: G, member: Any, topic: Topic, partition: int) -> int | None:
        """Return the epoch since which a member owns a partition of a topic; None if it does not own it."""
        raise NotImplementedError

    def after(self, event: Event) -> None:
        if event.kind != "request" or event.api not in ("OffsetCommit", "OffsetFetch"):
            return
        if event.api == "OffsetFetch":
            self._check_fetch(event)
            return
        request = event.request
        group = event.before.groups.get(request.group_id)
        if isinstance(group, self.group_type):
            expected = self._expected_error(event, group)
            sender = f"{request.member_id} at {request.generation_id_or_member_epoch} of {group!r}"
            assert event.error is expected, f"{sender} commits: {event.error!r}, not {expected!r}"

    def _expected_error(self, event: Event, group: G) -> Errors:
        request, epoch = event.request, event.request.generation_id_or_member_epoch
        if epoch < 0 and not group.members:
            return Errors.NONE
        member = group.members.get(request.member_id)
        if member is None:
            return Errors.UNKNOWN_MEMBER_ID
        if member.classic is None and event.version < 9:
            return Errors.UNSUPPORTED_VERSION
        if epoch > member.current.epoch:
            return _stale(member)
        if epoch == member.current.epoch:
            return Errors.NONE
        max_bytes = event.context.config["offset.metadata.max.bytes"]
        for topic in request.topics:
            found = event.runtime.topics.by_name.get(topic.name)
            for p in topic.partitions:
                is_too_long = len(p.committed_metadata or "") > max_bytes
                if found is None or not 0 <= p.partition_index < found.partitions or is_too_long:
                    continue  # The partition has an error of its own.
                since = self.owned_since(group, member, found, p.partition_index)
                if since is None or epoch < since:
                    return _stale(member)
        return Errors.NONE

    def _check_fetch(self, event: Event) -> None:
        for requested in event.request.groups:
            group = event.runtime.core.groups.get(requested.group_id)
            of_no_member = requested.member_id is None and requested.member_epoch < 0
            if not isinstance(group, self.group_type) or of_no_member:
                continue
            member = group.members.get(requested.member_id or "")
            expected = Errors.UNKNOWN_MEMBER_ID if member is None else _stale(member)
            if member is None or requested.member_epoch != member.current.epoch:
                assert event.error is expected, (
                    f"{requested.member_id} fetches: {event.error!r}, not {expected!r}"
                )
            return


def _stale(member: Member) -> Errors:
    return Errors.STALE_MEMBER_EPOCH if member.classic is None else Errors.ILLEGAL_GENERATION


class ServedClassicMembers(ModernInvariant[G]):
    """The generation of a classic member is its epoch, and it has to rejoin exactly when its assignment
    changes."""

    def rejoin_causes(self, event: Event, group: G, member: Any) -> list[str]:
        """Return the causes for which a member has to rejoin, after its heartbeat."""
        raise NotImplementedError

    def check_join(self, event: Event) -> None:
        """Check the response of a JoinGroup."""
        raise NotImplementedError

    def after(self, event: Event) -> None:
        if not event.is_request("Heartbeat", "JoinGroup", "SyncGroup"):
            return
        request = event.request
        group = event.before.groups.get(request.group_id)
        if not isinstance(group, self.group_type):
            return
        if event.api == "JoinGroup":
            self.check_join(event)
            return
        member = group.members.get(request.member_id)
        if member is None or member.classic is None:
            assert event.outcome is None, f"{request.member_id} is not a classic member, but was accepted"
        elif request.group_instance_id in (None, member.instance_id):
            current = request.generation_id == member.current.epoch
            assert (event.error is Errors.ILLEGAL_GENERATION) == (not current), (
                f"{request.member_id} of generation {request.generation_id} is at {member.current.epoch}:"
                f" {event.error!r}"
            )
            if event.api == "Heartbeat" and current:
                causes = self.rejoin_causes(event, group, member)
                expected = Errors.REBALANCE_IN_PROGRESS if causes else Errors.NONE
                assert event.error is expected, (
                    f"{request.member_id}: {event.error!r}, causes to rejoin: {causes}"
                )
