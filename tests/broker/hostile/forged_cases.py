"""Rows 14 to 20 of the hostile inputs: inconsistent record batches, and the errors that reject them.

Each case has the error code of Apache Kafka 4.4 for the same bytes. konvene's own code (`ours`) stands beside
it where it differs: konvene stores no batch with invalid records, and a client's mistake is never answered
UNKNOWN_SERVER_ERROR.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import cramjam
from tests.broker.hostile.forged import batch, old, packed, record, records, sized, sound

from konvene.codec.batches import end_marker
from konvene.codec.compression import Compression, compress
from konvene.codec.varint import write_varint
from konvene.errors import Errors

NONE = Errors.NONE
CORRUPT = Errors.CORRUPT_MESSAGE
INVALID = Errors.INVALID_RECORD
TOO_LARGE = Errors.MESSAGE_TOO_LARGE
UNKNOWN = Errors.UNKNOWN_SERVER_ERROR
NO_ZSTD = Errors.UNSUPPORTED_COMPRESSION_TYPE
NOT_ALLOWED = Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

HUGE = 2**31 - 1
MAX_MESSAGE_BYTES = 1_048_588
GZIP, SNAPPY, LZ4, ZSTD = Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD
XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
LZ4_FRAME = compress(LZ4, records(1))
PRODUCER = {"producer_id": 10, "producer_epoch": 0, "base_sequence": 0}


class Case(NamedTuple):
    """The records of a Produce request, and the error codes of Kafka's and of konvene's response."""

    row: int
    name: str
    records: bytes | None
    kafka: Errors
    ours: Errors
    version: int = 12


def of(
    row: int, kafka: Errors, cases: dict[str, bytes | None], *, ours: Errors | None = None, version: int = 12
) -> list[Case]:
    return [
        Case(row, name, data, kafka, kafka if ours is None else ours, version) for name, data in cases.items()
    ]


CASES = [
    *of(14, CORRUPT, {
        "the checksum is another": batch(crc=1),
        "a bit of the records is flipped": sound()[:-1] + b"\1",
        "a bit of the header is flipped": sound()[:22] + b"\x08" + sound()[23:],
    }),
    *of(15, INVALID, {
        "more records counted than there are": batch(count=2, body=records(1)),
        "fewer records counted than there are": batch(records(2), 1),
        "2^31-1 records counted": batch(record_count=HUGE),
        "2^31-1 records counted, and offsets to match": batch(record_count=HUGE, last_offset_delta=HUGE - 1),
        "a negative count": batch(record_count=-1),
        "no records": batch(b"", 0),
        "no records, and an offset": batch(b"", 0, last_offset_delta=0),
        "an offset delta above the count": batch(last_offset_delta=5),
        "an offset delta below the count": batch(count=3, last_offset_delta=1),
        "a negative offset delta": batch(last_offset_delta=-2),
        "a base offset that is not 0": batch(base_offset=5),
        "a negative base offset": batch(base_offset=-5),
        "a batch length beyond the bytes": batch(batch_length=5000),
        "a record of negative size": batch(record(size=-1)),
        "a record of 2^31-1 bytes": batch(record(size=HUGE)),
        "a record larger than it is": batch(record(size=100)),
        "a record smaller than it is": batch(record(size=4)),
        "a record of no bytes": batch(b"\0"),
        "a record time without an end": batch(write_varint(20) + b"\0" + b"\xff" * 19),
        "a key of 2^31-1 bytes": batch(record(key=write_varint(HUGE))),
        "a value of 2^31-1 bytes": batch(record(value=write_varint(HUGE))),
        "2^31-1 headers": batch(record(headers=write_varint(HUGE))),
        "-1 headers": batch(record(headers=write_varint(-1))),
        "a header without a key": batch(record(headers=b"\x02\x01\x01")),
        "a header with a key of 2^31-1 bytes": batch(record(headers=b"\x02" + write_varint(HUGE))),
        "bytes behind the last record": batch(records(1) + b"\0"),
        "a producer without a sequence": batch(producer_id=9, producer_epoch=0),
        "gzip: more records counted than there are": packed(GZIP, records(1), 2),
        "gzip: fewer records counted than there are": packed(GZIP, records(2), 1),
        "gzip: a record of 2^31-1 bytes": packed(GZIP, record(size=HUGE)),
        "gzip: a record of negative size": packed(GZIP, record(size=-1)),
        "gzip: a value of 2^31-1 bytes": packed(GZIP, record(value=write_varint(HUGE))),
        "gzip: 2^31-1 headers": packed(GZIP, record(headers=write_varint(HUGE))),
        "gzip: bytes behind the last record": packed(GZIP, records(1) + b"\0"),
        "gzip: nothing inside": packed(GZIP, b""),
    }),
    *of(15, CORRUPT, {
        "a batch length below a header": batch(batch_length=20),
        "a batch length of a header": batch(batch_length=49),
        "a batch length of nothing": batch(batch_length=0),
        "a negative batch length": batch(batch_length=-1),
    }),
    *of(15, NONE, {
        "a key of -2 bytes": batch(record(key=write_varint(-2))),
        "a value of -2 bytes": batch(record(value=write_varint(-2))),
        "a header with a value of -2 bytes": batch(record(headers=b"\x02\x02h\x03")),
        "a header whose key is no text": batch(record(headers=b"\x02\x04\xff\xfe\x01")),
        "offsets with a gap": batch(record() + record(delta=2), 2),
        "offsets that fall": batch(record(delta=1) + record(), 2),
        "the same offset twice": batch(record() + record(), 2),
        "gzip: a value of -2 bytes": packed(GZIP, record(value=write_varint(-2))),
    }, ours=INVALID),
    *of(15, UNKNOWN, {
        "a batch length of 2^31-1": batch(batch_length=HUGE),
        "a record size without an end": batch(b"\xff" * 12),
        "gzip: offsets with a gap": packed(GZIP, record() + record(delta=2), 2),
    }, ours=INVALID),
    *of(15, NONE, {
        "a sequence without a producer": batch(base_sequence=7),
        "a producer without an epoch": batch(producer_id=10, base_sequence=0),
        "a negative producer": batch(producer_id=-5, producer_epoch=0, base_sequence=0),
    }),
    *of(16, INVALID, {
        "a control batch": batch(attributes=0x20),
        "a control batch of a producer": batch(attributes=0x20, **PRODUCER),
    }),
    *of(16, NOT_ALLOWED, {
        "the end of a transaction": end_marker(
            True, producer_id=12, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0),
        "a record of a transaction that nobody began": batch(attributes=0x10, **PRODUCER),
    }),
    *of(16, NONE, {
        "a delete horizon": batch(attributes=0x40),
        "attributes that nobody defined": batch(attributes=0x7F80),
        "the time of the broker": batch(attributes=0x08),
    }),
    *of(17, TOO_LARGE, {"a byte more than max.message.bytes": sized(MAX_MESSAGE_BYTES + 1)}),
    *of(17, NONE, {"max.message.bytes": sized(MAX_MESSAGE_BYTES)}),
    *of(18, INVALID, {
        "magic 0": old(0),
        "magic 1": old(1),
        "two batches": sound() + sound(),
        "a batch that is cut": sound()[:-1],
        "a header alone": sound()[:61],
        "a header that is cut": sound()[:40],
        "a few bytes": b"\0\0\0",
        "no bytes": b"",
    }),
    *of(18, CORRUPT, {"magic 3": batch(magic=3), "magic -1": batch(magic=-1)}),
    *of(18, NONE, {
        "two batches, the second of them cut": sound() + sound()[:40],
        "a batch and a byte": sound() + b"\0",
    }),
    *of(18, UNKNOWN, {
        "a codec that does not exist": batch(attributes=5),
        "another one": batch(attributes=7),
    }, ours=INVALID),
    *of(18, NO_ZSTD, {"zstd before its time": packed(ZSTD, records(1))}, version=6),
    *of(18, NONE, {"zstd": packed(ZSTD, records(1))}, version=7),
    *of(20, UNKNOWN, {
        "snappy: a chunk of -1 bytes": batch(XERIAL + b"\xff" * 4 + b"abc", attributes=2),
        "snappy: a chunk of 2^31-1 bytes": batch(XERIAL + b"\x7f\xff\xff\xff" + b"abc", attributes=2),
        "snappy: a chunk of -2^31 bytes": batch(XERIAL + b"\x80\0\0\0" + b"abc", attributes=2),
        "snappy: a chunk that says 2^32-1 unpacked": batch(
            XERIAL + b"\0\0\0\x06" + b"\xff\xff\xff\xff\x0f\0", attributes=2),
        "snappy: a raw block that says 2^32-1": batch(b"\xff\xff\xff\xff\x0f\0", attributes=2),
        "snappy: half a header": batch(XERIAL[:10], attributes=2),
        "snappy: nothing": batch(b"", attributes=2),
        "lz4: no end mark": batch(LZ4_FRAME[:-4], attributes=3),
        "lz4: a block that is cut": batch(LZ4_FRAME[:-6], attributes=3),
        "lz4: a block of 2^31-1 bytes": batch(
            LZ4_FRAME[:7] + b"\xff\xff\xff\x7f" + LZ4_FRAME[11:], attributes=3),
        "lz4: another magic": batch(b"\0" + LZ4_FRAME[1:], attributes=3),
        "lz4: nothing": batch(b"", attributes=3),
        "gzip: cut": batch(compress(GZIP, records(1))[:-9], attributes=1),
        "gzip: without its trailer": batch(compress(GZIP, records(1))[:-8], attributes=1),
        "gzip: another checksum": batch(compress(GZIP, records(1))[:-8] + bytes(8), attributes=1),
        "gzip: zlib instead": batch(zlib.compress(records(1)), attributes=1),
        "gzip: nothing": batch(b"", attributes=1),
        "zstd: cut": batch(compress(ZSTD, records(1))[:-3], attributes=4),
        "zstd: noise": batch(b"noise" * 9, attributes=4),
        "zstd: a frame that says 2^60 bytes": batch(
            b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + b"\1\0\0", attributes=4),
    }, ours=INVALID),
    *of(20, INVALID, {
        "snappy: a header alone": batch(XERIAL, attributes=2),
        "zstd: nothing": batch(b"", attributes=4),
    }),
    *of(20, NONE, {
        "snappy: a raw block, as librdkafka sends it": batch(
            bytes(cramjam.snappy.compress_raw(records(1))), attributes=2),
    }),
]  # fmt: skip
