"""TxnOffsetCommit in groups of each type, as in Kafka: validation, refusals and logged records."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.asking import Cast
from tests.groups.consumer.harness import ORDERS, GroupHarness
from tests.groups.offsets.transacting import TransactionalHarness, txn_commit_request
from tests.groups.streams.members import Play

from konvene.codec.compile import decode, encode
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup, State
from konvene.groups.shard import GroupShard
from konvene.records.commits import Committed, OffsetCommitted
from konvene.shard.contract import Context, Producer
from konvene.shard.errors import Refusal
from konvene.shard.image import Topics

NONE, STALE, ILLEGAL = Errors.NONE, Errors.STALE_MEMBER_EPOCH, Errors.ILLEGAL_GENERATION
UNKNOWN, FENCED, NOT_FOUND = Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_INSTANCE_ID, Errors.GROUP_ID_NOT_FOUND
CONFIG, _ = BrokerConfig.load()
OLD, NEW = 5, 6
"""The last version that has only the old errors, and the first that has all."""


def commit_error(shard: GroupShard, topics: Topics, version: int, **fields: Any) -> Errors:
    """Return the error of a commit with this version and these fields."""
    request = txn_commit_request(**fields)
    request = decode(type(request), version, encode(request, version))
    try:
        outcome = shard.handle(request, Context(1000, CONFIG, 1, version, topics=topics))
    except Refusal as refused:
        return refused.error
    assert outcome.producer == Producer(1, 0)
    assert not outcome.timers, "a transactional commit prolongs a session"
    return NONE


@pytest.mark.parametrize(
    ("version", "fields", "expected"),
    [
        (0, {}, NONE),
        (3, {}, NONE),
        (3, {"member_id": "ann"}, NONE),
        (OLD, {"generation": 0}, ILLEGAL),
        (NEW, {"generation": 0}, NOT_FOUND),
        (NEW, {"generation": 3, "member_id": "ann", "instance_id": "ANN"}, NOT_FOUND),
    ],
)
def test_a_commit_without_a_group(version: int, fields: dict[str, Any], expected: Errors) -> None:
    """A commit without a generation is accepted, and creates a simple group; from version 6 on a commit with
    a generation is refused, since there is no group."""
    harness = TransactionalHarness()
    assert commit_error(harness.shard, harness.topics, version, **fields) is expected
    if expected is NONE:
        harness.commit(7, producer=1)
        group = harness.shard.groups["g"]
        assert isinstance(group, ClassicGroup)
        assert group.is_simple


def classic(state: State) -> Cast:
    """Return a group of `BOB`, who is static, and ann in generation 1; or the members that wait for it."""
    cast = Cast()
    if state is State.STABLE:
        cast.stable("ann", "BOB")
    else:
        for name in ("ann", "BOB"):
            cast.join(name)
        cast.advance(1000)
    if state is State.PREPARING_REBALANCE:
        cast.join("cas")
    assert cast.group.state is state
    return cast


@pytest.mark.parametrize("state", [State.STABLE, State.COMPLETING_REBALANCE])
def test_a_classic_group_with_members(state: State) -> None:
    """A member id or generation must be valid together; a commit without them is accepted. Whether
    assignments are still pending does not matter."""
    cast = classic(state)
    ann, bob, at = cast.ids["ann"], cast.ids["BOB"], cast.generations["ann"]
    errors = {
        "nobody": commit_error(cast.life.shard, cast.life.topics, OLD),
        "before there were members": commit_error(cast.life.shard, cast.life.topics, 0),
        "ann": commit_error(cast.life.shard, cast.life.topics, OLD, member_id=ann, generation=at),
        "ann of another time": commit_error(
            cast.life.shard, cast.life.topics, OLD, member_id=ann, generation=at - 1
        ),
        "ann of no time": commit_error(cast.life.shard, cast.life.topics, OLD, member_id=ann),
        "a stranger": commit_error(cast.life.shard, cast.life.topics, OLD, member_id="eve", generation=at),
        "a generation alone": commit_error(cast.life.shard, cast.life.topics, OLD, generation=at),
        "BOB": commit_error(
            cast.life.shard, cast.life.topics, OLD, member_id=bob, generation=at, instance_id="BOB"
        ),
        "another BOB": commit_error(
            cast.life.shard, cast.life.topics, OLD, member_id=ann, generation=at, instance_id="BOB"
        ),
        "who is not known": commit_error(cast.life.shard, cast.life.topics, OLD, instance_id="EVE"),
    }
    assert errors == {
        "nobody": NONE,
        "before there were members": NONE,
        "ann": NONE,
        "ann of another time": ILLEGAL,
        "ann of no time": ILLEGAL,
        "a stranger": UNKNOWN,
        "a generation alone": UNKNOWN,
        "BOB": NONE,
        "another BOB": FENCED,
        "who is not known": UNKNOWN,
    }


def test_an_empty_classic_group_accepts_commits_without_a_generation() -> None:
    """As for a plain commit; one with the former generation must be of a member."""
    harness = TransactionalHarness()
    harness.commit(1)
    assert harness.commit(7, producer=1, member_id="gone") is NONE
    assert harness.commit(7, producer=1, member_id="gone", generation=0) is UNKNOWN


def consumers() -> tuple[GroupShard, Topics, int]:
    """Return a group in which `ann` has half of the partitions since epoch 2, and has released the other half
    to `bob` in 3."""
    harness = GroupHarness()
    harness.stable("ann")
    harness.beat("bob")
    harness.beat("ann", 2)
    harness.beat("ann", 2, owned={ORDERS: (0, 1, 2)})
    return harness.shard, harness.topics, harness.member("ann").current.epoch


def streams() -> tuple[GroupShard, Topics, int]:
    """Return the same group with tasks."""
    play = Play()
    play.run("streams-heartbeat ann join")
    play.run("streams-heartbeat bob join")
    for _ in range(3):
        for name in ("ann", "bob"):
            play.run(f"streams-heartbeat {name} owns=told")
    assert play.group is not None
    return play.life.shard, play.life.topics, play.group.members[ann_of(play)].current.epoch


def ann_of(play: Play) -> str:
    assert play.group is not None
    return next(m for m, member in play.group.members.items() if member.client_id == "ann")


@pytest.mark.parametrize("group_type", ["consumer", "streams"])
@pytest.mark.parametrize(("version", "stale"), [(3, ILLEGAL), (OLD, ILLEGAL), (NEW, STALE)])
def test_a_commit_in_a_group_with_member_epochs(group_type: str, version: int, stale: Errors) -> None:
    """The epoch must be the member's, or one at which it had the partition already; a commit without a member
    id is accepted. Before version 6 there is no error for a stale epoch (KIP-1319)."""
    shard, topics, epoch = consumers() if group_type == "consumer" else streams()
    members: Any = shard.groups["g"].members
    ann = next(m for m, member in members.items() if member.client_id == "ann")
    assert epoch >= 2

    def by_ann(at: int, partition: int = 0) -> Errors:
        return commit_error(shard, topics, version, member_id=ann, generation=at, partitions=(partition,))

    assert by_ann(epoch) is NONE
    assert by_ann(epoch + 1) is stale
    errors = {by_ann(epoch - 1, partition) for partition in range(6)}
    assert errors == {NONE, stale}, "the partitions that she had at the last epoch, and the others"
    assert commit_error(shard, topics, version) is NONE
    assert commit_error(shard, topics, version, member_id="eve", generation=epoch) is UNKNOWN
    assert by_ann(-1) is stale
    assert commit_error(shard, topics, version, generation=-2) is UNKNOWN


def test_one_stale_partition_refuses_the_whole_request() -> None:
    """None of its offsets is kept, as in Kafka."""
    shard, topics, epoch = consumers()
    every = tuple(range(6))
    assert commit_error(shard, topics, NEW, member_id="ann", generation=epoch - 1, partitions=every) is STALE


def test_the_logged_commit() -> None:
    """The record is that of a plain commit, with the topic's id, in every version; without an expiry time."""
    for version in range(7):
        harness = TransactionalHarness()
        response = harness.ask(txn_commit_request(7, metadata="m", partitions=(3,)), version)
        (topic,) = response.topics
        assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(3, NONE)]
        committed = Committed(7, -1, "m", harness.now_ms, -1, harness.topics.by_name["orders"].id)
        assert harness.last.records == (OffsetCommitted("g", "orders", 3, committed),)
        harness.end_transaction(1)
        assert harness.shard.offsets["g"]["orders"][3] == committed


def test_an_invalid_partition_does_not_affect_the_others() -> None:
    """A missing partition and oversized metadata; the other partitions are kept."""
    harness = TransactionalHarness()
    request = txn_commit_request(7, partitions=(0, 6, -1))
    (topic,) = request.topics
    long = topic.partitions[0].replace(partition_index=1, committed_metadata="m" * 4097)
    request = request.replace(topics=(topic.replace(partitions=(*topic.partitions, long)),))
    response = harness.ask(request, OLD)
    missing, too_long = Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.OFFSET_METADATA_TOO_LARGE
    assert [p.error_code for p in response.topics[0].partitions] == [NONE, missing, missing, too_long]
    assert list(harness.shard.pending.of("g")["orders"]) == [0]


@pytest.mark.parametrize(
    ("version", "fields", "expected"),
    [
        (OLD, {"topic": "nowhere"}, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        (NEW, {"topic_id": Uuid(b"n" * 16)}, Errors.UNKNOWN_TOPIC_ID),
        (NEW, {"topic_id": ZERO_UUID}, Errors.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_commit_for_a_missing_topic(version: int, fields: dict[str, Any], expected: Errors) -> None:
    """By name or by id; if no partition is left, nothing is written for the producer."""
    harness = TransactionalHarness()
    answer = harness.ask(txn_commit_request(**fields), version)
    assert [p.error_code for t in answer.topics for p in t.partitions] == [expected]
    assert harness.last.producer is None
    assert not harness.log
