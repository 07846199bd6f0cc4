"""The intended differences between konvene's and Kafka's responses.

Each row quotes a sentence of `docs/differences.md`. Tests fail on a difference that no row covers, on a row
whose sentence is not in the documentation, and on a row that no conversation needs.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Known(NamedTuple):
    """An intended difference: patterns of the lines that only Kafka and only konvene responded with."""

    sentence: str
    kafka: str
    konvene: str


LISTS = r"active_tasks=\[.*\] standby_tasks=\[.*\] warmup_tasks=\[.*\]"
NULLS = "active_tasks=null standby_tasks=null warmup_tasks=null"

SENT_AGAIN = Known(
    "A member of a streams group that lost a response receives its tasks again, if its epoch "
    "is behind or it reports other tasks than it was assigned.",
    rf"\S+ <- StreamsGroupHeartbeat v\d NONE .* {NULLS} .*",
    rf"\S+ <- StreamsGroupHeartbeat v\d NONE .* {LISTS} .*",
)
"""The responses covered by this row may differ in their task lists only."""

KNOWN = (
    Known(
        "A member's pending JoinGroup is answered REBALANCE_IN_PROGRESS when the member rejoins "
        "on another connection. So is its pending SyncGroup.",
        "",
        r"\S+ <- (JoinGroup|SyncGroup) v\d REBALANCE_IN_PROGRESS .*",
    ),
    Known(
        "A member that is removed while its SyncGroup is pending is answered UNKNOWN_MEMBER_ID.",
        "",
        r"(\S+ <- SyncGroup v\d UNKNOWN_MEMBER_ID .*\n?)+",
    ),
    Known(
        "A member id that would be longer than 32767 bytes is rejected, and the group is unchanged.",
        r"admin <- DescribeGroups v6 groups=\[\{UNKNOWN_SERVER_ERROR .*",
        r"admin <- DescribeGroups v6 groups=\[\{GROUP_ID_NOT_FOUND .*",
    ),
    Known(
        "A static member of a consumer group that rejoins under its own member id is accepted: "
        "its response was lost.",
        r"a <- ConsumerGroupHeartbeat v1 UNRELEASED_INSTANCE_ID error_message='Static member a .* by a m.*",
        r"a <- ConsumerGroupHeartbeat v1 NONE .* assignment=\{topic_partitions=\[.+\]\}",
    ),
    Known(
        "A classic group whose first generation is still being formed may become a consumer group.",
        r"a <- ConsumerGroupHeartbeat v1 UNKNOWN_SERVER_ERROR .*",
        r"a <- ConsumerGroupHeartbeat v1 NONE .* member_epoch=2 .*",
    ),
    Known(
        "A partition that a classic leader assigned to two members belongs to one of them as soon"
        " as the group becomes a consumer group.",
        r"a <- ConsumerGroupHeartbeat v1 UNKNOWN_SERVER_ERROR .*",
        r"a <- ConsumerGroupHeartbeat v1 NONE .* member_epoch=3 .*",
    ),
    Known(
        "When a classic group becomes a consumer group, its members keep those of their "
        "partitions that exist.",
        r".* assignment=\{topic_partitions=\[\{topic_id=id\(orders\) \S+ partitions=\[0, 9\]\}\]\} .*",
        r".* assignment=\{topic_partitions=\[\{topic_id=id\(orders\) \S+ partitions=\[0\]\}\]\} .*",
    ),
    Known(
        "A classic group that is full rejects the first member of the new protocol and stays as "
        "it is; pending JoinGroups remain pending.",
        r"y <- JoinGroup v9 REBALANCE_IN_PROGRESS .*",
        "",
    ),
    Known(
        "An empty consumer group still exists after a rejected JoinGroup.",
        r"admin <- ListGroups v5 NONE groups=\[\]",
        r"admin <- ListGroups v5 .* group_type='consumer'\}\]",
    ),
    Known(
        "Classic members that remain alone in a consumer group that may not be downgraded are "
        "told to rejoin.",
        r"alone <- Heartbeat v4 NONE ?",
        r"alone <- Heartbeat v4 REBALANCE_IN_PROGRESS ?",
    ),
    Known(
        "If two assignors are preferred by equally many members, the group keeps one of them.",
        r"admin <- ConsumerGroupDescribe v1 .* group_epoch=4 .* members=\[\{member_id='tied' .*",
        r"admin <- ConsumerGroupDescribe v1 .* group_epoch=3 .* members=\[\{member_id='tied' .*",
    ),
    Known(
        "An OffsetFetch with an epoch but no member id is answered UNKNOWN_MEMBER_ID for a consumer group.",
        r"a <- OffsetFetch v9 groups=\[\{group_id='g' topics=\[\] UNKNOWN_SERVER_ERROR\}\]",
        r"a <- OffsetFetch v9 groups=\[\{group_id='g' topics=\[\] UNKNOWN_MEMBER_ID\}\]",
    ),
    Known(
        "A commit whose partitions are all rejected creates no group.",
        r"admin <- ListGroups v5 NONE groups=\[(\{group_id='[gh]' \S+ group_state='Empty' [^}]*\}(, )?)+\]",
        r"admin <- ListGroups v5 NONE groups=\[\]",
    ),
    Known(
        "Task offsets and shutdown requests in the heartbeat that creates a streams group count "
        "at once; its topology is described with all partitions.",
        r"forgotten <- StreamsGroupHeartbeat v1 NONE .* status=\[\] .*",
        r"forgotten <- StreamsGroupHeartbeat v1 NONE .* status=\[\{status_code=4 .*",
    ),
    Known(
        "Task offsets and shutdown requests in the heartbeat that creates a streams group count "
        "at once; its topology is described with all partitions.",
        r"admin <- StreamsGroupDescribe v1 .* members=\[\{member_id='forgotten' .* task_offsets=\[\] .*",
        r"admin <- StreamsGroupDescribe v1 .* members=\[\{member_id='forgotten' .* task_offsets=\[\{.*",
    ),
    Known(
        "Task offsets and shutdown requests in the heartbeat that creates a streams group count "
        "at once; its topology is described with all partitions.",
        r"admin <- StreamsGroupDescribe .*'own-count' partitions=0 .* members=\[\{member_id='forgotten' .*",
        r"admin <- StreamsGroupDescribe .*'own-count' partitions=6 .* members=\[\{member_id='forgotten' .*",
    ),
    Known(
        "A streams group that is not ready returns no partitions by endpoint.",
        r"lost <- StreamsGroupHeartbeat v1 UNKNOWN_SERVER_ERROR .*",
        r"lost <- StreamsGroupHeartbeat v1 NONE .* status=\[\{status_code=1 .*",
    ),
    Known(
        "ListGroups matches streams groups that are not ready by NotReady and by NOT_READY.",
        r"admin <- ListGroups v5 NONE groups=\[\]",
        r"admin <- ListGroups v5 .* group_state='NotReady' group_type='streams'\}\]",
    ),
    Known(
        "Task offsets that a static member reports when it rejoins under its own member id count at once.",
        r"admin <- StreamsGroupDescribe v1 .* instance_id='i1' .* task_offsets=\[\] .*",
        r"admin <- StreamsGroupDescribe v1 .* instance_id='i1' .* task_offsets=\[\{.* offset=9\}\] .*",
    ),
    Known(
        "Altering the offsets of a share group bumps its group epoch, as KIP-932 describes.",
        r"late <- ShareGroupHeartbeat v1 NONE .* assignment=\{topic_partitions=\[.+\]\}",
        r"late <- ShareGroupHeartbeat v1 NONE .* assignment=\{topic_partitions=\[.+\]\}",
    ),
    SENT_AGAIN,
    Known(
        "Where settings are rejected, the message may contain more: which values contradict each "
        "other, or the nearest known name.",
        r"admin <- IncrementalAlterConfigs v1 responses=\[\{\S+ error_message='"
        r"(.* duplicate tag keys\.|Unknown group config name: \S+|\S+ must be greater than \S+)' .*",
        r"admin <- IncrementalAlterConfigs v1 responses=\[\{\S+ error_message='"
        r"(.* without duplicates .*|.* \(did you mean .*\?\)|\S+ \(\d+\) must be greater than .*)' .*",
    ),
)


MET: set[Known] = set()
"""The rows that covered a difference in this run."""


def is_known_difference(kafka: list[str], konvene: list[str]) -> bool:
    """Return True if a row covers the difference between two lists of responses; add it to `MET`."""
    only_kafka = "\n".join(a for a in kafka if a not in konvene)
    only_konvene = "\n".join(a for a in konvene if a not in kafka)
    rows = {
        row
        for row in KNOWN
        if re.fullmatch(row.kafka, only_kafka) and re.fullmatch(row.konvene, only_konvene)
    }
    if SENT_AGAIN in rows and re.sub(LISTS + "(?= topology_| endpoint_)", NULLS, only_konvene) != only_kafka:
        rows.remove(SENT_AGAIN)
    MET.update(rows)
    return bool(rows)
