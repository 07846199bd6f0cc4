"""Broker settings for share groups, from the options of a run."""

from __future__ import annotations

from konvene.sim.world.faults import Options


def share_settings(options: Options) -> dict[str, str]:
    """Return the broker configs for share groups in a run with these options.

    The lower limits of session timeout, heartbeat interval and lock duration are below Kafka's defaults."""
    settings = {
        "group.share.min.session.timeout.ms": 1,
        "group.share.min.heartbeat.interval.ms": 1,
        "group.share.session.timeout.ms": options["session.ms"],
        "group.share.heartbeat.interval.ms": min(options["heartbeat.ms"], options["session.ms"] // 3),
        "group.share.assignment.interval.ms": options["assignment.interval.ms"],
        "group.share.max.size": options["max.size"],
        "group.share.initialize.retry.interval.ms": options["initialize.retry.ms"],
        "group.share.min.record.lock.duration.ms": 1_000,
        "group.share.record.lock.duration.ms": options["lock.ms"],
        "group.share.delivery.count.limit": options["delivery.limit"],
        "group.share.partition.max.record.locks": options["record.locks"],
        "share.coordinator.snapshot.update.records.per.snapshot": options["snapshot.updates"],
        "share.coordinator.cold.partition.snapshot.interval.ms": options["cold.ms"],
        "share.coordinator.state.topic.prune.interval.ms": options["prune.ms"],
        "konvene.heartbeat.policy": options["heartbeat.policy"],
    }
    return {name: str(value) for name, value in settings.items()}
