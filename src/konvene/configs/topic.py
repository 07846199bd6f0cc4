"""Configurations of topics (TOPIC resources).

A configuration without an override comes from its synonyms, broker configurations in order of precedence;
a synonym with a coarser unit is converted (`configs.effective`).
"""

from __future__ import annotations

from typing import Final

from konvene.configs.setting import BOOLEAN, DOUBLE, INT, LIST, LONG, STRING, Setting

__all__ = ["TOPIC"]

LONG_MAX: Final = 2**63 - 1

# fmt: off
ROWS: Final[tuple[Setting, ...]] = (
    # Retention and cleanup
    Setting("cleanup.policy", LIST, ("delete",),
            "What happens to old records: delete them by age and size, compact them by key, or both.",
            one_of=("compact", "delete"), synonyms=("log.cleanup.policy",)),
    Setting("retention.ms", LONG, 604_800_000,
            "How long records are kept when the policy deletes; -1 for ever.",
            at_least=-1, synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours")),
    Setting("retention.bytes", LONG, -1,
            "How large each partition may grow when the policy deletes; -1 means any size.",
            synonyms=("log.retention.bytes",)),
    Setting("delete.retention.ms", LONG, 86_400_000,
            "How long compaction keeps a tombstone, so that slow readers see the deletion.",
            at_least=0, synonyms=("log.cleaner.delete.retention.ms",)),
    Setting("min.cleanable.dirty.ratio", DOUBLE, 0.5,
            "Share of a partition that must be uncompacted before it is compacted again.",
            at_least=0, at_most=1, synonyms=("log.cleaner.min.cleanable.ratio",)),
    Setting("min.compaction.lag.ms", LONG, 0,
            "How long a record is safe from compaction.",
            at_least=0, synonyms=("log.cleaner.min.compaction.lag.ms",)),
    Setting("max.compaction.lag.ms", LONG, LONG_MAX,
            "How long a record may wait for compaction.",
            at_least=1, synonyms=("log.cleaner.max.compaction.lag.ms",)),

    # Segments and their indexes
    Setting("segment.bytes", INT, 1_073_741_824,
            "A segment is closed when it would grow beyond this size.",
            at_least=1_048_576, synonyms=("log.segment.bytes",)),
    Setting("segment.ms", LONG, 604_800_000,
            "A segment is closed at this age.",
            at_least=1, synonyms=("log.roll.ms", "log.roll.hours")),
    Setting("segment.jitter.ms", LONG, 0,
            "Random share taken off the age at which a segment is closed.",
            at_least=0, synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours")),
    Setting("segment.index.bytes", INT, 10_485_760,
            "Largest size of an index file.",
            at_least=4, synonyms=("log.index.size.max.bytes",)),
    Setting("index.interval.bytes", INT, 4096,
            "How many bytes of log lie between two entries of the offset index.",
            at_least=0, synonyms=("log.index.interval.bytes",)),
    Setting("file.delete.delay.ms", LONG, 60_000,
            "How long the files of a deleted segment stay on disk.",
            at_least=0, synonyms=("log.segment.delete.delay.ms",)),
    Setting("preallocate", BOOLEAN, False,
            "Whether a new segment takes its full size on disk at once.",
            synonyms=("log.preallocate",)),
    Setting("internal.segment.bytes", INT, None,
            "Segment size without the lower bound of `segment.bytes`, for tests only.",
            internal=True),

    # Flushing to disk
    Setting("flush.messages", LONG, LONG_MAX,
            "How many records may gather in a partition before it is flushed to disk.",
            at_least=1, synonyms=("log.flush.interval.messages",)),
    Setting("flush.ms", LONG, LONG_MAX,
            "How long a record may stay unflushed.",
            at_least=0, synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms")),

    # What a batch of records may be
    Setting("max.message.bytes", INT, 1_048_588,
            "Largest batch of records, after compression, that the topic takes.",
            at_least=0, synonyms=("message.max.bytes",)),
    Setting("max.decompressed.message.bytes", INT, 2_147_483_639,
            "Largest size a single record may have once its batch is decompressed.",
            at_least=1, at_most=2_147_483_639, synonyms=("max.decompressed.message.bytes",)),
    Setting("compression.type", STRING, "producer",
            "Codec of the stored batches; `producer` keeps whatever the producer used.",
            one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
            synonyms=("compression.type",)),
    Setting("compression.gzip.level", INT, -1,
            "Effort of gzip when the broker compresses.",
            rule="gzip level", synonyms=("compression.gzip.level",)),
    Setting("compression.lz4.level", INT, 9,
            "Effort of lz4 when the broker compresses.",
            at_least=1, at_most=17, synonyms=("compression.lz4.level",)),
    Setting("compression.zstd.level", INT, 3,
            "Effort of zstd when the broker compresses.",
            at_least=-131_072, at_most=22, synonyms=("compression.zstd.level",)),
    Setting("message.timestamp.type", STRING, "CreateTime",
            "Whether a record carries the time it was made or the time it was appended.",
            one_of=("CreateTime", "LogAppendTime"), synonyms=("log.message.timestamp.type",)),
    Setting("message.timestamp.before.max.ms", LONG, LONG_MAX,
            "How far a record's timestamp may lie in the past.",
            at_least=0, synonyms=("log.message.timestamp.before.max.ms",)),
    Setting("message.timestamp.after.max.ms", LONG, 3_600_000,
            "How far a record's timestamp may lie in the future.",
            at_least=0, synonyms=("log.message.timestamp.after.max.ms",)),

    # Share groups
    Setting("errors.deadletterqueue.group.enable", BOOLEAN, False,
            "Whether share groups may use this topic as their dead letter queue."),

    # Replication
    Setting("min.insync.replicas", INT, 1,
            "How many copies must have a record before a write with acks=all succeeds.",
            at_least=1, synonyms=("min.insync.replicas",)),
    Setting("unclean.leader.election.enable", BOOLEAN, False,
            "Whether a copy that fell behind may become leader as a last resort, losing records.",
            synonyms=("unclean.leader.election.enable",), unused=True),
    Setting("leader.replication.throttled.replicas", LIST, (),
            "Copies whose leaders are throttled, as `partition:broker` pairs, or `*`.",
            rule="throttled replicas", unused=True),
    Setting("follower.replication.throttled.replicas", LIST, (),
            "Copies whose followers are throttled, as `partition:broker` pairs, or `*`.",
            rule="throttled replicas", unused=True),

    # Tiered storage
    Setting("remote.storage.enable", BOOLEAN, False,
            "Whether the topic's closed segments are copied to remote storage.",
            unused=True),
    Setting("remote.log.copy.disable", BOOLEAN, False,
            "Whether copying to remote storage has stopped, leaving what is there readable.",
            unused=True),
    Setting("remote.log.delete.on.disable", BOOLEAN, False,
            "Whether remote records are deleted when remote storage is turned off.",
            unused=True),
    Setting("local.retention.ms", LONG, -2,
            "How long records stay on local disk once they are tiered; -2 means the whole retention.",
            at_least=-2, synonyms=("log.local.retention.ms",), unused=True),
    Setting("local.retention.bytes", LONG, -2,
            "How many bytes stay on local disk once they are tiered; -2 means the whole retention.",
            at_least=-2, synonyms=("log.local.retention.bytes",), unused=True),
    Setting("remote.copy.lag.ms", LONG, 0,
            "How old a closed segment becomes before it is tiered; -1 follows local retention.",
            at_least=-1, synonyms=("log.remote.copy.lag.ms",), unused=True),
    Setting("remote.copy.lag.bytes", LONG, -1,
            "How many newer bytes a closed segment waits for before it is tiered; -1 follows "
            "local retention.",
            at_least=-1, synonyms=("log.remote.copy.lag.bytes",), unused=True),
)
# fmt: on

TOPIC: Final[dict[str, Setting]] = {row.name: row._replace(dynamic="topic resource") for row in ROWS}
