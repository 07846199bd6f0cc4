"""Records of `__transaction_state`: versions 0 and 1, and unknown types and versions."""

from __future__ import annotations

import pytest

from konvene.codec.errors import CodecError
from konvene.records.coordinator import (
    Record,
    RecordOfVersion0,
    decode_transaction_record,
    encode_transaction_record,
)
from konvene.records.transactions import PartitionsSchema, TransactionLogKey, TransactionLogValue

KEY = TransactionLogKey(transactional_id="t")
VALUE = TransactionLogValue(
    producer_id=7,
    producer_epoch=3,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=(PartitionsSchema(topic="out", partition_ids=(0, 2)),),
    transaction_last_update_timestamp_ms=5,
    transaction_start_timestamp_ms=4,
)


def test_a_records_class_selects_its_version() -> None:
    old = encode_transaction_record(RecordOfVersion0(KEY, VALUE))
    new = encode_transaction_record(Record(KEY, VALUE))
    assert old[0] == new[0] == b"\0\0\0\1t"
    assert old[1] == bytes.fromhex(
        "0000" "0000000000000007" "0003" "0000ea60" "01"
        "00000001" "0003" "6f7574" "00000002" "00000000" "00000002"
        "0000000000000005" "0000000000000004"
    )  # fmt: skip
    assert new[1] == bytes.fromhex(
        "0001" "0000000000000007" "0003" "0000ea60" "01"
        "02" "04" "6f7574" "03" "00000000" "00000002" "00"
        "0000000000000005" "0000000000000004" "00"
    )  # fmt: skip


@pytest.mark.parametrize("kind", [Record, RecordOfVersion0])
def test_a_record_keeps_its_version(kind: type[Record]) -> None:
    for value in (
        VALUE,
        VALUE.replace(transaction_partitions=None),
        VALUE.replace(transaction_partitions=()),
    ):
        pair = encode_transaction_record(kind(KEY, value))
        decoded = decode_transaction_record(*pair)
        assert type(decoded) is kind
        assert decoded == kind(KEY, value)


def test_a_tombstone_has_no_version() -> None:
    for kind in (Record, RecordOfVersion0):
        pair = encode_transaction_record(kind(KEY, None))
        assert pair == (b"\0\0\0\1t", None)
        assert type(decode_transaction_record(*pair)) is Record


def test_unknown_records_are_skipped() -> None:
    """As in Kafka, unknown types and versions, such as those left by a downgrade, decode to None."""
    assert decode_transaction_record(b"\0\1\0\1t", b"\0\0") is None
    assert decode_transaction_record(b"\0\1\0\1t", None) is None
    assert decode_transaction_record(b"\0\0\0\1t", b"\0\2anything") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"", None), (b"\0", b"\0\0"), (b"\0\0\0\5t", b"\0\0"), (b"\0\0\0\1t", b""), (b"\0\0\0\1t", b"\0\1\0")],
)
def test_truncated_records_are_rejected(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CodecError):
        decode_transaction_record(key, value)
