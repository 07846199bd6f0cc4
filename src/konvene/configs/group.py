"""Configurations of groups (GROUP resources).

A configuration without an override takes the value of its synonym, a broker configuration. `LIMITS` names the
broker configurations that bound it: an override beyond them is rejected when it is set, and clamped when it
is used if they have changed since.
"""

from __future__ import annotations

from typing import Final

from konvene.configs.setting import BOOLEAN, INT, LIST, LONG, STRING, Setting

__all__ = ["GROUP", "HEARTBEATING", "LIMITS", "TASK_ASSIGNORS", "WARMUPS"]

# fmt: off
ROWS: Final[tuple[Setting, ...]] = (
    # Consumer groups (KIP-848)
    Setting("consumer.session.timeout.ms", INT, 45_000,
            "A member that is silent for this long is removed.",
            at_least=1, synonyms=("group.consumer.session.timeout.ms",)),
    Setting("consumer.heartbeat.interval.ms", INT, 5000,
            "Heartbeat interval of members.",
            at_least=1, synonyms=("group.consumer.heartbeat.interval.ms",)),
    Setting("consumer.assignment.interval.ms", INT, 1000,
            "Shortest time between two target assignments.",
            at_least=0, synonyms=("group.consumer.assignment.interval.ms",)),
    Setting("consumer.assignor.offload.enable", BOOLEAN, True,
            "Whether target assignments are computed on a background thread.",
            synonyms=("group.consumer.assignor.offload.enable",), internal=True),

    # Share groups (KIP-932): membership
    Setting("share.session.timeout.ms", INT, 45_000,
            "A member that is silent for this long is removed.",
            at_least=1, synonyms=("group.share.session.timeout.ms",)),
    Setting("share.heartbeat.interval.ms", INT, 5000,
            "Heartbeat interval of members.",
            at_least=1, synonyms=("group.share.heartbeat.interval.ms",)),
    Setting("share.assignment.interval.ms", INT, 1000,
            "Shortest time between two target assignments.",
            at_least=0, synonyms=("group.share.assignment.interval.ms",)),
    Setting("share.assignor.offload.enable", BOOLEAN, True,
            "Whether share assignments are computed on a background thread.",
            synonyms=("group.share.assignor.offload.enable",), internal=True),

    # Share groups: delivery of records
    Setting("share.auto.offset.reset", STRING, "latest",
            "Where a new share partition starts: latest, earliest or by_duration:P..., that long before now.",
            rule="offset reset"),
    Setting("share.isolation.level", STRING, "read_uncommitted",
            "Whether records of open and aborted transactions are delivered as well.",
            one_of=("read_committed", "read_uncommitted")),
    Setting("share.record.lock.duration.ms", INT, 30_000,
            "How long a record stays locked to the consumer that acquired it.",
            at_least=1000, synonyms=("group.share.record.lock.duration.ms",)),
    Setting("share.delivery.count.limit", INT, 5,
            "How many times a record is delivered before it is archived.",
            at_least=2, synonyms=("group.share.delivery.count.limit",)),
    Setting("share.partition.max.record.locks", INT, 2000,
            "Most records in flight at once in one share partition.",
            at_least=100, synonyms=("group.share.partition.max.record.locks",)),
    Setting("share.renew.acknowledge.enable", BOOLEAN, True,
            "Whether a consumer may renew its lock on a record."),
    Setting("errors.deadletterqueue.topic.name", STRING, "",
            "Dead letter topic for records that are not delivered again; empty for none."),
    Setting("errors.deadletterqueue.copy.record.enable", BOOLEAN, False,
            "Whether the dead letter carries the key, value and headers of the record."),

    # Streams groups (KIP-1071)
    Setting("streams.session.timeout.ms", INT, 45_000,
            "A member that is silent for this long is removed.",
            at_least=1, synonyms=("group.streams.session.timeout.ms",)),
    Setting("streams.heartbeat.interval.ms", INT, 5000,
            "Heartbeat interval of members.",
            at_least=1, synonyms=("group.streams.heartbeat.interval.ms",)),
    Setting("streams.assignment.interval.ms", INT, 1000,
            "Shortest time between two target assignments.",
            at_least=0, synonyms=("group.streams.assignment.interval.ms",)),
    Setting("streams.initial.rebalance.delay.ms", INT, 3000,
            "How long the first assignment of an empty group waits for more members to arrive.",
            at_least=0, synonyms=("group.streams.initial.rebalance.delay.ms",)),
    Setting("streams.num.standby.replicas", INT, 0,
            "How many standby copies each stateful task gets.",
            at_least=0, synonyms=("group.streams.num.standby.replicas",)),
    Setting("streams.num.warmup.replicas", INT, 2,
            "How many tasks may be warming up elsewhere at the same time.",
            at_least=0, synonyms=("group.streams.num.warmup.replicas",), internal=True),
    Setting("streams.acceptable.recovery.lag", LONG, 10_000,
            "A copy of a task this many records behind or fewer counts as caught up.",
            at_least=0, synonyms=("group.streams.acceptable.recovery.lag",), internal=True),
    Setting("streams.task.offset.interval.ms", INT, 60_000,
            "How often members report the changelog offsets of their tasks.",
            at_least=1, synonyms=("group.streams.task.offset.interval.ms",), internal=True),
    Setting("streams.rack.aware.assignment.tags", LIST, (),
            "Client tags over whose values the standby copies of a task are spread.",
            rule="no duplicates", importance="LOW", synonyms=("group.streams.rack.aware.assignment.tags",)),
    Setting("streams.assignor.name", STRING, None,
            "Which of the broker's task assignors this group uses; unset means the first.",
            synonyms=("group.streams.assignors",),
            note="Where group.streams.assignors is not set either, the broker chooses: highly_available for "
            "tasks with state, if members report how far they are, else sticky."),
    Setting("streams.assignor.offload.enable", BOOLEAN, True,
            "Whether task assignments are computed on a background thread.",
            synonyms=("group.streams.assignor.offload.enable",), internal=True),
)
# fmt: on

GROUP: Final[dict[str, Setting]] = {row.name: row._replace(dynamic="group resource") for row in ROWS}

# A group setting and the broker settings it must lie between; None where one side is open.
LIMITS: Final[dict[str, tuple[str | None, str | None]]] = {
    **{
        f"{kind}.{what}": (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
        for kind in ("consumer", "share", "streams")
        for what in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    },
    **{
        f"share.{what}": (f"group.share.min.{what}", f"group.share.max.{what}")
        for what in ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")
    },
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
    "streams.num.warmup.replicas": (None, "group.streams.max.warmup.replicas"),
    "streams.task.offset.interval.ms": ("group.streams.min.task.offset.interval.ms", None),
}

# How tasks of streams groups warm up: Kafka hides these settings until they do.
WARMUPS: Final = (
    "streams.num.warmup.replicas",
    "streams.acceptable.recovery.lag",
    "streams.task.offset.interval.ms",
)

# The task assignors that are built in, by name.
TASK_ASSIGNORS: Final = ("sticky", "highly_available")

# The kinds of group whose members heartbeat: a session must outlast a heartbeat.
HEARTBEATING: Final = ("consumer", "share", "streams")
