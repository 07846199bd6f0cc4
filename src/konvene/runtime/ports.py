"""The ports of a coordinator: its log, its event loop and clock, its settings, and its observers.

A `Coordinator` runs a shard and knows nothing of the process around it. `Ports` holds everything that it uses
from there. The broker wires ports to its partitions and services; the simulator and the tests wire them to
logs in memory and to virtual time.

A shard's records reach the log through a `RecordSerde`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from konvene.codec.batches import BatchHeader, records
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.runtime.timers import Alarm, Clock
from konvene.shard.contract import (
    NO_ASSIGNORS,
    NO_FEATURES,
    Configs,
    Effect,
    Ending,
    Outcome,
    Producer,
    Rebalance,
)
from konvene.shard.image import NO_TOPICS, Topics

T = TypeVar("T")

Pair = tuple[bytes | None, bytes | None]
"""Key and value of a record as bytes; a value of None is a tombstone."""

RecordObserver = Callable[[int, int, object], None]
"""A function that is called with each record while a batch is loaded: offset, timestamp in ms, record."""


class RecordTooLarge(Exception):
    """Raised if the records of an outcome exceed the largest batch of the topic. Nothing was appended."""


class AppendRefused(Exception):
    """Raised if the log rejects a transactional batch or marker with `error`. Nothing was appended."""

    def __init__(self, error: Errors) -> None:
        super().__init__(error.name)
        self.error = error


class Journal(Protocol):
    """The log of a coordinator's partition, as a coordinator uses it."""

    @property
    def end_offset(self) -> int:
        """Return the offset of the next record to be appended."""

    @property
    def synced_offset(self) -> int:
        """Return the offset up to which (exclusive) the log is durable."""

    @property
    def online(self) -> bool:
        """Return False after an I/O error of the log's directory: no append or sync can succeed any more."""

    def append_pairs(self, pairs: list[Pair], now_ms: int, producer: Producer | None = None) -> int:
        """Append the records of an outcome atomically, and return the offset after them.

        With `producer`, they are a batch of that producer's transaction. Raises `RecordTooLarge`,
        `AppendRefused`, `OSError` or `LogOffline`."""

    def append_marker(self, ending: Ending, now_ms: int) -> int:
        """Append a transaction marker, and return the offset after it. Raises as `append_pairs`."""

    def write(self) -> None:
        """Pass all buffered batches to the operating system, so that they survive this process.

        Raises `OSError` or `LogOffline`."""

    async def sync(self) -> None:
        """Make everything appended so far durable."""

    def read_back(self) -> Iterable[tuple[BatchHeader, memoryview]]:
        """Return all batches of the log, from its start offset on."""


class RecordSerde(NamedTuple):
    """Encoder and decoder of a shard's records."""

    encode: Callable[[Any], Pair]
    read: Callable[[memoryview, BatchHeader], Iterable[tuple[int, int, object]]]
    """Decode a batch into (offset, timestamp in ms, record). Records of unknown types are skipped."""


class EventLoop(Clock, Protocol):
    """An event loop as far as a coordinator uses it: an asyncio loop, or one of virtual time."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Alarm: ...

    def create_task(self, coro: Coroutine[Any, Any, T], /) -> asyncio.Task[T]: ...


class ExplainedRebalance(NamedTuple):
    """A rebalance and the offsets of the records that carried it out; both offsets are -1 without records."""

    rebalance: Rebalance
    base_offset: int
    last_offset: int


def _ignore(_: object) -> None:
    """Do nothing: the default of observers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything that a coordinator uses of the process that it runs in.

    Providers without parameters are called once per decision, so that a decision sees current settings.
    Observers are called on the event loop and must not raise."""

    journal: Journal
    loop: EventLoop
    wall_clock_ms: Callable[[], int]
    config: Callable[[], Configs]
    """The settings of the broker (`BrokerConfig` or a mapping)."""
    group_configs: Callable[[], GroupConfigs] | None = None
    """The settings of each group; by default the broker's settings hold for all groups."""
    topics: Callable[[], Topics] = lambda: NO_TOPICS
    """The current image of the cluster's topics."""
    features: Callable[[], Mapping[str, int]] = lambda: NO_FEATURES
    """Finalized feature levels of the cluster."""
    member_count: Callable[[], int] = lambda: 0
    """Number of members in all groups of the broker."""
    assignors: Mapping[str, Any] = field(default_factory=lambda: NO_ASSIGNORS)
    """Server-side assignors of consumer and share groups by name."""
    task_assignors: Mapping[str, Any] = field(default_factory=lambda: NO_ASSIGNORS)
    """Task assignors of streams groups by name."""
    perform: Callable[[Effect], None] = _ignore
    """Performs an effect of a decision, once the decision is durable."""
    on_rebalance: Callable[[ExplainedRebalance], None] = _ignore
    """Receives each rebalance with its causes, once it is durable."""
    on_outcome: Callable[[Outcome], None] = _ignore
    """Receives each outcome as soon as its records are replayed, before they are durable."""
    on_stop: Callable[[], None] = lambda: None
    """Called when the coordinator stops serving: it failed, is reloaded or is closed."""
    observe_batch: Callable[[BatchHeader], RecordObserver | None] = _ignore
    """Called with the header of each batch that is loaded; returns an observer of its records, or None."""


def one_by_one(
    decode: Callable[[Any, Any], T | None],
) -> Callable[[memoryview, BatchHeader], Iterator[tuple[int, int, T]]]:
    """Return a function that reads a batch by passing each record's key and value to `decode`.

    It yields (offset, timestamp in ms, decoded record), without the records for which `decode` returns
    None."""

    def read(batch: memoryview, header: BatchHeader) -> Iterator[tuple[int, int, T]]:
        for entry in () if header.is_control else records(batch, header):
            record = decode(entry.key, entry.value)
            if record is not None:
                yield entry.offset, entry.timestamp, record

    return read
