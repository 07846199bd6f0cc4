"""Rows 24 to 26, 38 to 42, 45 and 46 of the hostile inputs: invalid requests to classic groups.

The expected responses are those of Apache Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from select import select
from typing import Any

import pytest
from tests.broker.hostile.wire import WITHIN_S, Client, Target, frame, header, started

from konvene.codec.compile import decode, encode
from konvene.codec.schema import Struct
from konvene.errors import Errors
from konvene.messages import BY_NAME
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
from konvene.messages.heartbeat import HeartbeatRequest
from konvene.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_delete import OffsetDeleteRequest
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TOPIC = "hostile-groups"
MAX_GROUP_SIZE = 3
INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Start a broker with small groups, no initial rebalance delay, and a topic of four partitions."""
    settings = {"group.max.size": str(MAX_GROUP_SIZE), "group.initial.rebalance.delay.ms": "0"}
    with started(tmp_path_factory.mktemp("groups"), settings) as target:
        target.topic(TOPIC, 4)
        target.coordinator("g")
        yield target
        assert target.ask(DescribeGroupsRequest(groups=("g",)), 5) is not None, (
            "the broker no longer serves requests"
        )


# --- requests -------------------------------------------------------------------------------------------


def join(group_id: str, member_id: str = "", protocols: tuple[str, ...] = ("range",), **more: Any) -> Any:
    metadata: bytes = more.pop("metadata", b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\0")
    fields: dict[str, Any] = {
        "group_id": group_id,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "member_id": member_id,
        "protocols": tuple(JoinGroupRequestProtocol(name=p, metadata=metadata) for p in protocols),
    }
    return JoinGroupRequest(**fields | more)


def sync(group_id: str, member_id: str, generation: int, **assigned: bytes) -> Any:
    assignments = tuple(
        SyncGroupRequestAssignment(member_id=m.replace("_", "-"), assignment=a) for m, a in assigned.items()
    )
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )


def commit(group_id: str, offset: int = 5, partitions: tuple[int, ...] = (0,), **more: Any) -> Any:
    committed = tuple(
        OffsetCommitRequestPartition(
            partition_index=p,
            committed_offset=offset,
            committed_leader_epoch=more.get("leader_epoch", -1),
            committed_metadata=more.get("metadata", ""),
        )
        for p in partitions
    )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=more.get("generation", -1),
        member_id=more.get("member_id", ""),
        group_instance_id=more.get("instance_id"),
        topics=(OffsetCommitRequestTopic(name=TOPIC, partitions=committed),),
    )


def fetch_committed(target: Target, group_id: str, partition: int = 0) -> Any:
    topics = (OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(partition,)),)
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group_id, topics=topics),))
    return target.ask(request, 9).groups[0].topics[0].partitions[0]


def code(response: Any) -> str:
    """Return the name of the single error of a response, at any depth."""
    assert response is not None, "the connection was closed"
    found = {getattr(response, "error_code", 0)}
    for field in ("members", "topics", "partitions", "groups", "results", "coordinators"):
        for part in getattr(response, field, ()):
            found.add(Errors[code(part)])
    names = sorted(Errors(c).name for c in found if c) or ["NONE"]
    assert len(names) == 1, names
    return names[0]


def send(client: Client, request: Struct, version: int) -> None:
    api = BY_NAME[type(request).__name__.removesuffix("Request")]
    client.send(frame(header(api.key, version) + encode(request, version)))


def receive(client: Client, request: Struct, version: int) -> Any:
    api = BY_NAME[type(request).__name__.removesuffix("Request")]
    response = client.frame()
    assert response is not None
    return decode(api.response, version, response, 5 if api.response_header_version(version) else 4)


def join_with_member_id(target: Target, group_id: str, **more: Any) -> Any:
    """Join as a dynamic member: request a member id, then join with it; return the second response."""
    first = target.ask(join(group_id, **more), 7)
    assert code(first) == "MEMBER_ID_REQUIRED"
    return target.ask(join(group_id, first.member_id, **more), 7)


# --- rows 24 to 26: group ids and generations -----------------------------------------------------------

EMPTY_GROUP_ID = {
    "JoinGroup": (join(""), 9),
    "SyncGroup": (sync("", "m", 1), 5),
    "Heartbeat": (HeartbeatRequest(group_id="", generation_id=1, member_id="m"), 4),
    "LeaveGroup": (LeaveGroupRequest(group_id="", members=(MemberIdentity(member_id="m"),)), 5),
    "OffsetCommit": (commit(""), 9),
    "OffsetDelete": (OffsetDeleteRequest(group_id=""), 0),
    "DescribeGroups": (DescribeGroupsRequest(groups=("",)), 5),
    "DeleteGroups": (DeleteGroupsRequest(groups_names=("",)), 2),
    "FindCoordinator": (FindCoordinatorRequest(key_type=0, coordinator_keys=("",)), 4),
}
EMPTY_GROUP_ID_ERRORS = {
    "OffsetCommit": "NONE",
    "DescribeGroups": "NONE",
    "DeleteGroups": "NONE",
    "FindCoordinator": "NONE",
}


@pytest.mark.parametrize("name", EMPTY_GROUP_ID)
def test_row_24_an_empty_group_id(name: str, groups: Target) -> None:
    """It cannot have members. As in Kafka, offsets can be committed to it."""
    request, version = EMPTY_GROUP_ID[name]
    assert code(groups.ask(request, version)) == EMPTY_GROUP_ID_ERRORS.get(name, "INVALID_GROUP_ID")


UNUSUAL_GROUP_IDS = {
    "32 KB": "g" * 32_767,
    "NUL": "a\0b",
    "emoji": "🐘" * 100,
    "spaces": "   ",
    "a path": "../../../etc/passwd",
    "lines": "a\r\nb",
    "astral and combining": "e\u0301\u202egnp.exe",
}


@pytest.mark.parametrize("name", UNUSUAL_GROUP_IDS)
def test_row_25_unusual_group_ids(name: str, groups: Target) -> None:
    """They work like other ids: offsets can be committed and members can join."""
    group_id = UNUSUAL_GROUP_IDS[name]
    assert code(groups.ask(commit(group_id, 77), 8)) == "NONE"
    assert fetch_committed(groups, group_id).committed_offset == 77
    assert code(join_with_member_id(groups, group_id)) == "NONE"
    (described,) = groups.ask(DescribeGroupsRequest(groups=(group_id,)), 5).groups
    assert (described.group_id, described.group_state) == (group_id, "CompletingRebalance")
    assert len(described.members) == 1


def test_row_25_many_groups(groups: Target) -> None:
    """Commits create a thousand groups: each takes two kilobytes at most, and can be deleted."""
    before = groups.rss_mib
    many = 1000
    with groups.client() as client:
        for start in range(0, many, 100):
            batch = [commit(f"many-{i}") for i in range(start, start + 100)]
            for request in batch:
                send(client, request, 8)
            assert {code(receive(client, request, 8)) for request in batch} == {"NONE"}
    if not groups.is_kafka:
        assert groups.rss_mib - before < many * 2 / 1024 + 10
    names = tuple(f"many-{i}" for i in range(many))
    assert code(groups.ask(DeleteGroupsRequest(groups_names=names), 2)) == "NONE"


GENERATIONS = {
    "-2, without a member id": ({"generation": -2}, "NONE"),
    "-2^31, without a member id": ({"generation": INT32_MIN}, "NONE"),
    "-2 and a member id": ({"generation": -2, "member_id": "m"}, "NONE"),
    "-2 and an instance id": ({"generation": -2, "instance_id": "i"}, "NONE"),
    "0 without a member id": ({"generation": 0}, "ILLEGAL_GENERATION"),
    "1 without a member id": ({"generation": 1}, "ILLEGAL_GENERATION"),
    "2^31 - 1 and a member id": ({"generation": INT32_MAX, "member_id": "m"}, "ILLEGAL_GENERATION"),
}


@pytest.mark.parametrize("name", GENERATIONS)
def test_row_26_generations_in_an_empty_group(name: str, groups: Target) -> None:
    """In a group without members, a negative generation is a commit from outside the group."""
    fields, expected = GENERATIONS[name]
    assert code(groups.ask(commit(f"row-26 {name}", **fields), 8)) == expected


WRONG_GENERATIONS = {
    "-1": -1,
    "-2": -2,
    "-2^31": INT32_MIN,
    "ahead": 2,
    "2^31 - 1": INT32_MAX,
}


@pytest.mark.parametrize("name", WRONG_GENERATIONS)
def test_row_26_wrong_generations_of_a_member(name: str, groups: Target) -> None:
    """Requests of a member with another generation than the group's receive ILLEGAL_GENERATION."""
    member = join_with_member_id(groups, f"row-26-{name}")
    group_id, generation, member_id = f"row-26-{name}", WRONG_GENERATIONS[name], member.member_id
    assert member.generation_id == 1
    requests: list[tuple[Any, int]] = [
        (HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id), 4),
        (sync(group_id, member_id, generation), 5),
        (commit(group_id, generation=generation, member_id=member_id), 8),
    ]
    assert [code(groups.ask(*request)) for request in requests] == ["ILLEGAL_GENERATION"] * 3


# --- rows 38 to 40: JoinGroup and SyncGroup fields ------------------------------------------------------

JOINS = {
    "row 38: no protocols": (join("j-a", protocols=()), "INCONSISTENT_GROUP_PROTOCOL"),
    "row 38: no protocol type": (join("j-b", protocol_type=""), "INCONSISTENT_GROUP_PROTOCOL"),
    "row 38: neither": (join("j-c", protocols=(), protocol_type=""), "INCONSISTENT_GROUP_PROTOCOL"),
    "row 38: a protocol without a name": (join("j-d", protocols=("",)), "MEMBER_ID_REQUIRED"),
    "row 38: an unknown member id": (join("j-e", "member_id"), "UNKNOWN_MEMBER_ID"),
    "row 38: and an instance id": (join("j-f", "member_id", group_instance_id="i"), "UNKNOWN_MEMBER_ID"),
    "row 39: session of 0 ms": (join("j-g", session_timeout_ms=0), "INVALID_SESSION_TIMEOUT"),
    "row 39: session of -1 ms": (join("j-h", session_timeout_ms=-1), "INVALID_SESSION_TIMEOUT"),
    "row 39: session of 5,999 ms": (join("j-i", session_timeout_ms=5999), "INVALID_SESSION_TIMEOUT"),
    "row 39: session of 6,000 ms": (join("j-j", session_timeout_ms=6000), "MEMBER_ID_REQUIRED"),
    "row 39: session of 1,800,000 ms": (join("j-k", session_timeout_ms=1_800_000), "MEMBER_ID_REQUIRED"),
    "row 39: session of 1,800,001 ms": (join("j-l", session_timeout_ms=1_800_001), "INVALID_SESSION_TIMEOUT"),
    "row 39: session of 2^31 - 1 ms": (join("j-m", session_timeout_ms=INT32_MAX), "INVALID_SESSION_TIMEOUT"),
}


@pytest.mark.parametrize("name", JOINS)
def test_rows_38_and_39_joins(name: str, groups: Target) -> None:
    """Invalid fields are rejected; the broker's configs bound the session timeout."""
    request, expected = JOINS[name]
    assert code(groups.ask(request, 9)) == expected


@pytest.mark.parametrize("timeout_ms", [0, -1, -2, INT32_MIN, INT32_MAX])
def test_row_39_rebalance_timeouts(timeout_ms: int, groups: Target) -> None:
    """Every value is accepted: the only member's rebalance completes at once, and it can leave."""
    group_id = f"row-39-{timeout_ms}"
    member = join_with_member_id(groups, group_id, rebalance_timeout_ms=timeout_ms)
    assert (code(member), member.generation_id) == ("NONE", 1)
    leaving = LeaveGroupRequest(group_id=group_id, members=(MemberIdentity(member_id=member.member_id),))
    assert code(groups.ask(leaving, 5)) in ("NONE", "UNKNOWN_MEMBER_ID")


@pytest.mark.parametrize(
    "request_", [join("row-38", protocols=("sticky",)), join("row-38", protocol_type="connect")],
    ids=["protocol", "type"],
)  # fmt: skip
def test_row_38_a_protocol_or_type_that_the_group_does_not_have(request_: Any, groups: Target) -> None:
    """A member that shares no protocol with the others, or has another protocol type, is rejected."""
    with groups.client() as client:
        send(client, join("row-38", group_instance_id="first"), 7)
        receive(client, join("row-38"), 7)
        assert code(groups.ask(request_, 9)) == "INCONSISTENT_GROUP_PROTOCOL"


def test_row_38_many_pending_members(groups: Target) -> None:
    """3,000 member ids that never join: a kilobyte each at most, and they do not fill the group."""
    before = groups.rss_mib
    many = 3000
    with groups.client() as client:
        for _ in range(many // 100):
            for _ in range(100):
                send(client, join("pending"), 7)
            responses = [receive(client, join("pending"), 7) for _ in range(100)]
            assert {code(response) for response in responses} == {"MEMBER_ID_REQUIRED"}
    if not groups.is_kafka:
        assert groups.rss_mib - before < many / 1024 + 10
    assert code(join_with_member_id(groups, "pending")) == "NONE"


MALFORMED = {
    "nothing": b"",
    "one byte": b"\0",
    "a negative version": b"\xff\xff",
    "a future version": b"\x7f\xff" + b"\0" * 10,
    "a huge count": b"\0\1\x7f\xff\xff\xff",
    "a text longer than all": b"\0\1\0\0\0\1\x7f\xff",
    "noise": bytes(range(256)) * 40,
    "much": b"m" * 400_000,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_row_40_malformed_subscriptions_and_assignments(name: str, groups: Target) -> None:
    """They are opaque to the broker: stored, distributed and described unchanged."""
    data, group_id = MALFORMED[name], f"row-40-{name}"
    member = join_with_member_id(groups, group_id, metadata=data)
    assert code(member) == "NONE"
    assert [m.metadata for m in member.members] == [data]
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=1,
        member_id=member.member_id,
        assignments=(SyncGroupRequestAssignment(member_id=member.member_id, assignment=data),),
    )
    response = groups.ask(request, 4)
    assert (code(response), response.assignment) == ("NONE", data)
    (described,) = groups.ask(DescribeGroupsRequest(groups=(group_id,)), 5).groups
    assert [(m.member_metadata, m.member_assignment) for m in described.members] == [(data, data)]
    assert code(groups.ask(commit(group_id, member_id=member.member_id, generation=1), 8)) == "NONE"


def test_row_40_an_assignment_larger_than_a_record(groups: Target) -> None:
    """The leader receives an error, and its group completes the next rebalance with a smaller assignment."""
    member = join_with_member_id(groups, "row-40-large")
    member_id = member.member_id

    def assign(size: int, generation: int) -> Any:
        given = (SyncGroupRequestAssignment(member_id=member_id, assignment=b"a" * size),)
        return SyncGroupRequest(
            group_id="row-40-large", generation_id=generation, member_id=member_id, assignments=given
        )

    assert code(groups.ask(assign(2_000_000, 1), 4)) == "UNKNOWN_SERVER_ERROR"
    again = groups.ask(join("row-40-large", member_id), 7)
    assert code(again) == "NONE"
    assert code(groups.ask(assign(10, again.generation_id), 4)) == "NONE"


# --- rows 41 and 42: several members --------------------------------------------------------------------


def test_row_41_assignments_from_a_follower(groups: Target) -> None:
    """They are ignored, as are the leader's assignments to unknown members."""
    with groups.client() as one, groups.client() as two:
        request = join("row-41", group_instance_id="one", rebalance_timeout_ms=20_000)
        send(one, request, 7)
        first = receive(one, request, 7)
        send(two, join("row-41", group_instance_id="two", rebalance_timeout_ms=20_000), 7)
        send(one, join("row-41", first.member_id, group_instance_id="one", rebalance_timeout_ms=20_000), 7)
        members = {"one": receive(one, request, 7), "two": receive(two, request, 7)}
        assert {code(m) for m in members.values()} == {"NONE"}
        generation, leader = members["one"].generation_id, members["one"].leader
        follower = next(m.member_id for m in members.values() if m.member_id != leader)
        clients = dict(zip((members["one"].member_id, members["two"].member_id), (one, two), strict=True))

        def send_sync(member_id: str, assigned: dict[str, bytes]) -> Any:
            assignments = tuple(
                SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assigned.items()
            )
            request = SyncGroupRequest(
                group_id="row-41", generation_id=generation, member_id=member_id, assignments=assignments
            )
            send(clients[member_id], request, 4)
            return request

        follower_sync = send_sync(follower, {follower: b"mine", leader: b"yours"})
        leader_sync = send_sync(leader, {follower: b"f", leader: b"l", "unknown": b"n" * 1000})
        assert receive(clients[leader], leader_sync, 4).assignment == b"l"
        assert receive(clients[follower], follower_sync, 4).assignment == b"f"
        repeated_sync = send_sync(follower, {follower: b"mine", leader: b"yours"})
        assert receive(clients[follower], repeated_sync, 4).assignment == b"f"
    (described,) = groups.ask(DescribeGroupsRequest(groups=("row-41",)), 5).groups
    assert {m.member_id: m.member_assignment for m in described.members} == {leader: b"l", follower: b"f"}


@pytest.mark.parametrize("version", [2, 7])
def test_row_42_a_storm_of_joins(version: int, groups: Target) -> None:
    """200 concurrent joins without SyncGroup: `group.max.size` members are admitted, the others rejected.

    One more member may be in the previous generation.
    """
    group_id, many = f"row-42-{version}", 200
    clients = [groups.client() for _ in range(many)]
    try:
        for client in clients:
            send(client, join(group_id), version)
        waiting, rejected = {c.socket: c for c in clients}, 0
        while rejected < many - MAX_GROUP_SIZE - 1:
            ready, _, _ = select(list(waiting), [], [], WITHIN_S)
            assert ready, f"{rejected} of {many} were rejected"
            for socket in ready:
                response = receive(waiting[socket], join(group_id), version)
                if code(response) == "MEMBER_ID_REQUIRED":
                    send(waiting[socket], join(group_id, response.member_id), version)
                else:
                    rejected += code(response) == "GROUP_MAX_SIZE_REACHED"
                    del waiting[socket]
        (described,) = groups.ask(DescribeGroupsRequest(groups=(group_id,)), 5).groups
        assert 1 <= len(described.members) <= MAX_GROUP_SIZE + 1
    finally:
        for client in clients:
            client.socket.close()


# --- rows 45 and 46: offsets ----------------------------------------------------------------------------

COMMITS = {
    "offset 0": (commit("c-a", 0), "NONE"),
    "offset -1": (commit("c-b", -1), "NONE"),
    "offset -2": (commit("c-c", -2), "NONE"),
    "offset -2^63": (commit("c-d", -(2**63)), "NONE"),
    "offset 2^63 - 1": (commit("c-e", 2**63 - 1), "NONE"),
    "leader epoch -2": (commit("c-f", leader_epoch=-2), "NONE"),
    "leader epoch 2^31 - 1": (commit("c-g", leader_epoch=INT32_MAX), "NONE"),
    "partition -1": (commit("c-h", partitions=(-1,)), "UNKNOWN_TOPIC_OR_PARTITION"),
    "partition 4 of 4": (commit("c-i", partitions=(4,)), "UNKNOWN_TOPIC_OR_PARTITION"),
    "partition 2^31 - 1": (commit("c-j", partitions=(INT32_MAX,)), "UNKNOWN_TOPIC_OR_PARTITION"),
    "the same partition twice": (commit("c-k", partitions=(0, 0)), "NONE"),
    "metadata of 4096": (commit("c-l", metadata="m" * 4096), "NONE"),
    "metadata of 4097": (commit("c-m", metadata="m" * 4097), "OFFSET_METADATA_TOO_LARGE"),
    "metadata of 32767": (commit("c-n", metadata="m" * 32_767), "OFFSET_METADATA_TOO_LARGE"),
    "metadata of 4096 emoji": (commit("c-o", metadata="🐘" * 2048), "NONE"),
    "metadata of NULs": (commit("c-p", metadata="\0" * 100), "NONE"),
}


@pytest.mark.parametrize("name", COMMITS)
def test_row_45_commits(name: str, groups: Target) -> None:
    """Any offset and leader epoch is stored; unknown partitions and long metadata are rejected."""
    request, expected = COMMITS[name]
    assert code(groups.ask(request, 8)) == expected
    partition = request.topics[0].partitions[0]
    kept = fetch_committed(groups, request.group_id, partition.partition_index)
    if expected == "NONE":
        assert (kept.committed_offset, kept.committed_leader_epoch, kept.metadata) == (
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
        )
    else:
        assert kept.committed_offset == -1


def test_row_45_two_hundred_thousand_partitions(groups: Target) -> None:
    """Each partition receives its own error; the offset of the only existing one is stored."""
    many = 200_000
    answer = groups.ask(commit("row-45", partitions=tuple(range(3, many))), 8)
    (topic,) = answer.topics
    errors = {p.partition_index: p.error_code for p in topic.partitions}
    assert sorted(errors) == list(range(3, many))
    assert errors.pop(3) == 0
    assert set(errors.values()) == {3}
    assert fetch_committed(groups, "row-45", 3).committed_offset == 5


def test_row_46_a_commit_from_outside_a_group_with_members(groups: Target) -> None:
    """It receives UNKNOWN_MEMBER_ID, and the members' offsets stay as they are."""
    member = join_with_member_id(groups, "row-46")
    for fields in ({}, {"member_id": "m"}, {"instance_id": "i"}, {"generation": 1}):
        assert code(groups.ask(commit("row-46", 9, **fields), 8)) == "UNKNOWN_MEMBER_ID"
    assert fetch_committed(groups, "row-46").committed_offset == -1
    group = sync("row-46", member.member_id, 1)
    assert code(groups.ask(group, 5)) == "NONE"
    good = commit("row-46", 9, member_id=member.member_id, generation=1)
    assert code(groups.ask(good, 8)) == "NONE"
    assert fetch_committed(groups, "row-46").committed_offset == 9
