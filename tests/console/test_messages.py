"""The message browser and the producer of the console, against a broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.cli.commands import RunningBroker, running_broker

from konvene.client.admin.admin import Admin
from konvene.client.errors import CannotConnect, ClientError, KafkaError, RequestTimedOut
from konvene.client.hints import hint_for
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.producer.producer import Producer
from konvene.client.producer.transactional import TransactionalProducer
from konvene.console import messages
from konvene.console.failure import Failure
from konvene.console.messages import browse, failure_of, parse_query, produce
from konvene.errors import Errors

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Topic `letters` with a, b, … in three partitions in turn, with ascending timestamps: partition 0 has
    a, d, g, …; the last partition is empty. `payments` has two values in transactions, `orders` Avro.
    """
    with running_broker(tmp_path_factory.mktemp("data")) as broker:

        async def fill() -> None:
            async with Cluster(broker.address) as cluster:
                admin = Admin(cluster)
                forever = {"retention.ms": "-1"}
                for name, partitions in (("letters", 4), ("payments", 1), ("orders", 1), ("written", 3)):
                    await admin.create_topic(name, partitions=partitions, configs=forever)
                async with Producer(cluster) as producer:
                    for i in range(26):
                        await producer.send(
                            "letters", bytes((97 + i,)), key=f"k{i}".encode(), headers=(("n", b"%d" % i),),
                            partition=i % 3, timestamp_ms=1_000 + i,
                        )  # fmt: skip
                    await producer.send("orders", b"\x00\x00\x00\x00\x07\x0e", timestamp_ms=1_000)
                    await producer.send("orders", b"\x80", key=b"", timestamp_ms=2_000)
                    await producer.send("orders", None, timestamp_ms=3_000)
                async with TransactionalProducer(cluster, "t") as transactional:
                    for value in (b"x", b"y"):
                        async with transactional.transaction():
                            await transactional.send("payments", value)

        broker.run(fill())
        yield broker


@pytest.fixture
def call(broker: RunningBroker) -> Callable[[Callable[[Cluster], Awaitable[Any]]], Any]:
    """Run a function of a cluster."""

    def run(job: Callable[[Cluster], Awaitable[Any]]) -> Any:
        async def connected() -> Any:
            async with Cluster(broker.address) as cluster:
                return await job(cluster)

        return asyncio.run(connected())

    return run


Call = Callable[[Callable[[Cluster], Awaitable[Any]]], Any]


def found(call: Call, **fields: Any) -> dict[str, Any]:
    query = parse_query({"topic": "letters"} | {k.rstrip("_"): v for k, v in fields.items()})
    result: dict[str, Any] = call(lambda cluster: browse(cluster, query))
    return result


def letters(result: dict[str, Any]) -> str:
    return "".join(row["value"] for row in result["records"])


def all_pages(call: Call, **fields: Any) -> list[dict[str, Any]]:
    """Follow the cursors until the end."""
    pages = [found(call, **fields)]
    while not pages[-1]["ended"]:
        pages.append(found(call, **fields, cursor=json.dumps(pages[-1]["next"])))
    return pages


def test_record_has_all_its_fields(call: Call) -> None:
    result = found(call, from_="earliest", limit="1")
    assert result["records"] == [
        {
            "partition": 0, "offset": 0, "timestamp_ms": 1_000, "timestamp_type": "CreateTime",
            "key": "k0", "key_size": 2, "key_error": None, "key_schema_id": None, "key_cut": False,
            "value": "a", "value_size": 1, "value_error": None, "value_schema_id": None,
            "value_cut": False,
            "headers": [{"key": "n", "value": "0", "cut": False}], "cut": False,
        }
    ]  # fmt: skip
    assert (result["scanned"], result["ended"]) == (1, False)
    assert result["next"]["newest_first"] is False
    json.dumps(result)


@pytest.mark.parametrize("limit", [1, 4, 26, 100])
def test_pages_from_the_earliest_have_every_record_once_by_time(call: Call, limit: int) -> None:
    pages = all_pages(call, from_="earliest", limit=limit)
    assert "".join(map(letters, pages)) == "abcdefghijklmnopqrstuvwxyz"
    assert all(len(page["records"]) <= limit for page in pages)


@pytest.mark.parametrize("limit", [1, 4, 26, 100])
def test_latest_begins_with_the_newest_and_continues_backwards(call: Call, limit: int) -> None:
    pages = all_pages(call, limit=limit)
    assert "".join(map(letters, pages)) == "zyxwvutsrqponmlkjihgfedcba"
    assert pages[-1]["next"] is None


@pytest.mark.parametrize(
    ("start", "partition", "expected"),
    [
        ("earliest", 1, "behknqtwz"),
        ("latest", 1, "zwtqnkheb"),
        ("offset:6", 0, "svy"),
        ("offset:7", None, "vwxyz"),
        ("offset:900", 0, ""),
        ("time:1020", None, "uvwxyz"),
        ("time:0", 2, "cfilorux"),
        ("time:9000", None, ""),
        ("earliest", 3, ""),
        ("latest", 3, ""),
    ],
)
def test_start_and_partition_select_records(
    call: Call, start: str, partition: int | None, expected: str
) -> None:
    result = found(call, from_=start, partition=partition)
    assert (letters(result), result["ended"]) == (expected, True)


def test_filters_are_substrings_of_the_decoded_text(call: Call) -> None:
    """The number of examined records is reported also for those that do not match."""
    result = found(call, from_="earliest", key_filter="k2")
    assert (letters(result), result["scanned"], result["ended"]) == ("cuvwxyz", 26, True)
    assert letters(found(call, key_filter="k2", value_filter="w")) == "w"
    assert letters(found(call, value_format="hex", value_filter="7a")) == "7a"


def test_end_of_the_log_has_a_cursor_for_later_records(call: Call, broker: RunningBroker) -> None:
    """A continued search finds the records that were written since, and no other."""
    broker.create("growing", 2)
    first = found(call, topic="growing", from_="earliest")
    assert (len(first["records"]), first["ended"]) == (2, True)
    written = call(lambda cluster: produce(cluster, {"topic": "growing", "value": "new"}))
    assert (written["partition"], written["offset"]) == (0, 2)
    assert letters(found(call, topic="growing", cursor=first["next"])) == "new"


def test_control_records_are_skipped(call: Call) -> None:
    for start in ("earliest", "latest"):
        result = found(call, topic="payments", from_=start)
        assert [row["offset"] for row in result["records"]] in ([0, 2], [2, 0])
        assert result["ended"]


def test_avro_errors_and_null_are_shown_per_record(call: Call) -> None:
    result = found(call, topic="orders", from_="earliest", value_format="avro", schema=ORDER)
    first, second, third = result["records"]
    assert (first["value"], first["value_schema_id"], first["key"]) == ('{"id":7}', 7, None)
    assert (second["value"], second["key"], second["key_size"]) == ("80", "", 0)
    assert second["value_error"].startswith("not avro: with the given schema: id:")
    assert (third["value"], third["value_size"], third["value_error"]) == (None, None, None)


# limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["SCANNED_RECORDS", "SCANNED_BYTES", "RESPONSE_CHARACTERS"])
def test_limits_of_a_request_end_it_with_a_cursor(
    call: Call, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record is left out or repeated by the next request."""
    monkeypatch.setattr(messages, limit, 6)
    expected = "abcdefghijklmnopqrstuvwxyz"
    for start, text in (("earliest", expected), ("latest", expected[::-1])):
        pages = all_pages(call, from_=start)
        assert "".join(map(letters, pages)) == text
        assert max(page["scanned"] for page in pages) <= 6


def test_request_without_any_time_fails(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that could not examine a single record is an error, not an empty page."""
    monkeypatch.setattr(messages, "SCAN_S", -1.0)
    with pytest.raises(Failure) as caught:
        found(call)
    assert caught.value.status == 504


def test_long_values_are_cut(call: Call, broker: RunningBroker) -> None:
    value = "é" * 70_000
    call(lambda cluster: produce(cluster, {"topic": "written", "value": value, "partition": 2}))
    (row,) = found(call, topic="written", partition=2)["records"]
    assert (row["value"], row["value_size"], row["cut"]) == (value[: 64 * 1024], 140_000, True)


def test_limit_is_at_most_500() -> None:
    assert parse_query({"topic": "t", "limit": "100000"}).limit == 500
    assert parse_query({"topic": "t"}).limit == 50


# errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({}, "topic is missing."),
        ({"topic": 3}, "topic is not text."),
        ({"topic": "\ud800"}, "topic is not text."),
        ({"topic": "t", "from": "tomorrow"}, "from=tomorrow is not a position."),
        ({"topic": "t", "from": "offset:-1"}, "from=offset:-1 is not a position."),
        ({"topic": "t", "from": "offset:²"}, "from=offset:² is not a position."),
        ({"topic": "t", "partition": "x"}, "partition is not a number between 0 and 2147483647."),
        ({"topic": "t", "limit": True}, "limit is not a number between 0 and 2147483647."),
        ({"topic": "t", "limit": 0}, "limit is 0."),
        ({"topic": "t", "value_format": "xml"}, "there is no format xml: use text, json, hex, long, avro"),
        ({"topic": "t", "value_format": "avro"}, "the format avro needs a schema"),
        ({"topic": "t", "value_filter": ["x"]}, "value_filter is not text."),
        ({"topic": "t", "cursor": "{"}, "The cursor is not valid."),
        ({"topic": "t", "cursor": {"positions": [1]}}, "The cursor is not valid."),
        (
            {"topic": "t", "cursor": {"newest_first": True, "positions": {"0": -1}}},
            "The cursor is not valid.",
        ),
        ({"topic": "t", "cursor": {"newest_first": True, "positions": {"a": 1}}}, "The cursor is not valid."),
        ({"topic": "t", "cursor": "[" * 100_000}, "The cursor is not valid."),
    ],
)
def test_invalid_query_is_a_bad_request(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(Failure) as caught:
        parse_query(fields)
    assert (caught.value.status, caught.value.error) == (400, error)


def test_unknown_topic_or_partition_is_not_found_and_not_created(call: Call) -> None:
    for fields, error in (
        ({"topic": "nope"}, "There is no topic nope."),
        ({"partition": 9}, "Topic letters has no partition 9."),
    ):
        with pytest.raises(Failure) as caught:
            found(call, **fields)
        assert (caught.value.status, caught.value.error) == (404, error)
    with pytest.raises(Failure) as caught:
        call(lambda cluster: produce(cluster, {"topic": "nope", "value": "x"}))
    assert caught.value.hint == "`konvene topics list` shows the existing topics."
    topics = call(lambda cluster: Admin(cluster).list_topics())
    assert "nope" not in [topic.name for topic in topics]


def test_unreachable_cluster_is_unavailable() -> None:
    async def job() -> None:
        settings = ClientSettings(connect_timeout_ms=200, default_api_timeout_ms=200)
        async with Cluster("127.0.0.1:1", settings) as cluster:
            await browse(cluster, parse_query({"topic": "t"}))

    with pytest.raises(Failure) as caught:
        asyncio.run(job())
    assert caught.value.status == 503
    assert caught.value.hint == hint_for(CannotConnect(""))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KafkaError(Errors.GROUP_ID_NOT_FOUND), 404),
        (KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED), 403),
        (KafkaError(Errors.NON_EMPTY_GROUP), 409),
        (KafkaError(Errors.INVALID_CONFIG), 400),
        (KafkaError(Errors.MESSAGE_TOO_LARGE), 413),
        (KafkaError(Errors.COORDINATOR_NOT_AVAILABLE), 503),
        (KafkaError(Errors.UNKNOWN_SERVER_ERROR), 502),
        (RequestTimedOut("late"), 504),
        (CannotConnect("refused"), 503),
        (ClientError("?"), 502),
    ],
)
def test_error_of_the_client_has_a_status(error: ClientError, status: int) -> None:
    failed = failure_of(error)
    assert (failed.status, failed.error) == (status, str(error))


# producing ------------------------------------------------------------------------------------


def test_record_is_written_with_its_formats(call: Call) -> None:
    body = {
        "topic": "written", "partition": 1, "key": "-2", "key_format": "long", "value": '{"id": 5}',
        "value_format": "avro", "schema": ORDER,
        "headers": [{"key": "h", "value": "é"}, {"key": "n", "value": None}],
    }  # fmt: skip
    written = call(lambda cluster: produce(cluster, body))
    assert (written["partition"], written["offset"]) == (1, 0)
    (row,) = found(
        call, topic="written", partition=1, key_format="long", value_format="avro", schema=ORDER
    )["records"]  # fmt: skip
    assert (row["key"], row["value"], row["value_size"]) == ("-2", '{"id":5}', 1)
    assert [(each["key"], each["value"]) for each in row["headers"]] == [("h", "é"), ("n", None)]
    assert row["timestamp_ms"] == written["timestamp_ms"]


def test_null_and_empty_are_different(call: Call) -> None:
    call(lambda cluster: produce(cluster, {"topic": "written", "partition": 0, "key": "", "value": None}))
    (row,) = found(call, topic="written", partition=0)["records"]
    assert (row["key"], row["key_size"], row["value"], row["value_size"]) == ("", 0, None, None)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"value": 3}, "value is not text."),
        ({"key": "x", "key_format": "long"}, "The key cannot be encoded: not long: write a whole number"),
        ({"value": "{", "value_format": "json"}, "The value cannot be encoded: not json: Expecting"),
        ({"partition": 9}, "Topic written has no partition 9."),
        ({"headers": "a=b"}, "headers is not a list of objects."),
        ({"headers": [{"key": "a", "value": 1}]}, "A header has no key or its value is not text."),
        ({"headers": [{"key": "\ud800", "value": None}]}, "A header has no key or its value is not text."),
    ],
)
def test_record_that_cannot_be_written_is_an_error(call: Call, fields: dict[str, Any], error: str) -> None:
    with pytest.raises(Failure) as caught:
        call(lambda cluster: produce(cluster, {"topic": "written"} | fields))
    assert caught.value.error.startswith(error)
    assert caught.value.status in (400, 404)


def test_too_large_record_is_rejected(call: Call) -> None:
    with pytest.raises(Failure) as caught:
        call(lambda cluster: produce(cluster, {"topic": "written", "value": "x" * 2_000_000}))
    assert caught.value.status == 413


def test_connections_of_a_scan_are_closed(call: Call) -> None:
    """Browsing keeps no connections besides the shared ones."""

    async def job(cluster: Cluster) -> int:
        for _ in range(3):
            await browse(cluster, parse_query({"topic": "letters"}))
        return sum(lane is not None for *_, lane in cluster._connections)

    assert call(job) == 0


def test_cursor_beyond_the_end_is_at_the_end(call: Call) -> None:
    """A partition without a position in the cursor is read from its start."""
    cursor = {"newest_first": False, "positions": {"1": 5, "2": 10_000}}
    assert letters(found(call, cursor=cursor)) == "adgjmpqstvwyz"
