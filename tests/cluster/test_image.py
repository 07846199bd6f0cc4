"""The topic image of coordinators is replaced by each change, and is the same object otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from konvene.cluster.catalogue import Catalogue
from konvene.codec.uuid import Uuid
from konvene.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from konvene.shard.image import Topic

A, B, NEW_A = (Uuid(letter * 16) for letter in (b"a", b"b", b"n"))

LOG = (
    TopicRecord(name="a", topic_id=A),
    PartitionRecord(topic_id=A, partition_id=0),
    TopicRecord(name="b", topic_id=B),
    PartitionRecord(topic_id=B, partition_id=0),
)


def replayed(*records: Any) -> Catalogue:
    catalogue = Catalogue()
    for record in records:
        catalogue.replay(record)
    return catalogue


def test_the_version_counts_topics_that_were_made() -> None:
    """Partitions and deletions keep it; a topic that is made again counts again, and so after a restart."""
    more = (
        PartitionRecord(topic_id=A, partition_id=1),
        RemoveTopicRecord(topic_id=A),
        TopicRecord(name="a", topic_id=NEW_A),
    )
    assert Catalogue().state.image.version == 0
    assert replayed(*LOG).state.image.version == 2
    assert [replayed(*LOG, *more[:n]).state.image.version for n in (1, 2, 3)] == [2, 2, 3]


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(name="c", topic_id=NEW_A),
        PartitionRecord(topic_id=A, partition_id=1),
        RemoveTopicRecord(topic_id=A),
    ],
)
def test_whatever_changes_makes_another_value(record: Any) -> None:
    catalogue = replayed(*LOG)
    before = catalogue.state.image
    catalogue.replay(record)
    after = catalogue.state.image
    assert after is not before
    assert after.by_name != before.by_name
    assert catalogue.state.image is after


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(topic_id=A, partition_id=0),
        PartitionRecord(topic_id=NEW_A, partition_id=7),
        RemoveTopicRecord(topic_id=NEW_A),
        ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="1"),
        FeatureLevelRecord(name="metadata.version", feature_level=33),
        ProducerIdsRecord(next_producer_id=1000),
        RegisterBrokerRecord(broker_id=1, broker_epoch=1, rack=None),
    ],
)
def test_records_without_a_change_of_topics_keep_the_image(record: Any) -> None:
    """Records of other types, and records that repeat the current state."""
    catalogue = replayed(*LOG)
    before = catalogue.state.image
    catalogue.replay(record)
    assert catalogue.state.image is before


def test_replicas_are_in_the_rack_of_the_broker() -> None:
    """Also when it is started in another one, and not when it is started in the same."""
    catalogue = replayed(*LOG)
    assert catalogue.state.image.by_name["a"].racks == ()
    assert catalogue.state.image.by_name["a"].rack_sets == ()
    catalogue.replay(RegisterBrokerRecord(broker_id=1, broker_epoch=1, rack="r1"))
    catalogue.replay(PartitionRecord(topic_id=A, partition_id=1))
    image = catalogue.state.image
    assert image.by_name["a"].racks == (("r1",), ("r1",))
    assert image.by_name["a"].rack_sets == (frozenset({"r1"}),) * 2
    catalogue.replay(RegisterBrokerRecord(broker_id=1, broker_epoch=2, rack="r1"))
    assert catalogue.state.image is image
    catalogue.replay(RegisterBrokerRecord(broker_id=1, broker_epoch=3, rack="r2"))
    assert catalogue.state.image.by_name["b"].racks == (("r2",),)


def test_unknown_racks_are_none() -> None:
    """Partitions with known racks have a set each; a topic without any known rack has none."""
    assert Topic("a", A, 2, (("r1", "r2"), ())).rack_sets == (frozenset({"r1", "r2"}), frozenset())
    assert Topic("a", A, 2, ((), ())).rack_sets == ()
