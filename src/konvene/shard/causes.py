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
SUBSCRIPTION_CHANGED = "subscription-changed"
ASSIGNOR_CHANGED = "assignor-changed"
"""Most members of a consumer group prefer another server-side assignor now."""
REGEX_REFRESHED = "regex-refreshed"
"""What a member's regular expression matches was found out, or has changed."""
STATIC_MEMBER_LEFT_TEMPORARILY = "static-member-left-temporarily"
"""No epoch moves for it: its place is kept."""
FENCED = "fenced"
UPGRADED = "upgraded"
"""A classic group became a consumer or streams group: its first member of that protocol joined."""
DOWNGRADED = "downgraded"
"""A consumer or streams group became a classic one: its last member of that protocol left or was replaced."""
TOPOLOGY_INITIALIZED = "topology-initialized"
"""The first member of a streams group said what the application's topology is."""
TOPOLOGY_UPDATED = "topology-updated"
"""A member of a streams group brought the application's next topology."""
WARMUP_CAUGHT_UP = "warmup-caught-up"
"""A warm-up task of a streams group has as much of the state as is wanted of who becomes active."""
TOPOLOGY_READY = "topology-ready"
"""All topics of a streams group's topology are there, and fit each other."""
TOPOLOGY_NOT_READY = "topology-not-ready"
"""Topics of a streams group's topology are gone, or do not fit each other any more."""
ASSIGNMENT_CONFIGS_CHANGED = "assignment-configs-changed"
SHARE_PARTITIONS_INITIALIZED = "share-partitions-initialized"
"""Share partitions of a share group have begun, or are no more, and its assignment follows."""
OFFSETS_ALTERED = "offsets-altered"
"""The start offsets of an empty share group were set anew."""
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
    SUBSCRIPTION_CHANGED: "subscribed to other topics",
    ASSIGNOR_CHANGED: "made another assignor the preferred one",
    REGEX_REFRESHED: "subscribes by an expression that matches other topics now",
    STATIC_MEMBER_LEFT_TEMPORARILY: "left for a while; its place is kept",
    FENCED: "was fenced",
    UPGRADED: "speaks the new protocol, and the group with it from now on",
    DOWNGRADED: "was the last that spoke the new protocol; the group is a classic one again",
    TOPOLOGY_INITIALIZED: "said what the application's topology is",
    TOPOLOGY_UPDATED: "brought the application's next topology",
    WARMUP_CAUGHT_UP: "has caught up with a task that it warms up",
    REMOVED_BY_ADMIN: "was removed by an administrator",
    MEMBER_GONE: "is gone",
    UNKNOWN: "for a reason that the log does not tell",
}
"""What follows a member's name in a sentence."""

WHERE_IT_ASSIGNS = {
    MEMBER_METADATA_CHANGED: "changed what it says of itself",
    REBALANCE_TIMEOUT: "did not follow within its rebalance timeout",
}
"""The same where the coordinator assigns: in consumer and streams groups."""

OF_THE_GROUP = {
    TOPIC_METADATA_CHANGED: "the group's topics changed",
    REGEX_REFRESHED: "regular expressions of the group match other topics now",
    UPGRADED: "the group was upgraded from the classic protocol",
    DOWNGRADED: "the group was downgraded to the classic protocol",
    TOPOLOGY_INITIALIZED: "the application's topology became known",
    TOPOLOGY_UPDATED: "the application has its next topology",
    WARMUP_CAUGHT_UP: "a task that warmed up has caught up",
    TOPOLOGY_READY: "all topics of the topology are there",
    TOPOLOGY_NOT_READY: "topics of the topology are missing, or do not fit each other",
    ASSIGNMENT_CONFIGS_CHANGED: "settings of the group changed on which its assignment rests",
    SHARE_PARTITIONS_INITIALIZED: "share partitions are there to be assigned that were not before",
    OFFSETS_ALTERED: "the group's start offsets were altered",
    GROUP_TOO_LARGE: "the group has more members than group.max.size allows",
    UNKNOWN: "the group rebalanced for a reason that the log does not tell",
}
"""The sentence where no member is named."""

DETAILED = frozenset((TOPOLOGY_UPDATED, WARMUP_CAUGHT_UP))
"""Where a cause's `reason` is no client's word: which task it is, or what is different."""
