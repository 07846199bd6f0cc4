"""The tables of metrics, and the reference page that they render."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from konvene.broker.metrics.meter import OFFSET_SENSORS
from konvene.broker.metrics.reference import BOUNDS, render_reference
from konvene.broker.metrics.tables.all_metrics import METRICS
from konvene.broker.metrics.tables.broker import KAFKAS, KAFKAS_OF_SHARE_STATE, OURS, Metric
from konvene.broker.metrics.tables.lags import OURS_OF_LAGS
from konvene.broker.metrics.tables.shares import OURS_OF_DELIVERIES

ROOT = Path(__file__).parents[3]
ATTRIBUTES = {
    "group-count", "classic-group-count", "consumer-group-count", "share-group-count", "streams-group-count",
    "offset-count", "num-partitions", "partition-load-time-max", "partition-load-time-avg",
    *(f"{name}-{end}" for end in ("count", "rate") for name in (
        "group-completed-rebalance", "consumer-group-rebalance", "share-group-rebalance",
        "streams-group-rebalance", "offset-commit", "offset-expiration", "offset-deletion",
    )),
}  # fmt: skip
"""Attributes of `kafka.server:type=group-coordinator-metrics` in Apache Kafka 4.4."""


def test_reference_page_is_up_to_date() -> None:
    """After a change of a row: `make docs`."""
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8") == render_reference()


def test_group_coordinator_metrics_have_kafkas_names() -> None:
    """Each attribute of Kafka has a row and no other; names are those of the JMX exporter."""
    assert {metric.kafka for metric in KAFKAS} == ATTRIBUTES
    for metric in KAFKAS:
        tail = metric.name.removeprefix("kafka_server_group_coordinator_metrics_")
        assert tail == metric.kafka.replace("-", "_")


def test_share_coordinator_metrics_have_kafkas_names() -> None:
    """`kafka.server:type=share-coordinator-metrics` has these; what its runtime has besides waits nowhere."""
    assert {metric.kafka for metric in KAFKAS_OF_SHARE_STATE} == {
        "write-total", "write-rate", "write-latency-max", "write-latency-avg", "last-pruned-offset",
        "num-partitions", "partition-load-time-max", "partition-load-time-avg",
    }  # fmt: skip
    for metric in KAFKAS_OF_SHARE_STATE:
        tail = metric.name.removeprefix("kafka_server_share_coordinator_metrics_")
        assert tail == metric.kafka.replace("-", "_")


def test_metric_names_are_unique() -> None:
    """In OpenMetrics too, where a counter's name has no `_total`."""
    names = [metric.name.removesuffix("_total") for metric in METRICS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "metric", (*OURS, *OURS_OF_LAGS, *OURS_OF_DELIVERIES), ids=lambda metric: metric.name
)
def test_own_metrics_follow_prometheus_naming(metric: Metric) -> None:
    """A prefix, base units, `_total` behind counters and nowhere else; histograms have documented buckets."""
    assert re.fullmatch(r"konvene_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert (metric.type == "histogram") == (metric.name in BOUNDS)
    assert metric.type != "histogram" or metric.name.endswith("_seconds")
    assert metric.sentence.endswith(".")


def test_offset_sensors_have_rows() -> None:
    """Each sensor of the meter has metrics."""
    assert len(OFFSET_SENSORS) * 2 == sum(metric.kafka.startswith("offset-") for metric in KAFKAS) - 1
