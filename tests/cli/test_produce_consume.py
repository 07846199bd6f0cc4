"""`konvene produce` and `konvene consume`: lines to records, records to lines."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.commands import call
from tests.client.scripted import ScriptedBroker

from konvene.cli.produce import PROPERTIES, Line, LineFormat, parse_properties
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


def acknowledge(request: Any) -> ProduceResponse:
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


def writing() -> ScriptedBroker:
    broker = ScriptedBroker(Produce=acknowledge)
    broker.answers["Metadata"] = [broker.metadata(t=1)]
    return broker


def written(broker: ScriptedBroker) -> list[tuple[bytes | None, bytes | None]]:
    sent = [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "Produce"]
    parts = [p for r in sent for t in r.topic_data for p in t.partition_data]
    return [(r.key, r.value) for p in parts for r in records(bytes(p.records))]


def test_each_line_is_a_record() -> None:
    with writing() as broker:
        said = call(broker, "produce", "--topic", "t", stdin="one\ntwo\r\n\nlast")
    assert said == (0, "", "")
    assert written(broker) == [(None, b"one"), (None, b"two"), (None, b""), (None, b"last")]


def test_keys_stand_before_a_separator() -> None:
    with writing() as broker:
        said = call(broker, "produce", "--topic", "t", "--key-separator", "=", "--json", stdin="a=1\nb=2=3\n")
    assert written(broker) == [(b"a", b"1"), (b"b", b"2=3")]
    requests = broker.apis.count("Produce")  # One; two if the first record left before the second line came.
    assert said.json == {
        "topic": "t",
        "records": 2,
        "partitions": [{"partition": 0, "base_offset": 5, "last_offset": 7 - requests, "records": 2}],
    }


def test_a_line_without_its_key_is_told_and_those_before_it_are_written() -> None:
    with writing() as broker:
        said = call(
            broker, "produce", "--topic", "t", "--property", "parse.key=true", stdin="a\t1\nb\nc\t3\n"
        )
    assert said.code == 1
    assert said.err.splitlines() == [
        "konvene: line 2: no '\\t' after a key",
        "  1 lines before it were written; ignore.error=true uses such a line as the value.",
    ]
    assert written(broker) == [(b"a", b"1")]


@pytest.mark.parametrize(
    "given, line, expected",
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
def test_the_shape_of_a_line(given: list[str], line: bytes, expected: Line) -> None:
    assert LineFormat.of(parse_properties(tuple(given), PROPERTIES)).parse(line) == expected


@pytest.mark.parametrize("text", ["parse.key", "no.such=1"])
def test_a_property_that_is_none_is_refused(text: str) -> None:
    assert call(None, "produce", "--topic", "t", "--property", text).code == 2


# consume ------------------------------------------------------------------------------------------

LOG = (
    Record(0, 1_000, b"k0", b"v0", (("h", b"x"), ("n", None))),
    Record(1, 1_001, None, b"v1"),
    Record(2, 1_002, b"\xff", None),
)


def reading() -> ScriptedBroker:
    def offsets(request: Any) -> ListOffsetsResponse:
        at = 3 if request.topics[0].partitions[0].timestamp == -1 else 0
        rows = tuple(
            ListOffsetsPartitionResponse(partition_index=p.partition_index, offset=at)
            for p in request.topics[0].partitions
        )
        return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=rows),))

    def fetched(request: Any) -> FetchResponse:
        (t,) = request.topics
        rest = [r for r in LOG if r.offset >= t.partitions[0].fetch_offset]
        row = PartitionData(records=build(rest) if rest else b"", high_watermark=3)
        return FetchResponse(responses=(FetchableTopicResponse(topic_id=t.topic_id, partitions=(row,)),))

    broker = ScriptedBroker(ListOffsets=offsets, Fetch=fetched)
    broker.answers["Metadata"] = [broker.metadata(t=1)]
    return broker


BEGIN = ("consume", "--topic", "t", "--from-beginning", "--max-messages", "3")


def test_values_are_printed_line_by_line() -> None:
    with reading() as broker:
        said = call(broker, *BEGIN)
    assert said == (0, "v0\nv1\nnull\n", "Processed a total of 3 messages\n")


def test_more_of_a_record_is_printed_when_asked_for() -> None:
    names = ("timestamp", "partition", "offset", "headers", "key")
    asked = [word for name in names for word in ("--property", f"print.{name}=true")]
    with reading() as broker:
        said = call(broker, *BEGIN[:-1], "2", *asked, "--property", "key.separator=|")
    assert said.out == (
        "CreateTime:1000|Partition:0|Offset:0|h:x,n:null|k0|v0\n"
        "CreateTime:1001|Partition:0|Offset:1|NO_HEADERS|null|v1\n"
    )


def test_json_is_one_document_and_bytes_that_are_no_text_are_base64() -> None:
    with reading() as broker:
        document = call(broker, *BEGIN, "--json").json
        nothing = call(broker, "consume", "--topic", "t", "--timeout-ms", "50", "--json").json
    head = {"topic": "t", "partition": 0}
    assert document == [
        head | {"offset": 0, "timestamp_ms": 1000, "key": "k0", "value": "v0",
                "headers": [{"name": "h", "value": "x"}, {"name": "n", "value": None}]},
        head | {"offset": 1, "timestamp_ms": 1001, "key": None, "value": "v1", "headers": []},
        head | {"offset": 2, "timestamp_ms": 1002, "key_base64": "/w==", "value": None, "headers": []},
    ]  # fmt: skip
    assert nothing == []


def test_reading_starts_where_it_was_told_to() -> None:
    with reading() as broker:
        at = ("consume", "--topic", "t", "--partition", "0", "--timeout-ms", "50")
        assert call(broker, *at, "--offset", "1").out == "v1\nnull\n"
        assert call(broker, *at, "--offset", "earliest").out == "v0\nv1\nnull\n"
        assert call(broker, *at).out == ""
        absent = call(broker, "consume", "--topic", "t", "--partition", "4")
    assert absent.err.splitlines()[0] == "konvene: topic t has no partition 4"


def test_a_topic_that_is_not_there_is_told() -> None:
    with reading() as broker:
        said = call(broker, "consume", "--topic", "nope")
        none = call(broker, "consume", "--include", "no.*")
    assert said.err.splitlines()[0] == (
        "konvene: topic nope: UNKNOWN_TOPIC_OR_PARTITION: there is no topic nope"
    )
    assert none.err.splitlines()[0] == "konvene: no topic matches no.*"


@pytest.mark.parametrize(
    "words",
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
def test_options_that_contradict_each_other_are_refused(words: list[str]) -> None:
    assert call(None, "consume", *words).code == 2


# consume as a member of a consumer group --------------------------------------------------------

NEW = ("--group", "g", "--consumer-property", "group.protocol=consumer")


def test_settings_that_the_protocol_lacks_are_refused_in_the_words_of_kafka() -> None:
    more = ("session.timeout.ms=9000", "partition.assignment.strategy=range")
    said = call(None, "consume", "--topic", "t", *NEW, *(w for m in more for w in ("--consumer-property", m)))
    assert said.code == 2
    words = "partition.assignment.strategy, session.timeout.ms cannot be set when group.protocol=CONSUMER"
    assert words in said.err


def test_the_coordinator_follows_the_expression_and_the_settings_reach_it() -> None:
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

    nothing = OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g"),))
    done = OffsetCommitResponse(
        topics=(OffsetCommitResponseTopic(name="t", partitions=(OffsetCommitResponsePartition(),)),)
    )
    settings = (
        "group.remote.assignor=range",
        "group.instance.id=i",
        "max.poll.interval.ms=9000",
        "made.up=1",
    )
    words = [word for each in settings for word in ("--consumer-property", each)]
    with reading() as broker:
        broker.answers |= {
            "ConsumerGroupHeartbeat": [heartbeat],
            "OffsetFetch": [nothing],
            "OffsetCommit": [done],
        }
        said = call(
            broker, "consume", "--include", "t.*", *NEW, *words, "--from-beginning", "--max-messages", "3"
        )
    assert (said.code, said.out) == (0, "v0\nv1\nnull\n")
    assert said.err == (
        "--consumer-property made.up is unknown and ignored.\nProcessed a total of 3 messages\n"
    )
    sent = [r for api, r in zip(broker.apis, broker.requests, strict=True) if api == "ConsumerGroupHeartbeat"]
    first = sent[0]
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == ((), "t.*")
    assert (first.server_assignor, first.instance_id, first.rebalance_timeout_ms) == ("range", "i", 9_000)
    assert sent[-1].member_epoch == -2
    assert broker.apis[-2:] == ["OffsetCommit", "ConsumerGroupHeartbeat"]


def test_settings_of_a_classic_member_reach_the_coordinator() -> None:
    found = consumer_settings(
        {
            "group.id": "g", "client.id": "c", "isolation.level": "READ_COMMITTED",
            "session.timeout.ms": "9000",
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
            "enable.auto.commit": "false", "max.poll.records": "7", "auto.offset.reset": "earliest",
            "group.remote.assignor": " ",
        }
    )  # fmt: skip
    assert found == ConsumerSettings(
        "g",
        "c",
        {
            "group_protocol": "classic", "isolation_level": 1, "max_poll_records": 7, "auto_commit": False,
            "auto_offset_reset": "earliest", "assignors": ("cooperative-sticky",),
            "member": MemberSettings(session_timeout_ms=9_000),
        },
        (),
    )  # fmt: skip
