"""The rows of deliveries to share groups: Kafka's, and ours of each group.

Kafka's MBeans have their name as a property, so the JMX exporter makes it a label, and all attributes of one
name are one metric. What share partitions have counted is read from them; what those counted that are no more
is kept by the meter (`Meter.share_done`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from konvene.broker.metrics.instruments import OTHER
from konvene.broker.metrics.tables.broker import COUNTER, GAUGE, UNKNOWN, Lines, Metric, Seen
from konvene.delivery.contract import AcknowledgeType
from konvene.delivery.counts import Counts

if TYPE_CHECKING:
    from konvene.broker.shares.share_partition import SharePartitionServer

GROUPS_MBEAN: Final = "kafka.server:type=ShareGroupMetrics"
PARTITIONS_MBEAN: Final = "kafka.server:type=SharePartitionMetrics"

_ACKNOWLEDGED: Final = "RecordAcknowledgementsPerSec"
_LOADED: Final = "PartitionLoadTimeMs"


def totals(seen: Seen) -> dict[str, Counts]:
    """What share partitions counted, by the label of their group."""
    found: dict[str, Counts] = {}
    for label, counts in seen.meter.share_done.items():
        found.setdefault(label, Counts()).add(counts)
    for served in seen.broker.share_partitions.served.values():
        found.setdefault(seen.meter.labels.of(served.key.group_id), Counts()).add(served.core.counts)
    return found


def _counts(seen: Seen) -> Lines:
    said = [0] * len(AcknowledgeType)
    for counts in totals(seen).values():
        for kind, records in enumerate(counts.acknowledged):
            said[kind] += records
    for kind in AcknowledgeType:
        if kind is not AcknowledgeType.GAP:  # Nobody says so of a record.
            yield (_ACKNOWLEDGED, kind.name.capitalize(), ""), said[kind]
    letters = seen.broker.share_partitions.dead_letters
    for name, by_group in (
        ("DeadLetterQueueRecordCount", letters.written),
        ("DeadLetterQueueTotalProduceRequestsPerSec", letters.batches),
        ("DeadLetterQueueFailedProduceRequestsPerSec", letters.failed),
    ):
        for group_id, count in sorted(_labelled(seen, by_group).items()):
            yield (name, "", group_id), count
    yield (_LOADED, "", ""), seen.meter.share_partition_load_s.count


def _labelled(seen: Seen, by_group: dict[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for group_id, count in by_group.items():
        found[seen.meter.labels.of(group_id)] += count
    return found


def _of_partitions(seen: Seen) -> Iterator[tuple[tuple[str, str, str], SharePartitionServer]]:
    """The share partitions of groups that have lines of their own."""
    for key, served in sorted(seen.broker.share_partitions.served.items()):
        if seen.meter.labels.of(key.group_id) != OTHER:
            yield (key.group_id, served.topic, str(key.partition)), served


def _in_flight(seen: Seen) -> Lines:
    for labels, served in _of_partitions(seen):
        yield ("InFlightMessageCount", *labels), served.core.in_flight_records
        yield ("InFlightBatchCount", *labels), served.core.in_flight_batches


def _timeouts(seen: Seen) -> Lines:
    for labels, served in _of_partitions(seen):
        yield ("AcquisitionLockTimeoutPerSec", *labels), served.core.counts.lock_timeouts


def _load_time(attribute: Callable[[Any], float]) -> Callable[[Seen], Lines]:
    return lambda seen: (((_LOADED,), attribute(seen.meter.share_partition_load_s) * 1000),)


def _of_groups(count: Callable[[Counts], int]) -> Callable[[Seen], Lines]:
    return lambda seen: [((label,), count(counts)) for label, counts in sorted(totals(seen).items())]


def _in_flight_of_groups(seen: Seen) -> Lines:
    found: Counter[str] = Counter()
    for served in seen.broker.share_partitions.served.values():
        found[seen.meter.labels.of(served.key.group_id)] += served.core.in_flight_records
    for label, records in sorted(found.items()):
        yield (label,), records


_PLACE: Final = ("name", "group", "topic", "partition")

KAFKAS_OF_DELIVERIES: Final[tuple[Metric, ...]] = (
    Metric("kafka_server_ShareGroupMetrics_Count", UNKNOWN,
           "Records that members accepted, released, rejected or renewed; copies in dead letter topics, "
           "batches of them, and those that failed; share partitions that were loaded.",
           _counts, ("name", "ackType", "group"), "Count"),
    Metric("kafka_server_ShareGroupMetrics_Max", GAUGE,
           "The longest time in milliseconds that it took to load a share partition.",
           _load_time(lambda spans: spans.longest), ("name",), "Max"),
    Metric("kafka_server_ShareGroupMetrics_Mean", GAUGE,
           "The average time in milliseconds that it took to load a share partition.",
           _load_time(lambda spans: spans.average), ("name",), "Mean"),
    Metric("kafka_server_SharePartitionMetrics_Value", GAUGE,
           "Records, and batches of them, between a share partition's start and what was read last.",
           _in_flight, _PLACE, "Value"),
    Metric("kafka_server_SharePartitionMetrics_Count", UNKNOWN,
           "Records that were not acknowledged before their lock ended.",
           _timeouts, _PLACE, "Count"),
)  # fmt: skip

_GROUP: Final = ("group",)

OURS_OF_DELIVERIES: Final[tuple[Metric, ...]] = (
    Metric("konvene_share_in_flight_records", GAUGE,
           "Records of a share group between the start of its share partitions and what was read last.",
           _in_flight_of_groups, _GROUP),
    Metric("konvene_share_delivered_records_total", COUNTER, "Records that members acquired.",
           _of_groups(lambda counts: counts.delivered), _GROUP),
    Metric("konvene_share_redelivered_records_total", COUNTER,
           "Of these, those that somebody had acquired before.",
           _of_groups(lambda counts: counts.redelivered), _GROUP),
    Metric("konvene_share_archived_records_total", COUNTER,
           "Records that were given up: rejected, or delivered too often.",
           _of_groups(lambda counts: counts.archived), _GROUP),
    Metric("konvene_share_lock_timeouts_total", COUNTER,
           "Records that were not acknowledged before their lock ended.",
           _of_groups(lambda counts: counts.lock_timeouts), _GROUP),
    Metric("konvene_share_sessions", GAUGE, "Share sessions that are open.",
           lambda seen: (((), len(seen.broker.share_partitions.sessions)),)),
)  # fmt: skip
