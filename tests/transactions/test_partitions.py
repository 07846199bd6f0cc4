"""AddPartitionsToTxn and AddOffsetsToTxn: what begins a transaction, and the verification of writes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.transactions.harness import FIRST_ID, NEW, OLD, OUT, TransactionHarness, add_request, topics_of
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
    # state, responses to the current producer, to one with another epoch, to one with another id
    (EMPTY, OK, FENCED, MAPPING),
    (ONGOING, OK, FENCED, MAPPING),
    (PREPARE_COMMIT, CONCURRENT, CONCURRENT, CONCURRENT),
    (PREPARE_ABORT, CONCURRENT, CONCURRENT, CONCURRENT),
    (COMPLETE_COMMIT, OK, FENCED, MAPPING),
    (COMPLETE_ABORT, OK, FENCED, MAPPING),
]

VERIFIED = [
    # The same with verify_only, for an added partition.
    (EMPTY, ABORTABLE, FENCED, MAPPING),
    (ONGOING, OK, FENCED, MAPPING),
    (PREPARE_COMMIT, CONCURRENT, FENCED, MAPPING),
    (PREPARE_ABORT, CONCURRENT, FENCED, MAPPING),
    (COMPLETE_COMMIT, ABORTABLE, FENCED, MAPPING),
    (COMPLETE_ABORT, ABORTABLE, FENCED, MAPPING),
]


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize(("state", "now", "epoch", "other"), ADDED)
def test_add_partitions_in_each_state(
    state: TransactionState, now: Errors, epoch: Errors, other: Errors, version: int
) -> None:
    for producer, answer in ((NOW, now), (BEFORE, epoch), (LATER, epoch), (OTHER, other)):
        harness = TransactionHarness()
        put(harness, state=state, start_ms=5)
        before = harness.transaction()
        assert harness.add(producer, version=version) is answer
        if answer is not OK:
            assert harness.transaction() == before
            assert harness.log == []
            continue
        after = harness.transaction()
        assert (after.state, after.partitions) == (ONGOING, {OUT})
        assert after.start_ms == (5 if state is ONGOING else harness.now_ms)
        assert after.last_update_ms == harness.now_ms
        assert after.client_transaction_version == (2 if version == 5 else 0)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("state", "now", "epoch", "other"), VERIFIED)
def test_verify_only_in_each_state(
    state: TransactionState, now: Errors, epoch: Errors, other: Errors, version: int
) -> None:
    partitions = frozenset({OUT}) if state in (ONGOING, PREPARE_ABORT, PREPARE_COMMIT) else frozenset()
    for producer, answer in ((NOW, now), (BEFORE, epoch), (LATER, epoch), (OTHER, other)):
        harness = TransactionHarness()
        put(harness, state=state, partitions=partitions)
        found = harness.add(producer, [OUT, IN], version, verify_only=True)
        missing_error = ABORTABLE if answer is OK else answer
        assert found == {OUT: answer, IN: missing_error}
        assert harness.log == []


@pytest.mark.parametrize("version", range(6))
def test_unknown_transactional_id_is_rejected(version: int) -> None:
    harness = TransactionHarness()
    assert harness.add(NOW, version=version) is MAPPING
    assert harness.add(NOW, version=version, name="") is Errors.INVALID_REQUEST
    assert harness.add_offsets(NOW, version=min(version, 4)) is MAPPING
    if version >= 4:
        assert harness.add(NOW, [OUT], version, verify_only=True) == {OUT: MAPPING}


@pytest.mark.parametrize("version", range(6))
def test_old_versions_get_invalid_producer_epoch(version: int) -> None:
    harness = TransactionHarness()
    put(harness)
    fenced = Errors.INVALID_PRODUCER_EPOCH if version < 2 else FENCED
    assert harness.add(LATER, version=version) is fenced
    assert harness.add_offsets(LATER, version=min(version, 4)) is fenced


def test_added_partitions_are_not_written_again() -> None:
    harness = TransactionHarness()
    producer = harness.init()
    harness.add(producer, [OUT, IN])
    known, written = harness.transaction(), len(harness.log)
    harness.now_ms += 1
    assert harness.add(producer, [IN]) is OK
    assert harness.transaction() is known
    assert harness.add(producer, [IN, ("in", 3)]) is OK
    assert len(harness.log) == written + 1
    assert harness.transaction().partitions == {OUT, IN, ("in", 3)}
    assert harness.transaction().start_ms == known.start_ms


def test_request_without_partitions_begins_a_transaction() -> None:
    """The transaction has no partitions, as in Kafka."""
    harness = TransactionHarness()
    producer = harness.init()
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t", v3_and_below_producer_id=producer[0]
    )
    assert harness.ask(request, 3) == AddPartitionsToTxnResponse()
    assert harness.transaction().state is ONGOING
    assert harness.transaction().partitions == frozenset()


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
    result = AddPartitionsToTxnPartitionResult(partition_index=partition[1], partition_error_code=error)
    topic = AddPartitionsToTxnTopicResult(name=partition[0], results_by_partition=(result,))
    return AddPartitionsToTxnResult(transactional_id=name, topic_results=(topic,))


def test_each_transaction_of_a_request_has_its_own_result() -> None:
    """Results have the order of the request; all changes are one batch."""
    harness = TransactionHarness()
    t, u = harness.init(), harness.init(transactional_id="u")
    written = len(harness.batches)
    request = AddPartitionsToTxnRequest(
        transactions=(
            transaction("t", t, OUT),
            transaction("unknown", t, OUT),
            transaction("u", t, OUT),
            transaction("u", u, IN, verify_only=True),
            transaction("u", u, IN),
            transaction("u", u, IN, verify_only=True),
            transaction("t", t, IN),
        )
    )
    assert harness.ask(request, 5).results_by_transaction == (
        result("t", OUT, OK),
        result("unknown", OUT, MAPPING),
        result("u", OUT, MAPPING),
        result("u", IN, ABORTABLE),
        result("u", IN, OK),
        result("u", IN, OK),
        result("t", IN, OK),
    )
    assert harness.batches[written:] == [2]
    assert harness.transaction("t").partitions == {OUT, IN}
    assert harness.transaction("u").partitions == {IN}


def test_batched_request_of_an_older_client() -> None:
    """The request version determines the kind of client."""
    harness = TransactionHarness()
    producer = harness.init()
    request = AddPartitionsToTxnRequest(transactions=(transaction("t", producer, OUT),))
    assert harness.ask(request, 3).results_by_transaction == (result("t", OUT, OK),)
    assert harness.transaction().client_transaction_version == 0


@pytest.mark.parametrize("count", [1, 4, 50])
def test_add_offsets_adds_the_offsets_partition_of_the_group(count: int) -> None:
    harness = TransactionHarness(settings={"offsets.topic.num.partitions": "50"})
    if count != 50:
        harness.topics = Topics([Topic("__consumer_offsets", ZERO_UUID, count)])
    producer = harness.init()
    group_id = "polygenelubricants"  # Its hash is the smallest integer.
    assert harness.add_offsets(producer, group_id) is OK
    assert harness.add_offsets(producer, "g") is OK
    wanted = {("__consumer_offsets", group_partition(g, count)) for g in (group_id, "g")}
    assert harness.transaction().partitions == wanted
    assert harness.transaction().client_transaction_version == 0


@pytest.mark.parametrize(("state", "now", "epoch", "other"), ADDED)
def test_add_offsets_in_each_state(
    state: TransactionState, now: Errors, epoch: Errors, other: Errors
) -> None:
    for producer, answer in ((NOW, now), (BEFORE, epoch), (LATER, epoch), (OTHER, other)):
        harness = TransactionHarness()
        put(harness, state=state)
        assert harness.add_offsets(producer) is answer


@pytest.mark.parametrize(
    ("changed", "enlisted"),
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
def test_verified_partitions(changed: dict[str, Any], enlisted: bool) -> None:
    for state in (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT):
        harness = TransactionHarness()
        put(harness, state=state, partitions=frozenset({OUT}))
        arguments = {"name": "t", "producer_id": 7, "epoch": 3, "topic": "out", "partition": 0} | changed
        assert harness.shard.is_enlisted(*arguments.values()) is (enlisted and state is ONGOING)


def test_ending_transaction_has_no_verified_partitions() -> None:
    """Partitions stop being verified when the end is decided, before any marker is written."""
    harness = TransactionHarness()
    producer = harness.init()
    harness.add(producer)
    assert harness.shard.is_enlisted("t", FIRST_ID, 0, *OUT)
    harness.end(producer, True, NEW)
    assert not harness.shard.is_enlisted("t", FIRST_ID, 0, *OUT)
    assert not harness.shard.is_enlisted("t", FIRST_ID, 1, *OUT)
    harness.write_markers()
    assert not harness.shard.is_enlisted("t", FIRST_ID, 1, *OUT)
    harness.add((FIRST_ID, 1), version=3)
    harness.end((FIRST_ID, 1), True, OLD)
    assert not harness.shard.is_enlisted("t", FIRST_ID, 1, *OUT)


@pytest.mark.parametrize(
    ("state", "version", "fsync", "is_durable"),
    [
        # An old client's next transaction waits until the end of its last one is on the disk.
        (COMPLETE_COMMIT, 3, "false", False),
        (COMPLETE_ABORT, 3, "false", False),
        (COMPLETE_COMMIT, 5, "false", True),
        (EMPTY, 3, "false", True),
        (ONGOING, 3, "false", True),
        # If records wait for the disk, so do the responses that admit them.
        (EMPTY, 5, "true", False),
        (ONGOING, 3, "true", False),
    ],
)
def test_response_waits_for_fsync(
    state: TransactionState, version: int, fsync: str, is_durable: bool
) -> None:
    """An old client's transactions share one epoch: a marker repeated after a power cut would end both."""
    harness = TransactionHarness(settings={"konvene.log.fsync.topics": fsync})
    put(harness, state=state)
    request = add_request(NOW, [OUT], version)
    assert harness.shard.handle(request, harness.context(version)).when_written is is_durable
