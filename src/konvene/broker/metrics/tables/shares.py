"""Metrics of the delivery of records to share groups: Kafka's metrics, and konvene's own.

Kafka's MBeans have their name as a property, so the JMX exporter makes it a label, and all attributes of
one name are one metric. Open share partitions are read directly; the meter keeps the counts of closed ones
(`Meter.share_done`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from konvene.broker.metrics.instruments import OTHER, Durations
from konvene.broker.metrics.tables.broker import COUNTER, GAUGE, UNKNOWN, Lines, Metric, Snapshot
from konvene.delivery.contract import AcknowledgeType
from konvene.delivery.counts import Counts

if TYPE_CHECKING:
    from konvene.broker.shares.share_partition import SharePartitionServer

GROUPS_MBEAN: Final = "kafka.server:type=ShareGroupMetrics"
PARTITIONS_MBEAN: Final = "kafka.server:type=SharePartitionMetrics"

_ACKNOWLEDGED: Final = "RecordAcknowledgementsPerSec"
_LOADED: Final = "PartitionLoadTimeMs"


def totals(snapshot: Snapshot) -> dict[str, Counts]:
    """Return the delivery counts of open and closed share partitions, summed by group label."""
    found: dict[str, Counts] = {}
    for label, counts in snapshot.meter.share_done.items():
        found.setdefault(label, Counts()).add(counts)
    for served in snapshot.broker.share_partitions.served.values():
        found.setdefault(snapshot.meter.labels.of(served.key.group_id), Counts()).add(served.core.counts)
    return found


def _counts(snapshot: Snapshot) -> Lines:
    acknowledged = [0] * len(AcknowledgeType)
    for counts in totals(snapshot).values():
        for kind, records in enumerate(counts.acknowledged):
            acknowledged[kind] += records
    for kind in AcknowledgeType:
        if kind is not AcknowledgeType.GAP:  # Gaps are not records.
            yield (_ACKNOWLEDGED, kind.name.capitalize(), ""), acknowledged[kind]
    letters = snapshot.broker.share_partitions.dead_letters
    for name, by_group in (
        ("DeadLetterQueueRecordCount", letters.written),
        ("DeadLetterQueueTotalProduceRequestsPerSec", letters.batches),
        ("DeadLetterQueueFailedProduceRequestsPerSec", letters.failed),
    ):
        for group_id, count in sorted(_labelled(snapshot, by_group).items()):
            yield (name, "", group_id), count
    yield (_LOADED, "", ""), snapshot.meter.share_partition_load_s.count


def _labelled(snapshot: Snapshot, by_group: dict[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for group_id, count in by_group.items():
        found[snapshot.meter.labels.of(group_id)] += count
    return found


def _of_partitions(snapshot: Snapshot) -> Iterator[tuple[tuple[str, str, str], SharePartitionServer]]:
    """Yield label values and server of each open share partition whose group has a label of its own."""
    for key, served in sorted(snapshot.broker.share_partitions.served.items()):
        if snapshot.meter.labels.of(key.group_id) != OTHER:
            yield (key.group_id, served.topic, str(key.partition)), served


def _in_flight(snapshot: Snapshot) -> Lines:
    for labels, served in _of_partitions(snapshot):
        yield ("InFlightMessageCount", *labels), served.core.in_flight_records
        yield ("InFlightBatchCount", *labels), served.core.in_flight_batches


def _timeouts(snapshot: Snapshot) -> Lines:
    for labels, served in _of_partitions(snapshot):
        yield ("AcquisitionLockTimeoutPerSec", *labels), served.core.counts.lock_timeouts


def _load_time(attribute: Callable[[Durations], float]) -> Callable[[Snapshot], Lines]:
    return lambda snapshot: (((_LOADED,), attribute(snapshot.meter.share_partition_load_s) * 1000),)


def _of_groups(count: Callable[[Counts], int]) -> Callable[[Snapshot], Lines]:
    return lambda snapshot: [((label,), count(counts)) for label, counts in sorted(totals(snapshot).items())]


def _in_flight_of_groups(snapshot: Snapshot) -> Lines:
    found: Counter[str] = Counter()
    for served in snapshot.broker.share_partitions.served.values():
        found[snapshot.meter.labels.of(served.key.group_id)] += served.core.in_flight_records
    for label, records in sorted(found.items()):
        yield (label,), records


_PARTITION_LABELS: Final = ("name", "group", "topic", "partition")

KAFKAS_OF_DELIVERIES: Final[tuple[Metric, ...]] = (
    Metric("kafka_server_ShareGroupMetrics_Count", UNKNOWN,
           "Acknowledged records by type; records, batches and failed batches written to dead letter topics; "
           "loaded share partitions.",
           _counts, ("name", "ackType", "group"), "Count"),
    Metric("kafka_server_ShareGroupMetrics_Max", GAUGE,
           "Longest time to load a share partition, in milliseconds.",
           _load_time(lambda spans: spans.longest), ("name",), "Max"),
    Metric("kafka_server_ShareGroupMetrics_Mean", GAUGE,
           "Average time to load a share partition, in milliseconds.",
           _load_time(lambda spans: spans.average), ("name",), "Mean"),
    Metric("kafka_server_SharePartitionMetrics_Value", GAUGE,
           "In-flight records and batches of a share partition: between its start and end offset.",
           _in_flight, _PARTITION_LABELS, "Value"),
    Metric("kafka_server_SharePartitionMetrics_Count", UNKNOWN,
           "Records whose acquisition lock expired before they were acknowledged.",
           _timeouts, _PARTITION_LABELS, "Count"),
)  # fmt: skip

_GROUP: Final = ("group",)

OURS_OF_DELIVERIES: Final[tuple[Metric, ...]] = (
    Metric("konvene_share_in_flight_records", GAUGE,
           "In-flight records of a share group: between the start and end offsets of its share partitions.",
           _in_flight_of_groups, _GROUP),
    Metric("konvene_share_delivered_records_total", COUNTER, "Records that members acquired.",
           _of_groups(lambda counts: counts.delivered), _GROUP),
    Metric("konvene_share_redelivered_records_total", COUNTER,
           "Acquired records that had been acquired before.",
           _of_groups(lambda counts: counts.redelivered), _GROUP),
    Metric("konvene_share_archived_records_total", COUNTER,
           "Archived records: rejected, or delivered too often.",
           _of_groups(lambda counts: counts.archived), _GROUP),
    Metric("konvene_share_lock_timeouts_total", COUNTER,
           "Records whose acquisition lock expired before they were acknowledged.",
           _of_groups(lambda counts: counts.lock_timeouts), _GROUP),
    Metric("konvene_share_sessions", GAUGE, "Open share sessions.",
           lambda snapshot: (((), len(snapshot.broker.share_partitions.sessions)),)),
)  # fmt: skip
