"""Sentences that describe rows of the audit."""

from __future__ import annotations

import pytest

from konvene.groups.history import describe, duration, headline, sentences
from konvene.records.audit import Cause, RebalancedMember, RebalanceValue

ROW = RebalanceValue(
    group_type="classic", epoch=3, state="Stable", started_ms=1_000, joined_ms=5_100, ended_ms=5_200,
    causes=(
        Cause(
            kind="member-joined", member_id="m-3", instance_id="billing-3", client_id="bob",
            client_host="/127.0.0.1", reason="rebalance failed due to UnknownMemberIdException",
        ),
        Cause(kind="session-expired", member_id="m-4", client_id="cas", client_host="/127.0.0.1"),
    ),
    members=(
        RebalancedMember(member_id="m-1", client_id="ann", client_host="/127.0.0.1", joined_ms=1_020),
        RebalancedMember(member_id="m-2", client_id="dan", client_host="/127.0.0.1", joined_ms=5_100),
        RebalancedMember(member_id="m-3", client_id="bob", client_host="/127.0.0.1", joined_ms=5_150),
    ),
)  # fmt: skip


def test_a_sentence_per_cause_and_one_for_the_slowest_member() -> None:
    assert sentences(ROW) == [
        "member-joined: billing-3 (client bob at /127.0.0.1) joined; "
        "reason: rebalance failed due to UnknownMemberIdException",
        "session-expired: m-4 (client cas at /127.0.0.1) sent no heartbeat within its session timeout",
        "slow to rejoin: m-2 (client dan at /127.0.0.1) rejoined last, after 4.1 s",
    ]
    assert headline(ROW) == "generation 3 is Stable with 3 members after 4.2 s"
    assert describe(ROW.replace(causes=ROW.causes[1:], members=())) == (
        "generation 3 is Stable after 4.2 s: session-expired: m-4 (client cas at /127.0.0.1) "
        "sent no heartbeat within its session timeout"
    )


def test_causes_without_a_member_are_sentences_too() -> None:
    row = RebalanceValue(
        group_type="consumer", epoch=8, state="Empty", inferred=True,
        causes=(
            Cause(kind="topic-metadata-changed", topic="orders"),
            Cause(kind="unknown"),
            Cause(kind="new-word"),
        ),
    )  # fmt: skip
    assert describe(row) == (
        "epoch 8 is Empty, inferred: topic-metadata-changed: the group's topics changed (topic orders); "
        "unknown: the group rebalanced for a reason that the log does not record; "
        "new-word: no member is named"
    )
    assert describe(row.replace(causes=())) == "epoch 8 is Empty, inferred: no cause is recorded"


def test_tasks_that_moved_are_counted_by_role() -> None:
    row = RebalanceValue(
        group_type="streams", epoch=8, state="Stable", moved=(2, 0, 1),
        causes=(
            Cause(kind="member-metadata-changed", member_id="m"),
            Cause(kind="rebalance-timeout", member_id="n"),
        ),
    )  # fmt: skip
    assert sentences(row) == [
        "member-metadata-changed: m changed its member metadata",
        "rebalance-timeout: n did not revoke partitions within its rebalance timeout",
        "tasks moved: 2 active, 1 warm-up",
    ]
    assert sentences(row.replace(moved=(0, 0, 0), causes=())) == ["tasks moved: none"]
    assert sentences(row.replace(moved=(), causes=())) == []
    classic = row.replace(group_type="classic", moved=())
    assert sentences(classic)[1] == "rebalance-timeout: n did not rejoin within its rebalance timeout"


def test_the_coordinators_details_of_a_cause_are_no_client_reason() -> None:
    caught_up = Cause(kind="warmup-caught-up", member_id="m", reason="1_0")
    row = RebalanceValue(
        group_type="streams", state="Assigning",
        causes=(
            caught_up, Cause(kind="topology-updated", member_id="n", reason="epoch 0 to 1: + subtopology 2"),
            caught_up.replace(member_id=None, reason=None), Cause(kind="topology-updated"),
        ),
    )  # fmt: skip
    assert sentences(row) == [
        "warmup-caught-up: m has a warm-up task that caught up (1_0)",
        "topology-updated: n updated the application's topology (epoch 0 to 1: + subtopology 2)",
        "warmup-caught-up: a warm-up task caught up",
        "topology-updated: the application's topology was updated",
    ]


@pytest.mark.parametrize(
    "ms, text", [(0, "0 ms"), (999, "999 ms"), (1_000, "1.0 s"), (59_999, "60.0 s"), (123_400, "2 min 3 s")]
)
def test_durations_are_readable(ms: int, text: str) -> None:
    assert duration(ms) == text


def member(name: str, joined_ms: int) -> RebalancedMember:
    return RebalancedMember(member_id=name, client_id=f"c-{name}", client_host="/h", joined_ms=joined_ms)


JOINED = Cause(kind="member-joined", member_id="m", client_id="c-m", client_host="/h")


def test_an_epoch_bump_has_no_duration() -> None:
    row = RebalanceValue(
        group_type="consumer", epoch=4, state="Assigning", started_ms=9, ended_ms=9, causes=(JOINED,)
    )
    assert describe(row) == "epoch 4 is Assigning: member-joined: m (client c-m at /h) joined"
    assert headline(row.replace(state="Empty")) == "epoch 4 is Empty"


def test_the_last_converged_member_is_listed() -> None:
    """Lateness counts from the new assignment; without its time no member is called slow."""
    row = RebalanceValue(
        group_type="consumer", epoch=4, state="Stable", started_ms=1_000, joined_ms=3_000, ended_ms=7_100,
        causes=(JOINED,), members=(member("a", 3_000), member("m", 7_100)), members_left_out=2,
    )  # fmt: skip
    assert headline(row) == "epoch 4 is Stable with 4 members after 6.1 s"
    assert sentences(row) == [
        "member-joined: m (client c-m at /h) joined",
        "slow to converge: m (client c-m at /h) converged last, 4.1 s after the new target assignment",
    ]
    assert sentences(row.replace(joined_ms=-1)) == sentences(row)[:1]
    assert sentences(row.replace(members=(member("a", 3_499), member("m", 3_000)))) == sentences(row)[:1]
