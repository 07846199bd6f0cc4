"""What a share consumer asks and acknowledges, as transcripts of the pure machine.

A line `->` is a request to a broker (F fetches, A acknowledges alone), `<-` what was answered, `..` what the
caller was given.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.test_share_session import said

from konvene.client.errors import ClientError, ConnectionLost, KafkaError, OutOfTurn
from konvene.client.share.fetch_machine import (
    Acknowledgement,
    AcknowledgeType,
    FetchTerms,
    ShareMachine,
    Unit,
)
from konvene.codec.batches import Record, build
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages import share_acknowledge, share_fetch
from konvene.messages.share_fetch import ShareFetchRequest

T = Uuid(bytes([1] * 16))
P0, P1 = (T, 0), (T, 1)
ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW,
    AcknowledgeType.GAP,
)  # fmt: skip


def batch(first: int, last: int, *, without: tuple[int, ...] = (), control: bool = False) -> bytes:
    kept = [Record(o, 0, None, b"v%d" % o) for o in range(first, last + 1) if o not in without]
    return build(kept, base_offset=first, last_offset=last, control=control)


def brought(unit: Unit, data: bytes = b"", *acquired: tuple[int, int, int], **more: Any) -> Any:
    """A partition's part of a ShareFetch: first, last, delivery count of what was acquired."""
    rows = tuple(
        share_fetch.AcquiredRecords(first_offset=a, last_offset=b, delivery_count=n) for a, b, n in acquired
    )
    return unit, share_fetch.PartitionData(
        partition_index=unit[1], records=data, acquired_records=rows, **more
    )


class Talk:
    """A machine, its brokers' lines, and the time."""

    def __init__(self, leaders: dict[Unit, int] | None = None, **terms: Any) -> None:
        self.machine = ShareMachine("g", "m", FetchTerms(**terms))
        self.machine.assign(leaders or {P0: 1})
        self.now_ms = 0
        self.lines: list[str] = []
        self.asked: dict[int, Any] = {}

    def ask(self, *, fetching: bool = True) -> None:
        for node, request in self.machine.requests(self.now_ms, fetching=fetching):
            kind = "F" if isinstance(request, ShareFetchRequest) else "A"
            self.asked[node] = request
            self.lines.append(f"{node} -> {kind} {said(request)}")

    def bring(self, *rows: Any, node: int = 1, error: int = 0) -> None:
        topics = tuple(
            share_fetch.ShareFetchableTopicResponse(topic_id=unit[0], partitions=(row,)) for unit, row in rows
        )
        answer = share_fetch.ShareFetchResponse(
            error_code=error, responses=topics, acquisition_lock_timeout_ms=30_000
        )
        self.machine.handle_response(node, answer, self.now_ms)

    def reply(self, errors: dict[Unit, int] | None = None, *, node: int = 1, error: int = 0) -> None:
        """To an acknowledgement alone."""
        topics = tuple(
            share_acknowledge.ShareAcknowledgeTopicResponse(
                topic_id=unit[0],
                partitions=(share_acknowledge.PartitionData(partition_index=unit[1], error_code=code),),
            )
            for unit, code in (errors or {}).items()
        )
        answer = share_acknowledge.ShareAcknowledgeResponse(error_code=error, responses=topics)
        self.machine.handle_response(node, answer, self.now_ms)

    def take(self) -> list[str]:
        return [f"{d.unit[1]}:{d.record.offset} x{d.delivery_count}" for d in self.machine.take()]

    def decide(self, unit: Unit = P0, **kinds: int) -> list[Acknowledgement]:
        """`o4=ACCEPT`, told from then on."""
        for offset, kind in kinds.items():
            self.machine.acknowledge(unit, int(offset[1:]), kind)
        return self.machine.queue(self.now_ms + 10_000)

    def open(self, first: int = 0, last: int = 3) -> list[str]:
        """A session with records that the caller holds."""
        self.ask()
        self.bring(brought(P0, batch(first, last), (first, last, 1)))
        self.lines.clear()
        return self.take()


def outcome(acks: list[Acknowledgement]) -> list[str]:
    return [
        ("on its way" if not ack.is_done else ack.error.name if isinstance(ack.error, KafkaError) else "done")
        for ack in acks
    ]


def test_it_fetches_and_tells_what_was_decided_with_the_next_fetch() -> None:
    talk = Talk()
    talk.ask()
    talk.bring(brought(P0, batch(5, 8), (5, 7, 2)))
    assert talk.take() == ["0:5 x2", "0:6 x2", "0:7 x2"]
    acks = talk.decide(o5=ACCEPT, o6=RELEASE, o7=REJECT)
    talk.ask()
    assert outcome(acks) == ["on its way"]
    talk.bring(brought(P0))
    assert outcome(acks) == ["done"]
    assert list(talk.machine.done) == acks
    assert talk.machine.lock_ms == 30_000
    talk.ask()
    assert talk.lines == ["1 -> F epoch 0 1-0", "1 -> F epoch 1 1-0 (5-7:1/2/3)", "1 -> F epoch 2"]


def test_where_nothing_is_fetched_it_acknowledges_alone() -> None:
    talk = Talk()
    assert talk.open() == ["0:0 x1", "0:1 x1", "0:2 x1", "0:3 x1"]
    talk.machine.accept_all()
    acks = talk.machine.queue(1_000)
    talk.ask(fetching=False)
    talk.ask()  # One request at a time.
    talk.reply({P0: 0})
    assert outcome(acks) == ["done"]
    talk.ask(fetching=False)
    assert talk.lines == ["1 -> A epoch 1 1-0 (0-3:1)"]


def test_each_broker_is_asked_for_what_it_leads() -> None:
    talk = Talk({P0: 1, P1: 2})
    talk.ask()
    talk.bring(brought(P1, batch(0, 0), (0, 0, 1)), node=2)
    talk.ask()
    assert talk.lines == ["1 -> F epoch 0 1-0", "2 -> F epoch 0 1-1", "2 -> F epoch 1"]


def test_with_a_limit_on_records_one_broker_at_a_time_is_asked() -> None:
    talk = Talk({P0: 1, P1: 2}, record_limit=True)
    talk.ask()
    assert [talk.asked[node].max_records for node in (1, 2)] == [500, 0]
    talk.bring(brought(P0))
    talk.bring(brought(P1), node=2)
    talk.ask()
    talk.bring(brought(P1), node=2)
    talk.ask()
    assert talk.lines == [
        "1 -> F epoch 0 1-0", "2 -> F epoch 0 1-1", "2 -> F epoch 1", "1 -> F epoch 1",
    ]  # fmt: skip
    assert talk.asked[1].share_acquire_mode == 1


def test_offsets_without_a_record_are_told_as_gaps() -> None:
    """The cleaner took them, or they are control records'; nobody has to ask for that."""
    talk = Talk()
    talk.ask()
    data = batch(0, 3, without=(1, 3)) + batch(4, 4, control=True) + batch(5, 5)
    talk.bring(brought(P0, data, (0, 4, 1), (5, 5, 3)))
    assert talk.take() == ["0:0 x1", "0:2 x1", "0:5 x3"]
    talk.ask(fetching=False)
    assert talk.lines[1:] == ["1 -> A epoch 1 1-0 (1-1:0,3-4:0)"]


def test_others_records_in_a_batch_are_passed_over() -> None:
    talk = Talk()
    talk.ask()
    talk.bring(brought(P0, batch(0, 9) + batch(10, 12), (2, 3, 1), (8, 10, 1)))
    assert talk.take() == ["0:2 x1", "0:3 x1", "0:8 x1", "0:9 x1", "0:10 x1"]
    talk.ask(fetching=False)
    assert talk.lines[1:] == []


def test_a_damaged_batch_is_rejected_and_the_caller_hears_of_it() -> None:
    talk = Talk()
    talk.ask()
    broken = bytearray(batch(0, 2))
    broken[-1] ^= 1
    talk.bring(brought(P0, bytes(broken) + batch(3, 3), (1, 3, 1)))
    assert talk.take() == ["0:3 x1"]
    assert "checksum" in str(talk.machine.complaints.popleft())
    talk.ask(fetching=False)
    assert talk.lines[1:] == ["1 -> A epoch 1 1-0 (1-2:3)"]


def test_batches_are_handed_out_whole_and_at_most_so_many_records() -> None:
    talk = Talk(max_records=5)
    talk.ask()
    talk.bring(brought(P0, batch(0, 2) + batch(3, 4) + batch(5, 5), (0, 5, 1)))
    assert [len(talk.take()), len(talk.take()), len(talk.take())] == [5, 1, 0]


def test_a_renewed_record_comes_again_and_no_other_before_it() -> None:
    talk = Talk()
    talk.open(0, 1)
    (ack,) = talk.decide(o0=RENEW, o1=ACCEPT)
    assert talk.machine.is_renewing
    talk.ask()
    assert talk.asked[1].is_renew_ack
    assert talk.take() == []
    talk.bring(brought(P0))
    assert outcome([ack]) == ["done"]
    assert talk.take() == ["0:0 x1"]
    assert not talk.machine.is_renewing
    assert talk.machine.undecided == 1


def test_a_record_that_cannot_be_renewed_is_gone() -> None:
    talk = Talk()
    talk.open(0, 0)
    acks = talk.decide(o0=RENEW)
    talk.ask()
    talk.bring(brought(P0, acknowledge_error_code=Errors.INVALID_RECORD_STATE))
    assert outcome(acks) == ["INVALID_RECORD_STATE"]
    assert (talk.machine.is_renewing, talk.take()) == (False, [])


def test_what_is_not_held_cannot_be_acknowledged() -> None:
    talk = Talk()
    talk.open(0, 0)
    with pytest.raises(OutOfTurn, match=r"The record cannot be acknowledged\."):
        talk.machine.acknowledge(P0, 1, ACCEPT)
    talk.decide(o0=ACCEPT)
    with pytest.raises(OutOfTurn):
        talk.machine.acknowledge(P0, 0, ACCEPT)


def test_until_it_is_queued_the_last_word_counts() -> None:
    talk = Talk()
    talk.open(0, 1)
    talk.machine.acknowledge(P0, 0, RELEASE)
    assert talk.machine.undecided == 1
    talk.machine.acknowledge(P0, 0, REJECT)
    talk.machine.accept_all()
    talk.machine.queue(1_000)
    talk.ask(fetching=False)
    assert talk.lines == ["1 -> A epoch 1 1-0 (0-1:3/1)"]


@pytest.mark.parametrize("fetching", [True, False])
def test_an_error_that_passes_is_tried_again(fetching: bool) -> None:
    talk = Talk()
    talk.open(0, 0)
    acks = talk.decide(o0=ACCEPT)
    talk.ask(fetching=fetching)
    code = Errors.COORDINATOR_NOT_AVAILABLE
    talk.bring(brought(P0, acknowledge_error_code=code)) if fetching else talk.reply({P0: code})
    talk.ask(fetching=False)
    assert len(talk.lines) == 1
    due = talk.machine.due_ms(talk.now_ms, fetching=False)
    assert due == 100
    talk.now_ms = due
    talk.ask(fetching=False)
    talk.reply({P0: 0})
    assert outcome(acks) == ["done"]
    assert talk.lines[1:] == ["1 -> A epoch 2 1-0 (0-0:1)"]


def test_and_given_up_when_its_time_is_over() -> None:
    talk = Talk()
    talk.open(0, 0)
    acks = talk.decide(o0=ACCEPT)
    while not acks[0].is_done:
        talk.ask(fetching=False)
        if talk.lines:
            talk.lines.clear()
            talk.reply({P0: Errors.COORDINATOR_LOAD_IN_PROGRESS})
        due = talk.machine.due_ms(talk.now_ms, fetching=False)
        talk.now_ms = talk.now_ms + 1 if due is None else due
    assert 9_000 <= talk.now_ms <= 12_000
    assert outcome(acks) == ["COORDINATOR_LOAD_IN_PROGRESS"]


@pytest.mark.parametrize("code", [Errors.INVALID_RECORD_STATE, Errors.NOT_LEADER_OR_FOLLOWER])
def test_an_error_that_stays_is_told_at_once(code: Errors) -> None:
    talk = Talk()
    talk.open(0, 0)
    acks = talk.decide(o0=ACCEPT)
    talk.ask(fetching=False)
    talk.reply({P0: code})
    assert outcome(acks) == [code.name]
    assert talk.machine.outdated == ({P0} if code == Errors.NOT_LEADER_OR_FOLLOWER else set())


def test_what_a_broker_does_not_answer_was_not_acknowledged() -> None:
    talk = Talk()
    talk.open(0, 0)
    acks = talk.decide(o0=ACCEPT)
    talk.ask(fetching=False)
    talk.reply({})
    assert outcome(acks) == ["INVALID_RECORD_STATE"]


@pytest.mark.parametrize(
    "code",
    [
        Errors.SHARE_SESSION_NOT_FOUND, Errors.INVALID_SHARE_SESSION_EPOCH,
        Errors.SHARE_SESSION_LIMIT_REACHED,
    ],
)  # fmt: skip
def test_a_session_that_is_over_is_opened_anew_and_what_it_brought_is_others(code: Errors) -> None:
    talk = Talk(max_records=2)
    talk.ask()
    talk.bring(brought(P0, batch(0, 1) + batch(2, 3), (0, 3, 1)))
    assert talk.take() == ["0:0 x1", "0:1 x1"]
    talk.machine.accept_all()
    acks = talk.machine.queue(1_000)
    talk.ask(fetching=False)
    talk.reply(error=code)
    assert outcome(acks) == [code.name if code == Errors.SHARE_SESSION_LIMIT_REACHED else "NETWORK_EXCEPTION"]
    assert talk.take() == []
    talk.now_ms = 100
    talk.ask()
    assert talk.lines[2:] == ["1 -> F epoch 0 1-0"]


def test_a_broker_that_is_lost_is_asked_again_after_a_pause_and_the_leader_looked_for() -> None:
    talk = Talk()
    talk.open(0, 1)
    acks = talk.decide(o0=ACCEPT)
    talk.ask()
    talk.machine.handle_failure(1, ConnectionLost("gone"), talk.now_ms)
    assert isinstance(acks[0].error, ConnectionLost)
    assert talk.machine.outdated == {P0}
    late = talk.decide(o1=ACCEPT)
    talk.ask()
    assert outcome(late) == ["on its way"]
    talk.now_ms = 100
    talk.ask()
    assert outcome(late) == ["NETWORK_EXCEPTION"]
    assert talk.lines == ["1 -> F epoch 1 1-0 (0-0:1)", "1 -> F epoch 0 1-0"]


def test_the_session_of_a_broker_that_leads_nothing_more_is_closed_when_its_records_are_done() -> None:
    talk = Talk({P0: 1, P1: 2})
    talk.open(0, 0)
    talk.bring(brought(P1), node=2)
    talk.machine.assign({P1: 2})
    talk.ask()
    talk.bring()
    talk.bring(brought(P1), node=2)
    acks = talk.decide(o0=ACCEPT)
    talk.ask(fetching=False)
    talk.reply({P0: 0})
    assert outcome(acks) == ["done"]
    talk.ask()
    talk.reply()
    talk.bring(brought(P1), node=2)
    talk.ask()
    assert [line for line in talk.lines if line.startswith("1")] == [
        "1 -> F epoch 1 not 1-0", "1 -> A epoch 2 1-0 (0-0:1)", "1 -> A epoch -1",
    ]  # fmt: skip


def test_it_closes_with_what_was_decided() -> None:
    talk = Talk()
    talk.open(0, 1)
    acks = talk.decide(o0=ACCEPT)
    talk.machine.close()
    assert not talk.machine.is_closed
    talk.ask()
    talk.reply({P0: 0})
    assert outcome(acks) == ["done"]
    assert talk.machine.is_closed
    talk.ask()
    assert talk.lines == ["1 -> A epoch -1 1-0 (0-0:1)"]


def test_it_closes_when_a_fetch_that_is_under_way_is_answered() -> None:
    """What that brings is given back by the end of the session."""
    talk = Talk()
    talk.ask()
    talk.machine.close()
    talk.ask()
    talk.bring(brought(P0, batch(0, 1), (0, 1, 1)))
    assert talk.take() == []
    talk.ask()
    talk.machine.handle_failure(1, ConnectionLost("gone"), talk.now_ms)
    assert talk.machine.is_closed
    assert talk.lines == ["1 -> F epoch 0 1-0", "1 -> A epoch -1"]


def test_one_that_was_thrown_out_has_nothing_and_begins_anew() -> None:
    talk = Talk()
    talk.open(0, 1)
    acks = talk.decide(o0=ACCEPT)
    talk.ask()
    talk.machine.member_lost(KafkaError(Errors.UNKNOWN_MEMBER_ID))
    assert outcome(acks) == ["UNKNOWN_MEMBER_ID"]
    talk.bring(brought(P0, batch(2, 3), (2, 3, 1)))
    assert talk.take() == []
    talk.ask()
    assert talk.lines[-1] == "1 -> F epoch 0 1-0"


def test_errors_that_no_time_mends_are_the_callers_to_hear() -> None:
    talk = Talk()
    talk.ask()
    talk.bring(error=Errors.GROUP_AUTHORIZATION_FAILED)
    talk.now_ms = 100
    talk.ask()
    talk.bring(brought(P0, error_code=Errors.TOPIC_AUTHORIZATION_FAILED))
    heard: list[ClientError] = list(talk.machine.complaints)
    assert [error.name for error in heard if isinstance(error, KafkaError)] == [
        "GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED",
    ]  # fmt: skip
    assert talk.lines == ["1 -> F epoch 0 1-0", "1 -> F epoch 0 1-0"]
