"""The simulated broker's part in transactions: partition verification, appends and transaction markers.

Requests about transactions go to the transaction coordinator. A write to the output topic or of a group's
offsets is appended at once if its transaction is open in the log. Otherwise the coordinator first verifies
that the partition was added, or adds it, and this is checked again at the time of the append (KIP-890). When
the coordinator has decided the end of a transaction, a marker is sent to each of its partitions; when all are
durable the coordinator is notified. Every step takes time, and a failover may occur between any two of them.
Work for a coordinator that failed over is dropped.
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
from konvene.sim.runtime import SimulatedPorts
from konvene.sim.transactions.invariants import TransactionInvariant, transaction_invariants
from konvene.sim.transactions.ledger import Ledger, TopicPartition
from konvene.sim.transactions.logs import OutputLog
from konvene.sim.transactions.runtime import Event, TransactionRuntime
from konvene.sim.world import fault_actions
from konvene.sim.world.coordinator_node import CoordinatorNode
from konvene.sim.world.event import Event as GroupEvent
from konvene.transactions.markers import (
    WRITE_MARKERS,
    MarkersToWrite,
    MarkersWritten,
    ProducerIdFetched,
)
from konvene.transactions.shard import TransactionShard
from konvene.transactions.state import LAST_EPOCH, Transaction, to_record

if TYPE_CHECKING:
    from konvene.sim.world.faults import Options
    from konvene.sim.world.process import Process
    from konvene.sim.world.world import World

OUTPUT = "output"
BROKER_VERSION = 5
"""Version of AddPartitionsToTxn that brokers send."""
FIRST_THAT_ADDS = {ProduceRequest: 12, TxnOffsetCommitRequest: 5}
"""First version of each write that adds its partition to the transaction implicitly."""
NOT_READY_MS = 50
"""Backoff of a marker after a retriable error."""
RETRY_MS = 2_000
"""Time after which a marker without a response is sent again."""

FOR_THE_COORDINATOR = (
    InitProducerIdRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, EndTxnRequest,
)  # fmt: skip
WRITES = tuple(FIRST_THAT_ADDS)
ABOUT_TRANSACTIONS = (*FOR_THE_COORDINATOR, *WRITES)

NOT_READY = (
    Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.UNKNOWN_SERVER_ERROR,
)  # fmt: skip

Respond = Callable[[Struct | Errors], None]
"""Receives the response."""


class Transactions(CoordinatorNode[TransactionRuntime]):
    """The part of the simulated broker that serves transactions: coordinator, output topic and ledger."""

    log_name = "transactions"

    def __init__(self, world: World) -> None:
        super().__init__(world)
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
        self.runtime = self.new_runtime()
        self._last_id = 1_000

    def __repr__(self) -> str:
        return f"<{self.runtime!r}, {self.ledger!r}>"

    def start(self) -> list[Process]:
        """Load the transaction coordinator; return new clients that commit offsets in transactions without
        being group members ("committers")."""
        world = self.world
        if world.options["worn"]:
            # Producers whose epochs are almost exhausted.
            names = [f"x-c{number + 1}" for number in range(world.options["members"])]
            worn = [
                Transaction(name, self._fresh_id(), producer_epoch=LAST_EPOCH - world.random.randint(1, 8),
                            timeout_ms=10_000, last_update_ms=world.event_queue.wall_clock_ms())
                for name in names
            ]  # fmt: skip
            records = [to_record(each, self.features["transaction.version"]) for each in worn]
            pairs = [encode_transaction_record(record) for record in records]
            self.log.batches.append(batch_of(pairs, 0, decode_transaction_record))
            self.log.durable = self.runtime.lost = 1  # The previous process did not have it.
        self.runtime.load()
        return [Committer(world, f"t{number + 1}") for number in range(world.options["committers"])]

    # --- coordinator ---

    def new_runtime(self) -> TransactionRuntime:
        world = self.world
        new = TransactionRuntime(
            world.event_queue,
            SimulatedPorts(
                config=lambda: world.config,
                topics=lambda: self.topics,
                features=lambda: self.features,
                load_ms=lambda: world.latency_ms("load.ms"),
                observe=lambda event: self._observe(new, event),
                perform=lambda effect: self._perform(new, effect),
            ),
            log=self.log,
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
        self.ledger.transaction_event(event)

    def step(self) -> None:
        """Called after each step of the world: raise the first failure, or schedule the sync of the log."""
        self.runtime.finish()
        self.start_sync()

    def retained_batches(self) -> int:
        """Return how many batches of the transaction log survive a failover although they are not durable.

        With fsync of topics it is none. Without it, it is every written batch, because the requests of these
        are already answered."""
        if self.world.config["konvene.log.fsync.topics"]:
            return 0
        return max(0, self.log.written - self.log.durable)

    # --- requests of clients ---

    def handles(self, request: Struct) -> bool:
        return isinstance(request, ABOUT_TRANSACTIONS)

    def must_arrive_in_order(self, request: Struct, version: int) -> bool:
        """Return True if a request that arrives after its connection was closed must be dropped.

        That holds for requests about transactions in versions before KIP-890, where the epoch of a late
        request does not distinguish its transaction from the next one."""
        if not self.handles(request) or isinstance(request, InitProducerIdRequest | ProduceRequest):
            return False
        if isinstance(request, EndTxnRequest):
            return version < BROKER_VERSION
        return version < FIRST_THAT_ADDS.get(type(request), 99)

    def arrive(self, client: Process, request: Struct, version: int, respond: Respond) -> None:
        """Handle a transactional client's request: a write, or a request to the transaction coordinator."""
        if isinstance(request, ProduceRequest):
            self._produce(request, version, respond)
        elif isinstance(request, TxnOffsetCommitRequest):
            self._commit(client, request, version, respond)
        else:
            self._submit(request, version, client.name, respond)

    def _submit(self, request: Struct, version: int, client_id: str, respond: Respond) -> None:
        runtime, world = self.runtime, self.world
        fresh_id = -1
        if (
            runtime.is_active
            and runtime.core.needs_producer_id(request, version)
            and world.random.random() < 0.95
        ):
            fresh_id = self._fresh_id()
        fault_actions.append_faults(world, runtime)

        def complete(response: Struct | Errors) -> None:
            self.ledger.response_sent(request, response)
            respond(response)

        context = RequestContext(version, client_id, "/10.0.0.1", fresh_producer_id=fresh_id)
        runtime.ask(request, context, complete)

    def _fresh_id(self) -> int:
        self._last_id += 1
        return self._last_id

    # --- appends ---

    def _verify_partition(
        self,
        writer: tuple[str, int, int],
        partition: TopicPartition,
        *,
        adds: bool,
        then: Callable[[Errors], None],
    ) -> None:
        """Send the transaction coordinator an AddPartitionsToTxn, as a broker does: with `adds` to add the
        partition to the transaction, otherwise to verify that it was added.

        `writer` is (transactional id, producer id, epoch). `then` is called with the error code after a
        delay."""
        transactional_id, producer_id, epoch = writer
        request = AddPartitionsToTxnRequest(
            transactions=(
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch,
                    verify_only=not adds,
                    topics=(AddPartitionsToTxnTopic(name=partition[0], partitions=(partition[1],)),),
                ),
            )
        )  # fmt: skip

        def receive(answer: Any) -> None:
            error = answer
            if not isinstance(answer, Errors):
                (result,) = answer.results_by_transaction
                error = Errors(result.topic_results[0].results_by_partition[0].partition_error_code)
            self.world.event_queue.after(self.world.latency_ms("marker.ms"), then, error)

        self._submit(request, BROKER_VERSION, "broker", receive)

    def _produce(self, request: ProduceRequest, version: int, respond: Respond) -> None:
        (topic,) = request.topic_data
        (row,) = topic.partition_data
        data = bytes(row.records or b"")
        header = read_header(data)
        assert request.transactional_id is not None
        writer = request.transactional_id, header.producer_id, header.producer_epoch
        log, partition = self.logs[row.index], (OUTPUT, row.index)
        adds = version >= FIRST_THAT_ADDS[ProduceRequest]

        def respond_with(error: Errors, offset: int = -1) -> None:
            result = PartitionProduceResponse(index=row.index, error_code=error, base_offset=offset)
            topics = (TopicProduceResponse(name=OUTPUT, partition_responses=(result,)),)
            respond(ProduceResponse(responses=topics))

        def append(error: Errors) -> None:
            was_open = log.is_open(*writer[1:])
            if error is Errors.NONE and not was_open and not self._is_verified(writer, partition):
                error = Errors.NOT_ENOUGH_REPLICAS
            if error is not Errors.NONE:
                respond_with(error)
                return
            try:
                offset, is_new = log.append(data, sequence_zero=adds)
            except Refused as refused:
                respond_with(Errors(refused.code))
                return
            if is_new:
                self.ledger.record_batch(writer, partition, log.batches[-1].values, was_open=was_open)
            respond_with(Errors.NONE, offset)

        if log.is_open(*writer[1:]):
            append(Errors.NONE)
        else:
            self._verify_partition(writer, partition, adds=adds, then=append)

    def _is_verified(self, writer: tuple[str, int, int], partition: TopicPartition) -> bool:
        return self.runtime.is_active and self.runtime.core.is_enlisted(*writer, *partition)

    def _commit(
        self, client: Process, request: TxnOffsetCommitRequest, version: int, respond: Respond
    ) -> None:
        world, partition = self.world, (OFFSETS_TOPIC, 0)
        writer = request.transactional_id, request.producer_id, request.producer_epoch

        connection = client.life, client.connection

        def commit(error: Errors) -> None:
            if self.must_arrive_in_order(request, version) and connection != (client.life, client.connection):
                return  # The client has closed the connection.
            was_open = self._offsets_open(*writer[1:])
            if error is Errors.NONE and not was_open and not self._is_verified(writer, partition):
                error = Errors.NOT_COORDINATOR
            if error is not Errors.NONE:
                respond(error)
                return
            runtime = world.runtime
            fault_actions.append_faults(world, runtime)
            runtime.ask(request, RequestContext(version, client.name, "/10.0.0.1"), respond)

        if self._offsets_open(*writer[1:]):
            commit(Errors.NONE)
        else:
            adds = version >= FIRST_THAT_ADDS[TxnOffsetCommitRequest]
            self._verify_partition(writer, partition, adds=adds, then=commit)

    def _offsets_open(self, producer_id: int, epoch: int) -> bool:
        known = self.world.log.producers.by_id.get(producer_id)
        return known is not None and known.transaction_start is not None and known.epoch == epoch

    # --- effects of the coordinator ---

    def _perform(self, runtime: TransactionRuntime, effect: Effect) -> None:
        world = self.world
        if effect.verb == WRITE_MARKERS:
            MarkerDelivery(self, runtime, effect.subject).start()
        else:
            world.event_queue.after(
                world.latency_ms("marker.ms"), self._id_fetched, runtime, runtime.core, effect
            )

    def _id_fetched(self, runtime: TransactionRuntime, core: TransactionShard, effect: Effect) -> None:
        if runtime.core is core and runtime is self.runtime:
            runtime.inform(ProducerIdFetched(effect.subject, self._fresh_id()))

    def group_event(self, event: GroupEvent) -> None:
        """Called with each event of the group coordinator: pass it to the ledger."""
        self.ledger.group_event(event)


class MarkerDelivery:
    """The delivery of the markers of one transaction to all of its partitions, with retries.

    When all are written, the coordinator is notified."""

    def __init__(self, node: Transactions, runtime: TransactionRuntime, markers: MarkersToWrite) -> None:
        self.node = node
        self.world = node.world
        self.runtime = runtime
        self.core = runtime.core
        self.markers = markers
        self.missing = dict.fromkeys(markers.partitions)
        self.attempts: dict[TopicPartition, int] = {}
        self.ending = Ending(
            markers.producer_id, markers.producer_epoch, 0, markers.committed, markers.transaction_version
        )

    def __repr__(self) -> str:
        return f"<markers of {self.markers.transactional_id}: {len(self.missing)} missing>"

    @property
    def is_current(self) -> bool:
        """Whether the coordinator that requested the markers has neither failed over nor loaded again."""
        return self.runtime is self.node.runtime and self.runtime.core is self.core

    def start(self) -> None:
        """Send a marker to each partition."""
        for partition in self.markers.partitions:
            self._schedule(partition)
        if not self.missing:
            self.world.event_queue.after(self.world.latency_ms("marker.ms"), self._done)

    def _schedule(self, partition: TopicPartition, after_ms: int = 0) -> None:
        self.attempts[partition] = attempt = self.attempts.get(partition, 0) + 1
        self.world.event_queue.after(
            after_ms + self.world.latency_ms("marker.ms"), self._send, partition, attempt
        )

    def _send(self, partition: TopicPartition, attempt: int) -> None:
        if not self.is_current or partition not in self.missing or attempt != self.attempts[partition]:
            return
        world = self.world
        if partition[0] == OFFSETS_TOPIC:
            runtime = world.runtime
            fault_actions.append_faults(world, runtime)
            runtime.ask(
                cast("Struct", self.ending),
                RequestContext(0, "broker"),
                lambda answer: self._receive(partition, answer),
            )
            if partition in self.missing and attempt == self.attempts[partition]:
                self._schedule(partition, RETRY_MS)  # There may be no response.
            return
        log = self.node.logs[partition[1]]
        open_values = log.open_of(self.markers.producer_id)
        try:
            log.mark(self.ending, world.event_queue.wall_clock_ms())
        except Refused as refused:
            self._receive(partition, Errors(refused.code))
            return
        self.node.ledger.record_marker(self.markers, partition, open_values)
        self._written(partition)

    def _receive(self, partition: TopicPartition, answer: Struct | Errors) -> None:
        if answer in NOT_READY:
            self._schedule(partition, NOT_READY_MS)
        else:
            self._written(partition)

    def _written(self, partition: TopicPartition) -> None:
        if self.missing.pop(partition, 0) is None and not self.missing:
            self._done()

    def _done(self) -> None:
        if not self.is_current:
            return
        markers = self.markers
        completion = MarkersWritten(markers.transactional_id, markers.producer_id, markers.producer_epoch)
        fault_actions.append_faults(self.world, self.runtime)
        if not self.runtime.inform(completion):
            self.world.event_queue.after(self.world.latency_ms("marker.ms"), self._done)


def transaction_settings(options: Options) -> dict[str, str]:
    """Return the broker configs for transactions in a run with these options."""
    return {
        "offsets.topic.num.partitions": "1",
        "konvene.log.fsync.topics": str(bool(options["fsync"])).lower(),
        "transactional.id.expiration.ms": str(options["id.expiration.ms"]),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "5000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20000",
    }
