"""Random lives of transactions: whatever producers, time and accidents do, what belongs together stays so.

Producers of both generations of clients share three transactional ids, so that each has zombies; two of the
ids have few epochs left. What happens is drawn by hypothesis: honest producers who write, commit offsets and
end, and ask again when they were not answered; who was fenced goes on all the same; answers are lost, the
broker dies before or after a record is durable, between two markers, or when it had let in a write; the log
is compacted, time runs out, others commit plainly. What must hold stands in `world`, and here:

- offsets and records of a transaction come to count together, all or none, exactly as its end was decided;
- nothing lingers when it is complete, and everything is complete in the end;
- epochs and producer ids never go back, and nobody is given another's;
- who names another producer id or epoch than the present one changes nothing;
- an EndTxn that is asked again is told the same.

`KONVENE_WALKS=2000` plays so many lives, differently each time.
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

LIVES = int(os.environ.get("KONVENE_WALKS", "0"))
NAMES = ("ann", "bob", "cas")
SEEDED = {"bob": LAST_EPOCHS, "cas": LAST_EPOCHS}
MOST_CLIENTS = 5
END = {1: 4, 2: 5}

COUNTED: Counter[str] = Counter()
"""What all lives together went through."""

fates = st.sampled_from([Fate.FINE] * 9 + [Fate.UNHEARD, Fate.LOST, Fate.DIED])
partitions = st.sampled_from(PARTITIONS)


@dataclass(eq=False)
class Client:
    """A producer in one process. It asks one thing at a time, and until it is answered nothing else."""

    transactional_id: str
    generation: int
    producer: tuple[int, int] | None = None
    sequences: dict[int, int] = field(default_factory=dict)
    pending_request: Any = None
    """What it was not answered."""
    written: set[int] = field(default_factory=set)
    """What it was told is in the transaction that it has open."""
    is_open: bool = False
    ended: tuple[EndTxnRequest, Any, Txn] | None = None
    """Its last end, the answer, and the transaction."""
    sent: list[Any] = field(default_factory=list)
    is_fenced: bool = False


class Walks(RuleBasedStateMachine):
    """Producers, time, and accidents."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[Client] = []
        self.given: dict[tuple[int, int], Client] = {}

    @initialize(level=st.sampled_from([2, 2, 2, 1, 0]), generations=st.tuples(*[st.sampled_from([1, 2])] * 3))
    def begin(self, level: int, generations: tuple[int, ...]) -> None:
        self.world = World(level, SEEDED)
        for name, generation in zip(NAMES, generations, strict=True):
            self.come(name, generation)

    # --- producers --------------------------------------------------------------------------

    def come(self, name: str, generation: int) -> None:
        self.clients.append(Client(name, generation if self.world.level >= 2 else 1))

    @precondition(lambda self: len(self.clients) < MOST_CLIENTS)
    @rule(name=st.sampled_from(NAMES), generation=st.sampled_from([1, 2]))
    def another(self, name: str, generation: int) -> None:
        """Somebody starts with an id that others have."""
        self.come(name, generation)

    @rule(data=st.data())
    def honest(self, data: st.DataObject) -> None:
        """A producer does the next few things that a good one would."""
        client = data.draw(st.sampled_from(self.clients), label="client")
        for fate in data.draw(st.lists(fates, min_size=6, max_size=16), label="fates"):
            self.step(client, data, fate)

    @rule(data=st.data())
    def more_honest(self, data: st.DataObject) -> None:
        self.honest(data)

    def step(self, client: Client, data: st.DataObject, fate: Fate) -> None:
        """What it does next. What it asked last may come once more before."""
        if client.ended is not None and data.draw(st.booleans(), label="again"):
            self.ask_again(client, markers=data.draw(st.booleans(), label="markers"))
        if client.pending_request in self.world.waiting:
            self.arrived(client.pending_request, fate)
        elif client.pending_request is not None:
            if data.draw(st.booleans(), label="markers"):
                self.carry(client)
            self.go_on(client, fate)
        elif client.producer is None or (client.is_fenced and data.draw(st.booleans(), label="anew")):
            self.take(client, init(client.transactional_id), fate)
        elif client.is_open and data.draw(st.booleans(), label="ends"):
            self.end(client, data.draw(st.booleans(), label="commits"), fate)
        else:
            self.write(client, data.draw(partitions), data.draw(st.booleans(), label="offset"), fate)

    def carry(self, client: Client) -> None:
        """The markers of its last end reach their partitions."""
        for delivery in tuple(self.world.deliveries):
            if delivery.markers.transactional_id == client.transactional_id:
                self.finish_delivery(delivery)

    def finish_delivery(self, delivery: Delivery) -> None:
        while delivery in self.world.deliveries:
            self.world.deliver(delivery)

    @rule(data=st.data(), fate=fates)
    def recover(self, data: st.DataObject, fate: Fate) -> None:
        """A producer goes on after an error, and says who it was."""
        client = self.pick(data, lambda c: c.pending_request is None and c.producer is not None)
        if client is not None:
            self.take(client, init(client.transactional_id, client.producer), fate)

    def take(self, client: Client, request: Any, fate: Fate) -> None:
        self.leave(client)
        answer = self.world.ask(request, 5, fate)
        client.pending_request = request if answer is None else None
        if answer is None:
            return
        count("InitProducerId", answer.error_code)
        if answer.error_code == Errors.NONE:
            self.give(client, answer)
            client.is_fenced = False

    def leave(self, client: Client) -> None:
        client.is_open, client.ended, client.written = False, None, set()

    def give(self, client: Client, answer: Any) -> None:
        """Nobody is told to be who another was told to be."""
        who = answer.producer_id, answer.producer_epoch
        assert self.given.setdefault(who, client) is client, f"{who} was given twice"
        assert who[1] < LAST_EPOCH, f"nobody can fence {who}"
        if who != client.producer:
            client.sequences = {}
        client.producer = who

    def write(self, client: Client, partition: int, offset: bool, fate: Fate) -> None:
        """A record, or an offset. Older clients announce it first."""
        assert client.producer is not None
        client.ended = None
        if client.generation == 1 and not self.announced(client, partition, offset, fate):
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

    def announced(self, client: Client, partition: int, offset: bool, fate: Fate) -> bool:
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
            return False  # It may be enlisted, and it is announced again before the next write.
        code = answer.error_code if offset else _of_partitions(answer)
        count(type(request).__name__.removesuffix("Request"), code)
        self.heard(client, code)
        client.is_open = client.is_open or code == Errors.NONE
        return code == Errors.NONE

    def send(self, client: Client, write: Write, fate: Fate = Fate.FINE) -> None:
        with Unchanged(self, client, write.producer):
            error = self.world.request(write, fate)
        if error is None:
            client.pending_request = write
            client.is_open = True
            return
        count("write", error)
        if error in (Errors.REQUEST_TIMED_OUT, Errors.CONCURRENT_TRANSACTIONS):
            client.pending_request = write
            client.is_open = client.is_open or error is Errors.REQUEST_TIMED_OUT
        else:
            self.heard(client, error)

    @rule(data=st.data(), fate=fates)
    @precondition(lambda self: self.world.waiting)
    def arrive(self, data: st.DataObject, fate: Fate) -> None:
        """A write that was let in is appended now."""
        self.arrived(data.draw(st.sampled_from(self.world.waiting), label="write"), fate)

    @rule(data=st.data())
    @precondition(lambda self: self.world.waiting)
    def arrive_late(self, data: st.DataObject) -> None:
        """A write was let in; meanwhile its transaction took too long, and some markers are written."""
        write = data.draw(st.sampled_from(self.world.waiting), label="write")
        self.world.place.now_ms += 70_000
        self.world.ring(("timed-out",))
        name = write.transactional_id
        for _ in range(data.draw(st.integers(0, 4), label="markers")):
            delivery = next((d for d in self.world.deliveries if d.markers.transactional_id == name), None)
            if delivery is not None:
                self.world.deliver(delivery)
        self.arrived(write, Fate.FINE)

    def arrived(self, write: Write, fate: Fate) -> None:
        client = next((c for c in self.clients if c.pending_request is write), None)
        answer = self.world.arrive(write, fate)
        if answer is None or client is None:
            return
        count("append", answer)
        client.pending_request = None
        if answer is Errors.NONE:
            client.written.add(write.number)
            if write.sequence is not None:
                client.sequences[write.partition] = write.sequence + 1
        else:
            self.heard(client, answer)

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
        self.heard(client, answer.error_code)
        if answer.error_code != Errors.NONE:
            return
        txn = self.world.current[client.transactional_id]
        assert txn.outcome is request.committed
        assert client.written <= {entry.number for entry in txn.entries}, "what was told to be in it is not"
        if client.generation == 2:
            self.give(client, answer)
        self.leave(client)
        client.ended = request, answer, txn

    def go_on(self, client: Client, fate: Fate) -> None:
        """Who was not answered asks the same again."""
        request, client.pending_request = client.pending_request, None
        if isinstance(request, Write):
            if request.producer == client.producer:
                self.send(client, request, fate)
        elif isinstance(request, EndTxnRequest):
            self.finish(client, request, fate)
        else:
            self.take(client, request, fate)

    def ask_again(self, client: Client, *, markers: bool) -> None:
        """An EndTxn that was answered is told the same once more, and the other one is refused."""
        assert client.ended is not None
        request, told, txn = client.ended
        if self.world.current[client.transactional_id] is not txn or self.is_another(client):
            client.ended = None
            return
        if markers:
            self.carry(client)
        before = self.world.written
        version = END[client.generation]
        answer = self.world.ask(request, version)
        count(f"EndTxn {version} again", answer.error_code)
        assert answer == told or answer.error_code == Errors.CONCURRENT_TRANSACTIONS
        other = self.world.ask(request.replace(committed=not request.committed), version)
        assert other.error_code in (Errors.INVALID_TXN_STATE, Errors.CONCURRENT_TRANSACTIONS)
        assert self.world.written == before

    def is_another(self, client: Client) -> bool:
        """Whether somebody else has the client's id by now, or will when an end is complete."""
        known = self.world.of(client.transactional_id)
        assert client.ended is not None
        _, told, txn = client.ended
        if known is None:
            return True
        if client.generation == 1:
            return (known.producer_id, known.producer_epoch) != client.producer
        present = (known.producer_id, known.producer_epoch)
        return txn.complete and present != (told.producer_id, told.producer_epoch)

    @rule(data=st.data())
    def zombie(self, data: st.DataObject) -> None:
        """Something that was sent long ago comes once more, from one who was replaced or is ahead of it."""
        client = self.pick(data, lambda c: c.sent and (c.is_fenced or c.generation == 2))
        if client is None:
            return
        request = data.draw(st.sampled_from(client.sent), label="request")
        if isinstance(request, Write):
            with Unchanged(self, client, request.producer):
                self.world.request(request)
            if request in self.world.waiting:
                self.world.arrive(self.world.waiting[-1])
            return
        self.ask(client, request, END[client.generation] if isinstance(request, EndTxnRequest) else 3)

    def ask(self, client: Client, request: Any, version: int, fate: Fate = Fate.FINE) -> Any:
        """Ask the coordinator as a producer: it changes nothing for any but the present one."""
        if isinstance(request, AddPartitionsToTxnRequest):
            who = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        else:
            who = request.producer_id, request.producer_epoch
        with Unchanged(self, client, who):
            return self.world.ask(request, version, fate)

    def heard(self, client: Client, code: int) -> None:
        """An error after which a producer may not go on."""
        if code not in (Errors.NONE, Errors.CONCURRENT_TRANSACTIONS):
            client.is_fenced, client.is_open = True, False

    def pick(self, data: st.DataObject, which: Any) -> Client | None:
        found = [client for client in self.clients if which(client)]
        return data.draw(st.sampled_from(found), label="client") if found else None

    # --- the world --------------------------------------------------------------------------

    @rule(data=st.data(), fate=fates, whole=st.booleans())
    @precondition(lambda self: self.world.deliveries)
    def deliver(self, data: st.DataObject, fate: Fate, whole: bool) -> None:
        """A marker reaches its partition, or all of an end do."""
        delivery = data.draw(st.sampled_from(self.world.deliveries), label="delivery")
        self.world.deliver(delivery, fate)
        if whole:
            self.finish_delivery(delivery)

    @rule(partition=partitions)
    def commit_plainly(self, partition: int) -> None:
        self.world.commit_plainly(partition)

    @rule(after_ms=st.sampled_from([1, 30_000, 70_000]), fate=fates)
    def time(self, after_ms: int, fate: Fate) -> None:
        self.world.place.now_ms += after_ms
        self.world.ring(("timed-out",), fate)

    @rule(fate=fates)
    def forget(self, fate: Fate) -> None:
        """Ids that nobody has used for long are gone."""
        self.world.place.now_ms += 700_000
        self.world.ring(("expired",), fate)

    @rule(compacted=st.booleans())
    def crash(self, compacted: bool) -> None:
        COUNTED["crash"] += 1
        if compacted:
            self.world.compact()
        self.world.crash()

    @invariant()
    def offsets_are_those_that_count(self) -> None:
        if hasattr(self, "world"):
            self.world.check_offsets()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
            self.world.check_offsets()
            self.world.crash()


class Unchanged:
    """A part of a life in which nothing changes, if the producer is not the present one."""

    def __init__(self, walks: Walks, client: Client, producer: tuple[int, int]) -> None:
        self.world = walks.world
        known = self.world.of(client.transactional_id)
        self.is_it = known is not None and producer == (known.producer_id, known.producer_epoch)

    def __enter__(self) -> None:
        self.written = self.world.written

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None and not self.is_it:
            COUNTED["somebody else"] += 1
            assert self.world.written == self.written, "somebody else changed something"


def count(what: str, code: int) -> None:
    COUNTED[f"{what} {Errors(code).name}"] += 1


def _of_partitions(answer: Any) -> int:
    (topic,) = answer.results_by_topic_v3_and_below
    return int(topic.results_by_partition[0].partition_error_code)


NEEDED = (
    "InitProducerId NONE", "InitProducerId CONCURRENT_TRANSACTIONS", "InitProducerId PRODUCER_FENCED",
    "AddPartitionsToTxn NONE", "AddOffsetsToTxn NONE", "AddPartitionsToTxn PRODUCER_FENCED",
    "append NONE", "append INVALID_TXN_STATE", "write CONCURRENT_TRANSACTIONS", "write PRODUCER_FENCED",
    "EndTxn NONE", "EndTxn CONCURRENT_TRANSACTIONS", "EndTxn PRODUCER_FENCED",
    "EndTxn 4 again NONE", "EndTxn 5 again NONE", "EndTxn 5 again CONCURRENT_TRANSACTIONS", "crash",
    "somebody else",
)  # fmt: skip
"""What lives must go through to say anything."""


def test_walks() -> None:
    """Lives of transactions, in which all of `NEEDED` happened."""
    from hypothesis.stateful import run_state_machine_as_test

    COUNTED.clear()
    run_state_machine_as_test(
        Walks,
        settings=settings(
            max_examples=LIVES or depth.examples(150),
            stateful_step_count=60,
            derandomize=not LIVES,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    missing = [what for what in NEEDED if not COUNTED[what]]
    assert not missing, (missing, COUNTED)
