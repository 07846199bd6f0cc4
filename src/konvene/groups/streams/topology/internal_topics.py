"""Creation of a streams group's internal topics: the request to the shell, and how a failure is reported.

The core creates no topic. With every heartbeat of a group whose internal topics are missing it requests them
from the shell, which creates those that it is not creating already. Created topics appear in the topics
image. A failure is returned as `TopicsNotCreated`, and reported to members, as in Kafka, for two heartbeat
intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from konvene.groups.modern.rebalance_trace import SoftStateRecord
from konvene.groups.streams.topology.configure import ConfiguredTopology, InternalTopic
from konvene.security.principal import ANONYMOUS, KafkaPrincipal
from konvene.shard.contract import NOTHING, Context, Effect, Outcome

if TYPE_CHECKING:
    from konvene.groups.streams.group import StreamsGroup

CREATE_TOPICS = "create-internal-topics"
"""Effect: create internal topics. Subject: `TopicsToCreate`."""

MAX_ERRORS_SHOWN = 3
"""Maximum number of topics whose creation errors are reported; of the others, only how many."""


@dataclass(frozen=True, slots=True)
class TopicsToCreate:
    """The request to create the missing internal topics of a group, in Kafka's order."""

    group_id: str
    topics: tuple[InternalTopic, ...]
    principal: KafkaPrincipal = ANONYMOUS
    """The user whose heartbeat requests the topics, and which has to be permitted to create them."""
    host: str = ""
    """Address of that client, in Kafka's notation."""


@dataclass(frozen=True, slots=True)
class TopicsNotCreated:
    """Event: creation errors by topic, and the topics that the principal is not authorized to create."""

    group_id: str
    errors: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    unauthorized: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreationFailure:
    """The last failure to create topics, and the time until which it is reported to members."""

    failed: TopicsNotCreated
    until_ms: int


def create_missing_topics(group_id: str, configured: ConfiguredTopology, context: Context) -> Effect:
    """Return the effect that creates the missing internal topics."""
    topics = tuple(configured.missing.values())
    return Effect(CREATE_TOPICS, TopicsToCreate(group_id, topics, context.principal, context.client_host))


def unauthorized_detail(denied: Sequence[str]) -> str:
    """Return a text with the topics that the client may not create, for the detail of a status."""
    return f"; Unauthorized to CREATE on topics {', '.join(denied)}."


def missing_detail(last: CreationFailure | None, configured: ConfiguredTopology, now_ms: int) -> str:
    """Return a text with the creation errors, which is appended to the detail of MISSING_INTERNAL_TOPICS."""
    if last is None or now_ms >= last.until_ms:
        return ""
    denied = [topic for topic in last.failed.unauthorized if topic in configured.missing]
    if denied:
        return unauthorized_detail(denied)
    errors = [(name, last.failed.errors[name]) for name in configured.missing if name in last.failed.errors]
    if not errors:
        return ""
    shown = ", ".join(f"{topic} ({error})" for topic, error in errors[:MAX_ERRORS_SHOWN])
    more = f" and {len(errors) - MAX_ERRORS_SHOWN} more" if len(errors) > MAX_ERRORS_SHOWN else ""
    return f"; Creation failed: {shown}{more}."


def record_creation_failure(
    group: StreamsGroup | None, failure: TopicsNotCreated, context: Context
) -> Outcome:
    """Keep a creation failure in the group's soft state; nothing if the group (None) was deleted."""
    if group is None:
        return NOTHING
    reported_ms = 2 * context.group_configs.of(group.group_id)["streams.heartbeat.interval.ms"]
    soft = replace(group.soft, creation=CreationFailure(failure, context.now_ms + reported_ms))
    return Outcome(soft_records=(SoftStateRecord(group.group_id, soft),))
