"""What members of consumer groups say, and what was worked out for them, in the language of scenarios.

A scenario has topic ids of its own: that of a topic says its name, and of one that was made anew a number as
well. `TopicIds` knows by which words the ids of a run go there, also those of topics that are gone: a client
may still own their partitions, and says so.
"""

from __future__ import annotations

from itertools import count, groupby
from typing import Any
from urllib.parse import quote

from konvene.codec.uuid import Uuid
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.shard.image import Topics
from konvene.sim.transcript.consumer_commands import EPOCHS, UNSAID
from konvene.sim.transcript.vocabulary import NONE, Client

Words = list[str]


class TopicIds:
    """By which words a scenario knows topics' ids."""

    def __init__(self, topics: Topics) -> None:
        self._words = {topic.id: topic.name for topic in topics.by_name.values()}
        self._now = {topic.name: topic.id for topic in topics.by_name.values()}
        self._made = count(1)

    def __repr__(self) -> str:
        return f"<topic ids: {len(self._words)}>"

    def made(self, name: str, topic_id: Uuid) -> bool:
        """There is a topic of this name with this id. Whether it was made anew, which a scenario is told."""
        anew = name in self._now and self._now[name] != topic_id
        if topic_id not in self._words:
            self._words[topic_id] = f"{name}-{next(self._made)}" if anew else name
        self._now[name] = topic_id
        return anew

    def word(self, topic_id: Uuid) -> str | None:
        """What to call it: by its name, if that is its topic today, else `@` and what the id says."""
        word = self._words.get(topic_id)
        for name, known in self._now.items():
            if known == topic_id:
                return name
        if word is None:
            try:
                word = bytes(topic_id).rstrip(b"-").decode("ascii")
            except UnicodeDecodeError:
                return None
        return f"@{word}" if word and word.isprintable() and not set(word) & set(",: =") else None


def heartbeat(
    ids: TopicIds, client: Client, request: ConsumerGroupHeartbeatRequest, version: int
) -> Words | None:
    """A ConsumerGroupHeartbeat; None where there are no words for it."""
    by_epoch = {epoch: word for word, epoch in EPOCHS.items() if epoch is not None}
    does = by_epoch.get(request.member_epoch, "stay")
    told = ["consumer-heartbeat", client.name, does]
    told += [] if request.group_id == client.group else [f"group={request.group_id}"]
    told += [] if request.instance_id == client.instance else [f"instance={_instance(request.instance_id)}"]
    if request.member_id != client.member_id or (does == "join" and not client.member_id):
        told.append(f"member={quote(request.member_id) or NONE}")
    if does == "stay" and request.member_epoch != client.generation:
        told.append(f"epoch={request.member_epoch}")
    said = _reads(request, does)
    owned = _owned(ids, request.topic_partitions)
    if said is None or owned is None:
        return None
    told += said
    usual = NONE if does == "join" else UNSAID
    told += [] if owned == usual else [f"owns={owned}"]
    if request.rebalance_timeout_ms != (30_000 if does == "join" else -1):
        told.append(f"rebalance={request.rebalance_timeout_ms}")
    for name, value in (("rack", request.rack_id), ("assignor", request.server_assignor)):
        told += [] if value is None else [f"{name}={quote(value)}"]
    client.group, client.instance = request.group_id, request.instance_id
    client.assigned = True
    return [*told, *([] if version == 1 else [f"version={version}"])]


def _instance(instance_id: str | None) -> str:
    return NONE if instance_id is None else instance_id


def _reads(request: ConsumerGroupHeartbeatRequest, does: str) -> Words | None:
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    told: Words = []
    if regex is not None:
        told.append(f"regex={quote(regex) or NONE}")
    usual = ("orders",) if does == "join" and regex is None else None
    if names is None and usual is not None:
        told.append(f"topics={UNSAID}")
    elif names is not None and names != usual:
        if any(name in (NONE, UNSAID) or set(name) & set(", =") for name in names):
            return None
        told.append(f"topics={','.join(names) if names else NONE}")
    return told


def _owned(ids: TopicIds, said: Any) -> str | None:
    """What a client says that it owns; None where a partition or a topic has no word."""
    if said is None:
        return UNSAID
    told = []
    for topic in said:
        word = ids.word(Uuid(topic.topic_id))
        if word is None or not topic.partitions or min(topic.partitions) < 0:
            return None
        for _, run in groupby(enumerate(topic.partitions), key=lambda pair: pair[1] - pair[0]):
            numbers = [partition for _, partition in run]
            told.append(f"{word}:{numbers[0]}" + (f"-{numbers[-1]}" if len(numbers) > 1 else ""))
    return ",".join(told) or NONE


def work(news: Any) -> str:
    """What came of work that was done elsewhere: the scenario does it then."""
    return f"work group={news.group_id} does={type(news).__name__}"
