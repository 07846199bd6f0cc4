"""Checks the limit of share groups (`group.share.max.groups`) before a request creates a group.

Such requests are the heartbeat of a first member, and AlterShareGroupOffsets for a missing group.
Kafka 4.4 no longer has this limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from konvene.groups.shard import GroupShard
from konvene.groups.share.group import ShareGroup

if TYPE_CHECKING:
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings

LIMIT_REACHED: Final = "The maximum number of share groups (group.share.max.groups) is reached."


def may_create_group(settings: BrokerSettings, groups: GroupCoordinators, group_id: str) -> bool:
    """Return True if the group exists, or if one more share group is within the limit."""
    limit: int = settings.config["group.share.max.groups"]
    if not limit:
        return True
    shards = [c.core for c in groups.all() if isinstance(c.core, GroupShard)]
    group_ids = [
        name for shard in shards for name, group in shard.groups.items() if isinstance(group, ShareGroup)
    ]
    return group_id in group_ids or len(group_ids) < limit
