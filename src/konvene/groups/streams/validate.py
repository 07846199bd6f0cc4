"""Validation of StreamsGroupHeartbeat requests: a table of rules with their error codes and messages.

    function           called                                            depends on
    check_names        before the topics are authorised                  the request
    check_request      before the group is looked up                     the request
    topology_after     if the request has a topology                     the group's topology
    check_tasks        after the group's topology was configured         the numbers of tasks
    check_offsets      before the member's offsets are stored            the request

Rules by `kafka` are those of Apache Kafka 4.4, in its order and with its codes and messages. Rules by `kip`
are those of KIP-1071 that Kafka does not check: its two lists, its schema, and their consequences. They apply
only with `konvene.streams.mode` = `kip`, and after Kafka's, so a request that Kafka rejects has the same
error in both modes. An empty member id, which the KIP permits when a member joins, is rejected in both modes
as by Kafka. Expressions for source topics, which Kafka does not support yet, are rejected only in mode
`kafka`.

Kafka detects the violation of some of these rules later, when it configures the topology (`configure`).

An application that restores a table from its source topic (`topology.optimization`) lists the topic both as
source and as changelog. Kafka accepts that; the KIP forbids it, so mode `kip` rejects it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from konvene.errors import Errors
from konvene.groups.modern.group import JOIN, LEAVE_STATIC
from konvene.groups.streams.topology.configure import KAFKA, KIP, ConfiguredTopology
from konvene.groups.streams.topology.topology import Topology, validate_request
from konvene.internal_topics import INTERNAL_TOPICS
from konvene.messages import streams_group_heartbeat as wire
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, TaskIds
from konvene.shard.errors import GroupError

_JAVA_SPACE = "".join(map(chr, range(ord(" ") + 1)))
_VALID_NAME = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")

Violation = dict[str, object] | None
"""The values of a message's placeholders; None if the rule is not violated."""
NO_DETAILS: dict[str, object] = {}


class Rule(NamedTuple):
    """A rule for requests: the function that finds a violation, and the error of a violation."""

    id: str
    by: str
    error: Errors
    message: str
    violation: Callable[[StreamsGroupHeartbeatRequest], Violation]

    def check(self, request: StreamsGroupHeartbeatRequest) -> None:
        found = self.violation(request)
        if found is not None:
            raise GroupError(self.error, self.message.format(**found))


# --- violations by a request's own fields -----------------------------------------------------------


def _when(broken: bool) -> Violation:
    return NO_DETAILS if broken else None


def _is_blank(text: str | None) -> bool:
    """Return whether Java's `trim` leaves nothing of the text: no character is greater than a space."""
    return text is not None and not text.strip(_JAVA_SPACE)


def _topics_if_any(topics: list[str]) -> Violation:
    return {"topics": ",".join(topics)} if topics else None


def _has_some_null_roles(request: StreamsGroupHeartbeatRequest) -> bool:
    roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    return any(tasks is None for tasks in roles) and any(tasks is not None for tasks in roles)


def _changelog_with_count(request: StreamsGroupHeartbeatRequest) -> Violation:
    for each in _subtopologies(request):
        for topic in each.state_changelog_topics:
            if topic.partitions:
                return {"topic": topic.name, "partitions": topic.partitions}
    return None


def _duplicate_task(request: StreamsGroupHeartbeatRequest) -> Violation:
    seen = set()
    for tasks in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        for each in tasks or ():
            for partition in each.partitions:
                if (each.subtopology_id, partition) in seen:
                    return {"subtopology": each.subtopology_id, "partition": partition}
                seen.add((each.subtopology_id, partition))
    return None


def _subtopologies(request: StreamsGroupHeartbeatRequest) -> tuple[wire.Subtopology, ...]:
    return request.topology.subtopologies if request.topology is not None else ()


# --- violations by the topology ---------------------------------------------------------------------


def named_topics(request: StreamsGroupHeartbeatRequest) -> tuple[str, ...]:
    """Return the distinct topics that the request's topology names, which have to be authorised."""
    named = {}
    for each in _subtopologies(request):
        named.update(dict.fromkeys(each.source_topics))
        named.update(dict.fromkeys(each.repartition_sink_topics))
        named.update(dict.fromkeys(topic.name for topic in each.repartition_source_topics))
        named.update(dict.fromkeys(topic.name for topic in each.state_changelog_topics))
    return tuple(named)


def _internal_topic_names(request: StreamsGroupHeartbeatRequest) -> Violation:
    return _topics_if_any([topic for topic in named_topics(request) if topic in INTERNAL_TOPICS])


def _invalid_topic_names(request: StreamsGroupHeartbeatRequest) -> Violation:
    return _topics_if_any([topic for topic in named_topics(request) if not _VALID_NAME.fullmatch(topic)])


def _duplicate_subtopology(request: StreamsGroupHeartbeatRequest) -> Violation:
    found = _first_duplicate(each.subtopology_id for each in _subtopologies(request))
    return None if found is None else {"subtopology": found}


def _without_source(request: StreamsGroupHeartbeatRequest) -> Violation:
    for each in _subtopologies(request):
        if not (each.source_topics or each.source_topic_regex or each.repartition_source_topics):
            return {"subtopology": each.subtopology_id}
    return None


def _duplicate_topic(request: StreamsGroupHeartbeatRequest) -> Violation:
    for each in _subtopologies(request):
        for topics in (each.repartition_source_topics, each.state_changelog_topics):
            found = _first_duplicate(topic.name for topic in topics)
            if found is not None:
                return {"topic": found, "subtopology": each.subtopology_id}
    return None


def _duplicate_config(request: StreamsGroupHeartbeatRequest) -> Violation:
    for topic in _internal_topics(request):
        found = _first_duplicate(row.key for row in topic.topic_configs)
        if found is not None:
            return {"config": found, "topic": topic.name}
    return None


def _first_duplicate(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _out_of_bounds(request: StreamsGroupHeartbeatRequest) -> Violation:
    for topic in _internal_topics(request):
        if topic.partitions < 0 or topic.replication_factor < -1:
            return {
                "topic": topic.name,
                "partitions": topic.partitions,
                "replication_factor": topic.replication_factor,
            }
    return None


def _internal_topics(request: StreamsGroupHeartbeatRequest) -> Iterable[wire.TopicInfo]:
    for each in _subtopologies(request):
        yield from each.repartition_source_topics
        yield from each.state_changelog_topics


def _index_out_of_range(request: StreamsGroupHeartbeatRequest) -> Violation:
    for each in _subtopologies(request):
        for group in each.copartition_groups:
            for indexes, count in (
                (group.source_topics, len(each.source_topics)),
                (group.source_topic_regex, len(each.source_topic_regex)),
                (group.repartition_source_topics, len(each.repartition_source_topics)),
            ):
                for index in indexes:
                    if not 0 <= index < count:
                        return {"index": index, "subtopology": each.subtopology_id}
    return None


def _conflicting_repartition_topic(request: StreamsGroupHeartbeatRequest) -> Violation:
    subtopologies = _subtopologies(request)
    other_topics = {topic for each in subtopologies for topic in each.source_topics}
    other_topics |= {topic.name for each in subtopologies for topic in each.state_changelog_topics}
    return _first_conflict(
        other_topics, (topic.name for each in subtopologies for topic in each.repartition_source_topics)
    )


def _conflicting_changelog_topic(request: StreamsGroupHeartbeatRequest) -> Violation:
    subtopologies = _subtopologies(request)
    other_topics = {
        topic for each in subtopologies for topic in (*each.source_topics, *each.repartition_sink_topics)
    }
    other_topics |= {topic.name for each in subtopologies for topic in each.repartition_source_topics}
    return _first_conflict(
        other_topics, (topic.name for each in subtopologies for topic in each.state_changelog_topics)
    )


def _first_conflict(other_topics: set[str], topics: Iterable[str]) -> Violation:
    found = next((topic for topic in topics if topic in other_topics), None)
    return None if found is None else {"topic": found}


def _unwritten_repartition_topic(request: StreamsGroupHeartbeatRequest) -> Violation:
    writers: dict[str, set[str]] = {}
    for each in _subtopologies(request):
        for topic in each.repartition_sink_topics:
            writers.setdefault(topic, set()).add(each.subtopology_id)
    for each in _subtopologies(request):
        for source in each.repartition_source_topics:
            if not writers.get(source.name, set()) - {each.subtopology_id}:
                return {"topic": source.name, "subtopology": each.subtopology_id}
    return None


def _cyclic_subtopologies(request: StreamsGroupHeartbeatRequest) -> Violation:
    """Return the subtopologies that form cycles by their repartition topics; none if there is no cycle."""
    subtopologies = _subtopologies(request)
    readers: dict[str, list[int]] = {}
    for index, each in enumerate(subtopologies):
        for topic in each.repartition_source_topics:
            readers.setdefault(topic.name, []).append(index)
    pending_writers = [0] * len(subtopologies)
    for each in subtopologies:
        for sink in each.repartition_sink_topics:
            for reader in readers.get(sink, ()):
                pending_writers[reader] += 1
    processable = [index for index, count in enumerate(pending_writers) if not count]
    for index in processable:
        for sink in subtopologies[index].repartition_sink_topics:
            for reader in readers.get(sink, ()):
                pending_writers[reader] -= 1
                if not pending_writers[reader]:
                    processable.append(reader)
    if len(processable) == len(subtopologies):
        return None
    waiting = {subtopologies[index].subtopology_id for index, count in enumerate(pending_writers) if count}
    return {"subtopologies": ", ".join(sorted(waiting))}


# --- the rules -------------------------------------------------------------------------------------

_REQUEST = Errors.INVALID_REQUEST
_TOPOLOGY = Errors.STREAMS_INVALID_TOPOLOGY

NAMES = (
    Rule("no-internal-topics", KAFKA, _TOPOLOGY,
         "Use of Kafka internal topics {topics} in a Kafka Streams topology is prohibited.",
         _internal_topic_names),
    Rule("valid-topic-names", KAFKA, _TOPOLOGY, "Topic names {topics} are not valid topic names.",
         _invalid_topic_names),
)  # fmt: skip
"""Rules of a topology that are checked before its topics are authorised."""

NO_EXPRESSIONS = (
    Rule("no-expressions", KAFKA, _REQUEST, "Regular expressions for source topics are not supported yet.",
         lambda r: _when(any(each.source_topic_regex for each in _subtopologies(r)))),
)  # fmt: skip
"""Rules against features of KIP-1071 that Kafka does not support yet."""

ALWAYS = (
    Rule("member-id", KAFKA, _REQUEST, "MemberId can't be empty.", lambda r: _when(_is_blank(r.member_id))),
    Rule("group-id", KAFKA, _REQUEST, "GroupId can't be empty.", lambda r: _when(_is_blank(r.group_id))),
    Rule("instance-id", KAFKA, _REQUEST, "InstanceId can't be empty.",
         lambda r: _when(_is_blank(r.instance_id))),
    Rule("rack-id", KAFKA, _REQUEST, "RackId can't be empty.", lambda r: _when(_is_blank(r.rack_id))),
)  # fmt: skip

JOINING = (
    Rule("rebalance-timeout", KAFKA, _REQUEST, "RebalanceTimeoutMs must be provided in first request.",
         lambda r: _when(r.rebalance_timeout_ms == -1)),
    Rule("no-active-tasks", KAFKA, _REQUEST, "ActiveTasks must be empty when (re-)joining.",
         lambda r: _when(r.active_tasks is None or bool(r.active_tasks))),
    Rule("no-standby-tasks", KAFKA, _REQUEST, "StandbyTasks must be empty when (re-)joining.",
         lambda r: _when(r.standby_tasks is None or bool(r.standby_tasks))),
    Rule("no-warmup-tasks", KAFKA, _REQUEST, "WarmupTasks must be empty when (re-)joining.",
         lambda r: _when(r.warmup_tasks is None or bool(r.warmup_tasks))),
    Rule("topology-on-join", KAFKA, _REQUEST, "Topology must be non-null when (re-)joining.",
         lambda r: _when(r.topology is None)),
    Rule("changelog-without-count", KAFKA, _TOPOLOGY,
         "Changelog topic {topic} must have an undefined partition count, but it is set to {partitions}.",
         _changelog_with_count),
    Rule("rebalance-timeout-positive", KIP, _REQUEST, "RebalanceTimeoutMs must be larger than zero.",
         lambda r: _when(r.rebalance_timeout_ms <= 0)),
    Rule("topology-epoch", KIP, _TOPOLOGY, "Topology epoch must be non-negative.",
         lambda r: _when(r.topology is not None and r.topology.epoch < 0)),
    Rule("topology-not-empty", KIP, _TOPOLOGY, "Topology must have a subtopology.",
         lambda r: _when(not _subtopologies(r))),
    Rule("subtopology-once", KIP, _TOPOLOGY, "Subtopology {subtopology} is listed more than once.",
         _duplicate_subtopology),
    Rule("subtopology-reads", KIP, _TOPOLOGY, "No source topics found for subtopology {subtopology}",
         _without_source),
    Rule("topic-once", KIP, _TOPOLOGY, "Topic {topic} is listed more than once in subtopology {subtopology}.",
         _duplicate_topic),
    Rule("config-once", KIP, _TOPOLOGY, "Config {config} of topic {topic} is listed more than once.",
         _duplicate_config),
    Rule("bounds", KIP, _TOPOLOGY,
         "Topic {topic} cannot have {partitions} partitions and replication factor {replication_factor}.",
         _out_of_bounds),
    Rule("repartition-name", KIP, _TOPOLOGY,
         "Repartition topic {topic} must not be a source topic or a changelog topic as well.",
         _conflicting_repartition_topic),
    Rule("changelog-name", KIP, _TOPOLOGY,
         "Changelog topic {topic} must not be a source topic or a repartition topic as well.",
         _conflicting_changelog_topic),
    Rule("repartition-fed", KIP, _TOPOLOGY,
         "Repartition source topic {topic} of subtopology {subtopology} is not a repartition sink topic of "
         "another subtopology.", _unwritten_repartition_topic),
    Rule("copartition-index", KIP, _TOPOLOGY,
         "Index {index} in the copartition groups of subtopology {subtopology} is out of range.",
         _index_out_of_range),
    Rule("no-cycle", KIP, _TOPOLOGY,
         "Subtopologies wait for each other's repartition topics: {subtopologies}.",
         _cyclic_subtopologies),
)  # fmt: skip
"""Rules of requests that join (epoch 0)."""

LEAVING = (
    Rule("instance-on-static-leave", KAFKA, _REQUEST, "InstanceId can't be null.",
         lambda r: _when(r.member_epoch == LEAVE_STATIC and r.instance_id is None)),
    Rule("member-epoch", KAFKA, _REQUEST,
         "MemberEpoch is {epoch}, but must be greater than or equal to -2.",
         lambda r: {"epoch": r.member_epoch} if r.member_epoch < LEAVE_STATIC else None),
)  # fmt: skip
"""Rules of requests with a negative epoch."""

OWNED = (
    Rule("all-task-types", KAFKA, _REQUEST, "If one task-type is non-null, all must be non-null.",
         lambda r: _when(_has_some_null_roles(r))),
)  # fmt: skip

NOT_JOINING = (
    Rule("no-topology", KAFKA, _REQUEST, "Topology can only be provided when (re-)joining.",
         lambda r: _when(r.topology is not None)),
    Rule("tasks-once", KIP, _REQUEST,
         "Task {partition} of subtopology {subtopology} is listed more than once in ActiveTasks, "
         "StandbyTasks and WarmupTasks.", _duplicate_task),
)  # fmt: skip

RULES = NAMES + NO_EXPRESSIONS + ALWAYS + JOINING + LEAVING + OWNED + NOT_JOINING
"""All rules that depend on the request only."""


def _rules_by_mode(*groups: tuple[Rule, ...]) -> dict[str, tuple[Rule, ...]]:
    """Return the rules of each mode, in the order in which they are to be checked."""
    rules = tuple(rule for group in groups for rule in group)
    kafka_rules = tuple(rule for rule in rules if rule.by == KAFKA)
    kept = tuple(rule for rule in kafka_rules if rule not in NO_EXPRESSIONS)
    return {KAFKA: kafka_rules, KIP: kept + tuple(rule for rule in rules if rule.by == KIP)}


_JOIN_RULES = _rules_by_mode(NAMES, NO_EXPRESSIONS, ALWAYS, JOINING, OWNED)
_STAY_RULES = _rules_by_mode(ALWAYS, OWNED, NOT_JOINING)
_LEAVE_RULES = _rules_by_mode(ALWAYS, LEAVING, OWNED, NOT_JOINING)
_UNEXPECTED_TOPOLOGY_RULES = _rules_by_mode(NAMES, NO_EXPRESSIONS, ALWAYS, LEAVING, OWNED, NOT_JOINING)


def check_names(request: StreamsGroupHeartbeatRequest) -> None:
    """Validate the topic names of a request's topology. Raises `GroupError`."""
    if request.topology is not None:
        for rule in NAMES:
            rule.check(request)


def check_request(request: StreamsGroupHeartbeatRequest, mode: str) -> None:
    """Validate everything that does not depend on the group, including topic names. Raises `GroupError`."""
    if request.member_epoch == JOIN:
        rules = _JOIN_RULES
    elif request.topology is not None:
        rules = _UNEXPECTED_TOPOLOGY_RULES
    else:
        rules = _STAY_RULES if request.member_epoch > JOIN else _LEAVE_RULES
    for rule in rules[mode]:
        rule.check(request)


# --- checks against the group -------------------------------------------------------------------------


def topology_after(current: Topology | None, sent: wire.Topology, mode: str) -> Topology:
    """Return the group's topology after a member joined with the topology `sent`; `current` if it stays.

    Mode `kafka`: the group's topology stays; a topology of an older epoch is accepted (the member gets status
    STALE_TOPOLOGY), any other difference is rejected. Mode `kip`, by the epoch that was sent:

        the group's     the topologies must be equal, else STREAMS_INVALID_TOPOLOGY_EPOCH
        the next one    replaces the group's topology, even if only the epoch differs
        a later one     STREAMS_INVALID_TOPOLOGY_EPOCH
        an older one    STREAMS_TOPOLOGY_FENCED, even while the group is empty

    Raises `GroupError`."""
    validate_request(sent)
    if current is None:
        return Topology.from_request(sent)
    if current.equals_request(sent) or (mode == KAFKA and sent.epoch < current.epoch):
        return current
    if mode == KAFKA:
        raise GroupError(Errors.INVALID_REQUEST, "Topology updates are not supported yet.")
    if sent.epoch == current.epoch + 1:
        return Topology.from_request(sent)
    raise _topology_rejection(current.epoch, sent.epoch)


def _topology_rejection(known: int, sent: int) -> GroupError:
    """Return the error for a topology that neither equals the group's nor has the next epoch.

    `known`, `sent`: the epochs of the group's topology and of the other one.
    """
    if sent < known:
        return GroupError(
            Errors.STREAMS_TOPOLOGY_FENCED,
            f"Topology epoch {sent} is behind the group's topology epoch {known}. To go back to an earlier "
            f"topology, bring it with topology epoch {known + 1}.",
        )
    if sent > known:
        return GroupError(
            Errors.STREAMS_INVALID_TOPOLOGY_EPOCH,
            f"Topology epoch {sent} is too far ahead: the group's is {known}, and the next topology has to "
            f"come with {known + 1}.",
        )
    return GroupError(
        Errors.STREAMS_INVALID_TOPOLOGY_EPOCH,
        f"The topology differs from the group's at the same topology epoch {known}. To replace it, bring it "
        f"with topology epoch {known + 1}.",
    )


def check_tasks(
    request: StreamsGroupHeartbeatRequest, topology: Topology, configured: ConfiguredTopology, mode: str
) -> None:
    """Check that the tasks in a member's list of owned tasks exist. Raises INVALID_REQUEST.

    Mode `kafka`: only if the topology is ready. Mode `kip`: ids always, partitions if they are known."""
    if mode == KAFKA and not configured.is_ready:
        return
    for owned in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
        for each in owned or ():
            _check_task(each, topology, configured)


def _check_task(owned: TaskIds, topology: Topology, configured: ConfiguredTopology) -> None:
    name = owned.subtopology_id
    if name not in topology.subtopologies:
        raise GroupError(Errors.INVALID_REQUEST, f"Subtopology {name} does not exist in the topology.")
    count = configured.tasks.get(name)
    if count is None or topology.subtopologies[name].source_topic_regex:
        return  # The largest matching topic may have been deleted, which the member does not know yet.
    for partition in owned.partitions:
        if not 0 <= partition < count:
            raise GroupError(
                Errors.INVALID_REQUEST,
                f"Task {partition} for subtopology {name} is invalid. "
                f"Number of tasks for this subtopology: {count}",
            )


def check_offsets(request: StreamsGroupHeartbeatRequest) -> None:
    """Check that each task has at most one offset and one end offset. Raises INVALID_REQUEST."""
    for offsets in (request.task_offsets, request.task_end_offsets):
        seen = set()
        for each in offsets or ():
            task = (each.subtopology_id, each.partition)
            if task in seen:
                raise GroupError(
                    Errors.INVALID_REQUEST,
                    f"Task offsets contain a duplicate entry for subtopology {each.subtopology_id} and "
                    f"partition {each.partition}.",
                )
            seen.add(task)
