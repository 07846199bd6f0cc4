"""Configuration of one log: the topic settings that storage uses, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from konvene.codec.batches import TimestampType
from konvene.codec.compression import Compression

LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The topic settings that a log needs, under Kafka's names with underscores; -1 means unlimited."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = 24 * 3600 * 1000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    file_delete_delay_ms: int = 60_000
    """Delay before the files that a cleaning has replaced are deleted."""
    max_message_bytes: int = 1024 * 1024 + 12
    max_decompressed_message_bytes: int = 2**31 - 9
    compression: Compression | None = None
    """Compression of stored batches; None keeps the producer's."""
    compression_level: int | None = None
    """Level of `compression`; None is the codec's default."""
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3600 * 1000
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    flush_messages: int = LONG_MAX
    """Records appended before a sync is forced."""
    flush_ms: int = LONG_MAX
    """Age of unsynced records at which a sync is forced."""
    #: konvene's own: sync a finished segment before the next one takes a record, so that a power cut never
    #: leaves a gap between them. If False, recovery truncates at such a gap, as Kafka does, and
    #: `sync_finished` makes finished segments durable.
    sync_on_roll: bool = True

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """Longest time that a segment stays active: `segment.ms`, or `max.compaction.lag.ms` if that is
        shorter."""
        if self.compacts and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms
