"""Broker configurations of transactions and idempotent producers.

The transaction topic has one replica on a single node, so the defaults of its replication factors are 1;
the `kafka_default` of each is Kafka's.
"""

from __future__ import annotations

from typing import Final

from konvene.configs.setting import BOOLEAN, INT, SHORT, Setting

__all__ = ["TRANSACTION_ROWS"]

# fmt: off
TRANSACTION_ROWS: Final[tuple[Setting, ...]] = (
    # Transactions and idempotent producers
    Setting("transactional.id.expiration.ms", INT, 604_800_000,
            "How long a transactional id without activity is remembered.",
            at_least=1, importance="HIGH"),
    Setting("transaction.max.timeout.ms", INT, 900_000,
            "Longest transaction timeout a producer may ask for.",
            at_least=1, importance="HIGH"),
    Setting("transaction.two.phase.commit.enable", BOOLEAN, False,
            "Whether producers may leave the end of a transaction to an outside coordinator (KIP-939).",
            importance="LOW"),
    Setting("transaction.partition.verification.enable", BOOLEAN, True,
            "Whether a transactional write is refused unless its partition was added to the transaction.",
            importance="LOW", dynamic="cluster-wide"),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000,
            "How often open transactions that passed their timeout are aborted.",
            at_least=1, importance="LOW"),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000,
            "How often expired transactional ids are removed.",
            at_least=1, importance="LOW"),
    Setting("producer.id.expiration.ms", INT, 86_400_000,
            "How long a partition remembers a producer id after its last write.",
            at_least=1, importance="LOW", dynamic="cluster-wide"),
    Setting("producer.id.expiration.check.interval.ms", INT, 600_000,
            "How often partitions look for producer ids to forget.",
            at_least=1, importance="LOW", internal=True),
    Setting("add.partitions.to.txn.retry.backoff.ms", INT, 20,
            "First wait before a broker asks the coordinator again to add a partition to a transaction.",
            at_least=1, importance="HIGH", unused=True),
    Setting("add.partitions.to.txn.retry.backoff.max.ms", INT, 100,
            "How long a write waits at most for the last transaction of its producer to be completed.",
            at_least=0, importance="HIGH"),

    # The log that holds their state
    Setting("transaction.state.log.num.partitions", INT, 50,
            "How many partitions the transaction topic gets when it is created; never change it afterwards.",
            at_least=1, importance="HIGH"),
    Setting("transaction.state.log.replication.factor", SHORT, 1,
            "How many copies of each partition the transaction topic asks for when it is created.",
            at_least=1, importance="HIGH", kafka_default=3),
    Setting("transaction.state.log.min.isr", INT, 1,
            "How many in-sync copies a write to the transaction topic needs.",
            at_least=1, importance="HIGH", kafka_default=2),
    Setting("transaction.state.log.segment.bytes", INT, 104_857_600,
            "Segment size of the transaction topic, small so that compaction and loading stay quick.",
            at_least=1, importance="HIGH"),
    Setting("transaction.state.log.load.buffer.size", INT, 5_242_880,
            "How many bytes are read at a time while the transaction coordinator loads its partition.",
            at_least=1, importance="HIGH"),
)
