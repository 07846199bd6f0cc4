"""Metrics of the broker and its coordinators: name, help sentence, labels, and where the values come from.

Kafka's metrics have the names that the JMX exporter gives them by default, so dashboards made for Kafka work
unchanged: the name joins the MBean (`kafka.server:type=group-coordinator-metrics`, or that of the share
coordinator) and its attribute, and the MBean's tags are labels. Counts have the type `unknown`, as in the
exporter. konvene's own metrics start with `konvene_` and follow the conventions of Prometheus: seconds, and
counters that end in `_total`.

Values are read for each scrape (`Snapshot`). `Metric.read` returns lines: label values with a number or a
histogram.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from konvene.broker.metrics.group_types import KINDS
from konvene.broker.metrics.instruments import Buckets, RateCounter
from konvene.errors import Errors
from konvene.internal_topics import SHARE_STATE_TOPIC
from konvene.messages import API_KEYS
from konvene.transactions.shard import TransactionShard
from konvene.transactions.state import PREDECESSORS

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.metrics.group_gauges import GroupGauges
    from konvene.broker.metrics.meter import Meter

GAUGE, COUNTER, HISTOGRAM, UNKNOWN = "gauge", "counter", "histogram", "unknown"


class Snapshot(NamedTuple):
    """The objects from which the metrics of one scrape are read."""

    broker: Broker
    meter: Meter
    gauges: GroupGauges


Lines = Iterable[tuple[tuple[str, ...], float | Buckets]]

Labels = TypeVar("Labels", bound=tuple[str, ...])


class Metric(NamedTuple):
    """A row of the table: name, type, help sentence and labels of a metric, and how to read its lines."""

    name: str
    type: str
    sentence: str
    read: Callable[[Snapshot], Lines]
    labels: tuple[str, ...] = ()
    kafka: str = ""
    """Attribute of Kafka's MBean; empty if Kafka has none."""


def _one(read: Callable[[Snapshot], float]) -> Callable[[Snapshot], Lines]:
    """Return a `Metric.read` for a metric without labels, whose only value `read` returns."""
    return lambda snapshot: (((), read(snapshot)),)


# --- Kafka's metrics -------------------------------------------------------------------------------

MBEAN: Final = "kafka.server:type=group-coordinator-metrics"
_PREFIX: Final = "kafka_server_group_coordinator_metrics_"
_PARTITION_STATES: Final = ("loading", "active", "failed")


def _kafka(
    attribute: str, type_: str, sentence: str, read: Callable[[Snapshot], Lines], labels: tuple[str, ...] = ()
) -> Metric:
    return Metric(_PREFIX + attribute.replace("-", "_"), type_, sentence, read, labels, attribute)


def _group_count(snapshot: Snapshot) -> Lines:
    for kind in KINDS:
        yield (kind,), sum(count for (of, _), count in snapshot.gauges.groups.items() if of == kind)


def _by_state(kind: str) -> Metric:
    def read(snapshot: Snapshot) -> Lines:
        for state in KINDS[kind].states:
            yield (state,), snapshot.gauges.groups[kind, state]

    return _kafka(f"{kind}-group-count", GAUGE, f"Number of {kind} groups in each state.", read, ("state",))


def _partitions(snapshot: Snapshot) -> Lines:
    states = Counter(coordinator.state for coordinator in snapshot.broker.groups.all())
    for state in _PARTITION_STATES:
        yield (state,), states[state]


def _average_load_ms(snapshot: Snapshot) -> float:
    loads = snapshot.meter.loads
    return loads.total / loads.count * 1000 if loads.count else 0.0


def _counted(counter: Callable[[Meter], RateCounter], attribute: str, sentence: str) -> tuple[Metric, Metric]:
    """Return two of Kafka's metrics of a counter: `{attribute}-count` and `{attribute}-rate`."""
    return (
        _kafka(f"{attribute}-count", UNKNOWN, f"{sentence}, since the start.",
               _one(lambda snapshot: counter(snapshot.meter).count)),
        _kafka(f"{attribute}-rate", GAUGE, f"{sentence} per second, over the last 30 to 60 seconds.",
               _one(lambda snapshot: counter(snapshot.meter).rate(snapshot.meter.now_s))),
    )  # fmt: skip


_REBALANCES: Final = {
    "classic": ("group-completed-rebalance", "Completed rebalances of classic groups"),
    "consumer": ("consumer-group-rebalance", "Epoch bumps of consumer groups"),
    "share": ("share-group-rebalance", "Epoch bumps of share groups"),
    "streams": ("streams-group-rebalance", "Epoch bumps of streams groups"),
}

_OFFSETS: Final = {
    "commits": ("offset-commit", "Committed offsets"),
    "expired": ("offset-expiration", "Expired offsets"),
    "deletions": ("offset-deletion", "Offsets deleted by an administrator"),
}


def _rebalances(kind: str) -> tuple[Metric, Metric]:
    return _counted(lambda meter: meter.rebalance_rates[kind], *_REBALANCES[kind])


def _offsets(sensor: str) -> tuple[Metric, Metric]:
    return _counted(lambda meter: meter.offset_rates[sensor], *_OFFSETS[sensor])


KAFKAS: Final[tuple[Metric, ...]] = (
    _kafka("group-count", GAUGE, "Number of groups by protocol.", _group_count, ("protocol",)),
    *(_by_state(kind) for kind in KINDS),
    *(metric for kind in KINDS for metric in _rebalances(kind)),
    _kafka("offset-count", GAUGE, "Number of committed offsets.",
           _one(lambda snapshot: snapshot.gauges.offsets)),
    *(metric for sensor in _OFFSETS for metric in _offsets(sensor)),
    _kafka("num-partitions", GAUGE, "Number of partitions of `__consumer_offsets` in each state.",
           _partitions, ("state",)),
    _kafka("partition-load-time-max", GAUGE,
           "Longest time to load a partition in milliseconds, since the start. Kafka's covers the last "
           "30 seconds.",
           _one(lambda snapshot: snapshot.meter.longest_load_s * 1000)),
    _kafka("partition-load-time-avg", GAUGE,
           "Average time to load a partition in milliseconds, since the start. Kafka's covers the last "
           "30 seconds.",
           _one(_average_load_ms)),
)  # fmt: skip

SHARE_MBEAN: Final = "kafka.server:type=share-coordinator-metrics"
_SHARE_PREFIX: Final = "kafka_server_share_coordinator_metrics_"


def _share(
    attribute: str, type_: str, sentence: str, read: Callable[[Snapshot], Lines], labels: tuple[str, ...] = ()
) -> Metric:
    return Metric(_SHARE_PREFIX + attribute.replace("-", "_"), type_, sentence, read, labels, attribute)


def _share_partitions(snapshot: Snapshot) -> Lines:
    states = Counter(coordinator.state for coordinator in snapshot.broker.share_coordinators.all())
    for state in _PARTITION_STATES:
        yield (state,), states[state]


def _cut_at(snapshot: Snapshot) -> Lines:
    for index, offset in sorted(snapshot.meter.share_cut_at.items()):
        yield (SHARE_STATE_TOPIC, str(index)), offset


KAFKAS_OF_SHARE_STATE: Final[tuple[Metric, ...]] = (
    _share("write-total", UNKNOWN, "Writes of share state, since the start.",
           _one(lambda snapshot: snapshot.meter.share_writes.count)),
    _share("write-rate", GAUGE, "Writes of share state per second, over the last 30 to 60 seconds.",
           _one(lambda snapshot: snapshot.meter.share_writes.rate(snapshot.meter.now_s))),
    _share("write-latency-max", GAUGE,
           "Longest time from a request to write share state until it was durable in milliseconds, since the "
           "start. Kafka's covers the last 30 seconds.",
           _one(lambda snapshot: snapshot.meter.share_write_s.longest * 1000)),
    _share("write-latency-avg", GAUGE,
           "Average of that time in milliseconds, since the start. Kafka's covers the last 30 seconds.",
           _one(lambda snapshot: snapshot.meter.share_write_s.average * 1000)),
    _share("last-pruned-offset", GAUGE,
           "Offset below which a partition of `__share_group_state` was last pruned.",
           _cut_at, ("topic", "partition")),
    _share("num-partitions", GAUGE, "Number of partitions of `__share_group_state` in each state.",
           _share_partitions, ("state",)),
    _share("partition-load-time-max", GAUGE,
           "Longest time to load one of them in milliseconds, since the start. Kafka's covers the last 30 "
           "seconds.",
           _one(lambda snapshot: snapshot.meter.share_load_s.longest * 1000)),
    _share("partition-load-time-avg", GAUGE,
           "Average time to load one of them in milliseconds, since the start. Kafka's covers the last 30 "
           "seconds.",
           _one(lambda snapshot: snapshot.meter.share_load_s.average * 1000)),
)  # fmt: skip

INSTEAD: Final[tuple[tuple[str, str], ...]] = (
    ("event-queue-time-ms-*, event-queue-size, thread-idle-ratio-avg",
     "There is no event queue: a request is processed when it arrives, on the broker's one thread."),
    ("event-processing-time-ms-*", "`konvene_coordinator_decision_seconds`"),
    ("event-purgatory-time-ms-*, batch-flush-*, batch-linger-time-ms-*", "`konvene_log_sync_seconds`"),
    ("batch-buffer-cache-*, background-*", "There are no such caches and threads."),
    ("streams-group-topology-description-*",
     "Descriptions are kept in memory with their group and deleted with it; there is no plugin."),
    ("FetchLockTimeMs, FetchLockRatio, RequestTopicPartitionsFetchRatio, TopicPartitionsAcquireTimeMs, "
     "InFlightBatchMessageCount",
     "Share partitions have no fetch locks; see `konvene_share_in_flight_records`."),
    ("kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups…",
     "Deprecated in Kafka 4.4 in favour of the counts above."),
)  # fmt: skip
"""Kafka's coordinator metrics without a counterpart, and what replaces them."""


# --- konvene's own metrics -------------------------------------------------------------------------


def _requests(snapshot: Snapshot) -> Lines:
    totals: Counter[tuple[int, int]] = Counter(snapshot.meter.responses)
    for (api_key, _), count in snapshot.meter.cached_responses.items():
        totals[api_key, 0] += count
    for (api_key, code), count in sorted(totals.items()):
        yield (API_KEYS[api_key].name, Errors(code).name), count


def _transactions(snapshot: Snapshot) -> Lines:
    states = Counter(
        transaction.state.shown
        for coordinator in snapshot.broker.transactions.all()
        if isinstance(coordinator.core, TransactionShard)
        for transaction in coordinator.core.transactions.values()
    )
    for state in PREDECESSORS:
        yield (state.shown,), states[state.shown]


def _policy(snapshot: Snapshot) -> Lines:
    yield (
        (
            snapshot.broker.settings.config["konvene.heartbeat.policy"],
            str(snapshot.broker.settings.holds_heartbeats).lower(),
        ),
        1,
    )


def _plain(counts: Callable[[Snapshot], Mapping[Labels, int]]) -> Callable[[Snapshot], Lines]:
    """Return a `Metric.read` for a mapping of label values to counts, sorted by label."""
    return lambda snapshot: sorted(counts(snapshot).items())


def _by_name(counts: Callable[[Snapshot], dict[str, int]]) -> Callable[[Snapshot], Lines]:
    return lambda snapshot: [((name,), count) for name, count in sorted(counts(snapshot).items())]


def _histograms(found: Callable[[Snapshot], dict[str, Buckets]]) -> Callable[[Snapshot], Lines]:
    return lambda snapshot: [((name,), buckets) for name, buckets in sorted(found(snapshot).items())]


_GROUP: Final = ("group", "protocol")

OURS: Final[tuple[Metric, ...]] = (
    Metric("konvene_rebalances_total", COUNTER,
           "Rebalances of a group (generations or epochs), by their first cause.",
           _plain(lambda snapshot: snapshot.meter.begun), (*_GROUP, "cause")),
    Metric("konvene_rebalance_causes_total", COUNTER,
           "Causes of all rebalances; one rebalance may have several.",
           _plain(lambda snapshot: snapshot.meter.causes), ("protocol", "cause")),
    Metric("konvene_rebalance_seconds", HISTOGRAM,
           "Duration of a rebalance, from its first cause until all members reached their target assignment.",
           lambda snapshot: sorted(snapshot.meter.rebalance_s.items(), key=lambda item: item[0]), _GROUP),
    Metric("konvene_moved_units_total", COUNTER,
           "Partitions or tasks newly assigned to a member; a task counts in each role. Of classic groups "
           "only the consumer protocol is counted.",
           _plain(lambda snapshot: snapshot.meter.units_moved), _GROUP),
    Metric("konvene_group_members", GAUGE, "Members of a group.",
           _plain(lambda snapshot: snapshot.gauges.members), _GROUP),
    Metric("konvene_group_members_waiting", GAUGE,
           "Members that have not reached their target assignment.",
           _plain(lambda snapshot: snapshot.gauges.waiting), _GROUP),
    Metric("konvene_group_classic_members", GAUGE,
           "Members of a consumer or streams group that use the classic protocol: not yet migrated, or "
           "rolled back.",
           _plain(lambda snapshot: snapshot.gauges.classic_members), _GROUP),
    Metric("konvene_group_epoch", GAUGE,
           "Epoch of a group, or generation of a classic group. Only for groups with their own label.",
           _plain(lambda snapshot: snapshot.gauges.epochs), _GROUP),
    Metric("konvene_heartbeat_policy_info", GAUGE,
           "1 for the heartbeat policy in force (`konvene.heartbeat.policy`), and whether heartbeats "
           "are held.",
           _policy, ("policy", "holds")),
    Metric("konvene_heartbeat_interval_seconds", HISTOGRAM,
           "Heartbeat intervals in responses to members.",
           lambda snapshot: (((), snapshot.meter.heartbeat_intervals()),)),
    Metric("konvene_held_heartbeats", GAUGE, "Heartbeats that are currently held in the purgatory.",
           _one(lambda snapshot: len(snapshot.broker.heartbeat_purgatory))),
    Metric("konvene_heartbeats_held_total", COUNTER, "Heartbeats that were held in the purgatory.",
           _one(lambda snapshot: snapshot.meter.held_heartbeats)),
    Metric("konvene_transactions", GAUGE, "Transactional ids by the state of their last transaction.",
           _transactions, ("state",)),
    Metric("konvene_transactions_ended_total", COUNTER,
           "Transactions whose markers were written, committed or aborted.",
           _by_name(lambda snapshot: snapshot.meter.ended), ("result",)),
    Metric("konvene_requests_total", COUNTER,
           "Requests by API and first error in the response; NONE without an error.",
           _requests, ("api", "error")),
    Metric("konvene_connections", GAUGE, "Open client connections.",
           _one(lambda snapshot: len(snapshot.broker.network.connections))),
    Metric("konvene_coordinator_decision_seconds", HISTOGRAM,
           "Time that a coordinator took to process a request or timer. Heartbeats answered from the "
           "response cache are not included.",
           _histograms(lambda snapshot: snapshot.meter.decisions), ("event",)),
    Metric("konvene_log_appends_total", COUNTER,
           "Batches appended to a log; all topics except internal ones share a label.",
           _by_name(lambda snapshot: snapshot.meter.appends), ("log",)),
    Metric("konvene_log_appended_bytes_total", COUNTER, "Bytes of those batches.",
           _by_name(lambda snapshot: snapshot.meter.appended_bytes), ("log",)),
    Metric("konvene_log_sync_seconds", HISTOGRAM,
           "Time until appended records were durable, as the waiting requests observed it.",
           _histograms(lambda snapshot: snapshot.meter.syncs), ("log",)),
)  # fmt: skip
