"""AddPartitionsToTxn and AddOffsetsToTxn: what begins a transaction, and whom a write is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from tests.transactions.asking import FIRST_ID, NEW, OLD, OUT, Asked, add_request, topics_of
from tests.transactions.test_init_producer_id import put

from konvene.codec.hashes import group_partition
from konvene.codec.uuid import ZERO_UUID
from konvene.errors import Errors
from konvene.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from konvene.shard.image import Topic, Topics
from konvene.transactions.state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Partition,
    TransactionState,
)

OK, FENCED, MAPPING = Errors.NONE, Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_ID_MAPPING
CONCURRENT, ABORTABLE = Errors.CONCURRENT_TRANSACTIONS, Errors.TRANSACTION_ABORTABLE
NOW, BEFORE, LATER, OTHER = (7, 3), (7, 2), (7, 4), (6, 3)
IN: Partition = ("in", 2)

ADDED = [
    # state, answers to the present producer, to one of another epoch, to one of another id
    (EMPTY, OK, FENCED, MAPPING),
    (ONGOING, OK, FENCED, MAPPING),
    (PREPARE_COMMIT, CONCURRENT, CONCURRENT, CONCURRENT),
    (PREPARE_ABORT, CONCURRENT, CONCURRENT, CONCURRENT),
    (COMPLETE_COMMIT, OK, FENCED, MAPPING),
    (COMPLETE_ABORT, OK, FENCED, MAPPING),
]

VERIFIED = [
    # The same where it is only asked, of a partition that is in it and of one that is not.
    (EMPTY, ABORTABLE, FENCED, MAPPING),
    (ONGOING, OK, FENCED, MAPPING),
    (PREPARE_COMMIT, CONCURRENT, FENCED, MAPPING),
    (PREPARE_ABORT, CONCURRENT, FENCED, MAPPING),
    (COMPLETE_COMMIT, ABORTABLE, FENCED, MAPPING),
    (COMPLETE_ABORT, ABORTABLE, FENCED, MAPPING),
]


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize(("state", "now", "epoch", "other"), ADDED)
def test_adding_in_each_state(
    state: TransactionState, now: Errors, epoch: Errors, other: Errors, version: int
) -> None:
    for producer, answer in ((NOW, now), (BEFORE, epoch), (LATER, epoch), (OTHER, other)):
        asked = Asked()
        put(asked, state=state, start_ms=5)
        before = asked.of()
        assert asked.add(producer, version=version) is answer
        if answer is not OK:
            assert asked.of() == before
            assert asked.log == []
            continue
        after = asked.of()
        assert (after.state, after.partitions) == (ONGOING, {OUT})
        assert after.start_ms == (5 if state is ONGOING else asked.now_ms)
        assert after.last_update_ms == asked.now_ms
        assert after.client_transaction_version == (2 if version == 5 else 0)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("state", "now", "epoch", "other"), VERIFIED)
def test_verifying_in_each_state(
    state: TransactionState, now: Errors, epoch: Errors, other: Errors, version: int
) -> None:
    has = frozenset({OUT}) if state in (ONGOING, PREPARE_ABORT, PREPARE_COMMIT) else frozenset()
    for producer, answer in ((NOW, now), (BEFORE, epoch), (LATER, epoch), (OTHER, other)):
        asked = Asked()
        put(asked, state=state, partitions=has)
        found = asked.add(producer, [OUT, IN], version, verify_only=True)
        absent = ABORTABLE if answer is OK else answer
        assert found == {OUT: answer, IN: absent}
        assert asked.log == []


@pytest.mark.parametrize("version", range(6))
def test_nobody_knows_the_id(version: int) -> None:
    asked = Asked()
    assert asked.add(NOW, version=version) is MAPPING
    assert asked.add(NOW, version=version, name="") is Errors.INVALID_REQUEST
    assert asked.add_offsets(NOW, version=min(version, 4)) is MAPPING
    if version >= 4:
        assert asked.add(NOW, [OUT], version, verify_only=True) == {OUT: MAPPING}


@pytest.mark.parametrize("version", range(6))
def test_old_clients_hear_an_older_word(version: int) -> None:
    asked = Asked()
    put(asked)
    fenced = Errors.INVALID_PRODUCER_EPOCH if version < 2 else FENCED
    assert asked.add(LATER, version=version) is fenced
    assert asked.add_offsets(LATER, version=min(version, 4)) is fenced


def test_what_is_in_it_is_not_written_again() -> None:
    asked = Asked()
    producer = asked.init()
    asked.add(producer, [OUT, IN])
    known, written = asked.of(), len(asked.log)
    asked.now_ms += 1
    assert asked.add(producer, [IN]) is OK
    assert asked.of() is known
    assert asked.add(producer, [IN, ("in", 3)]) is OK
    assert len(asked.log) == written + 1
    assert asked.of().partitions == {OUT, IN, ("in", 3)}
    assert asked.of().start_ms == known.start_ms


def test_nothing_to_add_begins_a_transaction_too() -> None:
    """As in Kafka; a broker that asks for no partition gets one without any."""
    asked = Asked()
    producer = asked.init()
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t", v3_and_below_producer_id=producer[0]
    )
    assert asked.ask(request, 3) == AddPartitionsToTxnResponse()
    assert asked.of().state is ONGOING
    assert asked.of().partitions == frozenset()


def transaction(
    name: str, producer: tuple[int, int], partition: Partition, *, verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=verify_only,
        topics=topics_of([partition]),
    )


def result(name: str, partition: Partition, error: Errors) -> AddPartitionsToTxnResult:
    told = AddPartitionsToTxnPartitionResult(partition_index=partition[1], partition_error_code=error)
    topic = AddPartitionsToTxnTopicResult(name=partition[0], results_by_partition=(told,))
    return AddPartitionsToTxnResult(transactional_id=name, topic_results=(topic,))


def test_several_transactions_are_decided_each_by_itself() -> None:
    """In the order in which they are asked for; what changes is one batch."""
    asked = Asked()
    t, u = asked.init(), asked.init(transactional_id="u")
    written = len(asked.batches)
    request = AddPartitionsToTxnRequest(
        transactions=(
            transaction("t", t, OUT),
            transaction("nobody", t, OUT),
            transaction("u", t, OUT),
            transaction("u", u, IN, verify_only=True),
            transaction("u", u, IN),
            transaction("u", u, IN, verify_only=True),
            transaction("t", t, IN),
        )
    )
    assert asked.ask(request, 5).results_by_transaction == (
        result("t", OUT, OK),
        result("nobody", OUT, MAPPING),
        result("u", OUT, MAPPING),
        result("u", IN, ABORTABLE),
        result("u", IN, OK),
        result("u", IN, OK),
        result("t", IN, OK),
    )
    assert asked.batches[written:] == [2]
    assert asked.of("t").partitions == {OUT, IN}
    assert asked.of("u").partitions == {IN}


def test_the_newer_form_for_an_older_client() -> None:
    """The version tells which kind of client it is."""
    asked = Asked()
    producer = asked.init()
    request = AddPartitionsToTxnRequest(transactions=(transaction("t", producer, OUT),))
    assert asked.ask(request, 3).results_by_transaction == (result("t", OUT, OK),)
    assert asked.of().client_transaction_version == 0


@pytest.mark.parametrize("count", [1, 4, 50])
def test_a_groups_offsets_are_in_one_partition(count: int) -> None:
    asked = Asked(settings={"offsets.topic.num.partitions": "50"})
    if count != 50:
        asked.topics = Topics([Topic("__consumer_offsets", ZERO_UUID, count)])
    producer = asked.init()
    group_id = "polygenelubricants"  # Its hash is the smallest integer.
    assert asked.add_offsets(producer, group_id) is OK
    assert asked.add_offsets(producer, "g") is OK
    wanted = {("__consumer_offsets", group_partition(g, count)) for g in (group_id, "g")}
    assert asked.of().partitions == wanted
    assert asked.of().client_transaction_version == 0


@pytest.mark.parametrize(("state", "now", "epoch", "other"), ADDED)
def test_adding_offsets_in_each_state(
    state: TransactionState, now: Errors, epoch: Errors, other: Errors
) -> None:
    for producer, answer in ((NOW, now), (BEFORE, epoch), (LATER, epoch), (OTHER, other)):
        asked = Asked()
        put(asked, state=state)
        assert asked.add_offsets(producer) is answer


@pytest.mark.parametrize(
    ("told", "enlisted"),
    [
        ({}, True),
        ({"name": "u"}, False),
        ({"producer_id": 6}, False),
        ({"epoch": 2}, False),
        ({"epoch": 4}, False),
        ({"topic": "in"}, False),
        ({"partition": 1}, False),
    ],
)
def test_who_is_enlisted(told: dict[str, Any], enlisted: bool) -> None:
    for state in (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT):
        asked = Asked()
        put(asked, state=state, partitions=frozenset({OUT}))
        asks = {"name": "t", "producer_id": 7, "epoch": 3, "topic": "out", "partition": 0} | told
        assert asked.shard.is_enlisted(*asks.values()) is (enlisted and state is ONGOING)


def test_an_end_enlists_nobody() -> None:
    """From the decision on, before any marker is written."""
    asked = Asked()
    producer = asked.init()
    asked.add(producer)
    assert asked.shard.is_enlisted("t", FIRST_ID, 0, *OUT)
    asked.end(producer, True, NEW)
    assert not asked.shard.is_enlisted("t", FIRST_ID, 0, *OUT)
    assert not asked.shard.is_enlisted("t", FIRST_ID, 1, *OUT)
    asked.write_markers()
    assert not asked.shard.is_enlisted("t", FIRST_ID, 1, *OUT)
    asked.add((FIRST_ID, 1), version=3)
    asked.end((FIRST_ID, 1), True, OLD)
    assert not asked.shard.is_enlisted("t", FIRST_ID, 1, *OUT)


@pytest.mark.parametrize(
    ("state", "version", "synced", "enough"),
    [
        # An old client's next transaction waits until the end of its last one is on the disk.
        (COMPLETE_COMMIT, 3, "false", False),
        (COMPLETE_ABORT, 3, "false", False),
        (COMPLETE_COMMIT, 5, "false", True),
        (EMPTY, 3, "false", True),
        (ONGOING, 3, "false", True),
        # Where records wait for the disk, so does what lets them in.
        (EMPTY, 5, "true", False),
        (ONGOING, 3, "true", False),
    ],
)
def test_what_waits_for_the_disk(state: TransactionState, version: int, synced: str, enough: bool) -> None:
    """Its marker, written again after a power cut, would end both: they have one epoch."""
    asked = Asked(settings={"konvene.log.fsync.topics": synced})
    put(asked, state=state)
    request = add_request(NOW, [OUT], version)
    assert asked.shard.handle(request, asked.context(version)).when_written is enough
