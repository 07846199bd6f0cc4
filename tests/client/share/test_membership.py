"""`ShareMembership`: heartbeats and state changes of the pure state machine, as transcripts.

A line `->` is a heartbeat with what it carries beside group and member, `<-` an answer, `..` a state.
"""

from __future__ import annotations

import pytest

from konvene.client.errors import ConnectionLost, KafkaError, Misconfigured
from konvene.client.membership.state_machine import MembershipSettings, MemberState
from konvene.client.share.membership import NOT_ENABLED, ShareMembership
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC = Uuid(bytes([7] * 16))


def describe(request: ShareGroupHeartbeatRequest) -> str:
    fields = [f"epoch {request.member_epoch}"]
    if request.rack_id is not None:
        fields.append(f"rack {request.rack_id}")
    if request.subscribed_topic_names is not None:
        fields.append(f"topics {','.join(request.subscribed_topic_names)}")
    return ", ".join(fields)


class Transcript:
    """A member with a virtual clock and a transcript; the heartbeat interval is 5 s."""

    def __init__(self, rack: str | None = None) -> None:
        self.member = ShareMembership("g", "m", ["t", "s", "t"], MembershipSettings(rack_id=rack))
        self.now_ms = 0
        self.lines: list[str] = []

    def heartbeat(self) -> None:
        due = self.member.due_ms
        assert due is not None, f"{self.member} has no heartbeat due"
        self.now_ms = max(self.now_ms, due)
        self.lines.append(f"{self.now_ms:>5} -> {describe(self.member.request(self.now_ms))}")

    def answer(self, epoch: int, *given: int, assigned: bool = True) -> None:
        rows = (TopicPartitions(topic_id=TOPIC, partitions=given),) if given else ()
        answer = ShareGroupHeartbeatResponse(
            member_id="m", member_epoch=epoch, heartbeat_interval_ms=5_000,
            assignment=Assignment(topic_partitions=rows) if assigned else None,
        )  # fmt: skip
        self.lines.append(f"      <- epoch {epoch}, {list(given) if assigned else 'unchanged'}")
        self.member.handle_response(answer, self.now_ms)

    def reject(self, error: Errors) -> None:
        self.lines.append(f"      <- {error.name}")
        self.member.handle_response(ShareGroupHeartbeatResponse(error_code=error), self.now_ms)

    def confirm(self) -> None:
        m = self.member
        assert m.confirm_owned(m.incarnation, m.target_version, m.target)
        self.lines.append(f"      .. {m.state.value}, has {sorted(p for _, p in m.owned)}")


def test_heartbeats_have_the_topics_only_when_joining() -> None:
    transcript = Transcript(rack="east")
    transcript.heartbeat()
    transcript.answer(1, 0, 1)
    transcript.confirm()
    transcript.heartbeat()
    transcript.answer(2, 1)
    transcript.confirm()
    transcript.heartbeat()
    assert transcript.lines == [
        "    0 -> epoch 0, rack east, topics s,t",
        "      <- epoch 1, [0, 1]",
        "      .. stable, has [0, 1]",
        " 5000 -> epoch 1",
        "      <- epoch 2, [1]",
        "      .. stable, has [1]",
        "10000 -> epoch 2",
    ]


def test_a_changed_subscription_is_sent_at_once() -> None:
    transcript = Transcript()
    transcript.heartbeat()
    transcript.answer(1, 0)
    transcript.confirm()
    transcript.member.subscribe(["u"])
    transcript.heartbeat()
    transcript.answer(1, assigned=False)
    transcript.heartbeat()
    assert transcript.lines[3:] == [
        "    0 -> epoch 1, topics u",
        "      <- epoch 1, unchanged",
        " 5000 -> epoch 1",
    ]


def test_a_full_heartbeat_follows_a_lost_response() -> None:
    transcript = Transcript(rack="east")
    transcript.heartbeat()
    transcript.answer(1, 0)
    transcript.confirm()
    transcript.heartbeat()
    transcript.member.handle_failure(ConnectionLost("the broker went away"), transcript.now_ms)
    transcript.heartbeat()
    assert transcript.lines[3:] == [" 5000 -> epoch 1", " 5100 -> epoch 1, rack east, topics s,t"]


@pytest.mark.parametrize("error", [Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_rejoins_after_releasing_its_partitions(error: Errors) -> None:
    transcript = Transcript()
    transcript.heartbeat()
    transcript.answer(1, 0)
    transcript.confirm()
    transcript.heartbeat()
    transcript.reject(error)
    assert transcript.member.state is MemberState.FENCED
    assert transcript.member.due_ms is None
    transcript.member.rejoin_fenced(6_000)
    transcript.now_ms = 6_000
    transcript.heartbeat()
    assert transcript.lines[-1] == " 6000 -> epoch 0, topics s,t"


def test_disabled_share_groups_raise_kafkas_message() -> None:
    transcript = Transcript()
    transcript.heartbeat()
    transcript.reject(Errors.UNSUPPORTED_VERSION)
    assert transcript.member.state is MemberState.FATAL
    assert isinstance(transcript.member.error, KafkaError)
    assert transcript.member.error.message == NOT_ENABLED


def test_leave_epoch_is_minus_one() -> None:
    transcript = Transcript()
    transcript.heartbeat()
    transcript.answer(1, 0)
    transcript.member.leave(transcript.now_ms)
    transcript.heartbeat()
    assert transcript.lines[-1] == "    0 -> epoch -1"
    assert transcript.member.state is MemberState.LEFT


@pytest.mark.parametrize("topics", [[], [""], ["t", " "]])
def test_invalid_topic_names_are_rejected(topics: list[str]) -> None:
    with pytest.raises(Misconfigured):
        ShareMembership("g", "m", topics)
