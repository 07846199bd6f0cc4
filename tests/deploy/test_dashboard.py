"""The Grafana dashboard and the alerts use metrics and labels that a broker has."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.broker.metrics.scraping import Samples, scrape
from tests.broker.metrics.test_whole import poll_until, running_with_topic, state_of, streams_heartbeat
from tests.broker.net.raw_connections import Line, until
from tests.deploy.promql import legend_labels, names

from konvene.client import Consumer, ShareConsumer, TopicPartition
from konvene.codec.batches import build_simple
from konvene.pipeline.monitoring.metrics import METRICS

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "konvene.json"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
EXPLAIN_ALERTS = DEPLOY / "prometheus" / "explain-alerts.yml"

OF_PROMETHEUS = {"up": {"instance", "job"}}
"""Metrics that Prometheus itself adds."""

OF_TARGET = {"instance", "job"}
"""Labels that Prometheus adds to each metric."""


async def _scraped(path: Path) -> Samples:
    """Scrape a broker with a classic, a consumer, a share and a streams group that have read records."""
    settings = {
        "group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0",
        "group.share.assignment.interval.ms": "0",
    }  # fmt: skip
    async with running_with_topic(path, settings) as (broker, port, cluster):
        partition = broker.partitions.get("orders", 0)
        assert partition is not None
        for _ in range(3):
            partition.produce(bytearray(build_simple([(b"k", b"v")], broker.environment.wall_clock_ms())))
        kinds = {"old": "classic", "new": "consumer"}
        members = [
            Consumer(cluster, group, group_protocol=kind, auto_offset_reset="earliest")
            for group, kind in kinds.items()
        ]
        for member in members:
            member.subscribe(["orders"])
        stop = asyncio.Event()
        polling = asyncio.ensure_future(poll_until(members, stop))
        await until(lambda: all(state_of(broker, group) == "1 Stable" for group in kinds), 30)
        stop.set()
        await polling
        for member in members:
            await member.commit({TopicPartition("orders", 0): 1})
        line = await Line.to(broker)
        assert (await line.ask(88, 1, streams_heartbeat("ann", 0))).error_code == 0
        async with ShareConsumer(cluster, "share") as share:
            share.subscribe(["orders"])
            async with asyncio.timeout(60):
                while not broker.share_partitions.served:
                    await share.poll(100)
            found = await scrape(port)
        for member in members:
            await member.close()
        return found


@pytest.fixture(scope="module")
def labels_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The label names of each metric in a scrape."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, labels in asyncio.run(_scraped(tmp_path_factory.mktemp("data"))):
        found[name] |= {label for label, _ in labels} | OF_TARGET
    return dict(found) | OF_PROMETHEUS


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text("utf-8"))


def targets() -> Iterator[tuple[str, str, str]]:
    """Yield the panel, expression and legend of each query of the dashboard."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]


def alerts(file: Path = ALERTS) -> Iterator[tuple[str, str, str]]:
    """Yield the name, expression and summary of each alert."""
    for group in yaml.safe_load(file.read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"], rule["annotations"]["summary"]


@pytest.mark.parametrize(
    ("where", "expression", "legend"), [*targets(), *alerts()], ids=lambda text: text[:40] or "-"
)
def test_expression_uses_metrics_and_labels_of_a_broker(
    labels_of: dict[str, set[str]], where: str, expression: str, legend: str
) -> None:
    """Each metric is in the scrape, and has the labels that the expression and its legend use."""
    used = names(expression)
    assert used.metrics, expression
    assert used.metrics <= labels_of.keys(), (where, used.metrics - labels_of.keys())
    for metric in used.metrics:
        missing = (used.labels | legend_labels(legend)) - labels_of[metric]
        assert not missing, (where, metric, missing)


@pytest.mark.parametrize(("where", "expression", "summary"), list(alerts(EXPLAIN_ALERTS)))
def test_expression_uses_metrics_and_labels_of_a_follower(where: str, expression: str, summary: str) -> None:
    labels_of = {name: {*metric.labels, *OF_TARGET} for name, metric in METRICS.items()} | OF_PROMETHEUS
    used = names(expression)
    assert used.metrics and used.metrics <= labels_of.keys(), where
    for metric in used.metrics:
        assert used.labels | legend_labels(summary) <= labels_of[metric], (where, metric)


def test_variables_use_metrics_and_labels_of_a_broker(labels_of: dict[str, set[str]]) -> None:
    """And each variable in an expression exists."""
    variables = {each["name"]: each for each in dashboard()["templating"]["list"]}
    assert set(variables) == {"datasource", "instance", "group"}
    for name in ("instance", "group"):
        query = variables[name]["query"]["query"]
        metric, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()  # type: ignore[union-attr]
        (used,) = names(metric).metrics
        assert {label, *names(metric).labels} <= labels_of[used]
    for _, expression, _ in targets():
        assert set(re.findall(r"\$(\w+)", expression)) <= {"instance", "group", "__rate_interval"}


def test_panels_have_places_of_their_own() -> None:
    """Ids are unique, no panel covers another one, and the grid has 24 columns."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


@pytest.mark.parametrize(
    ("expression", "metrics", "labels"),
    [
        ("sum(a_total)", {"a_total"}, set()),
        ('rate(a_total{x="b", y=~"$c"}[$__rate_interval])', {"a_total"}, {"x", "y"}),
        ("histogram_quantile(0.95, sum by (le, g) (rate(a_bucket[5m]))) > 1e3", {"a_bucket"}, {"le", "g"}),
        ("a == 0 and on (g) b{z!='q'} offset 5m", {"a", "b"}, {"g", "z"}),
    ],
)
def test_names_of_an_expression(expression: str, metrics: set[str], labels: set[str]) -> None:
    found = names(expression)
    assert found.labels == labels
    assert found.metrics == metrics
