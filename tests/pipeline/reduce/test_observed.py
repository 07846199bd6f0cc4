"""Logs of the real coordinator: with the audit all rebalances are observed, and inference without it
agrees."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.reduce.playing import Played

from konvene.pipeline.reduce import missing_evidence

DEPARTURES = {"member-left", "session-expired", "rebalance-timeout", "sync-timeout"}
LOGGED_AS_LEAVING = {"removed-by-admin": "member-left", "fenced": "member-left"}
"""Observed departures that look like `member-left` in the log."""

REPLACED_BY = {
    "member-joined": "regex-refreshed",
    "subscription-changed": "regex-refreshed",
    "static-member-rejoins": "subscription-changed",
    "upgraded": "member-joined",
    "downgraded": "member-joined",
}
"""By inferred cause, the observed cause that may replace it.

A member that joins with a pending regular expression is not listed beside the refresh. A static member
that rejoins with other topics has changed its subscription. Converting an empty group is a join."""


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["group_id"], row["to_epoch"], row["last_offset"]


OF_THE_CAUSE = (
    "evidence", "cause", "causes", "causes_left_out", "reason", "cause_topic", "member_id", "instance_id",
    "client_id", "client_host", "audit_offset", "silent_units", "silent_ms", "session_timeout_ms",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["consumer", "consumer-static", "streams"])
@pytest.mark.parametrize("seed", range(8))
def test_audit_changes_causes_and_evidence_only(kind: str, seed: int) -> None:
    """All audit rows are used; only the last rebalance may not be explained yet."""
    played = Played(kind, seed)
    observed, inferred = played.rows(audit=True), played.rows(audit=False)
    assert {row["evidence"] for row in observed["rebalance"][:-1]} <= {"observed"}
    assert len(observed["rebalance"]) == len(inferred["rebalance"])
    for one, other in zip(observed["rebalance"], inferred["rebalance"], strict=True):
        assert one | dict.fromkeys(OF_THE_CAUSE) == other | dict.fromkeys(OF_THE_CAUSE)
        if one["evidence"] == "observed":
            assert_causes_agree(one["causes"], other["causes"])
            assert one["silent_units"] <= other["silent_units"], "a session that may have expired counts"
    assert observed["ownership"] == inferred["ownership"]
    assert observed["rebalance_member"] == inferred["rebalance_member"]
    played.rows(audit=True)
    assert played.left == "{}"


@pytest.mark.parametrize("seed", range(8))
def test_audit_of_a_streams_migration_changes_causes_and_evidence_only(seed: int) -> None:
    """Checks the streams group; the classic group's log has neither start times nor superseded
    generations."""
    played = Played("streams-migration", seed)
    observed, inferred = (
        {
            row["base_offset"]: row
            for row in rows["rebalance"]
            if row["group_type"] == "streams" and row["evidence"] != "missing"
        }
        for rows in (played.rows(audit=True), played.rows(audit=False))
    )
    assert observed.keys() == inferred.keys()
    for offset, one in observed.items():
        other = inferred[offset]
        assert one | dict.fromkeys(OF_THE_CAUSE) == other | dict.fromkeys(OF_THE_CAUSE)
        if one["evidence"] == "observed":
            assert_causes_agree(one["causes"], other["causes"])


def assert_causes_agree(observed: list[dict[str, Any]], inferred: list[dict[str, Any]]) -> None:
    observed_causes = {(LOGGED_AS_LEAVING.get(c["kind"], c["kind"]), c["member_id"]) for c in observed}
    observed_kinds = {kind for kind, _ in observed_causes}
    for cause in inferred:
        if cause["kind"] == "unknown" or REPLACED_BY.get(cause["kind"]) in observed_kinds:
            continue
        assert any((kind, cause["member_id"]) in observed_causes for kind in cause["kind"].split("|")), (
            cause,
            observed_causes,
        )


@pytest.mark.parametrize("kind", ["classic", "static", "migration"])
@pytest.mark.parametrize("seed", range(12))
def test_true_departure_cause_is_among_the_inferred_ones(kind: str, seed: int) -> None:
    """The true departure cause of each member is among the inferred ones.

    A superseded generation leaves no record, so its causes belong to the next generation that does."""
    played = Played(kind, seed)
    observed, inferred = played.rows(audit=True), played.rows(audit=False)
    since: dict[str, list[Any]] = {}
    truth = {}
    for row in observed["rebalance"]:
        since.setdefault(row["group_id"], []).extend(row["causes"])
        if row["state"] != "Superseded":
            truth[key(row)] = since.pop(row["group_id"])
    for row in inferred["rebalance"]:
        if key(row) not in truth:
            continue
        for cause in row["causes"]:
            inferred_kinds = set(cause["kind"].split("|"))
            true_kinds = {
                LOGGED_AS_LEAVING.get(c["kind"], c["kind"])
                for c in truth[key(row)]
                if c["member_id"] == cause["member_id"]
            } & DEPARTURES
            assert not inferred_kinds & DEPARTURES or not true_kinds or inferred_kinds & true_kinds, (
                cause,
                truth[key(row)],
            )


@pytest.mark.parametrize("seed", range(12))
def test_classic_rebalance_has_the_audits_times(seed: int) -> None:
    """Start, target and end are in order, and the gaps of an eager rebalance lie between start and end."""
    rows = Played("classic", seed).rows(audit=True)
    gaps: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for gap in rows["unavailability"]:
        gaps.setdefault((gap["group_id"], gap["epoch"]), []).append(gap)
    for row in rows["rebalance"]:
        if row["state"] not in ("Stable", "Empty") or row["evidence"] != "observed":
            continue
        assert row["start_ms"] <= row["target_ms"] <= row["end_ms"]
        assert row["kept"] + row["moved"] + row["added"] == row["units"]
        assert 0 <= row["least_moves"] <= row["moved"] + row["added"]
        for gap in gaps.get((row["group_id"], row["to_epoch"]), ()):
            if gap["to_ms"] == row["end_ms"] and gap["evidence"] == "observed":
                assert row["start_ms"] <= gap["from_ms"] < gap["to_ms"]


@pytest.mark.parametrize(
    "kind", ["classic", "static", "consumer", "migration", "streams", "streams-migration"]
)
def test_counts_add_up(kind: str) -> None:
    """Unit counts of each rebalance match the sums over its members."""
    for seed in range(6):
        rows = Played(kind, seed).rows(audit=True)
        members: dict[Any, list[dict[str, Any]]] = {}
        for member in rows["rebalance_member"]:
            members.setdefault((member["group_id"], member["base_offset"], member["to_epoch"]), []).append(
                member
            )
        for row in rows["rebalance"]:
            member_rows = members.get((row["group_id"], row["base_offset"], row["to_epoch"]), [])
            if row["evidence"] == "missing" or row["state"] == "Superseded":
                assert not member_rows or row["state"] not in ("Superseded", "Unknown")
                continue
            assert row["kept"] >= 0
            assert row["kept"] + row["moved"] + row["added"] == row["units"]
            assert row["least_moves"] <= row["moved"]
            assert row["revoked"] == sum(m["revoked"] for m in member_rows)
            assert row["joined"] <= sum(
                m["part"] == "joined" for m in member_rows
            )  # Some joined for the next epoch.
            assert row["gone"] == sum(m["part"] == "gone" for m in member_rows)
            assert all(
                m["units_before"] + m["added"] - m["revoked"] == m["units_after"] and m["units_before"] >= 0
                for m in member_rows
            )


def test_missing_evidence_is_named_for_ambiguous_causes() -> None:
    assert missing_evidence("member-joined") is None
    hint = missing_evidence("member-left|session-expired")
    assert hint == missing_evidence("member-gone")
    assert hint is not None
    assert "konvene.audit.enable" in hint
    assert "__cluster_metadata" in str(missing_evidence("topic-metadata-changed"))
