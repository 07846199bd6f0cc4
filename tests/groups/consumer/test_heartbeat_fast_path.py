"""The fast path for heartbeats of settled members decides what the full heartbeat handler decides."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.groups.consumer.harness import GroupHarness, topics, without_epochs

from konvene.groups.consumer import heartbeat
from konvene.groups.consumer.current_assignment import MemberState
from konvene.groups.consumer.heartbeat_fast_path import heartbeat_fast_path
from konvene.shard.contract import Outcome


@pytest.fixture
def fast_outcomes(monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """Collect the outcomes of the fast path; each is compared with that of the full handler."""
    outcomes: list[Outcome] = []

    def compare(group: Any, request: Any, context: Any) -> Outcome | None:
        fast = heartbeat_fast_path(group, request, context)
        if fast is not None:
            assert fast.may_wait
            full = heartbeat._stay({group.group_id: group}, request, context)
            assert fast == full._replace(may_wait=True)
            outcomes.append(fast)
        return fast

    monkeypatch.setattr(heartbeat, "heartbeat_fast_path", compare)
    return outcomes


def test_fast_path_and_full_handler_agree_in_random_runs(fast_outcomes: list[Outcome]) -> None:
    """Whatever the state of the group, the member and the topics."""
    for seed in range(20):
        run_random_events(Random(seed))
    assert sum(bool(outcome.records) for outcome in fast_outcomes) > 100


def run_random_events(random: Random) -> None:
    """Run random events in a group of few partitions, so that most members keep their assignment."""
    harness, members_made = GroupHarness(), 0
    harness.topics = topics(orders=2, audit=2)
    for _ in range(400):
        members = list(harness.group.members) if harness.group else []
        roll = random.random()
        if len(members) < 3 or (roll < 0.04 and len(members) < 9):
            members_made += 1
            instance = {"instance_id": f"i-{members_made % 4}"} if random.random() < 0.3 else {}
            reads = {} if random.random() < 0.99 else {"subscribed_topic_regex": "a.*"}
            harness.beat(f"m-{members_made}", **instance, **reads)
        elif roll < 0.06:
            harness.beat(random.choice(members), -1)
        elif roll < 0.08:
            grown = harness.topics.by_name["orders"].partitions + random.choice((0, 0, 1))
            harness.topics = topics(random.choice((0, 1)), orders=grown, audit=2)
        elif roll < 0.1:
            harness.advance(random.choice((100, 6_000, 46_000)))
        elif roll < 0.11:
            harness.restart(compact=random.random() < 0.5)
        elif roll < 0.15:
            harness.work(fails=random.random() < 0.2)
        else:
            heartbeat_randomly(random, harness, random.choice(members))


def heartbeat_randomly(random: Random, harness: GroupHarness, member_id: str) -> None:
    """Send a heartbeat, mostly a well-behaved one without changes."""
    member = harness.member(member_id)
    current = member.current
    epoch = random.choice((current.epoch, current.epoch, current.epoch, current.previous_epoch, 99))
    fields: dict[str, Any] = {}
    if current.state is not MemberState.STABLE or random.random() < 0.3:
        fields["owned"] = without_epochs(current.assigned)
    if random.random() < 0.1:
        fields |= random.choice(
            ({"rack_id": "r"}, {"server_assignor": "range"}, {"instance_id": "i-1"}, {"instance_id": "no"})
        )
    if epoch > 0:
        harness.beat(member_id, epoch, **fields)


def test_members_whose_assignment_does_not_change_take_the_fast_path_when_one_joins(
    fast_outcomes: list[Outcome],
) -> None:
    """One record each; the last one ends the rebalance through the full handler, which reports the end."""
    names = [f"member-{n}" for n in range(10)]
    harness = GroupHarness()
    harness.topics = topics(orders=10)
    harness.stable(*names)
    harness.beat("one-more")
    fast_outcomes.clear()
    for name in names:
        current = harness.member(name).current
        assert harness.beat(name, current.epoch).member_epoch == harness.group.epoch
    assert [len(outcome.records) for outcome in fast_outcomes] == [1] * (len(names) - 1)
    assert harness.group.state == "Stable"
    assert without_epochs(harness.member("one-more").current.assigned) == {}


def test_a_settled_members_heartbeat_writes_nothing(fast_outcomes: list[Outcome]) -> None:
    """It is answered, and its session timer is re-armed."""
    harness = GroupHarness()
    harness.stable("ann", "bob")
    fast_outcomes.clear()
    harness.beat("ann", harness.group.epoch)
    (outcome,) = fast_outcomes
    assert (len(outcome.replies), outcome.records, len(outcome.timers)) == (1, (), 1)
