"""Counters that the broker increments while it works.

No decision depends on a counter, and none survives a restart: they begin at 0 with the process, as Prometheus
expects. Rebalances that the audit derives from the log after a crash belong to an earlier process and are not
counted.

Limitation: of a response with several errors only the first one is counted; Kafka counts each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from konvene.broker.metrics.group_shard import MeteredGroupShard
from konvene.broker.metrics.group_types import KINDS, Moved, begins, counts_in_kafka, ends
from konvene.broker.metrics.instruments import (
    OTHER,
    Buckets,
    Durations,
    GroupLabels,
    PartitionKey,
    RateCounter,
    TopicLabels,
)
from konvene.broker.metrics.placement_costs import PlacementCosts
from konvene.broker.metrics.share_state_shard import MeteredShareStateShard
from konvene.codec.schema import Struct
from konvene.delivery.counts import Counts
from konvene.internal_topics import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS
from konvene.records.audit import RebalanceValue
from konvene.shard.causes import UNKNOWN

if TYPE_CHECKING:
    from konvene.broker.net.response_cache import CachedResponse
    from konvene.groups.shard import GroupShard

REBALANCE_S: Final = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
HEARTBEAT_INTERVAL_S: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 15.0, 30.0)
DECISION_S: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)
SYNC_S: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)

TOPICS: Final = "topics"
"""Label of all logs except the internal topics'."""

OFFSET_SENSORS: Final = ("commits", "expired", "deletions")

ErrorFinder = Callable[[object], int]
"""Returns the first error code in a response, 0 if there is none."""


class Meter:
    """Counters of one broker since its start."""

    def __init__(
        self, max_groups: int, max_topics: int = 0, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._clock = clock
        self.labels = GroupLabels(max_groups)
        self.topic_labels = TopicLabels(max_topics)
        self.unread_timestamps: dict[PartitionKey, tuple[int, int | None]] = {}
        """Offset and timestamp of the first unread record, as `metrics.group_lags` read it last."""
        self.costs = PlacementCosts()
        self.begun: defaultdict[tuple[str, str, str], int] = defaultdict(int)
        """Rebalances by group label, type and first cause."""
        self.causes: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.rebalance_s: dict[tuple[str, str], Buckets] = {}
        self.last_rebalance_ms: dict[tuple[str, str], int] = {}
        """When the last rebalance ended, by group and type; only of groups with their own label."""
        self.units_moved: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.warmed_up: defaultdict[str, int] = defaultdict(int)
        """Completed warm-ups of streams groups, by label."""
        self.rebalance_rates: dict[str, RateCounter] = {kind: RateCounter() for kind in KINDS}
        """Rebalances by type, as Kafka counts them."""
        self.offset_rates: dict[str, RateCounter] = {sensor: RateCounter() for sensor in OFFSET_SENSORS}
        self.responses: defaultdict[tuple[int, int], int] = defaultdict(int)
        """Responses by API key and error code."""
        self.cached_responses: defaultdict[tuple[int, int], int] = defaultdict(int)
        """Responses from the response cache, by API key and heartbeat interval (`CachedResponse.kind`)."""
        self.intervals_ms: defaultdict[int, int] = defaultdict(int)
        self.held_heartbeats = 0
        """Heartbeats that were held in the purgatory; incremented by `Connection`."""
        self.ended: defaultdict[str, int] = defaultdict(int)
        """Ended transactions by result ("commit" or "abort"), counted when their markers are written."""
        self.share_writes = RateCounter()
        """Writes of share state; incremented by `metrics.share_state_shard`."""
        self.share_write_s = Durations()
        """Seconds from the request for a write of share state until it is durable."""
        self.share_load_s = Durations()
        self.share_cut_at: dict[int, int] = {}
        """Log start offset of each share state partition after its last pruning."""
        self.share_partition_load_s = Durations()
        """Seconds from the first fetch of a share partition until it is loaded."""
        self.share_done: dict[str, Counts] = {}
        """Counts of closed share partitions, by group label."""
        self.decisions: dict[str, Buckets] = {}
        self.loads = Buckets(())
        self.longest_load_s = 0.0
        self.appends: defaultdict[str, int] = defaultdict(int)
        self.appended_bytes: defaultdict[str, int] = defaultdict(int)
        self.syncs: dict[str, Buckets] = {}
        self._error_finders: dict[type, ErrorFinder] = {bytes: lambda _: 0, type(None): lambda _: 0}

    def __repr__(self) -> str:
        count = sum(self.responses.values()) + sum(self.cached_responses.values())
        return f"<meter: {count} responses, {self.labels!r}>"

    @property
    def now_s(self) -> float:
        return self._clock()

    @property
    def make_shard(self) -> Callable[[], GroupShard]:
        """Return a function that creates a group shard that reports to this meter."""
        return partial(MeteredGroupShard, self)

    def make_share_states(self, updates_per_snapshot: int) -> MeteredShareStateShard:
        """Create a share state shard that reports to this meter."""
        return MeteredShareStateShard(self, updates_per_snapshot)

    # --- groups ---

    def rebalance(self, group_id: str, row: RebalanceValue) -> None:
        """Count the rebalance that an audit row begins or ends, its causes and its duration."""
        kind, label = row.group_type, self.labels.of(group_id)
        if begins(row):
            self.begun[label, kind, row.causes[0].kind if row.causes else UNKNOWN] += 1
            for cause in row.causes:
                self.causes[kind, cause.kind] += 1
        if ends(row):
            durations = self.rebalance_s.get((label, kind))
            if durations is None:
                durations = self.rebalance_s[label, kind] = Buckets(REBALANCE_S)
            durations.add(max(row.ended_ms - row.started_ms, 0) / 1000)
            if label != OTHER:
                self.last_rebalance_ms[label, kind] = row.ended_ms
        counter = self.rebalance_rates.get(kind)
        if counter is not None and counts_in_kafka(row):
            counter.add(1, self._clock())

    def moved(self, gained: Moved) -> None:
        """Count partitions or tasks that a target assignment has newly given to members."""
        label = self.labels.of(gained.group_id)
        self.units_moved[label, gained.protocol] += gained.units
        if gained.warmed_up:
            self.warmed_up[label] += gained.warmed_up

    def offsets(self, sensor: str, count: int) -> None:
        """Add `count` to the counter of offsets that were committed, expired or deleted.

        `sensor` selects the counter: "commits", "expired" or "deletions"."""
        self.offset_rates[sensor].add(count, self._clock())

    def decided(self, event: str, duration_s: float) -> None:
        """Record how long a group shard took to decide about `event`, an API or a timer by its name."""
        buckets = self.decisions.get(event)
        if buckets is None:
            buckets = self.decisions[event] = Buckets(DECISION_S)
        buckets.add(duration_s)

    def loaded(self, duration_s: float) -> None:
        """Record how long a group shard took to load."""
        self.loads.add(duration_s)
        self.longest_load_s = max(self.longest_load_s, duration_s)

    def forget(self, group_id: str) -> None:
        """Remove the metric lines of a deleted group and free its label."""
        self.labels.forget(group_id)
        self.costs.forget(group_id)
        self.share_done.pop(group_id, None)
        self.warmed_up.pop(group_id, None)
        by_group: tuple[dict[Any, Any], ...] = (
            self.begun, self.rebalance_s, self.units_moved, self.last_rebalance_ms,
        )  # fmt: skip
        for counts in by_group:
            for key in [key for key in counts if key[0] == group_id]:
                del counts[key]

    def share_partition_done(self, group_id: str, counts: Counts) -> None:
        """Add the counts of a share partition that is being closed to those of its group."""
        self.share_done.setdefault(self.labels.of(group_id), Counts()).add(counts)

    # --- requests ---

    def answered(self, api_key: int, response: Struct | bytes | None) -> None:
        """Count a response by its first error, and the heartbeat interval that it contains, if any."""
        cls = type(response)
        find = self._error_finders.get(cls)
        if find is None:
            assert isinstance(response, Struct)
            find = self._error_finders[cls] = error_finder(type(response)) or self._error_finders[bytes]
        self.responses[api_key, find(response)] += 1
        interval_ms = heartbeat_interval_of(response)
        if interval_ms:
            self.intervals_ms[interval_ms] += 1

    def cached_response_sent(self, cached: CachedResponse) -> None:
        """Count a response that was sent from the response cache."""
        self.cached_responses[cached.kind] += 1

    def heartbeat_intervals(self) -> Buckets:
        """Return a histogram of the heartbeat intervals in all responses, in seconds."""
        buckets = Buckets(HEARTBEAT_INTERVAL_S)
        for interval_ms, count in (
            *self.intervals_ms.items(),
            *((key[1], n) for key, n in self.cached_responses.items()),
        ):
            if interval_ms:
                buckets.add(interval_ms / 1000, count)
        return buckets

    # --- logs ---

    def appended(self, topic: str, size: int) -> None:
        """Count a batch of `size` bytes that was appended to a log of `topic`."""
        log = log_label(topic)
        self.appends[log] += 1
        self.appended_bytes[log] += size

    def synced(self, topic: str, duration_s: float) -> None:
        """Record how long a sync of a log of `topic` took."""
        log = log_label(topic)
        buckets = self.syncs.get(log)
        if buckets is None:
            buckets = self.syncs[log] = Buckets(SYNC_S)
        buckets.add(duration_s)


def log_label(topic: str) -> str:
    """Return the label of a topic's logs: its name if it is internal, else `TOPICS`."""
    return topic if topic in INTERNAL_TOPICS or topic == CLUSTER_METADATA_TOPIC else TOPICS


def heartbeat_interval_of(response: Struct | bytes | None) -> int:
    """Return the heartbeat interval in a response, in ms; 0 if it has no such field or has an error."""
    return 0 if getattr(response, "error_code", 0) else getattr(response, "heartbeat_interval_ms", 0)


def error_finder(cls: type[Struct]) -> ErrorFinder | None:
    """Return a function that finds a response's first error code; None if `cls` has no error field."""
    names = {field.name for field in cls.__fields__}
    parts: list[tuple[str, ErrorFinder]] = []
    for field in cls.__fields__:
        if field.kind == "array" and isinstance(field.element, type):
            inner = error_finder(field.element)
            if inner is not None:
                parts.append((field.name, inner))
    own_error: ErrorFinder | None = attrgetter("error_code") if "error_code" in names else None
    return partial(_first_error, own_error, tuple(parts)) if parts else own_error


def _first_error(
    own_error: ErrorFinder | None, parts: tuple[tuple[str, ErrorFinder], ...], value: object
) -> int:
    code = own_error(value) if own_error is not None else 0
    if code:
        return code
    for name, find in parts:
        for part in getattr(value, name) or ():
            code = find(part)
            if code:
                return code
    return 0
