"""Broker configurations of metrics: where they are served, and how many groups have their own label."""

from __future__ import annotations

from typing import Final

from konvene.configs.setting import INT, STRING, Setting

__all__ = ["METRICS_ROWS"]

# fmt: off
METRICS_ROWS: Final[tuple[Setting, ...]] = (
    Setting("konvene.metrics.port", INT, -1,
            "Port on which metrics are served, at `/metrics`, and health checks; -1: nowhere, and nothing is"
            " counted.",
            at_least=-1, at_most=65_535,
            note="0 takes a free port. Metrics need the extra `metrics`, health checks do not."),
    Setting("konvene.metrics.host", STRING, "localhost",
            "Address on which metrics are served.",
            note="There is no authentication: every client that reaches it can read the ids of groups."),
    Setting("konvene.metrics.groups", INT, 100,
            "Groups that have metrics under their own ids; all others share `__other__`.",
            at_least=0, at_most=10_000),
    Setting("konvene.metrics.topics", INT, 1000,
            "Pairs of a group and a topic whose lag has metrics of its own; the other topics of a group share"
            " `__other__`.",
            at_least=0, at_most=100_000),
)
