"""The hashes by which Kafka places things: a group on a partition, a key on a partition, a batch's checksum.

All are fixed for ever by clients and stored data; none is a matter of taste. Checksums (CRC-32C) and XXH3
come from libraries; the rest is written out because a value must come out exactly as Java's 32-bit
arithmetic gives it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache

from crc32c import crc32c

__all__ = [
    "crc32c",
    "group_partition",
    "java_string_hash",
    "key_partition",
    "metadata_hash",
    "murmur2",
    "topic_hash",
]


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`, signed 32 bits: over UTF-16 units, so an emoji counts as two."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return _signed(value)


@lru_cache(maxsize=16_384)
def group_partition(key: str, partitions: int) -> int:
    """The partition of a coordinator's topic that holds `key` (a group, a transactional id, a share key).

    Kafka's `Utils.abs(key.hashCode()) % partitions`, where the smallest integer counts as 0.
    """
    value = java_string_hash(key)
    return (0 if value == -0x8000_0000 else abs(value)) % partitions


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """Kafka's murmur2 (32 bits, its own seed), signed."""
    mask = 0xFFFF_FFFF
    length = len(data)
    mixed = 0x9747B28C ^ length
    whole = length & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * 0x5BD1E995 & mask
        word ^= word >> 24
        word = word * 0x5BD1E995 & mask
        mixed = (mixed * 0x5BD1E995 & mask) ^ word
    rest = data[whole:]
    if rest:
        mixed ^= int.from_bytes(rest, "little")
        mixed = mixed * 0x5BD1E995 & mask
    mixed ^= mixed >> 13
    mixed = mixed * 0x5BD1E995 & mask
    mixed ^= mixed >> 15
    return _signed(mixed)


def key_partition(key: bytes, partitions: int) -> int:
    """Where Kafka's default partitioner puts a record with this key."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def topic_hash(name: str, topic_id: bytes, racks: Sequence[Sequence[str]]) -> int:
    """What Kafka remembers of a topic's shape: id, name, and the racks of each partition's replicas.

    XXH3 (64 bits, signed) over a stream of little-endian numbers and UTF-16 texts, each text with its length
    behind it, as Kafka's hashing library writes them. `racks` has one entry for each partition; a
    replica without a rack is left out of it.
    """
    most, least = struct.unpack(">qq", topic_id)
    parts = [b"\0", struct.pack("<qq", most, least), _text(name), struct.pack("<i", len(racks))]
    for index, of_partition in enumerate(racks):
        parts.append(struct.pack("<i", index))
        for rack in sorted(of_partition, key=_java_order):
            parts.append(struct.pack("<i", _java_length(rack)) + _text(rack))
    return _xxh3(b"".join(parts))


def metadata_hash(topic_hashes: Mapping[str, int]) -> int:
    """The hash of a group's topics, of those that exist; 0 where there are none."""
    if not topic_hashes:
        return 0
    ordered = sorted(topic_hashes, key=_java_order)
    return _xxh3(b"".join(struct.pack("<q", topic_hashes[name]) for name in ordered))


def _xxh3(data: bytes) -> int:
    import xxhash  # where groups have topics to hash, and not at every start

    found: int = xxhash.xxh3_64_intdigest(data)
    return found - (1 << 64) if found >> 63 else found


def _text(text: str) -> bytes:
    return text.encode("utf-16-le") + struct.pack("<i", _java_length(text))


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _java_order(text: str) -> bytes:
    """Strings compare as Java's do by this key: by UTF-16 units."""
    return text.encode("utf-16-be")


def _signed(value: int) -> int:
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value
