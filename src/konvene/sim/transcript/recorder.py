"""Records a run of the simulator as a scenario, from the coordinator's point of view.

Requests, elapsed time, and changes of log and cluster are enough to reproduce a bug; the network and the
reasons why clients act are left out. A client of a scenario remembers its member id and generation; a line
contains only what differs from these, so that it keeps its meaning when earlier lines are removed.

`consumer_recorder`, `share_recorder` and `streams_recorder` write the commands of these groups. What a
scenario cannot express (a negative partition, a fetch by topic id) becomes a comment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from konvene.codec.uuid import Uuid
from konvene.groups.consumer.work import AssignmentComputed, RegexesResolved
from konvene.groups.share.work import BeginDeletion, DeletedTopics, StateDeleted, StateInitialized
from konvene.groups.streams.classic.changelog_ends import EndsFound
from konvene.groups.streams.topology.internal_topics import TopicsNotCreated
from konvene.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
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
SHARE_RESULTS = (StateInitialized, StateDeleted, DeletedTopics)


FromMember = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | OffsetCommitRequest
"""Requests that name the group, the member and its instance id."""


class Recorder:
    """A writer of scenarios: appends a command to `lines` for each event of a world.

    `first` has commands that precede those that create the topics."""

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
        self._callers: dict[int, str] = {}
        self._topics = TopicIds(topics)
        self._too_large = ""
        """Command of a result that was too large to append: a scenario reports the failure by itself."""

    def __repr__(self) -> str:
        return f"<recorder: {len(self.lines)} lines>"

    # --- events of the world ---

    def time(self, now_ms: int, wall_off_ms: int) -> None:
        """Record the virtual time that passed, and a step of the wall clock."""
        if now_ms > self._now_ms:
            self.lines.append(f"advance {now_ms - self._now_ms}")
            self._now_ms = now_ms
        if wall_off_ms != self._wall_off_ms:
            self.lines.append(f"clock {wall_off_ms - self._wall_off_ms}")
            self._wall_off_ms = wall_off_ms

    def record(self, line: str) -> None:
        """Append the command `line` to the scenario, unchanged."""
        self.lines.append(line)

    def topic(self, name: str, topic_id: Uuid, partitions: int) -> None:
        """Record that a topic was created, recreated under a new id, or has another number of partitions."""
        recreate = " recreate" if self._topics.topic_seen(name, topic_id) else ""
        self.lines.append(f"topic {name}{recreate} partitions={partitions}")

    def event(self, event: Event) -> None:
        """Record an event of the coordinator's shard. Timers need no command: they fire when time passes."""
        if event.news is not None:
            self._background_result(event)
            return
        if event.kind in ("too large", "append failed"):
            self.lines.append("too-large" if event.kind == "too large" else "fail")
        if event.request is not None:
            self._callers[event.waiter] = event.client_id
            words = self._words(event.client_id, event.request, event.version)
            self.lines.append(" ".join(words) if words else f"# {event.client_id} sent {event.api}")
        for waiter, response in event.answered:
            self._client(self._callers.get(waiter, "")).handle_response(response)
        if event.answer is not None and not event.answered:
            self._client(event.client_id).handle_response(event.answer)

    def _background_result(self, event: Event) -> None:
        words, fits = self._result_command(event.news), event.kind == "completion"
        if isinstance(event.news, TopicsNotCreated):
            words = not_created(event.news)
        elif isinstance(event.news, EndsFound):
            words = ends(event.news)
        repeated, self._too_large = words == self._too_large, "" if fits else words
        if not repeated:
            self.lines += [] if fits else ["too-large" if event.kind == "too large" else "fail"]
            self.lines.append(words)

    def _result_command(
        self, news: StateInitialized | StateDeleted | DeletedTopics | RegexesResolved | AssignmentComputed
    ) -> str:
        if isinstance(news, SHARE_RESULTS):
            return " ".join(state(self._topics, news) or ["#", repr(news)])
        return work(news)

    # --- requests ---

    def _client(self, name: str) -> Client:
        return self._clients.setdefault(name, Client(name))

    def _words(self, client_name: str, request: object, version: int) -> Words | None:
        record = WRITERS.get(type(request))
        return None if record is None else record(self, self._client(client_name), request, version)

    def _join(self, client: Client, request: JoinGroupRequest, version: int) -> Words:
        protocols = ",".join(f"{p.name}:{quote(p.metadata, safe='')}" for p in request.protocols)
        words = [
            "join", client.name, *self._identity_words(client, request), f"version={version}",
            f"session={request.session_timeout_ms}", f"rebalance={request.rebalance_timeout_ms}",
            f"type={request.protocol_type}", f"protocols={protocols}",
        ]  # fmt: skip
        client.group = request.group_id
        client.instance = request.group_instance_id
        return words

    def _sync(self, client: Client, request: SyncGroupRequest, version: int) -> Words:
        words = ["sync", client.name, *self._identity_words(client, request)]
        words += _generation(client, request.generation_id)
        for name, value in (("type", request.protocol_type), ("protocol", request.protocol_name)):
            if value is not None:
                words.append(f"{name}={value}")
        names_by_id = {c.member_id: c.name for c in self._clients.values() if c.member_id}
        if request.assignments:
            assignments = (
                f"{names_by_id.get(a.member_id, a.member_id)}:{quote(a.assignment, safe='')}"
                for a in request.assignments
            )
            words.append("assign=" + ",".join(assignments))
        return words

    def _consumer_heartbeat(
        self, client: Client, request: ConsumerGroupHeartbeatRequest, version: int
    ) -> Words | None:
        return heartbeat(self._topics, client, request, version)

    def _streams_heartbeat(
        self, client: Client, request: StreamsGroupHeartbeatRequest, version: int
    ) -> Words | None:
        return streams_heartbeat(client, request, version)

    def _share_heartbeat(
        self, client: Client, request: ShareGroupHeartbeatRequest, version: int
    ) -> Words | None:
        return share_heartbeat(client, request, version)

    def _share_state(
        self, client: Client, request: StateInitialized | StateDeleted, version: int
    ) -> Words | None:
        """Return the words of the `state` command that reports a result of the share coordinator, which is a
        step of an administrator's request; None if a scenario cannot express it."""
        return state(self._topics, request)

    def _heartbeat(self, client: Client, request: HeartbeatRequest, version: int) -> Words:
        return [
            "heartbeat", client.name, *self._identity_words(client, request),
            *_generation(client, request.generation_id),
        ]  # fmt: skip

    def _leave(self, client: Client, request: LeaveGroupRequest, version: int) -> Words | None:
        if len(request.members) == 1 and client.name != "admin":
            return ["leave", client.name, f"group={request.group_id}", *_identity(client, request.members[0])]
        instances = [m.group_instance_id for m in request.members if m.group_instance_id and not m.member_id]
        members = [m.member_id for m in request.members if m.member_id and not m.group_instance_id]
        if len(instances) + len(members) != len(request.members):
            return None
        words = ["remove", client.name, f"group={request.group_id}"]
        words += [f"instance={','.join(map(str, instances))}"] if instances else []
        return [*words, f"member={','.join(members)}"] if members else words

    def _commit(self, client: Client, request: OffsetCommitRequest, version: int) -> Words | None:
        rows = [(t.name, p) for t in request.topics for p in t.partitions]
        if version >= 10 or any(p.partition_index < 0 for _, p in rows):
            return None
        words = ",".join(f"{name}-{p.partition_index}:{p.committed_offset}" for name, p in rows)
        return [
            "commit", client.name, words, *self._identity_words(client, request),
            *_generation(client, request.generation_id_or_member_epoch), f"version={version}",
        ]  # fmt: skip

    def _fetch(self, client: Client, request: OffsetFetchRequest, version: int) -> Words | None:
        if version >= 10 or not request.groups:
            return None
        return ["fetch", client.name, f"group={request.groups[0].group_id}"]

    def _delete(self, client: Client, request: DeleteGroupsRequest, version: int) -> Words:
        return ["delete", ",".join(request.groups_names)]

    def _forget(self, client: Client, request: OffsetDeleteRequest, version: int) -> Words:
        words = ",".join(f"{t.name}-{p.partition_index}" for t in request.topics for p in t.partitions)
        return ["forget", request.group_id, words]

    def _untopic(self, client: Client, request: DeleteTopicsRequest, version: int) -> Words:
        return ["untopic", str(request.topics[0].name)]

    def _identity_words(self, client: Client, request: FromMember) -> Words:
        """Return options for group, member and instance id where they differ from the client's defaults."""
        words = [] if request.group_id == client.group else [f"group={request.group_id}"]
        if request.group_instance_id != client.instance:
            words.append(f"instance={request.group_instance_id or NONE}")
        return words + _member(client, request.member_id)


def _member(client: Client, member_id: str) -> Words:
    return [] if member_id == client.member_id else [f"member={quote(member_id) or NONE}"]


def _identity(client: Client, member: MemberIdentity) -> Words:
    unchanged = member.group_instance_id == client.instance
    words = [] if unchanged else [f"instance={member.group_instance_id or NONE}"]
    return words + _member(client, member.member_id)


def _generation(client: Client, generation: int) -> Words:
    return [] if generation == client.generation else [f"generation={generation}"]


WRITERS: dict[type, Callable[[Recorder, Client, Any, int], Words | None]] = {
    JoinGroupRequest: Recorder._join,
    SyncGroupRequest: Recorder._sync,
    HeartbeatRequest: Recorder._heartbeat,
    ConsumerGroupHeartbeatRequest: Recorder._consumer_heartbeat,
    StreamsGroupHeartbeatRequest: Recorder._streams_heartbeat,
    ShareGroupHeartbeatRequest: Recorder._share_heartbeat,
    AlterShareGroupOffsetsRequest: lambda recorder, client, request, version: alter(request),
    DeleteShareGroupOffsetsRequest: lambda recorder, client, request, version: forget(request),
    BeginDeletion: lambda recorder, client, request, version: begin_deletion(request),
    StateInitialized: Recorder._share_state,
    StateDeleted: Recorder._share_state,
    LeaveGroupRequest: Recorder._leave,
    OffsetCommitRequest: Recorder._commit,
    OffsetFetchRequest: Recorder._fetch,
    DeleteGroupsRequest: Recorder._delete,
    OffsetDeleteRequest: Recorder._forget,
    DeleteTopicsRequest: Recorder._untopic,
}
