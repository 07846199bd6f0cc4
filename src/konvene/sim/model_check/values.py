"""The values that the exhaustive search is made of, and how they stand for the real ones.

A state of the model is a tuple of small tuples of numbers: it can be hashed, compared, renamed and written
down. What stands for what is said here once; `real_request` and `small_answer` go between the two worlds.

    member id   a number from 1 on, 0 is "none"; its name is `m-3`, or `i2-3` for the static client 2
    instance    the number of the static client, 0 is "none"
    partitions  of the one topic, as bits of a number; -1 is "nothing was given"
    waiter      the number of the client who asks, 0 is somebody whom nobody hears any more, -1 is "none"
    error       Kafka's code; `SILENCE` where the client hears nothing and gives up waiting

Still ugly: generations are true numbers here, and only `names` makes them relative to the group's.
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

NONE, SILENCE = 0, -99
NOBODY, NO_WAITER = 0, -1
GHOST, SEATS_GHOST = 99, 100
"""Numbers of waiters that nobody hears: of who asks now, and from which on those are who wait already."""

Words = tuple[Any, ...]
"""A request or an answer: the API first, then
    JOIN       asks member, instance                          is told error, member, generation, members, skip
    SYNC       asks member, instance, generation, given       is told error, partitions
    HEARTBEAT  asks member, instance, generation              is told error
    COMMIT     asks member, instance, generation, p, offset   is told error, p, offset
    LEAVE      asks member, instance
    FETCH      asks nothing                                   is told error, offsets
`members` are those whom a leader hears of, each with its instance, else (); `given` has each with its
instance and partitions."""


class Seat(NamedTuple):
    """A member of the group."""

    member: int
    instance: int
    given: int
    joins: int
    """Whose JoinGroup waits."""
    syncs: int
    is_new: int


class Group(NamedTuple):
    """The group as it lives. `state` is Kafka's name of it."""

    state: str
    generation: int
    leader: int
    seats: tuple[Seat, ...]
    handed_out: tuple[int, ...]
    """Member ids that were handed out and have not joined."""
    to_sync: tuple[int, ...]
    """Members that have not asked for their assignment."""
    first: tuple[int, int, int] | tuple[()]
    """Of the first rebalance: whether a member was added, how long it waits, what is left of the time."""
    has_story: int
    has_protocol: int
    has_type: int


class Stored(NamedTuple):
    """The last record of the group in the log."""

    generation: int
    leader: int
    has_protocol: int
    has_type: int
    seats: tuple[tuple[int, int, int], ...]
    """Member, instance, given."""


class Coordinator(NamedTuple):
    """All of a coordinator: what lives, what is stored, which timers are armed; and what was promised."""

    group: Group | tuple[()]
    stored: Stored | tuple[()]
    offsets: tuple[int, ...]
    """By partition; -1 where nothing is committed."""
    sessions: tuple[int, ...]
    """Members whose session timer is armed."""
    join_timer: int
    sync_timer: int
    given: tuple[tuple[int, int, int], ...]
    """What the leader of the stored generation gave: instance, member if there is no instance, partitions."""
    told: int
    """Whether it was told why there is the stored generation."""


class Client(NamedTuple):
    """A client. `slot` is its one question: (), ("asks", request), ("waits", api) or ("hears", answer)."""

    phase: str
    """"gone", "joining", "syncing" or "in"."""
    member: int
    generation: int
    owned: int
    at: tuple[int, ...]
    """Its position in each partition; -1 where it has none."""
    lives: int
    """How many times it may still be started."""
    slot: tuple[Any, ...]


class State(NamedTuple):
    """A state of the model."""

    coordinator: Coordinator
    clients: tuple[Client, ...]
    late: tuple[Words, ...]
    """Requests under way from who is not there any more, and second copies."""
    faults: int
    """How many may still happen."""


def topics(partitions: int) -> Topics:
    """The one topic."""
    return Topics([Topic(TOPIC, Uuid(b"t" * 16), partitions)])


# --- small to real ---------------------------------------------------------------------------------


def instance_name(instance: int) -> str | None:
    return f"i{instance}" if instance else None


def member_name(member: int, instance: int) -> str:
    """Of no member, the empty id."""
    return f"{instance_name(instance) or CLIENT_ID}-{member}" if member else ""


def bits(given: int) -> bytes:
    """An assignment as its leader writes it."""
    return b"" if given < 0 else bytes((given,))


def real_request(asked: Words, partitions: int) -> Struct:
    """The request that a coordinator is given."""
    return _REAL[asked[0]](asked, partitions)


def _join(asked: Words, partitions: int) -> Struct:
    _, member, instance = asked
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_name(member, instance),
        group_instance_id=instance_name(instance),
        protocol_type=CONSUMER,
        protocols=(JoinGroupRequestProtocol(name=PROTOCOL, metadata=METADATA),),
    )


def _sync(asked: Words, partitions: int) -> Struct:
    _, member, instance, generation, given = asked
    assignments = tuple(
        SyncGroupRequestAssignment(member_id=member_name(m, i), assignment=bits(what)) for m, i, what in given
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


def _heartbeat(asked: Words, partitions: int) -> Struct:
    _, member, instance, generation = asked
    return HeartbeatRequest(
        group_id=GROUP,
        generation_id=generation,
        member_id=member_name(member, instance),
        group_instance_id=instance_name(instance),
    )


def _commit(asked: Words, partitions: int) -> Struct:
    _, member, instance, generation, partition, offset = asked
    told = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_name(member, instance),
        group_instance_id=instance_name(instance),
        topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=(told,)),),
    )


def _leave(asked: Words, partitions: int) -> Struct:
    _, member, instance = asked
    leaving = MemberIdentity(
        member_id=member_name(member, instance), group_instance_id=instance_name(instance)
    )
    return LeaveGroupRequest(group_id=GROUP, members=(leaving,))


def _fetch(asked: Words, partitions: int) -> Struct:
    wanted = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=tuple(range(partitions)))
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GROUP, topics=(wanted,)),))


_REAL = {JOIN: _join, SYNC: _sync, HEARTBEAT: _heartbeat, COMMIT: _commit, LEAVE: _leave, FETCH: _fetch}


# --- real to small ---------------------------------------------------------------------------------


def member_number(member_id: str | None) -> int:
    return int(member_id.rpartition("-")[2]) if member_id else 0


def instance_number(instance_id: str | None) -> int:
    return int(instance_id[1:]) if instance_id else 0


def bits_of(given: bytes) -> int:
    return given[0] if given else -1


def refused(asked: Words, error: int) -> Words:
    """The answer of a handler where the core refuses."""
    error = int(error)
    if asked[0] == JOIN:
        return (JOIN, error, asked[1], -1, (), 0)
    if asked[0] == COMMIT:
        return (COMMIT, error, asked[4], asked[5])
    return (SYNC, error, -1) if asked[0] == SYNC else (asked[0], error)


def small_answer(asked: Words, answer: Any) -> Words:
    """What a client learns from an answer. `asked` is the question, as far as it is known."""
    api = asked[0]
    if api == JOIN:
        listed = tuple(
            (member_number(m.member_id), instance_number(m.group_instance_id)) for m in answer.members
        )
        told = (int(answer.error_code), member_number(answer.member_id), answer.generation_id)
        return (JOIN, *told, listed, int(answer.skip_assignment))
    if api == SYNC:
        return (SYNC, int(answer.error_code), bits_of(answer.assignment))
    if api == COMMIT:
        return (COMMIT, int(answer.topics[0].partitions[0].error_code), asked[4], asked[5])
    if api == FETCH:
        return (FETCH, NONE, tuple(p.committed_offset for p in answer.groups[0].topics[0].partitions))
    return (api, int(answer.error_code))


def named(kind: str, words: Words) -> list[int]:
    """The members that a request or an answer names."""
    if kind == "asks":
        return [words[1], *([m for m, _, _ in words[4]] if words[0] == SYNC else ())]
    if words[0] == JOIN and words[1] != SILENCE:
        return [words[2], *(m for m, _ in words[4])]
    return []


FIELDS = {
    JOIN: ("member", "instance"),
    SYNC: ("member", "instance", "generation", "assignments"),
    HEARTBEAT: ("member", "instance", "generation"),
    COMMIT: ("member", "instance", "generation", "partition", "offset"),
    LEAVE: ("member", "instance"),
    FETCH: (),
}
"""What a request says, by name; zero and nothing are not said."""


def is_request(asked: Words) -> str:
    """A request in short, for people."""
    fields = zip(FIELDS[asked[0]], asked[1:], strict=False)
    return " ".join([APIS[asked[0]], *(_field(name, what) for name, what in fields if what not in (0, ()))])


def _field(name: str, what: Any) -> str:
    if name == "assignments":
        what = ",".join(f"{member}:{_partitions(given)}" for member, _, given in what)
    return f"{name}={what}"


def _partitions(given: int) -> str:
    return "+".join(str(p) for p in range(8) if given >= 0 and given >> p & 1) or "-"


def hears(told: Words) -> str:
    """An answer in short, for people."""
    api, error = told[0], told[1]
    found = f"{APIS[api]} {'no answer' if error == SILENCE else Errors(error).name}"
    if api == JOIN and error != SILENCE and told[2]:
        found += f" member={told[2]}" + (f" generation={told[3]}" if error == NONE else "")
    if api == SYNC and error == NONE:
        found += f" assigned={_partitions(told[2])}"
    return found
