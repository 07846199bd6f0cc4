"""What a cluster has: the partitions of a subscription, and the offsets that positions stand for."""

from __future__ import annotations

from collections.abc import Iterable

from konvene.client.consumer.fetch import list_offsets
from konvene.client.errors import KafkaError
from konvene.client.net.cluster import Cluster, Topic, TopicPartition
from konvene.pipeline.sources.live import ends as latest
from konvene.spark.options import SourceOptions, Subscription
from konvene.spark.positions import EARLIEST, LATEST, Positions

__all__ = ["NotFound", "earliest", "ends", "latest", "partitions", "starts"]


class NotFound(ValueError):
    """A topic, a partition or a record that a query names does not exist."""


async def partitions(cluster: Cluster, wanted: Subscription) -> list[TopicPartition]:
    """Return the partitions of a subscription, in order.

    Raises `NotFound` if a named topic or an assigned partition does not exist."""
    if wanted.pattern is not None:
        every = (await cluster.refresh()).topics.values()
        found = [topic for topic in every if wanted.pattern.fullmatch(topic.name) and not topic.is_internal]
        return sorted(tp for topic in found for tp in _of(topic))
    names = wanted.topics or tuple(sorted({tp.topic for tp in wanted.assigned}))
    await cluster.refresh(names)
    there = {tp for name in names for tp in _of(await _existing(cluster, name))}
    missing = [str(tp) for tp in wanted.assigned if tp not in there]
    if missing:
        raise NotFound(f"{', '.join(missing)} does not exist")
    return list(wanted.assigned) or sorted(there)


async def _existing(cluster: Cluster, name: str) -> Topic:
    """Return a topic, waiting for leaders that its partitions lack. Raises `NotFound`."""
    try:
        return await cluster.topic(name)
    except KafkaError as error:
        raise NotFound(f"the topic {name} cannot be read: {error}") from error


def _of(topic: Topic) -> list[TopicPartition]:
    return [TopicPartition(topic.name, each.partition) for each in topic.partitions]


async def earliest(cluster: Cluster, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the start of each partition."""
    found = await list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    return {tp: at.offset for tp, at in found.items()}


async def starts(
    cluster: Cluster, options: SourceOptions, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where a query begins in each partition. Raises `NotFound` and ValueError."""
    return await _offsets(cluster, options, options.starting, "starting", list(wanted))


async def ends(
    cluster: Cluster, options: SourceOptions, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where a batch ends in each partition. Raises ValueError."""
    return await _offsets(cluster, options, options.ending, "ending", list(wanted))


async def _offsets(
    cluster: Cluster, options: SourceOptions, where: Positions, side: str, wanted: list[TopicPartition]
) -> dict[TopicPartition, int]:
    times = where.times(wanted, f"{side}OffsetsByTimestamp")
    if times is None:
        offsets = where.offsets_for(wanted, f"{side}Offsets")
    else:
        found = await list_offsets(cluster, times)
        offsets = {tp: at.offset for tp, at in found.items()}  # -1 is LATEST: no record is that new.
        late = [str(tp) for tp, offset in offsets.items() if offset == LATEST]
        if late and side == "starting" and not options.or_latest:
            raise NotFound(
                f"{', '.join(late)} has no record at or after its starting timestamp; "
                "startingOffsetsByTimestampStrategy=latest begins at the end there"
            )
    first = [tp for tp, offset in offsets.items() if offset == EARLIEST]
    last = [tp for tp, offset in offsets.items() if offset == LATEST]
    if first:
        offsets |= await earliest(cluster, first)
    if last:
        offsets |= await latest(cluster, last, options.isolation_level)
    return offsets
