"""What members of share groups and administrators say, and what the share coordinator did, in the language of
scenarios (`scenario_share`).

The share coordinator is told of by what came of it: which share partitions have begun, which could not, what
is forgotten. Fetches and acknowledgements are not the group's coordinator's, and the language has no words
for them: what is broken there is played from its seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any
from urllib.parse import quote

from konvene.codec.uuid import Uuid
from konvene.groups.share.work import BeginDeletion, StateDeleted, StateInitialized, TopicsGone
from konvene.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from konvene.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.share_state.requests import SharePartitionKey
from konvene.sim.transcript.consumer_recorder import TopicIds
from konvene.sim.transcript.share_commands import SHARE_EPOCHS
from konvene.sim.transcript.vocabulary import NONE, Client

Words = list[str]


def heartbeat(client: Client, request: ShareGroupHeartbeatRequest, version: int) -> Words | None:
    """A ShareGroupHeartbeat; None where there are no words for it."""
    by_epoch = {epoch: word for word, epoch in SHARE_EPOCHS.items() if epoch is not None}
    does = by_epoch.get(request.member_epoch, "stay")
    told = ["share-heartbeat", client.name, does]
    told += [] if request.group_id == client.group else [f"group={request.group_id}"]
    if request.member_id != client.member_id or not client.member_id:
        told.append(f"member={quote(request.member_id) or NONE}")
    if does == "stay" and request.member_epoch != client.generation:
        told.append(f"epoch={request.member_epoch}")
    names = request.subscribed_topic_names
    if names is not None and any(not name or name == NONE or set(name) & set(", =") for name in names):
        return None
    if names is None and does == "join":
        return None
    if names is not None and not (does == "join" and names == ("orders",)):
        told.append(f"topics={','.join(names) or NONE}")
    told += [] if request.rack_id is None else [f"rack={quote(request.rack_id)}"]
    client.group, client.assigned = request.group_id, True
    # Who speaks in another's name has that one's from now on.
    client.member_id = request.member_id
    return [*told, *([] if version == 1 else [f"version={version}"])]


def alter(request: AlterShareGroupOffsetsRequest) -> Words | None:
    rows = [(topic.topic_name, p) for topic in request.topics for p in topic.partitions]
    if not rows or any(p.partition_index < 0 or set(name) & set(", =:") for name, p in rows):
        return None
    told = ",".join(f"{name}-{p.partition_index}:{p.start_offset}" for name, p in rows)
    return ["share-alter", request.group_id, told]


def forget(request: DeleteShareGroupOffsetsRequest) -> Words:
    return ["share-forget", request.group_id, ",".join(topic.topic_name for topic in request.topics)]


def begin_deletion(request: BeginDeletion) -> Words:
    return ["share-delete", request.group_id]


def state(ids: TopicIds, news: Any) -> Words | None:
    """What the group's coordinator was told; None where there are no words for it."""
    if isinstance(news, StateInitialized):
        told = [f"group={news.group_id}"]
        for word, keys in (("begun", news.done), ("failed", news.failed)):
            said = _listed(ids, keys)
            if said is None:
                return None
            told += [f"{word}={said}"] if said else []
        return ["state", *told]
    if isinstance(news, StateDeleted):
        gone = _topics(ids, news.topics)
        return None if gone is None else ["state", f"group={news.group_id}", f"deleted={gone or NONE}"]
    if isinstance(news, TopicsGone):
        gone = _topics(ids, sorted(news.topic_ids))
        return None if gone is None else ["state", f"gone={gone or NONE}"]
    return None


def _listed(ids: TopicIds, keys: Iterable[SharePartitionKey]) -> str | None:
    told = []
    for topic, some in groupby(keys, key=lambda key: key.topic_id):
        word = ids.word(topic)
        if word is None:
            return None
        told += [f"{word}:{key.partition}" for key in some]
    return ",".join(told)


def _topics(ids: TopicIds, topics: Iterable[Uuid]) -> str | None:
    words = [ids.word(topic) for topic in topics]
    return None if None in words else ",".join(map(str, words))
