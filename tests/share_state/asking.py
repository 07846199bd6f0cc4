"""A share coordinator's shard with a log of its own, and nobody around it.

What it decides is written as bytes and read back from them, so a rule that writes what cannot be read, or
what reads otherwise than it was meant, does not get through. `again` is the shard that a restart would make.
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
NOBODY = SharePartitionKey("g", Uuid(b"x" * 16), 0)

CONFIG, _ = BrokerConfig.load(overrides=[])

Pair = tuple[bytes, bytes | None]


class Asked:
    """The shard, its log, and the clock."""

    def __init__(self, updates_per_snapshot: int = 500, topics: Topics = TOPICS) -> None:
        self.updates_per_snapshot = updates_per_snapshot
        self.shard = ShareStateShard(updates_per_snapshot)
        self.topics = topics
        self.log: list[Pair] = []
        self.start = 0
        """What is before it was cut off."""
        self.now_ms = 1_000
        self.effects: list[Effect] = []
        self.timers: dict[Any, int] = {}

    def context(self) -> Context:
        end = self.start + len(self.log)
        return Context(self.now_ms, CONFIG, waiter=1, topics=self.topics, end_offset=end)

    def ask(self, request: Any) -> Any:
        """What is answered."""
        outcome = self.shard.handle(request, self.context())
        self._carry_out(outcome)
        ((waiter, answer),) = outcome.replies
        assert waiter == 1
        return answer

    def inform(self, news: Any) -> None:
        self._carry_out(self.shard.handle(news, self.context()))

    def ring(self, key: Any) -> list[Effect]:
        """Let a timer run out; the effects."""
        outcome = self.shard.expire(key, self.context())
        self._carry_out(outcome)
        return list(outcome.effects)

    def _carry_out(self, outcome: Outcome) -> None:
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

    def cut(self, offset: int) -> None:
        """As the shell does with what is superfluous."""
        assert self.start <= offset <= self.start + len(self.log)
        del self.log[: offset - self.start]
        self.start = offset

    def again(self) -> ShareStateShard:
        """The shard as its log tells it."""
        shard = ShareStateShard(self.updates_per_snapshot)
        for offset, pair in enumerate(self.log, self.start):
            shard.replay(read(offset, pair))
        return shard

    @property
    def last(self) -> Record:
        return decoded(self.log[-1])

    # --- what is asked most ---

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
        told = tuple(StateBatch(*batch) for batch in batches)
        answer = self.ask(Write(key, state_epoch, leader_epoch, start, count, told))
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
    """As the broker's loader reads it."""
    record = decoded(pair)
    return PositionedRecord(offset, record) if type(record.key).__name__ == "ShareSnapshotKey" else record
