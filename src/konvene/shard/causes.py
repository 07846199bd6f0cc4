"""The words for why a group rebalanced. They stand in `__konvene_audit`, in logs, metrics and tables."""

from __future__ import annotations

MEMBER_JOINED = "member-joined"
MEMBER_LEFT = "member-left"
SESSION_EXPIRED = "session-expired"
REBALANCE_TIMEOUT = "rebalance-timeout"
"""A member did not rejoin in time."""
SYNC_TIMEOUT = "sync-timeout"
"""A member joined and then did not ask for its assignment in time."""
LEADER_REJOINED = "leader-rejoined"
MEMBER_METADATA_CHANGED = "member-metadata-changed"
TOPIC_METADATA_CHANGED = "topic-metadata-changed"
COOPERATIVE_FOLLOW_UP = "cooperative-follow-up"
STATIC_MEMBER_REJOINS = "static-member-rejoins"
REMOVED_BY_ADMIN = "removed-by-admin"
GROUP_TOO_LARGE = "group-too-large"
"""A coordinator that starts finds more members than `group.max.size` allows."""
MEMBER_GONE = "member-gone"
"""Only in inferred rows: the log shows that a member went, but not how."""
UNKNOWN = "unknown"
"""Only in inferred rows."""

SENTENCES = {
    MEMBER_JOINED: "joined",
    MEMBER_LEFT: "left",
    SESSION_EXPIRED: "sent no heartbeat for its session timeout",
    REBALANCE_TIMEOUT: "did not rejoin in time",
    SYNC_TIMEOUT: "did not ask for its assignment in time",
    LEADER_REJOINED: "leads the group and asked to rejoin",
    MEMBER_METADATA_CHANGED: "changed its subscription or assignors",
    TOPIC_METADATA_CHANGED: "saw its topics change",
    COOPERATIVE_FOLLOW_UP: "gave up partitions that others wait for",
    STATIC_MEMBER_REJOINS: "came back under its instance id",
    REMOVED_BY_ADMIN: "was removed by an administrator",
    MEMBER_GONE: "is gone",
    UNKNOWN: "for a reason that the log does not tell",
}
"""What follows a member's name in a sentence."""

OF_THE_GROUP = {
    TOPIC_METADATA_CHANGED: "the group's topics changed",
    GROUP_TOO_LARGE: "the group has more members than group.max.size allows",
    UNKNOWN: "the group rebalanced for a reason that the log does not tell",
}
"""The sentence where no member is named."""
