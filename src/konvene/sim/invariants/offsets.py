"""Invariants of committed offsets, for groups of every type.

`OffsetsAreTheLastCommitted` keeps its own copy of all offsets, made from the responses to commits, with the
number of the batch that holds each. When the log loses its tail, the copy loses the same batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.classic.subscriptions import CONSUMER
from konvene.groups.group_type import Group, group_type_of, is_empty
from konvene.groups.offsets.expiry import EXPIRY_KEY as RETENTION
from konvene.groups.offsets.expiry import NEXT_BATCH_MS
from konvene.messages.offset_fetch import OffsetFetchResponsePartitions, OffsetFetchResponseTopics
from konvene.records.commits import Committed, OffsetCommitted
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.sim.invariants.classic.generations import accepts_earlier_epoch
from konvene.sim.invariants.classic.state import SETTLED, is_member
from konvene.sim.invariants.subscriptions import subscribed_topics
from konvene.sim.journal import Batch
from konvene.sim.world.event import EMPTY_VIEW, MODERN_GROUP_TYPES, Event, Invariant, OffsetKey

KINDS = ()

FIRST_VERSION_WITH_TOPIC_IDS = 10
"""First version of OffsetFetch that names topics by their ids."""


class Entry(NamedTuple):
    """The values of an accepted commit for a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    topic_id: Uuid


def entry_of(committed: Committed) -> Entry:
    """Return the entry that corresponds to a committed offset."""
    return Entry(committed.offset, committed.leader_epoch, committed.metadata, committed.topic_id)


class OnlyMembersCommit(Invariant):
    """O1: a classic group accepts a commit from a member of the current generation, or of no member if it is
    empty; never while it waits for its leader. A commit restarts the member's session. A group that was a
    streams group until now accepts earlier epochs during its first rebalance."""

    def after(self, event: Event) -> None:
        if not event.is_request("OffsetCommit", "TxnOffsetCommit"):
            return
        if isinstance(event.before.groups.get(event.request.group_id), MODERN_GROUP_TYPES):
            return  # See `FencedCommits`.
        request, group = event.request, event.group_before
        generation = request.generation_id_or_member_epoch
        exists = request.group_id in event.before.groups
        is_current = generation == group.generation or accepts_earlier_epoch(group, generation)
        by_member = exists and is_current and is_member(group, request.member_id, request.group_instance_id)
        without_member = generation < 0 and (not exists or group.state is State.EMPTY)
        if event.api == "TxnOffsetCommit":
            # Early versions have no member id. A rebalance does not matter, and no session restarts.
            unnamed = not request.member_id and request.group_instance_id is None
            without_member |= generation < 0 and unnamed
        else:
            by_member = by_member and group.state is not State.COMPLETING_REBALANCE
        accepted = without_member or by_member
        sender = f"{request.member_id!r} in generation {generation} of {group!r}"
        assert (event.error is Errors.NONE) == accepted, (
            f"the commit of {sender} is answered {event.error!r}, acceptable: {accepted}"
        )
        if event.api == "OffsetCommit" and by_member and not without_member:
            due_ms = event.runtime.due_ms(("session", request.group_id, request.member_id))
            timeout_ms = group.members[request.member_id].session_timeout_ms
            assert due_ms == timeout_ms, f"{sender} committed; its session ends in {due_ms}, not {timeout_ms}"


class OffsetsAreTheLastCommitted(Invariant):
    """O2: stored and fetched offsets are those of the last accepted commits. O5: an offset is removed only
    when it, its group or its topic is deleted, or when it expires; no restart and no rebalance removes it.
    O3, O4: offsets of an open transaction take effect when it is committed; until then a fetch that requires
    stable offsets gets UNSTABLE_OFFSET_COMMIT. Of all commits for a partition the last in the log counts."""

    def __init__(self) -> None:
        self.expected: dict[OffsetKey, Entry] = {}
        self.undo: deque[tuple[int, OffsetKey, Entry | None]] = deque()
        """Changes that are not durable: the number of the batch, and the entry before it."""
        self.pending: dict[int, dict[OffsetKey, tuple[int, Entry]]] = {}
        """By producer id: the commits of its open transaction, and the numbers of their batches."""
        self.last_batch: dict[OffsetKey, int] = {}
        """Number of the batch with the effective commit; only of partitions that transactions commit."""

    def after(self, event: Event) -> None:
        if event.is_complete:
            self._check_all(event)
            return
        wrong: list[OffsetKey] = []
        if event.kind == "request" and event.outcome is not None:
            wrong = self._record_response(event)
        elif event.kind == "timer" and event.key == RETENTION and event.changed:
            for key in list(event.before.offsets):
                if key not in event.after.offsets:
                    self._write(event, key, None)
        if self.pending and event.batch is not None:
            for record in event.batch.records:
                if type(record) is OffsetCommitted and record.committed is None:
                    self._drop_pending((record.group, record.topic, record.partition))
        if event.changed:
            wrong += [key for key in event.after.offsets if self._differs(event, key)]
            wrong += [key for key in event.before.offsets if self._differs(event, key)]
        assert not wrong, self._describe(event, wrong)

    def _check_all(self, event: Event) -> None:
        if event.kind == "loaded":
            if event.before is EMPTY_VIEW:  # The log of another process.
                self.expected = {key: entry_of(committed) for key, committed in event.after.offsets.items()}
            self._undo_lost(len(event.runtime.log.batches))
            self._replay_transactions(event.runtime.log.batches)
        by_producer = event.runtime.core.pending.by_producer
        current = {producer_id: set(keys) for producer_id, keys in by_producer.items()}
        expected = {producer_id: set(keys) for producer_id, keys in self.pending.items() if keys}
        assert current == expected, f"pending offsets are {current}, expected {expected}"
        offsets = event.after.offsets
        wrong = [key for key in offsets if self._differs(event, key)]
        wrong += [key for key in self.expected if key not in offsets]
        assert not wrong, self._describe(event, wrong)

    def _differs(self, event: Event, key: OffsetKey) -> bool:
        committed, entry = event.after.offsets.get(key), self.expected.get(key)
        if committed is None or entry is None:
            return committed is not None or entry is not None
        current = (committed.offset, committed.leader_epoch, committed.metadata, committed.topic_id)
        return current != entry

    def _describe(self, event: Event, wrong: list[OffsetKey]) -> str:
        key = wrong[0]
        return f"{key} is {event.after.offsets.get(key)}, the last accepted commit {self.expected.get(key)}"

    # --- the expected offsets ---

    def _write(self, event: Event, key: OffsetKey, entry: Entry | None) -> None:
        log = event.runtime.log
        end = len(log.batches)
        if log.durable < end:
            self.undo.append((end, key, self.expected.get(key)))
        elif self.undo:
            self.undo.clear()
        if entry is None:
            self.expected.pop(key, None)
            self._drop_pending(key)
        else:
            self.expected[key] = entry
            self.last_batch[key] = end

    def _drop_pending(self, key: OffsetKey) -> None:
        """Remove the pending commits of a partition, as the record that deletes its offset (a tombstone)
        does."""
        self.last_batch.pop(key, None)
        for commits in self.pending.values():
            commits.pop(key, None)

    def _undo_lost(self, end: int) -> None:
        """Undo the changes of the batches that the log lost: those with a number above `end`."""
        while self.undo:
            batch, key, before = self.undo.pop()
            if batch <= end:
                self.undo.append((batch, key, before))
                return
            if before is None:
                self.expected.pop(key, None)
            else:
                self.expected[key] = before

    # --- transactions ---

    def _replay_transactions(self, batches: Sequence[Batch]) -> None:
        """Rebuild the pending commits of open transactions, and the number of the batch of each committed
        offset, from all batches of the log."""
        self.pending.clear()
        self.last_batch.clear()
        for number, batch in enumerate(batches, 1):
            for record in batch.records:
                if type(record) is InTransaction:
                    commit = record.record
                    key = (commit.group, commit.topic, commit.partition)
                    commits = self.pending.setdefault(record.producer_id, {})
                    commits[key] = (number, entry_of(commit.committed))
                elif type(record) is TransactionEnded:
                    commits = self.pending.pop(record.producer_id, {})
                    for key, (written, _) in commits.items() if record.committed else ():
                        self.last_batch[key] = max(written, self.last_batch.get(key, 0))
                elif type(record) is OffsetCommitted:
                    key = (record.group, record.topic, record.partition)
                    if record.committed is None:
                        self._drop_pending(key)
                    else:
                        self.last_batch[key] = number

    def _end_transaction(self, event: Event) -> None:
        """O4: end a transaction: if it is committed, its pending commits take effect, except where the log
        has a later commit."""
        for key, (written, entry) in self.pending.pop(event.request.producer_id, {}).items():
            if event.request.committed and written > self.last_batch.get(key, 0):
                self._write(event, key, entry)
                self.last_batch[key] = written

    def _is_unstable(self, key: OffsetKey) -> bool:
        return any(key in commits for commits in self.pending.values())

    # --- responses ---

    def _record_response(self, event: Event) -> list[OffsetKey]:
        """Record the commits and deletions that a response confirms, or check the offsets in it. Return the
        partitions whose accepted commits the group has not stored."""
        if event.api == "OffsetCommit":
            return self._record_commit(event)
        if event.api == "TxnOffsetCommit":
            self._record_commit(event)
        elif event.api == "Ending":
            self._end_transaction(event)
        elif event.api == "OffsetFetch":
            self._check_fetched(event)
        elif event.api in ("OffsetDelete", "DeleteGroups", "DeleteTopics"):
            for key in self._deleted_keys(event):
                self._write(event, key, None)
        return []

    def _deleted_keys(self, event: Event) -> list[OffsetKey]:
        response: Any = event.answer
        if event.api == "OffsetDelete":
            return [
                (event.request.group_id, topic.name, p.partition_index)
                for topic in response.topics
                for p in topic.partitions
                if not p.error_code
            ]
        if event.api == "DeleteGroups":
            deleted = {result.group_id for result in response.results if not result.error_code}
            return [key for key in self.expected if key[0] in deleted]
        ids = {topic.name: (topic.topic_id, ZERO_UUID) for topic in event.request.topics}
        entries = [*self.expected.items()]
        entries += [(key, entry) for commits in self.pending.values() for key, (_, entry) in commits.items()]
        return [key for key, entry in entries if entry.topic_id in ids.get(key[1], ())]

    def _record_commit(self, event: Event) -> list[OffsetKey]:
        request, topics = event.request, event.runtime.topics
        assert not isinstance(event.answer, Errors | None)
        response: Any = event.answer
        written = []
        assert len(request.topics) == len(response.topics), (
            f"{len(request.topics)} topics were committed, {len(response.topics)} answered"
        )
        for topic, result in zip(request.topics, response.topics, strict=True):
            found = topics.by_name.get(topic.name) if topic.name else topics.by_id.get(topic.topic_id)
            for p, answered in zip(topic.partitions, result.partitions, strict=True):
                index = p.partition_index
                assert index == answered.partition_index, f"{index} is answered as {answered.partition_index}"
                if answered.error_code:
                    continue
                exists = found is not None and 0 <= index < found.partitions
                assert exists, f"the commit of {topic.name}-{index} is accepted, but it does not exist"
                assert found is not None
                unlimited = getattr(request, "retention_time_ms", -1) == -1
                key = (request.group_id, found.name, index)
                entry = Entry(
                    p.committed_offset,
                    p.committed_leader_epoch,
                    p.committed_metadata or "",
                    found.id if unlimited else ZERO_UUID,
                )
                if event.api == "TxnOffsetCommit":
                    number = len(event.runtime.log.batches)
                    self.pending.setdefault(request.producer_id, {})[key] = (number, entry)
                    continue
                self._write(event, key, entry)
                written.append(key)
        return [key for key in written if key not in event.after.offsets]

    def _check_fetched(self, event: Event) -> None:
        """Check a fetch by topic name; fetches by topic id are checked by `RecreatedTopicsHaveNoOffsets`."""
        if event.version >= FIRST_VERSION_WITH_TOPIC_IDS:
            return
        response: Any = event.answer
        requested = event.request.groups  # In the order of the response; a group may be named twice.
        for index, group in enumerate(response.groups):
            found = 0
            for topic in group.topics:
                for p in topic.partitions:
                    key = (group.group_id, topic.name, p.partition_index)
                    self._check_fetched_partition(event, key, p)
                    found += key in self.expected
            if index < len(requested) and requested[index].topics is None:
                total = sum(key[0] == group.group_id for key in self.expected)
                assert found == total, f"{group.group_id}: {found} of {total} offsets are returned"

    def _check_fetched_partition(
        self, event: Event, key: OffsetKey, fetched: OffsetFetchResponsePartitions
    ) -> None:
        unstable = event.request.require_stable and self._is_unstable(key)
        reported = fetched.error_code == Errors.UNSTABLE_OFFSET_COMMIT
        assert unstable == reported, f"{key} is unstable: {unstable}; returned is {fetched}"
        if not unstable:
            entry = self.expected.get(key)
            expected = (entry.offset, entry.metadata) if entry is not None else (-1, "")
            returned = (fetched.committed_offset, fetched.metadata)
            assert returned == expected, f"{key} is returned as {returned}, the last commit was {expected}"


class OffsetsExpireAfterRetention(Invariant):
    """O5: an offset expires only in an empty group, or for a topic that no member of a stable group
    subscribes to: at its own expiration time, or after `offsets.retention.minutes` without use. Then it does
    expire."""

    def after(self, event: Event) -> None:
        if event.kind == "audit":
            assert RETENTION in event.runtime.coordinator.deadlines, "the retention timer is not armed"
        if event.kind != "timer" or event.key != RETENTION:
            return
        retention_ms = event.runtime.config["offsets.retention.minutes"] * 60_000
        if event.changed:
            for key, committed in event.before.offsets.items():
                if key not in event.after.offsets:
                    pending = event.runtime.core.pending.of(key[0]).get(key[1], {}).get(key[2])
                    assert not pending, f"{key} expired, but a transaction commits it: {pending}"
                    self._check_expired(event, key, committed, retention_ms)
        if event.outcome is not None:
            due_ms = event.runtime.due_ms(RETENTION)
            interval_ms = event.runtime.config["offsets.retention.check.interval.ms"]
            assert due_ms in (interval_ms, NEXT_BATCH_MS), f"the next retention check is in {due_ms} ms"
            if due_ms == interval_ms:
                self._check_remaining(event, retention_ms)

    def _check_expired(self, event: Event, key: OffsetKey, committed: Committed, retention_ms: int) -> None:
        group: Group = event.before.groups[key[0]]
        if isinstance(group, ClassicGroup):
            assert group.state in SETTLED, f"{key} of {group!r} expired during a rebalance"
        if group.members:
            assert _subscriptions_are_known(group), f"{key} expired, but {group!r} is no consumer"
            assert key[1] not in subscribed_topics(group, key[1:2]), f"{key} expired, but {group!r} reads it"
        now_ms, expires_ms = event.runtime.now_ms, _expires_ms(group, committed, retention_ms)
        assert now_ms >= expires_ms, f"{key} expired at {now_ms}, before {expires_ms}"

    def _check_remaining(self, event: Event, retention_ms: int) -> None:
        """Check that unused offsets are younger than their retention, and that empty groups have offsets."""
        now_ms, core = event.runtime.now_ms, event.runtime.core
        for name, group in core.groups.items():
            by_topic, pending = core.offsets.get(name, {}), core.pending.of(name)
            if is_empty(group) and group_type_of(group).keeps_offsets:
                assert by_topic or pending, f"{group!r} is empty and has no offsets, but was not deleted"
                subscribed: set[str] = set()
            elif isinstance(group, MODERN_GROUP_TYPES) or (
                group.state is State.STABLE and group.subscribed is not None
            ):
                subscribed = subscribed_topics(group, by_topic)
            else:  # Rebalancing, or its subscriptions are unknown.
                continue
            for topic, partitions in by_topic.items():
                overdue = [
                    c for p, c in partitions.items()
                    if now_ms >= _expires_ms(group, c, retention_ms) and p not in pending.get(topic, ())
                ]  # fmt: skip
                assert topic in subscribed or not overdue, (
                    f"{name} {topic}: {overdue[0]} should have expired by {now_ms}"
                )


def _expires_ms(group: Group, committed: Committed, retention_ms: int) -> int:
    """Return when an unused offset expires: at its own expiration time, or after its last use."""
    if committed.expire_ms != -1:
        return committed.expire_ms
    if (
        isinstance(group, ClassicGroup)
        and group.state is State.EMPTY
        and not group.is_simple
        and group.state_timestamp_ms != -1
    ):
        return group.state_timestamp_ms + retention_ms
    return committed.commit_ms + retention_ms


def _subscriptions_are_known(group: Group) -> bool:
    """Return True if the group's subscriptions can be read: of classic groups, only those of consumers."""
    return not isinstance(group, ClassicGroup) or group.protocol_type == CONSUMER


class SubscribedOffsetsStay(Invariant):
    """O5: OffsetDelete removes offsets of an empty group, or of a topic that no member subscribes to."""

    def after(self, event: Event) -> None:
        if not event.changed or not event.before.offsets:
            return
        for key in event.before.offsets:
            group = event.before.groups.get(key[0])
            if key in event.after.offsets or group is None or not group.members:
                continue
            if event.is_request("DeleteTopics"):
                continue
            trigger = event.api or event.key
            expected = event.is_request("OffsetDelete") or event.key == RETENTION
            assert expected, f"{trigger} removed {key} of {group!r}"
            assert _subscriptions_are_known(group), f"{trigger} removed {key}, but {group!r} is no consumer"
            # A member that joins for the next generation only has no subscription yet.
            settled = group.state is not State.PREPARING_REBALANCE
            subscribed = settled and key[1] in subscribed_topics(group, key[1:2])
            assert not subscribed, f"{trigger} removed {key}, but {group!r} reads it"


class OnlyEmptyGroupsAreDeleted(Invariant):
    """O6: only an empty group is deleted, and its offsets with it."""

    def after(self, event: Event) -> None:
        if not event.changed:
            return
        for name, group in event.before.groups.items():
            if name in event.after.groups:
                continue
            expected = event.is_request("DeleteGroups") or event.key == RETENTION
            assert expected, f"{event.api or event.key} deleted {group!r}"
            assert is_empty(group), f"{group!r} is deleted, but not empty"
            offsets = event.runtime.core.offsets.get(name)
            assert not offsets, f"{group!r} is deleted, but has offsets: {offsets}"
            pending = event.runtime.core.pending.of(name)
            assert not pending, f"{group!r} is deleted, but transactions commit in it: {pending}"


class RecreatedTopicsHaveNoOffsets(Invariant):
    """O7: a fetch by topic id does not return offsets committed for an earlier topic of the same name.

    A record with an expiration time has no topic id; its offset is returned for any topic of the name."""

    def after(self, event: Event) -> None:
        if event.api != "OffsetFetch" or event.version < FIRST_VERSION_WITH_TOPIC_IDS:
            return
        for group, topic, p in _fetched_partitions(event.answer):
            found = event.runtime.topics.by_id.get(topic.topic_id)
            if found is None:
                assert p.error_code == Errors.UNKNOWN_TOPIC_ID, f"{topic.topic_id} does not exist: {p}"
                continue
            by_topic = event.runtime.core.offsets.get(group, {})
            committed = by_topic.get(found.name, {}).get(p.partition_index)
            valid = committed is not None and committed.topic_id in (ZERO_UUID, topic.topic_id)
            offset = committed.offset if valid and committed is not None else -1
            assert p.committed_offset == offset, f"{group} {found.name}: {p.committed_offset}, not {offset}"


def _fetched_partitions(
    response: object,
) -> Iterator[tuple[str, OffsetFetchResponseTopics, OffsetFetchResponsePartitions]]:
    """Yield the group id, topic and partition of each result of an OffsetFetch response."""
    for group in getattr(response, "groups", ()):
        for topic in group.topics:
            for p in topic.partitions:
                yield group.group_id, topic, p
