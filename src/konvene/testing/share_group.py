"""A share group as a test looks at it: its members, where it stands, and who has which records.

Where it stands is told of partitions that were fetched from since the broker was started: there the broker
knows it from moment to moment, while the log learns of it with the next write.
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
    """The group as it is now."""
    name = group.group_id
    offsets: dict[str, dict[int, int]] = {}
    records: list[RecordsView] = []
    for served in sorted(broker.share_partitions.of_group(name), key=lambda each: each.key):
        if not served.loaded or served.key.topic_id not in broker.catalogue.topics.by_id:
            continue
        topic, partition = broker.catalogue.topics.by_id[served.key.topic_id].name, served.key.partition
        offsets.setdefault(topic, {})[partition] = served.core.start_offset
        for each in served.core.in_flight():
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
    given = {
        topics.by_id[topic].name: tuple(sorted(partitions))
        for topic, partitions in member.current.assigned.items()
        if topic in topics.by_id
    }
    given = {name: given[name] for name in sorted(given)}
    return MemberView(member.member_id, None, member.client_id, member.client_host, given)
