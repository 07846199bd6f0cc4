"""Metrics of a follower for Prometheus, by prometheus-client, which is imported on first use.

Metrics that a konvene broker has, too, have the same names, with the label `cluster` added, so that its
dashboard and alerts apply. Each poll computes a page; scrapes read the last page in the server's thread.
Counters begin at 0 with the process, and count rebalances when they end.

Up to `MAX_GROUPS` groups have series of their own; the rebalances of others count for the group `__other__`.
Groups that are no longer current free their place, and their series end. Up to `MAX_PARTITIONS` pairs of
group and partition have lag of their own, those with the largest lag.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.pipeline.answers.damage import Damage
from konvene.pipeline.answers.rebalance import Rebalance
from konvene.pipeline.monitoring.alerts import AlertKey
from konvene.pipeline.monitoring.current import GroupKey, GroupNow, PartitionLag

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

__all__ = ["METRICS", "FollowerMetrics", "MetricsServer", "is_installed"]

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
OTHER = "__other__"
MAX_GROUPS = 100
MAX_PARTITIONS = 2_000
MAX_LABEL_LENGTH = 255
BUCKETS_S = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of `konvene_rebalance_seconds`, as of a broker."""

Labels = tuple[str, ...]


class Metric(NamedTuple):
    """Name, type, meaning and labels of a metric."""

    name: str
    type: str
    sentence: str
    labels: Labels = ()


_GROUP = ("cluster", "group", "protocol")
METRICS = {
    metric.name: metric
    for metric in (
        Metric("konvene_rebalances_total", COUNTER, "Ended rebalances by first cause.", (*_GROUP, "cause")),
        Metric("konvene_rebalance_seconds", HISTOGRAM, "Duration of ended rebalances.", _GROUP),
        Metric("konvene_moved_units_total", COUNTER, "Partitions or tasks with a new owner.", _GROUP),
        Metric("konvene_unavailable_partition_seconds_total", COUNTER,
               "Partitions without an owner × seconds, because of ended rebalances.", _GROUP),
        Metric("konvene_group_members", GAUGE, "Members of a group.", _GROUP),
        Metric("konvene_group_members_waiting", GAUGE,
               "Members that others wait for in the rebalance in progress.", _GROUP),
        Metric("konvene_group_rebalance_age_seconds", GAUGE,
               "Time since the rebalance in progress began; 0 if there is none.", _GROUP),
        Metric("konvene_group_lag_records", GAUGE, "Lag of a group in records.", _GROUP),
        Metric("konvene_group_lag_seconds", GAUGE, "Age of its oldest unread record.", _GROUP),
        Metric("konvene_group_topic_lag_records", GAUGE, "Lag in a topic in records.", (*_GROUP, "topic")),
        Metric("konvene_group_topic_lag_seconds", GAUGE, "Age of the oldest unread record of a topic.",
               (*_GROUP, "topic")),
        Metric("konvene_group_partition_lag_records", GAUGE, "Lag in a partition in records.",
               (*_GROUP, "topic", "partition")),
        Metric("konvene_group_partition_lag_seconds", GAUGE,
               "Age of the oldest unread record of a partition.", (*_GROUP, "topic", "partition")),
        Metric("konvene_explain_unreadable_batches", GAUGE,
               "Batches and records of a log that could not be read.", ("cluster", "topic", "partition")),
        Metric("konvene_explain_alerts", GAUGE, "Alerts that are firing, by rule.", ("rule",)),
        Metric("konvene_explain_up", GAUGE, "1 if the last poll reached the source, else 0.", ("source",)),
        Metric("konvene_explain_polls_total", COUNTER, "Polls."),
        Metric("konvene_explain_poll_errors_total", COUNTER, "Polls that did not reach a source.",
               ("source",)),
        Metric("konvene_explain_poll_age_seconds", GAUGE, "Time since the last complete poll."),
        Metric("konvene_explain_poll_seconds", GAUGE, "Duration of the last poll."),
    )
}  # fmt: skip


def is_installed() -> bool:
    """Return True if prometheus-client can be imported."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        return False
    return True


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total += seconds

    def frozen(self) -> tuple[list[tuple[str, float]], float]:
        """Return the cumulative buckets, and the sum."""
        rows, so_far = [], 0
        for bound, count in zip((*map(repr, BUCKETS_S), "+Inf"), self.counts, strict=True):
            so_far += count
            rows.append((bound, float(so_far)))
        return rows, self.total


class FollowerMetrics:
    """Counters of a follower, and the page of its last poll."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._page: dict[str, list[tuple[Labels, Any]]] = {}
        self._own: dict[GroupKey, None] = {}
        self._rebalances: Counter[Labels] = Counter()
        self._moved: Counter[Labels] = Counter()
        self._unavailable: defaultdict[Labels, float] = defaultdict(float)
        self._durations: defaultdict[Labels, _Histogram] = defaultdict(_Histogram)
        self._errors: Counter[str] = Counter()
        self._up: dict[str, bool] = {}
        self._polls = 0
        self._polled_at: float | None = None

    def __repr__(self) -> str:
        return f"<metrics of {len(self._own)} groups>"

    def source(self, name: str, is_up: bool) -> None:
        """Record whether a poll reached a source."""
        self._up[name] = is_up
        self._errors[name] += not is_up

    def poll(
        self, groups: Sequence[GroupNow], ended: Iterable[Rebalance], damage: Iterable[Damage],
        alerts: Iterable[AlertKey], seconds: float,
    ) -> None:  # fmt: skip
        """Record a complete poll: the current groups, the rebalances that have ended since the last one, the
        damage of the logs, the alerts that are firing, and how long it took."""
        self._release(groups)
        for rebalance in ended:
            self._count(rebalance)
        self._polls += 1
        page = self._pages(groups)
        page["konvene_explain_unreadable_batches"] = _by_log(damage)
        page["konvene_explain_alerts"] = sorted(Counter((rule,) for rule, *_ in alerts).items())
        page["konvene_explain_poll_seconds"] = [((), seconds)]
        with self._lock:
            self._page = page
            self._polled_at = self._clock()

    def lines(self) -> Iterator[tuple[Metric, list[tuple[Labels, Any]]]]:
        """Yield each metric with the labels and values of the last poll."""
        with self._lock:
            page, polled_at = dict(self._page), self._polled_at
        page["konvene_explain_up"] = [((name,), float(up)) for name, up in sorted(self._up.items())]
        page["konvene_explain_poll_errors_total"] = [((name,), n) for name, n in sorted(self._errors.items())]
        page["konvene_explain_polls_total"] = [((), self._polls)]
        if polled_at is not None:
            page["konvene_explain_poll_age_seconds"] = [((), max(self._clock() - polled_at, 0.0))]
        for name, metric in METRICS.items():
            yield metric, page.get(name, [])

    def _release(self, groups: Sequence[GroupNow]) -> None:
        """End the series of groups that are not current, and give free places to others."""
        current = {group.key for group in groups}
        departed = {key for key in self._own if key not in current}
        self._own = {key: None for key in self._own if key in current}
        for group in groups:
            if len(self._own) < MAX_GROUPS and len(group.group_id) <= MAX_LABEL_LENGTH:
                self._own.setdefault(group.key)
        tables: tuple[dict[Labels, Any], ...] = (
            self._rebalances, self._moved, self._unavailable, self._durations
        )  # fmt: skip
        for table in tables:
            for labels in [labels for labels in table if labels[:2] in departed]:
                del table[labels]

    def _labels(self, cluster: str, group_id: str, group_type: str) -> Labels:
        is_own = (cluster, group_id) in self._own
        return (cluster, group_id if is_own else OTHER, group_type)

    def _count(self, r: Rebalance) -> None:
        labels = self._labels(r.cluster, r.group_id, r.group_type)
        self._rebalances[*labels, r.cause] += 1
        self._moved[labels] += r.moved
        if r.duration_ms is not None:
            self._durations[labels].add(r.duration_ms / 1000)
        if r.unavailable_ms is not None:
            self._unavailable[labels] += r.unavailable_ms / 1000

    def _pages(self, groups: Sequence[GroupNow]) -> dict[str, list[tuple[Labels, Any]]]:
        page: dict[str, list[tuple[Labels, Any]]] = defaultdict(list)
        page["konvene_rebalances_total"] = sorted(self._rebalances.items())
        page["konvene_moved_units_total"] = sorted(self._moved.items())
        page["konvene_unavailable_partition_seconds_total"] = sorted(self._unavailable.items())
        page["konvene_rebalance_seconds"] = [(k, v.frozen()) for k, v in sorted(self._durations.items())]
        partitions: list[tuple[Labels, PartitionLag]] = []
        now_ms = self._clock() * 1000
        for group in groups:
            if group.key not in self._own:
                continue
            labels = self._labels(*group.key, group.group_type)
            page["konvene_group_members"].append((labels, group.members))
            page["konvene_group_members_waiting"].append((labels, len(group.awaited)))
            age = max(now_ms - group.open.at_ms, 0) / 1000 if group.open is not None else 0.0
            page["konvene_group_rebalance_age_seconds"].append((labels, age))
            _add_lag(page, "konvene_group", labels, group.lags)
            for topic in sorted({each.topic for each in group.lags}):
                _add_lag(page, "konvene_group_topic", (*labels, topic),
                         [each for each in group.lags if each.topic == topic])  # fmt: skip
            partitions += [(labels, each) for each in group.lags]
        partitions.sort(key=lambda item: (-item[1].records, item[0], item[1].topic, item[1].partition))
        for labels, lag in sorted(partitions[:MAX_PARTITIONS]):
            _add_lag(page, "konvene_group_partition", (*labels, lag.topic, str(lag.partition)), [lag])
        return page


def _add_lag(
    page: dict[str, list[tuple[Labels, Any]]], prefix: str, labels: Labels, lags: Sequence[PartitionLag]
) -> None:
    if lags:
        page[f"{prefix}_lag_records"].append((labels, sum(each.records for each in lags)))
    ages = [each.age_ms for each in lags if each.age_ms is not None]
    if ages:
        page[f"{prefix}_lag_seconds"].append((labels, max(ages) / 1000))


def _by_log(damage: Iterable[Damage]) -> list[tuple[Labels, Any]]:
    found: Counter[Labels] = Counter()
    for each in damage:
        found[each.cluster, each.topic, str(each.partition)] += each.batches + each.records
    return sorted(found.items())


class MetricsServer:
    """The HTTP server of a follower's metrics, in a thread.

    Raises OSError if the address is not available."""

    def __init__(self, metrics: FollowerMetrics, host: str, port: int) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(metrics))
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/metrics"

    def __repr__(self) -> str:
        return f"<metrics at {self.url}>"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Collector:
    """A collector, as prometheus-client defines it."""

    def __init__(self, metrics: FollowerMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Family]:
        return []

    def collect(self) -> Iterator[Family]:
        from prometheus_client import core

        families: dict[str, Any] = {
            GAUGE: core.GaugeMetricFamily,
            COUNTER: core.CounterMetricFamily,
            HISTOGRAM: core.HistogramMetricFamily,
        }
        for metric, found in self._metrics.lines():
            family = families[metric.type](metric.name, metric.sentence, labels=metric.labels)
            for labels, value in found:
                if metric.type == HISTOGRAM:
                    family.add_metric(labels, buckets=value[0], sum_value=value[1])
                else:
                    family.add_metric(labels, value)
            yield family
