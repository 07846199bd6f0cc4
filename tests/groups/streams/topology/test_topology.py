"""Topologies: the fields of the member's request and what is derived from them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.streams.topology.topologies import info, sent, sub, topology

from konvene.codec.compile import decode, encode
from konvene.errors import Errors
from konvene.groups.java_hash_map import hash_map_order
from konvene.groups.streams.topology.topology import Topology, record_value
from konvene.messages import streams_group_heartbeat as wire
from konvene.records.streams import StreamsGroupTopologyValue, TopicConfig, TopicInfo
from konvene.shard.errors import GroupError

WORDS = sub("1", "text", writes="words", state=(info("lines", 3, cleanup_policy="compact"),))
COUNTS = sub("0", "extra", repartitioned="words:4", state="counts sums", joined=(((0,), (0,)),))


def test_the_record_has_all_fields_of_the_request() -> None:
    """The record has every field, and the subtopologies in the member's order."""
    value = record_value(sent(WORDS, COUNTS, epoch=3))
    words, counts = value.subtopologies
    assert (value.epoch, words.subtopology_id, counts.subtopology_id) == (3, "1", "0")
    assert (words.source_topics, words.repartition_sink_topics) == (("text",), ("words",))
    compact = (TopicConfig(key="cleanup.policy", value="compact"),)
    assert words.state_changelog_topics == (
        TopicInfo(name="lines", replication_factor=3, topic_configs=compact),
    )
    assert counts.repartition_source_topics == (TopicInfo(name="words", partitions=4),)
    (group,) = counts.copartition_groups
    assert (group.source_topics, group.repartition_source_topics) == ((0,), (0,))


def test_a_topology_survives_the_log() -> None:
    """A decoded record gives an equal topology."""
    value = record_value(sent(WORDS, COUNTS, epoch=3))
    read = decode(StreamsGroupTopologyValue, 0, encode(value, 0))
    assert Topology.from_value(read) == topology(WORDS, COUNTS, epoch=3)


def test_only_the_order_of_subtopologies_is_irrelevant_for_equality() -> None:
    """Equality is defined as in Kafka."""
    assert topology(WORDS, COUNTS) == topology(COUNTS, WORDS)
    assert topology(WORDS, COUNTS) != topology(WORDS, COUNTS, epoch=1)
    assert topology(WORDS) != topology(WORDS, COUNTS)
    assert topology(sub("0", "a b")) != topology(sub("0", "b a"))


OTHERS = [
    sent(WORDS, COUNTS, epoch=4),
    sent(WORDS, epoch=3),
    sent(WORDS, COUNTS, sub("2", "text"), epoch=3),
    sent(WORDS, sub("2", "extra"), epoch=3),
    *(
        sent(WORDS, other, epoch=3)
        for other in (
            sub("0", "other", repartitioned="words:4", state="counts sums", joined=(((0,), (0,)),)),
            sub("0", "extra", repartitioned="words:5", state="counts sums", joined=(((0,), (0,)),)),
            sub("0", "extra", repartitioned="words:4", state="sums counts", joined=(((0,), (0,)),)),
            sub("0", "extra", repartitioned="words:4", state="counts sums", joined=(((), (0,)),)),
            sub("0", "extra", repartitioned="words:4", state="counts sums", joined=()),
            sub(
                "0", "extra", repartitioned="words:4", writes="x", state="counts sums", joined=(((0,), (0,)),)
            ),
        )
    ),
    *(
        sent(sub("1", "text", writes="words", state=(state,)), COUNTS, epoch=3)
        for state in (
            info("lines", 1, cleanup_policy="compact"),
            info("lines", 3, cleanup_policy="delete"),
            info("lines", 3),
        )
    ),
]


def test_equals_request() -> None:
    """The result is that of a comparison with a topology made from the request."""
    known = topology(WORDS, COUNTS, epoch=3)
    assert known.equals_request(sent(COUNTS, WORDS, epoch=3))
    for other in OTHERS:
        assert not known.equals_request(other)
        assert Topology.from_request(other) != known


def test_topics_and_their_readers() -> None:
    """Source topics have to exist. The metadata hash covers all topics that are consumed or kept."""
    known = topology(WORDS, COUNTS)
    assert list(known.subtopologies) == ["0", "1"]
    assert known.source_topics == ("extra", "text")
    assert sorted(known.required_topics) == ["counts", "extra", "lines", "sums", "text", "words"]
    assert known.readers == {"text": "1", "extra": "0", "words": "0"}
    assert topology().source_topics == topology().required_topics == ()


def test_a_topic_with_two_readers_is_required_once() -> None:
    """No topic is hashed or reported as missing twice."""
    known = topology(sub("0", "a b"), sub("1", "b", state="b"))
    assert known.source_topics == ("a", "b")
    assert sorted(known.required_topics) == ["a", "b"]


def test_a_subtopology_with_a_changelog_is_stateful() -> None:
    known = topology(WORDS, sub("2", "text"))
    assert (known.is_stateful("1"), known.is_stateful("2")) == (True, False)


@pytest.mark.parametrize("broken", [sent(epoch=-1), sent(sub("0", "a"), sub("0", "b"))])
def test_a_topology_that_kafka_cannot_represent_is_a_server_error(broken: wire.Topology) -> None:
    """A negative epoch and a repeated id: UNKNOWN_SERVER_ERROR without a message."""
    with pytest.raises(GroupError) as refused:
        Topology.from_request(broken)
    assert (refused.value.error, refused.value.message) == (Errors.UNKNOWN_SERVER_ERROR, None)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], []),
        (["b", "a"], ["a", "b"]),
        ([str(n) for n in range(12)], ["0", "11", *"123456789", "10"]),
        ([str(n) for n in range(13)], ["11", "12", *"0123456789", "10"]),
        (["Aa", "BB", "C#"], ["Aa", "BB", "C#"]),
        (["C#", "BB", "Aa"], ["C#", "BB", "Aa"]),
        (["é", "\N{GRINNING FACE}"], ["\N{GRINNING FACE}", "é"]),
    ],
)
def test_hash_order_is_that_of_a_java_hash_map(names: list[str], expected: list[str]) -> None:
    """Observed orders of a Java HashMap; names of equal hash keep their insertion order."""
    assert hash_map_order(names) == expected


@given(st.lists(st.text(), unique=True))
def test_hash_order_has_all_names(names: list[str]) -> None:
    """The order has all names, and is the same each time."""
    assert sorted(hash_map_order(names)) == sorted(names)
    assert hash_map_order(names) == hash_map_order(list(names))
