"""Transactional requests that nobody honest sends: forged ids and epochs, markers, and lists without an end.

Whoever is not the producer of a transaction changes nothing of it, whatever it says that it is. The codes are
Kafka's (`KONVENE_AGAINST=kafka`), but where a test says that they are ours. As in Kafka without an
authorizer, what brokers say is taken from anybody: markers, and partitions added on behalf of others.
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
    batch,
    begun,
    codes,
    commit,
    end,
    end_of,
    enlisted,
    find,
    init,
    marker,
    settled,
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

NOBODY = Producer("hostile-nobody", 4_611_686_018_427_387_904, 0)
PARTITIONS = 3
HUGE = 100_000
GENERATIONS = pytest.mark.parametrize("generation", [FIRST, SECOND])

_names = (f"hostile-{n}" for n in itertools.count())


@pytest.fixture(scope="module", autouse=True)
def ready(target: Target) -> Iterator[None]:
    target.topic(TOPIC, PARTITIONS)
    target.coordinator("hostile")
    find(target, NOBODY.transactional_id)
    yield
    assert begun(target, next(_names)).epoch == 0, "it serves no more"


@pytest.fixture
def producer(target: Target) -> Iterator[Producer]:
    """Somebody new; what they leave open is aborted."""
    found = begun(target, next(_names))
    yield found
    begun(target, found.transactional_id)


@pytest.fixture
def group(target: Target) -> str:
    name = next(_names)
    target.coordinator(name)
    return name


def described(target: Target, producer: Producer) -> Any:
    (told,) = settled(
        target, DescribeTransactionsRequest(transactional_ids=(producer.transactional_id,))
    ).transaction_states
    return told


def fetched(target: Target, group_id: str) -> Any:
    topics = (OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0,)),)
    asked = OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=group_id, topics=topics),), require_stable=True
    )
    return target.ask(asked, 9).groups[0].topics[0].partitions[0]


def opened(target: Target, producer: Producer, group: str, generation: int) -> None:
    """A transaction with a record, and an offset of the group."""
    if generation == FIRST:
        assert code_of(target, add(producer), 3) == "NONE"
        assert code_of(target, add_offsets(producer, group), 3) == "NONE"
    asked = write(batch(producer), producer.transactional_id)
    assert code_of(target, asked, PRODUCE[generation]) == "NONE"
    assert code_of(target, commit(producer, group), COMMIT[generation]) == "NONE"


def ended(target: Target, producer: Producer, generation: int, committed: bool = True) -> Any:
    told = settled(target, end(producer, committed), END[generation])
    deadline = time.monotonic() + 10
    while described(target, producer).transaction_state.startswith("Prepare"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return told


# --- who is nobody, or somebody else ---------------------------------------------------------------------


@pytest.mark.parametrize("transactional_id", ["hostile-nobody", "", "x" * 32_000, "\0", "../..", "😀"])
def test_a_transactional_id_that_nobody_has(target: Target, transactional_id: str) -> None:
    """It is not made by naming it; an empty one is no id at all."""
    if transactional_id:
        find(target, transactional_id)
    nobody = NOBODY._replace(transactional_id=transactional_id)
    unknown = "INVALID_PRODUCER_ID_MAPPING" if transactional_id else "INVALID_REQUEST"
    for request, version in (
        (add(nobody), 3), (add_offsets(nobody), 3), (end(nobody), 4), (end(nobody), 5),
        (commit(nobody), COMMIT[SECOND]),
    ):  # fmt: skip
        assert code_of(target, request, version) == unknown, type(request)
    told = described(target, nobody)
    expected = Errors.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Errors.INVALID_REQUEST
    assert Errors(told.error_code) is expected


@GENERATIONS
def test_nobody_writes_in_a_transaction_of_its_own(target: Target, generation: int) -> None:
    """A record, or an offset, of a producer that was never given its id."""
    before = end_of(target)
    wrong = {FIRST: "INVALID_PRODUCER_ID_MAPPING", SECOND: "INVALID_PRODUCER_ID_MAPPING"}[generation]
    record = write(batch(NOBODY), NOBODY.transactional_id)
    assert code_of(target, record, PRODUCE[generation]) == wrong
    assert code_of(target, commit(NOBODY), COMMIT[generation]) == wrong
    assert end_of(target) == before


FORGED = {
    "the id of another": lambda p: p._replace(producer_id=p.producer_id + 1_000_000),
    "no id": lambda p: p._replace(producer_id=-1),
    "the smallest id": lambda p: p._replace(producer_id=-(2**63)),
    "an epoch to come": lambda p: p._replace(epoch=p.epoch + 1),
    "the last epoch": lambda p: p._replace(epoch=2**15 - 1),
    "the last epoch but one": lambda p: p._replace(epoch=2**15 - 2),
    "no epoch": lambda p: p._replace(epoch=-1),
    "the smallest epoch": lambda p: p._replace(epoch=-(2**15)),
}


@GENERATIONS
@pytest.mark.parametrize("forgery", FORGED)
def test_who_says_it_is_the_producer(
    target: Target, producer: Producer, group: str, forgery: str, generation: int
) -> None:
    """An open transaction is nobody else's: with another id or epoch nobody writes to it, or ends it."""
    opened(target, producer, group, generation)
    other = FORGED[forgery](producer)
    wrong = "PRODUCER_FENCED" if other.producer_id == producer.producer_id else "INVALID_PRODUCER_ID_MAPPING"
    before = end_of(target)
    assert code_of(target, add(other, partitions=(1,)), 3) == wrong
    assert code_of(target, add_offsets(other, "other"), 3) == wrong
    for version in (4, 5):
        assert code_of(target, end(other), version) == wrong
        assert code_of(target, end(other, committed=False), version) == wrong
    assert described(target, producer).transaction_state == "Ongoing"
    if other.producer_id >= 0:  # For who has no id is in no transaction, and may write.
        assert code_of(target, write(batch(other), producer.transactional_id), PRODUCE[generation]) != "NONE"
        assert end_of(target) == before
    assert code_of(target, commit(other, group, offset=99), COMMIT[generation]) != "NONE"
    ended(target, producer, generation)
    assert fetched(target, group).committed_offset == 1


@pytest.mark.parametrize("version", [0, 1])
def test_old_clients_hear_what_they_know(target: Target, producer: Producer, version: int) -> None:
    """PRODUCER_FENCED was not there yet."""
    other = producer._replace(epoch=producer.epoch + 1)
    for request in (add(other), add_offsets(other), end(other)):
        assert code_of(target, request, version) == "INVALID_PRODUCER_EPOCH", type(request)


def test_a_zombie_of_each_kind(target: Target, producer: Producer, group: str) -> None:
    """Whoever was there before InitProducerId writes nothing any more, and its transaction is aborted."""
    opened(target, producer, group, SECOND)
    again = begun(target, producer.transactional_id)
    assert again.producer_id == producer.producer_id and again.epoch > producer.epoch
    before = end_of(target)
    for version in PRODUCE.values():
        assert code_of(target, write(batch(producer, 1), producer.transactional_id), version) != "NONE"
    for version in COMMIT.values():
        assert code_of(target, commit(producer, group, offset=99), version) != "NONE"
    for version in END.values():
        assert code_of(target, end(producer), version) != "NONE"
    assert end_of(target) == before
    assert fetched(target, group).committed_offset != 99
    assert described(target, producer).transaction_state == "Empty"


# --- InitProducerId --------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31), 900_001, 2**31 - 1])
def test_a_timeout_that_nobody_may_ask_for(target: Target, timeout_ms: int) -> None:
    name = next(_names)
    find(target, name)
    assert code_of(target, init(name, timeout_ms), 5) == "INVALID_TRANSACTION_TIMEOUT"
    assert described(target, NOBODY._replace(transactional_id=name)).error_code != 0


def test_without_a_transactional_id_nothing_is_asked_of_the_timeout(target: Target) -> None:
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
def test_who_says_what_it_was(
    target: Target, producer: Producer, producer_id: int, epoch: int, expected: str
) -> None:
    """A producer that says who it was must have been that, and says both or neither."""
    asked = init(producer.transactional_id, producer_id=producer_id, epoch=epoch)
    assert code_of(target, asked, 5) == expected
    assert described(target, producer).producer_epoch == producer.epoch


@pytest.mark.parametrize("epoch", [1, 2**15 - 1, 2**15 - 2, -2])
def test_who_was_it_in_another_epoch(target: Target, producer: Producer, epoch: int) -> None:
    asked = init(producer.transactional_id, producer_id=producer.producer_id, epoch=epoch)
    assert code_of(target, asked, 5) == "PRODUCER_FENCED"
    assert described(target, producer).producer_epoch == producer.epoch


# --- partitions, offsets -----------------------------------------------------------------------------------


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
    """One of them is enough that none is, and the transaction does not begin."""
    told = settled(target, add(producer, topic, partitions), 3)
    assert {c.name for c in codes(told)} == expected
    assert described(target, producer).transaction_state == "Empty"


def test_a_list_of_partitions_without_an_end(target: Target, producer: Producer) -> None:
    """Each is answered once; what is not there is not remembered."""
    count = 1000 if target.is_kafka else HUGE  # Kafka takes the square of their number.
    told = settled(target, add(producer, TOPIC, tuple(range(count))), 3)
    (topic,) = told.results_by_topic_v3_and_below
    assert len(topic.results_by_partition) == count
    assert described(target, producer).transaction_state == "Empty"


def test_one_partition_over_and_over(target: Target, producer: Producer) -> None:
    """It is one partition."""
    times = 1000 if target.is_kafka else HUGE
    assert code_of(target, add(producer, TOPIC, (0, 1) * (times // 2)), 3) == "NONE"
    (topic,) = described(target, producer).topics
    assert sorted(topic.partitions) == [0, 1]


def test_no_partitions_at_all(target: Target, producer: Producer) -> None:
    """Whatever is said to it, it is said."""
    assert settled(target, add(producer, TOPIC, ()), 3) is not None
    assert settled(target, add(producer).replace(v3_and_below_topics=()), 3) is not None


def test_the_form_of_brokers(target: Target, producer: Producer) -> None:
    """To verify changes nothing, and says of each partition whether it is enlisted."""
    asked = AddPartitionsToTxnRequest(transactions=(enlisted(producer, verify_only=True),))
    assert code_of(target, asked, 5) == "TRANSACTION_ABORTABLE"
    nobody = AddPartitionsToTxnRequest(transactions=(enlisted(NOBODY, verify_only=True),))
    assert code_of(target, nobody, 5) == "INVALID_PRODUCER_ID_MAPPING"
    assert described(target, producer).transaction_state == "Empty"
    assert code_of(target, add(producer), 3) == "NONE"
    assert code_of(target, asked, 5) == "NONE"


def test_transactions_without_an_end(target: Target, producer: Producer) -> None:
    """One over and over is answered each time, and others are served soon."""
    one = enlisted(producer, verify_only=False)
    if not target.is_kafka:  # Which waits for as many answers as it was sent ids, and has one for each.
        told = settled(target, AddPartitionsToTxnRequest(transactions=(one, one, one)), 5)
        assert [len(result.topic_results) for result in told.results_by_transaction] == [1, 1, 1]
    names = (f"hostile-none-{n}" for n in range(10_000))
    many = tuple(enlisted(NOBODY._replace(transactional_id=name), verify_only=True) for name in names)
    told = settled(target, AddPartitionsToTxnRequest(transactions=many), 5)
    assert len(told.results_by_transaction) == len(many)
    assert codes(told) == {Errors.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize("group_id", ["", "g" * 32_000, "../..", "\0"])
def test_groups_with_odd_names(target: Target, producer: Producer, group_id: str) -> None:
    """A group is a name; the empty one is refused where offsets are committed."""
    assert code_of(target, add_offsets(producer, group_id), 3) == "NONE"
    expected = "NONE" if group_id else "INVALID_GROUP_ID"
    assert code_of(target, commit(producer, group_id), COMMIT[FIRST]) == expected


@GENERATIONS
@pytest.mark.parametrize(
    ("said", "expected"),
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
    target: Target, producer: Producer, group: str, said: dict[str, Any], expected: str, generation: int
) -> None:
    """They are refused, and nothing of them is pending."""
    if generation == FIRST:
        assert code_of(target, add_offsets(producer, group), 3) == "NONE"
    assert code_of(target, commit(producer, group, **said), COMMIT[generation]) == expected
    assert fetched(target, group).committed_offset == -1
    assert fetched(target, group).error_code == 0


# --- records ----------------------------------------------------------------------------------------------


@GENERATIONS
def test_a_batch_and_a_request_that_disagree(target: Target, producer: Producer, generation: int) -> None:
    """Whose transaction it is, both say, and both say the same."""
    version = PRODUCE[generation]
    if generation == FIRST:
        assert code_of(target, add(producer), 3) == "NONE"
    name, before = producer.transactional_id, end_of(target)
    other = begun(target, next(_names))
    for records, transactional_id in (
        (batch(producer), NOBODY.transactional_id),
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
def test_no_record_where_none_was_announced(target: Target, producer: Producer, generation: int) -> None:
    """Who must announce partitions and does not, may not write to them. Who need not, may."""
    asked = write(batch(producer), producer.transactional_id, partition=2)
    told = code_of(target, asked, PRODUCE[generation])
    assert told == {FIRST: "TRANSACTION_ABORTABLE", SECOND: "NONE"}[generation]


@pytest.mark.parametrize("topic", [OFFSETS, "__transaction_state"])
def test_no_record_to_what_coordinators_write(target: Target, producer: Producer, topic: str) -> None:
    for version in PRODUCE.values():
        asked = write(batch(producer), producer.transactional_id, topic)
        assert code_of(target, asked, version) != "NONE"


# --- ends ---------------------------------------------------------------------------------------------------


def test_a_transaction_that_was_not_begun(target: Target, producer: Producer) -> None:
    assert code_of(target, end(producer), 4) == "INVALID_TXN_STATE"
    assert code_of(target, end(producer, committed=False), 4) == "INVALID_TXN_STATE"
    assert code_of(target, end(producer), 5) == "INVALID_TXN_STATE"
    assert described(target, producer).producer_epoch == producer.epoch


@GENERATIONS
def test_the_other_end(target: Target, producer: Producer, group: str, generation: int) -> None:
    """What is committed cannot be aborted by saying so later, and the other way round."""
    for committed in (True, False):
        opened(target, producer, group, generation)
        told = ended(target, producer, generation, committed)
        assert told.error_code == 0
        assert code_of(target, end(producer, not committed), END[generation]) == "INVALID_TXN_STATE"
        assert code_of(target, end(producer, committed), END[generation]) == "NONE"
        if generation == SECOND:
            assert told.producer_epoch == producer.epoch + 1
            producer = producer._replace(epoch=told.producer_epoch)
        else:
            producer = begun(target, producer.transactional_id)


# --- markers from anybody -----------------------------------------------------------------------------------


def test_a_marker_for_what_is_not_there(target: Target, producer: Producer) -> None:
    assert code_of(target, marker(producer, "hostile-no-such-topic"), 1) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert code_of(target, marker(producer, partitions=(-1, PARTITIONS)), 1) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert settled(target, WriteTxnMarkersRequest(markers=()), 1).markers == ()


@GENERATIONS
def test_a_marker_of_another_epoch(target: Target, producer: Producer, group: str, generation: int) -> None:
    """A marker of an epoch that is over does not end the transaction."""
    again = begun(target, producer.transactional_id)
    opened(target, again, group, generation)
    before = end_of(target, committed=True)
    old = marker(again._replace(epoch=again.epoch - 1))
    assert code_of(target, old, 1) == "INVALID_PRODUCER_EPOCH"
    assert end_of(target, committed=True) == before
    ended(target, again, generation)
    assert end_of(target, committed=True) > before


def test_markers_without_an_end(target: Target, producer: Producer) -> None:
    """The same one over and over, for partitions that are not there, is answered."""
    (one,) = marker(producer, "hostile-no-such-topic", tuple(range(50))).markers
    told = target.ask(WriteTxnMarkersRequest(markers=(one,) * 2000), 1)
    assert codes(told) == {Errors.UNKNOWN_TOPIC_OR_PARTITION}
