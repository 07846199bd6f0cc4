"""Validates a batch before it is appended: the rules of Kafka's `LogValidator`, in Kafka's order.

The result is the newest timestamp of the batch and, if the topic uses another compression, the recompressed
bytes. No offsets are assigned and nothing is written. The order matters: a batch that breaks two rules is
rejected with the first one's error.

A batch that is invalid as a whole is rejected without details. An invalid record (no key in a compacted
topic, a timestamp too far from the clock) is reported by its index, with Kafka's message. Nearly all batches
are valid, so a quick pass (`check_records`) only detects whether a record may be invalid, and only then are
the records read a second time.
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
"""Maximum number of invalid records that are reported; Kafka has no limit."""

_COMPRESSION = 0x07
_LOG_APPEND_TIME = 0x08


def validate(
    batch: memoryview, header: BatchHeader, config: LogConfig, partition: str, now_ms: int, origin: Origin
) -> tuple[int, bytes | None]:
    """Validate one batch; return its newest timestamp, and its recompressed bytes or None if unchanged.

    The timestamp comes from the records, not from the header; it is `now_ms` if the topic uses LogAppendTime.
    `partition` is the partition's name, for error messages. Raises a subclass of `Refused`, or `CorruptBatch`
    if the checksum does not match.
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
    """Validate a batch by its header and checksum, without reading its records; raise as `validate` does."""
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
    """Return True if a timestamp of the batch may be too far from the clock, so that each has to be checked.

    `newest` is the newest timestamp, `first` the base timestamp; `earlier`: a record is older than `first`.
    """
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
    """Validate each record and return the newest timestamp; raise one error for all invalid records.

    With `keyed`, a record without a key is invalid.
    """
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
    """Format a record for an error message as Kafka does: as DefaultRecord or PartialDefaultRecord.

    Kafka reads a part of each record, without key and value, if a batch stays compressed as it is.
    """
    source = header.attributes & _COMPRESSION
    whole = source == Compression.NONE or config.compression not in (None, source)
    missing = 0 if whole else -1
    key = missing if record.key is None else len(record.key)
    value = missing if record.value is None else len(record.value)
    kind = "DefaultRecord" if whole else "PartialDefaultRecord"
    return f"{kind}(offset={record.offset}, timestamp={timestamp}, key={key} bytes, value={value} bytes)"


def _check_sizes(data: bytes, header: BatchHeader, most: int) -> None:
    """Reject a batch with a record larger than `most` bytes (`max.decompressed.message.bytes`)."""
    pos = 0
    for _ in range(header.record_count):
        size, pos = read_varint(data, pos)
        if size > most:
            raise InvalidRecord(f"a record of {size} bytes, max.decompressed.message.bytes is {most}")
        pos += size


def _long(number: int) -> int:
    """Wrap a number to Java's 64-bit range."""
    return (number + 0x8000_0000_0000_0000 & 0xFFFF_FFFF_FFFF_FFFF) - 0x8000_0000_0000_0000
