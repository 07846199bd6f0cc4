"""Metrics of a follower: values, names, bounds, and groups that disappear."""

from __future__ import annotations

import urllib.request
from dataclasses import replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families as families
from tests.pipeline.monitoring.test_alerts import OPEN, ROWS

from konvene.broker.metrics.meter import REBALANCE_S
from konvene.broker.metrics.tables.all_metrics import METRICS as BROKERS
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.pipeline.answers import Damage
from konvene.pipeline.monitoring.current import Awaited, GroupNow, PartitionLag
from konvene.pipeline.monitoring.metrics import (
    BUCKETS_S,
    MAX_GROUPS,
    MAX_PARTITIONS,
    METRICS,
    FollowerMetrics,
    MetricsServer,
)

LABELS = {"cluster": "c", "group": "app", "protocol": "consumer"}


class Clock:
    def __init__(self) -> None:
        self.now_s = OPEN.at_ms / 1000 + 7

    def __call__(self) -> float:
        return self.now_s


def scraped(metrics: FollowerMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples that Prometheus reads, by name and labels."""
    server = MetricsServer(metrics, "localhost", 0)
    try:
        with urllib.request.urlopen(server.url, timeout=60) as response:
            text = response.read().decode()
    finally:
        server.close()
    return {(s.name, frozenset(s.labels.items())): s.value for f in families(text) for s in f.samples}


def value(found: dict[Any, float], name: str, **labels: str) -> float:
    return found[name, frozenset((LABELS | labels if "group" not in labels else labels).items())]


def test_values_of_a_poll() -> None:
    clock = Clock()
    metrics = FollowerMetrics(clock)
    lags = (PartitionLag("t", 0, 5, 2_000), PartitionLag("t", 1, 7, None), PartitionLag("u", 0, 0, 0))
    app = GroupNow("c", "app", "consumer", 3, ROWS, OPEN, (Awaited("m", "ann"),), lags)
    hole = Damage("c", OFFSETS_TOPIC, 4, 1, 2, ("checksum",), batches=2)
    ended = [replace(r, cluster="c", unavailable_ms=1_500, duration_ms=700, moved=2) for r in ROWS]
    metrics.source("b:1", True)
    metrics.poll([app], ended, [hole, replace(hole, first_offset=9)], [("lag", "c", "app", "")], 0.25)
    metrics.source("b:1", False)
    clock.now_s += 3
    found = scraped(metrics)
    causes = {r.cause for r in ended}
    assert sum(value(found, "konvene_rebalances_total", cause=cause) for cause in causes) == len(ended)
    assert value(found, "konvene_rebalance_seconds_count") == 3
    assert value(found, "konvene_rebalance_seconds_bucket", le="0.5") == 0
    assert value(found, "konvene_rebalance_seconds_bucket", le="1.0") == 3
    assert value(found, "konvene_unavailable_partition_seconds_total") == 4.5
    assert value(found, "konvene_moved_units_total") == 6
    assert value(found, "konvene_group_members") == 3 and value(found, "konvene_group_members_waiting") == 1
    assert value(found, "konvene_group_rebalance_age_seconds") == 7
    assert value(found, "konvene_group_lag_records") == 12 and value(found, "konvene_group_lag_seconds") == 2
    assert value(found, "konvene_group_topic_lag_records", topic="t") == 12
    assert value(found, "konvene_group_partition_lag_records", topic="t", partition="1") == 7
    unknown = frozenset({**LABELS, "topic": "t", "partition": "1"}.items())
    assert ("konvene_group_partition_lag_seconds", unknown) not in found
    log = frozenset({"cluster": "c", "topic": OFFSETS_TOPIC, "partition": "4"}.items())
    assert found["konvene_explain_unreadable_batches", log] == 4
    assert found["konvene_explain_alerts", frozenset({("rule", "lag")})] == 1
    assert found["konvene_explain_up", frozenset({("source", "b:1")})] == 0
    assert found["konvene_explain_poll_errors_total", frozenset({("source", "b:1")})] == 1
    assert found["konvene_explain_poll_age_seconds", frozenset()] == 3
    assert found["konvene_explain_poll_seconds", frozenset()] == 0.25
    assert {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name, _ in found} \
        == set(METRICS)  # fmt: skip


def test_groups_that_disappear_have_no_series() -> None:
    metrics = FollowerMetrics(Clock())
    app, other = GroupNow("c", "app", "consumer", 1), GroupNow("c", "other", "consumer", 1)
    metrics.poll([app, other], [replace(r, cluster="c") for r in ROWS], [], [], 0)
    assert {dict(labels).get("group") for _, labels in scraped(metrics)} >= {"app", "other"}
    metrics.poll([other], [], [], [], 0)
    assert "app" not in {dict(labels).get("group") for _, labels in scraped(metrics)}


def test_series_are_bounded() -> None:
    """Groups without a place have no series of their own; their rebalances count together."""
    metrics = FollowerMetrics(Clock())
    lags = tuple(PartitionLag("t", n, n, 1_000) for n in range(100))
    groups = [GroupNow("c", f"g{n:04}", "consumer", 1, lags=lags) for n in range(MAX_GROUPS + 50)]
    groups.insert(0, GroupNow("c", "x" * 300, "consumer", 1))
    ended = [replace(ROWS[0], cluster="c", group_id=group.group_id) for group in groups]
    for _ in range(2):
        metrics.poll(groups, ended, [], [], 0)
    lines = {metric.name: found for metric, found in metrics.lines()}
    assert len(lines["konvene_group_members"]) == MAX_GROUPS
    assert len(lines["konvene_group_partition_lag_records"]) == MAX_PARTITIONS
    counts = {labels[1]: count for labels, count in lines["konvene_rebalances_total"]}
    assert len(counts) == MAX_GROUPS + 1 and counts["__other__"] == 2 * 51


def test_metrics_of_a_broker_have_the_same_type_and_labels() -> None:
    """And the cluster besides, so that its alerts and its dashboard apply."""
    shared = {metric.name: metric for metric in BROKERS if metric.name in METRICS}
    assert len(shared) >= 8
    for name, metric in shared.items():
        ours = METRICS[name]
        assert ours.type == metric.type and set(ours.labels) - set(metric.labels) <= {"cluster"}
        assert set(metric.labels) <= set(ours.labels)
    assert BUCKETS_S == REBALANCE_S
