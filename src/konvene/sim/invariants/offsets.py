"""Invariants of whoever commits offsets, of any kind of group.

`OffsetsAreTheLastCommitted` keeps books of its own: of each commit that was accepted, by what its answer
says, with the number of the batch that it is in. When a log loses its tail, so do the books.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from konvene.codec.compile import decode_from
from konvene.codec.errors import CodecError
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.classic.subscriptions import CONSUMER
from konvene.groups.consumer.group import ConsumerGroup
from konvene.groups.group_type import Group, is_empty
from konvene.groups.offsets.expiry import EXPIRY_KEY as RETENTION
from konvene.groups.offsets.expiry import NEXT_BATCH_MS
from konvene.groups.share.group import ShareGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.groups.streams.topology.expressions import expand_expressions
from konvene.messages.consumer_protocol import ConsumerProtocolSubscription
from konvene.records.commits import Committed, OffsetCommitted
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.sim.invariants.classic.generations import accepts_earlier_epoch
from konvene.sim.invariants.classic.state import SETTLED, is_member
from konvene.sim.journal import Batch
from konvene.sim.world.event import EMPTY_VIEW, MODERN_GROUP_TYPES, Event, Invariant, OffsetKey

KINDS = ()


class Entry(NamedTuple):
    """What was accepted for a partition."""

    offset: int
    leader_epoch: int
    metadata: str
    topic_id: Uuid


def entry_of(held: Committed) -> Entry:
    return Entry(held.offset, held.leader_epoch, held.metadata, held.topic_id)


class OnlyMembersCommit(Invariant):
    """O1: a commit is accepted where it comes from a member of the generation, or from no member of an empty
    group; and never while the group waits for its leader. Its session begins anew. A group that was a streams
    group until now hears members at earlier epochs, while its first rebalance lasts."""

    def after(self, event: Event) -> None:
        if not event.is_request("OffsetCommit", "TxnOffsetCommit"):
            return
        if isinstance(event.before.groups.get(event.request.group_id), MODERN_GROUP_TYPES):
            return  # Its rules are others.
        if event.api == "TxnOffsetCommit":
            self._in_transaction(event)
            return
        said, group = event.request, event.group_before
        generation = said.generation_id_or_member_epoch
        known = said.group_id in event.before.groups
        alone = generation < 0 and (not known or group.state is State.EMPTY)
        member = known and is_member(group, said.member_id, said.group_instance_id)
        is_heard = generation == group.generation or accepts_earlier_epoch(group, generation)
        current = member and is_heard and group.state is not State.COMPLETING_REBALANCE
        may = alone or current
        who = f"{said.member_id!r} in generation {generation} of {group!r}"
        assert (event.error is Errors.NONE) == may, f"{who} may commit: {may}; answered {event.error!r}"
        if current and not alone:
            due_ms = event.runtime.due_ms(("session", said.group_id, said.member_id))
            told_ms = group.members[said.member_id].session_timeout_ms
            assert due_ms == told_ms, f"{who} committed; its session ends in {due_ms} ms, not {told_ms}"

    def _in_transaction(self, event: Event) -> None:
        """A client that is too old to name a member may; a group that waits for its leader is no reason not
        to, and no session begins anew."""
        said, group = event.request, event.group_before
        generation = said.generation_id_or_member_epoch
        unnamed = not said.member_id and said.group_instance_id is None
        known = said.group_id in event.before.groups
        alone = generation < 0 and (not known or unnamed or group.state is State.EMPTY)
        member = known and is_member(group, said.member_id, said.group_instance_id)
        may = alone or (
            member and (generation == group.generation or accepts_earlier_epoch(group, generation))
        )
        who = f"{said.member_id!r} in generation {generation} of {group!r}"
        assert (event.error is Errors.NONE) == may, f"{who} may commit: {may}; answered {event.error!r}"


class OffsetsAreTheLastCommitted(Invariant):
    """O2: what is held and what is fetched is what was accepted last. O5: it goes when somebody deletes it,
    its group or its topic, or when its time is up; no restart and no rebalance takes it. O3, O4: what is
    committed in transactions is told as unstable to who asks, and counts from the end on; of all commits the
    last one in the log."""

    def __init__(self) -> None:
        self.books: dict[OffsetKey, Entry] = {}
        self.journal: deque[tuple[int, OffsetKey, Entry | None]] = deque()
        """What is not durable yet: the batch that it is in, and what the books had before."""
        self.pending: dict[int, dict[OffsetKey, tuple[int, Entry]]] = {}
        """By producer: what its open transaction commits, and in which batch."""
        self.written: dict[OffsetKey, int] = {}
        """In which batch it is what counts last; only of partitions that some transaction is about."""

    def after(self, event: Event) -> None:
        if event.kind == "request" and event.outcome is not None:
            wrong = self._asked(event)
        elif event.kind == "timer" and event.key == RETENTION and event.changed:
            wrong = []
            for key in list(event.before.offsets):
                if key not in event.after.offsets:
                    self._write(event, key, None)
        elif event.is_complete:
            self._whole(event)
            return
        else:
            wrong = []
        if self.pending and event.batch is not None:
            for record in event.batch.records:
                if type(record) is OffsetCommitted and record.committed is None:
                    self._forget((record.group, record.topic, record.partition))
        if event.changed:
            wrong += [key for key in event.after.offsets if self._is_wrong(event, key)]
            wrong += [key for key in event.before.offsets if self._is_wrong(event, key)]
        assert not wrong, self._why(event, wrong)

    def _whole(self, event: Event) -> None:
        if event.kind == "loaded":
            if event.before is EMPTY_VIEW:  # A log that somebody else wrote.
                self.books = {key: entry_of(held) for key, held in event.after.offsets.items()}
            self._lose(len(event.runtime.log.batches))
            self._read_pending(event.runtime.log.batches)
        open_ = {who: set(keys) for who, keys in event.runtime.core.pending.by_producer.items()}
        told = {who: set(keys) for who, keys in self.pending.items() if keys}
        assert open_ == told, f"pending is {open_}, and should be {told}"
        held = event.after.offsets
        wrong = [key for key in held if self._is_wrong(event, key)]
        wrong += [key for key in self.books if key not in held]
        assert not wrong, self._why(event, wrong)

    def _is_wrong(self, event: Event, key: OffsetKey) -> bool:
        held, entry = event.after.offsets.get(key), self.books.get(key)
        if held is None or entry is None:
            return held is not None or entry is not None
        return (held.offset, held.leader_epoch, held.metadata, held.topic_id) != entry

    def _why(self, event: Event, wrong: list[OffsetKey]) -> str:
        key = wrong[0]
        return f"{key}: held {event.after.offsets.get(key)}, accepted last {self.books.get(key)}"

    # --- the books ---

    def _write(self, event: Event, key: OffsetKey, entry: Entry | None) -> None:
        log = event.runtime.log
        end = len(log.batches)
        if log.durable < end:
            self.journal.append((end, key, self.books.get(key)))
        elif self.journal:
            self.journal.clear()
        if entry is None:
            self.books.pop(key, None)
            self._forget(key)
        else:
            self.books[key] = entry
            self.written[key] = end

    def _forget(self, key: OffsetKey) -> None:
        """A tombstone takes away what is pending as well."""
        self.written.pop(key, None)
        for held in self.pending.values():
            held.pop(key, None)

    # --- transactions ---

    def _read_pending(self, batches: Sequence[Batch]) -> None:
        """What the log says of transactions that are open, and where what counts stands."""
        self.pending.clear()
        self.written.clear()
        for at, batch in enumerate(batches, 1):
            for record in batch.records:
                if type(record) is InTransaction:
                    told = record.record
                    key = (told.group, told.topic, told.partition)
                    held = self.pending.setdefault(record.producer_id, {})
                    held[key] = (at, entry_of(told.committed))
                elif type(record) is TransactionEnded:
                    held = self.pending.pop(record.producer_id, {})
                    for key, (since, _) in held.items() if record.committed else ():
                        self.written[key] = max(since, self.written.get(key, 0))
                elif type(record) is OffsetCommitted:
                    key = (record.group, record.topic, record.partition)
                    if record.committed is None:
                        self._forget(key)
                    else:
                        self.written[key] = at

    def _ended(self, event: Event) -> None:
        """O4: all of a transaction counts from here on, but for what others committed behind; or nothing."""
        for key, (since, entry) in self.pending.pop(event.request.producer_id, {}).items():
            if event.request.committed and since > self.written.get(key, 0):
                self._write(event, key, entry)
                self.written[key] = since

    def _is_unstable(self, key: OffsetKey) -> bool:
        return any(key in held for held in self.pending.values())

    def _lose(self, end: int) -> None:
        """The log ends here: the books say what they said then."""
        while self.journal:
            batch, key, before = self.journal.pop()
            if batch <= end:
                self.journal.append((batch, key, before))
                return
            if before is None:
                self.books.pop(key, None)
            else:
                self.books[key] = before

    # --- what was answered ---

    def _asked(self, event: Event) -> list[OffsetKey]:
        """Write down what was accepted; which partitions are not as they were told."""
        if event.api == "OffsetCommit":
            return self._committed(event)
        if event.api == "TxnOffsetCommit":
            self._committed(event)
        elif event.api == "Ending":
            self._ended(event)
        if event.api == "OffsetFetch":
            self._fetched(event)
        elif event.api == "OffsetDelete":
            told: Any = event.answer
            for topic in told.topics:
                for p in topic.partitions:
                    if not p.error_code:
                        self._write(event, (event.request.group_id, topic.name, p.partition_index), None)
        elif event.api == "DeleteGroups":
            told = event.answer
            gone = {r.group_id for r in told.results if not r.error_code}
            for key in [key for key in self.books if key[0] in gone]:
                self._write(event, key, None)
        elif event.api == "DeleteTopics":
            ids = {topic.name: (topic.topic_id, ZERO_UUID) for topic in event.request.topics}
            known = [*self.books.items()]
            known += [(key, entry) for held in self.pending.values() for key, (_, entry) in held.items()]
            for key in [key for key, entry in known if entry.topic_id in ids.get(key[1], ())]:
                self._write(event, key, None)
        return []

    def _committed(self, event: Event) -> list[OffsetKey]:
        said, told, topics = event.request, event.answer, event.runtime.topics
        assert not isinstance(told, Errors | None)
        answered: Any = told
        written = []
        expand_expressions = len(said.topics) == len(answered.topics)
        assert expand_expressions, (
            f"{len(said.topics)} topics were committed, {len(answered.topics)} answered"
        )
        for topic, answers in zip(said.topics, answered.topics, strict=True):
            known = topics.by_name.get(topic.name) if topic.name else topics.by_id.get(topic.topic_id)
            for p, a in zip(topic.partitions, answers.partitions, strict=True):
                assert p.partition_index == a.partition_index, f"{a.partition_index} is answered for another"
                if a.error_code:
                    continue
                there = known is not None and 0 <= p.partition_index < known.partitions
                assert there, f"{topic.name}-{p.partition_index} was committed and is not there"
                assert known is not None
                for_ever = getattr(said, "retention_time_ms", -1) == -1
                topic_id = known.id if for_ever else ZERO_UUID
                key = (said.group_id, known.name, p.partition_index)
                metadata = p.committed_metadata or ""
                entry = Entry(p.committed_offset, p.committed_leader_epoch, metadata, topic_id)
                if event.api == "TxnOffsetCommit":
                    at = len(event.runtime.log.batches)
                    self.pending.setdefault(said.producer_id, {})[key] = (at, entry)
                    continue
                self._write(event, key, entry)
                written.append(key)
        return [key for key in written if key not in event.after.offsets]

    def _fetched(self, event: Event) -> None:
        """By name: by id there may be a topic of that name that was made since (O7)."""
        if event.version >= FIRST_VERSION_WITH_TOPIC_IDS:
            return
        told: Any = event.answer
        for group in told.groups:
            found = 0
            for topic in group.topics:
                for p in topic.partitions:
                    key = (group.group_id, topic.name, p.partition_index)
                    entry = self.books.get(key)
                    unstable = event.request.require_stable and self._is_unstable(key)
                    told_so = p.error_code == Errors.UNSTABLE_OFFSET_COMMIT
                    assert unstable == told_so, f"{key} is unstable: {unstable}; told is {p}"
                    if unstable:
                        found += entry is not None
                        continue
                    expected = (entry.offset, entry.metadata) if entry is not None else (-1, "")
                    answer = (p.committed_offset, p.metadata)
                    where = f"{group.group_id} {topic.name}-{p.partition_index}"
                    assert answer == expected, f"{where} is told as {answer}, accepted last was {expected}"
                    found += entry is not None
            if any(g.group_id == group.group_id and g.topics is None for g in event.request.groups):
                all_of_it = sum(key[0] == group.group_id for key in self.books)
                assert found == all_of_it, f"{group.group_id}: {found} offsets are told of {all_of_it}"


FIRST_VERSION_WITH_TOPIC_IDS = 10


class OffsetsExpireAfterRetention(Invariant):
    """O5: an offset expires only of an empty group, or of a topic that nobody of a stable group reads; when
    it is as old as it said itself, or has been of no use for `offsets.retention.minutes`. Then it does."""

    def after(self, event: Event) -> None:
        if event.kind == "audit":
            assert RETENTION in event.runtime.coordinator.deadlines, "nobody looks for what has expired"
        if event.kind != "timer" or event.key != RETENTION:
            return
        kept_ms = event.runtime.config["offsets.retention.minutes"] * 60_000
        if event.changed:
            now_ms = event.runtime.now_ms
            for key, told in event.before.offsets.items():
                if key not in event.after.offsets:
                    open_ = event.runtime.core.pending.of(key[0]).get(key[1], {}).get(key[2])
                    assert not open_, f"{key} expired, and a transaction commits it: {open_}"
                    self._expired(event.before.groups[key[0]], key, told, now_ms, kept_ms)
        if event.outcome is not None:
            due_ms = event.runtime.due_ms(RETENTION)
            interval_ms = event.runtime.config["offsets.retention.check.interval.ms"]
            assert due_ms in (interval_ms, NEXT_BATCH_MS), f"what has expired is looked for in {due_ms} ms"
            if due_ms == interval_ms:
                self._left(event, kept_ms)

    def _expired(self, group: Group, key: OffsetKey, told: Committed, now_ms: int, kept_ms: int) -> None:
        if isinstance(group, ClassicGroup):
            assert group.state in SETTLED, f"{key} expired of {group!r}"
        if group.members:
            if isinstance(group, ClassicGroup):
                assert group.protocol_type == CONSUMER, f"{key} expired; what {group!r} reads nobody knows"
            assert key[1] not in subscribed_topics(group, key[1:2]), f"{key} expired, and {group!r} reads it"
        expires_ms = _expires_ms(group, told, kept_ms)
        assert now_ms >= expires_ms, f"{key} expired at {now_ms}, before {expires_ms}"

    def _left(self, event: Event, kept_ms: int) -> None:
        """What is left of no use is not as old yet; an empty group of which nothing is left is gone."""
        now_ms, core = event.runtime.now_ms, event.runtime.core
        for name, group in core.groups.items():
            by_topic, open_ = core.offsets.get(name, {}), core.pending.of(name)
            if is_empty(group) and not isinstance(group, ShareGroup):
                assert by_topic or open_, f"{group!r} has nothing left, and is still there"
                read: set[str] = set()
            elif isinstance(group, MODERN_GROUP_TYPES) or (
                group.state is State.STABLE and group.subscribed is not None
            ):
                read = subscribed_topics(group, by_topic)
            else:  # On its way, or nobody knows what its members read.
                continue
            for topic, partitions in by_topic.items():
                late = [
                    c for p, c in partitions.items()
                    if now_ms >= _expires_ms(group, c, kept_ms) and p not in open_.get(topic, ())
                ]  # fmt: skip
                assert topic in read or not late, f"{name} {topic}: {late[0]} should have expired by {now_ms}"


def _expires_ms(group: Group, told: Committed, kept_ms: int) -> int:
    """When an offset that nobody reads expires: when it said itself, or so long after it was of use last."""
    if told.expire_ms != -1:
        return told.expire_ms
    since_ms = told.commit_ms
    if isinstance(group, MODERN_GROUP_TYPES):
        return since_ms + kept_ms
    if group.state is State.EMPTY and not group.is_simple and group.state_timestamp_ms != -1:
        since_ms = group.state_timestamp_ms
    return since_ms + kept_ms


class SubscribedOffsetsStay(Invariant):
    """O5: OffsetDelete takes offsets of an empty group, or of a topic that no member reads."""

    def after(self, event: Event) -> None:
        if not event.changed or not event.before.offsets:
            return
        for key in event.before.offsets:
            if key in event.after.offsets:
                continue
            group = event.before.groups.get(key[0])
            if group is not None and group.members and not event.is_request("DeleteTopics"):
                by = event.is_request("OffsetDelete") or event.key == RETENTION
                assert by, f"{key} of {group!r} is gone by {event.api or event.key}"
                # Who is to be in the next generation and was not in the last one reads nothing yet.
                settled = group.state is not State.PREPARING_REBALANCE
                known = isinstance(group, MODERN_GROUP_TYPES) or group.protocol_type == CONSUMER
                assert known, f"{key} is gone; what {group!r} reads nobody knows"
                reads = settled and key[1] in subscribed_topics(group, key[1:2])
                assert not reads, f"{key} is gone, and {group!r} reads it"


class OnlyEmptyGroupsAreDeleted(Invariant):
    """O6: a group is deleted only when it is empty, and its offsets with it."""

    def after(self, event: Event) -> None:
        if not event.changed:
            return
        for name, group in event.before.groups.items():
            if name in event.after.groups:
                continue
            by = event.is_request("DeleteGroups") or event.key == RETENTION
            assert by, f"{group!r} is gone by {event.api or event.key}"
            assert is_empty(group), f"{group!r} is deleted"
            left = event.runtime.core.offsets.get(name)
            assert not left, f"{group!r} is deleted, its offsets are there: {left}"
            held = event.runtime.core.pending.of(name)
            assert not held, f"{group!r} is deleted, and transactions commit in it: {held}"


class RecreatedTopicsHaveNoOffsets(Invariant):
    """O7: who asks by topic id is not told what was committed for another topic of that name.

    Where the log has no room for the topic's id, because it says when the offset expires, nobody knows."""

    def after(self, event: Event) -> None:
        if event.api != "OffsetFetch" or event.version < FIRST_VERSION_WITH_TOPIC_IDS:
            return
        told: Any = event.answer
        for group, topic, p in _partitions(told):
            known = event.runtime.topics.by_id.get(topic.topic_id)
            if known is None:
                assert p.error_code == Errors.UNKNOWN_TOPIC_ID, f"{topic.topic_id} is not there: {p}"
                continue
            by_topic = event.runtime.core.offsets.get(group, {})
            held = by_topic.get(known.name, {}).get(p.partition_index)
            own = held is not None and held.topic_id in (ZERO_UUID, topic.topic_id)
            offset = held.offset if own and held is not None else -1
            assert p.committed_offset == offset, f"{group} {known.name}: {p.committed_offset}, not {offset}"


def _partitions(answer: Any) -> Iterator[tuple[str, Any, Any]]:
    for group in getattr(answer, "groups", ()):
        for topic in group.topics:
            for p in topic.partitions:
                yield group.group_id, topic, p


def subscribed_topics(group: Group, asked: Iterable[str]) -> set[str]:
    """The topics that members say they read, each by itself; what cannot be read says nothing.

    `asked`: those that it is about, where nobody has found out yet what expressions match."""
    topics: set[str] = set()
    if isinstance(group, ConsumerGroup):
        for reader in group.members.values():
            topics |= reader.topics
            if reader.regex in group.regexes:
                topics |= group.regexes[reader.regex].topics
        return topics
    if isinstance(group, StreamsGroup):
        if not group.members or group.topology is None:
            return set()
        known = group.soft.resolved
        if known is None:
            return {topic for topic in asked if group.reader_of(topic) is not None}
        return set(expand_expressions(group.topology, known.matches).readers)
    if isinstance(group, ShareGroup):
        return set(group.subscribers)
    for member in group.members.values():
        metadata = dict(member.protocols).get(group.protocol or "", b"")
        try:
            topics.update(decode_from(ConsumerProtocolSubscription, 0, metadata, 2)[0].topics)
        except CodecError:
            continue
    return topics
