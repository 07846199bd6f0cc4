"""Writes requests and background work of consumer groups as commands of a scenario.

A scenario has topic ids of its own: a topic's id shows its name, and that of a recreated topic a number as
well. `TopicIds` maps the ids of a run to these names, also those of deleted topics: a client may still own
their partitions.
"""

from __future__ import annotations

from itertools import count, groupby
from urllib.parse import quote

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.work import AssignmentComputed, RegexesResolved
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from konvene.shard.image import Topics
from konvene.sim.transcript.vocabulary import EPOCHS, NONE, OMITTED, Client

Words = list[str]


class TopicIds:
    """A map of topic ids, also those of deleted topics, to the names that scenarios use for them."""

    def __init__(self, topics: Topics) -> None:
        self._names = {topic.id: topic.name for topic in topics.by_name.values()}
        self._current_ids = {topic.name: topic.id for topic in topics.by_name.values()}
        self._recreated_serial = count(1)

    def __repr__(self) -> str:
        return f"<topic ids: {len(self._names)}>"

    def topic_seen(self, name: str, topic_id: Uuid) -> bool:
        """Add a topic's current id to the map; return True if the topic was recreated under a new id."""
        recreated = name in self._current_ids and self._current_ids[name] != topic_id
        if topic_id not in self._names:
            self._names[topic_id] = f"{name}-{next(self._recreated_serial)}" if recreated else name
        self._current_ids[name] = topic_id
        return recreated

    def name_of(self, topic_id: Uuid) -> str | None:
        """Return the topic's name, or `@NAME` for the id of a deleted topic.

        None if the id has no name that a scenario can express."""
        recorded_name = self._names.get(topic_id)
        for name, current_id in self._current_ids.items():
            if current_id == topic_id:
                return name
        if recorded_name is None:
            try:
                recorded_name = bytes(topic_id).rstrip(b"-").decode("ascii")
            except UnicodeDecodeError:
                return None
        if not recorded_name or not recorded_name.isprintable() or set(recorded_name) & set(",: ="):
            return None
        return f"@{recorded_name}"


def heartbeat(
    ids: TopicIds, client: Client, request: ConsumerGroupHeartbeatRequest, version: int
) -> Words | None:
    """Return the words of the command that sends this heartbeat; None if a scenario cannot express it."""
    by_epoch = {epoch: name for name, epoch in EPOCHS.items() if epoch is not None}
    action = by_epoch.get(request.member_epoch, "stay")
    words = ["consumer-heartbeat", client.name, action]
    words += [] if request.group_id == client.group else [f"group={request.group_id}"]
    words += [] if request.instance_id == client.instance else [f"instance={_instance(request.instance_id)}"]
    if request.member_id != client.member_id or (action == "join" and not client.member_id):
        words.append(f"member={quote(request.member_id) or NONE}")
    if action == "stay" and request.member_epoch != client.generation:
        words.append(f"epoch={request.member_epoch}")
    subscription = _subscription(request, action)
    owned = _owned(ids, request.topic_partitions)
    if subscription is None or owned is None:
        return None
    words += subscription
    default = NONE if action == "join" else OMITTED
    words += [] if owned == default else [f"owns={owned}"]
    if request.rebalance_timeout_ms != (30_000 if action == "join" else -1):
        words.append(f"rebalance={request.rebalance_timeout_ms}")
    for name, value in (("rack", request.rack_id), ("assignor", request.server_assignor)):
        words += [] if value is None else [f"{name}={quote(value)}"]
    client.group, client.instance = request.group_id, request.instance_id
    client.assigned = True
    return [*words, *([] if version == 1 else [f"version={version}"])]


def _instance(instance_id: str | None) -> str:
    return NONE if instance_id is None else instance_id


def _subscription(request: ConsumerGroupHeartbeatRequest, action: str) -> Words | None:
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    words: Words = []
    if regex is not None:
        words.append(f"regex={quote(regex) or NONE}")
    default = ("orders",) if action == "join" and regex is None else None
    if names is None and default is not None:
        words.append(f"topics={OMITTED}")
    elif names is not None and names != default:
        if any(name in (NONE, OMITTED) or set(name) & set(", =") for name in names):
            return None
        words.append(f"topics={','.join(names) if names else NONE}")
    return words


def _owned(ids: TopicIds, partitions: tuple[TopicPartitions, ...] | None) -> str | None:
    """Return owned partitions as the value of the option `owns`; None if a topic id or partition cannot be
    expressed."""
    if partitions is None:
        return OMITTED
    words = []
    for topic in partitions:
        name = ids.name_of(Uuid(topic.topic_id))
        if name is None or not topic.partitions or min(topic.partitions) < 0:
            return None
        for _, run in groupby(enumerate(topic.partitions), key=lambda pair: pair[1] - pair[0]):
            numbers = [partition for _, partition in run]
            words.append(f"{name}:{numbers[0]}" + (f"-{numbers[-1]}" if len(numbers) > 1 else ""))
    return ",".join(words) or NONE


def work(result: RegexesResolved | AssignmentComputed) -> str:
    """Return the `work` command that completes the background work with this result."""
    return f"work group={result.group_id} does={type(result).__name__}"
