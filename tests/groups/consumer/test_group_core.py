"""What conversations do not reach: hashes, what a remembered heartbeat rests on, stories, descriptions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.groups.consumer.clients import Client
from tests.groups.consumer.room import AUDIT, ORDERS, Room, error, kept, plain, topics

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.groups.consumer import conversion, targets
from konvene.groups.consumer.group import State
from konvene.groups.consumer.work import AssignmentComputed, RegexesResolved
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from konvene.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from konvene.shard import causes
from konvene.shard.image import Topic, Topics

VECTORS = Path(__file__).parents[2] / "vectors" / "hashes.jsonl.gz"


def hashes() -> list[dict[str, Any]]:
    """Kafka's hashes of topics, with the racks of their replicas."""
    told = (json.loads(line) for line in gzip.decompress(VECTORS.read_bytes()).splitlines())
    found = []
    for case in told:
        if case["kind"] == "metadata-hash" and case["topics"]:
            racks = {broker["id"]: broker["rack"] for broker in case["brokers"]}
            found.append(case | {"racks": racks})
    assert len(found) >= 40, "the vectors have hardly any such case"
    assert any(len(set(case["racks"].values())) > 2 for case in found), "all are in few racks"
    return found


@pytest.mark.parametrize("case", hashes(), ids=lambda case: case["topics"][0]["name"])
def test_the_hash_of_a_group_is_kafkas(case: dict[str, Any]) -> None:
    """The hash that a group writes down is the one that Kafka writes for the same topics; so Kafka sees no
    change where it takes over such a log."""
    room = Room()
    racks = case["racks"]
    read = [
        Topic(
            topic["name"],
            Uuid.parse(topic["id"]),
            len(topic["partitionReplicas"]),
            tuple(
                tuple(racks[r] for r in replicas if racks.get(r) is not None)
                for replicas in topic["partitionReplicas"]
            ),
        )
        for topic in case["topics"]
    ]
    room.topics = Topics(read)
    room.beat("ann", subscribed_topic_names=(*(topic.name for topic in read), "missing-topic"))
    assert room.group.metadata_hash == case["groupHash"]


# --- a heartbeat that is the same again ----------------------------------------------------------------


def says(member_id: str = "ann", epoch: int = 2, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **more)


def again(room: Room, request: ConsumerGroupHeartbeatRequest) -> Any:
    return room.shard.cacheable(request, room.context())


def test_a_settled_members_heartbeat_is_the_same_again() -> None:
    """What is remembered is what deciding it says: the timers, and that nothing is written."""
    room = Room()
    room.stable("ann")
    same = again(room, says())
    assert same is not None
    room.ask(says(), 1, "ann")
    assert (room.last.records, room.last.soft_records, room.last.timers) == ((), (), same[1])
    assert room.shard.is_current(same[0])


CHANGES = {
    "another member": lambda room: room.beat("bob"),
    "it leaves": lambda room: room.beat("ann", -1),
    "its session is over": lambda room: room.advance(45_000),
    "another subscription": lambda room: room.beat("ann", 2, subscribed_topic_names=("audit",)),
    "another rack": lambda room: room.beat("ann", 2, rack_id="r1"),
    "another client": lambda room: room.ask(says(), 1, "somebody else"),
    "a topic that it reads": lambda room: (
        setattr(room, "topics", topics(orders=7)),
        room.beat("ann", 2),
    ),
    "a restart": lambda room: room.restart(),
    "the group is deleted": lambda room: room.shard.groups.pop("g"),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_remembered_heartbeat_holds_until_something_changes(change: str) -> None:
    """As soon as deciding it again could say anything else, it does not hold any more."""
    room = Room()
    room.stable("ann")
    same = again(room, says())
    CHANGES[change](room)
    assert not room.shard.is_current(same[0])


def test_a_remembered_heartbeat_holds_as_long_as_nothing_does() -> None:
    """Heartbeats, time, commits and other groups change nothing for it."""
    room = Room()
    room.stable("ann", "bob")
    same = again(room, says(epoch=3))
    room.beat("bob", 3)
    room.beat("cid", group_id="h")
    room.advance(30_000)
    room.beat("ann", 3)
    assert room.shard.is_current(same[0])


@pytest.mark.parametrize(
    "request_",
    [says(epoch=0), says(epoch=1), says(epoch=-1), says("who"), says(instance_id="i1")],
    ids=["it joins", "an epoch before", "it leaves", "nobody", "another name"],
)
def test_what_may_change_something_is_not_the_same_again(request_: ConsumerGroupHeartbeatRequest) -> None:
    """Only the heartbeat of a member at its epoch is remembered."""
    room = Room()
    room.stable("ann")
    assert again(room, request_) is None


def test_nothing_is_remembered_of_a_group_that_moves_or_reads_by_expressions() -> None:
    """A member that waits, or one whose expressions have to be looked at in time, is decided each time."""
    room = Room()
    room.beat("ann")
    room.beat("bob")
    assert again(room, says()) is None
    assert again(room, says("bob", 3)) is None
    room = Room()
    room.beat("ann", subscribed_topic_regex="or.*")
    room.work()
    room.beat("ann", 1)
    assert room.group.state is State.STABLE
    assert again(room, says()) is None


# --- stories -------------------------------------------------------------------------------------------


def test_a_stable_row_has_its_times() -> None:
    """When it began, when the target was there, when each member had it, and when all had."""
    room = Room()
    room.stable("ann")
    room.why.clear()
    start = room.now_ms
    room.beat("bob")
    room.advance(1_000)
    room.beat("ann", 2)
    room.advance(1_000)
    room.beat("ann", 2, owned={ORDERS: (0, 1, 2)})
    room.advance(1_000)
    room.beat("bob", 3)
    first, last = (told.value for told in room.why)
    assert (first.state, first.epoch, [c.kind for c in first.causes]) == ("Assigning", 3, ["member-joined"])
    assert (last.state, last.epoch, last.causes) == ("Stable", 3, first.causes)
    assert (last.started_ms, last.joined_ms, last.ended_ms) == (start, start, start + 3_000)
    assert {m.member_id: m.joined_ms - start for m in last.members} == {"ann": 2_000, "bob": 3_000}


def test_each_epoch_has_its_cause() -> None:
    """Whatever moves an epoch is named, once, with the member where there is one."""
    room = Room()
    told: list[tuple[str, str | None]] = []

    def new() -> list[tuple[str, str | None]]:
        rows = [r.value for r in room.why if r.value.state != State.STABLE]
        room.why.clear()
        assert [row.epoch for row in rows] == sorted({row.epoch for row in rows})
        return [(c.kind, c.member_id) for row in rows for c in row.causes]

    room.beat("ann")
    told += new()
    room.beat("ann", 2, subscribed_topic_names=("orders", "audit"))
    told += new()
    room.beat("ann", 3, server_assignor="range")
    told += new()
    room.topics = topics(orders=7, audit=2)
    room.beat("ann", 4)
    told += new()
    room.beat("bob")
    room.beat("bob", -1)
    told += new()
    room.advance(45_000)
    told += new()
    assert told == [
        (causes.MEMBER_JOINED, "ann"),
        (causes.SUBSCRIPTION_CHANGED, "ann"),
        (causes.ASSIGNOR_CHANGED, "ann"),
        (causes.TOPIC_METADATA_CHANGED, None),
        (causes.MEMBER_JOINED, "bob"),
        (causes.MEMBER_LEFT, "bob"),
        (causes.SESSION_EXPIRED, "ann"),
    ]


# --- describe, fetch, work that comes to nothing ---------------------------------------------------------


def test_a_description_tells_what_is_held_and_what_is_meant() -> None:
    """What a member has yet to give up is still its own; a topic that is gone is left out."""
    room = Room()
    room.stable("ann", subscribed_topic_names=("orders", "audit"))
    room.beat("bob")
    room.beat("ann", 2)
    room.topics = topics(orders=6)
    answer = room.ask(ConsumerGroupDescribeRequest(group_ids=("g", "none")), 1)
    group, none = answer.groups
    ann = group.members[0]
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    assert [(t.topic_name, t.partitions) for t in ann.assignment.topic_partitions] == [
        ("orders", (0, 1, 2, 3, 4, 5))
    ]
    assert [t.topic_name for t in ann.target_assignment.topic_partitions] == ["orders"]
    assert none.error_code == Errors.GROUP_ID_NOT_FOUND
    assert none.error_message == "Group none not found."


def test_who_fetches_offsets_says_its_epoch_or_nothing() -> None:
    """A member at its epoch, or somebody who says that it is nobody."""
    room = Room()
    room.stable("ann")
    asked = (OffsetFetchRequestTopics(name="orders", partition_indexes=(0,)),)

    def fetch(member_id: str | None, epoch: int) -> Any:
        group = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch, topics=asked)
        answer = room.ask(OffsetFetchRequest(groups=(group,)), 9)
        return answer if isinstance(answer, Errors) else Errors(answer.groups[0].error_code)

    assert fetch("ann", 2) is Errors.NONE
    assert fetch(None, -1) is Errors.NONE
    assert fetch("ann", 1) is Errors.STALE_MEMBER_EPOCH
    assert fetch("who", 2) is Errors.UNKNOWN_MEMBER_ID
    assert fetch("", -1) is Errors.UNKNOWN_MEMBER_ID


def test_results_that_nobody_waits_for_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a group that is gone, of an epoch that is past, of an expression that nobody uses."""
    monkeypatch.setattr(targets, "HEAVY", 0)
    room = Room()
    room.beat("ann")
    (late,) = (room.done(asked) for asked in room.wanted)
    room.beat("bob")
    before = kept(room.group)
    room.take(room.shard.handle(late, room.context()))
    room.take(room.shard.handle(late, room.context()))
    room.take(room.shard.handle(RegexesResolved("g", {"x.*": frozenset({"x"})}, 9), room.context()))
    assert kept(room.group) == before
    assert room.group.soft.computing == 0
    for news in (AssignmentComputed("none", 2, "uniform", {}), RegexesResolved("none", {}, 0)):
        assert not room.shard.handle(news, room.context()).records


@pytest.mark.parametrize(("partitions", "elsewhere"), [(19_998, False), (19_999, True)])
def test_what_is_large(partitions: int, elsewhere: bool) -> None:
    """A target of twenty thousand partitions and members is computed elsewhere, a smaller one at once."""
    room = Room()
    room.topics = topics(orders=partitions)
    room.beat("ann")
    assert bool(room.wanted) is elsewhere
    assert bool(room.group.targets) is not elsewhere


def test_a_large_target_says_the_same_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed at once or elsewhere: targets and epochs are the same."""
    told = []
    for heavy in (10**6, 0):
        monkeypatch.setattr(targets, "HEAVY", heavy)
        room = Room()
        for member_id in ("ann", "bob", "cid"):
            room.beat(member_id)
            room.work()
        told.append((room.group.targets, room.group.epoch, room.group.assignment_epoch))
    assert told[0] == told[1]


# --- conversions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "size", "left", "expected"),
    [
        ("bidirectional", 10, ["old"], True),
        ("DOWNGRADE", 10, ["old"], True),
        ("upgrade", 10, ["old"], False),
        ("disabled", 10, ["old"], False),
        ("bidirectional", 0 + 1, ["old"], True),
        ("bidirectional", 10, [], False),
        ("bidirectional", 10, ["old", "new"], False),
    ],
)
def test_who_may_be_downgraded(policy: str, size: int, left: list[str], expected: bool) -> None:
    """The policy lets it, somebody is left, all who are speak the classic protocol, and fit."""
    room = Room()
    old = Client("old", classic=True)
    room.beat("new")
    old.step(room)
    room.configure({"group.consumer.migration.policy": policy, "group.max.size": str(size)})
    by_name = {"old": old.member_id, "new": "new"}
    leaving = [m for m in room.group.members.values() if m.member_id not in [by_name[who] for who in left]]
    assert conversion.may_downgrade(room.group, leaving, room.context()) is expected


def test_what_is_gone_is_not_told_to_classic_members() -> None:
    """Partitions by name, sorted, without topics that there are no more."""
    there = topics(orders=6)
    assert conversion.by_name({AUDIT: (1, 0), ORDERS: (5, 3)}, there) == [("orders", (3, 5))]


def test_a_heartbeat_may_name_a_topic_more_than_once() -> None:
    """What it owns of one topic is added up."""
    room = Room()
    room.stable("ann")
    room.beat("bob")
    room.beat("ann", 2)
    told = tuple(TopicPartitions(topic_id=ORDERS, partitions=(p,)) for p in (0, 1, 5))
    assert error(room.beat("ann", 2, topic_partitions=told)) is Errors.NONE
    assert plain(room.member("ann").current.pending_revocation) == {ORDERS: (3, 4, 5)}
