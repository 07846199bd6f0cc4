"""Renders the metrics as text for Prometheus, in its own format or in OpenMetrics.

Values are read on the broker's loop (`lines`), which is fast; the text, which takes ten times as long, is
rendered on another thread (`text`). prometheus-client, of the extra `metrics`, is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from konvene.broker.metrics.instruments import Buckets
from konvene.broker.metrics.tables.all_metrics import METRICS, read_all
from konvene.broker.metrics.tables.broker import Metric, Snapshot

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

MISSING = "metrics need prometheus-client, which is not installed here (pip install prometheus-client)"

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"

Value = float | tuple[list[tuple[str, float]], float]
"""A number, or the cumulative buckets and the sum of a histogram."""

Page = list[tuple[Metric, list[tuple[tuple[str, ...], Value]]]]


def is_installed() -> bool:
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        return False
    return True


def lines(snapshot: Snapshot) -> Page:
    """Return labels and values of all metrics. Histograms are copied, so later changes do not affect them."""
    return [
        (metric, [(labels, _frozen(value)) for labels, value in found])
        for metric, found in read_all(snapshot)
    ]


def _frozen(value: float | Buckets) -> Value:
    return (value.cumulative(), value.total) if isinstance(value, Buckets) else value


def text(page: Page, accept: str) -> tuple[bytes, str]:
    """Render a page as OpenMetrics if the `Accept` header names it, else as Prometheus' text format.

    Return the text and its content type."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    # Requested versions and escapings are ignored: each format has one here.
    encode, content_type = choose_encoder(OPEN_METRICS if "application/openmetrics-text" in accept else "")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(page))
    return encode(registry), content_type


class _Collected:
    """A collector, as prometheus-client defines it, that yields the metrics of a page."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def __repr__(self) -> str:
        return f"<a page of {len(METRICS)} metrics>"

    def describe(self) -> list[Family]:
        """Return no metrics, so that prometheus-client does not collect when the collector is registered."""
        return []

    def collect(self) -> Iterator[Family]:
        from prometheus_client import core

        families: dict[str, Any] = {
            "gauge": core.GaugeMetricFamily,
            "counter": core.CounterMetricFamily,
            "histogram": core.HistogramMetricFamily,
            "unknown": core.UntypedMetricFamily,
        }
        for metric, found in self._page:
            family = families[metric.type](metric.name, metric.sentence, labels=metric.labels)
            for labels, value in found:
                if isinstance(value, tuple):
                    family.add_metric(labels, buckets=value[0], sum_value=value[1])
                else:
                    family.add_metric(labels, value)
            yield family
