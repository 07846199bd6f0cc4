"""What an administrator can ask of transactions: which hang is told from which only take long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.scripted import ScriptedBroker

from konvene.client.admin.admin import Admin, HangingTransaction, ProducerState, TransactionListing
from konvene.client.errors import BadResponse, KafkaError, Misconfigured, UnsupportedVersion
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.errors import Errors
from konvene.messages import describe_producers as producers
from konvene.messages import describe_transactions as described
from konvene.messages import list_transactions as listed
from konvene.messages import write_txn_markers as markers
from konvene.messages.init_producer_id import InitProducerIdResponse

QUICK = ClientSettings(retry_backoff_ms=1, retry_backoff_max_ms=2, default_api_timeout_ms=2_000)
TP = TopicPartition("t", 0)
HOUR_MS = 3_600_000


def ask(broker: ScriptedBroker, what: Callable[[Admin], Awaitable[Any]], partitions: int = 3) -> Any:
    broker.answers["Metadata"] = [broker.metadata(t=partitions)]

    async def job() -> Any:
        async with Cluster(broker.address, QUICK) as cluster:
            return await what(Admin(cluster))

    return asyncio.run(job())


def listing(*rows: tuple[str, int], code: int = 0) -> listed.ListTransactionsResponse:
    return listed.ListTransactionsResponse(
        error_code=code,
        transaction_states=tuple(
            listed.TransactionState(transactional_id=name, producer_id=pid, transaction_state="Ongoing")
            for name, pid in rows
        ),
    )


def describing(code: int = 0, **topics: tuple[int, ...]) -> Callable[[Any], Any]:
    def answer(request: Any) -> described.DescribeTransactionsResponse:
        return described.DescribeTransactionsResponse(
            transaction_states=tuple(
                described.TransactionState(
                    error_code=code,
                    transactional_id=name,
                    transaction_state="Ongoing",
                    transaction_start_time_ms=77,
                    producer_id=7,
                    topics=tuple(described.TopicData(topic=t, partitions=p) for t, p in topics.items()),
                )
                for name in request.transactional_ids
            )
        )

    return answer


def active(producer_id: int, start: int, at: int = 0, code: int = 0) -> Callable[[Any], Any]:
    """In each partition this producer, whose transaction begins at `start` and last wrote at `at`."""

    def answer(request: Any) -> producers.DescribeProducersResponse:
        row = producers.ProducerState(
            producer_id=producer_id, producer_epoch=2, last_sequence=4, last_timestamp=at,
            coordinator_epoch=-1, current_txn_start_offset=start,
        )  # fmt: skip
        return producers.DescribeProducersResponse(
            topics=tuple(
                producers.TopicResponse(
                    name=t.name,
                    partitions=tuple(
                        producers.PartitionResponse(
                            partition_index=p, error_code=code, active_producers=() if code else (row,)
                        )
                        for p in t.partition_indexes
                    ),
                )
                for t in request.topics
            )
        )

    return answer


def marked(code: int = 0) -> markers.WriteTxnMarkersResponse:
    result = markers.WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = markers.WritableTxnMarkerTopicResult(name="t", partitions=(result,))
    return markers.WriteTxnMarkersResponse(
        markers=(markers.WritableTxnMarkerResult(producer_id=7, topics=(topic,)),)
    )


# which there are ----------------------------------------------------------------------------------


def test_transactions_are_listed_by_id_when_the_coordinators_are_ready() -> None:
    loading = listing(code=Errors.COORDINATOR_LOAD_IN_PROGRESS)
    with ScriptedBroker(ListTransactions=[loading, listing(("b", 8), ("a", 7))]) as broker:
        found = ask(broker, lambda a: a.list_transactions(states=["Ongoing"], duration_ms=5, pattern="[ab]"))
    assert found == [TransactionListing("a", 1, 7, "Ongoing"), TransactionListing("b", 1, 8, "Ongoing")]
    request = broker.requests[-1]
    assert (request.state_filters, request.duration_filter) == (("Ongoing",), 5)
    assert request.transactional_id_pattern == "[ab]"


def test_a_filter_that_a_broker_does_not_have_is_not_left_out() -> None:
    with (
        ScriptedBroker(versions={"ListTransactions": (0, 0)}, ListTransactions=listing()) as broker,
        pytest.raises(UnsupportedVersion),
    ):
        ask(broker, lambda a: a.list_transactions(duration_ms=5))


def test_an_id_that_nobody_knows() -> None:
    with (
        ScriptedBroker(DescribeTransactions=describing(Errors.TRANSACTIONAL_ID_NOT_FOUND)) as broker,
        pytest.raises(KafkaError, match="transactional id x: TRANSACTIONAL_ID_NOT_FOUND"),
    ):
        ask(broker, lambda a: a.describe_transaction("x"))


def test_producers_are_asked_for_five_hundred_partitions_at_once() -> None:
    wanted = [TopicPartition("t", i) for i in range(1_001)]
    with ScriptedBroker(DescribeProducers=active(7, -1)) as broker:
        found = ask(broker, lambda a: a.describe_producers(wanted), 1_001)
    assert list(found) == wanted
    assert found[TP] == (ProducerState(7, 2, 4, 0, -1, None),)
    asked = [r for r in broker.requests if isinstance(r, producers.DescribeProducersRequest)]
    assert [len(r.topics[0].partition_indexes) for r in asked] == [500, 500, 1]


def test_a_leader_that_moved_is_looked_for_and_a_broker_that_was_named_is_not() -> None:
    moved = active(7, 3, code=Errors.NOT_LEADER_OR_FOLLOWER)
    with ScriptedBroker(DescribeProducers=[moved, active(7, 3)]) as broker:
        assert ask(broker, lambda a: a.describe_producers([TP]))[TP][0].transaction_start_offset == 3
    with ScriptedBroker(DescribeProducers=moved) as broker:
        with pytest.raises(KafkaError, match="the producers of t-0: NOT_LEADER_OR_FOLLOWER"):
            ask(broker, lambda a: a.describe_producers([TP], broker_id=1))
        with pytest.raises(Misconfigured, match="there is no broker with id 4"):
            ask(broker, lambda a: a.describe_producers([TP], broker_id=4))


def test_an_answer_that_leaves_a_partition_out_is_bad() -> None:
    with (
        ScriptedBroker(DescribeProducers=producers.DescribeProducersResponse()) as broker,
        pytest.raises(BadResponse, match="for 1 partitions answered 0"),
    ):
        ask(broker, lambda a: a.describe_producers([TP]))


# which hang ---------------------------------------------------------------------------------------


def hanging(broker: ScriptedBroker) -> list[HangingTransaction]:
    """After an hour, of transactions that may last a quarter of one."""
    return list(
        ask(
            broker,
            lambda a: a.find_hanging_transactions(
                [TP], now_ms=HOUR_MS, max_transaction_timeout_ms=HOUR_MS // 4
            ),
        )
    )


STUCK = [HangingTransaction(TP, ProducerState(7, 2, 4, 0, -1, 3))]


@pytest.mark.parametrize(
    "answers, found",
    [
        ({"ListTransactions": listing()}, STUCK),
        ({"ListTransactions": listing(("id", 8))}, STUCK),
        ({"DescribeTransactions": describing(Errors.TRANSACTIONAL_ID_NOT_FOUND)}, STUCK),
        ({"DescribeTransactions": describing()}, STUCK),
        ({"DescribeTransactions": describing(t=(1, 2), u=(0,))}, STUCK),
        ({"DescribeTransactions": describing(t=(0, 2))}, []),
        ({"DescribeProducers": active(7, -1)}, []),
        ({"DescribeProducers": active(7, 3, at=HOUR_MS - HOUR_MS // 4)}, []),
    ],
    ids=[
        "no-id", "another-producer", "id-forgotten", "nothing-open", "other-partitions", "still-open",
        "no-transaction", "not-old",
    ],
)  # fmt: skip
def test_a_transaction_hangs_where_no_coordinator_has_its_partition(
    answers: dict[str, Any], found: list[HangingTransaction]
) -> None:
    usual = {
        "DescribeProducers": active(7, 3), "ListTransactions": listing(("id", 7)),
        "DescribeTransactions": describing(),
    }  # fmt: skip
    with ScriptedBroker(**(usual | answers)) as broker:
        assert hanging(broker) == found


def test_where_nothing_is_old_no_coordinator_is_asked() -> None:
    with ScriptedBroker(DescribeProducers=active(7, -1)) as broker:
        assert hanging(broker) == []
    assert "ListTransactions" not in broker.apis


# ending one ---------------------------------------------------------------------------------------


def test_a_marker_is_written_by_the_leader_as_it_is_then() -> None:
    answers = [marked(Errors.NOT_LEADER_OR_FOLLOWER), marked()]
    with ScriptedBroker(WriteTxnMarkers=answers) as broker:
        ask(broker, lambda a: a.abort_transaction(TP, 7, 2, 0))
    assert [name for name in broker.apis if name != "FindCoordinator"] == [
        "Metadata", "WriteTxnMarkers", "Metadata", "WriteTxnMarkers",
    ]  # fmt: skip
    (marker,) = broker.requests[-1].markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 2, 0)
    assert marker.transaction_result is False
    assert [(t.name, t.partition_indexes) for t in marker.topics] == [("t", (0,))]


@pytest.mark.parametrize("code", [Errors.INVALID_PRODUCER_EPOCH, Errors.TRANSACTION_COORDINATOR_FENCED])
def test_a_marker_that_is_refused_is_told(code: Errors) -> None:
    with (
        ScriptedBroker(WriteTxnMarkers=marked(code)) as broker,
        pytest.raises(KafkaError, match=f"the transaction of producer 7 in t-0: {code.name}"),
    ):
        ask(broker, lambda a: a.abort_transaction(TP, 7, 2, 0))


def test_a_producer_is_fenced_by_taking_its_id_over() -> None:
    busy = InitProducerIdResponse(error_code=Errors.CONCURRENT_TRANSACTIONS)
    done = InitProducerIdResponse(producer_id=7, producer_epoch=3)
    with ScriptedBroker(InitProducerId=[busy, done]) as broker:
        assert ask(broker, lambda a: a.fence_producer("id")) == (7, 3)
    assert (broker.requests[-1].transactional_id, broker.requests[-1].producer_id) == ("id", -1)
