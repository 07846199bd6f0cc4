"""Text that is not valid UTF-8: rejected in records and responses, replaced as by Java in requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.codec.compile import COUNTED_FROM, decode_from, encode
from konvene.codec.errors import Malformed, Truncated
from konvene.codec.text import decode_text
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.messages.describe_groups import DescribeGroupsRequest


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"c\xff\xfe", "c\ufffd\ufffd"),
        (b"\xc3", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xf0\x9f\x98", "\ufffd"),
        (b"a\xc3(b", "a\ufffd(b"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xe2\x28\xa1", "\ufffd(\ufffd"),
    ],
)
def test_malformed_text_is_replaced_as_by_kafka(data: bytes, expected: str) -> None:
    """Client ids that were sent to Apache Kafka 4.4 with a heartbeat, and what it described afterwards."""
    assert decode_text(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xbfA", "\ufffdA"),
        (b"\xed\xa0\xed\xa0\x80\xed", "\ufffd\ufffd\ufffd"),
        (b"\xed\xc0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xed\x9f\xbf", "\ud7ff"),
    ],
)
def test_a_surrogate_is_one_malformed_sequence(data: bytes, expected: str) -> None:
    """As in Java's `new String(bytes, UTF_8)`. Python's own replacement counts its bytes."""
    assert decode_text(data) == expected


@given(st.binary(max_size=20))
def test_any_bytes_are_text(data: bytes) -> None:
    """It can be encoded again, and valid text is unchanged."""
    text = decode_text(data)
    assert decode_text(text.encode()) == text
    assert (text.encode() == data) == ("\ufffd" not in text or "\ufffd".encode() in data)


@given(st.text(st.characters(codec="utf-8")))
def test_valid_text_is_unchanged(text: str) -> None:
    assert decode_text(text.encode()) == text


def with_malformed(data: bytes) -> bytes:
    return data.replace(b"XX", b"\xff\xfe")


def test_text_of_a_request_is_replaced_at_every_depth() -> None:
    """In fields, arrays and nullable fields, of flexible versions and of others."""
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="gXX", member_id="m", rack_id="XXr", subscribed_topic_names=("t", "tXX")
    )
    expected = heartbeat.replace(
        group_id="g\ufffd\ufffd", rack_id="\ufffd\ufffdr", subscribed_topic_names=("t", "t\ufffd\ufffd")
    )
    data = with_malformed(encode(heartbeat, 1))
    assert decode_from(ConsumerGroupHeartbeatRequest, 1, data, lenient=True) == (expected, len(data))
    for version in (0, 4, 5):
        request = DescribeGroupsRequest(groups=("XX", "g"))
        data = with_malformed(encode(request, version))
        decoded, _ = decode_from(DescribeGroupsRequest, version, data, lenient=True)
        assert decoded == request.replace(groups=("\ufffd\ufffd", "g"))


def test_text_is_strict_by_default() -> None:
    data = with_malformed(encode(DescribeGroupsRequest(groups=("XX",)), 5))
    with pytest.raises(Malformed, match="not UTF-8"):
        decode_from(DescribeGroupsRequest, 5, data)


def test_lengths_are_checked_in_malformed_text_too() -> None:
    data = with_malformed(
        encode(ApiVersionsRequest(client_software_name="XX", client_software_version="1"), 3)
    )
    assert decode_from(ApiVersionsRequest, 3, data, lenient=True)[0].client_software_name == "\ufffd\ufffd"
    for end in range(len(data)):
        with pytest.raises(Truncated):
            decode_from(ApiVersionsRequest, 3, data[:end], lenient=True)


def test_a_large_request_with_malformed_text() -> None:
    """It is read with the memory budget both times."""
    groups = ("XX", *("g" * 100 for _ in range(COUNTED_FROM // 100)))
    data = with_malformed(encode(DescribeGroupsRequest(groups=groups), 5))
    assert len(data) > COUNTED_FROM
    decoded, end = decode_from(DescribeGroupsRequest, 5, data, lenient=True)
    assert (decoded.groups, end) == (("\ufffd\ufffd", *groups[1:]), len(data))
