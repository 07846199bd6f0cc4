"""`konvene consume`: formats of keys and values, format strings, and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import CommandResult, RunningBroker, call, running_broker

from konvene.cli.records.record_printers import Formats, PatternPrinter, parse_pattern
from konvene.client.admin.admin import Admin
from konvene.client.consumer.consumer import Consumed
from konvene.client.net.cluster import Cluster
from konvene.client.producer.producer import Producer

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
HEADERS = (("a", b"1"), ("a", None), ("b", b"\xff"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Topic `mixed` with values of several formats, `orders` with Avro, `appended` with LogAppendTime."""
    with running_broker(tmp_path_factory.mktemp("data")) as broker:

        async def fill() -> None:
            async with Cluster(broker.address) as cluster, Producer(cluster) as producer:
                admin = Admin(cluster)
                forever = {"retention.ms": "-1"}
                await admin.create_topic("mixed", partitions=1, configs=forever)
                await admin.create_topic("orders", partitions=1, configs=forever)
                times = {"message.timestamp.type": "LogAppendTime"}
                await admin.create_topic("appended", partitions=1, configs=times)
                number = (7).to_bytes(8, "big")
                await producer.send(
                    "mixed", b'{ "a": 1.10 }', key=number, headers=HEADERS, timestamp_ms=1_000
                )
                await producer.send("mixed", b"\x00\xff", key=b"k", timestamp_ms=2_000)
                await producer.send("mixed", None, timestamp_ms=3_000)
                await producer.send("orders", b"\x0e", timestamp_ms=1_000)
                await producer.send("orders", b"\x00\x00\x00\x00\x2a\x0e", timestamp_ms=2_000)
                await producer.send("orders", b"\x80", timestamp_ms=3_000)
                await producer.send("appended", b"x", timestamp_ms=1_000)

        broker.run(fill())
        yield broker


@pytest.fixture
def schema(tmp_path: Path) -> str:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(ORDER))
    return str(path)


def consume(broker: RunningBroker, topic: str, count: int, *args: str) -> CommandResult:
    return call(broker, "consume", "--topic", topic, "--from-beginning", "--max-messages", str(count), *args)


def test_json_lines_have_one_object_per_record(broker: RunningBroker) -> None:
    """JSON and numbers are nested, binary values and errors are shown as text."""
    args = ("--output", "json", "--key-format", "long", "--value-format", "json")
    result = consume(broker, "mixed", 3, *args)
    assert result.err == ""
    first, second, third = map(json.loads, result.out.splitlines())
    assert first == {
        "topic": "mixed", "partition": 0, "offset": 0, "timestamp": 1000, "timestamp_type": "CreateTime",
        "key": 7, "value": {"a": 1.1},
        "headers": [
            {"key": "a", "value": "1"}, {"key": "a", "value": None},
            {"key": "b", "value": "\ufffd", "value_error": "not text: byte 0 is not UTF-8"},
        ],
    }  # fmt: skip
    assert '"value": {"a":1.10}' in result.out
    assert (second["key"], second["key_error"]) == ("k", "not long: 1 byte instead of 8")
    assert (second["value"], second["value_error"]) == ("00ff", "not json: byte 1 is not UTF-8")
    assert (third["key"], third["value"], third["headers"]) == (None, None, [])


def test_timestamp_type_is_that_of_the_batch(broker: RunningBroker) -> None:
    document = json.loads(consume(broker, "appended", 1, "--output", "json").out)
    assert document["timestamp_type"] == "LogAppendTime"
    line = consume(broker, "appended", 1, "--property", "print.timestamp=true").out
    assert line.startswith("LogAppendTime:")


def test_share_consumer_prints_the_same_fields(broker: RunningBroker) -> None:
    args = ("configs", "alter", "--entity-type", "groups", "--entity-name", "s")
    assert call(broker, *args, "--add-config", "share.auto.offset.reset=earliest").code == 0
    result = call(
        broker, "consume", "--topic", "appended", "--share-group", "s", "--max-messages", "1",
        "--output", "json",
    )  # fmt: skip
    document = json.loads(result.out)
    assert document["timestamp_type"] == "LogAppendTime"
    assert (document["value"], document["delivery_count"]) == ("x", 1)


def test_avro_is_decoded_with_and_without_a_frame(broker: RunningBroker, schema: str) -> None:
    result = consume(broker, "orders", 3, "--value-format", "avro", "--schema", schema)
    assert result.out == '{"id":7}\n{"id":7}\n80\n'
    assert result.err.splitlines() == [
        "orders-0 offset 2, value: not avro: with the given schema: id: "
        "variable-length number at 0 has no end",
        "Processed a total of 3 messages",
    ]
    args = ("--value-format", "avro", "--schema", schema, "--output", "json")
    rows = [json.loads(line) for line in consume(broker, "orders", 2, *args).out.splitlines()]
    assert [row["value"] for row in rows] == [{"id": 7}, {"id": 7}]
    assert [row.get("value_schema_id") for row in rows] == [None, 42]


def test_formats_apply_to_lines_and_to_the_json_array(broker: RunningBroker) -> None:
    args = ("--key-format", "long", "--value-format", "hex", "--property", "print.key=true")
    value = b'{ "a": 1.10 }'.hex()
    assert consume(broker, "mixed", 1, *args).out == f"7\t{value}\n"
    document = consume(broker, "mixed", 1, "--json", "--value-format", "json", "--key-format", "long").json
    assert (document[0]["key"], document[0]["value"]) == (7, {"a": 1.1})


def test_format_string_prints_fields_as_kcat(broker: RunningBroker) -> None:
    """Null is empty with size -1; `--value-format` applies to the value, its size stays that of the bytes."""
    pattern = "%t[%p]@%o %T %k/%K %s/%S %h%%\\n"
    args = ("--key-format", "long", "--value-format", "hex", "--max-messages", "3")
    result = consume(broker, "mixed", 3, *args[:4], "-f", pattern)
    value = b'{ "a": 1.10 }'
    assert result.out.splitlines()[0].startswith(f"mixed[0]@0 1000 7/8 {value.hex()}/13 a=1,a=NULL,b=")
    assert result.out.splitlines()[2] == "mixed[0]@2 3000 /-1 /-1 %"


# format strings -------------------------------------------------------------------------------

RECORD = Consumed("t", 3, 5, 9, b"k", b"v\xff", (("h", b"x"), ("n", None)))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("%t %p %o %T\\n", b"t 3 5 9\n"),
        ("%k=%v %s", b"k=v\xff v\xff"),
        ("%K %S", b"1 2"),
        ("%R%s", b"\x00\x00\x00\x02v\xff"),
        ("%h", b"h=x,n=NULL"),
        ("100%%", b"100%"),
        ("a\\tb\\r\\n", b"a\tb\r\n"),
        ("\\x41\\0101\\65\\\\ \\q", b"AAA\\ q"),
        ("é%%", "é%".encode()),
        ("tail\\", b"tail\\"),
        ("", b""),
    ],
)
def test_pattern_is_kcats(pattern: str, expected: bytes) -> None:
    assert PatternPrinter(pattern, Formats())._bytes(RECORD) == expected


@pytest.mark.parametrize(
    ("pattern", "problem"), [("%x", "there is no %x: use %t"), ("%", "a lone % at the end: use %t")]
)
def test_unknown_field_of_a_pattern_is_an_error(pattern: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_pattern(pattern)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("-f", "%x"), "--format %x: there is no %x"),
        (("-f", "%s", "--json"), "--json and --format cannot be used together."),
        (("--output", "json", "--json"), "--json and --output cannot be used together."),
        (("--output", "json", "--property", "print.key=true"), "--output and --property cannot be used"),
        (("--value-format", "avro"), "--value-format avro needs --schema FILE"),
        (("--schema", __file__), "--schema needs --key-format avro or --value-format avro."),
        (("--key-schema", __file__, "--value-format", "avro"), "--key-schema needs --key-format avro."),
        (("--value-format", "avro", "--schema", __file__), "the Avro schema is not valid: the schema is not"),
    ],
)
def test_options_that_cannot_be_used_are_usage_errors(args: tuple[str, ...], problem: str) -> None:
    result = call(None, "consume", "--topic", "t", *args)
    assert result.code == 2
    assert problem in result.err
