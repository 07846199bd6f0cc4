"""Records that tests write with `produce`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from konvene.client.producer.producer import Produced, Producer
from konvene.codec.batches import Headers

__all__ = ["Record", "Writable", "check_values", "send_all"]

RecordHeaders = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """A record to write. A `partition` that is None is chosen by the key, or round-robin without one; a
    `timestamp_ms` that is None is the current time."""

    value: str | bytes | None
    key: str | bytes | None = None
    headers: RecordHeaders = ()
    timestamp_ms: int | None = None
    partition: int | None = None


Writable = str | bytes | None | tuple[str | bytes | None, str | bytes | None] | Record
"""A value, a pair of key and value, or a `Record`."""


async def send_all(
    producer: Producer, topic: str, values: Iterable[Writable], *, key: str | bytes | None = None,
    partition: int | None = None,
) -> list[Produced]:  # fmt: skip
    """Write records in order; return the partition, offset and timestamp of each.

    `key` and `partition` apply to the records that have none of their own."""
    sent = []
    for value in values:
        record = _record(value)
        own_key = _bytes(key if record.key is None else record.key)
        own_partition = partition if record.partition is None else record.partition
        made = await producer.send(
            topic, _bytes(record.value), key=own_key, headers=_headers(record.headers),
            partition=own_partition, timestamp_ms=record.timestamp_ms,
        )  # fmt: skip
        sent.append(made)
        if own_key is None and own_partition is None:
            await made  # One batch per record, so that each goes to the next partition.
    return [await each for each in sent]


def check_values(values: object) -> None:
    """Raise TypeError if `values` is a single record; a text would be written as one record per character."""
    if isinstance(values, str | bytes | Record):
        raise TypeError(f"produce() writes a list of values; for one record: [{values!r}]")


def _record(value: Writable) -> Record:
    if isinstance(value, Record):
        return value
    if isinstance(value, tuple):
        if len(value) != 2:
            raise TypeError(f"produce() takes pairs of key and value, not {value!r}")
        return Record(value[1], key=value[0])
    return Record(value)


def _headers(headers: RecordHeaders) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((name, _bytes(value)) for name, value in pairs)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
