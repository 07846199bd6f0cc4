"""Past bugs around consumer groups' coordinators: 19, 26, 28, 36 to 39, 43 and 98 of the catalogue.

Some of these were bugs of clients. The tests show that our client does not have them, against the coordinator
itself, and how the coordinator treats a client that has them. `Reader` is our client's state machine
(`client.consumer.membership`) with an application that takes over its assignment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.rights import Rights
from tests.broker.running import running
from tests.groups.consumer.harness import (
    AUDIT,
    ORDERS,
    GroupHarness,
    error,
    logged_state,
    topics,
    without_epochs,
)

from konvene.broker.groups.background_work import resolve_regexes
from konvene.client.consumer.membership import ConsumerMembership, Subscription
from konvene.client.membership.state_machine import MembershipSettings
from konvene.client.membership.state_machine import MemberState as ClientState
from konvene.client.membership.topic_partitions import Partitions
from konvene.client.net.connection import Connection
from konvene.configs import BrokerConfig
from konvene.configs.alter import validate_group
from konvene.configs.errors import ConfigError
from konvene.errors import Errors
from konvene.groups.consumer import log
from konvene.groups.consumer.current_assignment import CurrentAssignment, MemberState
from konvene.groups.consumer.group import Member
from konvene.groups.consumer.subscriptions import hash_of
from konvene.groups.consumer.work import RegexesToResolve
from konvene.groups.shard import GroupShard
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.messages.create_topics import CreatableTopic, CreateTopicsRequest
from konvene.messages.find_coordinator import FindCoordinatorRequest
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
from konvene.records.commits import encode_group_record
from konvene.security.resources import Operation, topic
from konvene.sim.journal import batch_of

NONE, FENCED, UNKNOWN = Errors.NONE, Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID
ALL = {ORDERS: (0, 1, 2, 3, 4, 5)}


# --- 19: position of error codes -------------------------------------------------------------------


def test_bug_19_errors_of_the_offset_apis_were_in_the_wrong_fields(tmp_path: Path) -> None:
    """KAFKA-15647: the new coordinator set the errors of offset APIs in fields that clients do not read.

    An error of a whole request is set in each partition of a commit; at the top of a fetch response, or in
    each partition where the version has no such field; and at the top of a deletion response."""
    asyncio.run(_offset_errors(tmp_path))


async def _offset_errors(tmp_path: Path) -> None:
    async with running(tmp_path, {"konvene.heartbeat.policy": "kafka"}) as broker:
        connection = await Connection.open("127.0.0.1", broker.catalogue.advertised[1])
        try:
            await _fetches_too_early(connection)
            made = CreatableTopic(name="orders", num_partitions=2, replication_factor=1)
            await connection.send(CreateTopicsRequest(topics=(made,), timeout_ms=5_000))
            join = ConsumerGroupHeartbeatRequest(
                group_id="g", member_id="ann", rebalance_timeout_ms=30_000, topic_partitions=(),
                subscribed_topic_names=("orders",),
            )  # fmt: skip
            async with asyncio.timeout(20):
                while (response := await connection.send(join, 1)).error_code:
                    await connection.send(FindCoordinatorRequest(coordinator_keys=("g",)), 4)
            await _commits(connection, response.member_epoch)
            await _fetches(connection, response.member_epoch)
            await _deletions(connection)
        finally:
            connection.close()


async def _fetches_too_early(connection: Connection) -> None:
    """The group has no coordinator yet."""
    requested = OffsetFetchRequestTopic(name="orders", partition_indexes=(0, 1))
    for version in (1, 2, 7):
        response = await connection.send(OffsetFetchRequest(group_id="g", topics=(requested,)), version)
        rows = [p.error_code for t in response.topics for p in t.partitions]
        if version < 2:
            assert len(rows) == 2 and set(rows) <= NOT_YET
        else:
            assert (response.error_code in NOT_YET, rows) == (True, [])
    group = OffsetFetchRequestGroup(
        group_id="g", topics=(OffsetFetchRequestTopics(name="orders", partition_indexes=(0, 1)),)
    )
    (of_group,) = (await connection.send(OffsetFetchRequest(groups=(group,)), 9)).groups
    assert (of_group.error_code in NOT_YET, of_group.topics) == (True, ())


NOT_YET = {Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS}


async def _commits(connection: Connection, epoch: int) -> None:
    rows = tuple(OffsetCommitRequestPartition(partition_index=p, committed_offset=7) for p in (0, 1, 9))
    wrong = (
        (9, "g", "eve", epoch, UNKNOWN),
        (9, "g", "ann", epoch + 1, Errors.STALE_MEMBER_EPOCH),
        (8, "g", "ann", epoch, Errors.UNSUPPORTED_VERSION),
        (9, "g", "", -1, UNKNOWN),
        (9, "gone", "ann", 5, Errors.GROUP_ID_NOT_FOUND),
        (8, "gone", "ann", 5, Errors.ILLEGAL_GENERATION),
    )
    for version, group, member, at, expected in wrong:
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=at, member_id=member,
            topics=(OffsetCommitRequestTopic(name="orders", partitions=rows),),
        )  # fmt: skip
        (topic,) = (await connection.send(request, version)).topics
        errors = {p.partition_index: p.error_code for p in topic.partitions}
        assert errors == {0: expected, 1: expected, 9: Errors.UNKNOWN_TOPIC_OR_PARTITION}, (group, member)


async def _fetches(connection: Connection, epoch: int) -> None:
    for member, at, expected in (("eve", epoch, UNKNOWN), ("ann", epoch + 1, Errors.STALE_MEMBER_EPOCH)):
        group = OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=at, topics=None)
        (response,) = (await connection.send(OffsetFetchRequest(groups=(group,)), 9)).groups
        assert (response.error_code, response.topics) == (expected, ())


async def _deletions(connection: Connection) -> None:
    rows = (OffsetDeleteRequestPartition(partition_index=0),)
    topic = OffsetDeleteRequestTopic(name="orders", partitions=rows)
    response = await connection.send(OffsetDeleteRequest(group_id="gone", topics=(topic,)))
    assert (response.error_code, response.topics) == (Errors.GROUP_ID_NOT_FOUND, ())
    response = await connection.send(OffsetDeleteRequest(group_id="g", topics=(topic,)))
    assert response.error_code == NONE
    assert [p.error_code for t in response.topics for p in t.partitions] == [Errors.GROUP_SUBSCRIBED_TO_TOPIC]


# --- 26: session timeout and heartbeat interval ----------------------------------------------------


def test_bug_26_a_session_could_be_shorter_than_a_heartbeats_interval() -> None:
    """KAFKA-17618: settings were accepted with which each member's session expires before its next
    heartbeat."""
    same = {"group.consumer.heartbeat.interval.ms": "15000", "group.consumer.session.timeout.ms": "15000",
            "group.consumer.min.session.timeout.ms": "15000"}  # fmt: skip
    with pytest.raises(ConfigError, match="must be less than"):
        BrokerConfig.load(overrides=list(same.items()))
    wide = {"group.consumer.min.session.timeout.ms": "6000",
            "group.consumer.max.heartbeat.interval.ms": "60000"}  # fmt: skip
    config, _ = BrokerConfig.load(overrides=list(wide.items()))
    for texts in (
        {"consumer.session.timeout.ms": "6000", "consumer.heartbeat.interval.ms": "6000"},
        {"consumer.heartbeat.interval.ms": "50000"},
    ):
        with pytest.raises(ConfigError, match=r"consumer\.session\.timeout\.ms .* must be greater"):
            validate_group(config, texts)


@pytest.mark.parametrize("policy", ["kafka", "responsive"])
def test_bug_26_the_heartbeat_interval_is_shorter_than_the_session(policy: str) -> None:
    """The heartbeat interval in a response is shorter than the session that begins with that response."""
    harness = GroupHarness(
        **{"konvene.heartbeat.policy": policy, "group.consumer.min.session.timeout.ms": "6000"}
    )
    harness.group_configs = harness.group_configs.with_group("g", {"consumer.session.timeout.ms": "6000"})
    response = harness.beat("ann")
    assert response.heartbeat_interval_ms < harness.timers["session", "g", "ann"] - harness.now_ms == 6_000
    assert harness.beat("ann", response.member_epoch).heartbeat_interval_ms < 6_000


# --- 28: topics visible to an expression -----------------------------------------------------------


class Guarded(GroupHarness):
    """A harness whose regex resolution authorizes each topic's description."""

    def __init__(self) -> None:
        super().__init__()
        self.rights = Rights()

    @property
    def names(self) -> list[str]:
        return [resource.name for _, resource in self.rights.checked]

    def work(self, *, fails: bool = False) -> None:
        jobs, self.pending_work = self.pending_work, []
        for job in jobs:
            assert isinstance(job, RegexesToResolve)
            self.apply(self.shard.handle(resolve_regexes(job, self.rights), self.context()))


def test_bug_28_expressions_matched_topics_without_describe_permission() -> None:
    """KAFKA-18813, KAFKA-19147: regex resolution did not use the authorizer. Here no topic is matched without
    authorization, neither at first nor when the expression is resolved again."""
    harness = Guarded()
    harness.rights.rights = {(Operation.DESCRIBE, topic("orders"))}
    harness.beat("ann", subscribed_topic_regex=".*")
    assert harness.group.targets == {} or harness.group.targets["ann"] == {}
    harness.work()
    harness.beat("ann", harness.member("ann").current.epoch)
    assert harness.names == ["audit", "orders"]
    assert harness.group.targets["ann"] == ALL
    harness.rights.rights = {(Operation.DESCRIBE, topic("audit"))}
    harness.topics = topics(1, orders=6, audit=2, late=1)
    harness.advance(11_000)
    harness.beat("ann", harness.member("ann").current.epoch, owned=ALL)
    harness.work()
    harness.beat("ann", harness.member("ann").current.epoch, owned=ALL)
    assert harness.names[2:] == ["audit", "late", "orders"]
    assert harness.group.targets["ann"] == {AUDIT: (0, 1)}


# --- 36 to 39: clients -----------------------------------------------------------------------------


class Reader:
    """Our client's state machine, and an application that takes over the assignment on
    `take_over_assignment`."""

    def __init__(self, harness: GroupHarness, name: str, instance_id: str | None = None) -> None:
        self.harness = harness
        self.machine = ConsumerMembership(
            "g", name, Subscription(("orders",)), MembershipSettings(instance_id=instance_id)
        )

    def ask(self) -> ConsumerGroupHeartbeatRequest:
        """Return the heartbeat that is due, without delivering it."""
        due_ms = self.machine.due_ms
        assert due_ms is not None
        self.harness.now_ms = max(self.harness.now_ms, due_ms)
        return self.machine.request(self.harness.now_ms)

    def deliver(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        response = self.harness.ask(request, 1, self.machine.member_id)
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        response = self.deliver(self.ask())
        self.machine.handle_response(response, self.harness.now_ms)
        return response

    def take_over_assignment(self, units: Partitions | None = None) -> None:
        machine = self.machine
        machine.confirm_owned(
            machine.incarnation, machine.target_version, machine.target if units is None else units
        )

    def settle(self) -> None:
        """Heartbeat until the assignment is complete."""
        for _ in range(6):
            self.beat()
            self.take_over_assignment()
        assert self.machine.state in (ClientState.STABLE, ClientState.ACKNOWLEDGING)


def reader(name: str = "ann", instance_id: str | None = None) -> Reader:
    harness = GroupHarness()
    found = Reader(harness, name, instance_id)
    found.settle()
    assert len(found.machine.owned) == 6
    return found


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i1", -2)])
def test_bug_36_a_leave_during_a_heartbeat_had_an_old_epoch(instance_id: str | None, epoch: int) -> None:
    """librdkafka#4672: a member left while a heartbeat was in flight, with the epoch from before its
    response, and was fenced instead of removed. A leave request has epoch -1 or -2, whatever that heartbeat's
    response."""
    ann = reader(instance_id=instance_id)
    in_flight = ann.ask()
    ann.machine.leave(ann.harness.now_ms)
    leave_request = ann.ask()
    assert (leave_request.member_epoch, leave_request.instance_id) == (epoch, instance_id)
    late = ann.deliver(in_flight)
    assert error(ann.deliver(leave_request)) is NONE
    ann.machine.handle_response(late, ann.harness.now_ms)
    assert (ann.machine.state, ann.machine.due_ms) == (ClientState.LEFT, None)
    assert [m.current.epoch for m in ann.harness.group.members.values()] == [-2] * (epoch == -2)


@pytest.mark.parametrize(("instance_id", "expected"), [(None, UNKNOWN), ("i1", FENCED)])
def test_bug_36_a_heartbeat_after_the_leave_does_not_readmit_the_member(
    instance_id: str | None, expected: Errors
) -> None:
    """The coordinator's side: the two requests arrived in the other order."""
    ann = reader(instance_id=instance_id)
    in_flight = ann.ask()
    ann.machine.leave(ann.harness.now_ms)
    assert error(ann.deliver(ann.ask())) is NONE
    before = logged_state(ann.harness.group)
    assert error(ann.deliver(in_flight)) is expected
    assert logged_state(ann.harness.group) == before


def test_bug_37_a_leave_was_not_sent_while_a_heartbeat_was_under_way() -> None:
    """KAFKA-16639: with one request in flight at a time, the leave was skipped, and the session had to
    expire."""
    ann = reader()
    ann.ask()
    assert ann.machine.due_ms is None
    ann.machine.leave(ann.harness.now_ms)
    assert ann.machine.due_ms == ann.harness.now_ms
    assert error(ann.deliver(ann.ask())) is NONE
    assert not ann.harness.group.members


def test_bug_38_part_of_an_assignment_was_lost_while_its_topic_was_unknown() -> None:
    """KAFKA-16198: the client took over and reported the topics that it knew, and forgot the others. Here it
    keeps the others as target until it learns their names; no other member gets them."""
    harness = GroupHarness()
    ann = Reader(harness, "ann")
    ann.machine.subscribe(Subscription(("orders", "audit")))
    ann.beat()
    known = frozenset((ORDERS, p) for p in range(6))
    ann.take_over_assignment(known)
    for _ in range(3):
        assert ann.beat().assignment is None
    assert ann.machine.state is ClientState.RECONCILING
    assert ann.machine.target - ann.machine.owned == {(AUDIT, 0), (AUDIT, 1)}
    bob = Reader(harness, "bob")
    bob.beat()
    assert without_epochs(harness.member("ann").current.assigned).keys() == {ORDERS, AUDIT}
    ann.beat()
    ann.take_over_assignment(frozenset(u for u in ann.machine.target if u[0] == ORDERS))
    ann.settle()
    bob.settle()
    ann.settle()
    owned = [ann.machine.owned, bob.machine.owned]
    assert not owned[0] & owned[1]
    assert owned[0] | owned[1] == known | {(AUDIT, 0), (AUDIT, 1)}


@pytest.mark.parametrize("wrong", [FENCED, UNKNOWN])
def test_bug_39_a_member_that_was_fenced_went_on_heartbeating(wrong: Errors) -> None:
    """KAFKA-16251: it kept heartbeating with an invalid epoch while its application released the partitions.
    Here it sends nothing until that is done, and then joins as a new member."""
    ann = reader()
    if wrong is UNKNOWN:
        ann.harness.beat("ann", -1)
        response = ann.deliver(ann.ask())
    else:
        response = ann.deliver(ann.ask().replace(member_epoch=9))
    ann.machine.handle_response(response, ann.harness.now_ms)
    assert (error(response), ann.machine.state, ann.machine.due_ms) == (wrong, ClientState.FENCED, None)
    ann.machine.rejoin_fenced(ann.harness.now_ms)
    again = ann.ask()
    assert (again.member_epoch, again.topic_partitions) == (0, ())
    assert error(ann.deliver(again)) is NONE


def test_bug_39_a_rejoined_member_completed_its_former_reconciliation() -> None:
    """KAFKA-16375: it was fenced during a reconciliation and rejoined, and the result of the old
    reconciliation was counted as its current assignment."""
    harness = GroupHarness()
    ann = Reader(harness, "ann")
    ann.beat()
    incarnation, version, target = ann.machine.incarnation, ann.machine.target_version, ann.machine.target
    assert ann.machine.state is ClientState.RECONCILING
    harness.beat("ann", -1)
    ann.machine.handle_response(ann.deliver(ann.ask()), harness.now_ms)
    ann.machine.rejoin_fenced(harness.now_ms)
    ann.beat()
    assert not ann.machine.confirm_owned(incarnation, version, target)
    assert (ann.machine.owned, ann.machine.state) == (frozenset(), ClientState.RECONCILING)
    ann.settle()
    assert len(ann.machine.owned) == 6


# --- 43: metadata changes during a computation -----------------------------------------------------


@pytest.mark.parametrize("joins_meanwhile", [False, True])
def test_bug_43_a_topic_was_created_during_a_regex_resolution(joins_meanwhile: bool) -> None:
    """kfake 4f759318: the notification of a new topic was handled with the older topics, and no other came.
    A result computed from older topics is applied, and the expression is resolved again."""
    harness = GroupHarness()
    harness.beat("ann", subscribed_topic_regex=".*")
    harness.topics = topics(1, orders=6, audit=2, late=1)
    if joins_meanwhile:
        harness.beat("bob")
    harness.work()
    assert matched_topics(harness) == {"orders", "audit"}
    harness.advance(11_000)
    harness.beat("ann", harness.member("ann").current.epoch)
    harness.work()
    assert matched_topics(harness) == {"orders", "audit", "late"}
    late = harness.topics.by_name["late"].id
    harness.beat("ann", harness.member("ann").current.epoch)
    assert [m for m, target in harness.group.targets.items() if late in target] == ["ann"]


def test_bug_43_a_topic_grew_during_a_background_target_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target computed with fewer partitions is applied; the next heartbeat notices the new ones."""
    monkeypatch.setattr("konvene.groups.consumer.targets.OFFLOAD_WEIGHT", 1)
    harness = GroupHarness()
    harness.beat("ann")
    harness.topics = topics(1, orders=8, audit=2)
    harness.work()
    assert harness.group.targets["ann"] == ALL
    harness.beat("ann", harness.member("ann").current.epoch)
    harness.work()
    harness.beat("ann", harness.member("ann").current.epoch, owned=ALL)
    assert harness.group.targets["ann"] == {ORDERS: tuple(range(8))}


def matched_topics(harness: GroupHarness) -> set[str]:
    return set(harness.group.regexes[".*"].topics)


# --- 98: very large groups -------------------------------------------------------------------------

GROUPS, MEMBERS, PARTITIONS = 40, 100, 300
"""A tenth of the reported numbers: 400 groups behave the same, in ten times the time."""


def test_bug_98_forty_thousand_members_did_not_recover_after_a_node_failure() -> None:
    """Redpanda#6199: 120,000 partitions and 40,000 consumers; after a node was killed, some groups
    delayed the rebalances of others. Here a coordinator loads its log, every member continues at its epoch
    with its first heartbeat, and no record is written."""
    harness = GroupHarness()
    harness.topics = topics(orders=PARTITIONS)
    batches = [batch_of([encode_group_record(r) for r in records]) for records in stable_groups(harness)]
    core = GroupShard()
    for batch in batches:
        for record in batch.records:
            core.replay(record)
    harness.shard = core
    harness.apply(core.load(harness.context()))
    assert not harness.last.records
    assert sum(key[0] == "session" for key in harness.timers) == GROUPS * MEMBERS
    for nth in range(GROUPS):
        for i in range(MEMBERS):
            request = ConsumerGroupHeartbeatRequest(
                group_id=f"g{nth}", member_id=f"m{i}", member_epoch=7, instance_id=None
            )
            outcome = core.handle(request, harness.context())
            response: Any = outcome.replies[0].response
            assert (response.error_code, response.member_epoch, response.assignment) == (NONE, 7, None)
            assert not outcome.records
            for record in outcome.soft_records:
                core.replay(record)
    assert {group.state for group in core.groups.values()} == {"Stable"}


def stable_groups(harness: GroupHarness) -> Iterator[list[Any]]:
    """Yield the logs of settled groups whose members share `orders`, one batch per group."""
    each = PARTITIONS // MEMBERS
    seen = hash_of({"orders"}, harness.context())
    for nth in range(GROUPS):
        name = f"g{nth}"
        members = [
            Member(
                f"m{i}",
                client_host="/127.0.0.1",
                topics=frozenset({"orders"}),
                rebalance_timeout_ms=300_000,
                current=CurrentAssignment(
                    MemberState.STABLE, 7, 6, {ORDERS: dict.fromkeys(range(i * each, (i + 1) * each), 7)}
                ),
            )
            for i in range(MEMBERS)
        ]
        yield [
            *(log.member_record(name, member) for member in members),
            log.group_record(name, 7, seen),
            *(
                log.target_record(name, m.member_id, {ORDERS: tuple(m.current.assigned[ORDERS])})
                for m in members
            ),
            log.assignment_record(name, 7, 1),
            *(log.current_record(name, m.member_id, m.current) for m in members),
        ]
