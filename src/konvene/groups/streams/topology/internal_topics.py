"""Internal topics that a streams group needs: who is asked to make them, and what is told if that fails.

A core makes no topic. It asks the shell, with every heartbeat of a group whose internal topics are missing;
the shell makes those that it is not making already. That they are there is seen by the topics themselves.
What failed comes back as `TopicsNotCreated` and is told to members, as in Kafka, for two heartbeats' time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from konvene.groups.modern.rebalance_trace import SoftStateRecord
from konvene.groups.streams.topology.configure import Configured, InternalTopic
from konvene.shard.contract import NOTHING, Context, Effect, Outcome

CREATE_TOPICS = "create-internal-topics"
"""Effect. Subject: `TopicsToCreate`."""

MOST_TOLD = 3
"""So many failures are told; of the others, how many."""


@dataclass(frozen=True, slots=True)
class TopicsToCreate:
    """Internal topics of a group that are missing, in Kafka's order."""

    group_id: str
    topics: tuple[InternalTopic, ...]


@dataclass(frozen=True, slots=True)
class TopicsNotCreated:
    """What went wrong, by topic; topics that nobody may create are `unauthorized`."""

    group_id: str
    errors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unauthorized: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Creation:
    """The last failure, as long as it is told."""

    failed: TopicsNotCreated
    until_ms: int


def creation(group_id: str, configured: Configured) -> Effect:
    """To make what is missing."""
    return Effect(CREATE_TOPICS, TopicsToCreate(group_id, tuple(configured.missing.values())))


def missing_detail(last: Creation | None, configured: Configured, now_ms: int) -> str:
    """What to say behind the names of the missing topics."""
    if last is None or now_ms >= last.until_ms:
        return ""
    denied = [topic for topic in last.failed.unauthorized if topic in configured.missing]
    if denied:
        return f"; Unauthorized to CREATE on topics {', '.join(denied)}."
    errors = [(name, last.failed.errors[name]) for name in configured.missing if name in last.failed.errors]
    if not errors:
        return ""
    told = ", ".join(f"{topic} ({error})" for topic, error in errors[:MOST_TOLD])
    more = f" and {len(errors) - MOST_TOLD} more" if len(errors) > MOST_TOLD else ""
    return f"; Creation failed: {told}{more}."


def not_created(group: Any, news: TopicsNotCreated, context: Context) -> Outcome:
    """Keep what went wrong, to tell it for a while. `group`: the streams group, None if it is gone."""
    if group is None:
        return NOTHING
    told_for_ms = 2 * context.group_configs.of(group.group_id)["streams.heartbeat.interval.ms"]
    soft = replace(group.soft, creation=Creation(news, context.now_ms + told_for_ms))
    return Outcome(soft_records=(SoftStateRecord(group.group_id, soft),))
