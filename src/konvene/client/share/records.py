"""Records of a ShareFetch response: the acquired records of a partition, and its gaps.

A broker returns whole batches and the ranges of offsets that it acquired for the member. Other records of the
batches belong to other members. An acquired offset without a record (compacted, or a control record) is a gap
that is acknowledged as such. A damaged batch is rejected with all its acquired records, as a retry cannot
help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from konvene.client.consumer.fetch import whole_batches
from konvene.client.share.session import AcknowledgeType, Unit
from konvene.codec.batches import BatchHeader, Record, TimestampType, check, records
from konvene.codec.errors import CodecError
from konvene.messages.share_fetch import AcquiredRecords, Buffer

__all__ = ["Delivered", "Unpacked", "unpack"]


class Delivered(NamedTuple):
    """A record that is acquired until its lock expires or it is acknowledged."""

    unit: Unit
    node: int
    """Id of the broker that delivered it and takes its acknowledgement."""
    delivery_count: int
    record: Record
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


class Unpacked(NamedTuple):
    """The decoded data of one partition in a ShareFetch response."""

    batches: list[list[Delivered]]
    settled: dict[int, int]
    """Automatic acknowledgements of gaps and of undecodable records."""
    error: CodecError | None
    """The decoding error, if any."""


def unpack(unit: Unit, node: int, data: Buffer, acquired: Sequence[AcquiredRecords]) -> Unpacked:
    """Decode the acquired records, in order."""
    taken = sorted(acquired, key=lambda row: row.first_offset)
    delivered: list[list[Delivered]] = []
    settled: dict[int, int] = {}
    error: CodecError | None = None
    found = [0] * len(taken)
    at = 0
    try:
        for header, batch in whole_batches(data):
            while at < len(taken) and taken[at].last_offset < header.base_offset:
                at += 1
            if at == len(taken):
                break
            if header.is_control or taken[at].first_offset > header.last_offset:
                continue
            try:
                got = _decode_batch(unit, node, header, batch, taken, at, found)
            except CodecError as damage:
                error = damage
                settled |= _rejected(header, taken)
                continue
            if got:
                delivered.append(got)
    except CodecError as damage:
        # Not even where the next batch begins is known: the rest is left to others, when its lock is over.
        return Unpacked(delivered, settled, damage)
    _note_gaps(delivered, taken, found, settled)
    return Unpacked(delivered, settled, error)


def _decode_batch(
    unit: Unit, node: int, header: BatchHeader, batch: memoryview, taken: Sequence[AcquiredRecords], at: int,
    found: list[int],
) -> list[Delivered]:  # fmt: skip
    """Decode the acquired records of one batch, and count them in `found` by their range in `taken`.

    `at` is the index of the first range in `taken` that may reach into the batch."""
    check(batch, header)
    got = []
    last = len(taken)
    for record in records(batch, header):
        while at < last and taken[at].last_offset < record.offset:
            at += 1
        if at == last:
            break
        if record.offset >= taken[at].first_offset:
            got.append(Delivered(unit, node, taken[at].delivery_count, record, header.timestamp_type))
            found[at] += 1
    return got


def _rejected(header: BatchHeader, taken: Sequence[AcquiredRecords]) -> dict[int, int]:
    return {
        offset: AcknowledgeType.REJECT
        for row in taken
        for offset in range(
            max(row.first_offset, header.base_offset), min(row.last_offset, header.last_offset) + 1
        )
    }


def _note_gaps(
    delivered: list[list[Delivered]], taken: Sequence[AcquiredRecords], found: list[int],
    settled: dict[int, int],
) -> None:  # fmt: skip
    """Add a gap to `settled` for each acquired offset that has no record and is not settled yet.

    `delivered` are the decoded records, `taken` the acquired ranges, `found` the records in each."""
    if all(count == row.last_offset - row.first_offset + 1 for row, count in zip(taken, found, strict=True)):
        return
    there = {each.record.offset for batch in delivered for each in batch}
    for row in taken:
        for offset in range(row.first_offset, row.last_offset + 1):
            if offset not in there and offset not in settled:
                settled[offset] = AcknowledgeType.GAP
