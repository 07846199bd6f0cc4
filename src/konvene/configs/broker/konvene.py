"""What a broker is told about what only konvene does. All names start with `konvene.`."""

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
            "How many bytes a log has that is compacted in a process of its own rather than beside requests.",
            at_least=0, dynamic="cluster-wide",
            note="The process is started when it is needed and ends when there is nothing more to do."),

    # Streams groups
    Setting("konvene.streams.mode", STRING, "kafka",
            "What streams groups do where KIP-1071 says more than Apache Kafka does.",
            one_of=("kafka", "kip"), dynamic="cluster-wide",
            note="kafka: exactly Kafka 4.4, its error codes included. kip: what the document says."),

    Setting("konvene.streams.migration.policy", STRING, "bidirectional",
            "Which ways a group may change between the classic and the streams protocol "
            "while it has members.",
            one_of=("BIDIRECTIONAL", "DISABLED", "DOWNGRADE", "UPGRADE"), any_case=True,
            note="Only where konvene.streams.mode is kip: Apache Kafka changes empty groups alone."),

    Setting("konvene.streams.topology.description.enable", BOOLEAN, False,
            "Whether members are asked what their topology looks like, and it is kept in memory to be shown.",
            dynamic="cluster-wide",
            note="Apache Kafka needs a plugin for that, and answers UNSUPPORTED_VERSION without one."),

    # Heartbeats: how soon members hear of a rebalance
    Setting("konvene.heartbeat.policy", STRING, "responsive",
            "How soon members hear of a rebalance: as in Kafka, or sooner while they are few.",
            one_of=("kafka", "responsive"), dynamic="cluster-wide",
            note="responsive: members of consumer groups are told to heartbeat more often, and answers to "
            "heartbeats with nothing to tell are held. kafka: exactly Kafka's timing."),
    Setting("konvene.heartbeat.interval.ms", INT, 1000,
            "What a member is told that has all it is meant to have, if the policy is responsive.",
            at_least=100, dynamic="cluster-wide",
            note="Never more than the configured interval. It may lie below "
            "`group.consumer.min.heartbeat.interval.ms`: that bounds what is configured."),
    Setting("konvene.heartbeat.waiting.interval.ms", INT, 500,
            "What a member is told that owes an acknowledgement or waits, if the policy is responsive.",
            at_least=100, dynamic="cluster-wide"),
    Setting("konvene.heartbeat.budget.per.second", INT, 2000,
            "Heartbeats that all members together are told to send, if the policy is responsive.",
            at_least=1, dynamic="cluster-wide",
            note="Beyond it the interval grows, up to the configured one."),
    Setting("konvene.heartbeat.hold.enable", BOOLEAN, True,
            "Whether answers to heartbeats with nothing to tell are held, if the policy is responsive.",
            dynamic="cluster-wide",
            note="Until there is something to tell, or most of the told interval is over."),
    Setting("konvene.heartbeat.hold.clients", LIST, ("apache-kafka-java:4.0", "librdkafka:2.4"),
            "Clients that wait for such answers in peace, by name and lowest version in ApiVersions.",
            dynamic="cluster-wide",
            note="What says rdkafka- in its version is librdkafka of that version."),
    Setting("konvene.heartbeat.hold.classic.clients", LIST,
            ("apache-kafka-java:4.0", "librdkafka:2.4", "kafka-python:3.0"),
            "Clients that wait for the answers to heartbeats of classic groups in peace, told as the others.",
            dynamic="cluster-wide",
            note="Below the interval at which they are seen to send heartbeats, and for 4.5 s at most."),
    Setting("konvene.session.disconnect.grace.ms", INT, 0,
            "How long a member may stay away after a connection lost without farewell; 0: for its session.",
            at_least=0, dynamic="cluster-wide",
            note="Of dynamic members of consumer groups; never less than a heartbeat's interval and a half "
            "second."),
)
