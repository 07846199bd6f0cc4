"""Where konvene is known to answer otherwise than Kafka, and why that is meant.

Each row quotes a sentence of `docs/differences.md`. A difference that no row covers is a mistake; so is a row
without its sentence, or one that no conversation needs.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Known(NamedTuple):
    """What Kafka answered and konvene does not, and the other way about: patterns of whole lines."""

    sentence: str
    kafka: str
    konvene: str


LISTS = r"active_tasks=\[.*\] standby_tasks=\[.*\] warmup_tasks=\[.*\]"
NULLS = "active_tasks=null standby_tasks=null warmup_tasks=null"

TOLD_AGAIN = Known(
    "A member of a streams group that lost an answer is told its tasks again: it is an epoch behind, or says "
    "that it has others, as Kafka's client says what it has then.",
    rf"\S+ <- StreamsGroupHeartbeat v\d NONE .* {NULLS} .*",
    rf"\S+ <- StreamsGroupHeartbeat v\d NONE .* {LISTS} .*",
)
"""In nothing else may such answers be different."""

KNOWN = (
    Known(
        "A member's older JoinGroup that still waits is answered REBALANCE_IN_PROGRESS when the member joins "
        "again on another connection. So is its older SyncGroup.",
        "",
        r"\S+ <- (JoinGroup|SyncGroup) v\d REBALANCE_IN_PROGRESS .*",
    ),
    Known(
        "A member that waits for its assignment and is removed is answered UNKNOWN_MEMBER_ID.",
        "",
        r"(\S+ <- SyncGroup v\d UNKNOWN_MEMBER_ID .*\n?)+",
    ),
    Known(
        "A member id that would be longer than 32767 bytes is refused, and the group stays as it was.",
        r"admin <- DescribeGroups v6 groups=\[\{UNKNOWN_SERVER_ERROR .*",
        r"admin <- DescribeGroups v6 groups=\[\{GROUP_ID_NOT_FOUND .*",
    ),
    Known(
        "A static member of a consumer group that joins again under its own member id is taken back: its "
        "answer was lost.",
        r"a <- ConsumerGroupHeartbeat v1 UNRELEASED_INSTANCE_ID error_message='Static member a .* by a m.*",
        r"a <- ConsumerGroupHeartbeat v1 NONE .* assignment=\{topic_partitions=\[.+\]\}",
    ),
    Known(
        "A classic group whose first generation is still being made may become a consumer group.",
        r"a <- ConsumerGroupHeartbeat v1 UNKNOWN_SERVER_ERROR .*",
        r"a <- ConsumerGroupHeartbeat v1 NONE .* member_epoch=2 .*",
    ),
    Known(
        "A partition that a classic leader gave to two members is one's only, from the moment when the group "
        "becomes a consumer group.",
        r"a <- ConsumerGroupHeartbeat v1 UNKNOWN_SERVER_ERROR .*",
        r"a <- ConsumerGroupHeartbeat v1 NONE .* member_epoch=3 .*",
    ),
    Known(
        "When a classic group becomes a consumer group, its members keep those of their partitions that "
        "there are.",
        r".* assignment=\{topic_partitions=\[\{topic_id=id\(orders\) \S+ partitions=\[0, 9\]\}\]\} .*",
        r".* assignment=\{topic_partitions=\[\{topic_id=id\(orders\) \S+ partitions=\[0\]\}\]\} .*",
    ),
    Known(
        "A classic group that has no room for the first member of the new protocol stays as it is, and who "
        "waits in it waits on.",
        r"y <- JoinGroup v9 REBALANCE_IN_PROGRESS .*",
        "",
    ),
    Known(
        "An empty consumer group is still there when a JoinGroup was refused.",
        r"admin <- ListGroups v5 NONE groups=\[\]",
        r"admin <- ListGroups v5 .* group_type='consumer'\}\]",
    ),
    Known(
        "Classic members that are left alone in a consumer group, which may not become a classic one, are "
        "told to join again.",
        r"alone <- Heartbeat v4 NONE ?",
        r"alone <- Heartbeat v4 REBALANCE_IN_PROGRESS ?",
    ),
    Known(
        "Where as many members want one assignor as want another, the group stays with one of them.",
        r"admin <- ConsumerGroupDescribe v1 .* group_epoch=4 .* members=\[\{member_id='tied' .*",
        r"admin <- ConsumerGroupDescribe v1 .* group_epoch=3 .* members=\[\{member_id='tied' .*",
    ),
    Known(
        "An OffsetFetch that tells an epoch and no member id is answered UNKNOWN_MEMBER_ID if it is of a "
        "consumer group.",
        r"a <- OffsetFetch v9 groups=\[\{group_id='g' topics=\[\] UNKNOWN_SERVER_ERROR\}\]",
        r"a <- OffsetFetch v9 groups=\[\{group_id='g' topics=\[\] UNKNOWN_MEMBER_ID\}\]",
    ),
    Known(
        "A commit of which every partition is refused makes no group.",
        r"admin <- ListGroups v5 NONE groups=\[(\{group_id='[gh]' \S+ group_state='Empty' [^}]*\}(, )?)+\]",
        r"admin <- ListGroups v5 NONE groups=\[\]",
    ),
    Known(
        "What the request that makes a streams group says of offsets, or of a shutdown, is known from then "
        "on; so is its topology with all partitions to who describes the group.",
        r"forgotten <- StreamsGroupHeartbeat v1 NONE .* status=\[\] .*",
        r"forgotten <- StreamsGroupHeartbeat v1 NONE .* status=\[\{status_code=4 .*",
    ),
    Known(
        "What the request that makes a streams group says of offsets, or of a shutdown, is known from then "
        "on; so is its topology with all partitions to who describes the group.",
        r"admin <- StreamsGroupDescribe v1 .* members=\[\{member_id='forgotten' .* task_offsets=\[\] .*",
        r"admin <- StreamsGroupDescribe v1 .* members=\[\{member_id='forgotten' .* task_offsets=\[\{.*",
    ),
    Known(
        "What the request that makes a streams group says of offsets, or of a shutdown, is known from then "
        "on; so is its topology with all partitions to who describes the group.",
        r"admin <- StreamsGroupDescribe .*'own-count' partitions=0 .* members=\[\{member_id='forgotten' .*",
        r"admin <- StreamsGroupDescribe .*'own-count' partitions=6 .* members=\[\{member_id='forgotten' .*",
    ),
    Known(
        "A streams group that is not ready tells members with endpoints of no partitions.",
        r"lost <- StreamsGroupHeartbeat v1 UNKNOWN_SERVER_ERROR .*",
        r"lost <- StreamsGroupHeartbeat v1 NONE .* status=\[\{status_code=1 .*",
    ),
    Known(
        "ListGroups finds streams groups that are not ready by NotReady and by NOT_READY.",
        r"admin <- ListGroups v5 NONE groups=\[\]",
        r"admin <- ListGroups v5 .* group_state='NotReady' group_type='streams'\}\]",
    ),
    Known(
        "What a static member says of offsets when it joins again under its own member id is known from "
        "then on.",
        r"admin <- StreamsGroupDescribe v1 .* instance_id='i1' .* task_offsets=\[\] .*",
        r"admin <- StreamsGroupDescribe v1 .* instance_id='i1' .* task_offsets=\[\{.* offset=9\}\] .*",
    ),
    Known(
        "When offsets of a share group are altered its epoch rises, as KIP-932 says.",
        r"late <- ShareGroupHeartbeat v1 NONE .* assignment=\{topic_partitions=\[.+\]\}",
        r"late <- ShareGroupHeartbeat v1 NONE .* assignment=\{topic_partitions=\[.+\]\}",
    ),
    TOLD_AGAIN,
    Known(
        "Where settings are refused, the message may say more: which values do not go together, or what name "
        "was meant.",
        r"admin <- IncrementalAlterConfigs v1 responses=\[\{\S+ error_message='"
        r"(.* duplicate tag keys\.|Unknown group config name: \S+|\S+ must be greater than \S+)' .*",
        r"admin <- IncrementalAlterConfigs v1 responses=\[\{\S+ error_message='"
        r"(.* without duplicates .*|.* \(did you mean .*\?\)|\S+ \(\d+\) must be greater than .*)' .*",
    ),
)


MET: set[Known] = set()
"""The rows that were needed."""


def meant(kafka: list[str], konvene: list[str]) -> bool:
    """Whether a row covers what is different between two lists of answers."""
    there = "\n".join(a for a in kafka if a not in konvene)
    here = "\n".join(a for a in konvene if a not in kafka)
    rows = {row for row in KNOWN if re.fullmatch(row.kafka, there) and re.fullmatch(row.konvene, here)}
    if TOLD_AGAIN in rows and re.sub(LISTS + "(?= topology_| endpoint_)", NULLS, here) != there:
        rows.remove(TOLD_AGAIN)
    MET.update(rows)
    return bool(rows)
