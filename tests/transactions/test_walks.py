"""Random walks through transactions: atomicity, fencing and idempotence under crashes and lost responses.

Producers of both client generations share three transactional ids, so that each has zombies; two of the ids
have few epochs left. Hypothesis draws the events: correct producers write, commit offsets, end transactions
and retry unanswered requests; fenced producers continue; responses are lost; the broker crashes before or
after a record is durable, between two markers, or with accepted writes; the log is compacted, transactions
time out, and other clients commit offsets outside of transactions. `world` and this module check that

- offsets and records of a transaction become visible together, all or none, exactly as its end was decided;
- a complete transaction is open nowhere, and every transaction completes in the end;
- epochs and producer ids never decrease, and no two producers get the same;
- a request with another producer id or epoch than the current one changes nothing;
- a repeated EndTxn gets the same response.

`KONVENE_WALKS=2000` runs that many walks, different ones each time.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests import depth
from tests.transactions.world import LAST_EPOCHS, OUT, PARTITIONS, Delivery, Fate, Txn, World, Write, init

from konvene.errors import Errors
from konvene.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from konvene.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from konvene.messages.end_txn import EndTxnRequest
from konvene.transactions.state import LAST_EPOCH

WALKS = int(os.environ.get("KONVENE_WALKS", "0"))
NAMES = ("ann", "bob", "cas")
SEEDED = {"bob": LAST_EPOCHS, "cas": LAST_EPOCHS}
MOST_CLIENTS = 5
END = {1: 4, 2: 5}

COUNTS: Counter[str] = Counter()
"""How often each event occurred in all walks."""

fates = st.sampled_from(
    [Fate.ANSWERED] * 9 + [Fate.RESPONSE_LOST, Fate.CRASH_BEFORE_WRITE, Fate.CRASH_AFTER_WRITE]
)
partitions = st.sampled_from(PARTITIONS)


@dataclass(eq=False)
class Client:
    """A producer with at most one request in flight."""

    transactional_id: str
    generation: int
    producer: tuple[int, int] | None = None
    sequences: dict[int, int] = field(default_factory=dict)
    pending_request: Any = None
    """The request or write without a response."""
    written: set[int] = field(default_factory=set)
    """Numbers of the acknowledged writes in its open transaction."""
    is_open: bool = False
    last_end: tuple[EndTxnRequest, Any, Txn] | None = None
    """The last EndTxn request, its response, and the transaction."""
    sent: list[Any] = field(default_factory=list)
    is_fenced: bool = False


class Walks(RuleBasedStateMachine):
    """Producers, time and faults."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Client] = []
        self.assigned: dict[tuple[int, int], Client] = {}

    @initialize(level=st.sampled_from([2, 2, 2, 1, 0]), generations=st.tuples(*[st.sampled_from([1, 2])] * 3))
    def begin(self, level: int, generations: tuple[int, ...]) -> None:
        self.world = World(level, SEEDED)
        for name, generation in zip(NAMES, generations, strict=True):
            self.add_client(name, generation)

    # --- producers --------------------------------------------------------------------------

    def add_client(self, name: str, generation: int) -> None:
        self.clients.append(Client(name, generation if self.world.level >= 2 else 1))

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule(name=st.sampled_from(NAMES), generation=st.sampled_from([1, 2]))
    def another_producer_starts(self, name: str, generation: int) -> None:
        """Start another producer with a transactional id in use."""
        self.add_client(name, generation)

    @rule(data=st.data())
    def honest_producer_steps(self, data: st.DataObject) -> None:
        """Let a producer take several correct steps."""
        client = data.draw(st.sampled_from(self.clients), label="client")
        for fate in data.draw(st.lists(fates, min_size=6, max_size=16), label="fates"):
            self.step(client, data, fate)

    @rule(data=st.data())
    def more_honest_steps(self, data: st.DataObject) -> None:
        self.honest_producer_steps(data)

    def step(self, client: Client, data: st.DataObject, fate: Fate) -> None:
        """Take the next step of a producer; its last EndTxn may be repeated before."""
        if client.last_end is not None and data.draw(st.booleans(), label="again"):
            self.repeat_end(client, markers=data.draw(st.booleans(), label="markers"))
        if client.pending_request in self.world.accepted_writes:
            self.append(client.pending_request, fate)
        elif client.pending_request is not None:
            if data.draw(st.booleans(), label="markers"):
                self.deliver_markers_of(client)
            self.retry(client, fate)
        elif client.producer is None or (client.is_fenced and data.draw(st.booleans(), label="anew")):
            self.init_producer(client, init(client.transactional_id), fate)
        elif client.is_open and data.draw(st.booleans(), label="ends"):
            self.end(client, data.draw(st.booleans(), label="commits"), fate)
        else:
            self.write(client, data.draw(partitions), data.draw(st.booleans(), label="offset"), fate)

    def deliver_markers_of(self, client: Client) -> None:
        """Deliver all markers for the transactional id of a client."""
        for delivery in tuple(self.world.deliveries):
            if delivery.markers.transactional_id == client.transactional_id:
                self.finish_delivery(delivery)

    def finish_delivery(self, delivery: Delivery) -> None:
        while delivery in self.world.deliveries:
            self.world.deliver(delivery)

    @rule(data=st.data(), fate=fates)
    def recover_producer(self, data: st.DataObject, fate: Fate) -> None:
        """Recover from an error by InitProducerId with the own producer id and epoch (KIP-360)."""
        client = self.draw_client(data, lambda c: c.pending_request is None and c.producer is not None)
        if client is not None:
            self.init_producer(client, init(client.transactional_id, client.producer), fate)

    def init_producer(self, client: Client, request: Any, fate: Fate) -> None:
        self.reset_transaction(client)
        answer = self.world.ask(request, 5, fate)
        client.pending_request = request if answer is None else None
        if answer is None:
            return
        count("InitProducerId", answer.error_code)
        if answer.error_code == Errors.NONE:
            self.assign(client, answer)
            client.is_fenced = False

    def reset_transaction(self, client: Client) -> None:
        client.is_open, client.last_end, client.written = False, None, set()

    def assign(self, client: Client, answer: Any) -> None:
        """Give a client the producer id and epoch of a response; no other client may have got them."""
        producer = answer.producer_id, answer.producer_epoch
        assert self.assigned.setdefault(producer, client) is client, f"{producer} was assigned twice"
        assert producer[1] < LAST_EPOCH, f"no epoch is left to fence {producer}"
        if producer != client.producer:
            client.sequences = {}
        client.producer = producer

    def write(self, client: Client, partition: int, offset: bool, fate: Fate) -> None:
        """Write a record or commit an offset. Older clients add the partition to the transaction first."""
        assert client.producer is not None
        client.last_end = None
        if client.generation == 1 and not self.add_to_transaction(client, partition, offset, fate):
            return
        sequence = None if offset else client.sequences.get(partition, 0)
        write = Write(
            client.transactional_id,
            client.producer,
            client.generation,
            partition,
            self.world.number(),
            sequence,
        )
        client.sent.append(write)
        self.send(client, write, fate)

    def add_to_transaction(self, client: Client, partition: int, offset: bool, fate: Fate) -> bool:
        assert client.producer is not None
        producer_id, epoch = client.producer
        request: Any = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=client.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=(AddPartitionsToTxnTopic(name=OUT, partitions=(partition,)),),
        )
        if offset:
            request = AddOffsetsToTxnRequest(
                transactional_id=client.transactional_id, producer_id=producer_id, producer_epoch=epoch,
                group_id="g",
            )  # fmt: skip
        client.sent.append(request)
        answer = self.ask(client, request, 3, fate)
        if answer is None:
            return False  # The partition may have been added; it is added again before the next write.
        code = answer.error_code if offset else _of_partitions(answer)
        count(type(request).__name__.removesuffix("Request"), code)
        self.handle_error(client, code)
        client.is_open = client.is_open or code == Errors.NONE
        return code == Errors.NONE

    def send(self, client: Client, write: Write, fate: Fate = Fate.ANSWERED) -> None:
        with UnchangedByOthers(self, client, write.producer):
            error = self.world.accept(write, fate)
        if error is None:
            client.pending_request = write
            client.is_open = True
            return
        count("write", error)
        if error in (Errors.REQUEST_TIMED_OUT, Errors.CONCURRENT_TRANSACTIONS):
            client.pending_request = write
            client.is_open = client.is_open or error is Errors.REQUEST_TIMED_OUT
        else:
            self.handle_error(client, error)

    @rule(data=st.data(), fate=fates)
    @precondition(lambda self: self.world.accepted_writes)
    def append_accepted_write(self, data: st.DataObject, fate: Fate) -> None:
        """Append an accepted write."""
        self.append(data.draw(st.sampled_from(self.world.accepted_writes), label="write"), fate)

    @rule(data=st.data())
    @precondition(lambda self: self.world.accepted_writes)
    def append_after_timeout(self, data: st.DataObject) -> None:
        """Append an accepted write after its transaction timed out and some markers were written."""
        write = data.draw(st.sampled_from(self.world.accepted_writes), label="write")
        self.world.offsets.now_ms += 70_000
        self.world.expire(("timed-out",))
        name = write.transactional_id
        for _ in range(data.draw(st.integers(0, 4), label="markers")):
            delivery = next((d for d in self.world.deliveries if d.markers.transactional_id == name), None)
            if delivery is not None:
                self.world.deliver(delivery)
        self.append(write, Fate.ANSWERED)

    def append(self, write: Write, fate: Fate) -> None:
        client = next((c for c in self.clients if c.pending_request is write), None)
        answer = self.world.append(write, fate)
        if answer is None or client is None:
            return
        count("append", answer)
        client.pending_request = None
        if answer is Errors.NONE:
            client.written.add(write.number)
            if write.sequence is not None:
                client.sequences[write.partition] = write.sequence + 1
        else:
            self.handle_error(client, answer)

    def end(self, client: Client, committed: bool, fate: Fate) -> None:
        assert client.producer is not None
        producer_id, epoch = client.producer
        request = EndTxnRequest(
            transactional_id=client.transactional_id, producer_id=producer_id, producer_epoch=epoch,
            committed=committed,
        )  # fmt: skip
        client.sent.append(request)
        self.finish(client, request, fate)

    def finish(self, client: Client, request: EndTxnRequest, fate: Fate) -> None:
        answer = self.ask(client, request, END[client.generation], fate)
        client.pending_request = request if answer is None else None
        if answer is None:
            return
        count("EndTxn", answer.error_code)
        if answer.error_code == Errors.CONCURRENT_TRANSACTIONS:
            client.pending_request = request
            return
        self.handle_error(client, answer.error_code)
        if answer.error_code != Errors.NONE:
            return
        txn = self.world.current[client.transactional_id]
        assert txn.outcome is request.committed
        assert client.written <= {entry.number for entry in txn.entries}, (
            "an acknowledged write is missing from the transaction"
        )
        if client.generation == 2:
            self.assign(client, answer)
        self.reset_transaction(client)
        client.last_end = request, answer, txn

    def retry(self, client: Client, fate: Fate) -> None:
        """Repeat the request that has no response."""
        request, client.pending_request = client.pending_request, None
        if isinstance(request, Write):
            if request.producer == client.producer:
                self.send(client, request, fate)
        elif isinstance(request, EndTxnRequest):
            self.finish(client, request, fate)
        else:
            self.init_producer(client, request, fate)

    def repeat_end(self, client: Client, *, markers: bool) -> None:
        """Repeat an answered EndTxn: the response is the same, and the opposite outcome is rejected."""
        assert client.last_end is not None
        request, first_response, txn = client.last_end
        if self.world.current[client.transactional_id] is not txn or self.is_superseded(client):
            client.last_end = None
            return
        if markers:
            self.deliver_markers_of(client)
        before = self.world.log_ends
        version = END[client.generation]
        answer = self.world.ask(request, version)
        count(f"EndTxn {version} again", answer.error_code)
        assert answer == first_response or answer.error_code == Errors.CONCURRENT_TRANSACTIONS
        other = self.world.ask(request.replace(committed=not request.committed), version)
        assert other.error_code in (Errors.INVALID_TXN_STATE, Errors.CONCURRENT_TRANSACTIONS)
        assert self.world.log_ends == before

    def is_superseded(self, client: Client) -> bool:
        """Return True if another producer has the transactional id, or will after the current end."""
        known = self.world.transaction(client.transactional_id)
        assert client.last_end is not None
        _, first_response, txn = client.last_end
        if known is None:
            return True
        if client.generation == 1:
            return (known.producer_id, known.producer_epoch) != client.producer
        present = (known.producer_id, known.producer_epoch)
        return txn.complete and present != (first_response.producer_id, first_response.producer_epoch)

    @rule(data=st.data())
    def zombie_retries(self, data: st.DataObject) -> None:
        """Repeat an old request of a fenced client or of one that has a newer epoch."""
        client = self.draw_client(data, lambda c: c.sent and (c.is_fenced or c.generation == 2))
        if client is None:
            return
        request = data.draw(st.sampled_from(client.sent), label="request")
        if isinstance(request, Write):
            with UnchangedByOthers(self, client, request.producer):
                self.world.accept(request)
            if request in self.world.accepted_writes:
                self.world.append(self.world.accepted_writes[-1])
            return
        self.ask(client, request, END[client.generation] if isinstance(request, EndTxnRequest) else 3)

    def ask(self, client: Client, request: Any, version: int, fate: Fate = Fate.ANSWERED) -> Any:
        """Send a request as a producer; it changes nothing unless the producer is the current one."""
        if isinstance(request, AddPartitionsToTxnRequest):
            producer = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        else:
            producer = request.producer_id, request.producer_epoch
        with UnchangedByOthers(self, client, producer):
            return self.world.ask(request, version, fate)

    def handle_error(self, client: Client, code: int) -> None:
        """Mark a client as fenced after an error other than CONCURRENT_TRANSACTIONS."""
        if code not in (Errors.NONE, Errors.CONCURRENT_TRANSACTIONS):
            client.is_fenced, client.is_open = True, False

    def draw_client(self, data: st.DataObject, predicate: Any) -> Client | None:
        candidates = [client for client in self.clients if predicate(client)]
        return data.draw(st.sampled_from(candidates), label="client") if candidates else None

    # --- the world --------------------------------------------------------------------------

    @rule(data=st.data(), fate=fates, whole=st.booleans())
    @precondition(lambda self: self.world.deliveries)
    def deliver(self, data: st.DataObject, fate: Fate, whole: bool) -> None:
        """Deliver one marker, or all markers of a transaction."""
        delivery = data.draw(st.sampled_from(self.world.deliveries), label="delivery")
        self.world.deliver(delivery, fate)
        if whole:
            self.finish_delivery(delivery)

    @rule(partition=partitions)
    def commit_outside_transactions(self, partition: int) -> None:
        self.world.commit_outside_transactions(partition)

    @rule(after_ms=st.sampled_from([1, 30_000, 70_000]), fate=fates)
    def time_passes(self, after_ms: int, fate: Fate) -> None:
        self.world.offsets.now_ms += after_ms
        self.world.expire(("timed-out",), fate)

    @rule(fate=fates)
    def expire_ids(self, fate: Fate) -> None:
        """Expire unused transactional ids."""
        self.world.offsets.now_ms += 700_000
        self.world.expire(("expired",), fate)

    @rule(compacted=st.booleans())
    def crash(self, compacted: bool) -> None:
        COUNTS["crash"] += 1
        if compacted:
            self.world.compact()
        self.world.crash()

    @invariant()
    def committed_offsets_are_correct(self) -> None:
        if hasattr(self, "world"):
            self.world.check_offsets()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
            self.world.check_offsets()
            self.world.crash()


class UnchangedByOthers:
    """Context in which nothing may change unless the producer is the current one."""

    def __init__(self, walks: Walks, client: Client, producer: tuple[int, int]) -> None:
        self.world = walks.world
        known = self.world.transaction(client.transactional_id)
        self.is_current = known is not None and producer == (known.producer_id, known.producer_epoch)

    def __enter__(self) -> None:
        self.written = self.world.log_ends

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None and not self.is_current:
            COUNTS["other producer"] += 1
            assert self.world.log_ends == self.written, (
                "a producer that is not the current one changed the state"
            )


def count(event: str, code: int) -> None:
    COUNTS[f"{event} {Errors(code).name}"] += 1


def _of_partitions(answer: Any) -> int:
    (topic,) = answer.results_by_topic_v3_and_below
    return int(topic.results_by_partition[0].partition_error_code)


REQUIRED = (
    "InitProducerId NONE", "InitProducerId CONCURRENT_TRANSACTIONS", "InitProducerId PRODUCER_FENCED",
    "AddPartitionsToTxn NONE", "AddOffsetsToTxn NONE", "AddPartitionsToTxn PRODUCER_FENCED",
    "append NONE", "append INVALID_TXN_STATE", "write CONCURRENT_TRANSACTIONS", "write PRODUCER_FENCED",
    "EndTxn NONE", "EndTxn CONCURRENT_TRANSACTIONS", "EndTxn PRODUCER_FENCED",
    "EndTxn 4 again NONE", "EndTxn 5 again NONE", "EndTxn 5 again CONCURRENT_TRANSACTIONS", "crash",
    "other producer",
)  # fmt: skip
"""Events that must occur for the test to be meaningful."""


def test_walks() -> None:
    """Run random walks; each event of `REQUIRED` occurs in at least one."""
    from hypothesis.stateful import run_state_machine_as_test

    COUNTS.clear()
    run_state_machine_as_test(
        Walks,
        settings=settings(
            max_examples=WALKS or depth.examples(150),
            stateful_step_count=60,
            derandomize=not WALKS,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    missing = [event for event in REQUIRED if not COUNTS[event]]
    assert not missing, (missing, COUNTS)
