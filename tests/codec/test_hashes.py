"""Hash functions return the same values as Kafka's."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from konvene.codec.hashes import (
    crc32c,
    group_partition,
    java_string_hash,
    key_partition,
    metadata_hash,
    murmur2,
    topic_hash,
)
from konvene.codec.uuid import Uuid

VECTORS = Path(__file__).parents[1] / "vectors" / "hashes.jsonl.gz"
GOLDEN: dict[str, list[dict[str, Any]]] = defaultdict(list)
for _row in map(json.loads, gzip.decompress(VECTORS.read_bytes()).splitlines()):
    GOLDEN[_row["kind"]].append(_row)


def _partitions(row: dict[str, Any]) -> dict[int, int]:
    return {int(name[3:]): value for name, value in row.items() if name.startswith("mod")}


def test_a_group_maps_to_kafkas_partition():
    """Java string hash and partition equal Kafka's for every golden group id."""
    assert GOLDEN["group-partition"]
    for row in GOLDEN["group-partition"]:
        assert java_string_hash(row["groupId"]) == row["hashCode"]
        for partitions, expected in _partitions(row).items():
            assert group_partition(row["groupId"], partitions) == expected, row


def test_the_smallest_integer_maps_to_partition_zero():
    """A group id whose hash is -2^31 maps to partition 0, as Kafka's `Utils.abs` returns 0 for it."""
    text = "polygenelubricants"
    assert java_string_hash(text) == -(2**31)
    assert group_partition(text, 7) == 0


def test_a_share_key_maps_to_kafkas_partition():
    """The coordinator key of a share partition is hashed as a string."""
    assert GOLDEN["share-state-partition"]
    for row in GOLDEN["share-state-partition"]:
        for partitions, expected in _partitions(row).items():
            assert group_partition(row["coordinatorKey"], partitions) == expected, row


def test_bytes_hash_as_in_kafka():
    """CRC-32C, murmur2 and the partition of a key agree for every golden byte string."""
    assert GOLDEN["bytes-hash"]
    for row in GOLDEN["bytes-hash"]:
        data = bytes.fromhex(row["hex"])
        assert crc32c(data) == row["crc32c"]
        assert murmur2(data) == row["murmur2"]
        for partitions, expected in row["partitionForKey"].items():
            assert key_partition(data, int(partitions)) == expected


def test_topic_metadata_hashes_as_in_kafka():
    """Topic and group metadata hashes equal Kafka's for every golden set of topics and racks."""
    assert GOLDEN["metadata-hash"]
    for row in GOLDEN["metadata-hash"]:
        racks = {b["id"]: b["rack"] for b in row["brokers"] if b["rack"] is not None}
        hashes = {}
        for topic in row["topics"]:
            partition_racks = [
                [racks[r] for r in replicas if r in racks] for replicas in topic["partitionReplicas"]
            ]
            hashes[topic["name"]] = topic_hash(topic["name"], Uuid.parse(topic["id"]), partition_racks)
        missing = dict.fromkeys(row["topicHashes"].keys() - hashes.keys(), 0)
        assert hashes | missing == row["topicHashes"], row
        assert metadata_hash(hashes) == row["groupHash"], row
