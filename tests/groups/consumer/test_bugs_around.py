"""What once went wrong around consumer groups' coordinators: 19, 26, 28, 36 to 39, 43, 98 of the catalogue.

Some of these were mistakes of clients. It is shown that ours does not make them, against the coordinator
itself, and what a coordinator does with a client that does. `Reader` is our client's own machine
(`client.consumer.membership`), with an application that takes over what it is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.running import running
from tests.groups.consumer.room import AUDIT, ORDERS, Room, error, kept, plain, topics

from konvene.broker.groups.background_work import resolve_regexes
from konvene.broker.net.authorizer import Operation, Resource
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
from konvene.runtime.coordinator import RequestContext
from konvene.sim.journal import batch_of

NONE, FENCED, UNKNOWN = Errors.NONE, Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID
ALL = {ORDERS: (0, 1, 2, 3, 4, 5)}


# --- 19: where an error stands ---------------------------------------------------------------------


def test_bug_19_errors_of_the_offset_apis_stood_elsewhere(tmp_path: Path) -> None:
    """KAFKA-15647: Kafka's new coordinator put the errors of offset APIs where clients did not look for them.

    What is wrong with a whole request stands in each partition of a commit; before the partitions of a fetch,
    but in each of them where the version has no other place; and before those of a deletion."""
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
                while (answer := await connection.send(join, 1)).error_code:
                    await connection.send(FindCoordinatorRequest(coordinator_keys=("g",)), 4)
            await _commits(connection, answer.member_epoch)
            await _fetches(connection, answer.member_epoch)
            await _deletions(connection)
        finally:
            connection.close()


async def _fetches_too_early(connection: Connection) -> None:
    """Nobody coordinates the group yet."""
    asked = OffsetFetchRequestTopic(name="orders", partition_indexes=(0, 1))
    for version in (1, 2, 7):
        told = await connection.send(OffsetFetchRequest(group_id="g", topics=(asked,)), version)
        rows = [p.error_code for t in told.topics for p in t.partitions]
        if version < 2:
            assert len(rows) == 2 and set(rows) <= NOT_YET
        else:
            assert (told.error_code in NOT_YET, rows) == (True, [])
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
        told = {p.partition_index: p.error_code for p in topic.partitions}
        assert told == {0: expected, 1: expected, 9: Errors.UNKNOWN_TOPIC_OR_PARTITION}, (group, member)


async def _fetches(connection: Connection, epoch: int) -> None:
    for member, at, expected in (("eve", epoch, UNKNOWN), ("ann", epoch + 1, Errors.STALE_MEMBER_EPOCH)):
        group = OffsetFetchRequestGroup(group_id="g", member_id=member, member_epoch=at, topics=None)
        (told,) = (await connection.send(OffsetFetchRequest(groups=(group,)), 9)).groups
        assert (told.error_code, told.topics) == (expected, ())


async def _deletions(connection: Connection) -> None:
    rows = (OffsetDeleteRequestPartition(partition_index=0),)
    topic = OffsetDeleteRequestTopic(name="orders", partitions=rows)
    told = await connection.send(OffsetDeleteRequest(group_id="gone", topics=(topic,)))
    assert (told.error_code, told.topics) == (Errors.GROUP_ID_NOT_FOUND, ())
    told = await connection.send(OffsetDeleteRequest(group_id="g", topics=(topic,)))
    assert told.error_code == NONE
    assert [p.error_code for t in told.topics for p in t.partitions] == [Errors.GROUP_SUBSCRIBED_TO_TOPIC]


# --- 26: how long is a session ---------------------------------------------------------------------


def test_bug_26_a_session_could_be_shorter_than_a_heartbeats_interval() -> None:
    """KAFKA-17618: settings were taken with which each member is given up before it is due to be heard."""
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
def test_bug_26_nobody_is_told_to_come_after_its_session(policy: str) -> None:
    """What a member is told to wait is less than the session that begins with that answer."""
    room = Room(**{"konvene.heartbeat.policy": policy, "group.consumer.min.session.timeout.ms": "6000"})
    room.group_configs = room.group_configs.with_group("g", {"consumer.session.timeout.ms": "6000"})
    answer = room.beat("ann")
    assert answer.heartbeat_interval_ms < room.timers["session", "g", "ann"] - room.now_ms == 6_000
    assert room.beat("ann", answer.member_epoch).heartbeat_interval_ms < 6_000


# --- 28: what an expression may see ----------------------------------------------------------------


class Guarded(Room):
    """Whoever looks expressions up asks for each topic whether it may be described."""

    def __init__(self) -> None:
        super().__init__()
        self.may: set[str] = set()
        self.names: list[str] = []

    def allows(self, call: RequestContext, operation: Operation, resource: Resource) -> bool:
        assert operation is Operation.DESCRIBE
        self.names.append(resource.name)
        return resource.name in self.may

    def work(self, *, fails: bool = False) -> None:
        wanted, self.wanted = self.wanted, []
        for asked in wanted:
            assert isinstance(asked, RegexesToResolve)
            self.take(self.shard.handle(resolve_regexes(asked, self.allows), self.context()))


def test_bug_28_expressions_saw_topics_that_nobody_may_describe() -> None:
    """KAFKA-18813, KAFKA-19147: who resolved expressions was there before the authorizer, and knew of none.
    Nothing is matched that was not asked about, not the first time and not when it is looked at again."""
    room = Guarded()
    room.may = {"orders"}
    room.beat("ann", subscribed_topic_regex=".*")
    assert room.group.targets == {} or room.group.targets["ann"] == {}
    room.work()
    room.beat("ann", room.member("ann").current.epoch)
    assert room.names == ["audit", "orders"]
    assert room.group.targets["ann"] == ALL
    room.may = {"audit"}
    room.topics = topics(1, orders=6, audit=2, late=1)
    room.advance(11_000)
    room.beat("ann", room.member("ann").current.epoch, owned=ALL)
    room.work()
    room.beat("ann", room.member("ann").current.epoch, owned=ALL)
    assert room.names[2:] == ["audit", "late", "orders"]
    assert room.group.targets["ann"] == {AUDIT: (0, 1)}


# --- 36 to 39: clients -----------------------------------------------------------------------------


class Reader:
    """Our client's machine, and an application that takes what it is told when `carries_out` is called."""

    def __init__(self, room: Room, name: str, instance_id: str | None = None) -> None:
        self.room = room
        self.machine = ConsumerMembership(
            "g", name, Subscription(("orders",)), MembershipSettings(instance_id=instance_id)
        )

    def ask(self) -> ConsumerGroupHeartbeatRequest:
        """The heartbeat that is due, not yet heard by anybody."""
        due_ms = self.machine.due_ms
        assert due_ms is not None
        self.room.now_ms = max(self.room.now_ms, due_ms)
        return self.machine.request(self.room.now_ms)

    def arrives(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        answer = self.room.ask(request, 1, self.machine.member_id)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def beat(self) -> ConsumerGroupHeartbeatResponse:
        answer = self.arrives(self.ask())
        self.machine.handle_response(answer, self.room.now_ms)
        return answer

    def carries_out(self, units: Partitions | None = None) -> None:
        machine = self.machine
        machine.confirm_owned(
            machine.incarnation, machine.target_version, machine.target if units is None else units
        )

    def settles(self) -> None:
        """It beats until it has all that it is to have."""
        for _ in range(6):
            self.beat()
            self.carries_out()
        assert self.machine.state in (ClientState.STABLE, ClientState.ACKNOWLEDGING)


def reader(name: str = "ann", instance_id: str | None = None) -> Reader:
    room = Room()
    found = Reader(room, name, instance_id)
    found.settles()
    assert len(found.machine.owned) == 6
    return found


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i1", -2)])
def test_bug_36_a_leave_beside_a_heartbeat_had_an_old_epoch(instance_id: str | None, epoch: int) -> None:
    """librdkafka#4672: a member left while a heartbeat was under way, with the epoch from before its answer,
    and was fenced instead of let go. A farewell says -1 or -2, whatever comes of that heartbeat."""
    ann = reader(instance_id=instance_id)
    under_way = ann.ask()
    ann.machine.leave(ann.room.now_ms)
    farewell = ann.ask()
    assert (farewell.member_epoch, farewell.instance_id) == (epoch, instance_id)
    late = ann.arrives(under_way)
    assert error(ann.arrives(farewell)) is NONE
    ann.machine.handle_response(late, ann.room.now_ms)
    assert (ann.machine.state, ann.machine.due_ms) == (ClientState.LEFT, None)
    assert [m.current.epoch for m in ann.room.group.members.values()] == [-2] * (epoch == -2)


@pytest.mark.parametrize(("instance_id", "then"), [(None, UNKNOWN), ("i1", FENCED)])
def test_bug_36_a_heartbeat_that_comes_after_the_farewell_revives_nobody(
    instance_id: str | None, then: Errors
) -> None:
    """The coordinator's side: the two came in the other order."""
    ann = reader(instance_id=instance_id)
    under_way = ann.ask()
    ann.machine.leave(ann.room.now_ms)
    assert error(ann.arrives(ann.ask())) is NONE
    before = kept(ann.room.group)
    assert error(ann.arrives(under_way)) is then
    assert kept(ann.room.group) == before


def test_bug_37_a_leave_was_not_sent_while_a_heartbeat_was_under_way() -> None:
    """KAFKA-16639: one request at a time, so the farewell was left out, and a session had to end."""
    ann = reader()
    ann.ask()
    assert ann.machine.due_ms is None
    ann.machine.leave(ann.room.now_ms)
    assert ann.machine.due_ms == ann.room.now_ms
    assert error(ann.arrives(ann.ask())) is NONE
    assert not ann.room.group.members


def test_bug_38_a_part_of_an_assignment_was_lost_while_its_topic_was_not_known() -> None:
    """KAFKA-16198: the client took over the topics that it knew, said so, and forgot the others. It says what
    it has, goes on meaning to have the rest, and takes it when it learns the name; nobody else gets it."""
    room = Room()
    ann = Reader(room, "ann")
    ann.machine.subscribe(Subscription(("orders", "audit")))
    ann.beat()
    known = frozenset((ORDERS, p) for p in range(6))
    ann.carries_out(known)
    for _ in range(3):
        assert ann.beat().assignment is None
    assert ann.machine.state is ClientState.RECONCILING
    assert ann.machine.target - ann.machine.owned == {(AUDIT, 0), (AUDIT, 1)}
    bob = Reader(room, "bob")
    bob.beat()
    assert plain(room.member("ann").current.assigned).keys() == {ORDERS, AUDIT}
    ann.beat()
    ann.carries_out(frozenset(u for u in ann.machine.target if u[0] == ORDERS))
    ann.settles()
    bob.settles()
    ann.settles()
    has = [ann.machine.owned, bob.machine.owned]
    assert not has[0] & has[1]
    assert has[0] | has[1] == known | {(AUDIT, 0), (AUDIT, 1)}


@pytest.mark.parametrize("wrong", [FENCED, UNKNOWN])
def test_bug_39_a_member_that_was_fenced_went_on_heartbeating(wrong: Errors) -> None:
    """KAFKA-16251: it beat on while its application gave everything up, with an epoch that was none. Here it
    says nothing until that is done, and then joins as if it had never been there."""
    ann = reader()
    if wrong is UNKNOWN:
        ann.room.beat("ann", -1)
        answer = ann.arrives(ann.ask())
    else:
        answer = ann.arrives(ann.ask().replace(member_epoch=9))
    ann.machine.handle_response(answer, ann.room.now_ms)
    assert (error(answer), ann.machine.state, ann.machine.due_ms) == (wrong, ClientState.FENCED, None)
    ann.machine.rejoin_fenced(ann.room.now_ms)
    again = ann.ask()
    assert (again.member_epoch, again.topic_partitions) == (0, ())
    assert error(ann.arrives(again)) is NONE


def test_bug_39_a_member_that_joined_again_carried_out_what_it_was_told_before() -> None:
    """KAFKA-16375: it was thrown out while it was taking something over, joined anew, and what it had begun
    was counted as what it has now."""
    room = Room()
    ann = Reader(room, "ann")
    ann.beat()
    life, turn, target = ann.machine.incarnation, ann.machine.target_version, ann.machine.target
    assert ann.machine.state is ClientState.RECONCILING
    room.beat("ann", -1)
    ann.machine.handle_response(ann.arrives(ann.ask()), room.now_ms)
    ann.machine.rejoin_fenced(room.now_ms)
    ann.beat()
    assert not ann.machine.confirm_owned(life, turn, target)
    assert (ann.machine.owned, ann.machine.state) == (frozenset(), ClientState.RECONCILING)
    ann.settles()
    assert len(ann.machine.owned) == 6


# --- 43: topics that are news to some --------------------------------------------------------------


@pytest.mark.parametrize("joins_meanwhile", [False, True])
def test_bug_43_a_topic_came_while_something_older_was_looked_at(joins_meanwhile: bool) -> None:
    """kfake 4f759318: the notice of a new topic was taken with the topics as they were before, and there was
    no other. What is worked out with topics that are old by then is taken, and looked at again."""
    room = Room()
    room.beat("ann", subscribed_topic_regex=".*")
    room.topics = topics(1, orders=6, audit=2, late=1)
    if joins_meanwhile:
        room.beat("bob")
    room.work()
    assert plain_topics(room) == {"orders", "audit"}
    room.advance(11_000)
    room.beat("ann", room.member("ann").current.epoch)
    room.work()
    assert plain_topics(room) == {"orders", "audit", "late"}
    late = room.topics.by_name["late"].id
    room.beat("ann", room.member("ann").current.epoch)
    assert [m for m, target in room.group.targets.items() if late in target] == ["ann"]


def test_bug_43_a_topic_grew_while_a_target_was_computed_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of a target: what was computed with fewer partitions is taken, and the next heartbeat sees
    that there are more."""
    monkeypatch.setattr("konvene.groups.consumer.targets.HEAVY", 1)
    room = Room()
    room.beat("ann")
    room.topics = topics(1, orders=8, audit=2)
    room.work()
    assert room.group.targets["ann"] == ALL
    room.beat("ann", room.member("ann").current.epoch)
    room.work()
    room.beat("ann", room.member("ann").current.epoch, owned=ALL)
    assert room.group.targets["ann"] == {ORDERS: tuple(range(8))}


def plain_topics(room: Room) -> set[str]:
    return set(room.group.regexes[".*"].topics)


# --- 98: very many ---------------------------------------------------------------------------------

GROUPS, MEMBERS, PARTITIONS = 40, 100, 300
"""A tenth of what was reported: 4,000 members with 12,000 partitions. With 400 groups it is the same, in ten
times the time."""


def test_bug_98_a_node_was_killed_and_forty_thousand_members_never_came_back() -> None:
    """Redpanda#6199: 120,000 partitions and 40,000 consumers, and after a node was killed the groups did not
    recover: they rebalanced, and those rebalances made others late. Here a coordinator loads its log, every
    member goes on at the epoch that it is at, in the first heartbeat, and nothing at all is written."""
    room = Room()
    room.topics = topics(orders=PARTITIONS)
    batches = [batch_of([encode_group_record(r) for r in records]) for records in stable_groups(room)]
    core = GroupShard()
    for batch in batches:
        for record in batch.records:
            core.replay(record)
    room.shard = core
    room.take(core.load(room.context()))
    assert not room.last.records
    assert sum(key[0] == "session" for key in room.timers) == GROUPS * MEMBERS
    for nth in range(GROUPS):
        for i in range(MEMBERS):
            request = ConsumerGroupHeartbeatRequest(
                group_id=f"g{nth}", member_id=f"m{i}", member_epoch=7, instance_id=None
            )
            outcome = core.handle(request, room.context())
            answer: Any = outcome.replies[0].response
            assert (answer.error_code, answer.member_epoch, answer.assignment) == (NONE, 7, None)
            assert not outcome.records
            for record in outcome.soft_records:
                core.replay(record)
    assert {group.state for group in core.groups.values()} == {"Stable"}


def stable_groups(room: Room) -> Iterator[list[Any]]:
    """The log of groups whose members share `orders` and are settled, a batch for each group."""
    each = PARTITIONS // MEMBERS
    seen = hash_of({"orders"}, room.context())
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
