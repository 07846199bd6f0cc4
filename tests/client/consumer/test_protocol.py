"""Subscriptions and assignments of the classic protocol: encoding, decoding, and other versions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.client.consumer.protocol import (
    Assigned,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from konvene.client.net.cluster import TopicPartition
from konvene.codec.errors import CodecError

NAMES = st.text("abcxyz-._é", min_size=1, max_size=8)
PARTITIONS = st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1))
OWNED = st.lists(PARTITIONS, unique=True, max_size=6).map(lambda found: tuple(sorted(found)))


@given(st.lists(NAMES, unique=True).map(sorted).map(tuple), OWNED, st.integers(-1, 99), st.none() | NAMES)
def test_subscriptions_round_trip(
    topics: tuple[str, ...], owned: tuple[TopicPartition, ...], generation: int, rack: str | None
) -> None:
    value = Subscription(topics, owned, generation, rack, None, b"data")
    assert read_subscription(write_subscription(value)) == value


@given(OWNED, st.none() | st.binary(max_size=4))
def test_assignments_round_trip(partitions: tuple[TopicPartition, ...], data: bytes | None) -> None:
    value = Assigned(partitions, data)
    assert read_assignment(write_assignment(value)) == value


def test_older_versions_omit_newer_fields() -> None:
    value = Subscription(("t",), (TopicPartition("t", 1),), 7, "rack")
    assert read_subscription(write_subscription(value, 0)) == Subscription(("t",))
    assert read_subscription(write_subscription(value, 1)) == Subscription(("t",), value.owned)


def test_a_newer_version_is_read_as_the_newest_known_one() -> None:
    data = write_subscription(Subscription(("t",), rack="r"))
    assert read_subscription(b"\x00\x09" + data[2:] + b"more") == Subscription(("t",), rack="r")


def test_empty_bytes_are_an_empty_assignment_and_invalid_ones_an_error() -> None:
    assert read_assignment(b"") == Assigned(())
    for junk in (b"\x00", b"\x00\x00", b"\x00\x00\x7f\xff\xff\xff"):
        with pytest.raises(CodecError):
            read_assignment(junk)
