"""Formats records, explanations, effects and responses as one line of text each, for scenarios and traces.

Partitions are written as `orders:0-2,5`, with assignment epochs as `orders:0-2@7,5@8`; an empty list as `-`.
A topic id is shown as the name from which scenarios derived it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.groups.classic.subscriptions import (
    LATEST_VERSION,
    read_assignment,
    read_subscription,
)
from konvene.groups.consumer.current_assignment import MemberState
from konvene.groups.consumer.work import RegexesToResolve
from konvene.groups.share.work import StateToDelete, StateToInitialize
from konvene.groups.streams.classic.changelog_ends import EndsToLookUp
from konvene.groups.streams.current_assignment import MemberState as TasksState
from konvene.groups.streams.topology.internal_topics import TopicsToCreate
from konvene.records import consumer as rc
from konvene.records import share as rh
from konvene.records import streams as rs
from konvene.records.classic import GroupMetadataKey, GroupMetadataValue
from konvene.records.commits import OffsetCommitted
from konvene.records.coordinator import Record
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.shard.contract import Effect, Rebalance
from konvene.share_state.requests import Initialize, SharePartitionKey


class PartitionsOfTopic(Protocol):
    """A struct of a record or message with a topic id and partitions; some types have `assignment_epochs`."""

    @property
    def topic_id(self) -> Uuid: ...
    @property
    def partitions(self) -> tuple[int, ...]: ...


class PartitionsOfSubtopology(Protocol):
    """A struct with a subtopology id and its tasks' partitions; some types have `assignment_epochs`."""

    @property
    def subtopology_id(self) -> str: ...
    @property
    def partitions(self) -> tuple[int, ...]: ...


# --- records ---------------------------------------------------------------------------------------


def record_line(record: Record | OffsetCommitted | InTransaction | TransactionEnded) -> str:
    """Format a coordinator record as one line."""
    if isinstance(record, InTransaction):
        return f"producer {record.producer_id} {record_line(record.record)}"
    if isinstance(record, TransactionEnded):
        return f"producer {record.producer_id} {'committed' if record.committed else 'aborted'}"
    if isinstance(record, OffsetCommitted):
        parts = "deleted" if record.committed is None else f"offset {record.committed.offset}"
        return f"offset {record.group} {record.topic}-{record.partition} {parts}"
    key, value = record.key, record.value
    if type(key) in MODERN:
        noun, format_value = MODERN[type(key)]
        names = [getattr(key, f.name) for f in key.__fields__]
        return " ".join([noun, *names, "deleted" if value is None else format_value(value)])
    assert isinstance(key, GroupMetadataKey)
    if not isinstance(value, GroupMetadataValue):
        return f"group {key.group} deleted"
    members = ", ".join(
        m.member_id + (f"={_text(m.assignment)}" if m.assignment else "") for m in value.members
    )
    return f"group {key.group} generation {value.generation} [{members}]"


def _member(value: rc.ConsumerGroupMemberMetadataValue) -> str:
    parts = [
        f"{name}={text}"
        for name, text in (
            ("instance", value.instance_id),
            ("rack", value.rack_id),
            ("topics", ",".join(value.subscribed_topic_names)),
            ("regex", value.subscribed_topic_regex),
            ("assignor", value.server_assignor),
        )
        if text
    ]
    classic = value.classic_member_metadata
    if classic is not None:
        parts.append(f"classic={','.join(p.name for p in classic.supported_protocols)}")
        parts.append(f"session={classic.session_timeout_ms}")
    return " ".join([*parts, f"rebalance={value.rebalance_timeout_ms}"])


def _current(value: rc.ConsumerGroupCurrentMemberAssignmentValue) -> str:
    parts = (
        f"{MemberState(value.state).name} epoch {value.member_epoch} before {value.previous_member_epoch} "
        f"has {_partitions(value.assigned_partitions)}"
    )
    if value.partitions_pending_revocation:
        parts += f" revokes {_partitions(value.partitions_pending_revocation)}"
    return parts


CONSUMER: dict[type, tuple[str, Callable[[Any], str]]] = {
    rc.ConsumerGroupMetadataKey: (
        "consumer",
        lambda value: f"epoch {value.epoch} hash {value.metadata_hash & 0xFFFF:04x}",
    ),
    rc.ConsumerGroupPartitionMetadataKey: ("metadata", lambda value: f"of {len(value.topics)} topics"),
    rc.ConsumerGroupMemberMetadataKey: ("member", _member),
    rc.ConsumerGroupTargetAssignmentMetadataKey: (
        "assignment",
        lambda value: f"epoch {value.assignment_epoch} at {value.assignment_timestamp}",
    ),
    rc.ConsumerGroupTargetAssignmentMemberKey: ("target", lambda value: _partitions(value.topic_partitions)),
    rc.ConsumerGroupCurrentMemberAssignmentKey: ("current", _current),
    rc.ConsumerGroupRegularExpressionKey: (
        "regex",
        lambda value: f"matches [{','.join(value.topics)}] version {value.version} at {value.timestamp}",
    ),
}
"""Records of consumer groups: the word before their key, and the format of their value."""


def _streams_member(value: rs.StreamsGroupMemberMetadataValue) -> str:
    endpoint = value.user_endpoint
    parts = [
        f"{name}={text}"
        for name, text in (
            ("instance", value.instance_id),
            ("rack", value.rack_id),
            ("topology-epoch", value.topology_epoch),
            ("process", value.process_id),
            ("endpoint", endpoint and f"{endpoint.host}:{endpoint.port}"),
            ("tags", ",".join(f"{tag.key}:{tag.value}" for tag in value.client_tags)),
        )
        if text
    ]
    return " ".join([*parts, f"rebalance={value.rebalance_timeout_ms}"])


def _streams_group(value: rs.StreamsGroupMetadataValue) -> str:
    configs = " ".join(f"{row.key}={row.value}" for row in value.last_assignment_configs or ())
    parts = f"epoch {value.epoch} hash {value.metadata_hash & 0xFFFF:04x}"
    return f"{parts} validated {value.validated_topology_epoch} {configs}".rstrip()


def _tasks_by_role(
    active: Iterable[PartitionsOfSubtopology],
    standby: Iterable[PartitionsOfSubtopology],
    warmup: Iterable[PartitionsOfSubtopology],
) -> str:
    """Format active tasks, then standby and warm-up tasks if there are any."""
    parts = [_tasks(active)]
    parts += [
        f"{role} {_tasks(tasks)}" for role, tasks in (("standby", standby), ("warm-up", warmup)) if tasks
    ]
    return " ".join(parts)


def _streams_current(value: rs.StreamsGroupCurrentMemberAssignmentValue) -> str:
    owned = _tasks_by_role(value.active_tasks, value.standby_tasks, value.warmup_tasks)
    parts = (
        f"{TasksState(value.state).name} epoch {value.member_epoch} before {value.previous_member_epoch} "
        f"has {owned}"
    )
    pending_revocation = (
        value.active_tasks_pending_revocation,
        value.standby_tasks_pending_revocation,
        value.warmup_tasks_pending_revocation,
    )
    return f"{parts} revokes {_tasks_by_role(*pending_revocation)}" if any(pending_revocation) else parts


def _topology(value: rs.StreamsGroupTopologyValue) -> str:
    return f"epoch {value.epoch} of {','.join(each.subtopology_id for each in value.subtopologies)}"


STREAMS: dict[type, tuple[str, Callable[[Any], str]]] = {
    rs.StreamsGroupMetadataKey: ("streams", _streams_group),
    rs.StreamsGroupMemberMetadataKey: ("member", _streams_member),
    rs.StreamsGroupTargetAssignmentMetadataKey: CONSUMER[rc.ConsumerGroupTargetAssignmentMetadataKey],
    rs.StreamsGroupTargetAssignmentMemberKey: (
        "target",
        lambda value: _tasks_by_role(value.active_tasks, value.standby_tasks, value.warmup_tasks),
    ),
    rs.StreamsGroupCurrentMemberAssignmentKey: ("current", _streams_current),
    rs.StreamsGroupTopologyKey: ("topology", _topology),
}
"""Records of streams groups. Tasks are written like partitions, by subtopology id."""


def _share_member(value: rh.ShareGroupMemberMetadataValue) -> str:
    rack = f" rack={value.rack_id}" if value.rack_id else ""
    return f"topics={','.join(value.subscribed_topic_names)}{rack}"


def _share_current(value: rh.ShareGroupCurrentMemberAssignmentValue) -> str:
    return (
        f"epoch {value.member_epoch} before {value.previous_member_epoch} "
        f"has {_partitions(value.assigned_partitions)}"
    )


def _share_state(value: rh.ShareGroupStatePartitionMetadataValue) -> str:
    deleting = ",".join(topic_name(topic.topic_id) for topic in value.deleting_topics) or "-"
    return (
        f"initializing {_partitions(value.initializing_topics)} "
        f"initialized {_partitions(value.initialized_topics)} deleting {deleting}"
    )


SHARE: dict[type, tuple[str, Callable[[Any], str]]] = {
    rh.ShareGroupMetadataKey: ("share", CONSUMER[rc.ConsumerGroupMetadataKey][1]),
    rh.ShareGroupMemberMetadataKey: ("member", _share_member),
    rh.ShareGroupTargetAssignmentMetadataKey: CONSUMER[rc.ConsumerGroupTargetAssignmentMetadataKey],
    rh.ShareGroupTargetAssignmentMemberKey: CONSUMER[rc.ConsumerGroupTargetAssignmentMemberKey],
    rh.ShareGroupCurrentMemberAssignmentKey: ("current", _share_current),
    rh.ShareGroupStatePartitionMetadataKey: ("state", _share_state),
}
"""Records of share groups, as above."""

MODERN = CONSUMER | STREAMS | SHARE


# --- explanations and effects ------------------------------------------------------------------------------


def why_line(rebalance: Rebalance) -> str:
    """Format the causes of a new generation or group epoch as one line."""
    story = rebalance.value
    parts = ", ".join(
        " ".join(word for word in (c.kind, c.member_id, c.reason and f"({c.reason})") if word)
        for c in story.causes
    )
    noun = "generation" if story.group_type == "classic" else "epoch"
    return f"why {noun} {story.epoch} {story.state}: {parts}"


def effect_line(effect: Effect) -> str:
    """Format an effect, which is background work that a coordinator requested, as one line."""
    subject = effect.subject
    if isinstance(subject, RegexesToResolve):
        return f"{effect.verb} {subject.group_id} {' '.join(subject.regexes)}"
    if isinstance(subject, TopicsToCreate):
        topics = ",".join(f"{topic.name}:{topic.partitions}" for topic in subject.topics)
        return f"{effect.verb} {subject.group_id} {topics}"
    if isinstance(subject, EndsToLookUp):
        tasks = (f"{name}_{partition}" for (name, partition), _ in subject.tasks)
        return f"{effect.verb} {subject.group_id} {subject.member_id} {','.join(tasks)}"
    if isinstance(subject, StateToInitialize):
        requested = (
            f"{_share_partition(request.key)}@{request.start_offset}" for request in subject.requests
        )
        epoch = subject.requests[0].state_epoch
        return f"{effect.verb} {subject.group_id} {','.join(requested)} state epoch {epoch}"
    if isinstance(subject, StateToDelete):
        keys = ",".join(_share_partition(request.key) for request in subject.requests)
        return f"{effect.verb} {subject.group_id} {keys}"
    if isinstance(subject, str):
        return f"{effect.verb} {subject}"
    if type(subject) is tuple:
        return f"{effect.verb} {' '.join(subject)}"
    return f"{effect.verb} {subject.group_id} epoch {subject.epoch}"


def _share_partition(key: SharePartitionKey) -> str:
    return f"{topic_name(key.topic_id)}-{key.partition}"


# --- responses ---------------------------------------------------------------------------------------


OMITTED_FIELDS = ("throttle_time_ms", "authorized_operations")
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")
"""Task lists, which are shown even if they are empty."""


def answer_line(answer: object) -> str:
    """Format a response as one line, with the fields that differ from their defaults."""
    if isinstance(answer, Errors):
        return answer.name
    if not isinstance(answer, Struct):
        return _next_step(answer)
    parts: list[str] = []
    for f in answer.__fields__:
        value = getattr(answer, f.name)
        if f.name == "error_code":
            parts.insert(0, Errors(value).name)
        elif f.name in ROLES and value is not None:
            parts.append(f"{f.name}={_tasks(value)}")
        elif value and value != ZERO_UUID and f.name not in OMITTED_FIELDS:
            parts.append(f"{f.name}={_value(value)}")
    return " ".join([type(answer).__name__.removesuffix("Response"), *parts])


def _next_step(answer: object) -> str:
    """Format the result of one step of an administrator's request about a share group: its response, and the
    requests to the share coordinator that come next. None is `done`."""
    if answer is None:
        return "done"
    response = getattr(answer, "response", None)
    parts = [answer_line(response)] if response is not None else []
    subject = getattr(answer, "requests", ())
    starts = (f"@{r.start_offset}" if isinstance(r, Initialize) else "" for r in subject)
    names = [f"{_share_partition(r.key)}{start}" for r, start in zip(subject, starts, strict=True)]
    return " ".join([*parts, "then", ",".join(names) or "nothing"])


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Struct):
        if type(value).__name__ == "Assignment" and hasattr(value, "topic_partitions"):
            return _partitions(value.topic_partitions)
        return "{" + answer_line(value).partition(" ")[2] + "}"
    return str(value)


def _text(data: bytes) -> str:
    """Format bytes as text without line ends: the partitions of an encoded consumer assignment, the topics of
    an encoded subscription, other bytes as UTF-8 with escapes."""
    if 0 <= int.from_bytes(data[:2], "big", signed=True) <= LATEST_VERSION and len(data) > 5:
        assignment, text = read_assignment(data), read_subscription(data)
        if assignment is not None and all(partitions for _, partitions in assignment.partitions):
            return _join_ranges((topic, [(p, None) for p in tasks]) for topic, tasks in assignment.partitions)
        if text is not None:
            return ",".join(sorted(text.topics))
    return data.decode("utf-8", "backslashreplace").encode("unicode_escape").decode()


def _partitions(parts: Iterable[PartitionsOfTopic]) -> str:
    """Format partitions as `orders:0-2,5`, or `orders:0-2@7,5@8` if the structs have assignment epochs."""
    return _join_ranges(
        (
            topic_name(t.topic_id),
            sorted(zip(t.partitions, getattr(t, "assignment_epochs", None) or _no_epochs(), strict=False)),
        )
        for t in parts
    )


def _tasks(parts: Iterable[PartitionsOfSubtopology]) -> str:
    """Format tasks as `0:0-2,5`, or `0:0-2@7,5@8` if the structs have assignment epochs."""
    return _join_ranges(
        (
            t.subtopology_id,
            sorted(zip(t.partitions, getattr(t, "assignment_epochs", None) or _no_epochs(), strict=False)),
        )
        for t in parts
    )


def _no_epochs() -> Iterator[None]:
    while True:
        yield None


def topic_name(topic_id: Uuid) -> str:
    """Return the name from which a scenario derived this topic id, or else the id as text."""
    text = bytes(topic_id).decode("ascii", "replace").rstrip("-")
    return text if text.isprintable() and "\ufffd" not in text else str(topic_id)


def _join_ranges(topics: Iterable[tuple[str, list[tuple[int, int | None]]]]) -> str:
    return ",".join(f"{name}:{','.join(_runs(parts))}" for name, parts in topics) or "-"


def _runs(parts: list[tuple[int, int | None]]) -> Iterator[str]:
    """Yield the text of each range of consecutive partitions with equal assignment epochs, such as
    `0-2@7`."""
    start = 0
    while start < len(parts):
        first, epoch = parts[start]
        end = start
        while end + 1 < len(parts) and parts[end + 1] == (parts[end][0] + 1, epoch):
            end += 1
        run = str(first) if end == start else f"{first}-{parts[end][0]}"
        yield run if epoch is None else f"{run}@{epoch}"
        start = end + 1
