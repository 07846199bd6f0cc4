"""Renders the reference page of all metrics: `python -m konvene.broker.metrics.reference FILE` writes it.

A test compares the page in the repository with the rendered one, so that no metric changes unnoticed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from konvene.broker.metrics.group_types import KINDS
from konvene.broker.metrics.meter import DECISION_S, HEARTBEAT_INTERVAL_S, REBALANCE_S, SYNC_S
from konvene.broker.metrics.tables.broker import (
    INSTEAD,
    KAFKAS,
    KAFKAS_OF_SHARE_STATE,
    MBEAN,
    OURS,
    SHARE_MBEAN,
    Metric,
)
from konvene.broker.metrics.tables.cleaner import (
    CLEANER_MBEAN,
    KAFKAS_OF_CLEANER,
    MANAGER_MBEAN,
    OURS_OF_CLEANER,
)
from konvene.broker.metrics.tables.lags import OURS_OF_LAGS
from konvene.broker.metrics.tables.placement_costs import OURS_OF_STREAMS
from konvene.broker.metrics.tables.quotas import KAFKAS_OF_QUOTAS, QUOTA_MBEANS
from konvene.broker.metrics.tables.shares import (
    GROUPS_MBEAN,
    KAFKAS_OF_DELIVERIES,
    OURS_OF_DELIVERIES,
    PARTITIONS_MBEAN,
)
from konvene.broker.metrics.tables.warmups import OURS_OF_WARMUPS

__all__ = ["render_reference"]

HEAD = """# Metrics

Every metric that `konvene` serves, rendered from the tables in `konvene.broker.metrics.tables`. After a
change there, run `python -m konvene.broker.metrics.reference docs/reference/metrics.md`.
[Metrics](../metrics.md) explains how to enable them.
"""

BOUNDS = {
    "konvene_rebalance_seconds": REBALANCE_S,
    "konvene_heartbeat_interval_seconds": HEARTBEAT_INTERVAL_S,
    "konvene_coordinator_decision_seconds": DECISION_S,
    "konvene_log_sync_seconds": SYNC_S,
}


def render_reference() -> str:
    """Return the page as Markdown, ending in a newline."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield HEAD
    yield "## As in Kafka\n"
    yield f"Attributes of the MBean `{MBEAN}`, under the names that the JMX exporter gives them.\n"
    yield from _table(KAFKAS, "Kafka's attribute", lambda metric: f"`{metric.kafka}`")
    yield "States are Kafka's; each has a line even if no group is in it:\n"
    yield "| Protocol | States |"
    yield "| --- | --- |"
    for name, kind in KINDS.items():
        yield f"| {name} | {', '.join(kind.states)} |"
    yield ""
    yield f"And of the MBean `{SHARE_MBEAN}`:\n"
    yield from _table(KAFKAS_OF_SHARE_STATE, "Kafka's attribute", lambda metric: f"`{metric.kafka}`")
    yield f"And of the MBeans `{GROUPS_MBEAN}` and `{PARTITIONS_MBEAN}`, whose names are a label:\n"
    yield from _table(KAFKAS_OF_DELIVERIES, "Kafka's attribute", lambda metric: f"`{metric.kafka}`")
    yield f"And of the MBeans `{CLEANER_MBEAN}` and `{MANAGER_MBEAN}`, in the same way:\n"
    yield from _table(KAFKAS_OF_CLEANER, "Kafka's attribute", lambda metric: f"`{metric.kafka}`")
    quota_mbeans = ", ".join(f"`{mbean}`" for mbean in QUOTA_MBEANS)
    yield f"And of the MBeans {quota_mbeans}, with their tags, while clients have quotas:\n"
    yield from _table(KAFKAS_OF_QUOTAS, "Kafka's attribute", lambda metric: f"`{metric.kafka}`")
    yield "Kafka's other metrics, and what replaces them:\n"
    yield "| Kafka | konvene |"
    yield "| --- | --- |"
    for names, instead in INSTEAD:
        yield f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {instead} |"
    yield ""
    yield "## konvene's own metrics\n"
    yield from _table(
        (*OURS, *OURS_OF_LAGS, *OURS_OF_WARMUPS, *OURS_OF_STREAMS, *OURS_OF_DELIVERIES, *OURS_OF_CLEANER),
        "Buckets, in seconds",
        _bounds,
    )


def _table(metrics: Iterable[Metric], last: str, cell: Callable[[Metric], str]) -> Iterator[str]:
    yield f"| Name | Type | Labels | Meaning | {last} |"
    yield "| --- | --- | --- | --- | --- |"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.type} | {labels} | {metric.sentence} | {cell(metric)} |"
    yield ""


def _bounds(metric: Metric) -> str:
    return ", ".join(f"{bound:g}" for bound in BOUNDS.get(metric.name, ()))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render_reference(), encoding="utf-8")
