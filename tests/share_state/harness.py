"""A share coordinator shard with a log and a clock, and short methods for the requests of share partitions.

Records are encoded into the log and decoded again before they are replayed, so that every test covers them.
`restarted` returns another shard that replayed the log.
"""

from __future__ import annotations

from typing import Any

from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.records.coordinator import SHARE_STATE_RECORDS, Record, decode_record, encode_record
from konvene.shard.contract import Context, Effect, Outcome
from konvene.shard.image import Topic, Topics
from konvene.share_state.requests import (
    Answer,
    Initialize,
    Read,
    SharePartitionKey,
    StateAnswer,
    StateBatch,
    Write,
)
from konvene.share_state.shard import ShareStateShard
from konvene.share_state.state import PositionedRecord, SharePartitionState

ORDERS, BILLS = Uuid(b"orders.........."), Uuid(b"bills...........")
TOPICS = Topics([Topic("orders", ORDERS, 3), Topic("bills", BILLS, 1)])
KEY = SharePartitionKey("g", ORDERS, 0)
OTHER = SharePartitionKey("g", BILLS, 0)
UNKNOWN = SharePartitionKey("g", Uuid(b"x" * 16), 0)

CONFIG, _ = BrokerConfig.load(overrides=[])

Pair = tuple[bytes, bytes | None]


class ShareStateHarness:
    """A share coordinator shard with its log, clock and timers."""

    def __init__(self, updates_per_snapshot: int = 500, topics: Topics = TOPICS) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.shard = ShareStateShard(updates_per_snapshot)
        self.topics = topics
        self.log: list[Pair] = []
        self.start = 0
        """Offset of the first record in the log; DeleteRecords removed the ones before it."""
        self.now_ms = 1_000
        self.effects: list[Effect] = []
        self.timers: dict[Any, int] = {}

    def context(self) -> Context:
        end = self.start + len(self.log)
        return Context(self.now_ms, CONFIG, waiter=1, topics=self.topics, end_offset=end)

    def ask(self, request: Any) -> Any:
        """Return the response to a request."""
        outcome = self.shard.handle(request, self.context())
        self._apply(outcome)
        ((waiter, answer),) = outcome.replies
        assert waiter == 1
        return answer

    def inform(self, event: Any) -> None:
        self._apply(self.shard.handle(event, self.context()))

    def expire(self, key: Any) -> list[Effect]:
        """Fire a timer and return the requested effects."""
        outcome = self.shard.expire(key, self.context())
        self._apply(outcome)
        return list(outcome.effects)

    def _apply(self, outcome: Outcome) -> None:
        for record in outcome.records:
            offset = self.start + len(self.log)
            assert type(record) is Record or (type(record) is PositionedRecord and record.offset == offset)
            pair = encode_record(
                record.record if type(record) is PositionedRecord else record, SHARE_STATE_RECORDS
            )
            self.log.append(pair)
            self.shard.replay(read(offset, pair))
        for timer in outcome.timers:
            self.timers[timer.key] = timer.after_ms  # type: ignore[union-attr]

    def delete_records(self, offset: int) -> None:
        """Delete the records below an offset, as the broker does for a DELETE_RECORDS effect."""
        assert self.start <= offset <= self.start + len(self.log)
        del self.log[: offset - self.start]
        self.start = offset

    def restarted(self) -> ShareStateShard:
        """Return another shard that replayed the log."""
        shard = ShareStateShard(self.updates_per_snapshot)
        for offset, pair in enumerate(self.log, self.start):
            shard.replay(read(offset, pair))
        return shard

    @property
    def last(self) -> Record:
        return decoded(self.log[-1])

    # --- the most frequent requests ---

    def initialize(self, key: SharePartitionKey = KEY, state_epoch: int = 1, start_offset: int = 0) -> Answer:
        answer = self.ask(Initialize(key, state_epoch, start_offset))
        assert type(answer) is Answer
        return answer

    def write(
        self,
        *batches: tuple[int, int, int, int],
        key: SharePartitionKey = KEY,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start: int = 0,
        count: int = 0,
    ) -> Answer:
        state_batches = tuple(StateBatch(*batch) for batch in batches)
        answer = self.ask(Write(key, state_epoch, leader_epoch, start, count, state_batches))
        assert type(answer) is Answer
        return answer

    def read(self, key: SharePartitionKey = KEY, leader_epoch: int = 0) -> StateAnswer:
        answer = self.ask(Read(key, leader_epoch))
        assert type(answer) is StateAnswer
        return answer

    def state(self, key: SharePartitionKey = KEY) -> SharePartitionState:
        return self.shard.states[key]


def decoded(pair: Pair) -> Record:
    record = decode_record(*pair, SHARE_STATE_RECORDS)
    assert record is not None
    return record


def read(offset: int, pair: Pair) -> PositionedRecord | Record:
    """Decode a record and attach the offset of a snapshot, as the broker's loader does."""
    record = decoded(pair)
    return PositionedRecord(offset, record) if type(record.key).__name__ == "ShareSnapshotKey" else record
