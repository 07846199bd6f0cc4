"""Sentences about rebalances contain the values of their row only."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.answers.sample import filled

from konvene.pipeline.answers.cost import Cost
from konvene.pipeline.answers.rebalance import Rebalance, document
from konvene.pipeline.answers.sentences import caveats, note, sentence, short, title
from konvene.shard import causes

BOB = {
    "member_id": "bob-a3341b3b-9e30-4672-8a08-ea9db942a797", "instance_id": None, "client_id": "bob",
    "client_host": "/10.0.0.7",
}  # fmt: skip


def cause(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "at_ms": 1_000, "reason": None, "topic": None, **BOB, **more}


def row(*caused: dict[str, Any], **more: Any) -> Rebalance:
    """Return a rebalance of six partitions among three members that takes 3.4 s."""
    caused = caused or (cause(causes.MEMBER_LEFT),)
    given = {
        "group_id": "orders-app", "group_type": "classic", "from_epoch": 12, "to_epoch": 13,
        "state": "Stable", "cause": caused[0]["kind"], "causes": list(caused),
        "evidence": "observed", "start_ms": 1_000,
        "target_ms": 4_000, "end_ms": 4_400, "duration_ms": 3_400, "converged": True, "members": 3,
        "units": 6, "kept": 4, "moved": 2, "revoked": 2, "unavailable_ms": 20_400,
        **{name: caused[0][name] for name in ("member_id", "instance_id", "client_id", "client_host")},
    }  # fmt: skip
    return Rebalance.from_row(filled("rebalance", given | more))


def test_a_sentence_has_member_cause_duration_moves_and_cost() -> None:
    assert sentence(row(), Cost(6, 1_240)) == (
        "bob-a334… (client bob at /10.0.0.7) left: all 3 members rejoined in 3.4 s; 2 of 6 "
        "partitions moved, "
        "4 stayed; 6 partitions were without an owner: 20.4 partition-seconds, about 1,240 records of lag."
    )
    assert title(row()) == "orders-app (classic), generation 12 → 13"


def test_unknown_values_are_left_out() -> None:
    text = sentence(row(start_ms=None, duration_ms=None, unavailable_ms=None, evidence="inferred"))
    assert text == (
        "bob-a334… (client bob at /10.0.0.7) left: 3 members remained; 2 of 6 partitions moved, 4 stayed."
    )
    assert sentence(row(), Cost(6, None)).endswith(
        "6 partitions were without an owner: 20.4 partition-seconds."
    )


@pytest.mark.parametrize(
    ("kind", "silence", "expected"),
    [
        (causes.SESSION_EXPIRED, {"silent_ms": 135_000, "session_timeout_ms": 45_000},
         "3 partitions may have had no reader before, for up to 45.0 s: at most 135 partition-seconds."),
        ("member-left|session-expired", {"silent_ms": 30_000, "session_timeout_ms": 10_000},
         "if a session expired, 3 partitions may have had no reader before, for up to 10.0 s: at most 30.0 "
         "partition-seconds."),
        (causes.SESSION_EXPIRED, {}, "3 partitions may have had no reader before, for an unknown time."),
    ],
)  # fmt: skip
def test_time_before_a_session_expired_is_a_bound_and_never_none(
    kind: str, silence: dict[str, int], expected: str
) -> None:
    """The sentence of a killed member does not claim that no partition was without an owner."""
    r = row(cause(kind), unavailable_ms=0, duration_ms=0, silent_units=3, **silence)
    assert sentence(r).endswith(f": completed at once; 2 of 6 partitions moved, 4 stayed; {expected}")
    assert "no partition was" not in sentence(r)
    found = document(r)
    assert (found["silent_units"], found["silent_ms"]) == (3, silence.get("silent_ms"))
    assert document(row())["silent_units"] == 0 and "reader" not in sentence(row())


def test_ambiguous_causes_are_all_named_with_one_caveat() -> None:
    unsure = row(cause("member-left|session-expired"), evidence="inferred")
    assert sentence(unsure).startswith("bob-a334… (client bob at /10.0.0.7) left, or its session expired: ")
    assert note(unsure) == "Inferred from the records of the log."
    assert caveats([unsure, unsure]) == [
        "Kafka's log does not distinguish leaving from session expiry; konvene's audit topic does."
    ]
    three = row(cause("member-left|session-expired|rebalance-timeout"), evidence="inferred")
    assert "left, or its session expired, or its rebalance timeout expired: " in sentence(three)
    assert " leaving from session expiry or a rebalance timeout;" in caveats([unsure, three])[0]
    assert caveats([row()]) == []


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"evidence": "observed"}, ""),
        (
            {"evidence": "missing"},
            "The log is incomplete: records of this rebalance were compacted, or could not be read.",
        ),
        ({"evidence": "inferred"}, "Inferred from the records of the log."),
        (
            {"evidence": "inferred", "start_ms": None},
            "Inferred from the records of the log.",
        ),
    ],
)
def test_evidence_is_named(more: dict[str, Any], expected: str) -> None:
    assert note(row(**more)) == expected


def test_an_unknown_start_is_a_caveat() -> None:
    unsure = row(evidence="inferred", start_ms=None)
    assert caveats([unsure]) == [
        "Kafka's log does not record when a rebalance began; konvene's audit topic does."
    ]


def test_reasons_of_clients_and_topics_are_quoted() -> None:
    text = sentence(row(cause(causes.MEMBER_LEFT, reason="the consumer is being closed")))
    assert "left (client's reason: “the consumer is being closed”): " in text
    no_member = dict.fromkeys(("member_id", "instance_id", "client_id", "client_host"))
    grown = row(cause(causes.TOPIC_METADATA_CHANGED, topic="orders", **no_member))
    assert sentence(grown).startswith("The group's topics changed (topic orders): ")


def test_many_causes_are_counted() -> None:
    joined = [cause(causes.MEMBER_JOINED, member_id=f"m{i}", client_id=f"c{i}") for i in range(7)]
    text = sentence(row(*joined, cause(causes.MEMBER_LEFT), causes_left_out=93))
    assert text.startswith("7 members joined; bob-a334… (client bob at /10.0.0.7) left; and 93 more causes: ")


def test_superseded_generations_are_counted() -> None:
    no_member = dict.fromkeys(("member_id", "instance_id", "client_id", "client_host"))
    unrecorded = cause(causes.SUPERSEDED_UNRECORDED, **no_member)
    assert sentence(row(cause(causes.MEMBER_LEFT), unrecorded)).startswith(
        "bob-a334… (client bob at /10.0.0.7) left; a generation was superseded before its assignment was "
        "stored, and left no record: "
    )
    for others in (0, 4):
        text = sentence(row(*[cause(causes.MEMBER_LEFT)] * others, *[unrecorded] * 2))
        assert (
            "2 generations were superseded before their assignments were stored, and left no record: " in text
        )


def test_a_members_second_cause_does_not_repeat_its_name() -> None:
    text = sentence(row(cause(causes.UPGRADED), cause(causes.MEMBER_JOINED), group_type="consumer"))
    assert "upgraded the group to the consumer protocol, and joined: all 3 members converged in 3.4 s" in text


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"state": "Empty", "members": 0, "units": 0, "kept": 0, "moved": 0, "revoked": 6,
          "unavailable_ms": 0},
         "left: the group is empty; 6 partitions unassigned now."),
        ({"converged": False, "superseded_by": 14, "duration_ms": 150, "kept": 6, "moved": 0, "revoked": 0},
         "left: interrupted by generation 14 after 150 ms; all 6 partitions stayed with "
         "their owners;"),
        ({"converged": False, "state": "Assigning", "end_ms": None, "duration_ms": None},
         "left: the log ends before it completed;"),
        ({"kept": 6, "moved": 0, "revoked": 0, "unavailable_ms": 0, "duration_ms": 0},
         "left: completed at once; all 6 partitions stayed with their owners; no partition was "
         "without an owner."),
        ({"group_type": "streams", "standby_moved": 1, "warmup_moved": 2},
         "2 of 6 tasks moved, 4 stayed, 1 standby task moved, 2 warm-up tasks moved;"),
    ],
)  # fmt: skip
def test_each_result_has_its_phrase(more: dict[str, Any], expected: str) -> None:
    assert expected in sentence(row(**more))


def test_details_of_the_coordinator_are_in_brackets_and_reasons_of_a_client_in_quotes() -> None:
    both = cause(causes.WARMUP_CAUGHT_UP, reason="1_0"), cause(causes.MEMBER_LEFT, reason="bye")
    text = [sentence(row(each, group_type="streams")) for each in both]
    assert "has a warm-up task that caught up (1_0): " in text[0]
    assert "left (client's reason: “bye”): " in text[1]
    guess = row(both[0], group_type="streams", evidence="inferred")
    assert caveats([guess])[0].startswith("Kafka's log does not record the progress of warm-up tasks; ")


@pytest.mark.parametrize("kind", sorted(value for name, value in vars(causes).items() if name.isupper()
                                        and isinstance(value, str)))  # fmt: skip
def test_every_cause_has_a_sentence(kind: str) -> None:
    """No cause is shown by its raw kind."""
    no_member = dict.fromkeys(("member_id", "instance_id", "client_id", "client_host"))
    with_member, without = sentence(row(cause(kind))), sentence(row(cause(kind, **no_member)))
    spoken = kind in causes.SENTENCES or kind in causes.GROUP_SENTENCES
    assert spoken and f") {kind}:" not in with_member and not without.lower().startswith(f"{kind}:")


def test_random_suffixes_of_names_are_cut() -> None:
    assert short("bob-a3341b3b-9e30-4672-8a08-ea9db942a797") == "bob-a334…"
    assert short("p5EffzTVRfyRMHKUKFbUzQ") == "p5Ef…"
    assert short("my-own-name") == "my-own-name"


def test_a_document_has_the_fields_that_programs_need() -> None:
    text = document(row(), Cost(6, 12))
    names = ("group", "type", "from_epoch", "to_epoch", "start_ms", "end_ms", "cause", "member", "client_id",
             "instance_id", "evidence", "members", "moved", "revoked", "added")  # fmt: skip
    assert [text[name] for name in names] == [
        "orders-app", "classic", 12, 13, 1_000, 4_400, "member-left", BOB["member_id"], "bob", None,
        "observed", 3, 2, 2, 0,
    ]  # fmt: skip
    assert (text["stopped"], text["lag_records"]) == (6, 12)
    assert text["causes"][0]["kind"] == "member-left"
    assert document(row(from_epoch=-1))["from_epoch"] is None


SHARE = {"group_type": "share", "kept": 3, "moved": 0, "revoked": 0, "units": 3, "unavailable_ms": 0}


@pytest.mark.parametrize(
    ("more", "moved"),
    [
        ({"kept": 2, "moved": 1, "revoked": 1}, "1 of 3 partitions moved, 2 stayed"),
        ({}, "all 3 partitions stayed"),
        ({"kept": 1, "units": 3, "added": 2}, "1 partition stayed, 2 partitions gained a member"),
        ({"revoked": 1}, "all 3 partitions stayed, 1 partition lost a member"),
        ({"kept": 0, "units": 0}, "no partitions to assign yet"),
    ],
)
def test_partitions_of_a_share_group_are_counted_by_member(more: dict[str, int], moved: str) -> None:
    """A partition that one member revoked may still be assigned to others."""
    text = sentence(row(**(SHARE | more)))
    assert text.startswith(f"bob-a334… (client bob at /10.0.0.7) left: all 3 members converged in 3.4 s; "
                           f"{moved}")  # fmt: skip


def test_partitions_of_an_empty_share_group_are_unassigned() -> None:
    empty = {"kept": 0, "units": 0, "revoked": 2, "members": 0, "state": "Empty"}
    assert "the group is empty; 2 partitions unassigned now" in sentence(row(**(SHARE | empty)))


def test_causes_of_the_group_itself_name_no_member() -> None:
    no_member = dict.fromkeys(("member_id", "instance_id", "client_id", "client_host"))
    begun = row(cause(causes.SHARE_PARTITIONS_INITIALIZED, **no_member), **SHARE)
    assert sentence(begun).startswith("Share partitions were initialized or deleted: ")
    altered = row(cause(causes.OFFSETS_ALTERED, **no_member), **SHARE, state="Empty", members=0)
    assert sentence(altered).startswith("The group's start offsets were altered: the group is empty")
