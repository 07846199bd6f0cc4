"""Whether there may be one more share group (`group.share.max.groups`), for the requests that make one.

These are the heartbeat of a first member, and AlterShareGroupOffsets, which makes a group that is not there.
Kafka 4.4 has no such limit any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from konvene.groups.shard import GroupShard
from konvene.groups.share.group import ShareGroup

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings

NO_ROOM: Final = "There are as many share groups as there may be."


def has_room(settings: BrokerSettings, groups: GroupCoordinators, group_id: str) -> bool:
    """Whether the group is there already, or one more may be."""
    most: int = settings.config["group.share.max.groups"]
    if not most:
        return True
    shards = [c.core for c in groups.all() if isinstance(c.core, GroupShard)]
    there = [
        name for shard in shards for name, group in shard.groups.items() if isinstance(group, ShareGroup)
    ]
    return group_id in there or len(there) < most
