"""Hostile transactional requests: forged ids and epochs, markers, and very long lists.

Only its own producer may change a transaction, whatever identity other requests claim. The error codes are
Kafka's (`KONVENE_AGAINST=kafka` checks them), except where a test names a difference. As in Kafka without an
authorizer, any client may send the requests of brokers: markers, and partitions added for other producers.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.hostile import forged
from tests.broker.hostile.transacting import (
    COMMIT,
    END,
    FIRST,
    OFFSETS,
    PRODUCE,
    SECOND,
    TOPIC,
    Producer,
    add,
    add_offsets,
    ask_until_settled,
    batch,
    broker_addition,
    codes,
    commit,
    end,
    end_of,
    find,
    init,
    init_producer,
    marker,
    write,
)
from tests.broker.hostile.transacting import code as code_of
from tests.broker.hostile.wire import Target

from konvene.errors import Errors
from konvene.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from konvene.messages.describe_transactions import DescribeTransactionsRequest
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.write_txn_markers import WriteTxnMarkersRequest

UNKNOWN_PRODUCER = Producer("hostile-unknown", 4_611_686_018_427_387_904, 0)
PARTITIONS = 3
HUGE = 100_000
GENERATIONS = pytest.mark.parametrize("generation", [FIRST, SECOND])

_names = (f"hostile-{n}" for n in itertools.count())


@pytest.fixture(scope="module", autouse=True)
def ready(target: Target) -> Iterator[None]:
    target.topic(TOPIC, PARTITIONS)
    target.coordinator("hostile")
    find(target, UNKNOWN_PRODUCER.transactional_id)
    yield
    assert init_producer(target, next(_names)).epoch == 0, "the broker no longer serves requests"


@pytest.fixture
def producer(target: Target) -> Iterator[Producer]:
    """Initialize a new producer; abort the transaction that it leaves open."""
    found = init_producer(target, next(_names))
    yield found
    init_producer(target, found.transactional_id)


@pytest.fixture
def group(target: Target) -> str:
    name = next(_names)
    target.coordinator(name)
    return name


def describe(target: Target, producer: Producer) -> Any:
    (state,) = ask_until_settled(
        target, DescribeTransactionsRequest(transactional_ids=(producer.transactional_id,))
    ).transaction_states
    return state


def fetch_committed(target: Target, group_id: str) -> Any:
    topics = (OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0,)),)
    request = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=group_id, topics=topics),), require_stable=True
    )
    return target.ask(request, 9).groups[0].topics[0].partitions[0]


def open_transaction(target: Target, producer: Producer, group: str, generation: int) -> None:
    """Begin a transaction, write a record, and commit an offset of the group in it."""
    if generation == FIRST:
        assert code_of(target, add(producer), 3) == "NONE"
        assert code_of(target, add_offsets(producer, group), 3) == "NONE"
    request = write(batch(producer), producer.transactional_id)
    assert code_of(target, request, PRODUCE[generation]) == "NONE"
    assert code_of(target, commit(producer, group), COMMIT[generation]) == "NONE"


def end_transaction(target: Target, producer: Producer, generation: int, committed: bool = True) -> Any:
    """End the transaction and wait until it is complete; return the response."""
    response = ask_until_settled(target, end(producer, committed), END[generation])
    deadline = time.monotonic() + 10
    while describe(target, producer).transaction_state.startswith("Prepare"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return response


# --- unknown producers and forged identities ------------------------------------------------------------


@pytest.mark.parametrize("transactional_id", ["hostile-unknown", "", "x" * 32_000, "\0", "../..", "😀"])
def test_an_unknown_transactional_id(target: Target, transactional_id: str) -> None:
    """A request does not create the transactional id that it names; the empty id is invalid."""
    if transactional_id:
        find(target, transactional_id)
    unknown = UNKNOWN_PRODUCER._replace(transactional_id=transactional_id)
    error = "INVALID_PRODUCER_ID_MAPPING" if transactional_id else "INVALID_REQUEST"
    for request, version in (
        (add(unknown), 3), (add_offsets(unknown), 3), (end(unknown), 4), (end(unknown), 5),
        (commit(unknown), COMMIT[SECOND]),
    ):  # fmt: skip
        assert code_of(target, request, version) == error, type(request)
    state = describe(target, unknown)
    expected = Errors.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Errors.INVALID_REQUEST
    assert Errors(state.error_code) is expected


@GENERATIONS
def test_a_producer_that_was_never_initialized(target: Target, generation: int) -> None:
    """A record or an offset of a producer id that the broker never assigned is rejected."""
    before = end_of(target)
    wrong = {FIRST: "INVALID_PRODUCER_ID_MAPPING", SECOND: "INVALID_PRODUCER_ID_MAPPING"}[generation]
    record = write(batch(UNKNOWN_PRODUCER), UNKNOWN_PRODUCER.transactional_id)
    assert code_of(target, record, PRODUCE[generation]) == wrong
    assert code_of(target, commit(UNKNOWN_PRODUCER), COMMIT[generation]) == wrong
    assert end_of(target) == before


FORGED = {
    "another id": lambda p: p._replace(producer_id=p.producer_id + 1_000_000),
    "no id": lambda p: p._replace(producer_id=-1),
    "the smallest id": lambda p: p._replace(producer_id=-(2**63)),
    "a future epoch": lambda p: p._replace(epoch=p.epoch + 1),
    "the last epoch": lambda p: p._replace(epoch=2**15 - 1),
    "the second-to-last epoch": lambda p: p._replace(epoch=2**15 - 2),
    "no epoch": lambda p: p._replace(epoch=-1),
    "the smallest epoch": lambda p: p._replace(epoch=-(2**15)),
}


@GENERATIONS
@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_producer_identity(
    target: Target, producer: Producer, group: str, forgery: str, generation: int
) -> None:
    """A request with another producer id or epoch can neither write to a transaction nor end it."""
    open_transaction(target, producer, group, generation)
    other = FORGED[forgery](producer)
    wrong = "PRODUCER_FENCED" if other.producer_id == producer.producer_id else "INVALID_PRODUCER_ID_MAPPING"
    before = end_of(target)
    assert code_of(target, add(other, partitions=(1,)), 3) == wrong
    assert code_of(target, add_offsets(other, "other"), 3) == wrong
    for version in (4, 5):
        assert code_of(target, end(other), version) == wrong
        assert code_of(target, end(other, committed=False), version) == wrong
    assert describe(target, producer).transaction_state == "Ongoing"
    if other.producer_id >= 0:  # A producer without an id may write outside transactions.
        assert code_of(target, write(batch(other), producer.transactional_id), PRODUCE[generation]) != "NONE"
        assert end_of(target) == before
    assert code_of(target, commit(other, group, offset=99), COMMIT[generation]) != "NONE"
    end_transaction(target, producer, generation)
    assert fetch_committed(target, group).committed_offset == 1


@pytest.mark.parametrize("version", [0, 1])
def test_old_versions_receive_invalid_producer_epoch(
    target: Target, producer: Producer, version: int
) -> None:
    """These versions precede PRODUCER_FENCED."""
    other = producer._replace(epoch=producer.epoch + 1)
    for request in (add(other), add_offsets(other), end(other)):
        assert code_of(target, request, version) == "INVALID_PRODUCER_EPOCH", type(request)


def test_a_fenced_producer_of_each_generation(target: Target, producer: Producer, group: str) -> None:
    """InitProducerId fences the earlier producer and aborts its transaction."""
    open_transaction(target, producer, group, SECOND)
    again = init_producer(target, producer.transactional_id)
    assert again.producer_id == producer.producer_id and again.epoch > producer.epoch
    before = end_of(target)
    for version in PRODUCE.values():
        assert code_of(target, write(batch(producer, 1), producer.transactional_id), version) != "NONE"
    for version in COMMIT.values():
        assert code_of(target, commit(producer, group, offset=99), version) != "NONE"
    for version in END.values():
        assert code_of(target, end(producer), version) != "NONE"
    assert end_of(target) == before
    assert fetch_committed(target, group).committed_offset != 99
    assert describe(target, producer).transaction_state == "Empty"


# --- InitProducerId -------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 900_001, 2**31 - 1])
def test_an_invalid_transaction_timeout(target: Target, timeout_ms: int) -> None:
    name = next(_names)
    find(target, name)
    assert code_of(target, init(name, timeout_ms), 5) == "INVALID_TRANSACTION_TIMEOUT"
    assert describe(target, UNKNOWN_PRODUCER._replace(transactional_id=name)).error_code != 0


def test_the_timeout_is_ignored_without_a_transactional_id(target: Target) -> None:
    assert code_of(target, init(None, -1), 5) == "NONE"
    assert code_of(target, init("", 60_000), 5) == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("producer_id", "epoch", "expected"),
    [
        (-1, 0, "INVALID_REQUEST"),
        (0, -1, "INVALID_REQUEST"),
        (-2, -2, "PRODUCER_FENCED"),
        (2**62, 0, "PRODUCER_FENCED"),
        (2**62, 2**15 - 1, "PRODUCER_FENCED"),
    ],
)
def test_init_producer_id_with_a_wrong_producer_id(
    target: Target, producer: Producer, producer_id: int, epoch: int, expected: str
) -> None:
    """A producer sends its current id and epoch, or neither."""
    request = init(producer.transactional_id, producer_id=producer_id, epoch=epoch)
    assert code_of(target, request, 5) == expected
    assert describe(target, producer).producer_epoch == producer.epoch


@pytest.mark.parametrize("epoch", [1, 2**15 - 1, 2**15 - 2, -2])
def test_init_producer_id_with_a_wrong_epoch(target: Target, producer: Producer, epoch: int) -> None:
    request = init(producer.transactional_id, producer_id=producer.producer_id, epoch=epoch)
    assert code_of(target, request, 5) == "PRODUCER_FENCED"
    assert describe(target, producer).producer_epoch == producer.epoch


# --- partitions, offsets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "partitions", "expected"),
    [
        ("hostile-no-such-topic", (0,), {"UNKNOWN_TOPIC_OR_PARTITION"}),
        (TOPIC, (PARTITIONS,), {"UNKNOWN_TOPIC_OR_PARTITION"}),
        (TOPIC, (-1, 2**31 - 1, -(2**31)), {"UNKNOWN_TOPIC_OR_PARTITION"}),
        (TOPIC, (0, PARTITIONS), {"UNKNOWN_TOPIC_OR_PARTITION", "OPERATION_NOT_ATTEMPTED"}),
        ("", (0,), {"UNKNOWN_TOPIC_OR_PARTITION"}),
        ("../../etc", (0,), {"UNKNOWN_TOPIC_OR_PARTITION"}),
        (OFFSETS, (0,), {"TOPIC_AUTHORIZATION_FAILED"}),
        ("__transaction_state", (0,), {"TOPIC_AUTHORIZATION_FAILED"}),
    ],
)
def test_partitions_that_cannot_be_added(
    target: Target, producer: Producer, topic: str, partitions: tuple[int, ...], expected: set[str]
) -> None:
    """One invalid partition rejects all, and the transaction does not begin."""
    response = ask_until_settled(target, add(producer, topic, partitions), 3)
    assert {c.name for c in codes(response)} == expected
    assert describe(target, producer).transaction_state == "Empty"


def test_a_very_long_list_of_partitions(target: Target, producer: Producer) -> None:
    """Each partition is answered once; unknown partitions are not added."""
    count = 1000 if target.is_kafka else HUGE  # Kafka takes quadratic time.
    response = ask_until_settled(target, add(producer, TOPIC, tuple(range(count))), 3)
    (topic,) = response.results_by_topic_v3_and_below
    assert len(topic.results_by_partition) == count
    assert describe(target, producer).transaction_state == "Empty"


def test_repeated_partitions(target: Target, producer: Producer) -> None:
    """A repeated partition is added once."""
    times = 1000 if target.is_kafka else HUGE
    assert code_of(target, add(producer, TOPIC, (0, 1) * (times // 2)), 3) == "NONE"
    (topic,) = describe(target, producer).topics
    assert sorted(topic.partitions) == [0, 1]


def test_no_partitions_at_all(target: Target, producer: Producer) -> None:
    """The broker responds to empty lists."""
    assert ask_until_settled(target, add(producer, TOPIC, ()), 3) is not None
    assert ask_until_settled(target, add(producer).replace(v3_and_below_topics=()), 3) is not None


def test_add_partitions_requests_of_brokers(target: Target, producer: Producer) -> None:
    """A verification changes nothing; its response shows which partitions are in the transaction."""
    verification = AddPartitionsToTxnRequest(transactions=(broker_addition(producer, verify_only=True),))
    assert code_of(target, verification, 5) == "TRANSACTION_ABORTABLE"
    unknown = AddPartitionsToTxnRequest(transactions=(broker_addition(UNKNOWN_PRODUCER, verify_only=True),))
    assert code_of(target, unknown, 5) == "INVALID_PRODUCER_ID_MAPPING"
    assert describe(target, producer).transaction_state == "Empty"
    assert code_of(target, add(producer), 3) == "NONE"
    assert code_of(target, verification, 5) == "NONE"


def test_very_many_transactions_in_a_request(target: Target, producer: Producer) -> None:
    """A repeated transaction is answered each time; 10,000 unknown ones are all answered."""
    one = broker_addition(producer, verify_only=False)
    if not target.is_kafka:  # Kafka answers each id once, and waits for the rest.
        response = ask_until_settled(target, AddPartitionsToTxnRequest(transactions=(one, one, one)), 5)
        assert [len(result.topic_results) for result in response.results_by_transaction] == [1, 1, 1]
    names = (f"hostile-none-{n}" for n in range(10_000))
    many = tuple(
        broker_addition(UNKNOWN_PRODUCER._replace(transactional_id=name), verify_only=True) for name in names
    )
    response = ask_until_settled(target, AddPartitionsToTxnRequest(transactions=many), 5)
    assert len(response.results_by_transaction) == len(many)
    assert codes(response) == {Errors.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize("group_id", ["", "g" * 32_000, "../..", "\0"])
def test_unusual_group_ids(target: Target, producer: Producer, group_id: str) -> None:
    """Any group id is valid, but offsets cannot be committed to the empty one."""
    assert code_of(target, add_offsets(producer, group_id), 3) == "NONE"
    expected = "NONE" if group_id else "INVALID_GROUP_ID"
    assert code_of(target, commit(producer, group_id), COMMIT[FIRST]) == expected


@GENERATIONS
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"topic": "hostile-no-such-topic"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"topic": ""}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"partition": PARTITIONS}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"partition": -1}, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"metadata": "m" * 4097}, "OFFSET_METADATA_TOO_LARGE"),
        ({"generation": 7, "member_id": "nobody"}, "ILLEGAL_GENERATION"),
        ({"generation": 7}, "ILLEGAL_GENERATION"),
        ({"instance_id": "nobody", "member_id": "nobody", "generation": 7}, "ILLEGAL_GENERATION"),
    ],
    ids=str,
)
def test_offsets_that_cannot_be_committed(
    target: Target, producer: Producer, group: str, fields: dict[str, Any], expected: str, generation: int
) -> None:
    """They are rejected and leave no pending offsets."""
    if generation == FIRST:
        assert code_of(target, add_offsets(producer, group), 3) == "NONE"
    assert code_of(target, commit(producer, group, **fields), COMMIT[generation]) == expected
    assert fetch_committed(target, group).committed_offset == -1
    assert fetch_committed(target, group).error_code == 0


# --- records --------------------------------------------------------------------------------------------


@GENERATIONS
def test_a_batch_and_a_request_that_disagree(target: Target, producer: Producer, generation: int) -> None:
    """The transactional id of the request and the producer id of its batch must match."""
    version = PRODUCE[generation]
    if generation == FIRST:
        assert code_of(target, add(producer), 3) == "NONE"
    name, before = producer.transactional_id, end_of(target)
    other = init_producer(target, next(_names))
    for records, transactional_id in (
        (batch(producer), UNKNOWN_PRODUCER.transactional_id),
        (batch(producer), other.transactional_id),
        (batch(other), name),
        (batch(producer) + batch(producer, 1), name),
        (
            forged.batch(
                attributes=0x30, producer_id=producer.producer_id, producer_epoch=0, base_sequence=0
            ),
            name,
        ),
        (
            forged.batch(
                attributes=0x20, producer_id=producer.producer_id, producer_epoch=0, base_sequence=0
            ),
            name,
        ),
    ):
        assert code_of(target, write(records, transactional_id), version) != "NONE", (
            records,
            transactional_id,
        )
    assert end_of(target) == before


@GENERATIONS
def test_a_record_in_a_partition_that_was_not_added(
    target: Target, producer: Producer, generation: int
) -> None:
    """It is rejected, unless the client's version adds partitions implicitly."""
    request = write(batch(producer), producer.transactional_id, partition=2)
    error = code_of(target, request, PRODUCE[generation])
    assert error == {FIRST: "TRANSACTION_ABORTABLE", SECOND: "NONE"}[generation]


@pytest.mark.parametrize("topic", [OFFSETS, "__transaction_state"])
def test_a_record_in_a_coordinators_topic_is_rejected(target: Target, producer: Producer, topic: str) -> None:
    for version in PRODUCE.values():
        request = write(batch(producer), producer.transactional_id, topic)
        assert code_of(target, request, version) != "NONE"


# --- EndTxn ---------------------------------------------------------------------------------------------


def test_ending_a_transaction_that_has_not_begun(target: Target, producer: Producer) -> None:
    assert code_of(target, end(producer), 4) == "INVALID_TXN_STATE"
    assert code_of(target, end(producer, committed=False), 4) == "INVALID_TXN_STATE"
    assert code_of(target, end(producer), 5) == "INVALID_TXN_STATE"
    assert describe(target, producer).producer_epoch == producer.epoch


@GENERATIONS
def test_a_second_end_with_the_other_result(
    target: Target, producer: Producer, group: str, generation: int
) -> None:
    """A committed transaction cannot be aborted later, nor an aborted one committed."""
    for committed in (True, False):
        open_transaction(target, producer, group, generation)
        response = end_transaction(target, producer, generation, committed)
        assert response.error_code == 0
        assert code_of(target, end(producer, not committed), END[generation]) == "INVALID_TXN_STATE"
        assert code_of(target, end(producer, committed), END[generation]) == "NONE"
        if generation == SECOND:
            assert response.producer_epoch == producer.epoch + 1
            producer = producer._replace(epoch=response.producer_epoch)
        else:
            producer = init_producer(target, producer.transactional_id)


# --- WriteTxnMarkers of clients -------------------------------------------------------------------------


def test_a_marker_for_unknown_partitions(target: Target, producer: Producer) -> None:
    assert code_of(target, marker(producer, "hostile-no-such-topic"), 1) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert code_of(target, marker(producer, partitions=(-1, PARTITIONS)), 1) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert ask_until_settled(target, WriteTxnMarkersRequest(markers=()), 1).markers == ()


@GENERATIONS
def test_a_marker_of_another_epoch(target: Target, producer: Producer, group: str, generation: int) -> None:
    """A marker of an earlier epoch does not end the transaction."""
    again = init_producer(target, producer.transactional_id)
    open_transaction(target, again, group, generation)
    before = end_of(target, committed=True)
    old = marker(again._replace(epoch=again.epoch - 1))
    assert code_of(target, old, 1) == "INVALID_PRODUCER_EPOCH"
    assert end_of(target, committed=True) == before
    end_transaction(target, again, generation)
    assert end_of(target, committed=True) > before


def test_very_many_markers(target: Target, producer: Producer) -> None:
    """Repeated markers for unknown partitions are all answered."""
    (one,) = marker(producer, "hostile-no-such-topic", tuple(range(50))).markers
    response = target.ask(WriteTxnMarkersRequest(markers=(one,) * 2000), 1)
    assert codes(response) == {Errors.UNKNOWN_TOPIC_OR_PARTITION}
