"""Ledger of transactions: writer, records, decision and result of each transaction.

A client gives each transaction a label, which is in every record that it writes and in the metadata of every
offset that it commits. An output record names the range of input records that it was made of, so the ledger
can check that every input record has exactly one committed output record. It checks:

    atomic      all records and offsets with a label are committed, or none, over all logs
    decided     a marker has the result that the coordinator decided
    open        records are written in an open transaction only, and a completed one is open nowhere
    fenced      a producer that was replaced by another one of its transactional id writes nothing; late
                records of a transaction whose markers are under way still belong to it
    once        a committed transaction continues where the last committed one of the same partition ended
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.messages.end_txn import EndTxnRequest, EndTxnResponse
from konvene.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from konvene.records.commits import Committed
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


TopicPartition = tuple[str, int]

Writer = tuple[str, int, int]
"""Transactional id, producer id, epoch."""


class Output(NamedTuple):
    """The content of an output record: the label of its transaction, and the input records that it was made
    of: those of the group's partition `key` with offsets from `begin` up to, but without, `end`."""

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
    """The ledger of all transactions of a simulated world. Its methods raise `InvariantViolation`."""

    def __init__(self, world: World, node: Transactions) -> None:
        self._world = world
        self._node = node
        self.outputs: dict[str, dict[OffsetKey, tuple[int, int]]] = {}
        """Ranges of input records of each transaction, by label and partition."""
        self.results: dict[str, tuple[bool, TopicPartition]] = {}
        """By label: whether the transaction is committed, and the partition of its first marker."""
        self._next_offsets: dict[OffsetKey, int] = {}
        """Next input offset that a committed transaction has to begin with."""
        self._undo: list[tuple[int, OffsetKey, int | None]] = []
        """Previous next offsets, with the length of the log before the change."""
        self._owners: dict[str, tuple[int, int]] = {}
        """Current producer id and epoch of each transactional id."""
        self._retired: dict[str, set[int]] = {}
        """Earlier producer ids of each transactional id."""
        self.committed = self.aborted = 0

    def __repr__(self) -> str:
        return f"<ledger: {self.committed} transactions committed, {self.aborted} aborted>"

    # --- fencing ---

    def response_sent(self, request: Struct, response: Struct | Errors) -> None:
        """Record the producer id and epoch that a successful InitProducerId or EndTxn response of the
        coordinator gives to a transactional id. A producer id that it had before is a violation."""
        if not isinstance(request, InitProducerIdRequest | EndTxnRequest) or not isinstance(
            response, InitProducerIdResponse | EndTxnResponse
        ):
            return
        if response.error_code or response.producer_id < 0 or not request.transactional_id:
            return
        name, owner = request.transactional_id, (response.producer_id, response.producer_epoch)
        before = self._owners.get(name, (-1, -1))
        retired = self._retired.setdefault(name, set())
        if owner[0] in retired:
            raise InvariantViolation(
                "EpochsRise", f"{name} gets producer id {owner[0]}, which it had before: {response}"
            )
        if owner[0] == before[0] and owner[1] < before[1]:
            return  # The late response to a retry.
        if owner[0] != before[0] and before[0] >= 0:
            retired.add(before[0])
        self._owners[name] = owner

    def _check_writer(self, writer: Writer, partition: TopicPartition, *, was_open: bool) -> None:
        name, producer_id, epoch = writer
        owner = self._owners.get(name, (-1, -1))
        fenced = producer_id in self._retired.get(name, ()) or (producer_id == owner[0] and epoch < owner[1])
        if fenced and not was_open:
            why = f"{name}: producer {producer_id}, epoch {epoch} wrote to {partition}, the owner is {owner}"
            raise InvariantViolation("FencedProducersWriteNothing", why)
        known = self._node.runtime.shadow.transactions.get(name)
        is_ongoing = (
            known is not None
            and known.state is ONGOING
            and (known.producer_id, known.producer_epoch) == (producer_id, epoch)
            and partition in known.partitions
        )
        if not (is_ongoing or was_open):
            raise InvariantViolation(
                "WritesNeedAnOpenTransaction", f"{writer} wrote to {partition}, the transaction is {known!r}"
            )

    # --- records and markers ---

    def record_batch(
        self, writer: Writer, partition: TopicPartition, values: tuple[bytes, ...], *, was_open: bool
    ) -> None:
        """Record and check a batch that `writer` appended to a partition of the output.

        `was_open`: its transaction had earlier records in this partition, and no marker yet."""
        self._check_writer(writer, partition, was_open=was_open)
        for value in values:
            output = Output.read(value)
            self._check_not_ended(output.label, partition, was_open=was_open)
            self.outputs.setdefault(output.label, {})[output.key] = (output.begin, output.end)

    def _check_not_ended(self, label: str, partition: TopicPartition, *, was_open: bool) -> None:
        """Check that records just written to a partition did not come after the end of their transaction.

        A transaction, named by its `label`, ends with its first marker in any partition. If it `was_open` in
        this one (it had records here, but no marker yet), late records are permitted until the marker."""
        if label in self.results and not was_open:
            why = f"{label} wrote to {partition} after its end: {self._result(label)}"
            raise InvariantViolation("TransactionsAreAtomic", why)

    def _result(self, label: str) -> str:
        committed, partition = self.results[label]
        return f"{'committed' if committed else 'aborted'} in {partition[0]}-{partition[1]}"

    def _record_result(self, label: str, committed: bool, partition: TopicPartition) -> None:
        if label not in self.results:
            self.results[label] = (committed, partition)
            self.committed += committed
            self.aborted += not committed
        elif self.results[label][0] != committed:
            result = "committed" if committed else "aborted"
            why = f"{label} is {result} in {partition}, but {self._result(label)}"
            raise InvariantViolation("TransactionsAreAtomic", why)

    def record_marker(
        self, markers: MarkersToWrite, partition: TopicPartition, open_values: tuple[bytes, ...]
    ) -> None:
        """Record a marker that was appended to a partition of the output.

        It is the result of the transaction that wrote the records `open_values` there; if these are empty, no
        transaction was open and there is nothing to record."""
        if open_values:
            self._check_decision(markers.producer_id, markers.committed, partition)
        for value in open_values:
            self._record_result(Output.read(value).label, markers.committed, partition)

    def _check_decision(self, producer_id: int, committed: bool, partition: TopicPartition) -> None:
        state = PREPARE_COMMIT if committed else PREPARE_ABORT
        for known in self._node.runtime.shadow.transactions.values():
            if known.producer_id == producer_id:
                if known.state is not state:
                    raise InvariantViolation(
                        "MarkersMatchDecisions",
                        f"{partition} has a marker with committed={committed}, the transaction is {known!r}",
                    )
                return
        raise InvariantViolation(
            "MarkersMatchDecisions", f"{partition} has a marker of the unknown producer {producer_id}"
        )

    # --- events of coordinators ---

    def transaction_event(self, event: Event) -> None:
        """Check each transaction that `event` of the transaction coordinator completes: it may be open in
        none of its partitions."""
        for name, now in event.after.items():
            if now is event.before.get(name) or now.state not in (COMPLETE_COMMIT, COMPLETE_ABORT):
                continue
            before = event.before.get(name)
            if before is None or event.kind == "loaded":
                continue
            for topic, index in sorted(before.partitions):
                self._check_closed(before.producer_id, before.state, (topic, index))

    def _check_closed(self, producer_id: int, state: TransactionState, partition: TopicPartition) -> None:
        if partition[0] == OFFSETS_TOPIC:
            known = self._world.log.producers.by_id.get(producer_id)
            is_open = known is not None and known.transaction_start is not None
            runtime = self._world.runtime
            if runtime.coordinator.state == "active":
                is_open = is_open or producer_id in runtime.core.pending.by_producer
        else:
            is_open = bool(self._node.logs[partition[1]].open_of(producer_id))
        if is_open:
            why = f"the transaction of {producer_id} is complete after {state.name}, but open in {partition}"
            raise InvariantViolation("CompletedTransactionsAreClosed", why)

    def group_event(self, event: GroupEvent) -> None:
        """Record and check what an event of the group coordinator appended: offsets committed in a
        transaction, or a marker. After a load, forget what its log has lost."""
        if event.kind == "loaded":
            self._truncate(len(event.runtime.log.batches))
        batch = event.batch
        if batch is None:
            return
        if batch.producer is not None:
            request = event.request
            writer = request.transactional_id, batch.producer.producer_id, batch.producer.epoch
            was_open = _was_open(event)
            self._check_writer(writer, (OFFSETS_TOPIC, 0), was_open=was_open)
            for record in batch.records:
                self._check_not_ended(record.record.committed.metadata, (OFFSETS_TOPIC, 0), was_open=was_open)
        elif batch.ending is not None:
            self._record_offsets_marker(event, batch.ending)

    def _record_offsets_marker(self, event: GroupEvent, ending: Ending) -> None:
        batches = event.runtime.log.batches[:-1]
        pending: dict[OffsetKey, Committed] = {}
        for batch in reversed(batches):
            if batch.ending is not None and batch.ending.producer_id == ending.producer_id:
                break
            if batch.producer is None or batch.producer.producer_id != ending.producer_id:
                continue
            for record in batch.records:
                if isinstance(record, InTransaction):
                    commit = record.record
                    pending.setdefault((commit.group, commit.topic, commit.partition), commit.committed)
        if pending:
            self._check_decision(ending.producer_id, ending.committed, (OFFSETS_TOPIC, 0))
        for key, committed in pending.items():
            self._record_result(committed.metadata, ending.committed, (OFFSETS_TOPIC, 0))
            if ending.committed:
                self._check_exactly_once(event, key, committed.metadata, committed.offset)

    def _check_exactly_once(self, event: GroupEvent, key: OffsetKey, label: str, offset: int) -> None:
        """Check a committed transaction: its output is made of the input records of `key` up to `offset`,
        which it commits, and begins where the previous committed transaction of `key` ended."""
        read = self.outputs.get(label, {}).get(key)
        if read is None:
            if label.startswith("plain"):
                return
            raise InvariantViolation(
                "ExactlyOnce", f"{label} commits {offset} of {key} without output records"
            )
        begin, end = read
        if end != offset:
            raise InvariantViolation(
                "ExactlyOnce", f"{label} commits {offset} of {key}, its output is of {begin} to {end}"
            )
        expected = self._next_offsets.get(key, 0)
        if not self._world.oracle.is_uncertain(key) and begin != expected:
            problem = "duplicates" if begin < expected else "gap"
            raise InvariantViolation(
                "ExactlyOnce", f"{label} has {begin} to {end} of {key}, expected {expected}: {problem}"
            )
        self._undo.append((len(event.runtime.log.batches), key, self._next_offsets.get(key)))
        self._next_offsets[key] = end

    def _truncate(self, end: int) -> None:
        """Undo what this ledger recorded for committed offsets after the first `end` batches of the group
        coordinator's log, because the log has lost these batches."""
        while self._undo and self._undo[-1][0] > end:
            _, key, before = self._undo.pop()
            if before is None:
                self._next_offsets.pop(key, None)
            else:
                self._next_offsets[key] = before

    # --- liveness ---

    def left_open(self) -> list[str]:
        """Return a line for each transaction that the coordinator has not completed, or that is still open in
        a partition."""
        unfinished = [
            f"{t!r}"
            for t in self._node.runtime.core.transactions.values()
            if t.state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
        ]
        for index, log in self._node.logs.items():
            unfinished += [f"{p} in output-{index}" for p in sorted(log.producers.by_id) if log.open_of(p)]
        unfinished += [
            f"{p} in {OFFSETS_TOPIC}" for p in sorted(self._world.runtime.core.pending.by_producer)
        ]
        return unfinished


def _was_open(event: GroupEvent) -> bool:
    """Return True if, in the log of the group coordinator, the producer of the event's batch already had an
    open transaction before that batch."""
    assert event.batch is not None
    assert event.batch.producer is not None
    known = event.runtime.log.producers.by_id.get(event.batch.producer.producer_id)
    start = None if known is None else known.transaction_start
    return start is not None and start < len(event.runtime.log.batches) - 1
