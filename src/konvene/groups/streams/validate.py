"""What a StreamsGroupHeartbeat may not say: each rule a row, with who checks it, its code and its words.

    function           when                                                needs
    check_names        before the topics are authorised                    the request
    check_request      before the group is looked at                       the request
    topology_after     when a topology was sent                            the group's topology
    check_tasks        when the group's topology has been configured       how many tasks there are
    check_offsets      when the member's offsets are taken                 the request

Rows by `kafka` are what Apache Kafka 4.4 checks, in its order, with its code and its sentence. Rows by `kip`
are rules of KIP-1071 (its two lists, what it says in the schema, and what follows) that Kafka does not check;
they hold with `konvene.streams.mode` = `kip` alone, and after Kafka's, so a request that Kafka refuses is
refused alike in both modes. The KIP's other rules are among Kafka's: an empty member id, which the KIP allows
to who joins, is refused in both modes. Expressions for source topics, which Kafka cannot do yet, are refused
with `kafka` alone.

Some of these rules Kafka finds out about later, when it configures the topology: see `configure`.

An application that keeps the state of a table in its source topic (`topology.optimization`) says the name of
the topic as source and as changelog. Kafka takes it; the KIP forbids it, so with `kip` it is refused.
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

Found = dict[str, object] | None
"""What the sentence has to be filled with; None if the rule is obeyed."""
NOTHING_TO_SAY: dict[str, object] = {}


class Rule(NamedTuple):
    """One thing that may not be."""

    id: str
    by: str
    error: Errors
    sentence: str
    breach: Callable[[StreamsGroupHeartbeatRequest], Found]

    def check(self, request: StreamsGroupHeartbeatRequest) -> None:
        found = self.breach(request)
        if found is not None:
            raise GroupError(self.error, self.sentence.format(**found))


# --- breaches of a request's own fields ------------------------------------------------------------


def _when(broken: bool) -> Found:
    return NOTHING_TO_SAY if broken else None


def _blank(text: str | None) -> bool:
    """As Java trims: everything up to the space, and no other white space."""
    return text is not None and not text.strip(_JAVA_SPACE)


def _listed(topics: list[str]) -> Found:
    return {"topics": ",".join(topics)} if topics else None


def _some_null(request: StreamsGroupHeartbeatRequest) -> bool:
    given = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    return any(tasks is None for tasks in given) and any(tasks is not None for tasks in given)


def _counted_changelog(request: StreamsGroupHeartbeatRequest) -> Found:
    for each in _subtopologies(request):
        for topic in each.state_changelog_topics:
            if topic.partitions:
                return {"topic": topic.name, "partitions": topic.partitions}
    return None


def _task_twice(request: StreamsGroupHeartbeatRequest) -> Found:
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


# --- breaches of the topology ----------------------------------------------------------------------


def named_topics(request: StreamsGroupHeartbeatRequest) -> tuple[str, ...]:
    """All topics that the topology names, each once: the ones to be authorised."""
    named = {}
    for each in _subtopologies(request):
        named.update(dict.fromkeys(each.source_topics))
        named.update(dict.fromkeys(each.repartition_sink_topics))
        named.update(dict.fromkeys(topic.name for topic in each.repartition_source_topics))
        named.update(dict.fromkeys(topic.name for topic in each.state_changelog_topics))
    return tuple(named)


def _internal_names(request: StreamsGroupHeartbeatRequest) -> Found:
    return _listed([topic for topic in named_topics(request) if topic in INTERNAL_TOPICS])


def _invalid_names(request: StreamsGroupHeartbeatRequest) -> Found:
    return _listed([topic for topic in named_topics(request) if not _VALID_NAME.fullmatch(topic)])


def _id_twice(request: StreamsGroupHeartbeatRequest) -> Found:
    found = _twice(each.subtopology_id for each in _subtopologies(request))
    return None if found is None else {"subtopology": found}


def _without_source(request: StreamsGroupHeartbeatRequest) -> Found:
    for each in _subtopologies(request):
        if not (each.source_topics or each.source_topic_regex or each.repartition_source_topics):
            return {"subtopology": each.subtopology_id}
    return None


def _topic_twice(request: StreamsGroupHeartbeatRequest) -> Found:
    for each in _subtopologies(request):
        for topics in (each.repartition_source_topics, each.state_changelog_topics):
            found = _twice(topic.name for topic in topics)
            if found is not None:
                return {"topic": found, "subtopology": each.subtopology_id}
    return None


def _config_twice(request: StreamsGroupHeartbeatRequest) -> Found:
    for topic in _internal_topics(request):
        found = _twice(row.key for row in topic.topic_configs)
        if found is not None:
            return {"config": found, "topic": topic.name}
    return None


def _twice(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _out_of_bounds(request: StreamsGroupHeartbeatRequest) -> Found:
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


def _index_out_of_range(request: StreamsGroupHeartbeatRequest) -> Found:
    for each in _subtopologies(request):
        for group in each.copartition_groups:
            for indexes, listed in (
                (group.source_topics, len(each.source_topics)),
                (group.source_topic_regex, len(each.source_topic_regex)),
                (group.repartition_source_topics, len(each.repartition_source_topics)),
            ):
                for index in indexes:
                    if not 0 <= index < listed:
                        return {"index": index, "subtopology": each.subtopology_id}
    return None


def _repartition_elsewhere(request: StreamsGroupHeartbeatRequest) -> Found:
    every = _subtopologies(request)
    taken = {topic for each in every for topic in each.source_topics}
    taken |= {topic.name for each in every for topic in each.state_changelog_topics}
    return _first(taken, (topic.name for each in every for topic in each.repartition_source_topics))


def _changelog_elsewhere(request: StreamsGroupHeartbeatRequest) -> Found:
    every = _subtopologies(request)
    taken = {topic for each in every for topic in (*each.source_topics, *each.repartition_sink_topics)}
    taken |= {topic.name for each in every for topic in each.repartition_source_topics}
    return _first(taken, (topic.name for each in every for topic in each.state_changelog_topics))


def _first(taken: set[str], topics: Iterable[str]) -> Found:
    found = next((topic for topic in topics if topic in taken), None)
    return None if found is None else {"topic": found}


def _never_written(request: StreamsGroupHeartbeatRequest) -> Found:
    writers: dict[str, set[str]] = {}
    for each in _subtopologies(request):
        for topic in each.repartition_sink_topics:
            writers.setdefault(topic, set()).add(each.subtopology_id)
    for each in _subtopologies(request):
        for source in each.repartition_source_topics:
            if not writers.get(source.name, set()) - {each.subtopology_id}:
                return {"topic": source.name, "subtopology": each.subtopology_id}
    return None


def _in_a_cycle(request: StreamsGroupHeartbeatRequest) -> Found:
    """Take away whoever reads nothing that others have yet to write, until nobody is left."""
    every = _subtopologies(request)
    readers: dict[str, list[int]] = {}
    for at, each in enumerate(every):
        for topic in each.repartition_source_topics:
            readers.setdefault(topic.name, []).append(at)
    waits_for = [0] * len(every)
    for each in every:
        for sink in each.repartition_sink_topics:
            for reader in readers.get(sink, ()):
                waits_for[reader] += 1
    free = [at for at, count in enumerate(waits_for) if not count]
    for at in free:
        for sink in every[at].repartition_sink_topics:
            for reader in readers.get(sink, ()):
                waits_for[reader] -= 1
                if not waits_for[reader]:
                    free.append(reader)
    if len(free) == len(every):
        return None
    stuck = {every[at].subtopology_id for at, count in enumerate(waits_for) if count}
    return {"subtopologies": ", ".join(sorted(stuck))}


# --- the rules -------------------------------------------------------------------------------------

_R = Errors.INVALID_REQUEST
_T = Errors.STREAMS_INVALID_TOPOLOGY

NAMES = (
    Rule("no-internal-topics", KAFKA, _T,
         "Use of Kafka internal topics {topics} in a Kafka Streams topology is prohibited.", _internal_names),
    Rule("valid-topic-names", KAFKA, _T, "Topic names {topics} are not valid topic names.", _invalid_names),
)  # fmt: skip
"""What is checked of a topology before its topics are authorised."""

NO_EXPRESSIONS = (
    Rule("no-expressions", KAFKA, _R, "Regular expressions for source topics are not supported yet.",
         lambda r: _when(any(each.source_topic_regex for each in _subtopologies(r)))),
)  # fmt: skip
"""What Kafka cannot do yet, and KIP-1071 promises."""

ALWAYS = (
    Rule("member-id", KAFKA, _R, "MemberId can't be empty.", lambda r: _when(_blank(r.member_id))),
    Rule("group-id", KAFKA, _R, "GroupId can't be empty.", lambda r: _when(_blank(r.group_id))),
    Rule("instance-id", KAFKA, _R, "InstanceId can't be empty.", lambda r: _when(_blank(r.instance_id))),
    Rule("rack-id", KAFKA, _R, "RackId can't be empty.", lambda r: _when(_blank(r.rack_id))),
)  # fmt: skip

JOINING = (
    Rule("rebalance-timeout", KAFKA, _R, "RebalanceTimeoutMs must be provided in first request.",
         lambda r: _when(r.rebalance_timeout_ms == -1)),
    Rule("no-active-tasks", KAFKA, _R, "ActiveTasks must be empty when (re-)joining.",
         lambda r: _when(r.active_tasks is None or bool(r.active_tasks))),
    Rule("no-standby-tasks", KAFKA, _R, "StandbyTasks must be empty when (re-)joining.",
         lambda r: _when(r.standby_tasks is None or bool(r.standby_tasks))),
    Rule("no-warmup-tasks", KAFKA, _R, "WarmupTasks must be empty when (re-)joining.",
         lambda r: _when(r.warmup_tasks is None or bool(r.warmup_tasks))),
    Rule("topology-on-join", KAFKA, _R, "Topology must be non-null when (re-)joining.",
         lambda r: _when(r.topology is None)),
    Rule("changelog-without-count", KAFKA, _T,
         "Changelog topic {topic} must have an undefined partition count, but it is set to {partitions}.",
         _counted_changelog),
    Rule("rebalance-timeout-positive", KIP, _R, "RebalanceTimeoutMs must be larger than zero.",
         lambda r: _when(r.rebalance_timeout_ms <= 0)),
    Rule("topology-epoch", KIP, _T, "Topology epoch must be non-negative.",
         lambda r: _when(r.topology is not None and r.topology.epoch < 0)),
    Rule("topology-not-empty", KIP, _T, "Topology must have a subtopology.",
         lambda r: _when(not _subtopologies(r))),
    Rule("subtopology-once", KIP, _T, "Subtopology {subtopology} is listed more than once.", _id_twice),
    Rule("subtopology-reads", KIP, _T, "No source topics found for subtopology {subtopology}",
         _without_source),
    Rule("topic-once", KIP, _T, "Topic {topic} is listed more than once in subtopology {subtopology}.",
         _topic_twice),
    Rule("config-once", KIP, _T, "Config {config} of topic {topic} is listed more than once.", _config_twice),
    Rule("bounds", KIP, _T,
         "Topic {topic} cannot have {partitions} partitions and replication factor {replication_factor}.",
         _out_of_bounds),
    Rule("repartition-name", KIP, _T,
         "Repartition topic {topic} must not be a source topic or a changelog topic as well.",
         _repartition_elsewhere),
    Rule("changelog-name", KIP, _T,
         "Changelog topic {topic} must not be a source topic or a repartition topic as well.",
         _changelog_elsewhere),
    Rule("repartition-fed", KIP, _T,
         "Repartition source topic {topic} of subtopology {subtopology} is not a repartition sink topic of "
         "another subtopology.", _never_written),
    Rule("copartition-index", KIP, _T,
         "Index {index} in the copartition groups of subtopology {subtopology} is out of range.",
         _index_out_of_range),
    Rule("no-cycle", KIP, _T, "Subtopologies wait for each other's repartition topics: {subtopologies}.",
         _in_a_cycle),
)  # fmt: skip
"""What is checked of who joins: epoch 0."""

LEAVING = (
    Rule("instance-on-static-leave", KAFKA, _R, "InstanceId can't be null.",
         lambda r: _when(r.member_epoch == LEAVE_STATIC and r.instance_id is None)),
    Rule("member-epoch", KAFKA, _R,
         "MemberEpoch is {epoch}, but must be greater than or equal to -2.",
         lambda r: {"epoch": r.member_epoch} if r.member_epoch < LEAVE_STATIC else None),
)  # fmt: skip
"""What is checked of negative epochs."""

OWNED = (
    Rule("all-task-types", KAFKA, _R, "If one task-type is non-null, all must be non-null.",
         lambda r: _when(_some_null(r))),
)  # fmt: skip

NOT_JOINING = (
    Rule("no-topology", KAFKA, _R, "Topology can only be provided when (re-)joining.",
         lambda r: _when(r.topology is not None)),
    Rule("tasks-once", KIP, _R,
         "Task {partition} of subtopology {subtopology} is listed more than once in ActiveTasks, "
         "StandbyTasks and WarmupTasks.", _task_twice),
)  # fmt: skip

RULES = NAMES + NO_EXPRESSIONS + ALWAYS + JOINING + LEAVING + OWNED + NOT_JOINING
"""All rules that a request is held against by itself."""


def _kafkas_first(*groups: tuple[Rule, ...]) -> dict[str, tuple[Rule, ...]]:
    """The rules of a mode in the order in which they are checked."""
    rules = tuple(rule for group in groups for rule in group)
    kafkas = tuple(rule for rule in rules if rule.by == KAFKA)
    kept = tuple(rule for rule in kafkas if rule not in NO_EXPRESSIONS)
    return {KAFKA: kafkas, KIP: kept + tuple(rule for rule in rules if rule.by == KIP)}


_OF_JOIN = _kafkas_first(NAMES, NO_EXPRESSIONS, ALWAYS, JOINING, OWNED)
_OF_STAY = _kafkas_first(ALWAYS, OWNED, NOT_JOINING)
_OF_LEAVE = _kafkas_first(ALWAYS, LEAVING, OWNED, NOT_JOINING)
_OF_MISPLACED = _kafkas_first(NAMES, NO_EXPRESSIONS, ALWAYS, LEAVING, OWNED, NOT_JOINING)


def check_names(request: StreamsGroupHeartbeatRequest) -> None:
    """The topics that are named, before anybody asks whether the client may see them."""
    if request.topology is not None:
        for rule in NAMES:
            rule.check(request)


def check_request(request: StreamsGroupHeartbeatRequest, mode: str) -> None:
    """What is wrong with a request, whatever the group is. Includes `check_names`."""
    if request.member_epoch == JOIN:
        rules = _OF_JOIN
    elif request.topology is not None:
        rules = _OF_MISPLACED
    else:
        rules = _OF_STAY if request.member_epoch > JOIN else _OF_LEAVE
    for rule in rules[mode]:
        rule.check(request)


# --- held against the group ------------------------------------------------------------------------


def topology_after(current: Topology | None, sent: wire.Topology, mode: str) -> Topology:
    """The topology that the group has once a member has joined with this one. `current` itself if it stays.

    mode kafka: the first one stays; an older epoch is taken (the member is told STALE_TOPOLOGY), anything
    else that differs is refused. mode kip, by the epoch that is sent:

        the group's       has to be the same topology, else STREAMS_INVALID_TOPOLOGY_EPOCH
        the next one      replaces the group's, also where it is equal but for its epoch
        one further on    STREAMS_INVALID_TOPOLOGY_EPOCH
        an older one      STREAMS_TOPOLOGY_FENCED, also while the group is empty"""
    validate_request(sent)
    if current is None:
        return Topology.from_request(sent)
    if current.equals_request(sent) or (mode == KAFKA and sent.epoch < current.epoch):
        return current
    if mode == KAFKA:
        raise GroupError(Errors.INVALID_REQUEST, "Topology updates are not supported yet.")
    if sent.epoch == current.epoch + 1:
        return Topology.from_request(sent)
    raise _refused(current.epoch, sent.epoch)


def _refused(known: int, sent: int) -> GroupError:
    """Why a topology is neither the group's nor its next one, and what there is to do."""
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
    """The tasks that a member says it owns exist.

    mode kafka: only once the group is ready. mode kip: ids always, partitions once they are known."""
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
        return  # The largest topic that an expression matched may have gone, and a member not know it yet.
    for partition in owned.partitions:
        if not 0 <= partition < count:
            raise GroupError(
                Errors.INVALID_REQUEST,
                f"Task {partition} for subtopology {name} is invalid. "
                f"Number of tasks for this subtopology: {count}",
            )


def check_offsets(request: StreamsGroupHeartbeatRequest) -> None:
    """A task's offset is told once, and so is its end offset."""
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
