"""The books of transactions: who wrote what, what was decided, and what came of it.

A client gives each of its transactions a label, which stands in every record that it writes and beside every
offset that it commits. What is read is known by its group, partition and offset, so of each record there is
to be one in the output, among those that were committed; and the offsets of a group tell how far it has come.

    together    all that has a label counts, or nothing of it, whichever log it is in
    decided     a marker says what the coordinator decided
    open        what is written stands in a transaction that is open, and none stays open behind its end
    fenced      who was followed by another one of the same transactional id writes nothing; what comes late
                for a transaction whose markers are on their way is a part of it yet
    once        a transaction that counts goes on where the last one of these records that counted ended
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.internal_topics import OFFSETS_TOPIC
from konvene.messages.end_txn import EndTxnRequest
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.records.transactional import InTransaction
from konvene.shard.contract import Ending
from konvene.sim.world.event import Event as GroupEvent
from konvene.sim.world.event import InvariantViolation, OffsetKey
from konvene.transactions.markers import MarkersToWrite
from konvene.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)

if TYPE_CHECKING:
    from konvene.sim.transactions.node import Transactions
    from konvene.sim.transactions.runtime import Event
    from konvene.sim.world.world import World


Place = tuple[str, int]
"""Topic and partition."""

Writer = tuple[str, int, int]
"""Transactional id, producer id, epoch."""


class Output(NamedTuple):
    """What a record of the output says: which records it was made of, and in which transaction."""

    label: str
    key: OffsetKey
    begin: int
    end: int

    def value(self) -> bytes:
        group, topic, partition = self.key
        return f"{self.label} {group} {topic} {partition} {self.begin} {self.end}".encode()

    @classmethod
    def read(cls, value: bytes) -> Output:
        label, group, topic, partition, begin, end = value.decode().split()
        return cls(label, (group, topic, int(partition)), int(begin), int(end))


class Ledger:
    """See the top of this file."""

    def __init__(self, world: World, node: Transactions) -> None:
        self._world = world
        self._node = node
        self.outputs: dict[str, dict[OffsetKey, tuple[int, int]]] = {}
        """By label: of which partitions which records were read."""
        self.fates: dict[str, tuple[bool, Place]] = {}
        """By label: whether it counts, and where that was seen first."""
        self._upto: dict[OffsetKey, int] = {}
        self._undo: list[tuple[int, OffsetKey, int | None]] = []
        self._owners: dict[str, tuple[int, int]] = {}
        self._retired: dict[str, set[int]] = {}
        self.committed = self.aborted = 0

    def __repr__(self) -> str:
        return f"<ledger: {self.committed} transactions committed, {self.aborted} aborted>"

    # --- who may write ---

    def answered(self, request: Any, answer: Any) -> None:
        """An answer of the coordinator leaves: who has the id from here on."""
        if getattr(answer, "error_code", 1) or not isinstance(request, InitProducerIdRequest | EndTxnRequest):
            return
        if answer.producer_id < 0 or not request.transactional_id:
            return
        name, now = request.transactional_id, (answer.producer_id, answer.producer_epoch)
        before = self._owners.get(name, (-1, -1))
        retired = self._retired.setdefault(name, set())
        if now[0] in retired:
            raise InvariantViolation(
                "EpochsRise", f"{name} is given producer {now[0]}, which it had once: {answer}"
            )
        if now[0] == before[0] and now[1] < before[1]:
            return  # A retry, whose answer is late.
        if now[0] != before[0] and before[0] >= 0:
            retired.add(before[0])
        self._owners[name] = now

    def _may_write(self, writer: Writer, place: Place, *, was_open: bool) -> None:
        name, producer_id, epoch = writer
        owner = self._owners.get(name, (-1, -1))
        fenced = producer_id in self._retired.get(name, ()) or (producer_id == owner[0] and epoch < owner[1])
        if fenced and not was_open:
            why = f"{name}, producer {producer_id} at epoch {epoch}, wrote to {place}; it is {owner} now"
            raise InvariantViolation("ZombiesWriteNothing", why)
        known = self._node.runtime.shadow.transactions.get(name)
        stands = (
            known is not None
            and known.state is ONGOING
            and (known.producer_id, known.producer_epoch) == (producer_id, epoch)
            and place in known.partitions
        )
        if not (stands or was_open):
            raise InvariantViolation(
                "NothingIsWrittenOutside", f"{writer} wrote to {place}, and there is {known!r}"
            )

    # --- what is written ---

    def wrote(self, writer: Writer, place: Place, values: tuple[bytes, ...], *, was_open: bool) -> None:
        """A batch stands in a partition of the output."""
        self._may_write(writer, place, was_open=was_open)
        for value in values:
            told = Output.read(value)
            self._is_not_over(told.label, place, was_open=was_open)
            self.outputs.setdefault(told.label, {})[told.key] = (told.begin, told.end)

    def _is_not_over(self, label: str, place: Place, *, was_open: bool) -> None:
        """What comes late where the marker is on its way is ended by it."""
        if label in self.fates and not was_open:
            why = f"{label} writes to {place} and is over: {self._fate(label)}"
            raise InvariantViolation("TransactionsAreWhole", why)

    def _fate(self, label: str) -> str:
        committed, place = self.fates[label]
        return f"{'committed' if committed else 'aborted'} in {place[0]}-{place[1]}"

    def _came_of(self, label: str, committed: bool, place: Place) -> None:
        if label not in self.fates:
            self.fates[label] = (committed, place)
            self.committed += committed
            self.aborted += not committed
        elif self.fates[label][0] != committed:
            now = "committed" if committed else "aborted"
            raise InvariantViolation(
                "TransactionsAreWhole", f"{label} is {now} in {place}; it is {self._fate(label)}"
            )

    def marked(self, markers: MarkersToWrite, place: Place, opened: tuple[bytes, ...]) -> None:
        """A marker stands in a partition of the output, where these records were open."""
        if opened:
            self._is_decided(markers.producer_id, markers.committed, place)
        for value in opened:
            self._came_of(Output.read(value).label, markers.committed, place)

    def _is_decided(self, producer_id: int, committed: bool, place: Place) -> None:
        state = PREPARE_COMMIT if committed else PREPARE_ABORT
        for known in self._node.runtime.shadow.transactions.values():
            if known.producer_id == producer_id:
                if known.state is not state:
                    raise InvariantViolation(
                        "MarkersSayWhatWasDecided", f"{place} is told {committed}, there is {known!r}"
                    )
                return
        raise InvariantViolation(
            "MarkersSayWhatWasDecided", f"{place} has a marker of {producer_id}, whom nobody knows"
        )

    # --- what the coordinators do ---

    def log_event(self, event: Event) -> None:
        """Something happened to the coordinator of transactions: what is complete is open nowhere."""
        for name, now in event.after.items():
            if now is event.before.get(name) or now.state not in (COMPLETE_COMMIT, COMPLETE_ABORT):
                continue
            before = event.before.get(name)
            if before is None or event.kind == "loaded":
                continue
            for topic, index in sorted(before.partitions):
                self._is_over(before.producer_id, before.state, (topic, index))

    def _is_over(self, producer_id: int, state: TransactionState, place: Place) -> None:
        if place[0] == OFFSETS_TOPIC:
            known = self._world.log.producers.by_id.get(producer_id)
            left = known is not None and known.transaction_start is not None
            runtime = self._world.runtime
            if runtime.coordinator.state == "active":
                left = left or producer_id in runtime.core.pending.by_producer
        else:
            left = bool(self._node.logs[place[1]].open_of(producer_id))
        if left:
            why = f"the transaction of {producer_id} is complete after {state.name}, and open in {place}"
            raise InvariantViolation("NothingStaysOpen", why)

    def group_event(self, event: GroupEvent) -> None:
        """Something happened to the coordinator of groups."""
        if event.kind == "loaded":
            self._lose(len(event.runtime.log.batches))
        batch = event.batch
        if batch is None:
            return
        if batch.producer is not None:
            request = event.request
            writer = request.transactional_id, batch.producer.producer_id, batch.producer.epoch
            was_open = _was_open(event)
            self._may_write(writer, (OFFSETS_TOPIC, 0), was_open=was_open)
            for record in batch.records:
                self._is_not_over(record.record.committed.metadata, (OFFSETS_TOPIC, 0), was_open=was_open)
        elif batch.ending is not None:
            self._ended(event, batch.ending)

    def _ended(self, event: GroupEvent, ending: Ending) -> None:
        batches = event.runtime.log.batches[:-1]
        found: dict[OffsetKey, Any] = {}
        for batch in reversed(batches):
            if batch.ending is not None and batch.ending.producer_id == ending.producer_id:
                break
            if batch.producer is None or batch.producer.producer_id != ending.producer_id:
                continue
            for record in batch.records:
                if isinstance(record, InTransaction):
                    commit = record.record
                    found.setdefault((commit.group, commit.topic, commit.partition), commit.committed)
        if found:
            self._is_decided(ending.producer_id, ending.committed, (OFFSETS_TOPIC, 0))
        for key, committed in found.items():
            self._came_of(committed.metadata, ending.committed, (OFFSETS_TOPIC, 0))
            if ending.committed:
                self._counts(event, key, committed.metadata, committed.offset)

    def _counts(self, event: GroupEvent, key: OffsetKey, label: str, offset: int) -> None:
        """Records were made of others, and count: they were not made before, and none is left out."""
        made = self.outputs.get(label, {}).get(key)
        if made is None:
            if label.startswith("plain"):
                return
            raise InvariantViolation(
                "ExactlyOnce", f"{label} commits {offset} of {key} and wrote nothing of it"
            )
        begin, end = made
        if end != offset:
            raise InvariantViolation(
                "ExactlyOnce", f"{label} commits {offset} of {key} and wrote {begin} to {end}"
            )
        upto = self._upto.get(key, 0)
        if not self._world.oracle.is_uncertain(key) and begin != upto:
            what = "again" if begin < upto else "behind a gap"
            raise InvariantViolation(
                "ExactlyOnce", f"{label} has {begin} to {end} of {key}, {upto} is next: {what}"
            )
        self._undo.append((len(event.runtime.log.batches), key, self._upto.get(key)))
        self._upto[key] = end

    def _lose(self, end: int) -> None:
        """The log of the groups ends here: the books say what they said then."""
        while self._undo and self._undo[-1][0] > end:
            _, key, before = self._undo.pop()
            if before is None:
                self._upto.pop(key, None)
            else:
                self._upto[key] = before

    # --- in the end ---

    def left_open(self) -> list[str]:
        """Transactions that are open in a log, or not complete."""
        left = [
            f"{t!r}"
            for t in self._node.runtime.core.transactions.values()
            if t.state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
        ]
        for index, log in self._node.logs.items():
            left += [f"{p} in output-{index}" for p in sorted(log.producers.by_id) if log.open_of(p)]
        left += [f"{p} in {OFFSETS_TOPIC}" for p in sorted(self._world.runtime.core.pending.by_producer)]
        return left


def _was_open(event: GroupEvent) -> bool:
    """Whether the producer had a transaction open in the log before this batch."""
    assert event.batch is not None
    assert event.batch.producer is not None
    known = event.runtime.log.producers.by_id.get(event.batch.producer.producer_id)
    start = None if known is None else known.transaction_start
    return start is not None and start < len(event.runtime.log.batches) - 1
