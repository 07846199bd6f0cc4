"""What a member of a share group says and when, as transcripts of the pure machine.

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


def told(request: ShareGroupHeartbeatRequest) -> str:
    words = [f"epoch {request.member_epoch}"]
    if request.rack_id is not None:
        words.append(f"rack {request.rack_id}")
    if request.subscribed_topic_names is not None:
        words.append(f"topics {','.join(request.subscribed_topic_names)}")
    return ", ".join(words)


class Talk:
    """A member and its coordinator's lines, with the time; the interval is 5 s."""

    def __init__(self, rack: str | None = None) -> None:
        self.member = ShareMembership("g", "m", ["t", "s", "t"], MembershipSettings(rack_id=rack))
        self.now_ms = 0
        self.lines: list[str] = []

    def beat(self) -> None:
        due = self.member.due_ms
        assert due is not None, f"{self.member} has nothing to say"
        self.now_ms = max(self.now_ms, due)
        self.lines.append(f"{self.now_ms:>5} -> {told(self.member.request(self.now_ms))}")

    def answer(self, epoch: int, *given: int, assigned: bool = True) -> None:
        rows = (TopicPartitions(topic_id=TOPIC, partitions=given),) if given else ()
        answer = ShareGroupHeartbeatResponse(
            member_id="m", member_epoch=epoch, heartbeat_interval_ms=5_000,
            assignment=Assignment(topic_partitions=rows) if assigned else None,
        )  # fmt: skip
        self.lines.append(f"      <- epoch {epoch}, {list(given) if assigned else 'unchanged'}")
        self.member.handle_response(answer, self.now_ms)

    def refuse(self, error: Errors) -> None:
        self.lines.append(f"      <- {error.name}")
        self.member.handle_response(ShareGroupHeartbeatResponse(error_code=error), self.now_ms)

    def take(self) -> None:
        m = self.member
        assert m.confirm_owned(m.incarnation, m.target_version, m.target)
        self.lines.append(f"      .. {m.state.value}, has {sorted(p for _, p in m.owned)}")


def test_it_joins_with_its_topics_and_says_nothing_of_what_it_has() -> None:
    talk = Talk(rack="east")
    talk.beat()
    talk.answer(1, 0, 1)
    talk.take()
    talk.beat()
    talk.answer(2, 1)
    talk.take()
    talk.beat()
    assert talk.lines == [
        "    0 -> epoch 0, rack east, topics s,t",
        "      <- epoch 1, [0, 1]",
        "      .. stable, has [0, 1]",
        " 5000 -> epoch 1",
        "      <- epoch 2, [1]",
        "      .. stable, has [1]",
        "10000 -> epoch 2",
    ]


def test_other_topics_are_told_at_once() -> None:
    talk = Talk()
    talk.beat()
    talk.answer(1, 0)
    talk.take()
    talk.member.subscribe(["u"])
    talk.beat()
    talk.answer(1, assigned=False)
    talk.beat()
    assert talk.lines[3:] == ["    0 -> epoch 1, topics u", "      <- epoch 1, unchanged", " 5000 -> epoch 1"]


def test_after_a_lost_answer_it_says_again_what_it_reads() -> None:
    talk = Talk(rack="east")
    talk.beat()
    talk.answer(1, 0)
    talk.take()
    talk.beat()
    talk.member.handle_failure(ConnectionLost("the broker went away"), talk.now_ms)
    talk.beat()
    assert talk.lines[3:] == [" 5000 -> epoch 1", " 5100 -> epoch 1, rack east, topics s,t"]


@pytest.mark.parametrize("error", [Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH])
def test_one_that_is_thrown_out_joins_anew_once_all_was_let_go(error: Errors) -> None:
    talk = Talk()
    talk.beat()
    talk.answer(1, 0)
    talk.take()
    talk.beat()
    talk.refuse(error)
    assert talk.member.state is MemberState.FENCED
    assert talk.member.due_ms is None
    talk.member.rejoin_fenced(6_000)
    talk.now_ms = 6_000
    talk.beat()
    assert talk.lines[-1] == " 6000 -> epoch 0, topics s,t"


def test_where_share_groups_are_not_enabled_it_says_so_in_kafkas_words() -> None:
    talk = Talk()
    talk.beat()
    talk.refuse(Errors.UNSUPPORTED_VERSION)
    assert talk.member.state is MemberState.FATAL
    assert isinstance(talk.member.error, KafkaError)
    assert talk.member.error.message == NOT_ENABLED


def test_it_leaves_with_epoch_minus_one() -> None:
    talk = Talk()
    talk.beat()
    talk.answer(1, 0)
    talk.member.leave(talk.now_ms)
    talk.beat()
    assert talk.lines[-1] == "    0 -> epoch -1"
    assert talk.member.state is MemberState.LEFT


@pytest.mark.parametrize("topics", [[], [""], ["t", " "]])
def test_it_reads_topics_that_have_names(topics: list[str]) -> None:
    with pytest.raises(Misconfigured):
        ShareMembership("g", "m", topics)
