"""`check_records` accepts and rejects the same record batches as decoding all records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth

from konvene.codec import batches as rb
from konvene.codec.batches import Record
from konvene.codec.errors import CodecError, CorruptBatch
from konvene.codec.record_check import check_records
from konvene.codec.varint import write_varint

any_shape = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=9000),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
        st.integers(-5, 1 << 40),
    ),
    min_size=1,
    max_size=90,
)


@st.composite
def runs(draw: st.DrawFn) -> list[Any]:
    """Draw runs of records of equal sizes, which `check_records` validates column by column."""
    rows: list[Any] = []
    for _ in range(draw(st.integers(1, 4))):
        key = draw(st.none() | st.integers(0, 70).map(bytes))
        value = draw(st.none() | st.integers(0, 200).map(bytes))
        first = draw(st.sampled_from([0, 0, 100, 9000, 1 << 20, 1 << 44, 1 << 60]))
        step = draw(st.sampled_from([0, 0, 1, -1, 40, -63, 9000, 1 << 30]))
        jitter = draw(st.sampled_from([0, 0, 3, 70]))
        rows += [
            (key, value, (), first + i * step - i % 5 * jitter) for i in range(draw(st.integers(1, 120)))
        ]
    return rows


def _assert_same_result(batch: bytearray, header: rb.BatchHeader, keyed: bool) -> None:
    try:
        read = rb.records(batch, header)
        valid = [r.offset for r in read] == list(range(header.record_count))
    except CodecError:
        valid = False
    if valid:
        data, newest, earlier, keyless = check_records(batch, header, keyed=keyed)
        deltas = [record.timestamp - header.base_timestamp for record in read]
        assert data == batch[rb.HEADER_SIZE :]
        assert newest == max((delta for delta in deltas if delta >= 0), default=None)
        assert earlier == (min(deltas) < 0)
        assert keyless == (keyed and any(record.key is None for record in read))
    else:
        with pytest.raises(CodecError):
            check_records(batch, header, keyed=keyed)


@given(any_shape | runs(), st.booleans(), st.data())
@settings(deadline=None, max_examples=depth.examples(150))
def test_checking_records_agrees_with_decoding_them(
    rows: list[Any], keyed: bool, data: st.DataObject
) -> None:
    """Valid batches pass with the right timestamps and missing keys; with one byte changed, the check rejects
    what decoding rejects."""
    entries = [
        Record(i, 1000 + t, key, value, tuple(headers)) for i, (key, value, headers, t) in enumerate(rows)
    ]
    batch = bytearray(rb.build(entries))
    header = rb.read_header(batch)
    check_records(batch, header)
    _assert_same_result(batch, header, keyed)
    at = data.draw(st.integers(rb.HEADER_SIZE, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    _assert_same_result(batch, header, keyed)


def test_every_byte_of_a_run_is_checked():
    """After changing any byte of a run of records, check and decoding agree."""
    batch = bytearray(rb.build([Record(i, 1000 + i % 3, b"key", b"v" * 30) for i in range(80)]))
    header = rb.read_header(batch)
    for at in range(rb.HEADER_SIZE, len(batch)):
        for change in (1, 0x80):
            batch[at] ^= change
            _assert_same_result(batch, header, keyed=True)
            batch[at] ^= change


def test_an_unterminated_timestamp_in_a_short_record_is_rejected():
    body = b"\0" + b"\x80" * 40 + b"\0\0\1\1\0"
    record = write_varint(len(body)) + body
    header = rb.read_header(rb.build([Record(0, 0, None, None)]))
    header = header._replace(batch_length=rb.HEADER_SIZE - rb.PREFIX_SIZE + len(record))
    with pytest.raises(CodecError):
        check_records(rb._HEADER.pack(*header) + record, header)


def test_a_wrong_record_count_is_rejected():
    batch = rb.build_simple([(None, b"x" * 10)] * 50, 1)
    header = rb.read_header(batch)
    check_records(batch, header)
    for count in (49, 51, 500):
        with pytest.raises(CodecError):
            check_records(batch, header._replace(record_count=count))
    with pytest.raises(CorruptBatch):
        check_records(batch + b"\0", header._replace(batch_length=header.batch_length + 1))
