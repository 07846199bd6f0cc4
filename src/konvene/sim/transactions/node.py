"""What stands between clients, coordinators and logs where there are transactions.

A request about transactions goes to their coordinator. A write, to the output topic or of a group's offsets,
is let in where its transaction is open already; else the coordinator is asked first, which verifies that the
partition was added, or adds it, and in the moment of the append it is looked at once more (KIP-890). When the
coordinator has decided an end, markers travel to every log of it, one by one, and the last one that is
durable is told to the coordinator. All of it takes its time; each step may be the last one before somebody
dies, and what was under way for a coordinator that is no more is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from konvene.codec.batches import read_header
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.log.errors import Refused
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from konvene.messages.end_txn import EndTxnRequest
from konvene.messages.init_producer_id import InitProducerIdRequest
from konvene.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from konvene.messages.txn_offset_commit import TxnOffsetCommitRequest
from konvene.records.coordinator import decode_transaction_record, encode_transaction_record
from konvene.runtime.coordinator import RequestContext
from konvene.shard.contract import Effect, Ending
from konvene.shard.image import Topic, Topics
from konvene.sim.journal import Log, batch_of
from konvene.sim.members.committer import Committer
from konvene.sim.transactions.invariants import TransactionInvariant, transaction_invariants
from konvene.sim.transactions.ledger import Ledger, Place
from konvene.sim.transactions.logs import OutputLog
from konvene.sim.transactions.runtime import Event, TransactionRuntime
from konvene.sim.world import fault_actions
from konvene.sim.world.event import Event as GroupEvent
from konvene.transactions.markers import (
    WRITE_MARKERS,
    MarkersToWrite,
    MarkersWritten,
    ProducerIdFetched,
)
from konvene.transactions.state import LAST_EPOCH, Transaction, to_record

if TYPE_CHECKING:
    from konvene.sim.world.faults import Options
    from konvene.sim.world.process import Process
    from konvene.sim.world.world import World

OUTPUT = "output"
OF_BROKERS = 5
"""The version of AddPartitionsToTxn in which a broker asks."""
FIRST_THAT_ADDS = {ProduceRequest: 12, TxnOffsetCommitRequest: 5}
"""From which version on a write adds its partition by itself."""
NOT_READY_MS = 50
"""When one is sent again that came to somebody who was not ready."""
SENT_AGAIN_MS = 2_000
"""When a marker is sent again of which nothing was heard."""

FOR_THE_COORDINATOR = (
    InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest,
)  # fmt: skip
WRITES = tuple(FIRST_THAT_ADDS)
ABOUT_TRANSACTIONS = (*FOR_THE_COORDINATOR, *WRITES)

NOT_READY = (
    Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.UNKNOWN_SERVER_ERROR,
)  # fmt: skip

Answered = Callable[[Struct | Errors], None]


class Transactions:
    """See the top of this file."""

    def __init__(self, world: World) -> None:
        self.world = world
        count: int = world.options["output.partitions"]
        self.topics = Topics(
            [Topic(OUTPUT, Uuid(OUTPUT.ljust(16, "-").encode()), count),
             Topic(OFFSETS_TOPIC, Uuid(OFFSETS_TOPIC[:16].encode()), 1)]
        )  # fmt: skip
        self.features = {"transaction.version": world.options["transaction.version"]}
        self.logs = {index: OutputLog() for index in range(count)}
        self.log = Log()
        self.ledger = Ledger(world, self)
        self.invariants: list[TransactionInvariant] = transaction_invariants()
        self.runtime = self._new_runtime()
        self._last_id = 1_000

    def __repr__(self) -> str:
        return f"<{self.runtime!r}, {self.ledger!r}>"

    def begin(self) -> list[Process]:
        """Let the coordinator load; the clients that there are beside the members."""
        world = self.world
        if world.options["worn"]:
            names = [f"x-c{number + 1}" for number in range(world.options["members"])]
            worn = [
                Transaction(name, self._fresh_id(), producer_epoch=LAST_EPOCH - world.random.randint(1, 8),
                            timeout_ms=10_000, last_update_ms=world.event_queue.wall_clock_ms())
                for name in names
            ]  # fmt: skip
            records = [to_record(each, self.features["transaction.version"]) for each in worn]
            pairs = [encode_transaction_record(record) for record in records]
            self.log.batches.append(batch_of(pairs, 0, decode_transaction_record))
            self.log.durable = self.runtime.lost = 1  # It is not what the shell before had.
        self.runtime.load()
        return [Committer(world, f"t{number + 1}") for number in range(world.options["committers"])]

    # --- its coordinator ---

    def _new_runtime(self) -> TransactionRuntime:
        world = self.world
        new = TransactionRuntime(
            world.event_queue,
            lambda: world.config,
            log=self.log,
            topics=lambda: self.topics,
            features=lambda: self.features,
            load_ms=lambda: world.latency_ms("load.ms"),
            observe=lambda event: self._observe(new, event),
            perform=lambda effect: self._perform(new, effect),
        )
        return new

    def _observe(self, runtime: TransactionRuntime, event: Event) -> None:
        if runtime is not self.runtime:
            return
        world = self.world
        world.counts[f"transactions {event.kind}"] += 1
        if event.kind == "request":
            world.counts[f"{event.api} {event.error.name}"] += 1
        for invariant in self.invariants:
            invariant.check(event)
        self.ledger.log_event(event)

    def step(self) -> None:
        """After a step of the world: what waits for the disk gets there in a while."""
        runtime = self.runtime
        runtime.finish()
        if runtime.sync_pending and not runtime.disk_busy:
            runtime.disk_busy = True
            self.world.event_queue.after(self.world.latency_ms("sync.ms"), self._synced, runtime)

    def _synced(self, runtime: TransactionRuntime) -> None:
        runtime.disk_busy = False
        if runtime is not self.runtime:
            return
        fails = self.world.conditions["sync.fails"]
        if fails and self.world.random.random() < fails:
            self.world.log_event("disk", "fails to sync transactions", None)
            runtime.fail_sync()
        else:
            runtime.complete_sync()

    def fail_over(self) -> None:
        """The coordinator dies; what was not durable is lost, in part or as a whole; another one reads."""
        random, old = self.world.random, self.runtime
        old.die()
        left, least = len(self.log.batches) - self.log.durable, 0
        if not self.world.config["konvene.log.fsync.topics"]:  # What was written was told, and is kept.
            least = max(0, self.log.written - self.log.durable)
        lost = self.log.lose_tail(random.choice([least, left, random.randint(least, left)]))
        self.runtime = new = self._new_runtime()
        new.ended, new.lost = old.last_state(), old.lost + lost
        new.load()

    # --- what clients ask ---

    def takes(self, request: Struct) -> bool:
        return isinstance(request, ABOUT_TRANSACTIONS)

    def rests_on_order(self, request: Struct, version: int) -> bool:
        """Whether it may not come late, by a connection that is no more, of a client that lives: where one
        epoch is that of many transactions nobody can tell of which one it was."""
        if not self.takes(request) or isinstance(request, InitProducerIdRequest | ProduceRequest):
            return False
        if isinstance(request, EndTxnRequest):
            return version < OF_BROKERS
        return version < FIRST_THAT_ADDS.get(type(request), 99)

    def arrive(self, client: Process, request: Any, version: int, answered: Answered) -> None:
        """A request about transactions came."""
        if isinstance(request, ProduceRequest):
            self._produce(request, version, answered)
        elif isinstance(request, TxnOffsetCommitRequest):
            self._commit(client, request, version, answered)
        else:
            self._submit(request, version, client.name, answered)

    def _submit(self, request: Any, version: int, client_id: str, answered: Answered) -> None:
        runtime, world = self.runtime, self.world
        fresh = -1
        if (
            runtime.is_active
            and runtime.core.needs_producer_id(request, version)
            and world.random.random() < 0.95
        ):
            fresh = self._fresh_id()
        fault_actions.append_faults(world, runtime)

        def leaves(answer: Struct | Errors) -> None:
            self.ledger.answered(request, answer)
            answered(answer)

        runtime.ask(request, RequestContext(version, client_id, "/10.0.0.1", fresh_producer_id=fresh), leaves)

    def _fresh_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # --- writing ---

    def _enlisted(
        self, writer: tuple[str, int, int], place: Place, *, adds: bool, then: Callable[[Errors], None]
    ) -> None:
        """Have the coordinator verify that a partition was added, or add it. Until somebody goes on from
        there, much may happen."""
        transactional_id, producer_id, epoch = writer
        request = AddPartitionsToTxnRequest(
            transactions=(
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch,
                    verify_only=not adds,
                    topics=(AddPartitionsToTxnTopic(name=place[0], partitions=(place[1],)),),
                ),
            )
        )  # fmt: skip

        def told(answer: Any) -> None:
            error = answer
            if not isinstance(answer, Errors):
                (result,) = answer.results_by_transaction
                error = Errors(result.topic_results[0].results_by_partition[0].partition_error_code)
            self.world.event_queue.after(self.world.latency_ms("marker.ms"), then, error)

        self._submit(request, OF_BROKERS, "broker", told)

    def _produce(self, request: ProduceRequest, version: int, answered: Answered) -> None:
        (topic,) = request.topic_data
        (row,) = topic.partition_data
        data = bytes(row.records or b"")
        header = read_header(data)
        assert request.transactional_id is not None
        writer = request.transactional_id, header.producer_id, header.producer_epoch
        log, place = self.logs[row.index], (OUTPUT, row.index)
        adds = version >= FIRST_THAT_ADDS[ProduceRequest]

        def tell(error: Errors, offset: int = -1) -> None:
            told = PartitionProduceResponse(index=row.index, error_code=error, base_offset=offset)
            topics = (TopicProduceResponse(name=OUTPUT, partition_responses=(told,)),)
            answered(ProduceResponse(responses=topics))

        def append(error: Errors) -> None:
            was_open = log.is_open(*writer[1:])
            if error is Errors.NONE and not was_open and not self._is_enlisted(writer, place):
                error = Errors.NOT_ENOUGH_REPLICAS
            if error is not Errors.NONE:
                tell(error)
                return
            try:
                offset, is_new = log.append(data, sequence_zero=adds)
            except Refused as refused:
                tell(Errors(refused.code))
                return
            if is_new:
                self.ledger.wrote(writer, place, log.batches[-1].values, was_open=was_open)
            tell(Errors.NONE, offset)

        if log.is_open(*writer[1:]):
            append(Errors.NONE)
        else:
            self._enlisted(writer, place, adds=adds, then=append)

    def _is_enlisted(self, writer: tuple[str, int, int], place: Place) -> bool:
        return self.runtime.is_active and self.runtime.core.is_enlisted(*writer, *place)

    def _commit(
        self, client: Process, request: TxnOffsetCommitRequest, version: int, answered: Answered
    ) -> None:
        world, place = self.world, (OFFSETS_TOPIC, 0)
        writer = request.transactional_id, request.producer_id, request.producer_epoch

        asked_by = client.life, client.connection

        def commit(error: Errors) -> None:
            if self.rests_on_order(request, version) and asked_by != (client.life, client.connection):
                return  # It was given up meanwhile.
            was_open = self._offsets_open(*writer[1:])
            if error is Errors.NONE and not was_open and not self._is_enlisted(writer, place):
                error = Errors.NOT_COORDINATOR
            if error is not Errors.NONE:
                answered(error)
                return
            runtime = world.runtime
            fault_actions.append_faults(world, runtime)
            runtime.ask(request, RequestContext(version, client.name, "/10.0.0.1"), answered)

        if self._offsets_open(*writer[1:]):
            commit(Errors.NONE)
        else:
            adds = version >= FIRST_THAT_ADDS[TxnOffsetCommitRequest]
            self._enlisted(writer, place, adds=adds, then=commit)

    def _offsets_open(self, producer_id: int, epoch: int) -> bool:
        known = self.world.log.producers.by_id.get(producer_id)
        return known is not None and known.transaction_start is not None and known.epoch == epoch

    # --- ending ---

    def _perform(self, runtime: TransactionRuntime, effect: Effect) -> None:
        world = self.world
        if effect.verb == WRITE_MARKERS:
            Carrier(self, runtime, effect.subject).begin()
        else:
            world.event_queue.after(
                world.latency_ms("marker.ms"), self._id_comes, runtime, runtime.core, effect
            )

    def _id_comes(self, runtime: TransactionRuntime, core: Any, effect: Effect) -> None:
        if runtime.core is core and runtime is self.runtime:
            runtime.inform(ProducerIdFetched(effect.subject, self._fresh_id()))

    def group_event(self, event: GroupEvent) -> None:
        """Something happened to the groups' coordinator."""
        self.ledger.group_event(event)


class Carrier:
    """The markers of one end on their way."""

    def __init__(self, node: Transactions, runtime: TransactionRuntime, markers: MarkersToWrite) -> None:
        self.node = node
        self.world = node.world
        self.runtime = runtime
        self.core = runtime.core
        self.markers = markers
        self.missing = dict.fromkeys(markers.partitions)
        self.tries: dict[Place, int] = {}
        self.ending = Ending(
            markers.producer_id, markers.producer_epoch, 0, markers.committed, markers.transaction_version
        )

    def __repr__(self) -> str:
        return f"<markers of {self.markers.transactional_id}: {len(self.missing)} missing>"

    @property
    def is_wanted(self) -> bool:
        """Whether the coordinator that wants them is there, and has not read its log again since."""
        return self.runtime is self.node.runtime and self.runtime.core is self.core

    def begin(self) -> None:
        for place in self.markers.partitions:
            self._later(place)
        if not self.missing:
            self.world.event_queue.after(self.world.latency_ms("marker.ms"), self._done)

    def _later(self, place: Place, after_ms: int = 0) -> None:
        self.tries[place] = attempt = self.tries.get(place, 0) + 1
        self.world.event_queue.after(
            after_ms + self.world.latency_ms("marker.ms"), self._carry, place, attempt
        )

    def _carry(self, place: Place, attempt: int) -> None:
        if not self.is_wanted or place not in self.missing or attempt != self.tries[place]:
            return
        world = self.world
        if place[0] == OFFSETS_TOPIC:
            runtime = world.runtime
            fault_actions.append_faults(world, runtime)
            runtime.ask(
                cast("Struct", self.ending),
                RequestContext(0, "broker"),
                lambda answer: self._answered(place, answer),
            )
            if place in self.missing and attempt == self.tries[place]:
                self._later(place, SENT_AGAIN_MS)  # It may be that nobody answers.
            return
        log = self.node.logs[place[1]]
        opened = log.open_of(self.markers.producer_id)
        try:
            log.mark(self.ending, world.event_queue.wall_clock_ms())
        except Refused as refused:
            self._answered(place, Errors(refused.code))
            return
        self.node.ledger.marked(self.markers, place, opened)
        self._written(place)

    def _answered(self, place: Place, answer: Struct | Errors) -> None:
        if answer in NOT_READY:
            self._later(place, NOT_READY_MS)
        else:
            self._written(place)

    def _written(self, place: Place) -> None:
        if self.missing.pop(place, 0) is None and not self.missing:
            self._done()

    def _done(self) -> None:
        if not self.is_wanted:
            return
        markers = self.markers
        news = MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch)
        fault_actions.append_faults(self.world, self.runtime)
        if not self.runtime.inform(news):
            self.world.event_queue.after(self.world.latency_ms("marker.ms"), self._done)


def transaction_settings(options: Options) -> dict[str, str]:
    """What a broker runs with where there are transactions."""
    return {
        "offsets.topic.num.partitions": "1",
        "konvene.log.fsync.topics": str(bool(options["fsync"])).lower(),
        "transactional.id.expiration.ms": str(options["id.expiration.ms"]),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "5000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20000",
    }
