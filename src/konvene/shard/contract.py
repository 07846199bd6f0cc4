"""The types of the contract between a pure core and the shell that runs it.

A core (`Core`) decides what a request or timer changes; the shell has the log, the clock and the connections.
The rules of the shell, which `runtime.coordinator` and every other runner must keep:

1. The records of an outcome are one atomic batch. They are appended and replayed, and the replies leave only
   once the records are durable. A reply of an outcome without records waits for what was appended before it.
   `Outcome.when_written` relaxes "durable" to "written".
2. If the append fails, all waiting requests are answered with NOT_COORDINATOR, the shard is dropped and
   loaded again.
3. Soft records are replayed after the records and never appended: a restart may lose them.
4. An outcome that is larger than the maximum batch is rejected as a whole, and the state stays as it was.
5. Timers are given by key and delay. Arming a key again moves its timer, except with `unless_armed`. One key
   has one timer.
6. Effects are work for other components, started once the records are durable and before the replies leave.
7. Records with a producer are a batch of its open transaction; each is replayed as `InTransaction`. A
   transaction ends with a marker of its own, replayed as `TransactionEnded`. The log may reject either one
   for a stale producer or coordinator epoch: the request is answered with that error, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from konvene.codec.schema import Struct
from konvene.records.audit import RebalanceValue
from konvene.records.coordinator import Record
from konvene.security.principal import ANONYMOUS, KafkaPrincipal
from konvene.shard.image import NO_TOPICS, Topics

Waiter = int
"""Correlation number of a request that waits for its response."""


TimerKey = tuple[str, ...]
"""The key of a timer: its name, and the ids of what it is about."""


class Configs(Protocol):
    """Effective configs, looked up by Kafka's names: a `BrokerConfig`, or a mapping (a protocol class)."""

    def __getitem__(self, name: str, /) -> Any: ...


class GroupConfigs(Protocol):
    """The effective configs of all groups: an immutable value, replaced when configs change."""

    def of(self, group_id: str) -> Mapping[str, Any]:
        """Return the group's configs by Kafka's names, such as `consumer.session.timeout.ms`."""


class _NoGroupConfigs:
    """The default of a context without group configs: reading any is an error."""

    def of(self, group_id: str) -> Mapping[str, Any]:
        raise LookupError(
            f"this context has no configs for group {group_id!r}; pass group_configs to Context"
        )


NO_ASSIGNORS: Final[Mapping[str, Any]] = MappingProxyType({})
NO_FEATURES: Final[Mapping[str, int]] = MappingProxyType({})


class Context(NamedTuple):
    """The inputs of a decision, besides the request, that a pure core cannot obtain itself: no callables."""

    now_ms: int
    """The wall clock, for timestamps in records. Timers are given as delays instead."""
    config: Any
    """The broker's configs by Kafka's names, such as `config["group.max.size"]` (`configs.BrokerConfig`)."""
    waiter: Waiter = 0
    api_version: int = 0
    client_id: str = ""
    client_host: str = ""
    fresh_ids: tuple[str, ...] = ()
    """Random ids, as many as the request can need."""
    topics: Topics = NO_TOPICS
    group_configs: GroupConfigs = _NoGroupConfigs()
    assignors: Mapping[str, Any] = NO_ASSIGNORS
    """The available server-side assignors by name (`groups.assignors.Assignor`), the default first."""
    task_assignors: Mapping[str, Any] = NO_ASSIGNORS
    """The available task assignors of streams groups (`groups.assignors.tasks.contract.TaskAssignor`)."""
    principal: KafkaPrincipal = ANONYMOUS
    """The principal of the request."""
    members: int = 0
    """Number of members in all groups of the broker; it may lag behind by some moments."""
    fresh_producer_id: int = -1
    """An unused producer id if the request can need one; -1 if none was allocated."""
    features: Mapping[str, int] = NO_FEATURES
    """The finalized levels of the cluster's features."""
    end_offset: int = 0
    """End offset of the log: the offset that the next record will have."""
    may_have_lost_response: bool = False
    """Whether the last response to the member may be lost: this is the first heartbeat of a connection."""
    mutation_tokens: float | None = None
    """Partitions that the client's quota lets it create and delete now; below zero the quota is exhausted.
    None if nothing limits it."""


class Reply(NamedTuple):
    """The response to send to a waiting request."""

    waiter: Waiter
    response: Any
    """A response message, or a value of the core's own if the request came from the broker itself."""


class Arm(NamedTuple):
    """An instruction to start a timer that expires after `after_ms`.

    If it is running already, it is restarted, or with `unless_armed` left alone."""

    key: TimerKey
    after_ms: int
    unless_armed: bool = False


class Disarm(NamedTuple):
    """An instruction to stop a timer, if it is running."""

    key: TimerKey


class Effect(NamedTuple):
    """A side effect that a pure core requests of the runtime around it, which performs it once the
    outcome's records are durable.

    `verb` is a constant that the core defines, `subject` its parameters."""

    verb: str
    subject: Any


class Rebalance(NamedTuple):
    """A rebalance to record in the audit: the new epoch or generation of a group, and why.

    The shell adds the offsets of the outcome's records, which carried it out."""

    group_id: str
    value: RebalanceValue


class Producer(NamedTuple):
    """The producer of an open transaction: its id and epoch."""

    producer_id: int
    epoch: int


class Ending(NamedTuple):
    """The end of a producer's transaction in one partition, as written in its end-transaction marker."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0
    """From version 2 on the marker carries the producer's next epoch."""


class Mutations(NamedTuple):
    """Numbers of partitions that a request creates or deletes, and that a quota prevents it from changing."""

    accepted: int
    rejected: int


class Outcome(NamedTuple):
    """The result of a decision: what the shell has to reply, append, replay, schedule and start."""

    replies: tuple[Reply, ...] = ()
    records: tuple[Any, ...] = ()
    soft_records: tuple[object, ...] = ()
    timers: tuple[Arm | Disarm, ...] = ()
    effects: tuple[Effect, ...] = ()
    why: tuple[Rebalance, ...] = ()
    """Rows for the audit of rebalances that begin or end with this outcome."""
    producer: Producer | None = None
    """The transactional producer of the records: they take effect when its transaction commits."""
    ending: Ending | None = None
    """An end-transaction marker, which is written without records."""
    when_written: bool = False
    """Send the replies as soon as the batch is written: it survives a kill of the process, but maybe not a
    power failure. For outcomes that nothing depends on, or that a restart recomputes."""
    may_wait: bool = False
    """Nothing waits for the effect of this outcome: its fsync and replies may be delayed by milliseconds."""
    mutations: Mutations | None = None
    """What counts against the client's quota, as soon as it is decided."""


NOTHING = Outcome()


class Core(Protocol):
    """The interface that every shard implements, and through which the shell runs it."""

    def handle(self, request: Any, context: Context) -> Outcome:
        """Return the outcome of a request. Raises `Refusal` if it is rejected, with the state unchanged."""

    def expire(self, key: TimerKey, context: Context) -> Outcome:
        """Return the outcome of the expiry of the timer with this key."""

    def replay(self, record: Any) -> None:
        """Apply a record, durable or soft, to the state."""

    def load(self, context: Context) -> Outcome:
        """Return the outcome of loading, after the log was replayed: mostly timers to start."""

    def cacheable(self, request: Struct, context: Context) -> tuple[object, tuple[Arm | Disarm, ...]] | None:
        """Return how to repeat the response to a request that changed nothing; None if that is not possible.

        The result is a value and timers: as long as `is_current(value)`, the same request has the same
        response and only arms these timers."""

    def is_current(self, value: object) -> bool:
        """Return whether the state is still the one for which `cacheable` returned this value."""


__all__ = [
    "NOTHING", "NO_ASSIGNORS", "NO_FEATURES", "Arm", "Context", "Core", "Disarm", "Effect", "Ending",
    "GroupConfigs", "Mutations", "Outcome", "Producer", "Rebalance", "Record", "Reply", "Waiter",
]  # fmt: skip
