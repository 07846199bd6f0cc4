"""Causes of rebalances inferred from two records of a classic group.

`vectors/history` is a log that Apache Kafka wrote (its GROUP_METADATA records) and the broker's own report of
the cause of each rebalance.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from konvene.codec.compile import encode
from konvene.groups.history import infer
from konvene.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from konvene.records.audit import Cause, RebalancedMember, RebalanceValue
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.coordinator import GROUP_RECORDS, decode_record
from konvene.shard import causes

VECTORS = Path(__file__).parents[2] / "vectors" / "history"


def lines(name: str) -> list[Any]:
    with gzip.open(VECTORS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def infer_row(
    previous: GroupMetadataValue | None, current: GroupMetadataValue | None
) -> RebalanceValue | None:
    return infer(previous, current, group="g", timestamp_ms=5_000, partition=3, offset=42)


def inferred_causes(previous: GroupMetadataValue | None, current: GroupMetadataValue) -> list[str]:
    row = infer_row(previous, current)
    assert row is not None
    return [f"{c.kind} {c.member_id or c.topic or ''}".rstrip() for c in row.causes]


def member(
    name: str, topics: str = "t", *, instance: str | None = None, owned: tuple[int, ...] = (),
    given: tuple[int, ...] = (0,), topic: str = "t",
) -> MemberMetadata:  # fmt: skip
    wants = ConsumerProtocolSubscription(
        topics=tuple(topics.split()),
        owned_partitions=(TopicPartition(topic=topic, partitions=owned),) if owned else (),
    )
    has = ConsumerProtocolAssignment(
        assigned_partitions=(ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=given),)
    )
    return MemberMetadata(
        member_id=name, group_instance_id=instance, client_id=f"client-{name}", client_host="/10.0.0.1",
        subscription=b"\x00\x03" + encode(wants, 3), assignment=b"\x00\x03" + encode(has, 3),
    )  # fmt: skip


def group(generation: int, *members: MemberMetadata, at_ms: int = 4_000) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type="consumer", generation=generation, protocol="range" if members else None,
        leader=members[0].member_id if members else None, current_state_timestamp=at_ms, members=members,
    )  # fmt: skip


def test_inferred_causes_of_kafkas_log_are_those_that_kafka_reported() -> None:
    """For every generation: the same cause and member; whether a member left or expired is not in the log."""
    expected: dict[tuple[str, int], tuple[str, str]] = {}
    for line in lines("classic-causes"):
        if line["event"] == "rebalance-starts":
            cause = line["cause"]
            kind = "member-gone" if cause in ("member-left", "session-expired") else cause
            expected.setdefault((line["group"], line["generation"] + 1), (kind, line["member"]))
    previous: dict[str, GroupMetadataValue | None] = {}
    explained: dict[tuple[str, int], list[tuple[str, str | None]]] = {}
    for line in lines("classic-group-records"):
        value = None if line["value_hex"] is None else bytes.fromhex(line["value_hex"])
        record = decode_record(bytes.fromhex(line["key_hex"]), value, GROUP_RECORDS)
        assert record is not None and isinstance(record.key, GroupMetadataKey)
        current = record.value
        assert current is None or isinstance(current, GroupMetadataValue)
        name = record.key.group
        row = infer(
            previous.get(name), current, group=name, timestamp_ms=line["timestamp"],
            partition=line["partition"], offset=line["offset"],
        )  # fmt: skip
        if row is not None:
            explained[name, row.epoch] = [(c.kind, c.member_id) for c in row.causes]
        previous[name] = current
    assert explained.keys() == expected.keys()
    for key, (kind, member_id) in expected.items():
        alternatives = [(each, named) for kinds, named in explained[key] for each in kinds.split("|")]
        assert (kind, member_id) in alternatives or (kind, None) in alternatives, key


SUPERSEDED = causes.SUPERSEDED_UNRECORDED


@pytest.mark.parametrize(
    "previous, current, expected",
    [
        (None, group(1, member("a"), member("b")), ["member-joined a", "member-joined b"]),
        (group(0), group(1, member("a")), ["member-joined a"]),
        (group(1, member("a")), group(2, member("b"), member("a")), ["member-joined b"]),
        (group(1, member("a"), member("b")), group(2, member("a")), ["member-gone b"]),
        (group(1, member("a")), group(2), ["member-gone a"]),
        (group(1, member("a")), group(4, member("b")), ["member-gone a", "member-joined b"]),
        (group(1, member("a")), group(2, member("a", "t u")), ["member-metadata-changed|leader-rejoined a"]),
        (
            group(1, member("a", instance="i")),
            group(2, member("b", instance="i")),
            ["member-joined|member-metadata-changed|leader-rejoined b"],
        ),
        (
            group(1, member("a", instance="i")),
            group(3, member("b", instance="i")),
            ["member-joined|static-member-rejoins b"],
        ),
        (
            group(1, member("a", instance="i"), member("x")),
            group(2, member("x"), member("b", instance="i")),
            ["member-gone a", "member-joined b"],
        ),
        (
            group(1, member("a"), member("b")),
            group(2, member("a", "t u"), member("b"), member("c")),
            ["member-joined c"],
        ),
        (
            group(1, member("a", owned=(0, 1), given=(0,))),
            group(2, member("a", owned=(0,))),
            ["cooperative-follow-up|member-metadata-changed|leader-rejoined a"],
        ),
        (
            group(1, member("a", given=(0, 1))),
            group(2, member("a", given=(0, 1, 2))),
            ["topic-metadata-changed|member-metadata-changed|leader-rejoined t"],
        ),
        (group(1, member("a")), group(2, member("a")), ["member-metadata-changed|leader-rejoined"]),
        (
            group(1, member("a")),
            group(3, member("a")),
            ["member-joined|member-metadata-changed|leader-rejoined", SUPERSEDED],
        ),
        (group(1, member("a")), group(4, member("a"), member("b")), ["member-joined b", SUPERSEDED]),
        (group(1), group(3), ["member-joined", "member-gone"]),
        (group(1), group(4), ["member-joined", "member-gone", SUPERSEDED]),
        (None, group(7, member("a")), ["unknown"]),
        (group(9, member("a")), group(1, member("b")), ["member-joined b"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_causes_inferred_from_two_records(
    previous: GroupMetadataValue | None, current: GroupMetadataValue, expected: list[str]
) -> None:
    assert inferred_causes(previous, current) == expected


def test_superseded_generations_beyond_the_limit_are_only_counted() -> None:
    row = infer_row(group(1, member("a")), group(1_001, member("a"), member("b")))
    assert row is not None
    assert len(row.causes) + row.causes_left_out == 999
    assert row.causes_left_out == 899


@pytest.mark.parametrize(
    "previous, current",
    [
        (None, None),
        (group(3, member("a")), None),
        (None, group(0)),
        (group(3, member("a", instance="i")), group(3, member("b", instance="i"))),
        (group(0), group(0)),
    ],
)
def test_no_new_generation_is_no_rebalance(
    previous: GroupMetadataValue | None, current: GroupMetadataValue | None
) -> None:
    assert infer_row(previous, current) is None


def test_an_inferred_row_has_its_position_and_result() -> None:
    row = infer_row(group(1, member("a")), group(2, member("b", instance="i"), member("a")))
    assert row == RebalanceValue(
        group_type="classic", epoch=2, state="Stable", joined_ms=4_000, ended_ms=5_000, partition=3,
        base_offset=42, last_offset=42, inferred=True, protocol="range", leader="b",
        causes=(
            Cause(
                kind="member-joined", member_id="b", instance_id="i", client_id="client-b",
                client_host="/10.0.0.1",
            ),
        ),
        members=(
            RebalancedMember(member_id="a", client_id="client-a", client_host="/10.0.0.1"),
            RebalancedMember(
                member_id="b", instance_id="i", client_id="client-b", client_host="/10.0.0.1"
            ),
        ),
    )  # fmt: skip


def test_a_clock_that_runs_backwards_yields_no_duration() -> None:
    row = infer_row(None, group(1, member("a"), at_ms=9_000))
    assert row is not None and row.joined_ms == -1


@pytest.mark.parametrize("junk", [b"", b"\x00", b"\x00\x03\xff\xff\xff\xff", b"\xff" * 9])
def test_members_metadata_may_be_arbitrary_bytes(junk: bytes) -> None:
    odd = member("a").replace(subscription=junk, assignment=junk)
    assert inferred_causes(group(1, odd), group(2, odd)) == ["member-metadata-changed|leader-rejoined"]
    assert inferred_causes(group(1, odd), group(2, odd.replace(subscription=junk + b"!"))) == [
        "member-metadata-changed|leader-rejoined a"
    ]
