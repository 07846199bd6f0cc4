"""Commands of scenarios about streams groups: heartbeats, descriptions, and internal topics that are made.

A topology is said in a word, its subtopologies separated by `|`:

    0:orders+audit>words|1:<words!counts

Subtopology `0` reads two topics from outside and writes `words`, by which records are repartitioned; `1`
reads it, and keeps its state in the changelog `counts`. `<words/4` fixes how many partitions it has, and a
`&` at the end says that all that is read is joined, and so has to have as many partitions. `~pay.*` is an
expression for what is read. Tasks are said as partitions are, by the ids of their subtopologies: `0:0-2,1:5`.
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
from konvene.sim.transcript.vocabulary import (
    NONE,
    Client,
    Options,
    ScenarioError,
    instance,
    name_or_none,
    number,
    partitions,
    ranges,
)

if TYPE_CHECKING:
    from konvene.sim.transcript.scenario import Scenario

EPOCHS = {"join": 0, "stay": None, "leave": -1, "away": -2}
"""What a member does, and at which epoch; when it stays it is at its own."""

TopicId = Callable[[str], Uuid]
"""The id of a new topic, by its name."""

ROLES = ("active", "standby", "warmup")
TOLD = "told"
"""As what a member owns: what it was told last to have."""
UNSAID = "unsaid"
"""As what it owns, or what its topology is: it says nothing of that, also where it joins."""

ALIKE = "0:orders"
"""The topology of who joins and says nothing else: it reads the six partitions of `orders`, without state."""


def streams_heartbeat(s: Scenario, plain: list[str], o: Options) -> None:
    """`streams-heartbeat WHO [join|stay|leave|away]`."""
    client, does = s.client(plain[0]), plain[1] if len(plain) > 1 else "stay"
    if does not in EPOCHS:
        raise ScenarioError(f"expected one of {', '.join(EPOCHS)}, not {does!r}", "")
    client.group = o.get("group", client.group)
    client.instance, client.assigned = instance(client, o), True
    joins, epoch = does == "join", EPOCHS[does]
    told = o.get("topology", ALIKE if joins else UNSAID)
    owned = [_owned(client, role, o, joins) for role in ROLES]
    request = StreamsGroupHeartbeatRequest(
        group_id=client.group,
        member_id=_member(s, client, o),
        member_epoch=number(o, "epoch", client.generation if epoch is None else epoch),
        endpoint_information_epoch=number(o, "endpoint-epoch", client.endpoint_epoch),
        instance_id=client.instance,
        rack_id=unquote(o["rack"]) if "rack" in o else None,
        rebalance_timeout_ms=number(o, "rebalance", 30_000 if joins else -1),
        topology=None if told == UNSAID else topology_of(told, number(o, "topology-epoch", 0)),
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


def _member(s: Scenario, client: Client, o: Options) -> str:
    """The client's id, which it makes by itself, and anew if it is to be `new`."""
    told = o.get("member")
    if told is not None and told != "new":
        return name_or_none(told)
    if told == "new" or not client.member_id:
        client.member_id = s.life.own_id(client.name)
    return client.member_id


def _owned(client: Client, role: str, o: Options, joins: bool) -> tuple[TaskIds, ...] | None:
    text = o.get(role, o.get("owns", NONE if joins else UNSAID))
    if text == UNSAID:
        return None
    if text == TOLD:
        return task_ids(client.tasks.get(role, {}))
    return () if text == NONE else task_ids(dict(ranges(text)))


def task_ids(tasks: Tasks) -> tuple[TaskIds, ...]:
    """As requests have them."""
    return tuple(TaskIds(subtopology_id=name, partitions=tuple(some)) for name, some in tasks.items())


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
    """`0-3:17`: of subtopology 0, partition 3."""
    if text is None:
        return None
    found = [] if text == NONE else partitions(text)
    return tuple(
        TaskOffset(subtopology_id=name, partition=p, offset=number({"an offset": at}, "an offset", 0))
        for name, p, at in found
    )


# --- topologies ------------------------------------------------------------------------------------

_PART = re.compile(r"([+~><!]?)([^+~><!&/]+)(?:/(\d+))?")


def topology_of(text: str, epoch: int = 0) -> Topology:
    """What the words at the top of this file say. Raises ScenarioError."""
    return Topology(epoch=epoch, subtopologies=tuple(map(_subtopology, text.split("|"))))


def _subtopology(text: str) -> Subtopology:
    name, colon, told = text.partition(":")
    if not colon:
        raise ScenarioError(f"expected ID:TOPIC..., not {text!r}", "")
    joined = told.endswith("&")
    parts = _PART.findall(told)
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


def _infos(parts: list[tuple[str, str, str]], wanted: str) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(name=topic, partitions=int(count or 0)) for sign, topic, count in parts if sign == wanted
    )


# --- what an assignor says ---------------------------------------------------------------------


def streams_targets(s: Scenario, plain: list[str], o: Options) -> None:
    """From here on every target is what is said, of whoever is a member; without any, the broker's assignors
    are asked again."""
    s.life.task_assignors.clear()
    said = {who: _target(text) for who, text in o.items()}

    def assign(spec: GroupSpec, topology: TopologyDescriber) -> GroupAssignment:
        given = {s.client(who).member_id: tasks for who, tasks in said.items()}
        return checked(spec, topology, {name: given[name] for name in spec.members if name in given})

    if said:
        s.life.task_assignors["said"] = TaskAssignor("said", assign)


def _target(text: str) -> MemberAssignment:
    """`0:0-2`, and behind a slash each what it stands by for, and what it warms up."""
    roles = [NO_TASKS if told == NONE else dict(ranges(told)) for told in text.split("/")]
    if len(roles) > len(ROLES):
        raise ScenarioError(f"expected ACTIVE/STANDBY/WARMUP, not {text!r}", "")
    return MemberAssignment(*roles)


# --- what is done elsewhere ------------------------------------------------------------------------


def streams_describe(s: Scenario, plain: list[str], o: Options) -> None:
    s.ask("admin", StreamsGroupDescribeRequest(group_ids=(plain[0],)), o, 1)


def create(s: Scenario, plain: list[str], o: Options) -> None:
    """Internal topics that groups wait for are made; or that `fails`, or nobody may (`denied`)."""
    if plain not in ([], ["fails"], ["denied"]):
        raise ScenarioError(f"expected fails or denied, not {plain[0]!r}", "")
    wanted = [effect.subject for effect in s.life.wanted if effect.verb == CREATE_TOPICS]
    s.life.wanted = [effect for effect in s.life.wanted if effect.verb != CREATE_TOPICS]
    for asked in {each.group_id: each for each in wanted}.values():
        if not plain:
            s.life.topics = made(s.life.topics, asked, s.topic_id)
        elif plain == ["fails"]:
            errors: Mapping[str, str] = {topic.name: "it fails" for topic in asked.topics}
            s.life.inform(TopicsNotCreated(asked.group_id, errors))
        else:
            s.life.inform(TopicsNotCreated(asked.group_id, {}, tuple(topic.name for topic in asked.topics)))


def made(topics: Topics, asked: TopicsToCreate, topic_id: TopicId) -> Topics:
    """The topics that there are, with those that were asked for."""
    known = dict(topics.by_name)
    for each in asked.topics:
        known.setdefault(each.name, Topic(each.name, topic_id(each.name), each.partitions))
    return Topics(known.values(), topics.version + (len(known) > len(topics.by_name)))


def ends(s: Scenario, plain: list[str], o: Options) -> None:
    """Where changelogs end is told, `counts-0:100`, to all groups that asked; or once to the one of a `group`
    that asked for a `member`. What is not said is not known."""
    told = {} if plain[0] == NONE else {(topic, p): int(end) for topic, p, end in partitions(plain[0])}
    asked = [effect for effect in s.life.wanted if effect.verb == LOOK_UP_ENDS]
    if "group" in o or "member" in o:
        wanted = (o.get("group"), o.get("member"))
        asked = [each for each in asked if _is_of(each.subject, *wanted)][:1]
    s.life.wanted = [effect for effect in s.life.wanted if not any(effect is each for each in asked)]
    for each in asked:
        known = {place: told[place] for place in each.subject.partitions if place in told}
        s.life.inform(EndsFound(each.subject, known))


def _is_of(asked: EndsToLookUp, group_id: str | None, member_id: str | None) -> bool:
    return group_id in (None, asked.group_id) and member_id in (None, asked.member_id)
