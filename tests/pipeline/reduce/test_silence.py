"""How long units may have had no reader before a session expired: a bound, unknown, or none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bench.truth import life
from tests.groups.history.logs import Batch
from tests.pipeline.reduce.reading import reduced
from tests.pipeline.reduce.test_members import assigns, current, joined, log
from tests.pipeline.reduce.test_share import ALONE, epoch, has, rows_of, target
from tests.pipeline.reduce.test_share import member as share_member

from konvene.groups.classic.subscriptions import write_assignment
from konvene.groups.consumer.group import Member
from konvene.groups.consumer.log import group_record, member_record, member_tombstones
from konvene.groups.modern.classic_member import ClassicProtocolMetadata
from konvene.groups.share import log as share
from konvene.pipeline.sweeps.simulated_log import tables_of
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from konvene.records.coordinator import Record
from konvene.sim.runs.run import Run

LEFT, EXPIRED = "member-left", "session-expired"
SESSION_MS = 45_000


def silence(row: dict[str, Any]) -> tuple[int, int | None, int | None]:
    return row["silent_units"], row["silent_ms"], row["session_timeout_ms"]


def audit(log: list[Batch], number: int, kind: str, ms: int, **more: Any) -> dict[str, Any]:
    """Return the audit row that explains the last batch of a log by a cause of the member `a`."""
    cause = {
        "kind": kind, "at_ms": ms, "member_id": "a", "instance_id": None, "client_id": "c-a",
        "client_host": None, "reason": None, "topic": None,
    }  # fmt: skip
    return {
        "cluster": "c", "audit_partition": 0, "audit_offset": 7, "timestamp_ms": ms, "group_id": "g",
        "group_type": "consumer", "epoch": number, "state": "Assigning", "started_ms": ms, "joined_ms": -1,
        "ended_ms": ms, "partition": 0, "base_offset": log[-1].base_offset,
        "last_offset": log[-1].last_offset, "inferred": False, "protocol": None, "leader": None,
        "causes": [cause], "causes_left_out": 0, "members": [], "members_left_out": 0, "moved": [],
        "session_timeout_ms": -1,
    } | more  # fmt: skip


def departure(*, after_ms: int, classic: bool = False) -> list[Batch]:
    """Return a log in which the member `a` departs so long after it was assigned two partitions."""
    first = [*joined("a", 2), *assigns(2, a=(0, 1)), current("a", 2, 0, 1)]
    if classic:
        speaks = replace(Member("a", None, client_id="c-a"), classic=ClassicProtocolMetadata(6_000, ()))
        first[0] = member_record("g", speaks)
    departs = [*joined("b", 3)[:1], *member_tombstones("g", "a"), group_record("g", 3, 5)]
    return log((10, first), (10 + after_ms, departs))


# groups whose coordinator assigns --------------------------------------------------------------


@pytest.mark.parametrize(("after_ms", "silent_ms"), [(600_000, 90_000), (30_000, 60_000)])
def test_expired_session_is_bounded_by_its_timeout_and_by_the_tenure(after_ms: int, silent_ms: int) -> None:
    found = departure(after_ms=after_ms)
    explained = audit(found, 3, EXPIRED, 10 + after_ms, session_timeout_ms=SESSION_MS)
    row = reduced(found, audit=[explained])["rebalance"][-1]
    assert (row["cause"], silence(row)) == (EXPIRED, (2, silent_ms, SESSION_MS))
    assert row["unavailable_ms"] is None or row["unavailable_ms"] == 0, "the time before is no part of it"


def test_member_that_left_was_not_silent() -> None:
    found = departure(after_ms=600_000)
    row = reduced(found, audit=[audit(found, 3, LEFT, 600_010)])["rebalance"][-1]
    assert (row["cause"], silence(row)) == (LEFT, (0, 0, None))


def test_silence_is_unknown_without_a_session_timeout() -> None:
    """Kafka's log does not have the timeout, nor had the audit of earlier releases."""
    found = departure(after_ms=600_000)
    inferred = reduced(found)["rebalance"][-1]
    assert (inferred["cause"], silence(inferred)) == (f"{LEFT}|{EXPIRED}", (2, None, None))
    earlier = audit(found, 3, EXPIRED, 600_010)
    del earlier["session_timeout_ms"]
    assert silence(reduced(found, audit=[earlier])["rebalance"][-1]) == (2, None, None)


def test_member_of_the_classic_protocol_has_its_own_timeout() -> None:
    row = reduced(departure(after_ms=600_000, classic=True))["rebalance"][-1]
    assert EXPIRED in row["cause"] and silence(row) == (2, 12_000, 6_000)


def test_shared_partition_with_another_reader_is_read() -> None:
    both = [share_member("b"), epoch(3), target(3), has("b", 3, 0)]
    departs = [*share.member_tombstones("g", "a"), epoch(4)]
    row = rows_of(ALONE, both, [has("a", 3, 0, 1)], departs)["rebalance"][-1]
    assert silence(row) == (1, None, None)


# classic groups --------------------------------------------------------------------------------


def generation(number: int, ms: int, *names: str) -> tuple[int, list[Record]]:
    """Return the record of a generation whose members share four partitions."""
    members = tuple(
        MemberMetadata(
            member_id=name, client_id=f"c-{name}", client_host="/h", rebalance_timeout=60_000,
            session_timeout=10_000,
            assignment=write_assignment([("t", tuple(range(4))[i :: len(names)])], b""),
        )
        for i, name in enumerate(names)
    )  # fmt: skip
    value = GroupMetadataValue(
        protocol_type="consumer", generation=number, protocol="range", leader=names[0],
        current_state_timestamp=ms, members=members,
    )  # fmt: skip
    return ms, [Record(GroupMetadataKey(group="g"), value)]


def test_classic_record_has_the_session_timeout() -> None:
    """With the audit the time from the expiry on is `unavailable_ms`, not silence."""
    found = log(generation(1, 1_000, "a", "b"), generation(2, 101_000, "b"))
    inferred = reduced(found)["rebalance"][-1]
    assert EXPIRED in inferred["cause"] and silence(inferred) == (2, 20_000, 10_000)
    times = {"group_type": "classic", "state": "Stable", "started_ms": 99_000, "joined_ms": 101_000}
    observed = reduced(found, audit=[audit(found, 2, EXPIRED, 99_000, **times)])["rebalance"][-1]
    assert (observed["cause"], silence(observed)) == (EXPIRED, (2, 20_000, 10_000))
    during = audit(found, 2, EXPIRED, 100_500, **times)
    assert silence(reduced(found, audit=[during])["rebalance"][-1]) == (2, 17_000, 10_000)
    left = reduced(found, audit=[audit(found, 2, LEFT, 99_000, **times)])["rebalance"][-1]
    assert silence(left) == (0, 0, None)


def test_classic_member_that_was_seen_too_recently_left() -> None:
    row = reduced(log(generation(1, 1_000, "a", "b"), generation(2, 4_000, "b")))["rebalance"][-1]
    assert (row["cause"], silence(row)) == (LEFT, (0, 0, None))


# simulated groups ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "static", "consumer", "consumer-static", "streams", "share"])
@pytest.mark.parametrize("with_audit", [True, False])
def test_bounds_of_simulated_groups_are_consistent(kind: str, with_audit: bool) -> None:
    """The audit of the real coordinator has the timeout of each expired session."""
    world, _, audits = life(Run(12, (kind,), 2_500))
    tables = tables_of("sim", world.log.batches, audits.explanations if with_audit else ())
    rows = tables["rebalance"].to_pylist()
    assert any(row["silent_units"] for row in rows)
    for row in rows:
        units, silent_ms, timeout_ms = silence(row)
        expired = any(EXPIRED in cause["kind"] for cause in row["causes"])
        if silent_ms is not None and units:
            assert timeout_ms is not None and 0 <= silent_ms <= units * timeout_ms
        if row["evidence"] == "observed" and row["group_type"] != "classic":
            assert expired or not units
            assert not units or silent_ms is not None
