"""Metrics of the lag and the state of each group, for alerts on consumers (`group_lags` computes the lag).

They exist only for groups with a label of their own. A group that had no members since the start of the
broker may have one too, so that the lag of a stopped application is known.
"""

from __future__ import annotations

from typing import Final

from konvene.broker.metrics.tables.broker import GAUGE, Lines, Metric, Snapshot

__all__ = ["OURS_OF_LAGS"]


def _group_records(snapshot: Snapshot) -> Lines:
    return [(labels, lag.records) for labels, lag in sorted(snapshot.gauges.lags.groups.items())]


def _group_seconds(snapshot: Snapshot) -> Lines:
    for labels, lag in sorted(snapshot.gauges.lags.groups.items()):
        seconds = lag.seconds(snapshot.gauges.lags.now_ms)
        if seconds is not None:
            yield labels, seconds


def _topic_records(snapshot: Snapshot) -> Lines:
    return [(labels, lag.records) for labels, lag in sorted(snapshot.gauges.lags.topics.items())]


def _topic_seconds(snapshot: Snapshot) -> Lines:
    for labels, lag in sorted(snapshot.gauges.lags.topics.items()):
        seconds = lag.seconds(snapshot.gauges.lags.now_ms)
        if seconds is not None:
            yield labels, seconds


def _states(snapshot: Snapshot) -> Lines:
    return [(labels, 1) for labels in sorted(snapshot.gauges.states)]


def _rebalance_ages(snapshot: Snapshot) -> Lines:
    for labels, ended_ms in sorted(snapshot.meter.last_rebalance_ms.items()):
        yield labels, max(snapshot.gauges.lags.now_ms - ended_ms, 0) / 1000


_GROUP: Final = ("group", "protocol")

OURS_OF_LAGS: Final[tuple[Metric, ...]] = (
    Metric("konvene_group_lag_records", GAUGE,
           "Lag of a group in records, over all partitions with a committed offset.",
           _group_records, _GROUP),
    Metric("konvene_group_lag_seconds", GAUGE,
           "Age of the oldest record that a group has not read, estimated from its batch. No line if it is "
           "not known.",
           _group_seconds, _GROUP),
    Metric("konvene_group_topic_lag_records", GAUGE, "Lag of a group in a topic, in records.",
           _topic_records, (*_GROUP, "topic")),
    Metric("konvene_group_topic_lag_seconds", GAUGE,
           "Age of the oldest record of a topic that a group has not read. No line if it is not known.",
           _topic_seconds, (*_GROUP, "topic")),
    Metric("konvene_group_state", GAUGE, "1 for the state that a group is in.",
           _states, (*_GROUP, "state")),
    Metric("konvene_group_last_rebalance_age_seconds", GAUGE,
           "Time since the last rebalance of a group ended. No line before the first one since the start.",
           _rebalance_ages, _GROUP),
)  # fmt: skip
