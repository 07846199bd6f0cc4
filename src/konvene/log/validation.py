"""What a batch has to be before it is appended: Kafka's `LogValidator`, rule by rule.

Decides whether a batch is taken, what the newest of its timestamps is, and whether it has to be packed again.
It gives no offsets and writes nothing. The order of the rules is Kafka's, for a batch that breaks two of them
is answered with the first.

A batch as a whole is refused without a word; a record that may not be here (no key in a compacted topic, a
timestamp too far from the clock) is told by its place, with Kafka's sentence. Nearly all batches are sound:
`check_records` only tells whether one might not be, and then its records are gone through a second time.
"""

from __future__ import annotations

from konvene.codec.batches import (
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    TimestampType,
    check_sum,
    read_record,
    repack,
)
from konvene.codec.compression import Compression
from konvene.codec.errors import CodecError
from konvene.codec.record_check import check_records
from konvene.codec.varint import read_varint
from konvene.log.config import LONG_MAX, LogConfig
from konvene.log.errors import InvalidRecord, InvalidTimestamp, MessageTooLarge
from konvene.log.producers import Origin

MOST_RECORD_ERRORS = 10_000
"""So many records at fault are told at most; Kafka tells all."""

_COMPRESSION = 0x07
_LOG_APPEND_TIME = 0x08


def validate(
    batch: memoryview, header: BatchHeader, config: LogConfig, partition: str, now_ms: int, origin: Origin
) -> tuple[int, bytes | None]:
    """Check one whole batch. A `Refused`; `CorruptBatch` where the checksum does not hold.

    The newest timestamp of its records, whatever the header says; and the batch anew, where the topic asks
    for another compression. `partition` is the name that errors call it by.
    """
    validate_batch(batch, header, config, origin)
    keyed = config.compacts and not header.is_control
    try:
        data, behind, earlier, keyless = check_records(batch, header, keyed=keyed)
    except CodecError as error:
        raise InvalidRecord(str(error)) from None
    source = header.attributes & _COMPRESSION
    if source and len(data) > config.max_decompressed_message_bytes:
        _check_sizes(data, header, config.max_decompressed_message_bytes)
    stamped = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    claims = header.attributes & _LOG_APPEND_TIME
    first = header.base_timestamp
    newest = first if behind is None else first + behind
    if (
        claims
        or keyless
        or (not stamped and _may_be_far(newest, first, behind is None or earlier, config, now_ms))
    ):
        newest = _examine(data, header, config, partition, now_ms, keyed=keyed)
    newest = now_ms if stamped else max(newest, NO_TIMESTAMP)
    target = config.compression
    if target is None or target == source or (header.is_control and not source):
        return newest, None
    again = repack(header, data, target, config.compression_level, config.message_timestamp_type, newest)
    if len(again) > config.max_message_bytes:
        raise too_large(len(again), config)
    return newest, again


def validate_batch(batch: memoryview, header: BatchHeader, config: LogConfig, origin: Origin) -> None:
    """What can be told of a batch without looking at its records."""
    client = origin is Origin.CLIENT
    if client and header.base_offset:
        raise InvalidRecord(f"the base offset is {header.base_offset}, not 0")
    if header.size > config.max_message_bytes:
        raise too_large(header.size, config)
    check_sum(batch, header)
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord(f"{header.record_count} records, the last at {header.last_offset_delta}")
    if not client:
        return
    if header.is_control:
        raise InvalidRecord("a client may not write control batches")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecord(f"producer {header.producer_id} sent a batch without a sequence")


def too_large(size: int, config: LogConfig) -> MessageTooLarge:
    return MessageTooLarge(f"a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}")


def _may_be_far(newest: int, first: int, earlier: bool, config: LogConfig, now_ms: int) -> bool:
    """Whether a record's timestamp could be too far from the clock; `newest` is exact unless `earlier`."""
    if newest > min(now_ms + config.message_timestamp_after_max_ms, LONG_MAX):
        return True
    if earlier:
        return True
    return config.message_timestamp_before_max_ms != LONG_MAX and (
        first < now_ms - config.message_timestamp_before_max_ms
    )


def _examine(
    data: bytes, header: BatchHeader, config: LogConfig, partition: str, now_ms: int, *, keyed: bool
) -> int:
    """The newest timestamp; raises where a record is at fault, with all such records."""
    stamped = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    claimed = header.max_timestamp if header.attributes & _LOG_APPEND_TIME else None
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    faults: list[tuple[int, str]] = []
    found, ill_timed, newest, pos = 0, False, NO_TIMESTAMP, 0
    for index in range(header.record_count):
        record, pos, _ = read_record(data, pos, header.base_offset, header.base_timestamp, claimed)
        timestamp = _long(record.timestamp)
        newest = max(newest, timestamp)
        if keyed and record.key is None:
            fault = f"Compacted topic cannot accept message without key in topic partition {partition}"
        elif not stamped and timestamp != NO_TIMESTAMP:
            ago = _long(now_ms - timestamp)
            if ago <= before and _long(-ago) <= after:
                continue
            ill_timed = True
            fault = (
                f"Timestamp {timestamp} of message with offset {record.offset} is out of range. "
                f"The timestamp should be within [{_long(now_ms - before)}, {_long(now_ms + after)}]"
            )
        elif claimed is not None:
            ill_timed = True
            fault = (
                f"Invalid timestamp type in message {_shown(record, timestamp, header, config)}. "
                "Producer should not set timestamp type to LogAppendTime."
            )
        else:
            continue
        found += 1
        if len(faults) < MOST_RECORD_ERRORS:
            faults.append((index, fault))
    if not found:
        return newest
    error: InvalidRecord | InvalidTimestamp
    if ill_timed:
        error = InvalidTimestamp("One or more records have been rejected due to invalid timestamp")
    else:
        shown = ", ".join(f"RecordError(batchIndex={index}, message='{why}')" for index, why in faults[:3])
        error = InvalidRecord(
            f"One or more records have been rejected due to {found} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]"
        )
    error.record_errors = tuple(faults)
    raise error


def _shown(record: Record, timestamp: int, header: BatchHeader, config: LogConfig) -> str:
    """A record as Kafka prints it. What it does not unpack it knows less of."""
    source = header.attributes & _COMPRESSION
    whole = source == Compression.NONE or config.compression not in (None, source)
    missing = 0 if whole else -1
    key = missing if record.key is None else len(record.key)
    value = missing if record.value is None else len(record.value)
    kind = "DefaultRecord" if whole else "PartialDefaultRecord"
    return f"{kind}(offset={record.offset}, timestamp={timestamp}, key={key} bytes, value={value} bytes)"


def _check_sizes(data: bytes, header: BatchHeader, most: int) -> None:
    """No record of a compressed batch may unpack to more than `max.decompressed.message.bytes`."""
    pos = 0
    for _ in range(header.record_count):
        size, pos = read_varint(data, pos)
        if size > most:
            raise InvalidRecord(f"a record of {size} bytes, max.decompressed.message.bytes is {most}")
        pos += size


def _long(number: int) -> int:
    """A number as Java's 64 bits hold it."""
    return (number + 0x8000_0000_0000_0000 & 0xFFFF_FFFF_FFFF_FFFF) - 0x8000_0000_0000_0000
