"""Feed logs of coordinators to what the console keeps of them."""

from __future__ import annotations

from tests.groups.history.logs import LOGS
from tests.pipeline.reduce.reading import names_of

from konvene.codec import batches as rb
from konvene.console.commits import CommittedOffsets
from konvene.console.rebalances import RebalanceHistory


def golden_history(name: str) -> tuple[RebalanceHistory, CommittedOffsets]:
    """Return what the console keeps of a recorded log of Apache Kafka."""
    history, commits = RebalanceHistory("c"), CommittedOffsets()
    history.learn_topics(names_of(name), partitions=1)
    for directory in sorted((LOGS / name).glob("__consumer_offsets-*")):
        partition = int(directory.name.rpartition("-")[2])
        for file in sorted(directory.glob("*.log")):
            for header, batch in rb.batches(file.read_bytes()):
                records = rb.records(batch, header)
                commits.take(partition, header, records)
                history.hold(partition, header.base_offset, header.last_offset, records, 0)
    history.release(None)
    return history, commits
