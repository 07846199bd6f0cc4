"""konvene's own configurations. All names start with `konvene.`."""

from __future__ import annotations

from typing import Final

from konvene.configs.setting import BOOLEAN, INT, LIST, LONG, STRING, Setting
from konvene.internal_topics import AUDIT_TOPIC, OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC

__all__ = ["KONVENE_ROWS"]

# fmt: off
KONVENE_ROWS: Final[tuple[Setting, ...]] = (
    # The audit: why each group changed
    Setting("konvene.audit.enable", BOOLEAN, True,
            "Whether the cause of every rebalance is written to the internal topic `__konvene_audit`."),
    Setting("konvene.audit.retention.ms", LONG, 604_800_000,
            "How long causes are kept; -1 for ever.",
            at_least=-1),

    # Durability: what reaches the disk before an answer leaves
    Setting("konvene.log.fsync.internal", BOOLEAN, True,
            "Whether a coordinator's records are on disk before it answers.",
            note="Kafka leaves them to the page cache and to other brokers; a single node has no other."),
    Setting("konvene.log.fsync.topics", BOOLEAN, False,
            "Whether records of other topics are on disk before a write is answered and a reader sees them.",
            note="Off, they are left to the page cache and to the flush settings, as in Kafka."),

    # The archive: finished segments, before cleaning or retention takes them
    Setting("konvene.log.archive.dir", STRING, "",
            "Where finished segments are kept before cleaning or retention takes them; empty: nowhere.",
            note="They are linked, or copied where files cannot be. While it cannot take them, the logs of "
            "these topics are neither cleaned nor shortened."),
    Setting("konvene.log.archive.topics", LIST,
            (OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_STATE_TOPIC, AUDIT_TOPIC),
            "The topics whose finished segments are handed over."),

    # Compaction
    Setting("konvene.log.cleaner.process.min.bytes", LONG, 4_194_304,
            "Log size in bytes from which on compaction runs in a process of its own.",
            at_least=0, dynamic="cluster-wide",
            note="The process is started when it is needed and ends when there is nothing more to do."),

    # Streams groups
    Setting("konvene.streams.mode", STRING, "kafka",
            "Behaviour of streams groups where KIP-1071 specifies more than Apache Kafka implements.",
            one_of=("kafka", "kip"), dynamic="cluster-wide",
            note="kafka: exactly Kafka 4.4, including its error codes. kip: as specified."),

    Setting("konvene.streams.migration.policy", STRING, "bidirectional",
            "Directions in which a group may convert between the classic and the streams protocol "
            "while it has members.",
            one_of=("BIDIRECTIONAL", "DISABLED", "DOWNGRADE", "UPGRADE"), any_case=True,
            note="Only if konvene.streams.mode is kip: Apache Kafka converts only empty groups."),

    Setting("konvene.streams.topology.description.enable", BOOLEAN, False,
            "Whether members send a description of their topology, which is kept in memory.",
            dynamic="cluster-wide",
            note="Apache Kafka needs a plugin and answers UNSUPPORTED_VERSION without one."),

    # Heartbeats: how quickly members learn of a rebalance
    Setting("konvene.heartbeat.policy", STRING, "responsive",
            "How quickly members learn of a rebalance: as in Kafka, or faster in small clusters.",
            one_of=("kafka", "responsive"), dynamic="cluster-wide",
            note="responsive: members of consumer groups heartbeat more often, and heartbeats without news "
            "are held in the purgatory. kafka: exactly Kafka's timing."),
    Setting("konvene.heartbeat.interval.ms", INT, 1000,
            "Heartbeat interval of a member that has reached its target, if the policy is responsive.",
            at_least=100, dynamic="cluster-wide",
            note="Never more than the configured interval. It may lie below "
            "`group.consumer.min.heartbeat.interval.ms`: that bounds what is configured."),
    Setting("konvene.heartbeat.waiting.interval.ms", INT, 500,
            "Heartbeat interval of a member with pending changes, if the policy is responsive.",
            at_least=100, dynamic="cluster-wide"),
    Setting("konvene.heartbeat.budget.per.second", INT, 2000,
            "Heartbeats per second of all members together, if the policy is responsive.",
            at_least=1, dynamic="cluster-wide",
            note="Beyond it the interval grows, up to the configured one."),
    Setting("konvene.heartbeat.hold.enable", BOOLEAN, True,
            "Whether heartbeats without news are held in the purgatory, if the policy is responsive.",
            dynamic="cluster-wide",
            note="Until there is news, or most of the heartbeat interval is over."),
    Setting("konvene.heartbeat.hold.clients", LIST, ("apache-kafka-java:4.0", "librdkafka:2.4"),
            "Clients whose heartbeats may be held, by name and lowest version in ApiVersions.",
            dynamic="cluster-wide",
            note="A client with rdkafka- in its version counts as librdkafka of that version."),
    Setting("konvene.heartbeat.hold.classic.clients", LIST,
            ("apache-kafka-java:4.0", "librdkafka:2.4", "kafka-python:3.0"),
            "Clients whose heartbeats in classic groups may be held, listed as above.",
            dynamic="cluster-wide",
            note="For less than their observed heartbeat interval, and at most 4.5 s."),
    Setting("konvene.session.disconnect.grace.ms", INT, 0,
            "How long a member may stay away after losing its connection without leaving; 0: its session.",
            at_least=0, dynamic="cluster-wide",
            note="Of dynamic members of consumer groups; never less than a heartbeat's interval and a half "
            "second."),
)
