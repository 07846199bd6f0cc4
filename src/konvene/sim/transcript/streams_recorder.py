"""What members of streams groups say, in the language of scenarios (`scenario_streams`).

Settings of internal topics are left out: no decision rests on them. A topology that the language has no words
for (expressions, an epoch below 0, indexes out of range) becomes a remark.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any
from urllib.parse import quote

from konvene.groups.streams.classic.changelog_ends import EndsFound
from konvene.groups.streams.topology.internal_topics import TopicsNotCreated
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TaskOffset,
    Topology,
)
from konvene.sim.transcript.streams_commands import ALIKE, EPOCHS, UNSAID
from konvene.sim.transcript.vocabulary import NONE, Client

Words = list[str]
SIGNS = set("+><!&/|:, =-")
"""What a name in the language may not have; a topic may have dashes, and a subtopology none."""


def heartbeat(client: Client, request: StreamsGroupHeartbeatRequest, version: int) -> Words | None:
    """A StreamsGroupHeartbeat; None where there are no words for it."""
    by_epoch = {epoch: word for word, epoch in EPOCHS.items() if epoch is not None}
    does = by_epoch.get(request.member_epoch, "stay")
    joins = does == "join"
    told = ["streams-heartbeat", client.name, does]
    told += [] if request.group_id == client.group else [f"group={quote(request.group_id)}"]
    told += [] if request.instance_id == client.instance else [f"instance={_instance(request.instance_id)}"]
    if request.member_id != client.member_id or not client.member_id:
        told.append(f"member={quote(request.member_id) or NONE}")
    if does == "stay" and request.member_epoch != client.generation:
        told.append(f"epoch={request.member_epoch}")
    said = _topology(request.topology, joins), _tasks(request, joins), _offsets(request)
    if request.instance_id == "" or any(each is None for each in said):
        return None
    told += [word for each in said for word in each or ()]
    told += _itself(client, request, joins)
    client.group, client.instance, client.assigned = request.group_id, request.instance_id, True
    return [*told, *([] if version == 1 else [f"version={version}"])]


def _instance(instance_id: str | None) -> str:
    return NONE if instance_id is None else quote(instance_id)


def _itself(client: Client, request: StreamsGroupHeartbeatRequest, joins: bool) -> Words:
    told = []
    if request.rebalance_timeout_ms != (30_000 if joins else -1):
        told.append(f"rebalance={request.rebalance_timeout_ms}")
    if request.endpoint_information_epoch != client.endpoint_epoch:
        told.append(f"endpoint-epoch={request.endpoint_information_epoch}")
    if request.process_id is not None and request.process_id != (client.name if joins else None):
        told.append(f"process={quote(request.process_id)}")
    if request.rack_id is not None:
        told.append(f"rack={quote(request.rack_id)}")
    if request.user_endpoint is not None:
        told.append(f"endpoint={request.user_endpoint.host}:{request.user_endpoint.port}")
    if request.client_tags is not None:
        told.append("tags=" + (",".join(f"{tag.key}:{tag.value}" for tag in request.client_tags) or NONE))
    return [*told, "shutdown=yes"] if request.shutdown_application else told


# --- tasks -----------------------------------------------------------------------------------------


def _tasks(request: StreamsGroupHeartbeatRequest, joins: bool) -> Words | None:
    told = []
    for role in ("active", "standby", "warmup"):
        said = _some(getattr(request, f"{role}_tasks"))
        if said is None:
            return None
        if said != (NONE if joins else UNSAID):
            told.append(f"{role}={said}")
    return told


def _some(said: tuple[TaskIds, ...] | None) -> str | None:
    if said is None:
        return UNSAID
    told = []
    for each in said:
        if not each.partitions or min(each.partitions) < 0 or set(each.subtopology_id) & SIGNS:
            return None
        for _, run in groupby(enumerate(each.partitions), key=lambda pair: pair[1] - pair[0]):
            numbers = [partition for _, partition in run]
            last = f"-{numbers[-1]}" if len(numbers) > 1 else ""
            told.append(f"{each.subtopology_id}:{numbers[0]}{last}")
    return ",".join(told) or NONE


def _offsets(request: StreamsGroupHeartbeatRequest) -> Words | None:
    told = []
    for word, said in (("offsets", request.task_offsets), ("ends", request.task_end_offsets)):
        if said is not None:
            if any(each.partition < 0 or set(each.subtopology_id) & SIGNS for each in said):
                return None
            told.append(f"{word}=" + (",".join(map(_offset, said)) or NONE))
    return told


def _offset(said: TaskOffset) -> str:
    return f"{said.subtopology_id}-{said.partition}:{said.offset}"


# --- topologies ------------------------------------------------------------------------------------


def _topology(sent: Topology | None, joins: bool) -> Words | None:
    if sent is None:
        return [f"topology={UNSAID}"] if joins else []
    parts = [_part(each) for each in sent.subtopologies]
    if sent.epoch < 0 or not parts or None in parts:
        return None
    told = "|".join(map(str, parts))
    words = [] if joins and told == ALIKE else [f"topology={told}"]
    return [*words, f"topology-epoch={sent.epoch}"] if sent.epoch else words


def _part(each: Subtopology) -> str | None:
    """One subtopology; None where the language cannot say it."""
    inner = each.repartition_source_topics
    all_of_it = (tuple(range(len(each.source_topics))), tuple(range(len(inner))))
    groups = [(g.source_topics, g.repartition_source_topics) for g in each.copartition_groups]
    names = [*each.source_topics, *each.repartition_sink_topics]
    names += [topic.name for topic in (*inner, *each.state_changelog_topics)]
    odd = any(not name or set(name) & (SIGNS - {"-"}) for name in names) or set(each.subtopology_id) & SIGNS
    if odd or each.source_topic_regex or groups not in ([], [all_of_it]):
        return None
    told = "+".join(each.source_topics)
    told += "".join(f"<{_info(topic)}" for topic in inner)
    told += "".join(f">{name}" for name in each.repartition_sink_topics)
    told += "".join(f"!{_info(topic)}" for topic in each.state_changelog_topics)
    return f"{each.subtopology_id}:{told}" + ("&" if groups else "")


def _info(topic: Any) -> str:
    return f"{topic.name}/{topic.partitions}" if topic.partitions else str(topic.name)


def not_created(news: TopicsNotCreated) -> str:
    """That topics could not be made."""
    return "create denied" if news.unauthorized else "create fails"


def ends(news: EndsFound) -> str:
    """Where changelogs end, for the member that has told how far it is."""
    told = ",".join(f"{topic}-{partition}:{end}" for (topic, partition), end in news.ends.items())
    return f"ends {told or NONE} group={news.group_id} member={news.wanted.member_id}"
