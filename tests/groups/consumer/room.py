"""The pure core in a room of its own: a shard, its log as bytes, a clock, timers, and who asks.

Whatever is decided is encoded, decoded and replayed, into the shard and into a second one that sees nothing
but the log. There is no coordinator: a request is decided, and its records are durable at once.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from konvene.codec.compile import decode, encode
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.assignors import OFFERED, PartitionAssignorError
from konvene.groups.classic import log as classic_log
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.consumer.current_assignment import Epochs
from konvene.groups.consumer.group import ConsumerGroup, Member
from konvene.groups.consumer.regex import matching
from konvene.groups.consumer.work import AssignmentComputed, RegexesResolved, RegexesToResolve
from konvene.groups.shard import GroupShard
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from konvene.records.commits import encode_group_record
from konvene.shard.contract import Arm, Context, Outcome, Rebalance
from konvene.shard.errors import Refusal
from konvene.shard.image import Topic, Topics
from konvene.sim.journal import Batch, batch_of, replayed
from konvene.sim.world.compaction import compacted

ORDERS, AUDIT = (Uuid(name.encode().ljust(16, b"-")) for name in ("orders", "audit"))

SOFT = {"soft", "reached_ms"}
"""What of a consumer group its log does not say."""

Owned = dict[Uuid, tuple[int, ...]]


def topics(version: int = 0, **counts: int) -> Topics:
    """Topics by name, with so many partitions; an id is made of the name."""
    return Topics(
        (Topic(name, Uuid(name.encode().ljust(16, b"-")), count) for name, count in counts.items()), version
    )


def kept(group: Any) -> Any:
    """What of a group has to be in its log; None where that says nothing of it yet."""
    if isinstance(group, ConsumerGroup):
        return {f.name: getattr(group, f.name) for f in fields(group) if f.name not in SOFT}
    settled = isinstance(group, ClassicGroup) and group.state in (State.STABLE, State.EMPTY)
    return classic_log.to_record(group) if settled else None


class Room:
    """See the top of this file."""

    def __init__(self, **settings: str) -> None:
        self.settings = {
            "group.consumer.assignment.interval.ms": "0",
            "group.initial.rebalance.delay.ms": "0",
        }
        self.configure(settings)
        self.topics = topics(orders=6, audit=2)
        self.now_ms = 1_000_000
        self.shard, self.shadow = GroupShard(), GroupShard()
        self.batches: list[Batch] = []
        self.timers: dict[Any, int] = {}
        self.wanted: list[Any] = []
        self.why: list[Rebalance] = []
        self.last = Outcome()
        self.replies: dict[int, Any] = {}
        self.asked = 0

    def configure(self, settings: dict[str, str]) -> None:
        """Other settings; `_` stands for `.` in their names."""
        self.settings |= {name.replace("_", "."): value for name, value in settings.items()}
        self.config, _ = BrokerConfig.load(overrides=list(self.settings.items()))
        self.group_configs = GroupConfigs(self.config)

    @property
    def group(self) -> Any:
        return self.shard.groups.get("g")

    def member(self, member_id: str) -> Member:
        found: Member = self.group.members[member_id]
        return found

    def context(self, client_id: str = "", version: int = 0) -> Context:
        return Context(
            self.now_ms,
            self.config,
            self.asked,
            version,
            client_id,
            "/127.0.0.1",
            (f"{client_id}-{self.asked}",),
            self.topics,
            self.group_configs,
            OFFERED,
        )

    # --- what is asked ---

    def ask(self, request: Any, version: int, client_id: str = "someone") -> Any:
        """The answer, the error of a refusal, or None where it is held back; `replies` has all answers."""
        request = decode(type(request), version, encode(request, version))
        self.asked += 1
        try:
            outcome = self.shard.handle(request, self.context(client_id, version))
        except Refusal as refused:
            self.last = Outcome()
            self.replies[self.asked] = refused.error
            return refused.error
        self.take(outcome)
        return self.replies.get(self.asked)

    def beat(self, member_id: str, epoch: int = 0, **said: Any) -> ConsumerGroupHeartbeatResponse:
        """A ConsumerGroupHeartbeat. One that joins reads `orders`, where it does not say what."""
        told: dict[str, Any] = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
        if epoch == 0:
            told |= {"rebalance_timeout_ms": 30_000, "topic_partitions": ()}
            if "subscribed_topic_regex" not in said:
                told["subscribed_topic_names"] = ("orders",)
        owned = said.pop("owned", None)
        if owned is not None:
            told["topic_partitions"] = tuple(
                TopicPartitions(topic_id=topic, partitions=tuple(some)) for topic, some in owned.items()
            )
        answer = self.ask(ConsumerGroupHeartbeatRequest(**told | said), 1, member_id)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def stable(self, *member_ids: str, **said: Any) -> None:
        """All of them in one group, each with its target."""
        for member_id in member_ids:
            self.beat(member_id, **said)
        for _ in range(4):
            for member_id in member_ids:
                current = self.member(member_id).current
                self.beat(member_id, current.epoch, owned=plain(current.assigned))
        assert repr(self.group) == f"<consumer g Stable epoch {self.group.epoch}, {len(member_ids)} members>"

    def advance(self, ms: int) -> None:
        """Time passes, and timers run out."""
        end = self.now_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda key: (self.timers[key], repr(key)))
            if self.timers[key] > end:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.take(self.shard.expire(key, self.context()))
        self.now_ms = end

    def restart(self, *, compact: bool = False) -> None:
        """Forget all but the log, which may have been compacted meanwhile."""
        if compact:
            self.batches = compacted(self.batches, len(self.batches), False)
        self.shard, self.shadow = replayed(self.batches), replayed(self.batches)
        self.timers.clear()
        self.wanted.clear()
        self.asked += 1
        self.take(self.shard.load(self.context()))

    def work(self, *, fails: bool = False) -> None:
        """All that is to be done elsewhere is done, and what came of it told."""
        wanted, self.wanted = self.wanted, []
        for asked in wanted:
            self.take(self.shard.handle(self.done(asked, fails), self.context()))

    @staticmethod
    def done(asked: Any, fails: bool = False) -> Any:
        """What comes of work."""
        if isinstance(asked, RegexesToResolve):
            found = {} if fails else matching(asked.regexes, sorted(asked.topics.by_name))
            return RegexesResolved(asked.group_id, found, asked.topics.version)
        given = PartitionAssignorError("it fails") if fails else asked.assignor.assign(asked.spec)
        return AssignmentComputed(asked.group_id, asked.epoch, asked.assignor.name, given)

    # --- what follows ---

    def take(self, outcome: Outcome) -> None:
        """Carry out what was decided."""
        self.last = outcome
        if outcome.records:
            batch = batch_of([encode_group_record(record) for record in outcome.records])
            self.batches.append(batch)
            for record in batch.records:
                self.shadow.replay(record)
        for record in (*outcome.records, *outcome.soft_records):
            self.shard.replay(record)
        for timer in outcome.timers:
            if not isinstance(timer, Arm):
                self.timers.pop(timer.key, None)
            elif not (timer.unless_armed and timer.key in self.timers):
                self.timers[timer.key] = self.now_ms + timer.after_ms
        self.wanted += (effect.subject for effect in outcome.effects)
        self.why += outcome.why
        self.replies |= dict(outcome.replies)


def plain(epochs: Epochs) -> Owned:
    """Partitions without the epochs in which they were assigned."""
    return {topic: tuple(sorted(some)) for topic, some in epochs.items()}


def error(answer: Any) -> Errors:
    """With which error something was answered."""
    return answer if isinstance(answer, Errors) else Errors(answer.error_code)
