"""Writes down a run of the simulator in the language of scenarios, as the coordinator saw it.

What the coordinator was asked, when its timers had time to ring, what its log and its cluster went through:
that is all it takes to meet the same bug again. The network, the clients' waiting and their reasons are left
out. A client in a scenario remembers its member id and generation; a line says only what differs from that,
so that it still means something when others before it are taken away.

Members of consumer, share and streams groups have their words in `record_consumer`, `record_share` and
`record_streams`. What cannot
be said (a negative partition, a fetch by topic id) becomes a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from konvene.codec.uuid import Uuid
from konvene.groups.share.work import BeginDeletion, StateDeleted, StateInitialized, TopicsGone
from konvene.groups.streams.classic.changelog_ends import EndsFound
from konvene.groups.streams.topology.internal_topics import TopicsNotCreated
from konvene.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest
from konvene.messages.leave_group import LeaveGroupRequest
from konvene.messages.offset_commit import OffsetCommitRequest
from konvene.messages.offset_delete import OffsetDeleteRequest
from konvene.messages.offset_fetch import OffsetFetchRequest
from konvene.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from konvene.messages.sync_group import SyncGroupRequest
from konvene.shard.image import Topics
from konvene.sim.transcript.consumer_recorder import TopicIds, heartbeat, work
from konvene.sim.transcript.share_recorder import alter, begin_deletion, forget, state
from konvene.sim.transcript.share_recorder import heartbeat as share_heartbeat
from konvene.sim.transcript.streams_recorder import ends, not_created
from konvene.sim.transcript.streams_recorder import heartbeat as streams_heartbeat
from konvene.sim.transcript.vocabulary import NONE, Client
from konvene.sim.world.event import Event

Words = list[str]
SHARE_NEWS = (StateInitialized, StateDeleted, TopicsGone)


class Recorder:
    """Collects `lines`. A world tells it what happens, in order; it begins with `first`."""

    def __init__(
        self, settings: dict[str, str], topics: Topics, now_ms: int, first: Sequence[str] = ()
    ) -> None:
        self.lines = [*(f"config {name}={value}" for name, value in settings.items()), *first]
        self.lines.append("topic audit partitions=0")
        self.lines += [f"topic {t.name} partitions={t.partitions}" for t in topics.by_name.values()]
        if "orders" not in topics.by_name:
            self.lines.append("topic orders partitions=0")
        self.lines.append("hold")
        self._now_ms = now_ms
        self._wall_off_ms = 0
        self._clients: dict[str, Client] = {}
        self._asked: dict[int, str] = {}
        self._topics = TopicIds(topics)
        self._tried = ""
        """The work that was told of and did not fit: a scenario tells by itself that it is given up."""

    def __repr__(self) -> str:
        return f"<recorder: {len(self.lines)} lines>"

    # --- what a world tells ---

    def time(self, now_ms: int, wall_off_ms: int) -> None:
        """It is so late now."""
        if now_ms > self._now_ms:
            self.lines.append(f"advance {now_ms - self._now_ms}")
            self._now_ms = now_ms
        if wall_off_ms != self._wall_off_ms:
            self.lines.append(f"clock {wall_off_ms - self._wall_off_ms}")
            self._wall_off_ms = wall_off_ms

    def say(self, line: str) -> None:
        """Something that is a command as it is."""
        self.lines.append(line)

    def topic(self, name: str, topic_id: Uuid, partitions: int) -> None:
        """There is such a topic now."""
        anew = " recreate" if self._topics.made(name, topic_id) else ""
        self.lines.append(f"topic {name}{anew} partitions={partitions}")

    def event(self, event: Event) -> None:
        """Something happened to the shard. Timers ring by themselves when time passes."""
        if event.news is not None:
            self._news(event)
            return
        if event.kind in ("too large", "append failed"):
            self.lines.append("too-large" if event.kind == "too large" else "fail")
        if event.request is not None:
            self._asked[event.waiter] = event.client_id
            told = self._words(event.client_id, event.request, event.version)
            self.lines.append(" ".join(told) if told else f"# {event.client_id} asked {event.api}")
        for waiter, response in event.answered:
            self._client(self._asked.get(waiter, "")).hears(response)
        if event.answer is not None and not event.answered:
            self._client(event.client_id).hears(event.answer)

    def _news(self, event: Event) -> None:
        told, fits = self._told(event.news), event.kind == "completion"
        if isinstance(event.news, TopicsNotCreated):
            told = not_created(event.news)
        elif isinstance(event.news, EndsFound):
            told = ends(event.news)
        again, self._tried = told == self._tried, "" if fits else told
        if not again:
            self.lines += [] if fits else ["too-large" if event.kind == "too large" else "fail"]
            self.lines.append(told)

    def _told(self, news: Any) -> str:
        if isinstance(news, SHARE_NEWS):
            return " ".join(state(self._topics, news) or ["#", repr(news)])
        return work(news)

    # --- requests in words ---

    def _client(self, name: str) -> Client:
        return self._clients.setdefault(name, Client(name))

    def _words(self, who: str, request: Any, version: int) -> Words | None:
        say = SAYINGS.get(type(request))
        return None if say is None else say(self, self._client(who), request, version)

    def _join(self, client: Client, request: JoinGroupRequest, version: int) -> Words:
        protocols = ",".join(f"{p.name}:{quote(p.metadata, safe='')}" for p in request.protocols)
        told = [
            "join", client.name, *self._who(client, request, version), f"version={version}",
            f"session={request.session_timeout_ms}", f"rebalance={request.rebalance_timeout_ms}",
            f"type={request.protocol_type}", f"protocols={protocols}",
        ]  # fmt: skip
        client.group = request.group_id
        client.instance = request.group_instance_id
        return told

    def _sync(self, client: Client, request: SyncGroupRequest, version: int) -> Words:
        told = ["sync", client.name, *self._who(client, request, version)]
        told += _generation(client, request.generation_id)
        for name, value in (("type", request.protocol_type), ("protocol", request.protocol_name)):
            if value is not None:
                told.append(f"{name}={value}")
        known = {c.member_id: c.name for c in self._clients.values() if c.member_id}
        if request.assignments:
            given = (
                f"{known.get(a.member_id, a.member_id)}:{quote(a.assignment, safe='')}"
                for a in request.assignments
            )
            told.append("assign=" + ",".join(given))
        return told

    def _beat(self, client: Client, request: ConsumerGroupHeartbeatRequest, version: int) -> Words | None:
        return heartbeat(self._topics, client, request, version)

    def _streams_beat(
        self, client: Client, request: StreamsGroupHeartbeatRequest, version: int
    ) -> Words | None:
        return streams_heartbeat(client, request, version)

    def _share_beat(self, client: Client, request: ShareGroupHeartbeatRequest, version: int) -> Words | None:
        return share_heartbeat(client, request, version)

    def _of_share_states(self, client: Client, request: Any, version: int) -> Words | None:
        """What an administrator waits for is told like news."""
        return state(self._topics, request)

    def _heartbeat(self, client: Client, request: HeartbeatRequest, version: int) -> Words:
        return [
            "heartbeat", client.name, *self._who(client, request, version),
            *_generation(client, request.generation_id),
        ]  # fmt: skip

    def _leave(self, client: Client, request: LeaveGroupRequest, version: int) -> Words | None:
        if len(request.members) == 1 and client.name != "admin":
            return ["leave", client.name, f"group={request.group_id}", *_identity(client, request.members[0])]
        instances = [m.group_instance_id for m in request.members if m.group_instance_id and not m.member_id]
        members = [m.member_id for m in request.members if m.member_id and not m.group_instance_id]
        if len(instances) + len(members) != len(request.members):
            return None
        told = ["remove", client.name, f"group={request.group_id}"]
        told += [f"instance={','.join(map(str, instances))}"] if instances else []
        return [*told, f"member={','.join(members)}"] if members else told

    def _commit(self, client: Client, request: OffsetCommitRequest, version: int) -> Words | None:
        rows = [(t.name, p) for t in request.topics for p in t.partitions]
        if version >= 10 or any(p.partition_index < 0 for _, p in rows):
            return None
        told = ",".join(f"{name}-{p.partition_index}:{p.committed_offset}" for name, p in rows)
        return [
            "commit", client.name, told, *self._who(client, request, version),
            *_generation(client, request.generation_id_or_member_epoch), f"version={version}",
        ]  # fmt: skip

    def _fetch(self, client: Client, request: OffsetFetchRequest, version: int) -> Words | None:
        if version >= 10 or not request.groups:
            return None
        return ["fetch", client.name, f"group={request.groups[0].group_id}"]

    def _delete(self, client: Client, request: DeleteGroupsRequest, version: int) -> Words:
        return ["delete", ",".join(request.groups_names)]

    def _forget(self, client: Client, request: OffsetDeleteRequest, version: int) -> Words:
        told = ",".join(f"{t.name}-{p.partition_index}" for t in request.topics for p in t.partitions)
        return ["forget", request.group_id, told]

    def _untopic(self, client: Client, request: DeleteTopicsRequest, version: int) -> Words:
        return ["untopic", str(request.topics[0].name)]

    def _who(self, client: Client, request: Any, version: int) -> Words:
        """Group, member and instance id, as far as the client would say something else by itself."""
        told = [] if request.group_id == client.group else [f"group={request.group_id}"]
        if request.group_instance_id != client.instance:
            told.append(f"instance={request.group_instance_id or NONE}")
        return told + _member(client, request.member_id)


def _member(client: Client, member_id: str) -> Words:
    return [] if member_id == client.member_id else [f"member={quote(member_id) or NONE}"]


def _identity(client: Client, member: Any) -> Words:
    same = member.group_instance_id == client.instance
    told = [] if same else [f"instance={member.group_instance_id or NONE}"]
    return told + _member(client, member.member_id)


def _generation(client: Client, generation: int) -> Words:
    return [] if generation == client.generation else [f"generation={generation}"]


SAYINGS: dict[type, Callable[[Recorder, Client, Any, int], Words | None]] = {
    JoinGroupRequest: Recorder._join,
    SyncGroupRequest: Recorder._sync,
    HeartbeatRequest: Recorder._heartbeat,
    ConsumerGroupHeartbeatRequest: Recorder._beat,
    StreamsGroupHeartbeatRequest: Recorder._streams_beat,
    ShareGroupHeartbeatRequest: Recorder._share_beat,
    AlterShareGroupOffsetsRequest: lambda recorder, client, request, version: alter(request),
    DeleteShareGroupOffsetsRequest: lambda recorder, client, request, version: forget(request),
    BeginDeletion: lambda recorder, client, request, version: begin_deletion(request),
    StateInitialized: Recorder._of_share_states,
    StateDeleted: Recorder._of_share_states,
    LeaveGroupRequest: Recorder._leave,
    OffsetCommitRequest: Recorder._commit,
    OffsetFetchRequest: Recorder._fetch,
    DeleteGroupsRequest: Recorder._delete,
    OffsetDeleteRequest: Recorder._forget,
    DeleteTopicsRequest: Recorder._untopic,
}
