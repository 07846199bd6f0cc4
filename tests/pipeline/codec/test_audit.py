"""Audit records of konvene's coordinators become rows of `audit_event`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import depth
from tests.codec.strategies import value_of
from tests.pipeline.codec.test_typed import bronze

from konvene.codec.compile import encode
from konvene.pipeline.codec import typed
from konvene.pipeline.codec.audit import AUDIT_TOPIC, events
from konvene.pipeline.tables import TABLES
from konvene.records.audit import Cause, RebalancedMember, RebalanceKey, RebalanceValue
from konvene.records.coordinator import AUDIT_RECORDS, Record, encode_record


def row(group: str, value: RebalanceValue | None) -> tuple[bytes, bytes | None]:
    return encode_record(Record(RebalanceKey(group=group), value), AUDIT_RECORDS)


def test_rows_match_the_records() -> None:
    """Tombstones and unknown types make no rows; undecodable records go to quarantine."""
    cause = Cause(kind="member-left", at_ms=5, member_id="m", reason="bye")
    member = RebalancedMember(member_id="n", client_id="ann", client_host="/h", joined_ms=7)
    value = RebalanceValue(
        group_type="consumer", epoch=3, state="Stable", started_ms=1, joined_ms=2, ended_ms=9, partition=4,
        base_offset=10, last_offset=11, causes=(cause,), members=(member,), causes_left_out=2,
        moved=(1, 0, 5), session_timeout_ms=45_000,
    )  # fmt: skip
    pairs = [row("g", value), row("g", None), (b"\0\5what", b"\0\0?"), (row("g", None)[0], b"\0\7later")]
    rows, bad = events(bronze(AUDIT_TOPIC, pairs))
    rows.validate(full=True)
    assert rows.schema == TABLES["audit_event"].schema
    assert rows.to_pylist() == [
        {
            "cluster": "c", "audit_partition": 3, "audit_offset": 0, "timestamp_ms": 1000, "group_id": "g",
            "group_type": "consumer", "epoch": 3, "state": "Stable", "started_ms": 1, "joined_ms": 2,
            "ended_ms": 9, "partition": 4, "base_offset": 10, "last_offset": 11, "inferred": False,
            "protocol": None, "leader": None, "causes_left_out": 2, "members_left_out": 0, "moved": [1, 0, 5],
            "session_timeout_ms": 45_000,
            "causes": [
                {"kind": "member-left", "at_ms": 5, "member_id": "m", "instance_id": None, "client_id": None,
                 "client_host": None, "reason": "bye", "topic": None}
            ],
            "members": [
                {"member_id": "n", "instance_id": None, "client_id": "ann", "client_host": "/h",
                 "joined_ms": 7}
            ],
        }
    ]  # fmt: skip
    assert bad is not None
    assert [(row["offset"], row["reason"]) for row in bad.to_pylist()] == [
        (3, "REBALANCE: version 7 is not known (known: 0)")
    ]


@settings(max_examples=depth.examples(20), deadline=None)
@given(st.lists(value_of(RebalanceValue, 0), min_size=1, max_size=5))
def test_batch_and_single_decoding_agree(values: list[RebalanceValue]) -> None:
    records = bronze(
        AUDIT_TOPIC, [row("g", None)] + [(row("g", None)[0], b"\0\0" + encode(v, 0)) for v in values]
    )
    one_by_one, _ = events(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typed, "MAX_SCALAR_ROWS", 1)
        at_once, _ = events(records)
    assert at_once.equals(one_by_one)
    assert at_once.column("epoch").to_pylist() == [value.epoch for value in values]
