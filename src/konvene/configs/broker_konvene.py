"""What a broker is told about what only konvene does. All names start with `konvene.`."""

from __future__ import annotations

from typing import Final

from konvene.configs.setting import BOOLEAN, LONG, Setting

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
)
