"""Share sessions: partitions and acknowledgements in requests, and the session epoch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konvene.client.share.session import AcknowledgeType, FetchTerms, ShareSession, Unit, ranges
from konvene.codec.compile import decode, encode
from konvene.codec.uuid import Uuid
from konvene.messages.share_fetch import ShareFetchRequest

A, B = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
TERMS = FetchTerms()


def described(request: Any) -> str:
    """Describe a request: epoch, partitions with acknowledgements, and forgotten partitions."""
    parts = [f"epoch {request.share_session_epoch}"]
    for topic in request.topics:
        for p in topic.partitions:
            acks = ",".join(
                f"{b.first_offset}-{b.last_offset}:{'/'.join(map(str, b.acknowledge_types))}"
                for b in p.acknowledgement_batches
            )
            parts.append(f"{topic.topic_id[0]}-{p.partition_index}" + (f" ({acks})" if acks else ""))
    for topic in getattr(request, "forgotten_topics_data", ()):
        parts += [f"not {topic.topic_id[0]}-{p}" for p in topic.partitions]
    return " ".join(parts)


def fetch(session: ShareSession, wanted: list[Unit], acks: Any = None, **more: Any) -> ShareFetchRequest:
    request = session.fetch(wanted, acks or {}, TERMS, **more)
    assert request is not None
    for version in (1, 2):
        if version == 2 or not request.is_renew_ack:
            assert decode(ShareFetchRequest, version, encode(request, version)).topics == request.topics
    return request


def test_session_sends_all_partitions_first_and_then_changes() -> None:
    session = ShareSession("g", "m")
    assert described(fetch(session, [(A, 0), (B, 1), (A, 2)])) == "epoch 0 1-0 1-2 2-1"
    session.advance_epoch()
    assert described(fetch(session, [(A, 0), (B, 1), (A, 2)])) == "epoch 1"
    session.advance_epoch()
    assert described(fetch(session, [(A, 0), (B, 0)])) == "epoch 2 2-0 not 1-2 not 2-1"


def test_acknowledged_partition_is_not_added_to_the_session() -> None:
    session = ShareSession("g", "m")
    fetch(session, [(A, 0)])
    session.advance_epoch()
    acks = {(A, 0): {4: ACCEPT}, (B, 0): {7: RELEASE}}
    assert described(fetch(session, [(A, 0)], acks)) == "epoch 1 1-0 (4-4:1) 2-0 (7-7:2) not 2-0"
    session.advance_epoch()
    assert described(fetch(session, [(A, 0)])) == "epoch 2"


def test_lost_session_reopens_with_all_wanted_partitions() -> None:
    session = ShareSession("g", "m")
    fetch(session, [(A, 0), (A, 1)])
    session.advance_epoch()
    session.reset()
    assert described(fetch(session, [(A, 1)])) == "epoch 0 1-1"


def test_epoch_wraps_to_one() -> None:
    session = ShareSession("g", "m")
    session.epoch = 2**31 - 1
    session.advance_epoch()
    assert session.epoch == 1


def test_no_request_without_changes() -> None:
    session = ShareSession("g", "m")
    assert session.fetch([], {}, TERMS) is None
    fetch(session, [(A, 0)])
    session.advance_epoch()
    assert session.fetch([(A, 0)], {}, TERMS, records=False) is None
    assert described(fetch(session, [], records=False)) == "epoch 1 not 1-0"


def test_renewal_fetches_no_records() -> None:
    session = ShareSession("g", "m")
    fetch(session, [(A, 0)])
    session.advance_epoch()
    plain, renewing = (fetch(session, [(A, 0)], {(A, 0): {1: kind}}) for kind in (ACCEPT, RENEW))
    assert (plain.max_wait_ms, plain.max_bytes, plain.max_records, plain.is_renew_ack) == (
        500, TERMS.max_bytes, 500, False,
    )  # fmt: skip
    assert (renewing.max_wait_ms, renewing.min_bytes, renewing.max_bytes, renewing.max_records) == (
        0,
        0,
        0,
        0,
    )
    assert renewing.is_renew_ack
    assert session.acknowledge({(A, 0): {1: RENEW}}).is_renew_ack
    assert not session.acknowledge({(A, 0): {1: ACCEPT}}).is_renew_ack


def test_closing_request_may_acknowledge() -> None:
    session = ShareSession("g", "m")
    session.advance_epoch()
    assert described(session.acknowledge({(A, 1): {3: ACCEPT, 4: ACCEPT}})) == "epoch 1 1-1 (3-4:1)"
    assert described(session.acknowledge({}, closes=True)) == "epoch -1"


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ({}, []),
        ({5: 1}, [(5, 5, (1,))]),
        ({5: 1, 6: 1, 7: 1}, [(5, 7, (1,))]),
        ({5: 1, 6: 2, 7: 1}, [(5, 7, (1, 2, 1))]),
        ({5: 1, 7: 1}, [(5, 5, (1,)), (7, 7, (1,))]),
        ({7: 2, 5: 1, 6: 0}, [(5, 7, (1, 0, 2))]),
        (dict.fromkeys(range(11), 1) | {11: 2}, [(0, 10, (1,)), (11, 11, (2,))]),
        (dict.fromkeys(range(10), 1) | {10: 2}, [(0, 10, (1,) * 10 + (2,))]),
        ({0: 2} | dict.fromkeys(range(1, 12), 1) | {12: 3}, [(0, 0, (2,)), (1, 11, (1,)), (12, 12, (3,))]),
    ],
)
def test_ranges_are_short(types: dict[int, int], expected: list[tuple[int, int, tuple[int, ...]]]) -> None:
    """More than ten offsets of one type become a range with a single type, as in Kafka's client."""
    assert list(ranges(types)) == expected


@given(st.dictionaries(st.integers(0, 60), st.sampled_from([0, 1, 2, 3, 4])))
def test_ranges_round_trip(types: dict[int, int]) -> None:
    decoded: dict[int, int] = {}
    end = -1
    for first, last, kinds in ranges(types):
        assert end < first <= last
        assert len(kinds) in (1, last - first + 1)
        end = last
        for offset in range(first, last + 1):
            decoded[offset] = kinds[0] if len(kinds) == 1 else kinds[offset - first]
    assert decoded == types
