"""Kafka's hash functions: for the partition of a group or key, and for topic metadata.

Clients and stored data depend on every one of these results. XXH3 comes from a library; the others are
implemented here, because they must equal Java's 32-bit arithmetic.
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
    """Return Java's `String.hashCode` (signed 32 bits), over UTF-16 units: an emoji counts as two."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return _signed(value)


@lru_cache(maxsize=16_384)
def group_partition(key: str, partitions: int) -> int:
    """Return the partition of a coordinator's topic for `key` (a group, a transactional id, a share key).

    This is Kafka's `Utils.abs(key.hashCode()) % partitions`, whose `abs` of the smallest integer is 0.
    """
    value = java_string_hash(key)
    return (0 if value == -0x8000_0000 else abs(value)) % partitions


def murmur2(data: bytes | bytearray | memoryview) -> int:
    """Return the signed 32-bit murmur2 hash with Kafka's seed."""
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
    """Return the partition that Kafka's default partitioner chooses for a key."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def topic_hash(name: str, topic_id: bytes, racks: Sequence[Sequence[str]]) -> int:
    """Hash a topic's metadata as Kafka does: its id, its name, and the racks of each partition's replicas.

    XXH3 (64 bits, signed) over little-endian numbers and UTF-16 texts, each text followed by its length.
    `racks` has one entry for each partition; replicas without a rack are omitted.
    """
    most, least = struct.unpack(">qq", topic_id)
    parts = [b"\0", struct.pack("<qq", most, least), _text(name), struct.pack("<i", len(racks))]
    for index, of_partition in enumerate(racks):
        parts.append(struct.pack("<i", index))
        for rack in sorted(of_partition, key=_java_order):
            parts.append(struct.pack("<i", _java_length(rack)) + _text(rack))
    return _xxh3(b"".join(parts))


def metadata_hash(topic_hashes: Mapping[str, int]) -> int:
    """Combine the hashes of a group's existing topics, by name, as Kafka does; 0 if there are none."""
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
    """Return a sort key that orders strings as Java does, by UTF-16 units."""
    return text.encode("utf-16-be")


def _signed(value: int) -> int:
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value
