"""What Kafka's broker told while it wrote the golden logs, as a table: each generation and epoch, and why.

The broker's words are not all in one place, and some things it does not say at all:

    it says                                       a row says
    member-joins, static-member-joins             member-joined
    member-left, static-member-left               member-left, perhaps with what else it may have been
    session-expired                               session-expired, likewise
    classic-to-consumer                           upgraded, by the consumer that joins next
    rebalance-starts with cause downgraded        downgraded, by who left just before
    ... topic-metadata-changed, by the leader     the same, by nobody: who saw it first is not in the log
    ... cooperative-follow-up, by the first       the same, by all that gave something up
    another hash, and nothing else                topic-metadata-changed
    nothing of a subscription                     subscription-changed; the story says whose (a client's id)
    of streams and share groups no number of      the next one
    the epoch when somebody goes
    of a share group an epoch, and nothing else   share-partitions-initialized
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.pipeline.reduce.reading import said

NEAR_MS = 2_000
"""The broker's account and its log are so near to each other, on a machine that had much to do."""

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

Why = set[tuple[str, str | None]]
"""Kinds and members; of a changed subscription the client's id."""


@dataclass(slots=True)
class Told:
    """A generation or an epoch."""

    why: Why
    ms: int = -1
    """When its epoch was raised, or all had joined the generation."""
    target_ms: int | None = None
    """When its target was there, or its assignment was sent."""


@dataclass(slots=True)
class Heard:
    """What was said of a group since its last epoch."""

    why: Why = field(default_factory=set)
    refreshed_ms: int = -1
    hashes: list[int] = field(default_factory=list)
    epoch: int = 1
    is_ready: bool = False
    converted: bool = False

    def notes(self, event: dict[str, Any]) -> None:
        kind = KINDS.get(event["event"])
        if kind is not None:
            self.why.add((kind, None if kind in WITHOUT_A_MEMBER else event.get("member")))
        if kind == "regex-refreshed":
            self.refreshed_ms = event["ms"]


def truth_of(name: str) -> dict[tuple[str, int], Told]:
    """By group and epoch."""
    found: dict[tuple[str, int], Told] = {}
    heard: dict[str, Heard] = {}
    for event in said(name, "causes.jsonl"):
        group = heard.setdefault(event["group"], Heard())
        if name == "streams":
            _streams(event, group, found)
        elif name == "share":
            _share(event, group, found)
        elif event["event"] in CLASSIC_WORDS or "generation" in event:
            _classic(event, group, found)
        else:
            _consumer(event, group, found, name)
    return found


CLASSIC_WORDS = ("member-asks-for-id", "static-member-replaced", "consumer-to-classic")


def _classic(event: dict[str, Any], group: Heard, found: dict[tuple[str, int], Told]) -> None:
    at = (event["group"], event.get("generation", 0))
    if event["event"] == "rebalance-starts":
        if event["cause"] == "downgraded":
            group.why.add(("downgraded", next(m for kind, m in group.why if kind == "member-left")))
        elif event["cause"] == "topic-metadata-changed":
            group.why.add((event["cause"], None))
        else:
            group.why.add((event["cause"], event["member"]))
    elif event["event"] in ("stabilized", "empty"):
        found[at] = Told(group.why, event["ms"])
        group.why = set()
    elif event["event"] == "leader-sent-assignment":
        found[at].target_ms = event["ms"]


def _consumer(event: dict[str, Any], group: Heard, found: dict[tuple[str, int], Told], name: str) -> None:
    what = event["event"]
    if what == "classic-to-consumer":
        group.converted = True
    elif what == "target-computed":
        found[event["group"], event["epoch"]].target_ms = event["ms"]
    elif what == "epoch-bumped":
        if event["ms"] - group.refreshed_ms > NEAR_MS:  # It found what was known: no epoch for that.
            group.why.discard(("regex-refreshed", None))
        if group.hashes and not group.why:
            if group.hashes[-1] == event["hash"]:
                group.why = _subscribed(name, event)
            else:
                group.why = {("topic-metadata-changed", None)}
        found[event["group"], event["epoch"]] = Told(group.why, event["ms"])
        group.why, group.hashes = set(), [event["hash"]]
    else:
        if event.get("protocol") == "classic" and (event["member"],) in group_members(found, event["group"]):
            return  # It joins again, as it is told to.
        group.notes(event)
        if what == "member-joins" and group.converted:
            group.why.add(("upgraded", event["member"]))
            group.converted = False


def group_members(found: dict[tuple[str, int], Told], group: str) -> set[tuple[str | None]]:
    """Who ever joined."""
    return {(m,) for (name, _), told in found.items() if name == group for k, m in told.why if "joined" in k}


def _subscribed(name: str, event: dict[str, Any]) -> Why:
    """Whose subscription changed, by the story of who drove the clients."""
    return {
        ("subscription-changed", row["actor"])
        for row in said(name, "story.jsonl")
        if row["action"] == "subscription-change"
        and row["group"] == event["group"]
        and 0 <= event["ms"] - row["ms"] < NEAR_MS
    }


def _streams(event: dict[str, Any], group: Heard, found: dict[tuple[str, int], Told]) -> None:
    what = event["event"]
    if what == "metadata-hash-computed":
        group.hashes.append(event["hash"])
    elif what in ("topology-ready", "internal-topics-missing", "topology-not-possible"):
        is_ready = what == "topology-ready"
        if is_ready is not group.is_ready:
            group.why.add(("topology-ready" if is_ready else "topology-not-ready", None))
        group.is_ready = is_ready
    elif what in ("member-left", "session-expired"):
        group.epoch += 1
        found[event["group"], group.epoch] = Told({(what, event["member"])}, event["ms"])
    elif what == "epoch-bumped":
        joined = any(kind in ("member-joined", "topology-initialized") for kind, _ in group.why)
        if len(set(group.hashes[-2:])) == 2 and not joined:
            group.why.add(("topic-metadata-changed", None))
        group.epoch = event["epoch"]
        found[event["group"], group.epoch] = Told(group.why, event["ms"])
        group.why, group.hashes = set(), group.hashes[-1:]
    elif what == "target-computed":
        found[event["group"], event["epoch"]].target_ms = event["ms"]
    else:
        group.notes(event)


def _share(event: dict[str, Any], group: Heard, found: dict[tuple[str, int], Told]) -> None:
    what = event["event"]
    if what in ("member-left", "session-expired"):
        group.epoch += 1
        found[event["group"], group.epoch] = Told({(what, event["member"])}, event["ms"])
    elif what == "epoch-bumped":
        if not group.why:
            same = group.hashes[-1] == event["hash"]
            group.why = {("share-partitions-initialized" if same else "topic-metadata-changed", None)}
        group.epoch = event["epoch"]
        found[event["group"], group.epoch] = Told(group.why, event["ms"])
        group.why, group.hashes = set(), [event["hash"]]
    elif what == "target-computed":
        found[event["group"], event["epoch"]].target_ms = event["ms"]
    else:
        group.notes(event)


# --- whether a row agrees --------------------------------------------------------------------------


def disagreement(row: dict[str, Any], told: Told) -> str:
    """What a row says otherwise than the broker did; empty: nothing."""
    whys = {
        (kind, cause["client_id"] if kind == "subscription-changed" else cause["member_id"])
        for cause in row["causes"]
        for kind in cause["kind"].split("|")
    }
    if not told.why or not told.why <= whys:
        return f"{row['group_id']} {row['to_epoch']}: {told.why} are not among {whys}"
    for cause in row["causes"]:
        kinds = set(cause["kind"].split("|"))
        known = {
            kind
            for kind, member in told.why
            if member in (cause["member_id"], cause["client_id"]) or kind == "cooperative-follow-up"
        }
        if not kinds & known:
            return f"{row['group_id']} {row['to_epoch']}: nobody said {cause}"
    begins_ms = row["target_ms"] if row["group_type"] == "classic" else row["start_ms"]
    if abs(begins_ms - told.ms) > NEAR_MS:
        return f"{row['group_id']} {row['to_epoch']}: {begins_ms} is not {told.ms}"
    targeted_ms = row["end_ms"] if row["group_type"] == "classic" else row["target_ms"]
    if told.target_ms is not None and abs(targeted_ms - told.target_ms) > NEAR_MS:
        return f"{row['group_id']} {row['to_epoch']}: {targeted_ms} is not {told.target_ms}"
    return ""
