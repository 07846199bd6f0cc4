"""Kinds of rebalance causes and their sentences. The kinds appear in `__konvene_audit`, in logs, metrics and
tables.
"""

from __future__ import annotations

MEMBER_JOINED = "member-joined"
MEMBER_LEFT = "member-left"
SESSION_EXPIRED = "session-expired"
REBALANCE_TIMEOUT = "rebalance-timeout"
"""A member did not rejoin, or did not acknowledge a revocation, within its rebalance timeout."""
SYNC_TIMEOUT = "sync-timeout"
"""A member joined and then sent no SyncGroup in time."""
LEADER_REJOINED = "leader-rejoined"
MEMBER_METADATA_CHANGED = "member-metadata-changed"
TOPIC_METADATA_CHANGED = "topic-metadata-changed"
COOPERATIVE_FOLLOW_UP = "cooperative-follow-up"
STATIC_MEMBER_REJOINS = "static-member-rejoins"
REMOVED_BY_ADMIN = "removed-by-admin"
SUBSCRIPTION_CHANGED = "subscription-changed"
ASSIGNOR_CHANGED = "assignor-changed"
"""Most members of a consumer group now prefer another server-side assignor."""
REGEX_REFRESHED = "regex-refreshed"
"""A subscription regex of the group matches other topics than before, or was resolved for the first time."""
STATIC_MEMBER_LEFT_TEMPORARILY = "static-member-left-temporarily"
"""A static member left temporarily. The epoch is not bumped: the member's assignment is kept."""
FENCED = "fenced"
UPGRADED = "upgraded"
"""A classic group became a consumer or streams group: its first member of that protocol joined."""
DOWNGRADED = "downgraded"
"""A consumer or streams group became a classic one: its last member of that protocol left or was replaced."""
TOPOLOGY_INITIALIZED = "topology-initialized"
"""The first member of a streams group sent the application's topology."""
TOPOLOGY_UPDATED = "topology-updated"
"""A member of a streams group sent a newer topology of the application."""
WARMUP_CAUGHT_UP = "warmup-caught-up"
"""The lag of a warm-up task is small enough for its member to become the active one."""
TOPOLOGY_READY = "topology-ready"
"""All topics of a streams group's topology exist and are copartitioned."""
TOPOLOGY_NOT_READY = "topology-not-ready"
"""Topics of a streams group's topology are missing, or are no longer copartitioned."""
ASSIGNMENT_CONFIGS_CHANGED = "assignment-configs-changed"
SHARE_PARTITIONS_INITIALIZED = "share-partitions-initialized"
"""Share partitions of a share group were initialized or deleted, so its assignment changes."""
OFFSETS_ALTERED = "offsets-altered"
"""The start offsets of an empty share group were altered."""
GROUP_TOO_LARGE = "group-too-large"
"""A coordinator that loads a group finds more members than `group.max.size` allows."""
MEMBER_DEPARTED = "member-gone"
"""Inferred rows only: the log shows that a member departed, but not how."""
SUPERSEDED_UNRECORDED = "|".join((
    MEMBER_JOINED, STATIC_MEMBER_REJOINS, MEMBER_METADATA_CHANGED, LEADER_REJOINED, MEMBER_LEFT,
    SESSION_EXPIRED, SYNC_TIMEOUT,
))  # fmt: skip
"""Inferred rows only: one of these superseded a generation before its assignment was stored."""
UNKNOWN = "unknown"
"""Inferred rows only: the log does not show a cause."""

SENTENCES = {
    MEMBER_JOINED: "joined",
    MEMBER_LEFT: "left",
    SESSION_EXPIRED: "sent no heartbeat within its session timeout",
    REBALANCE_TIMEOUT: "did not rejoin within its rebalance timeout",
    SYNC_TIMEOUT: "was removed: its SyncGroup timed out",
    LEADER_REJOINED: "is the leader and rejoined",
    MEMBER_METADATA_CHANGED: "changed its subscription or assignors",
    TOPIC_METADATA_CHANGED: "detected a change of its topics",
    COOPERATIVE_FOLLOW_UP: "revoked partitions others were waiting for",
    STATIC_MEMBER_REJOINS: "rejoined with its instance id",
    SUBSCRIPTION_CHANGED: "changed its subscription",
    ASSIGNOR_CHANGED: "changed the group's preferred assignor",
    REGEX_REFRESHED: "has a subscription regex that now matches other topics",
    STATIC_MEMBER_LEFT_TEMPORARILY: "left temporarily; its assignment is kept",
    FENCED: "was fenced",
    UPGRADED: "upgraded the group to the {protocol} protocol",
    DOWNGRADED: "was the last member of the new protocol: the group was downgraded to classic",
    TOPOLOGY_INITIALIZED: "sent the application's topology",
    TOPOLOGY_UPDATED: "updated the application's topology",
    WARMUP_CAUGHT_UP: "has a warm-up task that caught up",
    REMOVED_BY_ADMIN: "was removed by an administrator",
    MEMBER_DEPARTED: "left, or was removed",
    UNKNOWN: "triggered it for a reason that the log does not record",
}
"""The predicate that follows a member's name in a sentence; `{protocol}` is the group's type."""

SERVER_SIDE_SENTENCES = {
    MEMBER_METADATA_CHANGED: "changed its member metadata",
    REBALANCE_TIMEOUT: "did not revoke partitions within its rebalance timeout",
}
"""Predicates that differ where the coordinator assigns, that is in all groups but classic ones."""

GROUP_SENTENCES = {
    MEMBER_JOINED: "a member joined",
    MEMBER_DEPARTED: "a member left, or was removed",
    TOPIC_METADATA_CHANGED: "the group's topics changed",
    REGEX_REFRESHED: "subscription regexes of the group now match other topics",
    UPGRADED: "the group was upgraded from the classic protocol",
    DOWNGRADED: "the group was downgraded to the classic protocol",
    TOPOLOGY_INITIALIZED: "the application's topology was initialized",
    TOPOLOGY_UPDATED: "the application's topology was updated",
    WARMUP_CAUGHT_UP: "a warm-up task caught up",
    TOPOLOGY_READY: "all topics of the topology exist",
    TOPOLOGY_NOT_READY: "topics of the topology are missing or not copartitioned",
    ASSIGNMENT_CONFIGS_CHANGED: "configs that affect the group's assignment changed",
    SHARE_PARTITIONS_INITIALIZED: "share partitions were initialized or deleted",
    OFFSETS_ALTERED: "the group's start offsets were altered",
    GROUP_TOO_LARGE: "the group has more members than group.max.size allows",
    SUPERSEDED_UNRECORDED: "a generation was superseded before its assignment was stored, and left no record",
    UNKNOWN: "the group rebalanced for a reason that the log does not record",
}
"""Sentences for causes that name no member."""

WITH_COORDINATOR_DETAIL = frozenset((TOPOLOGY_UPDATED, WARMUP_CAUGHT_UP))
"""Kinds whose `reason` is written by the coordinator (a task, a difference), not by the client."""


def predicate(kind: str, group_type: str) -> str:
    """Return what a sentence about a cause has after the member's name, such as `was fenced`.

    `kind`: the kind of the cause, empty result if it is unknown; `group_type`: the group's type, on which
    some predicates depend."""
    text = SENTENCES.get(kind, "")
    if group_type != "classic":
        text = SERVER_SIDE_SENTENCES.get(kind, text)
    return text.replace("{protocol}", group_type)
