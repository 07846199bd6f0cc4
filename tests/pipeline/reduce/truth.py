"""Expected rebalances of the golden logs: each epoch with its causes, as Kafka's broker logged them.

The broker logs some causes indirectly, and others not at all:

    broker event                                  expected cause
    member-joins, static-member-joins             member-joined
    member-left, static-member-left               member-left, perhaps among other possible causes
    session-expired                               session-expired, likewise
    classic-to-consumer                           upgraded, by the consumer that joins next
    rebalance-starts with cause downgraded        downgraded, by the member that left just before
    ... topic-metadata-changed, by the leader     the same without a member: the log does not name it
    ... cooperative-follow-up, by the first       the same, by all members that revoked something
    another metadata hash, and nothing else       topic-metadata-changed
    no event for a changed subscription           subscription-changed; the story names the client id
    no epoch of streams and share groups          the next epoch
    when a member leaves
    an epoch of a share group, and nothing else   share-partitions-initialized
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.pipeline.reduce.reading import read_json_lines

NEAR_MS = 2_000
"""Largest difference between the broker's log line and the record's timestamp, on a loaded machine."""

KINDS = {
    "member-joins": "member-joined",
    "static-member-joins": "member-joined",
    "member-left": "member-left",
    "static-member-left": "member-left",
    "session-expired": "session-expired",
    "regex-refreshed": "regex-refreshed",
    "topology-initialized": "topology-initialized",
}
WITHOUT_A_MEMBER = ("regex-refreshed",)

Causes = set[tuple[str, str | None]]
"""Cause kinds with the member's id; of a changed subscription the client's id."""


@dataclass(slots=True)
class ExpectedRebalance:
    """The causes and times of one generation or epoch."""

    causes: Causes
    ms: int = -1
    """Time of the epoch bump, or of the last join of a classic generation."""
    target_ms: int | None = None
    """Time at which the target was computed, or the leader sent its assignment."""


@dataclass(slots=True)
class GroupEvents:
    """Broker events of a group since its last epoch."""

    causes: Causes = field(default_factory=set)
    refreshed_ms: int = -1
    hashes: list[int] = field(default_factory=list)
    epoch: int = 1
    is_ready: bool = False
    converted: bool = False

    def add(self, event: dict[str, Any]) -> None:
        kind = KINDS.get(event["event"])
        if kind is not None:
            self.causes.add((kind, None if kind in WITHOUT_A_MEMBER else event.get("member")))
        if kind == "regex-refreshed":
            self.refreshed_ms = event["ms"]


def truth_of(name: str) -> dict[tuple[str, int], ExpectedRebalance]:
    """Return the expected rebalances of a scenario by group and epoch."""
    expected: dict[tuple[str, int], ExpectedRebalance] = {}
    groups: dict[str, GroupEvents] = {}
    for event in read_json_lines(name, "causes.jsonl"):
        group = groups.setdefault(event["group"], GroupEvents())
        if name == "streams":
            _streams(event, group, expected)
        elif name == "share":
            _share(event, group, expected)
        elif event["event"] in CLASSIC_EVENTS or "generation" in event:
            _classic(event, group, expected)
        else:
            _consumer(event, group, expected, name)
    return expected


CLASSIC_EVENTS = ("member-asks-for-id", "static-member-replaced", "consumer-to-classic")


def _classic(
    event: dict[str, Any], group: GroupEvents, expected: dict[tuple[str, int], ExpectedRebalance]
) -> None:
    at = (event["group"], event.get("generation", 0))
    if event["event"] == "rebalance-starts":
        if event["cause"] == "downgraded":
            group.causes.add(("downgraded", next(m for kind, m in group.causes if kind == "member-left")))
        elif event["cause"] == "topic-metadata-changed":
            group.causes.add((event["cause"], None))
        else:
            group.causes.add((event["cause"], event["member"]))
    elif event["event"] in ("stabilized", "empty"):
        expected[at] = ExpectedRebalance(group.causes, event["ms"])
        group.causes = set()
    elif event["event"] == "leader-sent-assignment":
        expected[at].target_ms = event["ms"]


def _consumer(
    event: dict[str, Any], group: GroupEvents, expected: dict[tuple[str, int], ExpectedRebalance], name: str
) -> None:
    what = event["event"]
    if what == "classic-to-consumer":
        group.converted = True
    elif what == "target-computed":
        expected[event["group"], event["epoch"]].target_ms = event["ms"]
    elif what == "epoch-bumped":
        if event["ms"] - group.refreshed_ms > NEAR_MS:  # The refresh changed nothing, so it caused no epoch.
            group.causes.discard(("regex-refreshed", None))
        if group.hashes and not group.causes:
            if group.hashes[-1] == event["hash"]:
                group.causes = _subscribed(name, event)
            else:
                group.causes = {("topic-metadata-changed", None)}
        expected[event["group"], event["epoch"]] = ExpectedRebalance(group.causes, event["ms"])
        group.causes, group.hashes = set(), [event["hash"]]
    else:
        if event.get("protocol") == "classic" and (event["member"],) in group_members(
            expected, event["group"]
        ):
            return  # A classic member that rejoins on request.
        group.add(event)
        if what == "member-joins" and group.converted:
            group.causes.add(("upgraded", event["member"]))
            group.converted = False


def group_members(expected: dict[tuple[str, int], ExpectedRebalance], group: str) -> set[tuple[str | None]]:
    """Return the ids of all members that have joined the group so far."""
    return {
        (m,)
        for (name, _), rebalance in expected.items()
        if name == group
        for k, m in rebalance.causes
        if "joined" in k
    }


def _subscribed(name: str, event: dict[str, Any]) -> Causes:
    """Return the cause of a changed subscription; the scenario's story names the client."""
    return {
        ("subscription-changed", row["actor"])
        for row in read_json_lines(name, "story.jsonl")
        if row["action"] == "subscription-change"
        and row["group"] == event["group"]
        and 0 <= event["ms"] - row["ms"] < NEAR_MS
    }


def _streams(
    event: dict[str, Any], group: GroupEvents, expected: dict[tuple[str, int], ExpectedRebalance]
) -> None:
    what = event["event"]
    if what == "metadata-hash-computed":
        group.hashes.append(event["hash"])
    elif what in ("topology-ready", "internal-topics-missing", "topology-not-possible"):
        is_ready = what == "topology-ready"
        if is_ready is not group.is_ready:
            group.causes.add(("topology-ready" if is_ready else "topology-not-ready", None))
        group.is_ready = is_ready
    elif what in ("member-left", "session-expired"):
        group.epoch += 1
        expected[event["group"], group.epoch] = ExpectedRebalance({(what, event["member"])}, event["ms"])
    elif what == "epoch-bumped":
        joined = any(kind in ("member-joined", "topology-initialized") for kind, _ in group.causes)
        if len(set(group.hashes[-2:])) == 2 and not joined:
            group.causes.add(("topic-metadata-changed", None))
        group.epoch = event["epoch"]
        expected[event["group"], group.epoch] = ExpectedRebalance(group.causes, event["ms"])
        group.causes, group.hashes = set(), group.hashes[-1:]
    elif what == "target-computed":
        expected[event["group"], event["epoch"]].target_ms = event["ms"]
    else:
        group.add(event)


def _share(
    event: dict[str, Any], group: GroupEvents, expected: dict[tuple[str, int], ExpectedRebalance]
) -> None:
    what = event["event"]
    if what in ("member-left", "session-expired"):
        group.epoch += 1
        expected[event["group"], group.epoch] = ExpectedRebalance({(what, event["member"])}, event["ms"])
    elif what == "epoch-bumped":
        if not group.causes:
            same = group.hashes[-1] == event["hash"]
            group.causes = {("share-partitions-initialized" if same else "topic-metadata-changed", None)}
        group.epoch = event["epoch"]
        expected[event["group"], group.epoch] = ExpectedRebalance(group.causes, event["ms"])
        group.causes, group.hashes = set(), [event["hash"]]
    elif what == "target-computed":
        expected[event["group"], event["epoch"]].target_ms = event["ms"]
    else:
        group.add(event)


# --- comparing rows -------------------------------------------------------------------------------


def disagreement(row: dict[str, Any], expected: ExpectedRebalance) -> str:
    """Describe how a row differs from the expected rebalance; empty if it agrees."""
    row_causes = {
        (kind, cause["client_id"] if kind == "subscription-changed" else cause["member_id"])
        for cause in row["causes"]
        for kind in cause["kind"].split("|")
    }
    named = {(kind, None) if (kind, None) in row_causes else (kind, name) for kind, name in expected.causes}
    if not expected.causes or not named <= row_causes:
        return f"{row['group_id']} {row['to_epoch']}: {expected.causes} are not among {row_causes}"
    for cause in row["causes"]:
        kinds = set(cause["kind"].split("|"))
        known = {
            kind
            for kind, member in expected.causes
            if member in (cause["member_id"], cause["client_id"]) or kind == "cooperative-follow-up"
        }
        if not kinds & known:
            return f"{row['group_id']} {row['to_epoch']}: the broker logged no such cause: {cause}"
    begins_ms = row["target_ms"] if row["group_type"] == "classic" else row["start_ms"]
    if abs(begins_ms - expected.ms) > NEAR_MS:
        return f"{row['group_id']} {row['to_epoch']}: {begins_ms} is not {expected.ms}"
    targeted_ms = row["end_ms"] if row["group_type"] == "classic" else row["target_ms"]
    if expected.target_ms is not None and abs(targeted_ms - expected.target_ms) > NEAR_MS:
        return f"{row['group_id']} {row['to_epoch']}: {targeted_ms} is not {expected.target_ms}"
    return ""
