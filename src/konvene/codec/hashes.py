"""The hashes by which Kafka places things: a group on a partition, a key on a partition, a batch's checksum.

All are fixed for ever by clients and stored data; none is a matter of taste. Checksums
(CRC-32C) come from a library; the rest is written out because a value must come out
exactly as Java's 32-bit arithmetic gives it.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

__all__ = ["crc32c", "group_partition", "java_string_hash", "key_partition", "murmur2"]


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`, signed 32 bits: over UTF-16 units, so an emoji counts as two."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return _signed(value)


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


def _signed(value: int) -> int:
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value
