"""`ShareMachine`: requests and acknowledgements of a share consumer, as transcripts.

A line `->` is a request to a broker: F for ShareFetch, A for ShareAcknowledge.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.test_share_session import described

from konvene.client.errors import ClientError, ConnectionLost, CorruptRecord, KafkaError, OutOfTurn
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


def fetched(unit: Unit, data: bytes = b"", *acquired: tuple[int, int, int], **more: Any) -> Any:
    """Return a partition of a ShareFetch response; `acquired` has first offset, last offset, delivery
    count."""
    rows = tuple(
        share_fetch.AcquiredRecords(first_offset=a, last_offset=b, delivery_count=n) for a, b, n in acquired
    )
    return unit, share_fetch.PartitionData(
        partition_index=unit[1], records=data, acquired_records=rows, **more
    )


class MachineFixture:
    """A machine with a virtual clock and a transcript of its requests."""

    def __init__(self, leaders: dict[Unit, int] | None = None, **terms: Any) -> None:
        self.machine = ShareMachine("g", "m", FetchTerms(**terms))
        self.machine.assign(leaders or {P0: 1})
        self.now_ms = 0
        self.lines: list[str] = []
        self.requests: dict[int, Any] = {}

    def ask(self, *, fetching: bool = True) -> None:
        for node, request in self.machine.requests(self.now_ms, fetching=fetching):
            kind = "F" if isinstance(request, ShareFetchRequest) else "A"
            self.requests[node] = request
            self.lines.append(f"{node} -> {kind} {described(request)}")

    def respond_fetch(self, *rows: Any, node: int = 1, error: int = 0) -> None:
        topics = tuple(
            share_fetch.ShareFetchableTopicResponse(topic_id=unit[0], partitions=(row,)) for unit, row in rows
        )
        response = share_fetch.ShareFetchResponse(
            error_code=error, responses=topics, acquisition_lock_timeout_ms=30_000
        )
        self.machine.handle_response(node, response, self.now_ms)

    def reply(self, errors: dict[Unit, int] | None = None, *, node: int = 1, error: int = 0) -> None:
        """Answer a ShareAcknowledge."""
        topics = tuple(
            share_acknowledge.ShareAcknowledgeTopicResponse(
                topic_id=unit[0],
                partitions=(share_acknowledge.PartitionData(partition_index=unit[1], error_code=code),),
            )
            for unit, code in (errors or {}).items()
        )
        response = share_acknowledge.ShareAcknowledgeResponse(error_code=error, responses=topics)
        self.machine.handle_response(node, response, self.now_ms)

    def take(self) -> list[str]:
        return [f"{d.unit[1]}:{d.record.offset} x{d.delivery_count}" for d in self.machine.take()]

    def decide(self, unit: Unit = P0, **kinds: int) -> list[Acknowledgement]:
        """Acknowledge offsets, such as `o4=ACCEPT`, and queue the acknowledgements."""
        for offset, kind in kinds.items():
            self.machine.acknowledge(unit, int(offset[1:]), kind)
        return self.machine.queue(self.now_ms + 10_000)

    def open(self, first: int = 0, last: int = 3) -> list[str]:
        """Open a session and take its records."""
        self.ask()
        self.respond_fetch(fetched(P0, batch(first, last), (first, last, 1)))
        self.lines.clear()
        return self.take()


def outcome(acks: list[Acknowledgement]) -> list[str]:
    return [
        ("pending" if not ack.is_done else ack.error.name if isinstance(ack.error, KafkaError) else "done")
        for ack in acks
    ]


def test_next_fetch_carries_the_acknowledgements() -> None:
    fixture = MachineFixture()
    fixture.ask()
    fixture.respond_fetch(fetched(P0, batch(5, 8), (5, 7, 2)))
    assert fixture.take() == ["0:5 x2", "0:6 x2", "0:7 x2"]
    acks = fixture.decide(o5=ACCEPT, o6=RELEASE, o7=REJECT)
    fixture.ask()
    assert outcome(acks) == ["pending"]
    fixture.respond_fetch(fetched(P0))
    assert outcome(acks) == ["done"]
    assert list(fixture.machine.done) == acks
    assert fixture.machine.lock_ms == 30_000
    fixture.ask()
    assert fixture.lines == ["1 -> F epoch 0 1-0", "1 -> F epoch 1 1-0 (5-7:1/2/3)", "1 -> F epoch 2"]


def test_acknowledges_without_fetching() -> None:
    fixture = MachineFixture()
    assert fixture.open() == ["0:0 x1", "0:1 x1", "0:2 x1", "0:3 x1"]
    fixture.machine.accept_all()
    acks = fixture.machine.queue(1_000)
    fixture.ask(fetching=False)
    fixture.ask()  # One request at a time.
    fixture.reply({P0: 0})
    assert outcome(acks) == ["done"]
    fixture.ask(fetching=False)
    assert fixture.lines == ["1 -> A epoch 1 1-0 (0-3:1)"]


def test_each_broker_gets_requests_for_its_partitions() -> None:
    fixture = MachineFixture({P0: 1, P1: 2})
    fixture.ask()
    fixture.respond_fetch(fetched(P1, batch(0, 0), (0, 0, 1)), node=2)
    fixture.ask()
    assert fixture.lines == ["1 -> F epoch 0 1-0", "2 -> F epoch 0 1-1", "2 -> F epoch 1"]


def test_record_limit_fetches_from_one_broker_at_a_time() -> None:
    fixture = MachineFixture({P0: 1, P1: 2}, record_limit=True)
    fixture.ask()
    assert [fixture.requests[node].max_records for node in (1, 2)] == [500, 0]
    fixture.respond_fetch(fetched(P0))
    fixture.respond_fetch(fetched(P1), node=2)
    fixture.ask()
    fixture.respond_fetch(fetched(P1), node=2)
    fixture.ask()
    assert fixture.lines == [
        "1 -> F epoch 0 1-0", "2 -> F epoch 0 1-1", "2 -> F epoch 1", "1 -> F epoch 1",
    ]  # fmt: skip
    assert fixture.requests[1].share_acquire_mode == 1


def test_offsets_without_record_are_acknowledged_as_gaps() -> None:
    """Offsets removed by the cleaner and control records are acknowledged as gaps automatically."""
    fixture = MachineFixture()
    fixture.ask()
    data = batch(0, 3, without=(1, 3)) + batch(4, 4, control=True) + batch(5, 5)
    fixture.respond_fetch(fetched(P0, data, (0, 4, 1), (5, 5, 3)))
    assert fixture.take() == ["0:0 x1", "0:2 x1", "0:5 x3"]
    fixture.ask(fetching=False)
    assert fixture.lines[1:] == ["1 -> A epoch 1 1-0 (1-1:0,3-4:0)"]


def test_records_of_other_members_in_a_batch_are_skipped() -> None:
    fixture = MachineFixture()
    fixture.ask()
    fixture.respond_fetch(fetched(P0, batch(0, 9) + batch(10, 12), (2, 3, 1), (8, 10, 1)))
    assert fixture.take() == ["0:2 x1", "0:3 x1", "0:8 x1", "0:9 x1", "0:10 x1"]
    fixture.ask(fetching=False)
    assert fixture.lines[1:] == []


def test_damaged_batch_is_rejected_and_reported() -> None:
    fixture = MachineFixture()
    fixture.ask()
    broken = bytearray(batch(0, 2))
    broken[-1] ^= 1
    fixture.respond_fetch(fetched(P0, bytes(broken) + batch(3, 3), (1, 3, 1)))
    assert fixture.take() == ["0:3 x1"]
    complaint = fixture.machine.complaints.popleft()
    assert isinstance(complaint, CorruptRecord) and "checksum" in str(complaint)
    fixture.ask(fetching=False)
    assert fixture.lines[1:] == ["1 -> A epoch 1 1-0 (1-2:3)"]


def test_take_returns_whole_batches_up_to_the_limit() -> None:
    fixture = MachineFixture(max_records=5)
    fixture.ask()
    fixture.respond_fetch(fetched(P0, batch(0, 2) + batch(3, 4) + batch(5, 5), (0, 5, 1)))
    assert [len(fixture.take()), len(fixture.take()), len(fixture.take())] == [5, 1, 0]


def test_renewed_record_is_returned_before_others() -> None:
    fixture = MachineFixture()
    fixture.open(0, 1)
    (ack,) = fixture.decide(o0=RENEW, o1=ACCEPT)
    assert fixture.machine.is_renewing
    fixture.ask()
    assert fixture.requests[1].is_renew_ack
    assert fixture.take() == []
    fixture.respond_fetch(fetched(P0))
    assert outcome([ack]) == ["done"]
    assert fixture.take() == ["0:0 x1"]
    assert not fixture.machine.is_renewing
    assert fixture.machine.undecided == 1


def test_failed_renewal_drops_the_record() -> None:
    fixture = MachineFixture()
    fixture.open(0, 0)
    acks = fixture.decide(o0=RENEW)
    fixture.ask()
    fixture.respond_fetch(fetched(P0, acknowledge_error_code=Errors.INVALID_RECORD_STATE))
    assert outcome(acks) == ["INVALID_RECORD_STATE"]
    assert (fixture.machine.is_renewing, fixture.take()) == (False, [])


def test_acknowledging_a_record_that_is_not_held_fails() -> None:
    fixture = MachineFixture()
    fixture.open(0, 0)
    with pytest.raises(OutOfTurn, match=r"The record cannot be acknowledged\."):
        fixture.machine.acknowledge(P0, 1, ACCEPT)
    fixture.decide(o0=ACCEPT)
    with pytest.raises(OutOfTurn):
        fixture.machine.acknowledge(P0, 0, ACCEPT)


def test_last_acknowledgement_before_queueing_wins() -> None:
    fixture = MachineFixture()
    fixture.open(0, 1)
    fixture.machine.acknowledge(P0, 0, RELEASE)
    assert fixture.machine.undecided == 1
    fixture.machine.acknowledge(P0, 0, REJECT)
    fixture.machine.accept_all()
    fixture.machine.queue(1_000)
    fixture.ask(fetching=False)
    assert fixture.lines == ["1 -> A epoch 1 1-0 (0-1:3/1)"]


@pytest.mark.parametrize("fetching", [True, False])
def test_retriable_error_is_retried(fetching: bool) -> None:
    fixture = MachineFixture()
    fixture.open(0, 0)
    acks = fixture.decide(o0=ACCEPT)
    fixture.ask(fetching=fetching)
    code = Errors.COORDINATOR_NOT_AVAILABLE
    fixture.respond_fetch(fetched(P0, acknowledge_error_code=code)) if fetching else fixture.reply({P0: code})
    fixture.ask(fetching=False)
    assert len(fixture.lines) == 1
    due = fixture.machine.due_ms(fixture.now_ms, fetching=False)
    assert due == 100
    fixture.now_ms = due
    fixture.ask(fetching=False)
    fixture.reply({P0: 0})
    assert outcome(acks) == ["done"]
    assert fixture.lines[1:] == ["1 -> A epoch 2 1-0 (0-0:1)"]


def test_retries_end_at_the_deadline() -> None:
    fixture = MachineFixture()
    fixture.open(0, 0)
    acks = fixture.decide(o0=ACCEPT)
    while not acks[0].is_done:
        fixture.ask(fetching=False)
        if fixture.lines:
            fixture.lines.clear()
            fixture.reply({P0: Errors.COORDINATOR_LOAD_IN_PROGRESS})
        due = fixture.machine.due_ms(fixture.now_ms, fetching=False)
        fixture.now_ms = fixture.now_ms + 1 if due is None else due
    assert 9_000 <= fixture.now_ms <= 12_000
    assert outcome(acks) == ["COORDINATOR_LOAD_IN_PROGRESS"]


@pytest.mark.parametrize("code", [Errors.INVALID_RECORD_STATE, Errors.NOT_LEADER_OR_FOLLOWER])
def test_fatal_error_is_reported_at_once(code: Errors) -> None:
    fixture = MachineFixture()
    fixture.open(0, 0)
    acks = fixture.decide(o0=ACCEPT)
    fixture.ask(fetching=False)
    fixture.reply({P0: code})
    assert outcome(acks) == [code.name]
    assert fixture.machine.outdated == ({P0} if code == Errors.NOT_LEADER_OR_FOLLOWER else set())


def test_partition_missing_in_the_response_is_not_acknowledged() -> None:
    fixture = MachineFixture()
    fixture.open(0, 0)
    acks = fixture.decide(o0=ACCEPT)
    fixture.ask(fetching=False)
    fixture.reply({})
    assert outcome(acks) == ["INVALID_RECORD_STATE"]


@pytest.mark.parametrize(
    "code",
    [
        Errors.SHARE_SESSION_NOT_FOUND, Errors.INVALID_SHARE_SESSION_EPOCH,
        Errors.SHARE_SESSION_LIMIT_REACHED,
    ],
)  # fmt: skip
def test_lost_session_is_reopened_and_its_records_are_dropped(code: Errors) -> None:
    fixture = MachineFixture(max_records=2)
    fixture.ask()
    fixture.respond_fetch(fetched(P0, batch(0, 1) + batch(2, 3), (0, 3, 1)))
    assert fixture.take() == ["0:0 x1", "0:1 x1"]
    fixture.machine.accept_all()
    acks = fixture.machine.queue(1_000)
    fixture.ask(fetching=False)
    fixture.reply(error=code)
    assert outcome(acks) == [code.name if code == Errors.SHARE_SESSION_LIMIT_REACHED else "NETWORK_EXCEPTION"]
    assert fixture.take() == []
    fixture.now_ms = 100
    fixture.ask()
    assert fixture.lines[2:] == ["1 -> F epoch 0 1-0"]


def test_lost_broker_is_retried_after_a_backoff_with_a_metadata_refresh() -> None:
    fixture = MachineFixture()
    fixture.open(0, 1)
    acks = fixture.decide(o0=ACCEPT)
    fixture.ask()
    fixture.machine.handle_failure(1, ConnectionLost("closed"), fixture.now_ms)
    assert isinstance(acks[0].error, ConnectionLost)
    assert fixture.machine.outdated == {P0}
    late = fixture.decide(o1=ACCEPT)
    fixture.ask()
    assert outcome(late) == ["pending"]
    fixture.now_ms = 100
    fixture.ask()
    assert outcome(late) == ["NETWORK_EXCEPTION"]
    assert fixture.lines == ["1 -> F epoch 1 1-0 (0-0:1)", "1 -> F epoch 0 1-0"]


def test_session_without_partitions_is_closed_after_its_acknowledgements() -> None:
    fixture = MachineFixture({P0: 1, P1: 2})
    fixture.open(0, 0)
    fixture.respond_fetch(fetched(P1), node=2)
    fixture.machine.assign({P1: 2})
    fixture.ask()
    fixture.respond_fetch()
    fixture.respond_fetch(fetched(P1), node=2)
    acks = fixture.decide(o0=ACCEPT)
    fixture.ask(fetching=False)
    fixture.reply({P0: 0})
    assert outcome(acks) == ["done"]
    fixture.ask()
    fixture.reply()
    fixture.respond_fetch(fetched(P1), node=2)
    fixture.ask()
    assert [line for line in fixture.lines if line.startswith("1")] == [
        "1 -> F epoch 1 not 1-0", "1 -> A epoch 2 1-0 (0-0:1)", "1 -> A epoch -1",
    ]  # fmt: skip


def test_close_sends_queued_acknowledgements() -> None:
    fixture = MachineFixture()
    fixture.open(0, 1)
    acks = fixture.decide(o0=ACCEPT)
    fixture.machine.close()
    assert not fixture.machine.is_closed
    fixture.ask()
    fixture.reply({P0: 0})
    assert outcome(acks) == ["done"]
    assert fixture.machine.is_closed
    fixture.ask()
    assert fixture.lines == ["1 -> A epoch -1 1-0 (0-0:1)"]


def test_close_waits_for_a_pending_fetch() -> None:
    """Records acquired by that fetch are released when the session ends."""
    fixture = MachineFixture()
    fixture.ask()
    fixture.machine.close()
    fixture.ask()
    fixture.respond_fetch(fetched(P0, batch(0, 1), (0, 1, 1)))
    assert fixture.take() == []
    fixture.ask()
    fixture.machine.handle_failure(1, ConnectionLost("closed"), fixture.now_ms)
    assert fixture.machine.is_closed
    assert fixture.lines == ["1 -> F epoch 0 1-0", "1 -> A epoch -1"]


def test_removed_member_drops_its_records_and_starts_over() -> None:
    fixture = MachineFixture()
    fixture.open(0, 1)
    acks = fixture.decide(o0=ACCEPT)
    fixture.ask()
    fixture.machine.member_lost(KafkaError(Errors.UNKNOWN_MEMBER_ID))
    assert outcome(acks) == ["UNKNOWN_MEMBER_ID"]
    fixture.respond_fetch(fetched(P0, batch(2, 3), (2, 3, 1)))
    assert fixture.take() == []
    fixture.ask()
    assert fixture.lines[-1] == "1 -> F epoch 0 1-0"


def test_fatal_fetch_errors_are_reported_to_the_caller() -> None:
    fixture = MachineFixture()
    fixture.ask()
    fixture.respond_fetch(error=Errors.GROUP_AUTHORIZATION_FAILED)
    fixture.now_ms = 100
    fixture.ask()
    fixture.respond_fetch(fetched(P0, error_code=Errors.TOPIC_AUTHORIZATION_FAILED))
    errors: list[ClientError] = list(fixture.machine.complaints)
    assert [error.name for error in errors if isinstance(error, KafkaError)] == [
        "GROUP_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED",
    ]  # fmt: skip
    assert fixture.lines == ["1 -> F epoch 0 1-0", "1 -> F epoch 0 1-0"]
