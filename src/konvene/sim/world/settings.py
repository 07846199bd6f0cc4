"""Broker settings that a fault may change during a run, with their possible values, the default first."""

from __future__ import annotations

from collections.abc import Sequence

from konvene.sim.members import assigns, runs_applications, shares
from konvene.sim.share.faults import SHARE_SETTINGS

Table = tuple[tuple[str, tuple[str, ...]], ...]

SETTINGS: Table = (
    ("group.max.size", ("1000", "2", "4")),
    ("group.initial.rebalance.delay.ms", ("3000", "500", "0")),
    ("offsets.retention.minutes", ("10080", "1")),
    ("offset.metadata.max.bytes", ("4096", "4")),
)

CONSUMER_SETTINGS: Table = (
    ("group.consumer.max.size", ("1000", "2", "4")),
    ("group.consumer.assignment.interval.ms", ("0", "1000", "4000")),
    ("group.consumer.session.timeout.ms", ("10000", "20000")),
    ("group.consumer.heartbeat.interval.ms", ("3000", "1000")),
    ("konvene.heartbeat.policy", ("responsive", "kafka")),
    ("group.consumer.migration.policy", ("bidirectional", "upgrade", "downgrade", "disabled")),
    ("group.consumer.assignors", ("uniform,range", "range,uniform")),
)

STREAMS_SETTINGS: Table = (
    ("group.streams.max.size", ("1000", "2", "4")),
    ("group.streams.assignment.interval.ms", ("0", "1000", "4000")),
    ("group.streams.initial.rebalance.delay.ms", ("0", "3000")),
    ("group.streams.session.timeout.ms", ("10000", "20000")),
    ("group.streams.heartbeat.interval.ms", ("3000", "1000")),
    ("group.streams.num.standby.replicas", ("0", "1", "2")),
    ("group.streams.acceptable.recovery.lag", ("10000", "0", "100")),
    ("group.streams.num.warmup.replicas", ("2", "0", "1", "3")),
    ("konvene.heartbeat.policy", ("responsive", "kafka")),
)

STREAMS_MIGRATION_SETTINGS: Table = (
    ("konvene.streams.migration.policy", (*("bidirectional",) * 4, "upgrade", "downgrade", "disabled")),
)


def settings_of(kinds: Sequence[str]) -> Table:
    """Return the settings that apply to groups of these kinds."""
    if "streams-migration" in kinds:
        return (*SETTINGS, *STREAMS_SETTINGS, *STREAMS_MIGRATION_SETTINGS)
    if runs_applications(kinds):
        return (*SETTINGS, *STREAMS_SETTINGS)
    if shares(kinds):
        return (*SETTINGS, *SHARE_SETTINGS)
    return (*SETTINGS, *CONSUMER_SETTINGS) if assigns(kinds) else SETTINGS


def initial_settings() -> dict[str, str]:
    """Return the initial value of every setting that may change."""
    tables = (*SETTINGS, *CONSUMER_SETTINGS, *STREAMS_SETTINGS, *STREAMS_MIGRATION_SETTINGS, *SHARE_SETTINGS)
    return {name: values[0] for name, values in tables}
