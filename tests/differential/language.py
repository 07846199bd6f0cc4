"""The lines of a conversation: each is one request, built from the state that the client remembers.

    join WHO [v=9] [group=g] [static=ID] [member=M] [session=30000] [rebalance=30000] [type=consumer]
             [protocols=range:orders,sticky:orders] [reason=TEXT] [client=ID]
    sync WHO [v=5] [assign=all|none|WHO:TEXT,...] [generation=G] [member=M] [static=ID] [type=T] [protocol=P]
    heartbeat WHO [v=4] [generation=G] [member=M] [static=ID]
    leave WHO [v=5] [members=MEMBER|STATIC|REASON,...]              the client itself, unless members= is set
    commit WHO TOPIC-PARTITION:OFFSET[:METADATA],... [v=9] [generation=G] [member=M] [static=ID] [epoch=E]
               [retention=MS]
    fetch WHO [TOPIC-PARTITION,...|all] [v=9] [groups=g,h] [stable=yes] [member=M] [generation=G]
    forget WHO TOPIC-PARTITION,... [group=g]
    describe WHO g,h [v=6] [operations=yes]      list WHO [v=5] [states=A,B] [types=C,D]
    delete WHO g,h [v=3]                         find WHO g,h [v=6] [type=0]
    hang WHO                                     close the connection
    wait MS                                      restart [SETTING=VALUE ...] | kill
    topic NAME PARTITIONS                        untopic NAME

`consumers.py`, `streams.py`, `shares.py` and `transactions.py` define the lines of members of consumer,
streams and share groups and of transactional producers.

WHO is a client's name; `ann/2` is ann on a second connection. A request on a connection with a pending
request closes that connection and opens a new one. Member ids are `-` (empty), `WHO` (that client's id) or
`!TEXT` (literal). Generations are numbers, `next` or `last`. The protocol type and name of a sync default to
those of the client's last JoinGroup response; `-` omits them. Group names are prefixed with the
conversation's tag; `-` is the empty name. Texts may be percent-encoded (%00), and `x*32000` repeats a text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
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
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

UNKNOWN_ID = Uuid(b"there is no such")

LATEST = {
    "join": 9, "sync": 5, "heartbeat": 4, "leave": 5, "commit": 9, "fetch": 9, "forget": 0, "describe": 6,
    "list": 5, "delete": 3, "find": 6, "beat": 1, "picture": 1, "work": 1, "survey": 1, "draw": 0, "alter": 1,
    "init": 5, "enlist": 3, "pledge": 4, "write": 13, "stow": 5, "end": 5, "mark": 1, "inquire": 0, "roll": 2,
    "producers": 0, "read": 12, "ends": 7, "share": 1, "take": 2, "ack": 2, "fill": 13, "crowd": 1,
    "stand": 1, "move": 0, "quit": 0,
}  # fmt: skip
"""Default version of each request. Versions with topic ids are selected by `v=`."""


@dataclass
class Memory:
    """State that a client keeps from the responses it received."""

    group: str = "g"
    member_id: str = ""
    instance: str | None = None
    generation: int = -1
    led: tuple[str, ...] = ()
    """Member ids of the generation if this client leads it, in order of first appearance."""
    protocol_type: str | None = "consumer"
    protocol: str | None = "range"
    last: tuple[str, Errors] | None = None
    """Its last request as a member, and the error code of the response."""
    assigned: dict[Uuid, tuple[int, ...]] = field(default_factory=dict)
    reads: tuple[str, ...] | None = ("orders",)
    regex: str | None = None
    kinds: dict[str, str] = field(default_factory=dict)
    """Type and state of each group in its last ListGroups response."""
    tasks: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    """Assigned partitions by role (active, standby, warmup) and subtopology."""
    topology: str = "map"
    process: str | None = None
    endpoint: str | None = None
    endpoint_epoch: int = -1
    statuses: tuple[int, ...] = ()
    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequences: dict[tuple[int, int, str], int] = field(default_factory=dict)
    """Next sequence number by producer id, epoch and partition."""
    writing: tuple[tuple[int, int, str], int] | None = None
    last_error: Errors | None = None
    """Error code of its last response as a producer or in its share session."""
    session: int = 0
    """Epoch of its next request in its share session."""
    requested_session: int = 0
    held: dict[tuple[Uuid, int], list[tuple[int, int]]] = field(default_factory=dict)
    """Acquired offset ranges by partition; a walk removes a range when it acknowledges it."""


@dataclass
class Line:
    """A parsed line of a conversation."""

    verb: str
    client: str
    plain: list[str]
    options: dict[str, str]

    @classmethod
    def read(cls, text: str) -> Line:
        verb, *words = text.split()
        options = dict(w.split("=", 1) for w in words if re.match(r"[a-z]+=", w))
        plain = [w for w in words if not re.match(r"[a-z]+=", w)]
        client = plain.pop(0) if verb in LATEST else ""
        return cls(verb, client, plain, options)

    @property
    def version(self) -> int:
        return int(self.options.get("v", LATEST[self.verb]))


@dataclass
class Speaker:
    """Builds requests from lines. `tag` prefixes the names of the conversation's groups and topics."""

    tag: str
    memories: dict[str, Memory] = field(default_factory=dict)
    topic_ids: dict[str, Uuid] = field(default_factory=dict)

    def of(self, client: str) -> Memory:
        return self.memories.setdefault(client.partition("/")[0], Memory())

    def request(self, line: Line) -> Struct:
        made: Struct = getattr(self, f"_{line.verb}")(self.of(line.client), line)
        return made

    def group(self, name: str) -> str:
        return "" if name == "-" else self.tag + text(name)

    def topic(self, name: str) -> str:
        return self.tag + name if name.startswith("own") else name

    def _members_group(self, memory: Memory, line: Line) -> str:
        memory.group = line.options.get("group", memory.group)
        return self.group(memory.group)

    def _member(self, memory: Memory, word: str | None) -> str:
        if word is None:
            return memory.member_id
        if word == "-":
            return ""
        return text(word[1:]) if word.startswith("!") else self.of(word).member_id

    def _generation(self, memory: Memory, word: str | None) -> int:
        if word is None:
            return memory.generation
        return memory.generation + {"next": 1, "last": -1}[word] if word.isalpha() else int(word)

    def _instance(self, memory: Memory, line: Line, since: int) -> str | None:
        option = line.options.get("static")
        instance = memory.instance if option is None else None if option == "-" else text(option)
        return instance if line.version >= since else None

    # --- members ---

    def _join(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        if "static" in o:
            memory.instance = None if o["static"] == "-" else text(o["static"])
        named = [p.partition(":") for p in o.get("protocols", "range:orders").split(",") if p]
        return JoinGroupRequest(
            group_id=self._members_group(memory, line),
            session_timeout_ms=int(o.get("session", 30_000)),
            rebalance_timeout_ms=int(o.get("rebalance", 30_000)) if line.version else -1,
            member_id=self._member(memory, o.get("member")),
            group_instance_id=self._instance(memory, line, 5),
            protocol_type=text(o.get("type", "consumer")),
            protocols=tuple(
                JoinGroupRequestProtocol(name=text(n), metadata=self._metadata(memory, line, m))
                for n, _, m in named
            ),
            reason=text(o["reason"]) if "reason" in o and line.version >= 8 else None,
        )

    def _metadata(self, memory: Memory, line: Line, quoted: str) -> bytes:
        return unquote_to_bytes(quoted)

    def _sync(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        given = self._given(memory, o.get("assign", "all"))
        return SyncGroupRequest(
            group_id=self._members_group(memory, line),
            generation_id=self._generation(memory, o.get("generation")),
            member_id=self._member(memory, o.get("member")),
            group_instance_id=self._instance(memory, line, 3),
            protocol_type=self._protocol(line, "type", memory.protocol_type),
            protocol_name=self._protocol(line, "protocol", memory.protocol),
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in given.items()
            ),
        )

    def _given(self, memory: Memory, assign: str) -> dict[str, bytes]:
        if assign == "all":
            return {m: b"a%d" % i for i, m in enumerate(memory.led)}
        if assign == "none":
            return {}
        named = (a.partition(":") for a in assign.split(","))
        return {self._member(memory, w): text(t).encode() for w, _, t in named}

    @staticmethod
    def _protocol(line: Line, name: str, remembered: str | None) -> str | None:
        option = line.options.get(name)
        if line.version < 5 or option == "-":
            return None
        return remembered if option is None else text(option)

    def _heartbeat(self, memory: Memory, line: Line) -> Struct:
        return HeartbeatRequest(
            group_id=self._members_group(memory, line),
            generation_id=self._generation(memory, line.options.get("generation")),
            member_id=self._member(memory, line.options.get("member")),
            group_instance_id=self._instance(memory, line, 3),
        )

    def _leave(self, memory: Memory, line: Line) -> Struct:
        group = self._members_group(memory, line)
        if line.version < 3:
            return LeaveGroupRequest(
                group_id=group, member_id=self._member(memory, line.options.get("member"))
            )
        named = line.options.get("members")
        if named is None:
            reason = line.options.get("reason") if line.version >= 5 else None
            own = MemberIdentity(
                member_id=self._member(memory, line.options.get("member")),
                group_instance_id=self._instance(memory, line, 3),
                reason=None if reason is None else text(reason),
            )
            return LeaveGroupRequest(group_id=group, members=(own,))
        leaving = []
        for word in filter(None, named.split(",")):
            member, instance, reason = (*word.split("|"), "-", "-")[:3]
            leaving.append(
                MemberIdentity(
                    member_id=self._member(memory, member),
                    group_instance_id=None if instance == "-" else text(instance),
                    reason=None if reason == "-" or line.version < 5 else text(reason),
                )
            )
        return LeaveGroupRequest(group_id=group, members=tuple(leaving))

    # --- offsets ---

    def _commit(self, memory: Memory, line: Line) -> Struct:
        o = line.options
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for word in line.plain[0].split(","):
            where, offset, metadata = (*word.split(":"), "")[:3]
            name, _, partition = where.rpartition("-")
            committed = OffsetCommitRequestPartition(
                partition_index=int(partition),
                committed_offset=int(offset),
                committed_leader_epoch=int(o.get("epoch", -1)) if line.version >= 6 else -1,
                committed_metadata=None if metadata == "null" else text(metadata),
            )
            by_topic.setdefault(name, []).append(committed)
        return OffsetCommitRequest(
            group_id=self._members_group(memory, line),
            generation_id_or_member_epoch=self._generation(memory, o.get("generation")),
            member_id=self._member(memory, o.get("member")),
            group_instance_id=self._instance(memory, line, 7),
            retention_time_ms=int(o.get("retention", -1)) if line.version <= 4 else -1,
            topics=tuple(
                OffsetCommitRequestTopic(partitions=tuple(p), **self._named(name, line.version))
                for name, p in by_topic.items()
            ),
        )

    def _named(self, name: str, version: int) -> dict[str, Any]:
        if version < 10:
            return {"name": self.topic(name)}
        return {"topic_id": ZERO_UUID if name == "zero" else self.topic_ids.get(self.topic(name), UNKNOWN_ID)}

    def _fetch(self, memory: Memory, line: Line) -> Struct:
        o, version = line.options, line.version
        requested = None if not line.plain or line.plain[0] == "all" else partitions(line.plain[0])
        groups = [self.group(g) for g in o.get("groups", o.get("group", "g")).split(",")]
        stable = o.get("stable") == "yes" and version >= 7
        if version < 8:
            older = None
            if requested is not None or version < 2:
                older = tuple(
                    OffsetFetchRequestTopic(name=self.topic(n), partition_indexes=tuple(p))
                    for n, p in (requested or {}).items()
                )
            return OffsetFetchRequest(group_id=groups[0], topics=older, require_stable=stable)
        topics = None
        if requested is not None:
            topics = tuple(
                OffsetFetchRequestTopics(partition_indexes=tuple(p), **self._named(n, version))
                for n, p in requested.items()
            )
        member = self._member(memory, o["member"]) if "member" in o and version >= 9 else None
        epoch = self._generation(memory, o["generation"]) if "generation" in o and version >= 9 else -1
        return OffsetFetchRequest(
            groups=tuple(
                OffsetFetchRequestGroup(group_id=g, member_id=member, member_epoch=epoch, topics=topics)
                for g in groups
            ),
            require_stable=stable,
        )

    def _forget(self, memory: Memory, line: Line) -> Struct:
        return OffsetDeleteRequest(
            group_id=self.group(line.options.get("group", "g")),
            topics=tuple(
                OffsetDeleteRequestTopic(
                    name=self.topic(n),
                    partitions=tuple(OffsetDeleteRequestPartition(partition_index=i) for i in p),
                )
                for n, p in partitions(line.plain[0]).items()
            ),
        )

    # --- administration of groups ---

    def _named_groups(self, line: Line) -> tuple[str, ...]:
        return tuple(self.group(g) for word in line.plain for g in word.split(","))

    def _describe(self, memory: Memory, line: Line) -> Struct:
        requested = line.options.get("operations") == "yes" and line.version >= 3
        return DescribeGroupsRequest(groups=self._named_groups(line), include_authorized_operations=requested)

    def _list(self, memory: Memory, line: Line) -> Struct:
        def listed(name: str, since: int) -> tuple[str, ...]:
            option = line.options.get(name)
            return tuple(option.split(",")) if option is not None and line.version >= since else ()

        return ListGroupsRequest(states_filter=listed("states", 4), types_filter=listed("types", 5))

    def _delete(self, memory: Memory, line: Line) -> Struct:
        return DeleteGroupsRequest(groups_names=self._named_groups(line))

    def _find(self, memory: Memory, line: Line) -> Struct:
        keys, kind = self._named_groups(line), int(line.options.get("type", 0))
        if line.version >= 4:
            return FindCoordinatorRequest(key_type=kind, coordinator_keys=keys)
        return FindCoordinatorRequest(key=keys[0], key_type=kind if line.version else 0)


def text(word: str) -> str:
    """Decode a text: `x*5` is xxxxx, `%00` is NUL."""
    many = re.fullmatch(r"(.+)\*(\d+)", word)
    return unquote(many[1]) * int(many[2]) if many else unquote(word)


def partitions(word: str) -> dict[str, list[int]]:
    """Parse `orders-0,orders-1,audit-0` into partitions by topic."""
    found: dict[str, list[int]] = {}
    for where in word.split(","):
        name, _, partition = where.rpartition("-")
        found.setdefault(name, []).append(int(partition))
    return found
