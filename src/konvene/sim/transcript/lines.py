"""What happened, a line each: records, stories, work, answers. For scenarios, traces and people.

Partitions are told as `orders:0-2,5`, where each was assigned at an epoch as `orders:0-2@7,5@8`; nothing at
all as `-`. A topic is named by its id, where that is made of the name as in scenarios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

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
from konvene.records.commits import OffsetCommitted
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.shard.contract import Effect, Rebalance
from konvene.share_state.requests import Initialize, SharePartitionKey

# --- records ---------------------------------------------------------------------------------------


def record_line(record: Any) -> str:
    """A record of a group coordinator."""
    if isinstance(record, InTransaction):
        return f"producer {record.producer_id} {record_line(record.record)}"
    if isinstance(record, TransactionEnded):
        return f"producer {record.producer_id} {'committed' if record.committed else 'aborted'}"
    if isinstance(record, OffsetCommitted):
        told = "deleted" if record.committed is None else f"offset {record.committed.offset}"
        return f"offset {record.group} {record.topic}-{record.partition} {told}"
    key, value = record.key, record.value
    if type(key) in MODERN:
        noun, tell = MODERN[type(key)]
        names = [getattr(key, f.name) for f in key.__fields__]
        return " ".join([noun, *names, "deleted" if value is None else tell(value)])
    if value is None:
        return f"group {key.group} deleted"
    members = ", ".join(
        m.member_id + (f"={_text(m.assignment)}" if m.assignment else "") for m in value.members
    )
    return f"group {key.group} generation {value.generation} [{members}]"


def _member(value: rc.ConsumerGroupMemberMetadataValue) -> str:
    told = [
        f"{name}={said}"
        for name, said in (
            ("instance", value.instance_id),
            ("rack", value.rack_id),
            ("topics", ",".join(value.subscribed_topic_names)),
            ("regex", value.subscribed_topic_regex),
            ("assignor", value.server_assignor),
        )
        if said
    ]
    classic = value.classic_member_metadata
    if classic is not None:
        told.append(f"classic={','.join(p.name for p in classic.supported_protocols)}")
        told.append(f"session={classic.session_timeout_ms}")
    return " ".join([*told, f"rebalance={value.rebalance_timeout_ms}"])


def _current(value: rc.ConsumerGroupCurrentMemberAssignmentValue) -> str:
    told = (
        f"{MemberState(value.state).name} epoch {value.member_epoch} before {value.previous_member_epoch} "
        f"has {_partitions(value.assigned_partitions)}"
    )
    if value.partitions_pending_revocation:
        told += f" revokes {_partitions(value.partitions_pending_revocation)}"
    return told


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
"""The records of consumer groups: what comes before their keys, and what they say."""


def _streams_member(value: rs.StreamsGroupMemberMetadataValue) -> str:
    endpoint = value.user_endpoint
    told = [
        f"{name}={said}"
        for name, said in (
            ("instance", value.instance_id),
            ("rack", value.rack_id),
            ("topology-epoch", value.topology_epoch),
            ("process", value.process_id),
            ("endpoint", endpoint and f"{endpoint.host}:{endpoint.port}"),
            ("tags", ",".join(f"{tag.key}:{tag.value}" for tag in value.client_tags)),
        )
        if said
    ]
    return " ".join([*told, f"rebalance={value.rebalance_timeout_ms}"])


def _streams_group(value: rs.StreamsGroupMetadataValue) -> str:
    configs = " ".join(f"{row.key}={row.value}" for row in value.last_assignment_configs or ())
    told = f"epoch {value.epoch} hash {value.metadata_hash & 0xFFFF:04x}"
    return f"{told} validated {value.validated_topology_epoch} {configs}".rstrip()


def _tasks_by_role(active: Iterable[Any], standby: Iterable[Any], warmup: Iterable[Any]) -> str:
    """Active tasks, then `standby` and `warm-up` ones where there are any."""
    told = [_tasks(active)]
    told += [f"{role} {_tasks(some)}" for role, some in (("standby", standby), ("warm-up", warmup)) if some]
    return " ".join(told)


def _streams_current(value: rs.StreamsGroupCurrentMemberAssignmentValue) -> str:
    has = _tasks_by_role(value.active_tasks, value.standby_tasks, value.warmup_tasks)
    told = (
        f"{TasksState(value.state).name} epoch {value.member_epoch} before {value.previous_member_epoch} "
        f"has {has}"
    )
    owes = (
        value.active_tasks_pending_revocation,
        value.standby_tasks_pending_revocation,
        value.warmup_tasks_pending_revocation,
    )
    return f"{told} revokes {_tasks_by_role(*owes)}" if any(owes) else told


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
"""Those of streams groups. Tasks are told like partitions, by the ids of their subtopologies."""


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
"""Those of share groups."""

MODERN = CONSUMER | STREAMS | SHARE


# --- stories and work ------------------------------------------------------------------------------


def why_line(rebalance: Rebalance) -> str:
    """Why there was a generation, or an epoch."""
    story = rebalance.story
    told = ", ".join(
        " ".join(word for word in (c.kind, c.member_id, c.reason and f"({c.reason})") if word)
        for c in story.causes
    )
    noun = "generation" if story.group_type == "classic" else "epoch"
    return f"why {noun} {story.epoch} {story.state}: {told}"


def effect_line(effect: Effect) -> str:
    """Work that is to be done elsewhere."""
    wanted = effect.subject
    if isinstance(wanted, RegexesToResolve):
        return f"{effect.verb} {wanted.group_id} {' '.join(wanted.regexes)}"
    if isinstance(wanted, TopicsToCreate):
        topics = ",".join(f"{topic.name}:{topic.partitions}" for topic in wanted.topics)
        return f"{effect.verb} {wanted.group_id} {topics}"
    if isinstance(wanted, EndsToLookUp):
        tasks = (f"{name}_{partition}" for (name, partition), _ in wanted.tasks)
        return f"{effect.verb} {wanted.group_id} {wanted.member_id} {','.join(tasks)}"
    if isinstance(wanted, StateToInitialize):
        asked = (f"{_place(request.key)}@{request.start_offset}" for request in wanted.requests)
        return (
            f"{effect.verb} {wanted.group_id} {','.join(asked)} state epoch {wanted.requests[0].state_epoch}"
        )
    if isinstance(wanted, StateToDelete):
        return (
            f"{effect.verb} {wanted.group_id} {','.join(_place(request.key) for request in wanted.requests)}"
        )
    if isinstance(wanted, str):
        return f"{effect.verb} {wanted}"
    if type(wanted) is tuple:
        return f"{effect.verb} {' '.join(wanted)}"
    return f"{effect.verb} {wanted.group_id} epoch {wanted.epoch}"


def _place(key: SharePartitionKey) -> str:
    return f"{topic_name(key.topic_id)}-{key.partition}"


# --- answers ---------------------------------------------------------------------------------------


SAYS_NOTHING = ("throttle_time_ms", "authorized_operations")
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")
"""Lists of tasks, which say something where they are empty, too."""


def answer_line(answer: Any) -> str:
    """A response: what is not at its default."""
    if isinstance(answer, Errors):
        return answer.name
    if not isinstance(answer, Struct):
        return _for_the_broker(answer)
    parts: list[str] = []
    for f in answer.__fields__:
        value = getattr(answer, f.name)
        if f.name == "error_code":
            parts.insert(0, Errors(value).name)
        elif f.name in ROLES and value is not None:
            parts.append(f"{f.name}={_tasks(value)}")
        elif value and value != ZERO_UUID and f.name not in SAYS_NOTHING:
            parts.append(f"{f.name}={_value(value)}")
    return " ".join([type(answer).__name__.removesuffix("Response"), *parts])


def _for_the_broker(answer: Any) -> str:
    """An answer to a step of a request: what is to be done next."""
    if answer is None:
        return "done"
    response = getattr(answer, "response", None)
    told = [answer_line(response)] if response is not None else []
    wanted = getattr(answer, "requests", ())
    starts = (f"@{r.start_offset}" if isinstance(r, Initialize) else "" for r in wanted)
    names = [f"{_place(r.key)}{start}" for r, start in zip(wanted, starts, strict=True)]
    return " ".join([*told, "then", ",".join(names) or "nothing"])


def _value(value: Any) -> str:
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
    """Bytes as text where they are text; no line ends in them. What consumers tell each other is read."""
    if 0 <= int.from_bytes(data[:2], "big", signed=True) <= LATEST_VERSION and len(data) > 5:
        given, said = read_assignment(data), read_subscription(data)
        if given is not None and all(partitions for _, partitions in given.partitions):
            return _spelled((topic, [(p, None) for p in some]) for topic, some in given.partitions)
        if said is not None:
            return ",".join(sorted(said.topics))
    return data.decode("utf-8", "backslashreplace").encode("unicode_escape").decode()


def _partitions(told: Iterable[Any]) -> str:
    """`told`: structs with a topic id and partitions, and maybe epochs."""
    return _spelled(
        (
            topic_name(t.topic_id),
            sorted(zip(t.partitions, getattr(t, "assignment_epochs", None) or _nothing(), strict=False)),
        )
        for t in told
    )


def _tasks(told: Iterable[Any]) -> str:
    """`told`: structs with a subtopology's id and partitions, and maybe epochs."""
    return _spelled(
        (
            t.subtopology_id,
            sorted(zip(t.partitions, getattr(t, "assignment_epochs", None) or _nothing(), strict=False)),
        )
        for t in told
    )


def _nothing() -> Iterator[None]:
    while True:
        yield None


def topic_name(topic_id: Uuid) -> str:
    """The name of which an id was made, or the id."""
    text = bytes(topic_id).decode("ascii", "replace").rstrip("-")
    return text if text.isprintable() and "\ufffd" not in text else str(topic_id)


def _spelled(topics: Iterable[tuple[str, list[tuple[int, int | None]]]]) -> str:
    return ",".join(f"{name}:{','.join(_runs(told))}" for name, told in topics) or "-"


def _runs(told: list[tuple[int, int | None]]) -> Iterator[str]:
    """Numbers in a row as one, where their epochs are alike."""
    at = 0
    while at < len(told):
        first, epoch = told[at]
        end = at
        while end + 1 < len(told) and told[end + 1] == (told[end][0] + 1, epoch):
            end += 1
        run = str(first) if end == at else f"{first}-{told[end][0]}"
        yield run if epoch is None else f"{run}@{epoch}"
        at = end + 1
