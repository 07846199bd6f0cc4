"""TxnOffsetCommit: who may, what is refused and what is kept of it; in groups of each kind, as in Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from tests.groups.asking import Cast
from tests.groups.consumer.harness import ORDERS, GroupHarness
from tests.groups.offsets.transacting import Place, txn_commit_request
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
"""The last version that knows the errors of old, and the first that knows all."""


def decided(shard: GroupShard, topics: Topics, version: int, **said: Any) -> Errors:
    """With which error a commit is refused, of this version and by these words."""
    request = txn_commit_request(**said)
    request = decode(type(request), version, encode(request, version))
    try:
        outcome = shard.handle(request, Context(1000, CONFIG, 1, version, topics=topics))
    except Refusal as refused:
        return refused.error
    assert outcome.producer == Producer(1, 0)
    assert not outcome.timers, "a commit in a transaction keeps no session alive"
    return NONE


@pytest.mark.parametrize(
    ("version", "said", "expected"),
    [
        (0, {}, NONE),
        (3, {}, NONE),
        (3, {"member_id": "ann"}, NONE),
        (OLD, {"generation": 0}, ILLEGAL),
        (NEW, {"generation": 0}, NOT_FOUND),
        (NEW, {"generation": 3, "member_id": "ann", "instance_id": "ANN"}, NOT_FOUND),
    ],
)
def test_where_there_is_no_group(version: int, said: dict[str, Any], expected: Errors) -> None:
    """Anybody may who names no generation, and a simple group comes of it; from version 6 on who does is told
    that there is none."""
    place = Place()
    assert decided(place.shard, place.topics, version, **said) is expected
    if expected is NONE:
        place.commits(7, producer=1)
        group = place.shard.groups["g"]
        assert isinstance(group, ClassicGroup)
        assert group.is_simple


def classic(state: State) -> Cast:
    """`BOB`, static, and somebody else in generation 1; or those who wait for it to begin."""
    cast = Cast()
    if state is State.STABLE:
        cast.stable("ann", "BOB")
    else:
        for who in ("ann", "BOB"):
            cast.join(who)
        cast.advance(1000)
    if state is State.PREPARING_REBALANCE:
        cast.join("cas")
    assert cast.group.state is state
    return cast


@pytest.mark.parametrize("state", [State.STABLE, State.COMPLETING_REBALANCE])
def test_a_classic_group_with_members(state: State) -> None:
    """Whoever names a member or a generation has to be right in all of it; who names none may. It is no
    matter that assignments are on their way."""
    cast = classic(state)
    ann, bob, at = cast.ids["ann"], cast.ids["BOB"], cast.generations["ann"]
    told = {
        "nobody": decided(cast.life.shard, cast.life.topics, OLD),
        "before there were members": decided(cast.life.shard, cast.life.topics, 0),
        "ann": decided(cast.life.shard, cast.life.topics, OLD, member_id=ann, generation=at),
        "ann of another time": decided(
            cast.life.shard, cast.life.topics, OLD, member_id=ann, generation=at - 1
        ),
        "ann of no time": decided(cast.life.shard, cast.life.topics, OLD, member_id=ann),
        "a stranger": decided(cast.life.shard, cast.life.topics, OLD, member_id="eve", generation=at),
        "a generation alone": decided(cast.life.shard, cast.life.topics, OLD, generation=at),
        "BOB": decided(
            cast.life.shard, cast.life.topics, OLD, member_id=bob, generation=at, instance_id="BOB"
        ),
        "another BOB": decided(
            cast.life.shard, cast.life.topics, OLD, member_id=ann, generation=at, instance_id="BOB"
        ),
        "who is not known": decided(cast.life.shard, cast.life.topics, OLD, instance_id="EVE"),
    }
    assert told == {
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


def test_an_empty_classic_group_takes_it_from_anybody_without_generation() -> None:
    """As a plain commit; one who names the generation that was has to be a member still."""
    place = Place()
    place.commits(1)
    assert place.commits(7, producer=1, member_id="gone") is NONE
    assert place.commits(7, producer=1, member_id="gone", generation=0) is UNKNOWN


def consumers() -> tuple[GroupShard, Topics, int]:
    """`ann` has half of the partitions since epoch 2; the other half she gave up when `bob` came, in 3."""
    harness = GroupHarness()
    harness.stable("ann")
    harness.beat("bob")
    harness.beat("ann", 2)
    harness.beat("ann", 2, owned={ORDERS: (0, 1, 2)})
    return harness.shard, harness.topics, harness.member("ann").current.epoch


def streams() -> tuple[GroupShard, Topics, int]:
    """The same with tasks."""
    play = Play()
    play.run("streams-heartbeat ann join")
    play.run("streams-heartbeat bob join")
    for _ in range(3):
        for who in ("ann", "bob"):
            play.run(f"streams-heartbeat {who} owns=told")
    assert play.group is not None
    return play.life.shard, play.life.topics, play.group.members[ann_of(play)].current.epoch


def ann_of(play: Play) -> str:
    assert play.group is not None
    return next(m for m, told in play.group.members.items() if told.client_id == "ann")


@pytest.mark.parametrize("kind", ["consumer", "streams"])
@pytest.mark.parametrize(("version", "stale"), [(3, ILLEGAL), (OLD, ILLEGAL), (NEW, STALE)])
def test_a_group_whose_coordinator_assigns(kind: str, version: int, stale: Errors) -> None:
    """The epoch has to be the member's, or one at which it had the partition already; who names nobody may.
    Before version 6 nobody knows that an epoch can be stale (KIP-1319)."""
    shard, topics, epoch = consumers() if kind == "consumer" else streams()
    members: Any = shard.groups["g"].members
    ann = next(m for m, told in members.items() if told.client_id == "ann")
    assert epoch >= 2

    def by_ann(at: int, partition: int = 0) -> Errors:
        return decided(shard, topics, version, member_id=ann, generation=at, partitions=(partition,))

    assert by_ann(epoch) is NONE
    assert by_ann(epoch + 1) is stale
    told = {by_ann(epoch - 1, partition) for partition in range(6)}
    assert told == {NONE, stale}, "the partitions that she had at the last epoch, and the others"
    assert decided(shard, topics, version) is NONE
    assert decided(shard, topics, version, member_id="eve", generation=epoch) is UNKNOWN
    assert by_ann(-1) is stale
    assert decided(shard, topics, version, generation=-2) is UNKNOWN


def test_one_stale_partition_refuses_the_whole_request() -> None:
    """Nothing of it is kept, as in Kafka."""
    shard, topics, epoch = consumers()
    every = tuple(range(6))
    assert decided(shard, topics, NEW, member_id="ann", generation=epoch - 1, partitions=every) is STALE


def test_what_is_kept_of_it() -> None:
    """The record is that of a plain commit, with the topic's id, whatever the version; no time of expiry."""
    for version in range(7):
        place = Place()
        answer = place.ask(txn_commit_request(7, metadata="m", partitions=(3,)), version)
        (topic,) = answer.topics
        assert [(p.partition_index, p.error_code) for p in topic.partitions] == [(3, NONE)]
        told = Committed(7, -1, "m", place.now_ms, -1, place.topics.by_name["orders"].id)
        assert place.last.records == (OffsetCommitted("g", "orders", 3, told),)
        place.ends(1)
        assert place.shard.offsets["g"]["orders"][3] == told


def test_what_is_wrong_with_a_partition_is_told_of_it_alone() -> None:
    """A partition that does not exist and metadata that is too long; the others are kept."""
    place = Place()
    asked = txn_commit_request(7, partitions=(0, 6, -1))
    (topic,) = asked.topics
    long = topic.partitions[0].replace(partition_index=1, committed_metadata="m" * 4097)
    asked = asked.replace(topics=(topic.replace(partitions=(*topic.partitions, long)),))
    answer = place.ask(asked, OLD)
    missing, too_long = Errors.UNKNOWN_TOPIC_OR_PARTITION, Errors.OFFSET_METADATA_TOO_LARGE
    assert [p.error_code for p in answer.topics[0].partitions] == [NONE, missing, missing, too_long]
    assert list(place.shard.pending.of("g")["orders"]) == [0]


@pytest.mark.parametrize(
    ("version", "said", "expected"),
    [
        (OLD, {"topic": "nowhere"}, Errors.UNKNOWN_TOPIC_OR_PARTITION),
        (NEW, {"topic_id": Uuid(b"n" * 16)}, Errors.UNKNOWN_TOPIC_ID),
        (NEW, {"topic_id": ZERO_UUID}, Errors.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_topic_that_is_not_there(version: int, said: dict[str, Any], expected: Errors) -> None:
    """By name or by id; and where nothing is left to commit, nothing is written for the producer."""
    place = Place()
    answer = place.ask(txn_commit_request(**said), version)
    assert [p.error_code for t in answer.topics for p in t.partitions] == [expected]
    assert place.last.producer is None
    assert not place.log
