"""Options are those of Spark's Kafka connector; what is not one is refused with the nearest or the reason."""

from __future__ import annotations

import pytest

from konvene.client.consumer.fetch import READ_COMMITTED
from konvene.client.net.cluster import TopicPartition
from konvene.spark.options import OPTIONS, REFUSED, SourceOptions, has_headers, source_options
from konvene.spark.positions import EARLIEST, LATEST, Positions

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def parsed(*, streaming: bool = False, **more: str) -> SourceOptions:
    """Return the options; underscores in names are dots."""
    given = {name.replace("_", "."): value for name, value in more.items()}
    base = {name: value for name, value in BASE.items() if name != "subscribe" or _reads_all(given)}
    return source_options({**base, **given}, streaming=streaming)


def _reads_all(given: dict[str, str]) -> bool:
    return not {"assign", "subscribePattern"} & given.keys()


def test_defaults_are_those_of_sparks_connector() -> None:
    batch, stream = parsed(), parsed(streaming=True)
    assert (batch.starting, batch.ending) == (Positions(EARLIEST), Positions(LATEST))
    assert stream.starting == Positions(LATEST)
    assert stream.max_trigger_delay_ms == 15 * 60_000
    assert stream.fails_on_loss and not stream.or_latest and stream.isolation_level == 0
    assert not has_headers(BASE)


def test_names_are_read_in_any_case() -> None:
    found = source_options(
        {"KAFKA.bootstrap.servers": "a:1", "SUBSCRIBE": "b, a", "maxoffsetspertrigger": "7"}, streaming=True
    )
    assert (found.servers, found.subscription.topics, found.max_offsets) == ("a:1", ("a", "b"), 7)


def test_each_way_to_subscribe() -> None:
    assert parsed(assign='{"a":[1,0]}').subscription.assigned == (
        TopicPartition("a", 0),
        TopicPartition("a", 1),
    )
    pattern = parsed(subscribePattern="ord.*").subscription.pattern
    assert pattern is not None and pattern.fullmatch("orders")


def test_values_are_converted() -> None:
    found = parsed(
        streaming=True, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="9", maxTriggerDelay="30s",
        minPartitions="4", maxRecordsPerPartition="1000", failOnDataLoss="FALSE",
        kafka_isolation_level="read_committed", startingOffsetsByTimestampStrategy="latest",
        kafka_security_protocol="PLAINTEXT",
    )  # fmt: skip
    assert (found.min_offsets, found.max_offsets, found.max_trigger_delay_ms) == (5, 9, 30_000)
    assert (found.min_partitions, found.max_records, found.fails_on_loss) == (4, 1000, False)
    assert found.isolation_level == READ_COMMITTED and found.or_latest
    assert found.client.settings == (("security.protocol", "PLAINTEXT"),)
    assert has_headers({**BASE, "includeheaders": "true"})


@pytest.mark.parametrize(
    "given, streaming, message",
    [
        ({"startingOffset": "earliest"}, False, "no option startingOffset: did you mean startingOffsets?"),
        ({"xyzzy": "1"}, False, "no option xyzzy: it has kafka.bootstrap.servers, subscribe"),
        ({"kafka.nonsense": "1"}, False, "konvene has no option kafka.nonsense"),
        ({"maxOffsetsPerTrigger": "1"}, False, "maxOffsetsPerTrigger is an option of streaming queries"),
        ({"endingOffsets": "latest"}, True, "endingOffsets is an option of batch queries"),
        ({"assign": '{"a":[0]}'}, False, "subscribePattern and assign: it is given subscribe and"),
        ({"subscribe": " , "}, False, "subscribe names no topic"),
        ({"startingOffsets": "latest"}, False, "startingOffsets of a batch cannot be latest"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, False, "startingOffsets of a batch cannot be latest"),
        ({"endingOffsets": "earliest"}, False, "endingOffsets cannot be earliest"),
        ({"startingOffsets": "soon"}, False, 'startingOffsets is JSON such as {"topicA"'),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, True, "an offset below -2"),
        ({"startingTimestamp": "now"}, False, "startingTimestamp is a timestamp in milliseconds, not 'now'"),
        ({"minPartitions": "0"}, False, "minPartitions is a number above 0, not '0'"),
        ({"failOnDataLoss": "no"}, False, "failOnDataLoss is true or false, not 'no'"),
        ({"maxTriggerDelay": "soon"}, True, "maxTriggerDelay is a duration such as 15m"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, True, "(5) is more than"),
    ],
)  # fmt: skip
def test_bad_options_are_refused(given: dict[str, str], streaming: bool, message: str) -> None:
    with pytest.raises(ValueError) as raised:
        source_options({**BASE, **given}, streaming=streaming)
    assert message in str(raised.value)


@pytest.mark.parametrize("missing", BASE)
def test_required_options_are_named(missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        source_options({name: value for name, value in BASE.items() if name != missing}, streaming=False)


def test_bad_pattern_and_assignment_are_refused() -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        parsed(subscribePattern="(")
    for text in ("orders", '{"orders":0}', '{"orders":["0"]}', "{}"):
        with pytest.raises(ValueError, match="assign"):
            parsed(assign=text)


@pytest.mark.parametrize("name", REFUSED)
def test_options_of_sparks_connector_without_meaning_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ValueError) as raised:
        source_options({**BASE, name: "1"}, streaming=True)
    assert f"does not have the option {name}: {REFUSED[name]}" in str(raised.value)


def test_secrets_are_refused_without_their_values() -> None:
    with pytest.raises(ValueError) as raised:
        source_options({**BASE, "kafka.sasl.jaas.config": "hunter2"}, streaming=False)
    assert "hunter2" not in str(raised.value) and "is a secret" in str(raised.value)


def test_no_option_is_both_known_and_refused() -> None:
    assert not {name.lower() for name in OPTIONS} & {name.lower() for name in REFUSED}
