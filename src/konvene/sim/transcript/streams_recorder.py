"""Writes requests of streams groups as commands of a scenario (`streams_commands`).

Configs of internal topics are left out: no decision depends on them. A topology that a scenario cannot
express (regular expressions, an epoch below 0, indexes out of range) becomes a comment.
"""

from __future__ import annotations

from itertools import groupby
from urllib.parse import quote

from konvene.groups.streams.classic.changelog_ends import EndsFound
from konvene.groups.streams.topology.internal_topics import TopicsNotCreated
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicInfo,
    Topology,
)
from konvene.sim.transcript.streams_commands import DEFAULT_TOPOLOGY
from konvene.sim.transcript.vocabulary import EPOCHS, NONE, OMITTED, Client

Words = list[str]
SIGNS = set("+><!&/|:, =-")
"""Characters that names may not contain in scenarios; a topic may contain dashes, a subtopology id none."""


def heartbeat(client: Client, request: StreamsGroupHeartbeatRequest, version: int) -> Words | None:
    """Return the words of the command that sends this heartbeat; None if a scenario cannot express it."""
    by_epoch = {epoch: word for word, epoch in EPOCHS.items() if epoch is not None}
    action = by_epoch.get(request.member_epoch, "stay")
    joins = action == "join"
    words = ["streams-heartbeat", client.name, action]
    words += [] if request.group_id == client.group else [f"group={quote(request.group_id)}"]
    words += [] if request.instance_id == client.instance else [f"instance={_instance(request.instance_id)}"]
    if request.member_id != client.member_id or not client.member_id:
        words.append(f"member={quote(request.member_id) or NONE}")
    if action == "stay" and request.member_epoch != client.generation:
        words.append(f"epoch={request.member_epoch}")
    fields = _topology(request.topology, joins), _tasks(request, joins), _offsets(request)
    if request.instance_id == "" or any(item is None for item in fields):
        return None
    words += [word for item in fields for word in item or ()]
    words += _member_fields(client, request, joins)
    client.group, client.instance, client.assigned = request.group_id, request.instance_id, True
    return [*words, *([] if version == 1 else [f"version={version}"])]


def _instance(instance_id: str | None) -> str:
    return NONE if instance_id is None else quote(instance_id)


def _member_fields(client: Client, request: StreamsGroupHeartbeatRequest, joins: bool) -> Words:
    words = []
    if request.rebalance_timeout_ms != (30_000 if joins else -1):
        words.append(f"rebalance={request.rebalance_timeout_ms}")
    if request.endpoint_information_epoch != client.endpoint_epoch:
        words.append(f"endpoint-epoch={request.endpoint_information_epoch}")
    if request.process_id is not None and request.process_id != (client.name if joins else None):
        words.append(f"process={quote(request.process_id)}")
    if request.rack_id is not None:
        words.append(f"rack={quote(request.rack_id)}")
    if request.user_endpoint is not None:
        words.append(f"endpoint={request.user_endpoint.host}:{request.user_endpoint.port}")
    if request.client_tags is not None:
        words.append("tags=" + (",".join(f"{tag.key}:{tag.value}" for tag in request.client_tags) or NONE))
    return [*words, "shutdown=yes"] if request.shutdown_application else words


# --- tasks -----------------------------------------------------------------------------------------


def _tasks(request: StreamsGroupHeartbeatRequest, joins: bool) -> Words | None:
    words = []
    for role in ("active", "standby", "warmup"):
        fields = _task_ids(getattr(request, f"{role}_tasks"))
        if fields is None:
            return None
        if fields != (NONE if joins else OMITTED):
            words.append(f"{role}={fields}")
    return words


def _task_ids(fields: tuple[TaskIds, ...] | None) -> str | None:
    if fields is None:
        return OMITTED
    words = []
    for item in fields:
        if not item.partitions or min(item.partitions) < 0 or set(item.subtopology_id) & SIGNS:
            return None
        for _, run in groupby(enumerate(item.partitions), key=lambda pair: pair[1] - pair[0]):
            numbers = [partition for _, partition in run]
            last = f"-{numbers[-1]}" if len(numbers) > 1 else ""
            words.append(f"{item.subtopology_id}:{numbers[0]}{last}")
    return ",".join(words) or NONE


def _offsets(request: StreamsGroupHeartbeatRequest) -> Words | None:
    words = []
    for option, fields in (("offsets", request.task_offsets), ("ends", request.task_end_offsets)):
        if fields is not None:
            if any(item.partition < 0 or set(item.subtopology_id) & SIGNS for item in fields):
                return None
            words.append(f"{option}=" + (",".join(map(_offset, fields)) or NONE))
    return words


def _offset(fields: TaskOffset) -> str:
    return f"{fields.subtopology_id}-{fields.partition}:{fields.offset}"


# --- topologies ------------------------------------------------------------------------------------


def _topology(topology: Topology | None, joins: bool) -> Words | None:
    if topology is None:
        return [f"topology={OMITTED}"] if joins else []
    parts = [_part(item) for item in topology.subtopologies]
    if topology.epoch < 0 or not parts or None in parts:
        return None
    text = "|".join(map(str, parts))
    words = [] if joins and text == DEFAULT_TOPOLOGY else [f"topology={text}"]
    return [*words, f"topology-epoch={topology.epoch}"] if topology.epoch else words


def _part(item: Subtopology) -> str | None:
    """Format a subtopology in the syntax of `streams_commands`; None if a scenario cannot express it."""
    inner = item.repartition_source_topics
    everything = (tuple(range(len(item.source_topics))), tuple(range(len(inner))))
    groups = [(g.source_topics, g.repartition_source_topics) for g in item.copartition_groups]
    names = [*item.source_topics, *item.repartition_sink_topics]
    names += [topic.name for topic in (*inner, *item.state_changelog_topics)]
    unsupported = (
        any(not name or set(name) & (SIGNS - {"-"}) for name in names) or set(item.subtopology_id) & SIGNS
    )
    if unsupported or item.source_topic_regex or groups not in ([], [everything]):
        return None
    words = "+".join(item.source_topics)
    words += "".join(f"<{_info(topic)}" for topic in inner)
    words += "".join(f">{name}" for name in item.repartition_sink_topics)
    words += "".join(f"!{_info(topic)}" for topic in item.state_changelog_topics)
    return f"{item.subtopology_id}:{words}" + ("&" if groups else "")


def _info(topic: TopicInfo) -> str:
    return f"{topic.name}/{topic.partitions}" if topic.partitions else str(topic.name)


def not_created(result: TopicsNotCreated) -> str:
    """Return `create denied` if internal topics were not created for lack of authorization, else `create
    fails`."""
    return "create denied" if result.unauthorized else "create fails"


def ends(result: EndsFound) -> str:
    """Return the `ends` command that reports these end offsets to the member that requested them."""
    words = ",".join(f"{topic}-{partition}:{end}" for (topic, partition), end in result.ends.items())
    return f"ends {words or NONE} group={result.group_id} member={result.wanted.member_id}"
