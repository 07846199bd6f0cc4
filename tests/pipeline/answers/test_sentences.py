"""Sentences say what a row says, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.answers.sample import filled

from konvene.pipeline.answers.cost import Cost
from konvene.pipeline.answers.rebalance import Rebalance, document
from konvene.pipeline.answers.sentences import note, sentence, short, title
from konvene.shard import causes

BOB = {
    "member_id": "bob-a3341b3b-9e30-4672-8a08-ea9db942a797", "instance_id": None, "client_id": "bob",
    "client_host": "/10.0.0.7",
}  # fmt: skip


def cause(kind: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "at_ms": 1_000, "reason": None, "topic": None, **BOB, **more}


def row(*told: dict[str, Any], **more: Any) -> Rebalance:
    """A rebalance of six partitions among three members that is done after 3.4 s."""
    told = told or (cause(causes.MEMBER_LEFT),)
    given = {
        "group_id": "orders-app", "group_type": "classic", "from_epoch": 12, "to_epoch": 13,
        "state": "Stable", "cause": told[0]["kind"], "causes": list(told),
        "evidence": "observed", "start_ms": 1_000,
        "target_ms": 4_000, "end_ms": 4_400, "duration_ms": 3_400, "converged": True, "members": 3,
        "units": 6, "kept": 4, "moved": 2, "revoked": 2, "unavailable_ms": 20_400,
        **{name: told[0][name] for name in ("member_id", "instance_id", "client_id", "client_host")},
    }  # fmt: skip
    return Rebalance.of(filled("rebalance", given | more))


def test_a_sentence_has_who_what_how_long_what_moved_what_stood_still_and_what_it_cost() -> None:
    assert sentence(row(), Cost(6, 1_240)) == (
        "bob-a334… (client bob at /10.0.0.7) left: 3.4 s until all 3 members were back; 2 of 6 "
        "partitions moved, "
        "4 stayed; 6 partitions stood still meanwhile: 20.4 partition-seconds, about 1,240 records of lag."
    )
    assert title(row()) == "orders-app (classic), generation 12 → 13"


def test_what_is_not_known_is_left_out() -> None:
    told = sentence(row(start_ms=None, duration_ms=None, unavailable_ms=None, evidence="inferred"))
    assert told == (
        "bob-a334… (client bob at /10.0.0.7) left: 3 members came out of it; 2 of 6 partitions "
        "moved, 4 stayed."
    )
    assert sentence(row(), Cost(6, None)).endswith(
        "6 partitions stood still meanwhile: 20.4 partition-seconds."
    )


def test_two_causes_that_the_log_cannot_tell_apart_are_both_named_and_what_would_settle_it() -> None:
    unsure = row(cause("member-left|session-expired"), evidence="inferred")
    assert sentence(unsure).startswith("bob-a334… (client bob at /10.0.0.7) left, or its session expired: ")
    assert note(unsure) == (
        "The log cannot tell whether it left or its session expired; the audit topic would."
    )
    three = row(cause("member-left|session-expired|rebalance-timeout"), evidence="inferred")
    assert "whether it left, its session expired, or it did not rejoin in time;" in note(three)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"evidence": "observed"}, ""),
        ({"evidence": "missing"}, "Part of the log is gone: the cleaner took records that would tell more."),
        ({"evidence": "inferred"}, "Inferred from the records of the log."),
        (
            {"evidence": "inferred", "start_ms": None},
            "Inferred from the log, which does not say when it began; the audit topic would.",
        ),
    ],
)
def test_evidence_is_said_plainly(more: dict[str, Any], told: str) -> None:
    assert note(row(**more)) == told


def test_clients_own_words_and_topics_are_told() -> None:
    said = sentence(row(cause(causes.MEMBER_LEFT, reason="the consumer is being closed")))
    assert "left, in its words “the consumer is being closed”: " in said
    nobody = dict.fromkeys(("member_id", "instance_id", "client_id", "client_host"))
    grown = row(cause(causes.TOPIC_METADATA_CHANGED, topic="orders", **nobody))
    assert sentence(grown).startswith("The group's topics changed (topic orders): ")


def test_many_causes_are_counted() -> None:
    joined = [cause(causes.MEMBER_JOINED, member_id=f"m{i}", client_id=f"c{i}") for i in range(7)]
    told = sentence(row(*joined, cause(causes.MEMBER_LEFT), causes_left_out=93))
    assert told.startswith("7 members joined; bob-a334… (client bob at /10.0.0.7) left; and 93 more causes: ")


def test_what_a_member_did_besides_is_not_said_with_its_name_again() -> None:
    told = sentence(row(cause(causes.UPGRADED), cause(causes.MEMBER_JOINED), group_type="consumer"))
    assert "and the group with it from now on, and joined: 3.4 s until all 3 members were done" in told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"state": "Empty", "members": 0, "units": 0, "kept": 0, "moved": 0, "revoked": 6,
          "unavailable_ms": 0},
         "left: the group is empty; 6 partitions have nobody now."),
        ({"converged": False, "superseded_by": 14, "duration_ms": 150, "kept": 6, "moved": 0, "revoked": 0},
         "left: generation 14 came 150 ms later, before it was done; all 6 partitions stayed where "
         "they were;"),
        ({"converged": False, "state": "Assigning", "end_ms": None, "duration_ms": None},
         "left: the log ends before it is done;"),
        ({"kept": 6, "moved": 0, "revoked": 0, "unavailable_ms": 0, "duration_ms": 0},
         "left: done at once; all 6 partitions stayed where they were; no partition stood still."),
        ({"group_type": "streams", "standby_moved": 1, "warmup_moved": 2},
         "2 of 6 tasks moved, 4 stayed, 1 standby task moved, 2 warm-up tasks moved;"),
    ],
)  # fmt: skip
def test_each_way_to_end_has_its_words(more: dict[str, Any], told: str) -> None:
    assert told in sentence(row(**more))


def test_what_the_coordinator_says_of_a_cause_is_in_brackets_and_what_a_client_says_in_quotes() -> None:
    both = cause(causes.WARMUP_CAUGHT_UP, reason="1_0"), cause(causes.MEMBER_LEFT, reason="bye")
    told = [sentence(row(each, group_type="streams")) for each in both]
    assert "has caught up with a task that it warms up (1_0): " in told[0]
    assert "left, in its words “bye”: " in told[1]
    guess = row(both[0], group_type="streams", evidence="inferred")
    assert note(guess).startswith("No log says how far a warm-up is; ")


@pytest.mark.parametrize("kind", sorted(value for name, value in vars(causes).items() if name.isupper()
                                        and isinstance(value, str)))  # fmt: skip
def test_every_cause_has_words(kind: str) -> None:
    """None is shown as the word that stands in the log."""
    nobody = dict.fromkeys(("member_id", "instance_id", "client_id", "client_host"))
    with_member, without = sentence(row(cause(kind))), sentence(row(cause(kind, **nobody)))
    spoken = kind in causes.SENTENCES or kind in causes.GROUP_SENTENCES
    assert spoken and f") {kind}:" not in with_member and not without.lower().startswith(f"{kind}:")


def test_names_are_cut_where_they_are_random() -> None:
    assert short("bob-a3341b3b-9e30-4672-8a08-ea9db942a797") == "bob-a334…"
    assert short("p5EffzTVRfyRMHKUKFbUzQ") == "p5Ef…"
    assert short("my-own-name") == "my-own-name"


def test_a_document_has_the_fields_that_programs_ask_for() -> None:
    told = document(row(), Cost(6, 12))
    asked = ("group", "type", "from_epoch", "to_epoch", "start_ms", "end_ms", "cause", "member", "client_id",
             "instance_id", "evidence", "members", "moved", "revoked", "added")  # fmt: skip
    assert [told[name] for name in asked] == [
        "orders-app", "classic", 12, 13, 1_000, 4_400, "member-left", BOB["member_id"], "bob", None,
        "observed", 3, 2, 2, 0,
    ]  # fmt: skip
    assert (told["stopped"], told["lag_records"]) == (6, 12)
    assert told["causes"][0]["kind"] == "member-left"
    assert document(row(from_epoch=-1))["from_epoch"] is None


SHARE = {"group_type": "share", "kept": 3, "moved": 0, "revoked": 0, "units": 3, "unavailable_ms": 0}


@pytest.mark.parametrize(
    ("more", "moved"),
    [
        ({"kept": 2, "moved": 1, "revoked": 1}, "1 of 3 partitions moved, 2 stayed"),
        ({}, "all 3 partitions stayed"),
        ({"kept": 1, "units": 3, "added": 2}, "1 partition stayed, 2 partitions have a member more"),
        ({"revoked": 1}, "all 3 partitions stayed, 1 partition has a member less"),
        ({"kept": 0, "units": 0}, "no partitions to have yet"),
    ],
)
def test_partitions_of_a_share_group_are_told_by_the_members_they_have(
    more: dict[str, int], moved: str
) -> None:
    """None of them has nobody, only because one member gave it up."""
    told = sentence(row(**(SHARE | more)))
    assert told.startswith(f"bob-a334… (client bob at /10.0.0.7) left: 3.4 s until all 3 members were done "
                           f"with it; {moved}")  # fmt: skip


def test_what_an_empty_share_group_had_nobody_has() -> None:
    empty = {"kept": 0, "units": 0, "revoked": 2, "members": 0, "state": "Empty"}
    assert "the group is empty; 2 partitions have nobody now" in sentence(row(**(SHARE | empty)))


def test_what_the_group_itself_went_through_names_no_member() -> None:
    nobody = dict.fromkeys(("member_id", "instance_id", "client_id", "client_host"))
    begun = row(cause(causes.SHARE_PARTITIONS_INITIALIZED, **nobody), **SHARE)
    assert sentence(begun).startswith("Share partitions are there to be assigned that were not before: ")
    altered = row(cause(causes.OFFSETS_ALTERED, **nobody), **SHARE, state="Empty", members=0)
    assert sentence(altered).startswith("The group's start offsets were altered: the group is empty")
