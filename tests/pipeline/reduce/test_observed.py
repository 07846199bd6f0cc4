"""Logs of our own coordinator, with its audit: all is observed, and what would be inferred agrees with it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.reduce.playing import Played

from konvene.pipeline.reduce import missing_evidence

WAYS = {"member-left", "session-expired", "rebalance-timeout", "sync-timeout"}
LIKE_LEAVING = {"removed-by-admin": "member-left", "fenced": "member-left"}
"""On the wire there is one request for it."""

UNSEEN = {
    "member-joined": "regex-refreshed",
    "subscription-changed": "regex-refreshed",
    "static-member-rejoins": "subscription-changed",
    "upgraded": "member-joined",
    "downgraded": "member-joined",
}
"""By what is inferred, what the coordinator may call it: who waited for an expression is not named beside it;
a static member that is back with other wishes has changed its subscription; an empty group makes room."""


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["group_id"], row["to_epoch"], row["last_offset"]


OF_THE_CAUSE = (
    "evidence", "cause", "causes", "causes_left_out", "reason", "cause_topic", "member_id", "instance_id",
    "client_id", "client_host", "audit_offset",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["consumer", "consumer-static", "streams"])
@pytest.mark.parametrize("seed", range(8))
def test_each_epoch_is_observed_and_all_else_is_what_the_log_says_anyway(kind: str, seed: int) -> None:
    """All but the last, of which the coordinator may not have spoken yet; and all that it said is used."""
    played = Played(kind, seed)
    observed, inferred = played.rows(audit=True), played.rows(audit=False)
    assert {row["evidence"] for row in observed["rebalance"][:-1]} <= {"observed"}
    assert len(observed["rebalance"]) == len(inferred["rebalance"])
    for one, other in zip(observed["rebalance"], inferred["rebalance"], strict=True):
        assert one | dict.fromkeys(OF_THE_CAUSE) == other | dict.fromkeys(OF_THE_CAUSE)
        if one["evidence"] == "observed":
            assert_causes_agree(one["causes"], other["causes"])
    assert observed["ownership"] == inferred["ownership"]
    assert observed["rebalance_member"] == inferred["rebalance_member"]
    played.rows(audit=True)
    assert played.left == "{}"


@pytest.mark.parametrize("seed", range(8))
def test_epochs_of_applications_that_change_their_protocol_are_what_the_log_says(seed: int) -> None:
    """Of the streams group; the log of the classic one does not say when a rebalance began, nor anything of
    one that was cut short."""
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
    said = {(LIKE_LEAVING.get(c["kind"], c["kind"]), c["member_id"]) for c in observed}
    kinds = {kind for kind, _ in said}
    for cause in inferred:
        if cause["kind"] == "unknown" or UNSEEN.get(cause["kind"]) in kinds:
            continue
        assert any((kind, cause["member_id"]) in said for kind in cause["kind"].split("|")), (cause, said)


@pytest.mark.parametrize("kind", ["classic", "static", "migration"])
@pytest.mark.parametrize("seed", range(12))
def test_nobody_went_in_a_way_that_was_said_to_be_impossible(kind: str, seed: int) -> None:
    """Each member that is gone: how it went in truth is among the ways that are left. A generation that was
    superseded left no record: what was said of it belongs to the next that did."""
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
            ways = set(cause["kind"].split("|"))
            true = {
                LIKE_LEAVING.get(c["kind"], c["kind"])
                for c in truth[key(row)]
                if c["member_id"] == cause["member_id"]
            } & WAYS
            assert not ways & WAYS or not true or ways & true, (cause, truth[key(row)])


@pytest.mark.parametrize("seed", range(12))
def test_a_classic_rebalance_has_the_times_that_the_audit_gives(seed: int) -> None:
    """Start, target and end; who was last; and while an eager group rebalances nobody reads."""
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
    """Of each rebalance: what members have, got and lost, one by one and all together."""
    for seed in range(6):
        rows = Played(kind, seed).rows(audit=True)
        members: dict[Any, list[dict[str, Any]]] = {}
        for member in rows["rebalance_member"]:
            members.setdefault((member["group_id"], member["base_offset"], member["to_epoch"]), []).append(
                member
            )
        for row in rows["rebalance"]:
            mine = members.get((row["group_id"], row["base_offset"], row["to_epoch"]), [])
            if row["evidence"] == "missing" or row["state"] == "Superseded":
                assert not mine or row["state"] not in ("Superseded", "Unknown")
                continue
            assert row["kept"] >= 0
            assert row["kept"] + row["moved"] + row["added"] == row["units"]
            assert row["least_moves"] <= row["moved"]
            assert row["revoked"] == sum(m["revoked"] for m in mine)
            assert row["joined"] <= sum(m["part"] == "joined" for m in mine)  # Some for the next epoch.
            assert row["gone"] == sum(m["part"] == "gone" for m in mine)
            assert all(
                m["units_before"] + m["added"] - m["revoked"] == m["units_after"] and m["units_before"] >= 0
                for m in mine
            )


def test_what_would_tell_is_said_where_something_is_open() -> None:
    assert missing_evidence("member-joined") is None
    how = missing_evidence("member-left|session-expired")
    assert how == missing_evidence("member-gone")
    assert how is not None
    assert "konvene.audit.enable" in how
    assert "__cluster_metadata" in str(missing_evidence("topic-metadata-changed"))
