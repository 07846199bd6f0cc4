"""The table of metrics as text for Prometheus: in its own format, or in OpenMetrics if that is asked for.

Values are read on the broker's loop (`lines`), which takes no longer than there are lines; text is made of
them elsewhere (`text`), for that takes ten times as long. prometheus-client is imported when it is needed:
the extra `metrics` has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from konvene.broker.metrics.instruments import Buckets
from konvene.broker.metrics.tables.all_metrics import METRICS, read_all
from konvene.broker.metrics.tables.broker import Metric, Seen

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

MISSING = "metrics need prometheus-client, which is not installed here (pip install 'konvene[metrics]')"

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"

Page = list[tuple[Metric, list[tuple[tuple[str, ...], Any]]]]


def is_installed() -> bool:
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        return False
    return True


def lines(seen: Seen) -> Page:
    """What there is to say at this moment, in values that do not change any more."""
    return [
        (metric, [(labels, _settled(value)) for labels, value in found]) for metric, found in read_all(seen)
    ]


def _settled(value: float | Buckets) -> Any:
    return (value.cumulative(), value.total) if isinstance(value, Buckets) else value


def text(page: Page, accept: str) -> tuple[bytes, str]:
    """The page and its content type, in OpenMetrics where the header `Accept` names it."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    # Versions and escapings that a stranger may ask for are not looked at: there is one of each format.
    encode, content_type = choose_encoder(OPEN_METRICS if "application/openmetrics-text" in accept else "")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(page))
    return encode(registry), content_type


class _Collected:
    """A page as prometheus-client collects it."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def __repr__(self) -> str:
        return f"<a page of {len(METRICS)} metrics>"

    def describe(self) -> list[Family]:
        """Nothing, so that it is not collected twice."""
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
                if metric.type == "histogram":
                    family.add_metric(labels, buckets=value[0], sum_value=value[1])
                else:
                    family.add_metric(labels, value)
            yield family
