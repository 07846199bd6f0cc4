"""Test harness of the group core: a shard, its log as bytes, a clock, timers and pending background work.

Every record of a decision is encoded, decoded and replayed into the shard and into a second, shadow shard
that
sees only the log. There is no coordinator: a decision's records are durable at once.
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
"""Fields of a consumer group that are not in its log."""

Owned = dict[Uuid, tuple[int, ...]]


def topics(version: int = 0, **counts: int) -> Topics:
    """Return topics with the given partition counts; a topic's id is derived from its name."""
    return Topics(
        (Topic(name, Uuid(name.encode().ljust(16, b"-")), count) for name, count in counts.items()), version
    )


def logged_state(group: Any) -> Any:
    """Return the part of a group's state that its log must restore; None if nothing of it is logged yet."""
    if isinstance(group, ConsumerGroup):
        return {f.name: getattr(group, f.name) for f in fields(group) if f.name not in SOFT}
    settled = isinstance(group, ClassicGroup) and group.state in (State.STABLE, State.EMPTY)
    return classic_log.to_record(group) if settled else None


class GroupHarness:
    """A `GroupShard` that decides requests at once, with a clock and timers that the test drives."""

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
        self.pending_work: list[Any] = []
        self.rebalances: list[Rebalance] = []
        self.last = Outcome()
        self.replies: dict[int, Any] = {}
        self.request_id = 0

    def configure(self, settings: dict[str, str]) -> None:
        """Override settings; `_` stands for `.` in their names."""
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
            self.request_id,
            version,
            client_id,
            "/127.0.0.1",
            (f"{client_id}-{self.request_id}",),
            self.topics,
            self.group_configs,
            OFFERED,
        )

    # --- requests ---

    def ask(self, request: Any, version: int, client_id: str = "someone") -> Any:
        """Return the response, the error of a refusal, or None if the request waits; `replies` has every
        response."""
        request = decode(type(request), version, encode(request, version))
        self.request_id += 1
        try:
            outcome = self.shard.handle(request, self.context(client_id, version))
        except Refusal as refused:
            self.last = Outcome()
            self.replies[self.request_id] = refused.error
            return refused.error
        self.apply(outcome)
        return self.replies.get(self.request_id)

    def beat(self, member_id: str, epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a ConsumerGroupHeartbeat; a joining member subscribes to `orders` unless `fields` has a
        subscription."""
        values: dict[str, Any] = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
        if epoch == 0:
            values |= {"rebalance_timeout_ms": 30_000, "topic_partitions": ()}
            if "subscribed_topic_regex" not in fields:
                values["subscribed_topic_names"] = ("orders",)
        owned = fields.pop("owned", None)
        if owned is not None:
            values["topic_partitions"] = tuple(
                TopicPartitions(topic_id=topic, partitions=tuple(partitions))
                for topic, partitions in owned.items()
            )
        response = self.ask(ConsumerGroupHeartbeatRequest(**values | fields), 1, member_id)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def stable(self, *member_ids: str, **fields: Any) -> None:
        """Join the members and heartbeat until each has its target assignment."""
        for member_id in member_ids:
            self.beat(member_id, **fields)
        for _ in range(4):
            for member_id in member_ids:
                current = self.member(member_id).current
                self.beat(member_id, current.epoch, owned=without_epochs(current.assigned))
        assert repr(self.group) == f"<consumer g Stable epoch {self.group.epoch}, {len(member_ids)} members>"

    def advance(self, ms: int) -> None:
        """Advance the clock and fire the timers that are due."""
        end = self.now_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda key: (self.timers[key], repr(key)))
            if self.timers[key] > end:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.apply(self.shard.expire(key, self.context()))
        self.now_ms = end

    def restart(self, *, compact: bool = False) -> None:
        """Reload both shards from the log, optionally compacted first."""
        if compact:
            self.batches = compacted(self.batches, len(self.batches), False)
        self.shard, self.shadow = replayed(self.batches), replayed(self.batches)
        self.timers.clear()
        self.pending_work.clear()
        self.request_id += 1
        self.apply(self.shard.load(self.context()))

    def work(self, *, fails: bool = False) -> None:
        """Run the pending background work and deliver its results."""
        wanted, self.pending_work = self.pending_work, []
        for job in wanted:
            self.apply(self.shard.handle(self.run_job(job, fails), self.context()))

    @staticmethod
    def run_job(job: Any, fails: bool = False) -> Any:
        """Return the result of one piece of background work."""
        if isinstance(job, RegexesToResolve):
            matches = {} if fails else matching(job.regexes, sorted(job.topics.by_name))
            return RegexesResolved(job.group_id, matches, job.topics.version)
        assignment = PartitionAssignorError("it fails") if fails else job.assignor.assign(job.spec)
        return AssignmentComputed(job.group_id, job.epoch, job.assignor.name, assignment)

    # --- outcomes ---

    def apply(self, outcome: Outcome) -> None:
        """Apply an outcome: log and replay its records, arm timers, collect work and responses."""
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
        self.pending_work += (effect.subject for effect in outcome.effects)
        self.rebalances += outcome.why
        self.replies |= dict(outcome.replies)


def without_epochs(epochs: Epochs) -> Owned:
    """Return the partitions of an assignment without the epochs in which they were assigned."""
    return {topic: tuple(sorted(partitions)) for topic, partitions in epochs.items()}


def error(response: Any) -> Errors:
    """Return the error code of a response or refusal."""
    return response if isinstance(response, Errors) else Errors(response.error_code)
