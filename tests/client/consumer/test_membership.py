"""`ConsumerMembership`: heartbeats and state changes of the pure state machine, as transcripts.

A line `->` is a heartbeat with its fields besides group and member, `<-` a response, `..` a state.
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


class MemberFixture:
    """A member with a virtual clock and a transcript; the heartbeat interval is 5000 ms."""

    def __init__(self, topics: Subscription = NAMES, assignor: str | None = None, **options: Any) -> None:
        self.member = ConsumerMembership("g", "m", topics, MembershipSettings(**options), assignor=assignor)
        self.now_ms = 0
        self.lines: list[str] = []

    def heartbeat(self) -> None:
        """Wait until a heartbeat is due, and send it."""
        due = self.member.due_ms
        assert due is not None, f"{self.member} has no heartbeat due"
        self.now_ms = max(self.now_ms, due)
        self.lines.append(f"{self.now_ms:>5} -> {described(self.member.request(self.now_ms))}")

    def respond(self, epoch: int, *assigned: int, unchanged: bool = False) -> None:
        rows = (TopicPartitions(topic_id=T, partitions=assigned),) if assigned else ()
        response = ConsumerGroupHeartbeatResponse(
            member_id="m", member_epoch=epoch, heartbeat_interval_ms=5_000,
            assignment=None if unchanged else Assignment(topic_partitions=rows),
        )  # fmt: skip
        self.lines.append(f"      <- epoch {epoch}, {'unchanged' if unchanged else list(assigned)}")
        self.member.handle_response(response, self.now_ms)

    def reject(self, error: Errors, message: str | None = None) -> None:
        self.lines.append(f"      <- {error.name}")
        response = ConsumerGroupHeartbeatResponse(error_code=error, error_message=message)
        self.member.handle_response(response, self.now_ms)

    def lose_response(self) -> None:
        self.lines.append("      <- nothing: the connection is lost")
        self.member.handle_failure(ConnectionLost("the broker closed the connection"), self.now_ms)

    def confirm(self, *partitions: int) -> None:
        """Confirm that the caller owns these partitions."""
        assert self.member.confirm_owned(
            self.member.incarnation, self.member.target_version, units(*partitions)
        )
        self.lines.append(f"      .. {self.member.state.value}, holds {list(partitions)}")

    def state(self) -> None:
        self.lines.append(f"      .. {self.member.state.value}")

    def settle(self, *partitions: int) -> None:
        """Join, confirm these over and be stable; leaves no lines."""
        self.heartbeat()
        self.respond(1, *partitions)
        self.confirm(*partitions)
        self.heartbeat()
        self.respond(1, unchanged=True)
        assert self.member.state is MemberState.STABLE
        self.lines.clear()


def described(request: ConsumerGroupHeartbeatRequest) -> str:
    assert (request.group_id, request.member_id) == ("g", "m")
    parts = [f"epoch {request.member_epoch}"]
    parts += [f"instance {request.instance_id}"] if request.instance_id else []
    parts += [f"rack {request.rack_id}"] if request.rack_id else []
    parts += [f"rebalance {request.rebalance_timeout_ms}"] if request.rebalance_timeout_ms != -1 else []
    if request.subscribed_topic_names is not None:
        parts.append(f"names {list(request.subscribed_topic_names)}")
    if request.subscribed_topic_regex is not None:
        parts.append(f"regex {request.subscribed_topic_regex!r}")
    parts += [f"assignor {request.server_assignor}"] if request.server_assignor else []
    if request.topic_partitions is not None:
        parts.append(f"owns {sorted(p for t in request.topic_partitions for p in t.partitions)}")
    return ", ".join(parts)


def test_join_acknowledge_and_keep_alive() -> None:
    fixture = MemberFixture(assignor="range", rack_id="r1")
    fixture.heartbeat()
    fixture.respond(2, 0, 1)
    fixture.state()
    fixture.confirm(0, 1)
    fixture.heartbeat()
    fixture.state()
    fixture.respond(2, unchanged=True)
    fixture.heartbeat()
    assert fixture.lines == [
        "    0 -> epoch 0, rack r1, rebalance 300000, names ['t'], assignor range, owns []",
        "      <- epoch 2, [0, 1]",
        "      .. reconciling",
        "      .. acknowledging, holds [0, 1]",
        "    0 -> epoch 2, owns [0, 1]",
        "      .. stable",
        "      <- epoch 2, unchanged",
        " 5000 -> epoch 2",
    ]
    assert repr(fixture.member) == "<ConsumerMembership m of g: stable, epoch 2, 2 of 2 partitions>"


def test_revocation_is_acknowledged_once_complete() -> None:
    fixture = MemberFixture()
    fixture.settle(0, 1)
    fixture.heartbeat()
    fixture.respond(1, 0)
    fixture.state()
    fixture.heartbeat()  # The caller has not revoked yet: a keep-alive heartbeat.
    fixture.respond(1, unchanged=True)
    fixture.confirm(0)
    fixture.heartbeat()
    fixture.respond(2, 0, 2)
    fixture.confirm(0, 2)
    fixture.heartbeat()
    assert fixture.lines == [
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


def test_target_changed_during_reconciliation_is_reconciled_next() -> None:
    fixture = MemberFixture()
    fixture.settle(0)
    fixture.heartbeat()
    fixture.respond(2, 0, 1)
    version = fixture.member.target_version
    fixture.heartbeat()
    fixture.respond(3, 0)
    assert fixture.member.confirm_owned(fixture.member.incarnation, version, units(0, 1))
    fixture.state()
    fixture.heartbeat()
    fixture.state()
    fixture.respond(3, unchanged=True)
    fixture.confirm(0)
    fixture.heartbeat()
    assert fixture.lines[4:] == [
        "      .. acknowledging",
        "10000 -> epoch 3, owns [0, 1]",
        "      .. reconciling",
        "      <- epoch 3, unchanged",
        "      .. acknowledging, holds [0]",
        "10000 -> epoch 3, owns [0]",
    ]


def test_restored_target_is_acknowledged_again() -> None:
    """The coordinator may be waiting for the acknowledgement of the second target."""
    fixture = MemberFixture()
    fixture.settle(0)
    fixture.heartbeat()
    fixture.respond(2, 0, 1)
    fixture.heartbeat()
    fixture.respond(3, 0)
    fixture.state()
    fixture.confirm(0)
    fixture.heartbeat()
    assert fixture.lines[-3:] == [
        "      .. reconciling",
        "      .. acknowledging, holds [0]",
        "10000 -> epoch 3, owns [0]",
    ]


def test_topics_without_known_name_are_not_acknowledged_yet() -> None:
    fixture = MemberFixture()
    fixture.heartbeat()
    fixture.respond(1, 0, 1)
    fixture.confirm(0)
    fixture.heartbeat()
    fixture.state()
    fixture.respond(1, unchanged=True)
    assert fixture.member.due_ms == 5_000


def test_unchanged_assignment_is_ignored() -> None:
    fixture = MemberFixture()
    fixture.settle(0)
    fixture.heartbeat()
    fixture.respond(2, 0)
    fixture.state()
    fixture.heartbeat()
    assert fixture.lines[-2:] == ["      .. stable", "10000 -> epoch 2"]


def test_full_heartbeat_follows_a_lost_response_with_backoff() -> None:
    fixture = MemberFixture()
    fixture.settle(0, 1)
    fixture.heartbeat()
    fixture.respond(1, 0)
    fixture.confirm(0)
    fixture.heartbeat()
    fixture.lose_response()
    fixture.heartbeat()
    fixture.lose_response()
    fixture.heartbeat()
    fixture.respond(2, 0, 2)
    fixture.state()
    assert fixture.lines[2:] == [
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
def test_coordinator_errors_are_retried_with_a_full_heartbeat(error: Errors) -> None:
    fixture = MemberFixture()
    fixture.settle(0)
    fixture.heartbeat()
    fixture.reject(error)
    fixture.state()
    fixture.heartbeat()
    assert fixture.lines[1:] == [
        f"      <- {error.name}",
        "      .. stable",
        " 5100 -> epoch 1, rebalance 300000, names ['t'], owns [0]",
    ]


@pytest.mark.parametrize("error", [Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID])
def test_fenced_member_rejoins_under_its_id(error: Errors) -> None:
    fixture = MemberFixture(rack_id="r")
    fixture.settle(0)
    fixture.heartbeat()
    fixture.reject(error)
    assert (fixture.member.state, fixture.member.epoch, fixture.member.due_ms) == (
        MemberState.FENCED,
        0,
        None,
    )
    fixture.now_ms = 7_000
    fixture.member.rejoin_fenced(fixture.now_ms)
    fixture.heartbeat()
    fixture.respond(9, 0)
    fixture.state()
    assert fixture.lines[2:] == [
        " 7000 -> epoch 0, rack r, rebalance 300000, names ['t'], owns []",
        "      <- epoch 9, [0]",
        "      .. reconciling",
    ]


def test_confirmation_of_a_former_incarnation_is_ignored() -> None:
    fixture = MemberFixture()
    fixture.settle(0)
    fixture.heartbeat()
    fixture.respond(2, 0, 1)
    incarnation, version = fixture.member.incarnation, fixture.member.target_version
    fixture.heartbeat()
    fixture.reject(Errors.FENCED_MEMBER_EPOCH)
    assert not fixture.member.confirm_owned(incarnation, version, units(0, 1))
    fixture.member.rejoin_fenced(fixture.now_ms)
    fixture.heartbeat()
    fixture.respond(3, 0, 1)
    assert not fixture.member.confirm_owned(incarnation, version, units(0, 1))
    assert (fixture.member.state, fixture.member.owned) == (MemberState.RECONCILING, frozenset())


def test_changed_subscription_is_sent_at_once_and_alone() -> None:
    fixture = MemberFixture()
    fixture.settle(0)
    fixture.now_ms = 1_000
    fixture.member.subscribe(Subscription(("t", "u")))
    fixture.heartbeat()
    fixture.respond(2, 0)
    fixture.member.subscribe(Subscription(regex="x.*"))
    fixture.heartbeat()
    fixture.respond(3)
    fixture.member.subscribe(Subscription(("t",)))
    fixture.heartbeat()
    fixture.respond(4, 0)
    fixture.heartbeat()
    assert [line for line in fixture.lines if "->" in line] == [
        " 1000 -> epoch 1, names ['t', 'u']",
        " 1000 -> epoch 2, names [], regex 'x.*'",
        " 1000 -> epoch 3, names ['t'], regex ''",
        " 6000 -> epoch 4",
    ]


def test_changed_subscription_waits_for_a_pending_heartbeat() -> None:
    fixture = MemberFixture()
    fixture.settle(0)
    fixture.heartbeat()
    fixture.member.subscribe(Subscription(("u",)))
    assert fixture.member.due_ms is None
    fixture.respond(1, unchanged=True)
    fixture.heartbeat()
    assert fixture.lines[-1] == " 5000 -> epoch 1, names ['u']"


def test_removed_expression_is_sent_again_after_a_lost_response() -> None:
    fixture = MemberFixture(Subscription(regex="x.*"))
    fixture.settle(0)
    fixture.member.subscribe(NAMES)
    fixture.heartbeat()
    fixture.lose_response()
    fixture.heartbeat()
    assert [line for line in fixture.lines if "->" in line] == [
        "    0 -> epoch 1, names ['t'], regex ''",
        "  100 -> epoch 1, rebalance 300000, names ['t'], regex '', owns [0]",
    ]


def test_unreleased_instance_id_is_retried_for_a_while() -> None:
    fixture = MemberFixture(instance_id="i", unreleased_timeout_ms=250)
    fixture.heartbeat()
    fixture.reject(Errors.UNRELEASED_INSTANCE_ID)
    fixture.heartbeat()
    fixture.reject(Errors.UNRELEASED_INSTANCE_ID)
    fixture.heartbeat()
    fixture.reject(Errors.UNRELEASED_INSTANCE_ID, "Static member m with instance id i cannot join.")
    fixture.state()
    assert [line for line in fixture.lines if "names" not in line] == [
        "      <- UNRELEASED_INSTANCE_ID",
        "      <- UNRELEASED_INSTANCE_ID",
        "      <- UNRELEASED_INSTANCE_ID",
        "      .. fatal",
    ]
    assert fixture.now_ms == 300
    assert str(fixture.member.error).endswith("Static member m with instance id i cannot join.")


def test_leave_epochs() -> None:
    for instance_id, line in ((None, "    0 -> epoch -1"), ("i", "    0 -> epoch -2, instance i")):
        fixture = MemberFixture(instance_id=instance_id)
        fixture.settle(0)
        fixture.member.leave(fixture.now_ms)
        fixture.heartbeat()
        assert fixture.lines == [line]
        assert (fixture.member.state, fixture.member.due_ms) == (MemberState.LEFT, None)


def test_leave_does_not_wait_for_a_pending_heartbeat() -> None:
    fixture = MemberFixture()
    fixture.heartbeat()
    fixture.member.leave(fixture.now_ms)
    fixture.heartbeat()
    fixture.respond(1, 0)
    fixture.state()
    assert fixture.lines[1:] == ["    0 -> epoch -1", "      <- epoch 1, [0]", "      .. left"]


def test_leave_without_membership_sends_nothing() -> None:
    never = MemberFixture()
    never.member.leave(0)
    lost = MemberFixture()
    lost.settle(0)
    lost.heartbeat()
    lost.reject(Errors.UNKNOWN_MEMBER_ID)
    lost.member.leave(0)
    assert [(t.member.state, t.member.due_ms) for t in (never, lost)] == [(MemberState.LEFT, None)] * 2


@pytest.mark.parametrize(
    ("error", "message", "expected"),
    [
        (Errors.UNSUPPORTED_ASSIGNOR, "x is not supported", "x is not supported"),
        (Errors.GROUP_MAX_SIZE_REACHED, "it is full", "it is full"),
        (Errors.INVALID_REQUEST, "no", "no"),
        (Errors.FENCED_INSTANCE_ID, "another", "another"),
        (Errors.GROUP_ID_NOT_FOUND, "deleted", "deleted"),
        (Errors.INVALID_REGULAR_EXPRESSION, "missing )",
         "Invalid RE2J SubscriptionPattern provided in the call to subscribe. missing )"),
        (Errors.UNSUPPORTED_VERSION, None, NO_CONSUMER_PROTOCOL),
        (Errors.GROUP_AUTHORIZATION_FAILED, None, "Not authorized to access group: g"),
    ],
)  # fmt: skip
def test_fatal_errors_have_kafkas_messages(error: Errors, message: str, expected: str) -> None:
    fixture = MemberFixture()
    fixture.settle(0)
    fixture.heartbeat()
    fixture.reject(error, message)
    assert (fixture.member.state, fixture.member.due_ms, fixture.member.epoch) == (MemberState.FATAL, None, 0)
    assert isinstance(fixture.member.error, KafkaError)
    assert (fixture.member.error.code, fixture.member.error.message) == (error, expected)


def test_topic_authorization_failure_is_not_fatal() -> None:
    fixture = MemberFixture()
    fixture.settle(0)
    fixture.heartbeat()
    fixture.reject(Errors.TOPIC_AUTHORIZATION_FAILED)
    assert fixture.member.nonfatal_error is not None
    assert (fixture.member.state, fixture.member.due_ms) == (MemberState.STABLE, 5_100)


def test_expression_on_an_old_broker_has_kafkas_message() -> None:
    regex = ConsumerMembership("g", "m", Subscription(regex="x"))
    with pytest.raises(UnsupportedVersion) as raised:
        regex.request(0, version=0)
    regex.handle_failure(raised.value, 0)
    assert (str(regex.error), regex.state) == (NO_REGEX, MemberState.FATAL)
