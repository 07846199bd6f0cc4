"""Admin requests about transactions, and distinguishing hanging transactions from long ones."""

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


def list_response(*rows: tuple[str, int], code: int = 0) -> listed.ListTransactionsResponse:
    return listed.ListTransactionsResponse(
        error_code=code,
        transaction_states=tuple(
            listed.TransactionState(transactional_id=name, producer_id=pid, transaction_state="Ongoing")
            for name, pid in rows
        ),
    )


def describe_response(code: int = 0, **topics: tuple[int, ...]) -> Callable[[Any], Any]:
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


def producers_response(producer_id: int, start: int, at: int = 0, code: int = 0) -> Callable[[Any], Any]:
    """Answer with one producer per partition: transaction from offset `start`, last write at `at`."""

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


def marker_response(code: int = 0) -> markers.WriteTxnMarkersResponse:
    result = markers.WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = markers.WritableTxnMarkerTopicResult(name="t", partitions=(result,))
    return markers.WriteTxnMarkersResponse(
        markers=(markers.WritableTxnMarkerResult(producer_id=7, topics=(topic,)),)
    )


# listing and describing ----------------------------------------------------------------------------------


def test_transactions_are_listed_by_id_when_the_coordinators_are_ready() -> None:
    loading = list_response(code=Errors.COORDINATOR_LOAD_IN_PROGRESS)
    with ScriptedBroker(ListTransactions=[loading, list_response(("b", 8), ("a", 7))]) as broker:
        found = ask(broker, lambda a: a.list_transactions(states=["Ongoing"], duration_ms=5, pattern="[ab]"))
    assert found == [TransactionListing("a", 1, 7, "Ongoing"), TransactionListing("b", 1, 8, "Ongoing")]
    request = broker.requests[-1]
    assert (request.state_filters, request.duration_filter) == (("Ongoing",), 5)
    assert request.transactional_id_pattern == "[ab]"


def test_a_filter_that_the_broker_does_not_support_is_an_error() -> None:
    with (
        ScriptedBroker(versions={"ListTransactions": (0, 0)}, ListTransactions=list_response()) as broker,
        pytest.raises(UnsupportedVersion),
    ):
        ask(broker, lambda a: a.list_transactions(duration_ms=5))


def test_an_unknown_transactional_id_is_an_error() -> None:
    with (
        ScriptedBroker(DescribeTransactions=describe_response(Errors.TRANSACTIONAL_ID_NOT_FOUND)) as broker,
        pytest.raises(KafkaError, match="transactional id x: TRANSACTIONAL_ID_NOT_FOUND"),
    ):
        ask(broker, lambda a: a.describe_transaction("x"))


def test_describe_producers_sends_at_most_500_partitions_per_request() -> None:
    wanted = [TopicPartition("t", i) for i in range(1_001)]
    with ScriptedBroker(DescribeProducers=producers_response(7, -1)) as broker:
        found = ask(broker, lambda a: a.describe_producers(wanted), 1_001)
    assert list(found) == wanted
    assert found[TP] == (ProducerState(7, 2, 4, 0, -1, None),)
    requests = [r for r in broker.requests if isinstance(r, producers.DescribeProducersRequest)]
    assert [len(r.topics[0].partition_indexes) for r in requests] == [500, 500, 1]


def test_a_moved_leader_is_looked_up_unless_a_broker_is_given() -> None:
    moved = producers_response(7, 3, code=Errors.NOT_LEADER_OR_FOLLOWER)
    with ScriptedBroker(DescribeProducers=[moved, producers_response(7, 3)]) as broker:
        assert ask(broker, lambda a: a.describe_producers([TP]))[TP][0].transaction_start_offset == 3
    with ScriptedBroker(DescribeProducers=moved) as broker:
        with pytest.raises(KafkaError, match="the producers of t-0: NOT_LEADER_OR_FOLLOWER"):
            ask(broker, lambda a: a.describe_producers([TP], broker_id=1))
        with pytest.raises(Misconfigured, match="there is no broker with id 4"):
            ask(broker, lambda a: a.describe_producers([TP], broker_id=4))


def test_a_response_without_a_requested_partition_is_bad() -> None:
    with (
        ScriptedBroker(DescribeProducers=producers.DescribeProducersResponse()) as broker,
        pytest.raises(BadResponse, match="for 1 partition answered 0"),
    ):
        ask(broker, lambda a: a.describe_producers([TP]))


# hanging transactions ---------------------------------------------------------------------------------------


def hanging(broker: ScriptedBroker) -> list[HangingTransaction]:
    """Search at one hour, with a maximum transaction timeout of a quarter of an hour."""
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
        ({"ListTransactions": list_response()}, STUCK),
        ({"ListTransactions": list_response(("id", 8))}, STUCK),
        ({"DescribeTransactions": describe_response(Errors.TRANSACTIONAL_ID_NOT_FOUND)}, STUCK),
        ({"DescribeTransactions": describe_response()}, STUCK),
        ({"DescribeTransactions": describe_response(t=(1, 2), u=(0,))}, STUCK),
        ({"DescribeTransactions": describe_response(t=(0, 2))}, []),
        ({"DescribeProducers": producers_response(7, -1)}, []),
        ({"DescribeProducers": producers_response(7, 3, at=HOUR_MS - HOUR_MS // 4)}, []),
    ],
    ids=[
        "no-id", "another-producer", "id-forgotten", "nothing-open", "other-partitions", "still-open",
        "no-transaction", "not-old",
    ],
)  # fmt: skip
def test_a_transaction_without_a_coordinator_entry_for_its_partition_hangs(
    answers: dict[str, Any], found: list[HangingTransaction]
) -> None:
    usual = {
        "DescribeProducers": producers_response(7, 3), "ListTransactions": list_response(("id", 7)),
        "DescribeTransactions": describe_response(),
    }  # fmt: skip
    with ScriptedBroker(**(usual | answers)) as broker:
        assert hanging(broker) == found


def test_without_old_transactions_no_coordinator_is_queried() -> None:
    with ScriptedBroker(DescribeProducers=producers_response(7, -1)) as broker:
        assert hanging(broker) == []
    assert "ListTransactions" not in broker.apis


# aborting and fencing ---------------------------------------------------------------------------------------


def test_an_abort_marker_is_sent_to_the_current_leader() -> None:
    answers = [marker_response(Errors.NOT_LEADER_OR_FOLLOWER), marker_response()]
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
def test_a_rejected_marker_is_an_error(code: Errors) -> None:
    with (
        ScriptedBroker(WriteTxnMarkers=marker_response(code)) as broker,
        pytest.raises(KafkaError, match=f"the transaction of producer 7 in t-0: {code.name}"),
    ):
        ask(broker, lambda a: a.abort_transaction(TP, 7, 2, 0))


def test_a_producer_is_fenced_by_initializing_its_id() -> None:
    busy = InitProducerIdResponse(error_code=Errors.CONCURRENT_TRANSACTIONS)
    done = InitProducerIdResponse(producer_id=7, producer_epoch=3)
    with ScriptedBroker(InitProducerId=[busy, done]) as broker:
        assert ask(broker, lambda a: a.fence_producer("id")) == (7, 3)
    assert (broker.requests[-1].transactional_id, broker.requests[-1].producer_id) == ("id", -1)
