"""Reset of a group's offsets: requests the facts that a plan needs, and commits the plan.

`konvene.client.admin.reset_plan` has the rules. For a streams group only the topics that its topology reads
can be reset; for a share group the start offsets are reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from konvene.client.admin.reset_plan import RULES, Facts, Goal, Plan, Topics, plan
from konvene.client.admin.streams_groups import StreamsGroupDescription
from konvene.client.consumer.fetch import EARLIEST, LATEST
from konvene.client.errors import ClientError, KafkaError
from konvene.client.hints import HINTS
from konvene.client.net.cluster import TopicPartition

if TYPE_CHECKING:
    from konvene.client.admin.admin import Admin
    from konvene.client.admin.any_group import AnyGroup

__all__ = ["CannotReset", "check_inactive", "commit_offsets", "current_offsets", "plan_offsets"]

LATEST_TIME = 2**63 - 1


class CannotReset(ClientError):
    """A reset that is not possible; `hint` is what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def check_inactive(group: str, found: AnyGroup | None) -> None:
    """Raise `CannotReset` unless the group is Empty or does not exist (None), as Kafka's tool does."""
    if found is not None and found.state not in ("Empty", "Dead"):
        raise CannotReset(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current state is "
            f"{found.state}.",
            "Stop its members first: `konvene groups describe --members` shows them.",
        )


async def plan_offsets(
    admin: Admin, group: str, found: AnyGroup | None, goal: Goal, topics: Topics | None, *, is_share: bool
) -> Plan:
    """Plan the new offsets of a group, `found` as described or None if it does not exist.

    `topics` are the partitions to reset; None means those of the goal's file, else all partitions with an
    offset. Raises `CannotReset`, `BadInput` for a goal that cannot be reached, and `KafkaError`."""
    streams = found if isinstance(found, StreamsGroupDescription) else None
    is_scope = topics is None and goal.kind != "from-file"
    current: dict[TopicPartition, int] = {}
    if is_scope or "committed" in RULES[goal.kind].needs:
        current = await current_offsets(admin, group, is_share=is_share)
    partitions = await _partitions(admin, group, goal, topics, streams, current)
    planned = plan(goal, partitions, await _facts(admin, goal, partitions, current))
    if not partitions:
        planned.warnings.append(f"Group '{group}' has no committed offsets to reset.")
    return planned


async def current_offsets(admin: Admin, group: str, *, is_share: bool) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group, or the start offsets of a share group."""
    if not is_share:
        return {tp: at.offset for tp, at in (await admin.committed_offsets(group)).items()}
    found = (await admin.list_share_group_offsets({group: None}))[group]
    return {tp: at.start_offset for tp, at in found.items() if at.start_offset is not None}


async def commit_offsets(
    admin: Admin, group: str, offsets: Mapping[TopicPartition, int], *, is_share: bool
) -> dict[TopicPartition, KafkaError | None]:
    """Commit the offsets of a plan; return the error of each partition of a share group, or None.

    Raises `ClientError` if nothing was committed; for other groups if any partition failed."""
    if is_share:
        errors = await admin.alter_share_group_offsets(group, offsets)
        return {tp: errors.get(tp) for tp in offsets}
    if offsets:
        await admin.alter_offsets(group, offsets)
    return dict.fromkeys(offsets)


async def _partitions(
    admin: Admin, group: str, goal: Goal, scope: Topics | None, streams: StreamsGroupDescription | None,
    current: Mapping[TopicPartition, int],
) -> list[TopicPartition]:  # fmt: skip
    """Return the partitions to reset. Raises `CannotReset` if one does not exist or has no leader.

    They are those of the file or of `scope`; without either, those in `current`.
    """
    if goal.kind == "from-file":
        selected = list(goal.offsets)
    elif scope is None:
        selected = list(current)
        if streams is not None and streams.topology is not None:
            selected = [tp for tp in selected if tp.topic in streams.topology.source_topics]
    else:
        selected = [TopicPartition(topic, each) for topic, numbers in scope for each in numbers or ()]
    whole = [topic for topic, numbers in scope or () if numbers is None]
    topics = {*whole, *(tp.topic for tp in selected)}
    if streams is not None:
        _check_topics(streams, topics)
    found = (await admin.cluster.refresh(topics)).topics if topics else {}
    for topic in whole:
        if found[topic].error_code:
            raise CannotReset(f"there is no topic {topic}", HINTS["UNKNOWN_TOPIC_OR_PARTITION"])
        selected += (TopicPartition(topic, p.partition) for p in found[topic].partitions)
    leaders = {TopicPartition(t, p.partition): p.leader for t in topics for p in found[t].partitions}
    missing = sorted(tp for tp in selected if tp not in leaders)
    if missing:
        raise CannotReset(
            f'group {group}: The partitions "{",".join(map(str, missing))}" do not exist',
            "`konvene topics describe` shows a topic's partitions.",
        )
    leaderless = sorted(tp for tp in selected if leaders[tp] < 0)
    if leaderless:
        raise CannotReset(
            f'group {group}: The partitions "{",".join(map(str, leaderless))}" have no leader',
            "Try again when their broker is available.",
        )
    return sorted(set(selected))


def _check_topics(group: StreamsGroupDescription, topics: Iterable[str]) -> None:
    """Raise `CannotReset` for a topic that the topology does not read: its offsets would never be used."""
    if group.topology is None:
        return
    reads = {topic for each in group.topology.subtopologies for topic in each.reads}
    for topic in sorted(set(topics) - reads):
        raise CannotReset(
            f"topic {topic} is not part of the group '{group.group_id}'",
            "`konvene groups describe --topology` shows the topics that it reads.",
        )


async def _facts(
    admin: Admin, goal: Goal, partitions: Iterable[TopicPartition], current: Mapping[TopicPartition, int]
) -> Facts:
    """Return the facts (offsets of partitions) that the rule of the goal needs, requested from the cluster.

    `current` are the committed offsets, which are known already.
    """
    needs = RULES[goal.kind].needs

    async def listed(timestamp: int) -> dict[TopicPartition, int]:
        found = await admin.list_offsets(dict.fromkeys(partitions, timestamp))
        return {tp: at.offset for tp, at in found.items()}

    facts = Facts(committed=current)
    if "earliest" in needs:
        facts = facts._replace(earliest=await listed(EARLIEST))
    if "latest" in needs:
        facts = facts._replace(latest=await listed(LATEST))
    if "at_time" in needs:
        # Brokers reserve negative timestamps for EARLIEST, LATEST and others.
        late = await listed(min(max(0, goal.number), LATEST_TIME))
        facts = facts._replace(at_time={tp: at if at >= 0 else None for tp, at in late.items()})
    return facts
