"""Faults, settings and administrator requests of share groups; `sim.world.faults` has the table of faults.

The requests are built here; `sim.world.fault_actions` sends them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.codec.schema import Struct
from konvene.messages import alter_share_group_offsets as alter_offsets
from konvene.messages import delete_share_group_offsets as delete_offsets

if TYPE_CHECKING:
    from konvene.sim.world.world import World

ORDERS, EXTRA = "orders", "extra"

SHARE_SETTINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("group.share.max.size", ("200", "2", "4")),
    ("group.share.assignment.interval.ms", ("1000", "0", "4000")),
    ("group.share.session.timeout.ms", ("10000", "20000")),
    ("group.share.heartbeat.interval.ms", ("3000", "1000")),
    ("group.share.record.lock.duration.ms", ("15000", "1000", "3000")),
    ("group.share.delivery.count.limit", ("5", "2", "10")),
    ("group.share.partition.max.record.locks", ("2000", "100")),
    ("konvene.heartbeat.policy", ("responsive", "kafka")),
)


def share_state_fails_over(world: World) -> None:
    if world.share is not None:
        world.share.fail_over()


def deliveries_die(world: World) -> None:
    if world.share is not None:
        world.share.fail_over_deliveries()


def log_beginning_is_deleted(world: World) -> None:
    if world.share is not None:
        world.share.lose_beginning()


def alteration_request(world: World, group: str) -> Struct:
    """Return a request to alter a group's start offsets in a random topic.

    New offsets are random, some just beyond the end of the log; one partition may not exist."""
    topic, random = world.random.choice(list(world.topics.by_name.values())), world.random
    indexes = random.sample(range(topic.partitions), random.randint(1, topic.partitions))
    partitions = tuple(
        alter_offsets.AlterShareGroupOffsetsRequestPartition(
            partition_index=index, start_offset=random.randint(0, world.ends.get((topic.name, index), 0) + 3)
        )
        for index in (*indexes, *random.choice([(), (99,)]))
    )
    rows = (alter_offsets.AlterShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=partitions),)
    return alter_offsets.AlterShareGroupOffsetsRequest(group_id=group, topics=rows)


def deletion_request(world: World, group: str) -> Struct:
    """Return a request to delete a group's offsets of random topics, some of which do not exist, or are not
    subscribed to by the group."""
    names = world.random.choice([(ORDERS,), (EXTRA,), (ORDERS, EXTRA), ("nowhere", EXTRA)])
    rows = tuple(delete_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names)
    return delete_offsets.DeleteShareGroupOffsetsRequest(group_id=group, topics=rows)
