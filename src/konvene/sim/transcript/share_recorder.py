"""Writes requests of share groups and results of the share coordinator as commands of a scenario.

The share coordinator appears only by its results: which share partitions are initialized, which failed, which
state is deleted. Fetches and acknowledgements do not reach the group coordinator and are not recorded: their
bugs are reproduced from the seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from urllib.parse import quote

from konvene.codec.uuid import Uuid
from konvene.groups.share.work import BeginDeletion, DeletedTopics, StateDeleted, StateInitialized
from konvene.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from konvene.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.share_state.requests import SharePartitionKey
from konvene.sim.transcript.consumer_recorder import TopicIds
from konvene.sim.transcript.share_commands import SHARE_EPOCHS
from konvene.sim.transcript.vocabulary import NONE, Client

Words = list[str]


def heartbeat(client: Client, request: ShareGroupHeartbeatRequest, version: int) -> Words | None:
    """Return the words of the command that sends this heartbeat; None if a scenario cannot express it."""
    by_epoch = {epoch: name for name, epoch in SHARE_EPOCHS.items() if epoch is not None}
    action = by_epoch.get(request.member_epoch, "stay")
    words = ["share-heartbeat", client.name, action]
    words += [] if request.group_id == client.group else [f"group={request.group_id}"]
    if request.member_id != client.member_id or not client.member_id:
        words.append(f"member={quote(request.member_id) or NONE}")
    if action == "stay" and request.member_epoch != client.generation:
        words.append(f"epoch={request.member_epoch}")
    names = request.subscribed_topic_names
    if names is not None and any(not name or name == NONE or set(name) & set(", =") for name in names):
        return None
    if names is None and action == "join":
        return None
    if names is not None and not (action == "join" and names == ("orders",)):
        words.append(f"topics={','.join(names) or NONE}")
    words += [] if request.rack_id is None else [f"rack={quote(request.rack_id)}"]
    client.group, client.assigned = request.group_id, True
    # A client that uses another member's id keeps it from now on.
    client.member_id = request.member_id
    return [*words, *([] if version == 1 else [f"version={version}"])]


def alter(request: AlterShareGroupOffsetsRequest) -> Words | None:
    rows = [(topic.topic_name, p) for topic in request.topics for p in topic.partitions]
    if not rows or any(p.partition_index < 0 or set(name) & set(", =:") for name, p in rows):
        return None
    words = ",".join(f"{name}-{p.partition_index}:{p.start_offset}" for name, p in rows)
    return ["share-alter", request.group_id, words]


def forget(request: DeleteShareGroupOffsetsRequest) -> Words:
    return ["share-forget", request.group_id, ",".join(topic.topic_name for topic in request.topics)]


def begin_deletion(request: BeginDeletion) -> Words:
    return ["share-delete", request.group_id]


def state(ids: TopicIds, result: StateInitialized | StateDeleted | DeletedTopics) -> Words | None:
    """Return the `state` command that reports this result; None if a scenario cannot express it."""
    if isinstance(result, StateInitialized):
        words = [f"group={result.group_id}"]
        for option, keys in (("begun", result.done), ("failed", result.failed)):
            listed = _listed(ids, keys)
            if listed is None:
                return None
            words += [f"{option}={listed}"] if listed else []
        return ["state", *words]
    if isinstance(result, StateDeleted):
        topic_names = _topics(ids, result.topics)
        return (
            None
            if topic_names is None
            else ["state", f"group={result.group_id}", f"deleted={topic_names or NONE}"]
        )
    topic_names = _topics(ids, sorted(result.topic_ids))
    return None if topic_names is None else ["state", f"gone={topic_names or NONE}"]


def _listed(ids: TopicIds, keys: Iterable[SharePartitionKey]) -> str | None:
    words = []
    for topic, partitions in groupby(keys, key=lambda key: key.topic_id):
        name = ids.name_of(topic)
        if name is None:
            return None
        words += [f"{name}:{key.partition}" for key in partitions]
    return ",".join(words)


def _topics(ids: TopicIds, topics: Iterable[Uuid]) -> str | None:
    words = [ids.name_of(topic) for topic in topics]
    return None if None in words else ",".join(map(str, words))
