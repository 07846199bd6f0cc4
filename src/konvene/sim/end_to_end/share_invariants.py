"""Invariants of share groups on a complete broker, one class for each.

The ledgers of `sim.share.ledger` receive each decision of the broker's share partitions and outlive the
broker. Other invariants use the messages of clients only: a request that was sent after a response was
received must see the effect of that response.

Violations that a ledger reports keep its names: `RecordsAreAcquiredOnce`, `AcknowledgementsAreKept`,
`DeliveriesAreCounted`, `OnlyOwnersAcknowledge`, `InFlightIsBounded`, `NoRecordIsLost`,
`StartOffsetsNeverRegress`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from konvene.broker.node_services import NodeServices
from konvene.broker.shares.share_partition import SharePartitionServer
from konvene.broker.shares.share_partitions import SharePartitions
from konvene.broker.shares.state_coordinators import SHARE_STATE_SERDE, ShareCoordinators
from konvene.client.net.cluster import TopicPartition
from konvene.client.share.consumer import ShareRecord
from konvene.codec.batches import read_end_marker, records
from konvene.codec.uuid import Uuid
from konvene.delivery.contract import Acknowledged, Change, RecordState
from konvene.internal_topics import SHARE_STATE_TOPIC
from konvene.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from konvene.messages.share_fetch import (
    AcquiredRecords,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)
from konvene.records.coordinator import Record
from konvene.runtime.journal import Journal
from konvene.share_state.requests import SharePartitionKey
from konvene.share_state.shard import ShareStateShard
from konvene.share_state.state import PositionedRecord, SharePartitionState
from konvene.sim.end_to_end.broker import BROKER, DATA
from konvene.sim.end_to_end.invariant import Invariant, Violation
from konvene.sim.end_to_end.mirror import LogReader
from konvene.sim.end_to_end.transactional_clients import OUTPUT
from konvene.sim.machine.disk import SimDisk
from konvene.sim.share.ledger import DONE, FINAL, DeliveryLedger, Entry, each_offset
from konvene.sim.share.recording import RecordingSharePartitions
from konvene.sim.world.event import InvariantViolation

if TYPE_CHECKING:
    from konvene.runtime.coordinator import Coordinator
    from konvene.sim.end_to_end.clients import Client
    from konvene.sim.end_to_end.history import PendingRequest
    from konvene.sim.end_to_end.run import EndToEndRun

__all__ = ["SHARE_INVARIANTS", "RecordsHaveOneOwner", "unread"]

TERMINAL = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED)
SLOW_CHECK_INTERVAL = 20
"""Number of checks between two runs of an expensive check."""
LATE_S = 1.0
"""Maximum delay of an expired lock or a response to a fetch."""


class Contents:
    """The offsets of a transactional log on disk, by kind: `markers` of transactions, records of `committed`
    transactions, and records of `aborted` ones."""

    def __init__(self, disk: SimDisk, folder: str) -> None:
        self._reader = LogReader(disk, folder)
        self._open: dict[int, list[int]] = {}
        self.markers: set[int] = set()
        self.aborted: set[int] = set()
        self.committed: set[int] = set()

    def __repr__(self) -> str:
        return f"<{len(self.committed)} committed, {len(self.aborted)} aborted, {len(self.markers)} markers>"

    def refresh(self) -> Contents:
        """Add the batches that were appended since the last call, and return this object."""
        for header, batch in self._reader.new_batches():
            offsets = range(header.base_offset, header.next_offset)
            if not header.is_control:
                self._open.setdefault(header.producer_id, []).extend(offsets)
                continue
            self.markers.update(offsets)
            marker = next(map(read_end_marker, records(batch, header)), None)
            ended = self._open.pop(header.producer_id, [])
            is_good = marker is not None and marker.committed
            (self.committed if is_good else self.aborted).update(ended)
        return self


class EndToEndLedger(DeliveryLedger):
    """The ledger of one share partition over all lives of the broker. It reads the partition's log from
    disk."""

    def __init__(self, run: EndToEndRun, key: SharePartitionKey, topic: str) -> None:
        super().__init__(key, self._report, Counter())
        self.run = run
        self.place = TopicPartition(topic, key.partition)
        self.read_committed = (
            run.parameters.share.groups[key.group_id]["share.isolation.level"] == "read_committed"
        )
        self.contents: Contents | None = None
        self.final_offsets: set[int] = set()
        """Offsets with an accepted final acknowledgement."""
        self.delivery_counts: dict[int, int] = {}
        """Highest delivery count of each offset."""

    def _report(self, violation: InvariantViolation) -> None:
        self.run.loop.halt(Violation(violation.invariant, violation.why))

    def refresh_contents(self) -> Contents | None:
        """Read the new batches of the log and return its contents; None for every topic except the
        transactional output topic, as only its log contains transactions."""
        if self.place.topic != OUTPUT:
            return None
        if self.contents is None:
            self.contents = Contents(self.run.host.disk, f"{DATA}/{self.place}")
        return self.contents.refresh()

    def is_unreadable(self, offset: int) -> bool:
        """Return True if the group cannot read a record at this offset: it is a marker, or aborted."""
        contents = self.contents
        return contents is not None and (
            offset in contents.markers or (self.read_committed and offset in contents.aborted)
        )

    def is_done(self, offset: int) -> bool:
        """Return True if the record has a final acknowledgement, was delivered up to the limit, or cannot be
        read."""
        given_up = self.delivery_counts.get(offset, 0) >= self.terms.delivery_count_limit
        return offset in self.final_offsets or given_up or self.is_unreadable(offset)

    def _acquire(self, member: str, offset: int, entry: Entry, count: int) -> None:
        super()._acquire(member, offset, entry, count)
        self.delivery_counts[offset] = max(count, self.delivery_counts.get(offset, 0))
        contents = self.refresh_contents() if self.read_committed else None
        if contents is not None and offset not in contents.committed and offset not in contents.markers:
            self._violate(
                "OnlyCommittedRecordsAreDelivered",
                f"{member} got {offset} of a transaction that was not committed",
            )

    def acknowledged(
        self, owner: object, member: str, acks: Iterable[Acknowledged], change: Change | None, now_ms: int
    ) -> None:
        acknowledgements = tuple(acks)
        super().acknowledged(owner, member, acknowledgements, change, now_ms)
        self.final_offsets.update(offset for offset, kind in each_offset(acknowledgements) if kind in FINAL)

    def start_moved(self, start: int, log_start: int) -> None:
        if start > self.start and self.refresh_contents() is not None:
            for offset in range(self.start, start):
                if self.is_unreadable(offset):
                    self.entries[offset] = Entry(DONE)
        super().start_moved(start, log_start)


class RecordsHaveOneOwner(Invariant):
    """No member gets a record that another one has acquired or that is acknowledged; deliveries are counted;
    expired locks are released within a second; and the acquired records are those of the ledger."""

    def __init__(self, run: EndToEndRun) -> None:
        super().__init__(run)
        self.ledgers: dict[SharePartitionKey, EndToEndLedger] = {}
        if run.parameters.share.groups:
            run.host.make_share_partitions = self._make_share_partitions

    def _make_share_partitions(
        self, node: NodeServices, share_coordinators: ShareCoordinators
    ) -> SharePartitions:
        """Return the share partitions for a broker that is about to start; they report to the ledgers."""

        def ledger_of(key: SharePartitionKey) -> DeliveryLedger:
            if key not in self.ledgers:
                self.ledgers[key] = EndToEndLedger(
                    self.run, key, node.catalogue.topics.by_id[key.topic_id].name
                )
            return self.ledgers[key]

        for ledger in self.ledgers.values():
            ledger.contents = None
        return RecordingSharePartitions(node, share_coordinators, ledger_of, self._member_left)

    def _member_left(self, group_id: str, member_id: str) -> None:
        for served in serving(self.run):
            if served.key.group_id != group_id:
                continue
            offset = self.ledgers[served.key].first_offset_of(member_id)
            if offset is not None:
                why = f"{served.key}: {member_id} has left, but has record {offset}"
                self.run.loop.halt(Violation("RemovedMembersOwnNoRecords", why))

    def settled(self) -> None:
        if self.run.was_paused(BROKER, self.run.loop.now - LATE_S):
            return
        for served in serving(self.run):
            ledger = self.ledgers[served.key]
            overdue = ledger.overdue_lock(round((self.run.loop.now - LATE_S) * 1000))
            if overdue is not None:
                self.broken(f"{served.key}: the lock of {overdue} has expired: {ledger.entries[overdue]!r}")
            difference = ledger.difference(served.core.in_flight())
            if difference is not None:
                self.broken(f"{served.key}: {difference}")


class AcknowledgedRecordsAreNotRedelivered(Invariant):
    """A record is in no ShareFetch response to a request that was sent after its final acknowledgement was
    confirmed; and only acknowledgements that the broker accepted are confirmed."""

    def __init__(self, run: EndToEndRun) -> None:
        super().__init__(run)
        self._ended: dict[SharePartitionKey, dict[int, int]] = defaultdict(dict)
        """Time of the confirmation of each final acknowledgement, by the clock of the history."""
        self._unconfirmed: Counter[tuple[str, Uuid, int, int]] = Counter()
        """Confirmations that a client received and has not passed to its caller yet: client, topic,
        partition, offset."""
        self._confirmed: deque[tuple[float, str, Uuid, int, tuple[int, ...]]] = deque()
        """Confirmations that callers received and that are not compared yet: time, client, topic, partition,
        offsets."""
        self._ids: dict[str, Uuid] = {}
        limit = run.parameters.share.settings.get("group.share.delivery.count.limit", "0")
        self._limit = int(limit)

    def answered(self, pending: PendingRequest, answer: object) -> None:
        request = pending.request
        if not isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest):
            return
        if not isinstance(answer, ShareFetchResponse | ShareAcknowledgeResponse) or answer.error_code:
            return
        group_id = request.group_id or ""
        errors: dict[tuple[Uuid, int], int] = {}
        for answered in answer.responses:
            for row in answered.partitions:
                key = SharePartitionKey(group_id, Uuid(answered.topic_id), row.partition_index)
                if isinstance(row, PartitionData):
                    self._check_acquired(pending, key, row.acquired_records)
                    errors[key.topic_id, key.partition] = row.acknowledge_error_code
                else:
                    errors[key.topic_id, key.partition] = row.error_code
        for topic in request.topics:
            for partition in topic.partitions:
                key = SharePartitionKey(group_id, Uuid(topic.topic_id), partition.partition_index)
                is_acknowledged = errors.get((key.topic_id, key.partition)) == 0
                if is_acknowledged and partition.acknowledgement_batches:
                    self._note_acknowledged(pending, key, partition.acknowledgement_batches)

    def _check_acquired(
        self, pending: PendingRequest, key: SharePartitionKey, acquired: Iterable[AcquiredRecords]
    ) -> None:
        ended = self._ended[key]
        for row in acquired:
            if not 1 <= row.delivery_count <= self._limit:
                self.broken(
                    f"{pending.client_id} got {row} of {key}, but the delivery limit is {self._limit}"
                )
            for offset in range(row.first_offset, row.last_offset + 1):
                if ended.get(offset, pending.began) < pending.began:
                    self.broken(
                        f"{pending.client_id} got {key} offset {offset}, delivery {row.delivery_count},"
                        f" requested at {pending.began}; its acknowledgement was confirmed at {ended[offset]}"
                    )

    def _note_acknowledged(
        self, pending: PendingRequest, key: SharePartitionKey, batches: Iterable[Any]
    ) -> None:
        now = self.run.history.tick()
        acks = (Acknowledged(b.first_offset, b.last_offset, b.acknowledge_types) for b in batches)
        for offset, kind in each_offset(acks):
            self._unconfirmed[pending.client_id, key.topic_id, key.partition, offset] += 1
            if kind in FINAL:
                self._ended[key].setdefault(offset, now)

    def shared(self, client: Client, record: ShareRecord) -> None:
        """Check that the value of a record that a share consumer received is the one in the log."""
        self._ids[record.topic] = record.topic_id
        if record.topic not in self.run.topics:
            return
        place = TopicPartition(record.topic, record.partition)
        self.run.look(place)
        expected = self.run.mirror.at(place, record.offset)
        if expected != record.value:
            self.broken(
                f"{client.client_id} got {record.value!r} at {place} offset {record.offset}, not {expected!r}"
            )

    def acknowledged(self, client: Client, place: TopicPartition, offsets: tuple[int, ...]) -> None:
        topic_id = self._ids.get(place.topic)
        if topic_id is not None:
            self._confirmed.append((self.run.loop.now, client.client_id, topic_id, place.partition, offsets))

    def settled(self) -> None:
        """Check that each confirmation that the client library passed to its caller was in a response of the
        broker.

        The check waits until the clock has moved, because the caller may receive a confirmation before this
        invariant receives the response."""
        while self._confirmed and self._confirmed[0][0] < self.run.loop.now:
            _, client_id, topic_id, index, offsets = self._confirmed.popleft()
            for offset in offsets:
                if not self._unconfirmed[client_id, topic_id, index, offset]:
                    self.broken(
                        f"{client_id} got a confirmation never sent: {topic_id}-{index} offset {offset}"
                    )
                self._unconfirmed[client_id, topic_id, index, offset] -= 1


class AcknowledgementsAreStored(Invariant):
    """Confirmed acknowledgements are in the state of the share coordinator, in every life."""

    def started(self) -> None:
        self.run.check_when_loaded(self._check_states)

    def settled(self) -> None:
        if self.run.checks % SLOW_CHECK_INTERVAL == 0:
            self._check_states()

    def liveness(self) -> None:
        self._check_states()

    def ended(self) -> None:
        self._check_states()

    def _check_states(self) -> None:
        states = {key: state for shard in state_shards(self.run) for key, state in shard.states.items()}
        for key, ledger in ledgers(self.run).items():
            state = states.get(key)
            if state is None:  # Its coordinator is loading.
                continue
            done = {o for b in state.batches if b.delivery_state in TERMINAL
                    for o in range(b.first_offset, b.last_offset + 1)}  # fmt: skip
            for offset, ack_type in ledger.confirmed.items():
                if offset >= state.start_offset and offset not in done:
                    self.broken(
                        f"{key} offset {offset} was confirmed as {ack_type}, but the state is {state}"
                    )


class EveryRecordEnds(Invariant):
    """Without faults each record is finally accepted, rejected, or delivered up to the limit."""

    def liveness(self) -> None:
        unread_partitions = unread(self.run)
        if unread_partitions:
            self.broken("; ".join(unread_partitions[:5]))
        for key, ledger in ledgers(self.run).items():
            ledger.refresh_contents()
            for offset in range(ledger.start):
                if not ledger.is_done(offset):
                    self.broken(
                        f"{key} passed over {offset}, which was never acknowledged and was delivered"
                        f" {ledger.delivery_counts.get(offset, 0)} times"
                    )


class AvailableRecordsAreDelivered(Invariant):
    """No ShareFetch waits for a second while a record is available for it."""

    def __init__(self, run: EndToEndRun) -> None:
        super().__init__(run)
        self._since: dict[object, float] = {}

    def began(self) -> None:
        self._since.clear()

    def settled(self) -> None:
        now, before = self.run.loop.now, self._since
        self._since = {}
        if self.run.was_paused(BROKER, now - LATE_S) or self.run.disk_has_failed:
            return
        for served in serving(self.run):
            if not served.can_acquire or served.core.next_fetch_offset >= served.readable_end():
                continue
            for watch in served.waiting:
                fetch: Any = getattr(watch, "fetch", None)
                if fetch.request.min_bytes > 1 or not fetch.session_fetch.is_open:
                    continue
                since = self._since[watch] = before.get(watch, now)
                if now - since > LATE_S:
                    self.broken(
                        f"{fetch.member_id} waits since {since:.3f} s for {served.key}, but can acquire"
                        f" {served.core.next_fetch_offset} of {served.readable_end()}: {served.core!r}"
                    )


class ShareStateIsStored(Invariant):
    """The state of a share coordinator equals the replay of its log on the disk."""

    def __init__(self, run: EndToEndRun) -> None:
        super().__init__(run)
        self._shadows: dict[int, tuple[LogReader, ShareStateShard]] = {}

    def began(self) -> None:
        self._shadows.clear()

    def settled(self) -> None:
        disk, broker = self.run.host.disk, self.run.host.broker
        if (
            disk.dead
            or self.run.host.disk_is_offline
            or broker is None
            or not self.run.parameters.share.groups
        ):
            return
        for coordinator in broker.share_coordinators.all():
            index = int(coordinator.name.rpartition("-")[2])
            if coordinator.state != "active" or has_buffered_records_of(coordinator):
                continue
            assert isinstance(coordinator.core, ShareStateShard)
            if index not in self._shadows:
                reader = LogReader(disk, f"{DATA}/{SHARE_STATE_TOPIC}-{index}")
                self._shadows[index] = reader, ShareStateShard(coordinator.core.updates_per_snapshot)
            reader, shadow = self._shadows[index]
            for header, batch in reader.new_batches():
                for _, _, record in SHARE_STATE_SERDE.read(batch, header):
                    assert isinstance(record, Record | PositionedRecord)
                    shadow.replay(record)
            live, replayed = coordinator.core.states, shadow.states
            for key in sorted(live.keys() | replayed.keys()):
                if _written(live.get(key)) != _written(replayed.get(key)):
                    self.broken(f"{key}: live {live.get(key)}, replayed {replayed.get(key)}")


def _written(state: SharePartitionState | None) -> SharePartitionState | None:
    """Return the state with its number of `updates` since the last snapshot set to 0, for a comparison with a
    replayed state: a replay does not see updates whose records were deleted. None stays None."""
    return None if state is None else state._replace(updates=0)


SHARE_INVARIANTS: tuple[type[Invariant], ...] = (
    RecordsHaveOneOwner,
    AcknowledgedRecordsAreNotRedelivered,
    AcknowledgementsAreStored,
    EveryRecordEnds,
    AvailableRecordsAreDelivered,
    ShareStateIsStored,
)


# --- state of the run ----------------------------------------------------------------------------


def ledgers(run: EndToEndRun) -> dict[SharePartitionKey, EndToEndLedger]:
    """Return, by share partition, the ledgers of all share partitions that any life of the broker has loaded
    in this run."""
    return next(p for p in run.invariants if isinstance(p, RecordsHaveOneOwner)).ledgers


def serving(run: EndToEndRun) -> Iterator[SharePartitionServer]:
    """Yield the loaded share partitions of the broker; none while it is down."""
    broker = run.host.broker
    if broker is not None and run.host.is_up and run.parameters.share.groups:
        for served in broker.share_partitions.served.values():
            if served.loaded:
                yield served


def state_shards(run: EndToEndRun) -> Iterator[ShareStateShard]:
    """Yield the shards of the active share coordinators."""
    broker = run.host.broker
    if broker is not None and run.host.is_up:
        for coordinator in broker.share_coordinators.all():
            if coordinator.state == "active" and isinstance(coordinator.core, ShareStateShard):
                yield coordinator.core


def has_buffered_records_of(coordinator: Coordinator) -> bool:
    """Return True if the coordinator has applied records that its journal has not written to the log yet."""
    journal = coordinator._journal
    assert isinstance(journal, Journal)
    return bool(journal.buffered)


def unread(run: EndToEndRun) -> list[str]:
    """Return a line, with the position, for each partition that a share group has not read to its end.

    Without a running broker, return a line about that if the run has share groups."""
    broker, unfinished = run.host.broker, []
    if broker is None:
        return ["there is no broker"] if run.parameters.share.groups else []
    for group, topics in run.parameters.share.topics.items():
        for place in run.places(topics):
            key = SharePartitionKey(group, broker.catalogue.topics.by_name[place.topic].id, place.partition)
            served, partition = broker.share_partitions.served.get(key), broker.partitions.get(*place)
            if partition is None:
                unfinished.append(f"{key} has no partition")
            elif served is None or not served.loaded or served.core.start_offset < partition.end_offset:
                position = served and served.core
                unfinished.append(f"{group} is in {place} at {position!r} of {partition.end_offset}")
    return unfinished
