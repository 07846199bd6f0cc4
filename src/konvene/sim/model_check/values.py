"""Compact values of the model of a classic group, and their conversion from and to protocol messages.

A state of the model is a tuple of small tuples of numbers, so it can be hashed, compared, renamed and
exported. `build_request` and `compact_response` convert messages. The encoding:

    member id   a number from 1 on, 0 for none; its string form is `m-3`, or `i2-3` for static client 2
    instance    the number of the static client, 0 for none
    partitions  a bit mask of the partitions of the only topic; -1 if there is no assignment
    waiter      the number of the requesting client; `DISCONNECTED` or `NO_WAITER`
    error       Kafka's error code; `NO_RESPONSE` if the client timed out

Generations are absolute here; `symmetry` makes them relative to the generation of the group.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from konvene.client.consumer.protocol import CONSUMER, Subscription, write_subscription
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from konvene.shard.image import Topic, Topics

GROUP, TOPIC, PROTOCOL = "g", "t", "range"
SESSION_MS, REBALANCE_MS, INITIAL_DELAY_MS = 10_000, 6_000, 3_000
NOW_MS = 1_000
METADATA = write_subscription(Subscription((TOPIC,)))
CLIENT_ID, CLIENT_HOST = "m", "/sim"

JOIN, SYNC, HEARTBEAT, COMMIT, LEAVE, FETCH = range(1, 7)
APIS = {
    JOIN: "JoinGroup", SYNC: "SyncGroup", HEARTBEAT: "Heartbeat", COMMIT: "OffsetCommit", LEAVE: "LeaveGroup",
    FETCH: "OffsetFetch",
}  # fmt: skip
VERSIONS = {JOIN: 9, SYNC: 5, HEARTBEAT: 4, COMMIT: 9, LEAVE: 5, FETCH: 9}

NONE, NO_RESPONSE = 0, -99
DISCONNECTED, NO_WAITER = 0, -1
"""Waiters that are no client: the connection is closed; there is no pending request."""
DISCONNECTED_SENDER, FIRST_DISCONNECTED_WAITER = 99, 100
"""Waiter numbers of disconnected clients in the core: of the request at hand, and the first one of pending
requests."""

Message = tuple[Any, ...]
"""A request or a response: the API, followed by

    API        fields of a request                              fields of a response
    JOIN       member, instance                                 error, member, generation, members, skip
    SYNC       member, instance, generation, assignments        error, partitions
    HEARTBEAT  member, instance, generation                     error
    COMMIT     member, instance, generation, partition, offset  error, partition, offset
    LEAVE      member, instance
    FETCH                                                       error, offsets

`members` of a response to the leader are pairs of member and instance, otherwise (). `assignments` are
triples of member, instance and partitions."""


class Member(NamedTuple):
    """A member of the classic group. `member` and `instance` are its ids as numbers."""

    member: int
    instance: int
    assignment: int
    join_waiter: int
    """Waiter of the pending JoinGroup request."""
    sync_waiter: int
    """Waiter of the pending SyncGroup request."""
    is_new: int


class Group(NamedTuple):
    """The classic group in memory. `state` is Kafka's name of its state."""

    state: str
    generation: int
    leader: int
    members: tuple[Member, ...]
    pending_joins: tuple[int, ...]
    """Member ids that were assigned and have not joined yet."""
    pending_syncs: tuple[int, ...]
    """Members that have not sent SyncGroup yet."""
    initial_rebalance: tuple[int, int, int] | tuple[()]
    """During the initial rebalance: whether a member was added, the delay and the remaining delay in ms."""
    has_trace: int
    """Whether the causes of the current rebalance are recorded."""
    has_protocol: int
    has_protocol_type: int


class StoredGroup(NamedTuple):
    """The group as the last record in the log has it."""

    generation: int
    leader: int
    has_protocol: int
    has_protocol_type: int
    members: tuple[tuple[int, int, int], ...]
    """For each member: its member id, its instance id, and the partitions assigned to it."""


class Coordinator(NamedTuple):
    """The whole coordinator as a value: its memory, its log, its armed timers, and the history that
    invariants depend on."""

    group: Group | tuple[()]
    stored: StoredGroup | tuple[()]
    offsets: tuple[int, ...]
    """Committed offset of each partition; -1 if there is none."""
    sessions: tuple[int, ...]
    """Members whose session timer is armed."""
    join_timer: int
    sync_timer: int
    leader_assignment: tuple[tuple[int, int, int], ...]
    """Assignment that the leader of the stored generation sent: instance, member if it is dynamic,
    partitions."""
    has_cause: int
    """Whether the cause of the stored generation was recorded."""


class Client(NamedTuple):
    """A client of the model, with at most one request at a time."""

    phase: str
    """"absent", "joining", "syncing" or "active"."""
    member: int
    generation: int
    owned: int
    positions: tuple[int, ...]
    """Position in each partition; -1 if the partition is not owned."""
    starts_left: int
    """How many times the client may still be started."""
    exchange: tuple[Any, ...]
    """Progress of its request: (), ("request", request), ("waiting", api) or ("response", response)."""


class State(NamedTuple):
    """A state of the model."""

    coordinator: Coordinator
    clients: tuple[Client, ...]
    delayed: tuple[Message, ...]
    """Requests under way whose sender has left or died, and duplicates."""
    faults: int
    """How many faults may still happen."""


def topics(partitions: int) -> Topics:
    """Return the topics of the model: a single one with this many partitions."""
    return Topics([Topic(TOPIC, Uuid(b"t" * 16), partitions)])


# --- from compact values to messages ---------------------------------------------------------------


def instance_name(instance: int) -> str | None:
    return f"i{instance}" if instance else None


def member_name(member: int, instance: int) -> str:
    """Return the member id as a string; the empty string for member 0."""
    return f"{instance_name(instance) or CLIENT_ID}-{member}" if member else ""


def assignment_bytes(mask: int) -> bytes:
    """Return an assignment in the leader's encoding."""
    return b"" if mask < 0 else bytes((mask,))


def build_request(request: Message, partitions: int) -> Struct:
    """Convert a compact request to the protocol message that the coordinator receives."""
    return _BUILDERS[request[0]](request, partitions)


def _join(request: Message, partitions: int) -> Struct:
    _, member, instance = request
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_name(member, instance),
        group_instance_id=instance_name(instance),
        protocol_type=CONSUMER,
        protocols=(JoinGroupRequestProtocol(name=PROTOCOL, metadata=METADATA),),
    )


def _sync(request: Message, partitions: int) -> Struct:
    _, member, instance, generation, masks = request
    assignments = tuple(
        SyncGroupRequestAssignment(member_id=member_name(m, i), assignment=assignment_bytes(mask))
        for m, i, mask in masks
    )
    return SyncGroupRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_name(member, instance),
        group_instance_id=instance_name(instance),
        protocol_type=CONSUMER,
        protocol_name=PROTOCOL,
        assignments=assignments,
    )


def _heartbeat(request: Message, partitions: int) -> Struct:
    _, member, instance, generation = request
    return HeartbeatRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_name(member, instance),
        group_instance_id=instance_name(instance),
    )


def _commit(request: Message, partitions: int) -> Struct:
    _, member, instance, generation, partition, offset = request
    committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_name(member, instance),
        group_instance_id=instance_name(instance),
        topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(committed,)),),
    )


def _leave(request: Message, partitions: int) -> Struct:
    _, member, instance = request
    leaving = MemberIdentity(
        member_id=member_name(member, instance), group_instance_id=instance_name(instance)
    )
    return LeaveGroupRequest(group_id=GROUP, members=(leaving,))


def _fetch(request: Message, partitions: int) -> Struct:
    requested = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=tuple(range(partitions)))
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GROUP, topics=(requested,)),))


_BUILDERS = {JOIN: _join, SYNC: _sync, HEARTBEAT: _heartbeat, COMMIT: _commit, LEAVE: _leave, FETCH: _fetch}


# --- from messages to compact values ---------------------------------------------------------------


def member_number(member_id: str | None) -> int:
    return int(member_id.rpartition("-")[2]) if member_id else 0


def instance_number(instance_id: str | None) -> int:
    return int(instance_id[1:]) if instance_id else 0


def partition_mask(assignment: bytes) -> int:
    """Return the partitions of an assignment in the leader's encoding, as a bit mask; -1 if it is empty."""
    return assignment[0] if assignment else -1


def error_response(request: Message, error: int) -> Message:
    """Return the compact response to a compact request that the coordinator rejects with `error`."""
    error = int(error)
    if request[0] == JOIN:
        return (JOIN, error, request[1], -1, (), 0)
    if request[0] == COMMIT:
        return (COMMIT, error, request[4], request[5])
    return (SYNC, error, -1) if request[0] == SYNC else (request[0], error)


def compact_response(request: Message, response: Any) -> Message:
    """Convert a protocol message to a compact response. The partition and offset of an OffsetCommit are taken
    from `request`; for all other APIs only its first item, the API, is used."""
    api = request[0]
    if api == JOIN:
        listed = tuple(
            (member_number(m.member_id), instance_number(m.group_instance_id)) for m in response.members
        )
        head = (int(response.error_code), member_number(response.member_id), response.generation_id)
        return (JOIN, *head, listed, int(response.skip_assignment))
    if api == SYNC:
        return (SYNC, int(response.error_code), partition_mask(response.assignment))
    if api == COMMIT:
        return (COMMIT, int(response.topics[0].partitions[0].error_code), request[4], request[5])
    if api == FETCH:
        return (FETCH, NONE, tuple(p.committed_offset for p in response.groups[0].topics[0].partitions))
    return (api, int(response.error_code))


def members_in(kind: str, message: Message) -> list[int]:
    """Return the numbers of the member ids in a compact message; `kind` is "request" or "response"."""
    if kind == "request":
        return [message[1], *([m for m, _, _ in message[4]] if message[0] == SYNC else ())]
    if message[0] == JOIN and message[1] != NO_RESPONSE:
        return [message[2], *(m for m, _ in message[4])]
    return []


FIELDS = {
    JOIN: ("member", "instance"),
    SYNC: ("member", "instance", "generation", "assignments"),
    HEARTBEAT: ("member", "instance", "generation"),
    COMMIT: ("member", "instance", "generation", "partition", "offset"),
    LEAVE: ("member", "instance"),
    FETCH: (),
}
"""Names of the fields of each request."""


def format_request(request: Message) -> str:
    """Return a compact request as text, without fields that are 0 or empty."""
    fields = zip(FIELDS[request[0]], request[1:], strict=False)
    return " ".join(
        [APIS[request[0]], *(_field(name, value) for name, value in fields if value not in (0, ()))]
    )


def _field(name: str, value: Any) -> str:
    if name == "assignments":
        value = ",".join(f"{member}:{_partitions(mask)}" for member, _, mask in value)
    return f"{name}={value}"


def _partitions(mask: int) -> str:
    return "+".join(str(p) for p in range(8) if mask >= 0 and mask >> p & 1) or "-"


def format_response(response: Message) -> str:
    """Return a compact response as text: the API, the error, and what was assigned."""
    api, error = response[0], response[1]
    text = f"{APIS[api]} {'no response' if error == NO_RESPONSE else Errors(error).name}"
    if api == JOIN and error != NO_RESPONSE and response[2]:
        text += f" member={response[2]}" + (f" generation={response[3]}" if error == NONE else "")
    if api == SYNC and error == NONE:
        text += f" assigned={_partitions(response[2])}"
    return text
