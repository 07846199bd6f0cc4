"""`konvene produce` and `konvene consume`: parsing lines and formatting records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import call, running_broker
from tests.client.scripted import ScriptedBroker

from konvene.cli.records.produce import PROPERTIES, Line, LineFormat, parse_properties
from konvene.client.consumer.classic_member import MemberSettings
from konvene.client.consumer.settings import ConsumerSettings, consumer_settings
from konvene.codec.batches import Record, build, records
from konvene.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from konvene.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from konvene.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from konvene.messages.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from konvene.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse


def produce_response(request: Any) -> ProduceResponse:
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=t.name, topic_id=t.topic_id,
                partition_responses=tuple(
                    PartitionProduceResponse(index=p.index, base_offset=5) for p in t.partition_data
                ),
            )
            for t in request.topic_data
        )
    )  # fmt: skip


def producing_broker() -> ScriptedBroker:
    broker = ScriptedBroker(Produce=produce_response)
    broker.answers["Metadata"] = [broker.metadata(t=1)]
    return broker


def produced_records(broker: ScriptedBroker) -> list[tuple[bytes | None, bytes | None]]:
    produce_requests = [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "Produce"]
    partitions = [p for r in produce_requests for t in r.topic_data for p in t.partition_data]
    return [(r.key, r.value) for p in partitions for r in records(bytes(p.records))]


def test_each_line_is_a_record() -> None:
    with producing_broker() as broker:
        result = call(broker, "produce", "--topic", "t", stdin="one\ntwo\r\n\nlast")
    assert result == (0, "", "")
    assert produced_records(broker) == [(None, b"one"), (None, b"two"), (None, b""), (None, b"last")]


def test_topic_is_an_argument_or_an_option() -> None:
    with producing_broker() as broker:
        assert call(broker, "produce", "t", stdin="one\n").code == 0
        assert call(broker, "produce", "t", "--topic", "t", stdin="two\n").code == 0
    assert produced_records(broker) == [(None, b"one"), (None, b"two")]
    with consuming_broker() as broker:
        assert call(broker, "consume", "t", *CONSUME_ALL[3:]).out == "v0\nv1\nnull\n"


def test_key_is_parsed_before_the_separator() -> None:
    with producing_broker() as broker:
        result = call(
            broker, "produce", "--topic", "t", "--key-separator", "=", "--json", stdin="a=1\nb=2=3\n"
        )
    assert produced_records(broker) == [(b"a", b"1"), (b"b", b"2=3")]
    requests = broker.apis.count("Produce")  # 2 if the first record was sent before the second line was read.
    assert result.json == {
        "topic": "t",
        "records": 2,
        "partitions": [{"partition": 0, "base_offset": 5, "last_offset": 7 - requests, "records": 2}],
    }


def test_line_without_a_key_stops_after_the_lines_before_it() -> None:
    with producing_broker() as broker:
        result = call(
            broker, "produce", "--topic", "t", "--property", "parse.key=true", stdin="a\t1\nb\nc\t3\n"
        )
    assert result.code == 1
    assert result.err.splitlines() == [
        "konvene: line 2: no '\\t' after a key",
        "  1 line before it was written; ignore.error=true uses such a line as the value.",
    ]
    assert produced_records(broker) == [(b"a", b"1")]


@pytest.mark.parametrize(
    "properties, line, expected",
    [
        ([], b"a\tb", Line(None, b"a\tb")),
        (["parse.key=true"], b"k\tv", Line(b"k", b"v")),
        (["parse.key=true", "key.separator=\\t\\t"], b"k\t\tv", Line(b"k", b"v")),
        (["parse.headers=true"], b"a:1,b:\tv", Line(None, b"v", (("a", b"1"), ("b", b"")))),
        (["parse.headers=true", "parse.key=true"], b"a:1\tk\tv", Line(b"k", b"v", (("a", b"1"),))),
        (["parse.key=true", "null.marker=NULL"], b"NULL\tNULL", Line(None, None)),
        (["parse.key=true", "ignore.error=true"], b"no key", Line(None, b"no key")),
    ],
)
def test_line_format_properties(properties: list[str], line: bytes, expected: Line) -> None:
    assert LineFormat.of(parse_properties(tuple(properties), PROPERTIES)).parse(line) == expected


@pytest.mark.parametrize("text", ["parse.key", "no.such=1"])
def test_unknown_property_is_a_usage_error(text: str) -> None:
    assert call(None, "produce", "--topic", "t", "--property", text).code == 2


# consume ------------------------------------------------------------------------------------------

LOG = (
    Record(0, 1_000, b"k0", b"v0", (("h", b"x"), ("n", None))),
    Record(1, 1_001, None, b"v1"),
    Record(2, 1_002, b"\xff", None),
)


def consuming_broker() -> ScriptedBroker:
    def list_offsets(request: Any) -> ListOffsetsResponse:
        offset = 3 if request.topics[0].partitions[0].timestamp == -1 else 0
        rows = tuple(
            ListOffsetsPartitionResponse(partition_index=p.partition_index, offset=offset)
            for p in request.topics[0].partitions
        )
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=rows),))

    def fetch(request: Any) -> FetchResponse:
        (t,) = request.topics
        remaining = [r for r in LOG if r.offset >= t.partitions[0].fetch_offset]
        row = PartitionData(records=build(remaining) if remaining else b"", high_watermark=3)
        return FetchResponse(responses=(FetchableTopicResponse(topic_id=t.topic_id, partitions=(row,)),))

    broker = ScriptedBroker(ListOffsets=list_offsets, Fetch=fetch)
    broker.answers["Metadata"] = [broker.metadata(t=1)]
    return broker


CONSUME_ALL = ("consume", "--topic", "t", "--from-beginning", "--max-messages", "3")


def test_values_are_printed_line_by_line() -> None:
    with consuming_broker() as broker:
        result = call(broker, *CONSUME_ALL)
    assert result == (0, "v0\nv1\nnull\n", "Processed a total of 3 messages\n")


def test_print_properties_add_record_fields() -> None:
    names = ("timestamp", "partition", "offset", "headers", "key")
    args = [arg for name in names for arg in ("--property", f"print.{name}=true")]
    with consuming_broker() as broker:
        result = call(broker, *CONSUME_ALL[:-1], "2", *args, "--property", "key.separator=|")
    assert result.out == (
        "CreateTime:1000|Partition:0|Offset:0|h:x,n:null|k0|v0\n"
        "CreateTime:1001|Partition:0|Offset:1|NO_HEADERS|null|v1\n"
    )


def test_json_output_encodes_binary_as_base64() -> None:
    with consuming_broker() as broker:
        document = call(broker, *CONSUME_ALL, "--json").json
        empty = call(broker, "consume", "--topic", "t", "--timeout-ms", "50", "--json").json
    common = {"topic": "t", "partition": 0}
    assert document == [
        common | {"offset": 0, "timestamp_ms": 1000, "key": "k0", "value": "v0",
                "headers": [{"name": "h", "value": "x"}, {"name": "n", "value": None}]},
        common | {"offset": 1, "timestamp_ms": 1001, "key": None, "value": "v1", "headers": []},
        common | {"offset": 2, "timestamp_ms": 1002, "key_base64": "/w==", "value": None, "headers": []},
    ]  # fmt: skip
    assert empty == []


def test_offset_option_sets_the_start_of_consumption() -> None:
    with consuming_broker() as broker:
        args = ("consume", "--topic", "t", "--partition", "0", "--timeout-ms", "50")
        assert call(broker, *args, "--offset", "1").out == "v1\nnull\n"
        assert call(broker, *args, "--offset", "earliest").out == "v0\nv1\nnull\n"
        assert call(broker, *args).out == ""
        missing_partition = call(broker, "consume", "--topic", "t", "--partition", "4")
    assert missing_partition.err.splitlines()[0] == "konvene: topic t has no partition 4"


def test_consuming_an_unknown_topic_fails() -> None:
    with consuming_broker() as broker:
        result = call(broker, "consume", "--topic", "nope")
        no_match = call(broker, "consume", "--include", "no.*")
    assert result.err.splitlines()[0] == (
        "konvene: topic nope: UNKNOWN_TOPIC_OR_PARTITION: there is no topic nope"
    )
    assert no_match.err.splitlines()[0] == "konvene: no topic matches no.*"


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--topic", "t", "--include", "t"],
        ["--include", "t", "--partition", "0"],
        ["--topic", "t", "--group", "g", "--partition", "0"],
        ["--topic", "t", "--offset", "1"],
        ["--topic", "t", "--partition", "0", "--offset", "soon"],
        ["--topic", "t", "--partition", "0", "--offset", "1", "--from-beginning"],
        ["--topic", "t", "--instance-id", "i"],
        ["--topic", "t", "--property", "print.everything=true"],
        ["--topic", "t", "--consumer-property", "group.id"],
        ["--topic", "t", "--consumer-property", "group.protocol=consumer"],
        ["--topic", "t", "--group", "g", "--consumer-property", "group.id=h"],
        ["--topic", "t", "--from-beginning", "--consumer-property", "auto.offset.reset=latest"],
        ["--topic", "t", "--group", "g", "--consumer-property", "group.protocol=new"],
        ["--topic", "t", "--group", "g", "--consumer-property", "max.poll.records=many"],
        ["--topic", "t", "--group", "g", "--consumer-property", "enable.auto.commit=maybe"],
    ],
)
def test_contradictory_options_are_usage_errors(args: list[str]) -> None:
    assert call(None, "consume", *args).code == 2


# consume as a member of a consumer group --------------------------------------------------------

CONSUMER_PROTOCOL = ("--group", "g", "--consumer-property", "group.protocol=consumer")


def test_classic_settings_are_rejected_with_kafkas_message() -> None:
    properties = ("session.timeout.ms=9000", "partition.assignment.strategy=range")
    result = call(
        None,
        "consume",
        "--topic",
        "t",
        *CONSUMER_PROTOCOL,
        *(arg for property_ in properties for arg in ("--consumer-property", property_)),
    )
    assert result.code == 2
    message = "partition.assignment.strategy, session.timeout.ms cannot be set when group.protocol=CONSUMER"
    assert message in result.err


def test_pattern_and_settings_are_sent_in_the_heartbeat() -> None:
    def heartbeat(request: Any) -> ConsumerGroupHeartbeatResponse:
        rows = (
            ()
            if request.member_epoch < 0
            else (TopicPartitions(topic_id=b"t".ljust(16, b"-"), partitions=(0,)),)
        )
        return ConsumerGroupHeartbeatResponse(
            member_epoch=min(request.member_epoch, 2) or 2, heartbeat_interval_ms=5_000,
            assignment=Assignment(topic_partitions=rows),
        )  # fmt: skip

    no_offsets = OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g"),))
    committed = OffsetCommitResponse(
        topics=(OffsetCommitResponseTopic(name="t", partitions=(OffsetCommitResponsePartition(),)),)
    )
    settings = (
        "group.remote.assignor=range",
        "group.instance.id=i",
        "max.poll.interval.ms=9000",
        "made.up=1",
    )
    args = [arg for setting in settings for arg in ("--consumer-property", setting)]
    with consuming_broker() as broker:
        broker.answers |= {
            "ConsumerGroupHeartbeat": [heartbeat],
            "OffsetFetch": [no_offsets],
            "OffsetCommit": [committed],
        }
        result = call(
            broker,
            "consume",
            "--include",
            "t.*",
            *CONSUMER_PROTOCOL,
            *args,
            "--from-beginning",
            "--max-messages",
            "3",
        )
    assert (result.code, result.out) == (0, "v0\nv1\nnull\n")
    assert result.err == (
        "--consumer-property made.up is unknown and ignored.\nProcessed a total of 3 messages\n"
    )
    heartbeats = [
        r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "ConsumerGroupHeartbeat"
    ]
    first = heartbeats[0]
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == ((), "t.*")
    assert (first.server_assignor, first.instance_id, first.rebalance_timeout_ms) == ("range", "i", 9_000)
    assert heartbeats[-1].member_epoch == -2
    assert broker.apis[-2:] == ["OffsetCommit", "ConsumerGroupHeartbeat"]


def test_consumer_properties_of_a_classic_member() -> None:
    settings = consumer_settings(
        {
            "group.id": "g", "client.id": "c", "isolation.level": "READ_COMMITTED",
            "session.timeout.ms": "9000",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            "enable.auto.commit": "false", "max.poll.records": "7", "auto.offset.reset": "earliest",
            "group.remote.assignor": " ",
        }
    )  # fmt: skip
    assert settings == ConsumerSettings(
        "g",
        "c",
        {
            "group_protocol": "classic", "isolation_level": 1, "max_poll_records": 7, "auto_commit": False,
            "auto_offset_reset": "earliest", "assignors": ("cooperative-sticky",),
            "member": MemberSettings(session_timeout_ms=9_000),
        },
        (),
    )  # fmt: skip


@pytest.mark.parametrize("byte", [11, -1], ids=["length", "checksum"])
def test_consume_of_a_damaged_log_recommends_verify(tmp_path: Path, byte: int) -> None:
    """Records before the damage are printed; the error has the position and is not retried."""
    with running_broker(tmp_path) as broker:
        call(broker, "topics", "create", "--topic", "t")
        for value in ("one", "two", "three"):
            call(broker, "produce", "--topic", "t", stdin=f"{value}\n")
        (log,) = (tmp_path / "t-0").glob("*.log")
        data = bytearray(log.read_bytes())
        first = 12 + int.from_bytes(data[8:12], "big")
        second = 12 + int.from_bytes(data[first + 8 : first + 12], "big")
        data[first + byte if byte >= 0 else first + second + byte] ^= 0x21
        log.write_bytes(data)
        for args in (("--from-beginning",), ("--from-beginning", "--group", "g")):
            result = call(broker, "consume", "--topic", "t", *args)
            assert (result.code, result.out) == (1, "one\n")
            assert "konvene: reading t-0 at offset 1: CORRUPT_MESSAGE: " in result.err
            assert "`konvene log verify DIR`" in result.err
