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
)


MET: set[Known] = set()
"""The rows that were needed."""


def meant(kafka: list[str], konvene: list[str]) -> bool:
    """Whether a row covers what is different between two lists of answers."""
    there = "\n".join(a for a in kafka if a not in konvene)
    here = "\n".join(a for a in konvene if a not in kafka)
    rows = {row for row in KNOWN if re.fullmatch(row.kafka, there) and re.fullmatch(row.konvene, here)}
    MET.update(rows)
    return bool(rows)
