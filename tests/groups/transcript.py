"""Transcripts: a conversation with a group shard as a text file, whose run writes down what happened.

A file is a list of blocks. A block has commands, a line of four dashes, and what followed from them:

    join a protocols=range:orders
    ----
    a <- JoinGroup MEMBER_ID_REQUIRED member_id=a-1

Commands (a client remembers its member id and generation from the answers it got):

    config KEY=VALUE                       a broker setting, before anything else
    join WHO [group=g] [version=9] [member=ID|-] [instance=ID] [session=10000] [rebalance=30000]
             [type=consumer] [protocols=range:topics,...] [reason=words_with_underscores]
    sync WHO [assign=WHO:text,...] [generation=N] [protocol=NAME]
    heartbeat WHO [generation=N]           leave WHO [reason=..]       remove BY instance=ID[,ID]
    commit WHO topic-partition:offset,...  fetch WHO                   describe GROUP | list | delete GROUP
    forget GROUP topic-partition,...       untopic TOPIC
    advance MS                             restart                     show GROUP

Run the tests with KONVENE_REWRITE=1 to rewrite the expectations, then read the diff.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes

from tests.groups.world import TOPICS, World

from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID
from konvene.errors import Errors
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


class Client:
    """What a client remembers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.group = "g"
        self.member_id = ""
        self.instance: str | None = None
        self.generation = -1


class Transcript:
    """Runs the commands of one file."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self._world: World | None = None
        self.clients: dict[str, Client] = {}

    @property
    def world(self) -> World:
        if self._world is None:
            self._world = World(self.settings)
        return self._world

    def run(self, commands: list[str]) -> list[str]:
        """Run one block's commands; the lines that tell what happened."""
        said: list[str] = []
        for line in commands:
            verb, *words = line.split()
            if verb == "config":
                name, value = words[0].split("=", 1)
                self.settings[name] = value
                continue
            self.world.happened.clear()
            options = dict(w.split("=", 1) for w in words if "=" in w)
            plain = [w for w in words if "=" not in w]
            said += getattr(self, f"do_{verb}")(plain, options) or []
            said += [self._line(text) for text in self.world.happened]
            self._learn()
        return said

    def _client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def _learn(self) -> None:
        for name, answer in self.world.answers.items():
            if answer in (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID) and name in self.clients:
                self.clients[name].member_id, self.clients[name].generation = "", -1
            if type(answer).__name__ == "JoinGroupResponse":
                told: Any = answer
                client = self._client(name)
                client.member_id = told.member_id or client.member_id
                if told.error_code == Errors.NONE:
                    client.generation = told.generation_id
                elif told.error_code in (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID):
                    client.member_id, client.generation = "", -1

    def _line(self, text: str) -> str:
        who, arrow, rest = text.partition(" <- ")
        if not arrow or "(" not in rest:
            return text
        return f"{who} <- {short(self.world.answers[who])}"

    # --- commands ---

    def do_join(self, plain: list[str], o: dict[str, str]) -> None:
        client = self._client(plain[0])
        client.group = o.get("group", client.group)
        client.instance = o.get("instance", client.instance)
        member = o.get("member", client.member_id)
        protocols = tuple(
            JoinGroupRequestProtocol(name=n, metadata=unquote_to_bytes(m))
            for n, _, m in (p.partition(":") for p in o.get("protocols", "range:orders").split(",") if p)
        )
        request = JoinGroupRequest(
            group_id=client.group,
            session_timeout_ms=int(o.get("session", 10_000)),
            rebalance_timeout_ms=int(o.get("rebalance", 30_000)),
            member_id="" if member == "-" else member,
            group_instance_id=client.instance,
            protocol_type=o.get("type", "consumer"),
            protocols=protocols,
            reason=o["reason"].replace("_", " ") if "reason" in o else None,
        )
        version = int(o.get("version", 9))
        if version < 8:
            request = request.replace(reason=None)
        self.world.ask(client.name, request, version)

    def do_sync(self, plain: list[str], o: dict[str, str]) -> None:
        client = self._client(plain[0])
        assignments = tuple(
            SyncGroupRequestAssignment(member_id=self._client(w).member_id, assignment=text.encode())
            for w, _, text in (a.partition(":") for a in o.get("assign", "").split(",") if a)
        )
        request = SyncGroupRequest(
            group_id=client.group,
            generation_id=int(o.get("generation", client.generation)),
            member_id=o.get("member", client.member_id),
            group_instance_id=client.instance,
            protocol_name=o.get("protocol"),
            assignments=assignments,
        )
        self.world.ask(client.name, request, 5)

    def do_heartbeat(self, plain: list[str], o: dict[str, str]) -> None:
        client = self._client(plain[0])
        request = HeartbeatRequest(
            group_id=o.get("group", client.group),
            generation_id=int(o.get("generation", client.generation)),
            member_id=o.get("member", client.member_id),
            group_instance_id=client.instance,
        )
        self.world.ask(client.name, request, 4)

    def do_leave(self, plain: list[str], o: dict[str, str]) -> None:
        client = self._client(plain[0])
        leaving = MemberIdentity(
            member_id=client.member_id,
            group_instance_id=client.instance,
            reason=o["reason"].replace("_", " ") if "reason" in o else None,
        )
        self.world.ask(client.name, LeaveGroupRequest(group_id=client.group, members=(leaving,)), 5)

    def do_remove(self, plain: list[str], o: dict[str, str]) -> None:
        leaving = tuple(MemberIdentity(group_instance_id=i) for i in o["instance"].split(","))
        request = LeaveGroupRequest(group_id=o.get("group", "g"), members=leaving)
        self.world.ask(plain[0], request, 5)

    def do_commit(self, plain: list[str], o: dict[str, str]) -> None:
        client = self._client(plain[0])
        topics = []
        for part in plain[1].split(","):
            where, _, offset = part.partition(":")
            topic, _, partition = where.rpartition("-")
            committed = OffsetCommitRequestPartition(
                partition_index=int(partition),
                committed_offset=int(offset),
                committed_metadata=o.get("metadata", ""),
            )
            topics.append(OffsetCommitRequestTopic(name=topic, partitions=(committed,)))
        request = OffsetCommitRequest(
            group_id=o.get("group", client.group),
            generation_id_or_member_epoch=int(o.get("generation", client.generation)),
            member_id=o.get("member", client.member_id),
            group_instance_id=client.instance,
            retention_time_ms=int(o.get("retention", -1)),
            topics=tuple(topics),
        )
        self.world.ask(client.name, request, int(o.get("version", 9)))

    def do_fetch(self, plain: list[str], o: dict[str, str]) -> None:
        group = OffsetFetchRequestGroup(group_id=o.get("group", "g"), topics=None)
        self.world.ask(plain[0], OffsetFetchRequest(groups=(group,)), 9)

    def do_describe(self, plain: list[str], o: dict[str, str]) -> None:
        self.world.ask("admin", DescribeGroupsRequest(groups=(plain[0],)), 6)

    def do_list(self, plain: list[str], o: dict[str, str]) -> None:
        states = tuple(o["state"].split(",")) if "state" in o else ()
        self.world.ask("admin", ListGroupsRequest(states_filter=states), 5)

    def do_delete(self, plain: list[str], o: dict[str, str]) -> None:
        self.world.ask("admin", DeleteGroupsRequest(groups_names=(plain[0],)), 3)

    def do_forget(self, plain: list[str], o: dict[str, str]) -> None:
        named = (where.rpartition("-") for where in plain[1].split(","))
        topics = tuple(
            OffsetDeleteRequestTopic(
                name=name, partitions=(OffsetDeleteRequestPartition(partition_index=int(index)),)
            )
            for name, _, index in named
        )
        self.world.ask("admin", OffsetDeleteRequest(group_id=plain[0], topics=topics), 0)

    def do_untopic(self, plain: list[str], o: dict[str, str]) -> None:
        gone = DeleteTopicState(name=plain[0], topic_id=TOPICS.by_name[plain[0]].id)
        self.world.ask("broker", DeleteTopicsRequest(topics=(gone,)), 6)

    def do_advance(self, plain: list[str], o: dict[str, str]) -> None:
        self.world.advance(int(plain[0]))

    def do_restart(self, plain: list[str], o: dict[str, str]) -> None:
        self.world.restart()

    def do_show(self, plain: list[str], o: dict[str, str]) -> list[str]:
        group = self.world.shard.groups.get(plain[0])
        timers = [
            f"timer {' '.join(key)} in {at - self.world.now_ms}"
            for key, at in sorted(self.world.timers.items(), key=repr)
        ]
        return [repr(group), *timers]


def short(answer: Struct | Errors) -> str:
    """A response on one line: what is not at its default."""
    if isinstance(answer, Errors):
        return answer.name
    told: Any = answer
    name = type(answer).__name__.removesuffix("Response")
    parts = []
    for f in answer.__fields__:
        value = getattr(told, f.name)
        if f.name == "error_code":
            parts.insert(0, Errors(value).name)
        elif value and value != ZERO_UUID and f.name not in ("throttle_time_ms",):
            parts.append(f"{f.name}={_short_value(value)}")
    return " ".join([name, *parts])


def _short_value(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_short_value(v) for v in value) + "]"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace").encode("unicode_escape").decode()
    if isinstance(value, Struct):
        return "{" + short(value).partition(" ")[2] + "}"
    return str(value)
