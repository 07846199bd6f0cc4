"""Unit tests of consumer groups that no transcript covers: hashes, cached heartbeats, traces,
descriptions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.groups.consumer.clients import Client
from tests.groups.consumer.harness import (
    AUDIT,
    ORDERS,
    GroupHarness,
    error,
    logged_state,
    topics,
    without_epochs,
)

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
    """Return Kafka's hashes of topics, with the racks of their replicas."""
    cases = (json.loads(line) for line in gzip.decompress(VECTORS.read_bytes()).splitlines())
    with_racks = []
    for case in cases:
        if case["kind"] == "metadata-hash" and case["topics"]:
            racks = {broker["id"]: broker["rack"] for broker in case["brokers"]}
            with_racks.append(case | {"racks": racks})
    assert len(with_racks) >= 40, "the vectors have hardly any such case"
    assert any(len(set(case["racks"].values())) > 2 for case in with_racks), "all are in few racks"
    return with_racks


@pytest.mark.parametrize("case", hashes(), ids=lambda case: case["topics"][0]["name"])
def test_the_metadata_hash_is_kafkas(case: dict[str, Any]) -> None:
    """The group's metadata hash equals Kafka's for the same topics, so Kafka sees no change after taking over
    a log."""
    harness = GroupHarness()
    racks = case["racks"]
    subscribed = [
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
    harness.topics = Topics(subscribed)
    harness.beat("ann", subscribed_topic_names=(*(topic.name for topic in subscribed), "missing-topic"))
    assert harness.group.metadata_hash == case["groupHash"]


# --- cached heartbeats ------------------------------------------------------------------------------


def heartbeat(member_id: str = "ann", epoch: int = 2, **more: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **more)


def cached_heartbeat(harness: GroupHarness, request: ConsumerGroupHeartbeatRequest) -> Any:
    return harness.shard.cacheable(request, harness.context())


def test_a_settled_members_heartbeat_is_cached() -> None:
    """The cached response equals a full decision: the same timers, and no records."""
    harness = GroupHarness()
    harness.stable("ann")
    cached = cached_heartbeat(harness, heartbeat())
    assert cached is not None
    harness.ask(heartbeat(), 1, "ann")
    assert (harness.last.records, harness.last.soft_records, harness.last.timers) == ((), (), cached[1])
    assert harness.shard.is_current(cached[0])


CHANGES = {
    "another member": lambda harness: harness.beat("bob"),
    "it leaves": lambda harness: harness.beat("ann", -1),
    "its session is over": lambda harness: harness.advance(45_000),
    "another subscription": lambda harness: harness.beat("ann", 2, subscribed_topic_names=("audit",)),
    "another rack": lambda harness: harness.beat("ann", 2, rack_id="r1"),
    "another client": lambda harness: harness.ask(heartbeat(), 1, "somebody else"),
    "a topic that it reads": lambda harness: (
        setattr(harness, "topics", topics(orders=7)),
        harness.beat("ann", 2),
    ),
    "a restart": lambda harness: harness.restart(),
    "the group is deleted": lambda harness: harness.shard.groups.pop("g"),
}


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_a_cached_heartbeat_is_invalidated_by_a_change(change: str) -> None:
    """A cached heartbeat is invalid as soon as a full decision could differ."""
    harness = GroupHarness()
    harness.stable("ann")
    cached = cached_heartbeat(harness, heartbeat())
    CHANGES[change](harness)
    assert not harness.shard.is_current(cached[0])


def test_a_cached_heartbeat_stays_valid_without_a_change() -> None:
    """Heartbeats, time, commits and other groups do not invalidate it."""
    harness = GroupHarness()
    harness.stable("ann", "bob")
    cached = cached_heartbeat(harness, heartbeat(epoch=3))
    harness.beat("bob", 3)
    harness.beat("cid", group_id="h")
    harness.advance(30_000)
    harness.beat("ann", 3)
    assert harness.shard.is_current(cached[0])


@pytest.mark.parametrize(
    "request_",
    [
        heartbeat(epoch=0),
        heartbeat(epoch=1),
        heartbeat(epoch=-1),
        heartbeat("who"),
        heartbeat(instance_id="i1"),
    ],
    ids=["it joins", "an epoch before", "it leaves", "nobody", "another name"],
)
def test_a_heartbeat_that_may_change_state_is_not_cached(request_: ConsumerGroupHeartbeatRequest) -> None:
    """Only a heartbeat of a member at its current epoch is cached."""
    harness = GroupHarness()
    harness.stable("ann")
    assert cached_heartbeat(harness, request_) is None


def test_heartbeats_of_rebalancing_groups_and_regex_subscriptions_are_not_cached() -> None:
    """A member that waits for partitions, or whose expressions need regular resolution, is decided in
    full."""
    harness = GroupHarness()
    harness.beat("ann")
    harness.beat("bob")
    assert cached_heartbeat(harness, heartbeat()) is None
    assert cached_heartbeat(harness, heartbeat("bob", 3)) is None
    harness = GroupHarness()
    harness.beat("ann", subscribed_topic_regex="or.*")
    harness.work()
    harness.beat("ann", 1)
    assert harness.group.state is State.STABLE
    assert cached_heartbeat(harness, heartbeat()) is None


# --- rebalance traces ----------------------------------------------------------------------------------


def test_the_trace_of_a_rebalance_has_its_times() -> None:
    """Start of the rebalance, time of the target, time at which each member reached it, and the end."""
    harness = GroupHarness()
    harness.stable("ann")
    harness.rebalances.clear()
    start = harness.now_ms
    harness.beat("bob")
    harness.advance(1_000)
    harness.beat("ann", 2)
    harness.advance(1_000)
    harness.beat("ann", 2, owned={ORDERS: (0, 1, 2)})
    harness.advance(1_000)
    harness.beat("bob", 3)
    first, last = (rebalance.value for rebalance in harness.rebalances)
    assert (first.state, first.epoch, [c.kind for c in first.causes]) == ("Assigning", 3, ["member-joined"])
    assert (last.state, last.epoch, last.causes) == ("Stable", 3, first.causes)
    assert (last.started_ms, last.joined_ms, last.ended_ms) == (start, start, start + 3_000)
    assert {m.member_id: m.joined_ms - start for m in last.members} == {"ann": 2_000, "bob": 3_000}


def test_each_epoch_bump_has_its_cause() -> None:
    """Each cause of an epoch bump is reported once, with its member if it has one."""
    harness = GroupHarness()
    reported: list[tuple[str, str | None]] = []

    def new_causes() -> list[tuple[str, str | None]]:
        rows = [r.value for r in harness.rebalances if r.value.state != State.STABLE]
        harness.rebalances.clear()
        assert [row.epoch for row in rows] == sorted({row.epoch for row in rows})
        return [(c.kind, c.member_id) for row in rows for c in row.causes]

    harness.beat("ann")
    reported += new_causes()
    harness.beat("ann", 2, subscribed_topic_names=("orders", "audit"))
    reported += new_causes()
    harness.beat("ann", 3, server_assignor="range")
    reported += new_causes()
    harness.topics = topics(orders=7, audit=2)
    harness.beat("ann", 4)
    reported += new_causes()
    harness.beat("bob")
    harness.beat("bob", -1)
    reported += new_causes()
    harness.advance(45_000)
    reported += new_causes()
    assert reported == [
        (causes.MEMBER_JOINED, "ann"),
        (causes.SUBSCRIPTION_CHANGED, "ann"),
        (causes.ASSIGNOR_CHANGED, "ann"),
        (causes.TOPIC_METADATA_CHANGED, None),
        (causes.MEMBER_JOINED, "bob"),
        (causes.MEMBER_LEFT, "bob"),
        (causes.SESSION_EXPIRED, "ann"),
    ]


# --- describe, fetch, results that change nothing ------------------------------------------------------


def test_a_description_has_the_assignment_and_the_target() -> None:
    """Partitions pending revocation are still part of the assignment; a deleted topic is left out."""
    harness = GroupHarness()
    harness.stable("ann", subscribed_topic_names=("orders", "audit"))
    harness.beat("bob")
    harness.beat("ann", 2)
    harness.topics = topics(orders=6)
    response = harness.ask(ConsumerGroupDescribeRequest(group_ids=("g", "none")), 1)
    group, none = response.groups
    ann = group.members[0]
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    assert [(t.topic_name, t.partitions) for t in ann.assignment.topic_partitions] == [
        ("orders", (0, 1, 2, 3, 4, 5))
    ]
    assert [t.topic_name for t in ann.target_assignment.topic_partitions] == ["orders"]
    assert none.error_code == Errors.GROUP_ID_NOT_FOUND
    assert none.error_message == "Group none not found."


def test_offset_fetch_checks_member_id_and_epoch() -> None:
    """A fetch needs the id and epoch of a member, or neither of them."""
    harness = GroupHarness()
    harness.stable("ann")
    requested = (OffsetFetchRequestTopics(name="orders", partition_indexes=(0,)),)

    def fetch(member_id: str | None, epoch: int) -> Any:
        group = OffsetFetchRequestGroup(
            group_id="g", member_id=member_id, member_epoch=epoch, topics=requested
        )
        response = harness.ask(OffsetFetchRequest(groups=(group,)), 9)
        return response if isinstance(response, Errors) else Errors(response.groups[0].error_code)

    assert fetch("ann", 2) is Errors.NONE
    assert fetch(None, -1) is Errors.NONE
    assert fetch("ann", 1) is Errors.STALE_MEMBER_EPOCH
    assert fetch("who", 2) is Errors.UNKNOWN_MEMBER_ID
    assert fetch("", -1) is Errors.UNKNOWN_MEMBER_ID


def test_outdated_results_of_background_work_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results for a deleted group, an old epoch, or an expression that no member uses any more."""
    monkeypatch.setattr(targets, "OFFLOAD_WEIGHT", 0)
    harness = GroupHarness()
    harness.beat("ann")
    (late_result,) = (harness.run_job(job) for job in harness.pending_work)
    harness.beat("bob")
    before = logged_state(harness.group)
    harness.apply(harness.shard.handle(late_result, harness.context()))
    harness.apply(harness.shard.handle(late_result, harness.context()))
    harness.apply(harness.shard.handle(RegexesResolved("g", {"x.*": frozenset({"x"})}, 9), harness.context()))
    assert logged_state(harness.group) == before
    assert harness.group.soft.computing == 0
    for result in (AssignmentComputed("none", 2, "uniform", {}), RegexesResolved("none", {}, 0)):
        assert not harness.shard.handle(result, harness.context()).records


@pytest.mark.parametrize(("partitions", "elsewhere"), [(19_998, False), (19_999, True)])
def test_large_targets_are_computed_in_the_background(partitions: int, elsewhere: bool) -> None:
    """A target of more than 20,000 partitions and members is computed in the background, a smaller one at
    once."""
    harness = GroupHarness()
    harness.topics = topics(orders=partitions)
    harness.beat("ann")
    assert bool(harness.pending_work) is elsewhere
    assert bool(harness.group.targets) is not elsewhere


def test_a_target_computed_in_the_background_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets and epochs are the same whether computed at once or in the background."""
    results = []
    for heavy in (10**6, 0):
        monkeypatch.setattr(targets, "OFFLOAD_WEIGHT", heavy)
        harness = GroupHarness()
        for member_id in ("ann", "bob", "cid"):
            harness.beat(member_id)
            harness.work()
        results.append((harness.group.targets, harness.group.epoch, harness.group.assignment_epoch))
    assert results[0] == results[1]


# --- conversions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "size", "remaining", "expected"),
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
def test_may_downgrade(policy: str, size: int, remaining: list[str], expected: bool) -> None:
    """The policy must allow it, and the remaining members must be classic, at least one, and fit the
    limit."""
    harness = GroupHarness()
    old = Client("old", classic=True)
    harness.beat("new")
    old.step(harness)
    harness.configure({"group.consumer.migration.policy": policy, "group.max.size": str(size)})
    by_name = {"old": old.member_id, "new": "new"}
    leaving = [
        m for m in harness.group.members.values() if m.member_id not in [by_name[name] for name in remaining]
    ]
    assert conversion.may_downgrade(harness.group, leaving, harness.context()) is expected


def test_deleted_topics_are_left_out_of_classic_assignments() -> None:
    """Partitions by topic name, sorted, without deleted topics."""
    existing = topics(orders=6)
    assert conversion.by_name({AUDIT: (1, 0), ORDERS: (5, 3)}, existing) == [("orders", (3, 5))]


def test_a_heartbeat_may_list_a_topic_more_than_once() -> None:
    """The partitions of all its entries are added up."""
    harness = GroupHarness()
    harness.stable("ann")
    harness.beat("bob")
    harness.beat("ann", 2)
    owned = tuple(TopicPartitions(topic_id=ORDERS, partitions=(p,)) for p in (0, 1, 5))
    assert error(harness.beat("ann", 2, topic_partitions=owned)) is Errors.NONE
    assert without_epochs(harness.member("ann").current.pending_revocation) == {ORDERS: (3, 4, 5)}
