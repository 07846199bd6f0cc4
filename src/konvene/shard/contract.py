"""The nouns of the contract between a pure core and the shell that runs it.

The shell's laws, which `runtime.coordinator` keeps and every other runner must:

1. An outcome's records are one atomic batch. They are appended, replayed, and only when they are durable do
   its replies leave. A reply of an outcome without records waits for what was appended before it.
   An outcome may say that it is enough for it to be written (`Outcome.when_written`).
2. If the append fails, every waiter is told NOT_COORDINATOR, the shard is dropped and loaded again.
3. Soft records are replayed after the records and never appended: what a restart may forget.
4. An outcome that is larger than a batch may be is refused whole, and the state is as it was.
5. Timers are told by key and distance; arming a key again moves it, unless it says that it does not. One key
   has one timer.
6. Effects are work for somebody else, done once the records are durable and before the replies leave.
7. Records on behalf of a producer are a batch of its open transaction; each is replayed as `InTransaction`.
   The end of one is a marker of its own, replayed as `TransactionEnded`. The log may refuse either, for the
   epoch of the producer or of its coordinator: the waiter is told, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from konvene.codec.schema import Struct
from konvene.records.audit import RebalanceValue
from konvene.records.coordinator import Record
from konvene.shard.image import NO_TOPICS, Topics

Waiter = int
"""The number of a request that waits for its answer."""


class GroupConfigs(Protocol):
    """What each group runs with (`configs.group_configs`): a value, made anew when settings change."""

    def of(self, group_id: str) -> Mapping[str, Any]:
        """The group's settings by Kafka's names, such as `consumer.session.timeout.ms`."""


class _Unsaid:
    """Where nobody says what groups run with, nobody may ask."""

    def of(self, group_id: str) -> Mapping[str, Any]:
        raise LookupError(f"this context does not say what group {group_id!r} runs with")


NO_ASSIGNORS: Final[Mapping[str, Any]] = MappingProxyType({})
NO_FEATURES: Final[Mapping[str, int]] = MappingProxyType({})


class Context(NamedTuple):
    """What a decision may not invent. Values only."""

    now_ms: int
    """The wall clock, for what is written down. Timers are told as distances instead."""
    config: Any
    """The broker's settings by Kafka's names, such as `config["group.max.size"]` (`configs.BrokerConfig`)."""
    waiter: Waiter = 0
    api_version: int = 0
    client_id: str = ""
    client_host: str = ""
    fresh_ids: tuple[str, ...] = ()
    """Random ids, as many as the request could need."""
    topics: Topics = NO_TOPICS
    group_configs: GroupConfigs = _Unsaid()
    assignors: Mapping[str, Any] = NO_ASSIGNORS
    """The server-side assignors on offer by name (`groups.assignors.Assignor`), the default first."""
    task_assignors: Mapping[str, Any] = NO_ASSIGNORS
    """The same for streams groups (`groups.assignors.tasks.contract.TaskAssignor`)."""
    principal: str = "User:ANONYMOUS"
    """On whose behalf, as Kafka writes it. Nobody has another name yet."""
    members: int = 0
    """How many there are in all groups of the broker, or were a moment ago."""
    fresh_producer_id: int = -1
    """A producer id that nobody has, where the request may need one; -1 where none was fetched."""
    features: Mapping[str, int] = NO_FEATURES
    """The levels of the cluster's features."""
    end_offset: int = 0
    """Where the log ends: the offset of the first record that is written now."""


class Reply(NamedTuple):
    """An answer to a request that waits."""

    waiter: Waiter
    response: Any
    """A response as it goes over the wire, or a value of the core's own where the broker itself asks."""


class Arm(NamedTuple):
    """Start a timer. One that runs is moved, or left alone where it is to be armed `unless_armed`."""

    key: Hashable
    after_ms: int
    unless_armed: bool = False


class Disarm(NamedTuple):
    """Stop a timer if it runs."""

    key: Hashable


class Effect(NamedTuple):
    """Work for the shell: a verb of the core's own and what it is about."""

    verb: str
    subject: Any


class Rebalance(NamedTuple):
    """Why a group's epoch or generation moved. The shell fills in the offsets that it explains."""

    group_id: str
    story: RebalanceValue


class Producer(NamedTuple):
    """Who has a transaction open: the id and the epoch."""

    producer_id: int
    epoch: int


class Ending(NamedTuple):
    """The end of a producer's transaction in one partition, as its marker says it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0
    """From 2 on the marker carries the producer's next epoch."""


class Outcome(NamedTuple):
    """What a core decided."""

    replies: tuple[Reply, ...] = ()
    records: tuple[Any, ...] = ()
    soft_records: tuple[Any, ...] = ()
    timers: tuple[Arm | Disarm, ...] = ()
    effects: tuple[Effect, ...] = ()
    why: tuple[Rebalance, ...] = ()
    producer: Producer | None = None
    """On whose behalf the records are written: they count when its transaction is committed."""
    ending: Ending | None = None
    """A marker, which goes without records."""
    when_written: bool = False
    """Its replies leave when it is written, and a kill takes nothing back; a power cut may. For what rests on
    no more than that itself, or what a restart finds out again."""
    may_wait: bool = False
    """Nobody acts on it: it may be made durable, and its replies may leave, some milliseconds later."""


NOTHING = Outcome()


class Core(Protocol):
    """A shard and its four functions, as a runner sees them."""

    def handle(self, request: Any, context: Context) -> Outcome:
        """Decide a request. Raises `Refusal`, and then nothing has changed."""

    def expire(self, key: Any, context: Context) -> Outcome:
        """Decide what follows from a timer that ran out."""

    def replay(self, record: Any) -> None:
        """Take a record, durable or soft, into the state."""

    def load(self, context: Context) -> Outcome:
        """What follows from the log just replayed: timers mostly."""

    def same_again(self, request: Struct, context: Context) -> tuple[object, tuple[Arm | Disarm, ...]] | None:
        """For a request that was accepted and changed nothing: a value and timers, such that as long as the
        shard holds this very value, the same request has the same answer and only sets these timers."""

    def holds(self, value: object) -> bool:
        """Whether that value is still what the shard has."""


__all__ = [
    "NOTHING", "NO_ASSIGNORS", "NO_FEATURES", "Arm", "Context", "Core", "Disarm", "Effect", "Ending",
    "GroupConfigs", "Outcome", "Producer", "Rebalance", "Record", "Reply", "Waiter",
]  # fmt: skip
