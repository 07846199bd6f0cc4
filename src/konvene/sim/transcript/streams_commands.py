"""Commands of scenarios about streams groups: heartbeats, descriptions, and creation of internal topics.

A topology is written as its subtopologies, separated by `|`:

    0:orders+audit>words|1:<words!counts

Subtopology `0` reads two source topics and writes the repartition topic `words`; `1` reads it, and has a
state store with the changelog `counts`. `<words/4` sets the number of partitions, and `&` at the end means
that all topics that are read are joined, so must be copartitioned. `~pay.*` is a regular expression for
source topics. Tasks are written as partitions are, by subtopology id: `0:0-2,1:5`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from konvene.codec.uuid import Uuid
from konvene.groups.assignors.tasks.contract import (
    NO_TASKS,
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    TaskAssignor,
    Tasks,
    TopologyDescriber,
    checked,
)
from konvene.groups.streams.classic.changelog_ends import LOOK_UP_ENDS, EndsFound, EndsToLookUp
from konvene.groups.streams.topology.internal_topics import CREATE_TOPICS, TopicsNotCreated, TopicsToCreate
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
from konvene.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from konvene.shard.image import Topic, Topics
from konvene.sim.transcript.consumer_commands import modern_member_id
from konvene.sim.transcript.vocabulary import (
    EPOCHS,
    LAST_ASSIGNED,
    NONE,
    OMITTED,
    Client,
    Options,
    ScenarioError,
    instance,
    number,
    partitions,
    ranges,
)

if TYPE_CHECKING:
    from konvene.sim.transcript.scenario import Scenario

TopicId = Callable[[str], Uuid]
"""Returns the id of a new topic from its name."""

ROLES = ("active", "standby", "warmup")

DEFAULT_TOPOLOGY = "0:orders"
"""Default topology of a joining member: it reads the six partitions of `orders`, without state."""


def streams_heartbeat(s: Scenario, plain: list[str], o: Options) -> None:
    """`streams-heartbeat CLIENT [join|stay|leave|away]`: send a heartbeat with the member epoch for this
    word: 0, the current one (also without a word), -1, or -2 for a static member that leaves temporarily."""
    client, action = s.client(plain[0]), plain[1] if len(plain) > 1 else "stay"
    if action not in EPOCHS:
        raise ScenarioError(f"expected one of {', '.join(EPOCHS)}, not {action!r}", "")
    client.group = o.get("group", client.group)
    client.instance, client.assigned = instance(client, o), True
    joins, epoch = action == "join", EPOCHS[action]
    topology_text = o.get("topology", DEFAULT_TOPOLOGY if joins else OMITTED)
    owned = [_owned(client, role, o, joins) for role in ROLES]
    request = StreamsGroupHeartbeatRequest(
        group_id=client.group,
        member_id=modern_member_id(s, client, o),
        member_epoch=number(o, "epoch", client.generation if epoch is None else epoch),
        endpoint_information_epoch=number(o, "endpoint-epoch", client.endpoint_epoch),
        instance_id=client.instance,
        rack_id=unquote(o["rack"]) if "rack" in o else None,
        rebalance_timeout_ms=number(o, "rebalance", 30_000 if joins else -1),
        topology=None
        if topology_text == OMITTED
        else topology_of(topology_text, number(o, "topology-epoch", 0)),
        active_tasks=owned[0],
        standby_tasks=owned[1],
        warmup_tasks=owned[2],
        process_id=unquote(o["process"]) if "process" in o else (client.name if joins else None),
        user_endpoint=_endpoint(o),
        client_tags=_tags(o),
        task_offsets=_offsets(o.get("offsets")),
        task_end_offsets=_offsets(o.get("ends")),
        shutdown_application=o.get("shutdown", "no") == "yes",
    )
    s.ask(client.name, request, o, 1)


def _owned(client: Client, role: str, o: Options, joins: bool) -> tuple[TaskIds, ...] | None:
    text = o.get(role, o.get("owns", NONE if joins else OMITTED))
    if text == OMITTED:
        return None
    if text == LAST_ASSIGNED:
        return task_ids(client.tasks.get(role, {}))
    return () if text == NONE else task_ids(dict(ranges(text)))


def task_ids(tasks: Tasks) -> tuple[TaskIds, ...]:
    """Return tasks, given as partitions by subtopology id, in the form of a heartbeat request."""
    return tuple(TaskIds(subtopology_id=name, partitions=tuple(indexes)) for name, indexes in tasks.items())


def _endpoint(o: Options) -> Endpoint | None:
    if "endpoint" not in o:
        return None
    host, _, port = o["endpoint"].rpartition(":")
    return Endpoint(host=host, port=number({"a port": port}, "a port", 0))


def _tags(o: Options) -> tuple[KeyValue, ...] | None:
    if "tags" not in o:
        return None
    pairs = (tag.partition(":") for tag in o["tags"].split(",") if tag != NONE)
    return tuple(KeyValue(key=key, value=value) for key, _, value in pairs)


def _offsets(text: str | None) -> tuple[TaskOffset, ...] | None:
    """Parse `0-3:17,...`: the offset of subtopology 0, partition 3, is 17. Without `text` return None, for
    `-` ()."""
    if text is None:
        return None
    found = [] if text == NONE else partitions(text)
    return tuple(
        TaskOffset(subtopology_id=name, partition=p, offset=number({"an offset": offset}, "an offset", 0))
        for name, p, offset in found
    )


# --- topologies ------------------------------------------------------------------------------------

_PART = re.compile(r"([+~><!]?)([^+~><!&/]+)(?:/(\d+))?")


def topology_of(text: str, epoch: int = 0) -> Topology:
    """Parse a topology in the syntax of the module's docstring. Raises ScenarioError."""
    return Topology(epoch=epoch, subtopologies=tuple(map(_subtopology, text.split("|"))))


def _subtopology(text: str) -> Subtopology:
    name, colon, topics = text.partition(":")
    if not colon:
        raise ScenarioError(f"expected ID:TOPIC..., not {text!r}", "")
    joined = topics.endswith("&")
    parts = _PART.findall(topics)
    reads = tuple(topic for sign, topic, _ in parts if sign in ("", "+"))
    regexes = tuple(expression for sign, expression, _ in parts if sign == "~")
    inner = _infos(parts, "<")
    group = CopartitionGroup(
        source_topics=tuple(range(len(reads))),
        source_topic_regex=tuple(range(len(regexes))),
        repartition_source_topics=tuple(range(len(inner))),
    )
    return Subtopology(
        subtopology_id=name,
        source_topics=reads,
        source_topic_regex=regexes,
        state_changelog_topics=_infos(parts, "!"),
        repartition_sink_topics=tuple(topic for sign, topic, _ in parts if sign == ">"),
        repartition_source_topics=inner,
        copartition_groups=(group,) if joined else (),
    )


def _infos(parts: list[tuple[str, str, str]], role_sign: str) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(name=topic, partitions=int(count or 0)) for sign, topic, count in parts if sign == role_sign
    )


# --- assignors ------------------------------------------------------------------------------


def streams_targets(s: Scenario, plain: list[str], o: Options) -> None:
    """`streams-targets CLIENT=ACTIVE/STANDBY/WARMUP ...`: from here on give these tasks to the clients, and
    none to others, in each new target assignment. Without options, the broker's assignor computes them
    again."""
    s.life.task_assignors.clear()
    targets = {client: _target(text) for client, text in o.items()}

    def assign(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
        by_member = {s.client(client).member_id: tasks for client, tasks in targets.items()}
        return checked(spec, topology, {name: by_member[name] for name in spec.members if name in by_member})

    if targets:
        s.life.task_assignors["said"] = TaskAssignor("said", assign)


def _target(text: str) -> MemberAssignment:
    """Parse the target of one client: its active tasks such as `0:0-2`, optionally followed by standby and
    warm-up tasks, each after a slash."""
    roles = [NO_TASKS if tasks == NONE else dict(ranges(tasks)) for tasks in text.split("/")]
    if len(roles) > len(ROLES):
        raise ScenarioError(f"expected ACTIVE/STANDBY/WARMUP, not {text!r}", "")
    return MemberAssignment(*roles)


# --- background work -----------------------------------------------------------------------------


def streams_describe(s: Scenario, plain: list[str], o: Options) -> None:
    s.ask("admin", StreamsGroupDescribeRequest(group_ids=(plain[0],)), o, 1)


def create(s: Scenario, plain: list[str], o: Options) -> None:
    """`create [fails|denied]`: create the internal topics that streams groups wait for.

    With the word `fails` their creation fails with an error; with `denied` it is not authorized."""
    if plain not in ([], ["fails"], ["denied"]):
        raise ScenarioError(f"expected fails or denied, not {plain[0]!r}", "")
    requests = [effect.subject for effect in s.life.effects if effect.verb == CREATE_TOPICS]
    s.life.effects = [effect for effect in s.life.effects if effect.verb != CREATE_TOPICS]
    for request in {request.group_id: request for request in requests}.values():
        if not plain:
            s.life.topics = with_created(s.life.topics, request, s.topic_id)
        elif plain == ["fails"]:
            errors: Mapping[str, str] = {topic.name: "it fails" for topic in request.topics}
            s.life.inform(TopicsNotCreated(request.group_id, errors))
        else:
            s.life.inform(
                TopicsNotCreated(request.group_id, {}, tuple(topic.name for topic in request.topics))
            )


def with_created(topics: Topics, request: TopicsToCreate, topic_id: TopicId) -> Topics:
    """Return `topics` with the internal topics of `request` added that do not exist yet; `topic_id` returns
    the id for the name of a new topic."""
    known = dict(topics.by_name)
    for item in request.topics:
        known.setdefault(item.name, Topic(item.name, topic_id(item.name), item.partitions))
    return Topics(known.values(), topics.version + (len(known) > len(topics.by_name)))


def ends(s: Scenario, plain: list[str], o: Options) -> None:
    """`ends counts-0:100,...`: report these end offsets of changelog partitions to all groups that requested
    end offsets.

    The options `group` and `member` select one request. End offsets that are not listed stay unknown."""
    end_offsets = {} if plain[0] == NONE else {(topic, p): int(end) for topic, p, end in partitions(plain[0])}
    requested = [effect for effect in s.life.effects if effect.verb == LOOK_UP_ENDS]
    if "group" in o or "member" in o:
        selected = (o.get("group"), o.get("member"))
        requested = [effect for effect in requested if _is_of(effect.subject, *selected)][:1]
    s.life.effects = [effect for effect in s.life.effects if not any(effect is each for each in requested)]
    for effect in requested:
        known = {key: end_offsets[key] for key in effect.subject.partitions if key in end_offsets}
        s.life.inform(EndsFound(effect.subject, known))


def _is_of(request: EndsToLookUp, group_id: str | None, member_id: str | None) -> bool:
    return group_id in (None, request.group_id) and member_id in (None, request.member_id)
