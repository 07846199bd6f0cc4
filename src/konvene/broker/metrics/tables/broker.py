"""The table of metrics: a name, a sentence, labels, and where the values come from.

Kafka's metrics have the names under which the JMX exporter shows them where it is told nothing else: the
MBean `kafka.server:type=group-coordinator-metrics`, or that of the share coordinator, its attribute, and its
tags as labels. Dashboards made for Kafka find them here. Their counts are of type `unknown`, as the
exporter's are. What Kafka lacks starts with `konvene_` and follows Prometheus: seconds, and counters that end
in `_total`.

A value is read when somebody asks (`Seen`). Each row gives its lines as label values and a number, or the
buckets of a histogram.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from konvene.broker.metrics.group_types import KINDS
from konvene.broker.metrics.instruments import Buckets, Paced
from konvene.errors import Errors
from konvene.internal_topics import SHARE_STATE_TOPIC
from konvene.messages import API_KEYS
from konvene.transactions.shard import TransactionShard
from konvene.transactions.state import BEFORE

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.broker.metrics.group_gauges import Census
    from konvene.broker.metrics.meter import Meter

GAUGE, COUNTER, HISTOGRAM, UNKNOWN = "gauge", "counter", "histogram", "unknown"


class Seen(NamedTuple):
    """What the rows are read from."""

    broker: Broker
    meter: Meter
    census: Census


Lines = Iterable[tuple[tuple[str, ...], float | Buckets]]


class Metric(NamedTuple):
    """One metric."""

    name: str
    type: str
    sentence: str
    read: Callable[[Seen], Lines]
    labels: tuple[str, ...] = ()
    kafka: str = ""
    """The attribute of Kafka's MBean; empty: Kafka has none."""


def _one(read: Callable[[Seen], float]) -> Callable[[Seen], Lines]:
    """A row of one line."""
    return lambda seen: (((), read(seen)),)


# --- what Kafka has --------------------------------------------------------------------------------

MBEAN: Final = "kafka.server:type=group-coordinator-metrics"
_PREFIX: Final = "kafka_server_group_coordinator_metrics_"
_PARTITION_STATES: Final = ("loading", "active", "failed")


def _kafka(
    attribute: str, type_: str, sentence: str, read: Callable[[Seen], Lines], labels: tuple[str, ...] = ()
) -> Metric:
    return Metric(_PREFIX + attribute.replace("-", "_"), type_, sentence, read, labels, attribute)


def _group_count(seen: Seen) -> Lines:
    for kind in KINDS:
        yield (kind,), sum(count for (of, _), count in seen.census.groups.items() if of == kind)


def _by_state(kind: str) -> Metric:
    def read(seen: Seen) -> Lines:
        for state in KINDS[kind].states:
            yield (state,), seen.census.groups[kind, state]

    return _kafka(f"{kind}-group-count", GAUGE, f"How many {kind} groups are in a state.", read, ("state",))


def _partitions(seen: Seen) -> Lines:
    states = Counter(coordinator.state for coordinator in seen.broker.groups.all())
    for state in _PARTITION_STATES:
        yield (state,), states[state]


def _average_load_ms(seen: Seen) -> float:
    loads = seen.meter.loads
    return loads.total / loads.count * 1000 if loads.count else 0.0


def _paced(paced: Callable[[Meter], Paced], attribute: str, sentence: str) -> tuple[Metric, Metric]:
    """A count and its rate."""
    return (
        _kafka(f"{attribute}-count", UNKNOWN, f"{sentence}, since the start.",
               _one(lambda seen: paced(seen.meter).count)),
        _kafka(f"{attribute}-rate", GAUGE, f"{sentence}, a second, over the last 30 to 60 seconds.",
               _one(lambda seen: paced(seen.meter).rate(seen.meter.now_s))),
    )  # fmt: skip


_REBALANCES: Final = {
    "classic": ("group-completed-rebalance", "Rebalances of classic groups that were completed"),
    "consumer": ("consumer-group-rebalance", "Epochs of consumer groups that were raised"),
    "share": ("share-group-rebalance", "Epochs of share groups that were raised"),
    "streams": ("streams-group-rebalance", "Epochs of streams groups that were raised"),
}

_OFFSETS: Final = {
    "commits": ("offset-commit", "Offsets that were committed"),
    "expired": ("offset-expiration", "Offsets that have expired"),
    "deletions": ("offset-deletion", "Offsets that an administrator deleted"),
}


def _rebalances(kind: str) -> tuple[Metric, Metric]:
    return _paced(lambda meter: meter.by_kind[kind], *_REBALANCES[kind])


def _offsets(sensor: str) -> tuple[Metric, Metric]:
    return _paced(lambda meter: meter.of_offsets[sensor], *_OFFSETS[sensor])


KAFKAS: Final[tuple[Metric, ...]] = (
    _kafka("group-count", GAUGE, "How many groups speak a protocol.", _group_count, ("protocol",)),
    *(_by_state(kind) for kind in KINDS),
    *(metric for kind in KINDS for metric in _rebalances(kind)),
    _kafka("offset-count", GAUGE, "How many committed offsets are kept.",
           _one(lambda seen: seen.census.offsets)),
    *(metric for sensor in _OFFSETS for metric in _offsets(sensor)),
    _kafka("num-partitions", GAUGE, "How many partitions of `__consumer_offsets` are in a state.",
           _partitions, ("state",)),
    _kafka("partition-load-time-max", GAUGE,
           "The longest time in milliseconds that it took to load a partition, since the start. Kafka's is "
           "of the last 30 seconds.",
           _one(lambda seen: seen.meter.longest_load_s * 1000)),
    _kafka("partition-load-time-avg", GAUGE,
           "The average time in milliseconds that it took to load a partition, since the start. Kafka's is "
           "of the last 30 seconds.",
           _one(_average_load_ms)),
)  # fmt: skip

SHARE_MBEAN: Final = "kafka.server:type=share-coordinator-metrics"
_SHARE_PREFIX: Final = "kafka_server_share_coordinator_metrics_"


def _share(
    attribute: str, type_: str, sentence: str, read: Callable[[Seen], Lines], labels: tuple[str, ...] = ()
) -> Metric:
    return Metric(_SHARE_PREFIX + attribute.replace("-", "_"), type_, sentence, read, labels, attribute)


def _share_partitions(seen: Seen) -> Lines:
    states = Counter(coordinator.state for coordinator in seen.broker.share_coordinators.all())
    for state in _PARTITION_STATES:
        yield (state,), states[state]


def _cut_at(seen: Seen) -> Lines:
    for index, offset in sorted(seen.meter.share_cut_at.items()):
        yield (SHARE_STATE_TOPIC, str(index)), offset


KAFKAS_OF_SHARE_STATE: Final[tuple[Metric, ...]] = (
    _share("write-total", UNKNOWN, "Writes of share state, since the start.",
           _one(lambda seen: seen.meter.share_writes.count)),
    _share("write-rate", GAUGE, "Writes of share state, a second, over the last 30 to 60 seconds.",
           _one(lambda seen: seen.meter.share_writes.rate(seen.meter.now_s))),
    _share("write-latency-max", GAUGE,
           "The longest time in milliseconds from asking for a write of share state until it was durable, "
           "since the start. Kafka's is of the last 30 seconds.",
           _one(lambda seen: seen.meter.share_write_s.longest * 1000)),
    _share("write-latency-avg", GAUGE,
           "The average of that time in milliseconds, since the start. Kafka's is of the last 30 seconds.",
           _one(lambda seen: seen.meter.share_write_s.average * 1000)),
    _share("last-pruned-offset", GAUGE,
           "Where a partition of `__share_group_state` was cut off last; what was before is superfluous.",
           _cut_at, ("topic", "partition")),
    _share("num-partitions", GAUGE, "How many partitions of `__share_group_state` are in a state.",
           _share_partitions, ("state",)),
    _share("partition-load-time-max", GAUGE,
           "The longest time in milliseconds that it took to load one of them, since the start. Kafka's is "
           "of the last 30 seconds.",
           _one(lambda seen: seen.meter.share_load_s.longest * 1000)),
    _share("partition-load-time-avg", GAUGE,
           "The average time in milliseconds that it took to load one of them, since the start. Kafka's is "
           "of the last 30 seconds.",
           _one(lambda seen: seen.meter.share_load_s.average * 1000)),
)  # fmt: skip

INSTEAD: Final[tuple[tuple[str, str], ...]] = (
    ("event-queue-time-ms-*, event-queue-size, thread-idle-ratio-avg",
     "Nothing waits in a queue: a request is decided when it comes, on the one thread there is."),
    ("event-processing-time-ms-*", "`konvene_coordinator_decision_seconds`"),
    ("event-purgatory-time-ms-*, batch-flush-*, batch-linger-time-ms-*", "`konvene_log_sync_seconds`"),
    ("batch-buffer-cache-*, background-*", "There are no such caches and no such threads."),
    ("streams-group-topology-description-*",
     "Descriptions are kept in memory, with their group, and go with it: no plugin has any to delete."),
    ("FetchLockTimeMs, FetchLockRatio, RequestTopicPartitionsFetchRatio, TopicPartitionsAcquireTimeMs, "
     "InFlightBatchMessageCount",
     "Share partitions have no fetch locks to wait for; see `konvene_share_in_flight_records`."),
    ("kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups…",
     "Deprecated in Kafka 4.4 in favour of the counts above."),
)  # fmt: skip
"""Kafka's metrics of coordinators that have no equal here, and where to look."""


# --- what Kafka lacks ------------------------------------------------------------------------------


def _requests(seen: Seen) -> Lines:
    totals: Counter[tuple[int, int]] = Counter(seen.meter.answers)
    for (api_key, _), count in seen.meter.same.items():
        totals[api_key, 0] += count
    for (api_key, code), count in sorted(totals.items()):
        yield (API_KEYS[api_key].name, Errors(code).name), count


def _transactions(seen: Seen) -> Lines:
    states = Counter(
        transaction.state.shown
        for coordinator in seen.broker.transactions.all()
        if isinstance(coordinator.core, TransactionShard)
        for transaction in coordinator.core.transactions.values()
    )
    for state in BEFORE:
        yield (state.shown,), states[state.shown]


def _policy(seen: Seen) -> Lines:
    yield (
        (
            seen.broker.settings.config["konvene.heartbeat.policy"],
            str(seen.broker.settings.holds_heartbeats).lower(),
        ),
        1,
    )


def _plain(counts: Callable[[Seen], Mapping[Any, int]]) -> Callable[[Seen], Lines]:
    """Counts by what they are labelled with, in order."""
    return lambda seen: sorted(counts(seen).items())


def _by_name(counts: Callable[[Seen], dict[str, int]]) -> Callable[[Seen], Lines]:
    return lambda seen: [((name,), count) for name, count in sorted(counts(seen).items())]


def _histograms(found: Callable[[Seen], dict[str, Buckets]]) -> Callable[[Seen], Lines]:
    return lambda seen: [((name,), buckets) for name, buckets in sorted(found(seen).items())]


_GROUP: Final = ("group", "protocol")

OURS: Final[tuple[Metric, ...]] = (
    Metric("konvene_rebalances_total", COUNTER,
           "Generations and epochs of a group, each under the first of its causes.",
           _plain(lambda seen: seen.meter.begun), (*_GROUP, "cause")),
    Metric("konvene_rebalance_causes_total", COUNTER,
           "All causes of all rebalances; one rebalance may have many.",
           _plain(lambda seen: seen.meter.causes), ("protocol", "cause")),
    Metric("konvene_rebalance_seconds", HISTOGRAM,
           "How long it took from the first cause until all members had what they were meant to have.",
           lambda seen: sorted(seen.meter.rebalance_s.items(), key=lambda item: item[0]), _GROUP),
    Metric("konvene_moved_units_total", COUNTER,
           "Partitions or tasks that an assignment gave to a member that did not have them, also for the "
           "first time; a task counts in each role. Of classic groups only consumers' can be read.",
           _plain(lambda seen: seen.meter.units_moved), _GROUP),
    Metric("konvene_group_members", GAUGE, "Members of a group.",
           _plain(lambda seen: seen.census.members), _GROUP),
    Metric("konvene_group_members_waiting", GAUGE,
           "Members that do not have what they are meant to have: they wait for others, or others for them.",
           _plain(lambda seen: seen.census.waiting), _GROUP),
    Metric("konvene_group_classic_members", GAUGE,
           "Members of a consumer or streams group that speak the classic protocol: those that are yet to be "
           "rolled, or were rolled back.",
           _plain(lambda seen: seen.census.classic_members), _GROUP),
    Metric("konvene_group_epoch", GAUGE,
           "The group's epoch; of a classic group its generation. Only of groups with a line of their own.",
           _plain(lambda seen: seen.census.epochs), _GROUP),
    Metric("konvene_heartbeat_policy_info", GAUGE,
           "1 under the policy in force (`konvene.heartbeat.policy`), and whether answers are held.",
           _policy, ("policy", "holds")),
    Metric("konvene_heartbeat_told_interval_seconds", HISTOGRAM,
           "The intervals that members were told by the answers to their heartbeats.",
           lambda seen: (((), seen.meter.told()),)),
    Metric("konvene_held_heartbeats", GAUGE, "Heartbeats whose answers are held at this moment.",
           _one(lambda seen: len(seen.broker.heartbeat_purgatory))),
    Metric("konvene_heartbeats_held_total", COUNTER, "Heartbeats whose answers were held.",
           _one(lambda seen: seen.meter.held)),
    Metric("konvene_transactions", GAUGE, "Transactional ids by the state of their last transaction.",
           _transactions, ("state",)),
    Metric("konvene_transactions_ended_total", COUNTER,
           "Transactions whose markers were written, committed or aborted.",
           _by_name(lambda seen: seen.meter.ended), ("result",)),
    Metric("konvene_requests_total", COUNTER,
           "Requests that were answered, by the first error in the answer; NONE where there is none.",
           _requests, ("api", "error")),
    Metric("konvene_connections", GAUGE, "Connections of clients.",
           _one(lambda seen: len(seen.broker.network.connections))),
    Metric("konvene_coordinator_decision_seconds", HISTOGRAM,
           "How long the coordinator took to decide, by request or timer. Heartbeats that are answered "
           "unread, for nothing has changed, are not decided.",
           _histograms(lambda seen: seen.meter.decisions), ("event",)),
    Metric("konvene_log_appends_total", COUNTER, "Batches appended to a log; your own topics' are one.",
           _by_name(lambda seen: seen.meter.appends), ("log",)),
    Metric("konvene_log_appended_bytes_total", COUNTER, "Bytes of those batches.",
           _by_name(lambda seen: seen.meter.appended_bytes), ("log",)),
    Metric("konvene_log_sync_seconds", HISTOGRAM,
           "How long it took until what was appended was on the disk, as whoever waited for it saw it.",
           _histograms(lambda seen: seen.meter.syncs), ("log",)),
)  # fmt: skip
