"""Snapshot of a share group for tests: its members, start offsets and delivered records.

Start offsets and records are known for partitions fetched since the broker was started. They come from the
broker's memory, which may be ahead of `__share_group_state`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.delivery.contract import RecordState
from konvene.groups.share.group import Member, ShareGroup
from konvene.shard.image import Topics
from konvene.testing.group import GroupView, MemberView, RecordsView

if TYPE_CHECKING:
    from konvene.broker.broker import Broker

__all__ = ["share_view"]


def share_view(broker: Broker, group: ShareGroup) -> GroupView:
    """Return the current state of a share group, with the start offsets and in-flight records of its loaded
    share partitions."""
    name = group.group_id
    offsets: dict[str, dict[int, int]] = {}
    records: list[RecordsView] = []
    for partition_server in sorted(broker.share_partitions.of_group(name), key=lambda each: each.key):
        if not partition_server.loaded or partition_server.key.topic_id not in broker.catalogue.topics.by_id:
            continue
        topic, partition = (
            broker.catalogue.topics.by_id[partition_server.key.topic_id].name,
            partition_server.key.partition,
        )
        offsets.setdefault(topic, {})[partition] = partition_server.core.start_offset
        for each in partition_server.core.in_flight():
            records.append(
                RecordsView(
                    topic, partition, each.first_offset, each.last_offset,
                    RecordState(each.state).name.lower(), each.member_id or None, each.delivery_count,
                )
            )  # fmt: skip
    assignor = next(iter(broker.settings.config["group.share.assignors"]))
    return GroupView(
        name, str(group.state), group.epoch, assignor, None,
        tuple(_member(each, broker.catalogue.topics) for each in group.members.values()), offsets,
        records=tuple(sorted(records)),
    )  # fmt: skip


def _member(member: Member, topics: Topics) -> MemberView:
    assignment = {
        topics.by_id[topic].name: tuple(sorted(partitions))
        for topic, partitions in member.current.assigned.items()
        if topic in topics.by_id
    }
    assignment = {name: assignment[name] for name in sorted(assignment)}
    return MemberView(member.member_id, None, member.client_id, member.client_host, assignment)
