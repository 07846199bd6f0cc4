"""What a member of a consumer group says and when, as transcripts of the pure machine.

A line `->` is a heartbeat with what it carries beside group and member, `<-` an answer, `..` a state.
"""

from __future__ import annotations

from typing import Any

import pytest

from konvene.client.consumer.membership import (
    NO_CONSUMER_PROTOCOL,
    NO_REGEX,
    ConsumerMembership,
    Subscription,
)
from konvene.client.errors import ConnectionLost, KafkaError, UnsupportedVersion
from konvene.client.membership.state_machine import MembershipSettings, MemberState
from konvene.client.membership.topic_partitions import Partitions
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

T = Uuid(b"t" * 16)
NAMES = Subscription(("t",))


def units(*partitions: int) -> Partitions:
    return frozenset((T, p) for p in partitions)


class Talk:
    """A member and its coordinator's lines, with the time; the interval it tells is 5000 ms."""

    def __init__(self, topics: Subscription = NAMES, assignor: str | None = None, **options: Any) -> None:
        self.member = ConsumerMembership("g", "m", topics, MembershipSettings(**options), assignor=assignor)
        self.now_ms = 0
        self.lines: list[str] = []

    def beat(self) -> None:
        """Wait until a heartbeat is due, and send it."""
        due = self.member.due_ms
        assert due is not None, f"{self.member} has nothing to say"
        self.now_ms = max(self.now_ms, due)
        self.lines.append(f"{self.now_ms:>5} -> {told(self.member.request(self.now_ms))}")

    def answer(self, epoch: int, *assigned: int, unchanged: bool = False) -> None:
        rows = (TopicPartitions(topic_id=T, partitions=assigned),) if assigned else ()
        answer = ConsumerGroupHeartbeatResponse(
            member_id="m", member_epoch=epoch, heartbeat_interval_ms=5_000,
            assignment=None if unchanged else Assignment(topic_partitions=rows),
        )  # fmt: skip
        self.lines.append(f"      <- epoch {epoch}, {'unchanged' if unchanged else list(assigned)}")
        self.member.handle_response(answer, self.now_ms)

    def refuse(self, error: Errors, message: str | None = None) -> None:
        self.lines.append(f"      <- {error.name}")
        answer = ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)
        self.member.handle_response(answer, self.now_ms)

    def lose_the_answer(self) -> None:
        self.lines.append("      <- nothing: the connection is lost")
        self.member.handle_failure(ConnectionLost("the broker went away"), self.now_ms)

    def take(self, *partitions: int) -> None:
        """The caller gives up and takes over, and holds these then."""
        assert self.member.confirm_owned(
            self.member.incarnation, self.member.target_version, units(*partitions)
        )
        self.lines.append(f"      .. {self.member.state.value}, holds {list(partitions)}")

    def state(self) -> None:
        self.lines.append(f"      .. {self.member.state.value}")

    def settle(self, *partitions: int) -> None:
        """Join, take these over and be stable; leaves no lines."""
        self.beat()
        self.answer(1, *partitions)
        self.take(*partitions)
        self.beat()
        self.answer(1, unchanged=True)
        assert self.member.state is MemberState.STABLE
        self.lines.clear()


def told(request: ConsumerGroupHeartbeatRequest) -> str:
    assert (request.group_id, request.member_id) == ("g", "m")
    words = [f"epoch {request.member_epoch}"]
    words += [f"instance {request.instance_id}"] if request.instance_id else []
    words += [f"rack {request.rack_id}"] if request.rack_id else []
    words += [f"rebalance {request.rebalance_timeout_ms}"] if request.rebalance_timeout_ms != -1 else []
    if request.subscribed_topic_names is not None:
        words.append(f"names {list(request.subscribed_topic_names)}")
    if request.subscribed_topic_regex is not None:
        words.append(f"regex {request.subscribed_topic_regex!r}")
    words += [f"assignor {request.server_assignor}"] if request.server_assignor else []
    if request.topic_partitions is not None:
        words.append(f"owns {sorted(p for t in request.topic_partitions for p in t.partitions)}")
    return ", ".join(words)


def test_a_member_joins_takes_over_acknowledges_and_then_says_no_more_than_that_it_lives() -> None:
    talk = Talk(assignor="range", rack_id="r1")
    talk.beat()
    talk.answer(2, 0, 1)
    talk.state()
    talk.take(0, 1)
    talk.beat()
    talk.state()
    talk.answer(2, unchanged=True)
    talk.beat()
    assert talk.lines == [
        "    0 -> epoch 0, rack r1, rebalance 300000, names ['t'], assignor range, owns []",
        "      <- epoch 2, [0, 1]",
        "      .. reconciling",
        "      .. acknowledging, holds [0, 1]",
        "    0 -> epoch 2, owns [0, 1]",
        "      .. stable",
        "      <- epoch 2, unchanged",
        " 5000 -> epoch 2",
    ]
    assert repr(talk.member) == "<ConsumerMembership m of g: stable, epoch 2, 2 of 2 partitions>"


def test_what_is_revoked_is_acknowledged_at_once_and_what_was_not_given_up_is_not() -> None:
    talk = Talk()
    talk.settle(0, 1)
    talk.beat()
    talk.answer(1, 0)
    talk.state()
    talk.beat()  # The caller is busy: it lives, and owns what it owned.
    talk.answer(1, unchanged=True)
    talk.take(0)
    talk.beat()
    talk.answer(2, 0, 2)
    talk.take(0, 2)
    talk.beat()
    assert talk.lines == [
        " 5000 -> epoch 1",
        "      <- epoch 1, [0]",
        "      .. reconciling",
        "10000 -> epoch 1",
        "      <- epoch 1, unchanged",
        "      .. acknowledging, holds [0]",
        "10000 -> epoch 1, owns [0]",
        "      <- epoch 2, [0, 2]",
        "      .. acknowledging, holds [0, 2]",
        "10000 -> epoch 2, owns [0, 2]",
    ]


def test_a_target_that_changes_while_it_is_reconciled_is_reconciled_next() -> None:
    talk = Talk()
    talk.settle(0)
    talk.beat()
    talk.answer(2, 0, 1)
    turn = talk.member.target_version
    talk.beat()
    talk.answer(3, 0)
    assert talk.member.confirm_owned(talk.member.incarnation, turn, units(0, 1))
    talk.state()
    talk.beat()
    talk.state()
    talk.answer(3, unchanged=True)
    talk.take(0)
    talk.beat()
    assert talk.lines[4:] == [
        "      .. acknowledging",
        "10000 -> epoch 3, owns [0, 1]",
        "      .. reconciling",
        "      <- epoch 3, unchanged",
        "      .. acknowledging, holds [0]",
        "10000 -> epoch 3, owns [0]",
    ]


def test_a_target_that_went_away_and_came_back_is_acknowledged_once_more() -> None:
    """The coordinator may be waiting for word of the second one."""
    talk = Talk()
    talk.settle(0)
    talk.beat()
    talk.answer(2, 0, 1)
    talk.beat()
    talk.answer(3, 0)
    talk.state()
    talk.take(0)
    talk.beat()
    assert talk.lines[-3:] == [
        "      .. reconciling",
        "      .. acknowledging, holds [0]",
        "10000 -> epoch 3, owns [0]",
    ]


def test_topics_without_a_name_yet_are_left_for_later_and_the_rest_is_acknowledged() -> None:
    talk = Talk()
    talk.beat()
    talk.answer(1, 0, 1)
    talk.take(0)
    talk.beat()
    talk.state()
    talk.answer(1, unchanged=True)
    assert talk.member.due_ms == 5_000


def test_the_same_assignment_again_is_no_news() -> None:
    talk = Talk()
    talk.settle(0)
    talk.beat()
    talk.answer(2, 0)
    talk.state()
    talk.beat()
    assert talk.lines[-2:] == ["      .. stable", "10000 -> epoch 2"]


def test_after_a_lost_answer_everything_is_told_again_after_a_growing_pause() -> None:
    talk = Talk()
    talk.settle(0, 1)
    talk.beat()
    talk.answer(1, 0)
    talk.take(0)
    talk.beat()
    talk.lose_the_answer()
    talk.beat()
    talk.lose_the_answer()
    talk.beat()
    talk.answer(2, 0, 2)
    talk.state()
    assert talk.lines[2:] == [
        "      .. acknowledging, holds [0]",
        " 5000 -> epoch 1, owns [0]",
        "      <- nothing: the connection is lost",
        " 5100 -> epoch 1, rebalance 300000, names ['t'], owns [0]",
        "      <- nothing: the connection is lost",
        " 5300 -> epoch 1, rebalance 300000, names ['t'], owns [0]",
        "      <- epoch 2, [0, 2]",
        "      .. reconciling",
    ]


@pytest.mark.parametrize(
    "error", [Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_a_coordinator_that_is_not_in_charge_is_asked_again_and_told_everything(error: Errors) -> None:
    talk = Talk()
    talk.settle(0)
    talk.beat()
    talk.refuse(error)
    talk.state()
    talk.beat()
    assert talk.lines[1:] == [
        f"      <- {error.name}",
        "      .. stable",
        " 5100 -> epoch 1, rebalance 300000, names ['t'], owns [0]",
    ]


@pytest.mark.parametrize("error", [Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID])
def test_a_member_that_was_thrown_out_lets_go_and_joins_anew_under_its_id(error: Errors) -> None:
    talk = Talk(rack_id="r")
    talk.settle(0)
    talk.beat()
    talk.refuse(error)
    assert (talk.member.state, talk.member.epoch, talk.member.due_ms) == (MemberState.FENCED, 0, None)
    talk.now_ms = 7_000
    talk.member.rejoin_fenced(talk.now_ms)
    talk.beat()
    talk.answer(9, 0)
    talk.state()
    assert talk.lines[2:] == [
        " 7000 -> epoch 0, rack r, rebalance 300000, names ['t'], owns []",
        "      <- epoch 9, [0]",
        "      .. reconciling",
    ]


def test_what_was_taken_over_for_an_earlier_life_counts_no_more() -> None:
    talk = Talk()
    talk.settle(0)
    talk.beat()
    talk.answer(2, 0, 1)
    life, turn = talk.member.incarnation, talk.member.target_version
    talk.beat()
    talk.refuse(Errors.FENCED_MEMBER_EPOCH)
    assert not talk.member.confirm_owned(life, turn, units(0, 1))
    talk.member.rejoin_fenced(talk.now_ms)
    talk.beat()
    talk.answer(3, 0, 1)
    assert not talk.member.confirm_owned(life, turn, units(0, 1))
    assert (talk.member.state, talk.member.owned) == (MemberState.RECONCILING, frozenset())


def test_a_subscription_that_changes_is_told_at_once_and_alone() -> None:
    talk = Talk()
    talk.settle(0)
    talk.now_ms = 1_000
    talk.member.subscribe(Subscription(("t", "u")))
    talk.beat()
    talk.answer(2, 0)
    talk.member.subscribe(Subscription(regex="x.*"))
    talk.beat()
    talk.answer(3)
    talk.member.subscribe(Subscription(("t",)))
    talk.beat()
    talk.answer(4, 0)
    talk.beat()
    assert [line for line in talk.lines if "->" in line] == [
        " 1000 -> epoch 1, names ['t', 'u']",
        " 1000 -> epoch 2, names [], regex 'x.*'",
        " 1000 -> epoch 3, names ['t'], regex ''",
        " 6000 -> epoch 4",
    ]


def test_a_subscription_that_changes_while_a_heartbeat_is_under_way_waits_for_its_answer() -> None:
    talk = Talk()
    talk.settle(0)
    talk.beat()
    talk.member.subscribe(Subscription(("u",)))
    assert talk.member.due_ms is None
    talk.answer(1, unchanged=True)
    talk.beat()
    assert talk.lines[-1] == " 5000 -> epoch 1, names ['u']"


def test_an_expression_that_was_taken_back_is_taken_back_again_where_that_was_lost() -> None:
    talk = Talk(Subscription(regex="x.*"))
    talk.settle(0)
    talk.member.subscribe(NAMES)
    talk.beat()
    talk.lose_the_answer()
    talk.beat()
    assert [line for line in talk.lines if "->" in line] == [
        "    0 -> epoch 1, names ['t'], regex ''",
        "  100 -> epoch 1, rebalance 300000, names ['t'], regex '', owns [0]",
    ]


def test_an_instance_that_is_not_released_is_asked_for_again_but_not_for_ever() -> None:
    talk = Talk(instance_id="i", unreleased_timeout_ms=250)
    talk.beat()
    talk.refuse(Errors.UNRELEASED_INSTANCE_ID)
    talk.beat()
    talk.refuse(Errors.UNRELEASED_INSTANCE_ID)
    talk.beat()
    talk.refuse(Errors.UNRELEASED_INSTANCE_ID, "Static member m with instance id i cannot join.")
    talk.state()
    assert [line for line in talk.lines if "names" not in line] == [
        "      <- UNRELEASED_INSTANCE_ID",
        "      <- UNRELEASED_INSTANCE_ID",
        "      <- UNRELEASED_INSTANCE_ID",
        "      .. fatal",
    ]
    assert talk.now_ms == 300
    assert str(talk.member.error).endswith("Static member m with instance id i cannot join.")


def test_members_leave_with_minus_one_and_static_ones_with_minus_two() -> None:
    for instance_id, line in ((None, "    0 -> epoch -1"), ("i", "    0 -> epoch -2, instance i")):
        talk = Talk(instance_id=instance_id)
        talk.settle(0)
        talk.member.leave(talk.now_ms)
        talk.beat()
        assert talk.lines == [line]
        assert (talk.member.state, talk.member.due_ms) == (MemberState.LEFT, None)


def test_who_leaves_while_a_heartbeat_is_under_way_does_not_wait_for_it() -> None:
    talk = Talk()
    talk.beat()
    talk.member.leave(talk.now_ms)
    talk.beat()
    talk.answer(1, 0)
    talk.state()
    assert talk.lines[1:] == ["    0 -> epoch -1", "      <- epoch 1, [0]", "      .. left"]


def test_who_was_never_there_or_is_there_no_more_leaves_without_a_word() -> None:
    never = Talk()
    never.member.leave(0)
    lost = Talk()
    lost.settle(0)
    lost.beat()
    lost.refuse(Errors.UNKNOWN_MEMBER_ID)
    lost.member.leave(0)
    assert [(t.member.state, t.member.due_ms) for t in (never, lost)] == [(MemberState.LEFT, None)] * 2


@pytest.mark.parametrize(
    ("error", "words", "said"),
    [
        (Errors.UNSUPPORTED_ASSIGNOR, "x is not supported", "x is not supported"),
        (Errors.GROUP_MAX_SIZE_REACHED, "it is full", "it is full"),
        (Errors.INVALID_REQUEST, "no", "no"),
        (Errors.FENCED_INSTANCE_ID, "another", "another"),
        (Errors.GROUP_ID_NOT_FOUND, "gone", "gone"),
        (Errors.INVALID_REGULAR_EXPRESSION, "missing )",
         "Invalid RE2J SubscriptionPattern provided in the call to subscribe. missing )"),
        (Errors.UNSUPPORTED_VERSION, None, NO_CONSUMER_PROTOCOL),
        (Errors.GROUP_AUTHORIZATION_FAILED, None, "Not authorized to access group: g"),
    ],
)  # fmt: skip
def test_what_nothing_can_mend_is_told_in_the_words_of_kafka(error: Errors, words: str, said: str) -> None:
    talk = Talk()
    talk.settle(0)
    talk.beat()
    talk.refuse(error, words)
    assert (talk.member.state, talk.member.due_ms, talk.member.epoch) == (MemberState.FATAL, None, 0)
    assert isinstance(talk.member.error, KafkaError)
    assert (talk.member.error.code, talk.member.error.message) == (error, said)


def test_a_topic_that_may_not_be_described_is_told_and_the_member_goes_on() -> None:
    talk = Talk()
    talk.settle(0)
    talk.beat()
    talk.refuse(Errors.TOPIC_AUTHORIZATION_FAILED)
    assert talk.member.nonfatal_error is not None
    assert (talk.member.state, talk.member.due_ms) == (MemberState.STABLE, 5_100)


def test_an_expression_that_a_broker_cannot_be_told_is_refused_with_the_words_of_kafka() -> None:
    regex = ConsumerMembership("g", "m", Subscription(regex="x"))
    with pytest.raises(UnsupportedVersion) as raised:
        regex.request(0, version=0)
    regex.handle_failure(raised.value, 0)
    assert (str(regex.error), regex.state) == (NO_REGEX, MemberState.FATAL)
