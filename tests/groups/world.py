"""A group shard in a world of plain values: a log that is a list, a clock that is a number.

`World` is a runner of the contract as the broker's coordinator is, without I/O: it carries out outcomes,
keeps timers, remembers who waits. Transcripts and properties both run on it. Requests go through the codec
in both directions, so that a test sees what a client would.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.shard import GroupShard
from konvene.records.commits import OffsetCommitted, decode_group_record, encode_group_record
from konvene.records.coordinator import Record
from konvene.shard.contract import Arm, Context, Outcome, Rebalance
from konvene.shard.errors import GroupError
from konvene.shard.image import Topic, Topics

Batch = tuple[tuple[bytes, bytes | None], ...]

TOPICS = Topics(
    [Topic("orders", Uuid(b"orders".ljust(16, b"-")), 6), Topic("audit", Uuid(b"audit".ljust(16, b"-")), 2)]
)


@dataclass
class World:
    """One shard, its log, its timers, its waiting requests."""

    settings: dict[str, str] = field(default_factory=dict)
    now_ms: int = 1_000_000
    shard: GroupShard = field(default_factory=GroupShard)
    log: list[Batch] = field(default_factory=list)
    timers: dict[Any, int] = field(default_factory=dict)
    waiting: dict[int, str] = field(default_factory=dict)
    answers: dict[str, Struct | Errors] = field(default_factory=dict)
    why: list[Rebalance] = field(default_factory=list)
    last_waiter: int = 0
    last_id: int = 0
    happened: list[str] = field(default_factory=list)
    topics: Topics = TOPICS

    def __post_init__(self) -> None:
        self.config, _ = BrokerConfig.load(overrides=list(self.settings.items()))

    # --- asking ---

    def ask(
        self, who: str, request: Struct, version: int, *, client_id: str | None = None
    ) -> Struct | Errors | None:
        """Send a request through the codec; the answer, or None if it is held back."""
        request = decode(type(request), version, encode(request, version))
        self.last_waiter += 1
        waiter = self.last_waiter
        self.waiting[waiter] = who
        self.answers.pop(who, None)
        self.last_id += 1
        context = Context(
            self.now_ms,
            self.config,
            waiter,
            version,
            client_id or who,
            "/127.0.0.1",
            (f"{self.last_id}",),
            self.topics,
        )
        try:
            outcome = self.shard.handle(request, context)
        except GroupError as refused:
            del self.waiting[waiter]
            self.answers[who] = refused.error
            self.happened.append(f"{who} <- {refused.error.name}")
            return refused.error
        self.carry_out(outcome)
        return self.answers.get(who)

    # --- the runner ---

    def carry_out(self, outcome: Outcome) -> None:
        if outcome.records:
            batch = tuple(encode_group_record(r) for r in outcome.records)
            self.log.append(batch)  # type: ignore[arg-type]
            self.happened.extend(f"record {_record_line(r)}" for r in outcome.records)
        for record in outcome.records:
            self.shard.replay(record)
        for record in outcome.soft_records:
            self.shard.replay(record)
        for timer in outcome.timers:
            if isinstance(timer, Arm):
                self.timers[timer.key] = self.now_ms + timer.after_ms
            else:
                self.timers.pop(timer.key, None)
        for waiter, response in outcome.replies:
            who = self.waiting.pop(waiter)
            self.answers[who] = response
            self.happened.append(f"{who} <- {response!r}")
        for rebalance in outcome.why:
            self.why.append(rebalance)
            self.happened.append(_why_line(rebalance))

    def advance(self, ms: int) -> None:
        """Let time pass; timers ring in the order of their deadlines."""
        end = self.now_ms + ms
        while True:
            due = sorted((at, repr(key), key) for key, at in self.timers.items() if at <= end)
            if not due:
                break
            at, _, key = due[0]
            self.now_ms = max(self.now_ms, at)
            del self.timers[key]
            self.happened.append(f"timer {' '.join(key)}")
            self.carry_out(self.shard.expire(key, Context(self.now_ms, self.config, topics=self.topics)))
        self.now_ms = end

    def restart(self) -> None:
        """Forget all but the log."""
        for waiter in list(self.waiting):
            who = self.waiting.pop(waiter)
            self.answers[who] = Errors.NOT_COORDINATOR
            self.happened.append(f"{who} <- NOT_COORDINATOR")
        self.shard = replayed(self.log)
        self.timers.clear()
        self.carry_out(self.shard.load(Context(self.now_ms, self.config, topics=self.topics)))

    def group(self, group_id: str) -> ClassicGroup:
        return self.shard.groups[group_id]


def replayed(log: list[Batch]) -> GroupShard:
    """A shard made from a log."""
    shard = GroupShard()
    for batch in log:
        for key, value in batch:
            record = decode_group_record(key, value)
            assert record is not None
            shard.replay(record)
    return shard


def durable(group: ClassicGroup) -> ClassicGroup:
    """What of a group survives a restart right now."""
    key, value = encode_group_record(classic_log.to_record(group))
    record = decode_group_record(key, value)
    shard = GroupShard()
    shard.replay(record)
    return shard.groups[group.group_id]


def _record_line(record: Record | OffsetCommitted) -> str:
    if isinstance(record, OffsetCommitted):
        told = "deleted" if record.committed is None else f"offset {record.committed.offset}"
        return f"offset {record.group} {record.topic}-{record.partition} {told}"
    key: Any = record.key
    value: Any = record.value
    if value is None:
        return f"group {key.group} deleted"
    members = ", ".join(
        m.member_id + (f"={m.assignment.decode()}" if m.assignment else "") for m in value.members
    )
    return f"group {key.group} generation {value.generation} [{members}]"


def _why_line(rebalance: Rebalance) -> str:
    story = rebalance.story
    told = ", ".join(f"{c.kind} {c.member_id}" + (f" ({c.reason})" if c.reason else "") for c in story.causes)
    return f"why generation {story.epoch} {story.state}: {told}"


__all__ = ["TOPICS", "State", "World", "durable", "replayed"]
