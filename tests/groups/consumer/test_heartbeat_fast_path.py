"""The short cut for members that only have to hear of an epoch decides what the steps decide."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.groups.consumer.room import Room, plain, topics

from konvene.groups.consumer import heartbeat
from konvene.groups.consumer.current_assignment import MemberState
from konvene.groups.consumer.heartbeat_fast_path import heartbeat_fast_path
from konvene.shard.contract import Outcome


@pytest.fixture
def at_a_glance(monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """What was decided by the short cut; each is held against what the steps say."""
    found: list[Outcome] = []

    def both(group: Any, request: Any, context: Any) -> Outcome | None:
        quick = heartbeat_fast_path(group, request, context)
        if quick is not None:
            assert quick.may_wait
            said = heartbeat._stay({group.group_id: group}, request, context)
            assert quick == said._replace(may_wait=True)
            found.append(quick)
        return quick

    monkeypatch.setattr(heartbeat, "heartbeat_fast_path", both)
    return found


def test_in_random_lives_both_decide_the_same(at_a_glance: list[Outcome]) -> None:
    """Whatever the group, the member and the world are like."""
    for seed in range(20):
        _live(Random(seed))
    assert sum(bool(outcome.records) for outcome in at_a_glance) > 100


def _live(random: Random) -> None:
    """What happens to a group of few partitions, so that most members keep what they have."""
    room, made = Room(), 0
    room.topics = topics(orders=2, audit=2)
    for _ in range(400):
        members = list(room.group.members) if room.group else []
        roll = random.random()
        if len(members) < 3 or (roll < 0.04 and len(members) < 9):
            made += 1
            instance = {"instance_id": f"i-{made % 4}"} if random.random() < 0.3 else {}
            reads = {} if random.random() < 0.99 else {"subscribed_topic_regex": "a.*"}
            room.beat(f"m-{made}", **instance, **reads)
        elif roll < 0.06:
            room.beat(random.choice(members), -1)
        elif roll < 0.08:
            grown = room.topics.by_name["orders"].partitions + random.choice((0, 0, 1))
            room.topics = topics(random.choice((0, 1)), orders=grown, audit=2)
        elif roll < 0.1:
            room.advance(random.choice((100, 6_000, 46_000)))
        elif roll < 0.11:
            room.restart(compact=random.random() < 0.5)
        elif roll < 0.15:
            room.work(fails=random.random() < 0.2)
        else:
            _beats(random, room, random.choice(members))


def _beats(random: Random, room: Room, member_id: str) -> None:
    """A heartbeat, mostly of a client that behaves and has nothing to say."""
    member = room.member(member_id)
    current = member.current
    epoch = random.choice((current.epoch, current.epoch, current.epoch, current.previous_epoch, 99))
    said: dict[str, Any] = {}
    if current.state is not MemberState.STABLE or random.random() < 0.3:
        said["owned"] = plain(current.assigned)
    if random.random() < 0.1:
        said |= random.choice(
            ({"rack_id": "r"}, {"server_assignor": "range"}, {"instance_id": "i-1"}, {"instance_id": "no"})
        )
    if epoch > 0:
        room.beat(member_id, epoch, **said)


def test_when_one_more_joins_all_who_keep_what_they_have_are_seen_at_a_glance(
    at_a_glance: list[Outcome],
) -> None:
    """One record each, and the last of them ends the rebalance by the steps, for that is to be told."""
    names = [f"member-{n}" for n in range(10)]
    room = Room()
    room.topics = topics(orders=10)
    room.stable(*names)
    room.beat("one-more")
    at_a_glance.clear()
    for name in names:
        current = room.member(name).current
        assert room.beat(name, current.epoch).member_epoch == room.group.epoch
    assert [len(outcome.records) for outcome in at_a_glance] == [1] * (len(names) - 1)
    assert room.group.state == "Stable"
    assert plain(room.member("one-more").current.assigned) == {}


def test_a_quiet_heartbeat_writes_nothing(at_a_glance: list[Outcome]) -> None:
    """It is answered, and its session counts from now on."""
    room = Room()
    room.stable("ann", "bob")
    at_a_glance.clear()
    room.beat("ann", room.group.epoch)
    (outcome,) = at_a_glance
    assert (len(outcome.replies), outcome.records, len(outcome.timers)) == (1, (), 1)
