"""Consumer groups change hands, from konvene to Apache Kafka and from Apache Kafka to konvene: the records of
`__consumer_offsets`, keys 3 to 8 and 16 with classic groups among them, are read by the other broker.

The same groups are made on either broker: members that read by name and by expression, static ones of which
one is away, one that has yet to give up what another waits for, a group with a classic member inside, one
that became a classic group again, one that all members left, and one that was deleted. Then the broker stops,
the other one is given its log, must describe every group alike, and each member keeps its epoch.
Topics were made by Kafka, whose whole directory konvene starts with, so that ids are the same with both.

kafka-dump-log, Kafka's own, reads each record of both logs as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.broker.hostile.wire import Target

from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

from .brokers import Kafka
from .changing_hands import (
    LONG_MS,
    Classic,
    as_plain,
    beside,
    dumped,
    eventually,
    hand_over,
    log_of,
    running,
    stopped_kafka,
)

pytestmark = pytest.mark.java

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.assignment.interval.ms": "0",
}
TOPICS = {"orders": 6, "audit-1": 2, "audit-2": 3}
# The keys of the records of these groups' log: commits, classic groups, consumer groups.
COMMIT, CLASSIC, CONSUMER = {"1"}, {"2"}, {"3", "5", "6", "7", "8", "16"}
# A deleted group still writes tombstones for a key that is no longer used.
TOMBSTONE_ONLY = {"4"}

# What the groups are when they change hands.
STATES = {
    "down": ("classic", "Stable"),
    "emptied": ("consumer", "Empty"),
    "mixed": ("consumer", "Stable"),
    "names": ("consumer", "Stable"),
    "owing": ("consumer", "Reconciling"),
    "regex": ("consumer", "Stable"),
    "static": ("consumer", "Reconciling"),
}

Owned = dict[Uuid, tuple[int, ...]]


@dataclass
class Member:
    """One member of the consumer protocol, with its epoch and assignment."""

    group: str
    member_id: str
    epoch: int = 0
    instance: str | None = None
    names: tuple[str, ...] | None = ("orders",)
    regex: str | None = None
    stubborn: bool = False
    """Whether it keeps partitions whose revocation was requested."""
    owns: Owned = field(default_factory=dict)
    assigned: Owned = field(default_factory=dict)

    def beat(self, target: Target, epoch: int | None = None) -> Errors:
        """Send a heartbeat, a full one when it joins, and take over the assignment unless `stubborn`."""
        joins = self.epoch <= 0
        fields: dict[str, Any] = {}
        if joins:
            fields = {
                "subscribed_topic_names": self.names,
                "subscribed_topic_regex": self.regex,
                "rebalance_timeout_ms": LONG_MS,
            }
        owned = tuple(TopicPartitions(topic_id=t, partitions=p) for t, p in self.owns.items())
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance,
            topic_partitions=owned,
            **fields,
        )
        answer = target.ask(request, 1, self.member_id)
        if answer.error_code == Errors.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {
                    t.topic_id: tuple(sorted(t.partitions)) for t in answer.assignment.topic_partitions
                }
            if not self.stubborn:
                self.owns = dict(self.assigned)
        return Errors(answer.error_code)

    def leave(self, target: Target) -> None:
        assert self.beat(target, -2 if self.instance else -1) is Errors.NONE


class Groups:
    """All of them, as their members know them; see the top of this file."""

    def __init__(self, target: Target) -> None:
        self.names = [Member("names", name) for name in ("ann", "bob", "cid")]
        self.regex = [
            Member("regex", "reg", names=None, regex="audit-.*"),
            Member("regex", "both", names=("orders",), regex="audit-1"),
        ]
        self.static = [Member("static", "one", instance="i1"), Member("static", "two", instance="i2")]
        self.owing = [Member("owing", "has"), Member("owing", "waits")]
        self.mixed, self.old = [Member("mixed", "new")], Classic("mixed", "old")
        self.down, self.last = Member("down", "gone"), Classic("down", "stays")
        self.make(target)

    @property
    def consumers(self) -> list[Member]:
        """All members of the consumer protocol that have not left."""
        return [*self.names, *self.regex, self.static[1], *self.owing, *self.mixed]

    def make(self, target: Target) -> None:
        self.settle(target, self.names)
        self.settle(target, self.regex)
        self.settle(target, self.static)
        self.static[0].leave(target)
        has, waits = self.owing
        self.settle(target, [has])
        has.stubborn = True
        for _ in range(3):
            waits.beat(target)
            has.beat(target)
        for new, classic in ((self.mixed[0], self.old), (self.down, self.last)):
            classic.step(target)
            self.settle(target, [new], classic)
        self.down.leave(target)
        self.last.step(target)
        for group in ("emptied", "deleted"):
            member = Member(group, "m")
            self.settle(target, [member])
            commit(target, member)
            member.leave(target)
        deleted = target.ask(DeleteGroupsRequest(groups_names=("deleted",)))
        assert [r.error_code for r in deleted.results] == [Errors.NONE]
        for member in (self.names[0], self.owing[0]):
            commit(target, member)

    def settle(self, target: Target, members: list[Member], classic: Classic | None = None) -> None:
        """Let them join, and beat until the group is stable."""
        group = members[0].group

        def stable() -> bool:
            for member in members:
                assert member.beat(target) is Errors.NONE
            if classic is not None:
                classic.step(target)
            return bool(
                describe_group(target, group).group_state == "Stable" and all(m.assigned for m in members)
            )

        eventually(stable, lambda: repr(describe_group(target, group)))

    def go_on(self, target: Target) -> None:
        """Check that each member keeps its epoch and assignment, that a pending revocation completes, that
        the static member that is away can return, and that another member can join each group."""
        for member in self.consumers:
            before = member.epoch, dict(member.assigned)
            assert member.beat(target) is Errors.NONE, member
            assert (member.epoch, member.assigned) == before, member
        assert [self.old.beat(target), self.last.beat(target)] == [Errors.NONE] * 2
        has = self.owing[0]
        has.stubborn, has.owns = False, dict(has.assigned)
        self.settle(target, self.owing)
        assert {len(p) for m in self.owing for p in m.assigned.values()} == {3}
        back = Member("static", "another one", instance="i1")
        assert back.beat(target) is Errors.NONE
        assert (back.epoch, back.assigned) == (self.static[1].epoch, self.static[0].assigned)
        for group, there in (("names", self.names), ("regex", self.regex), ("emptied", [])):
            self.settle(target, [*there, Member(group, "new-here")])
        self.settle(target, [*self.mixed, Member("mixed", "third")], self.old)
        self.settle(target, [Member("down", "up again")], self.last)


def describe_group(target: Target, group: str) -> Any:
    return target.ask(ConsumerGroupDescribeRequest(group_ids=(group,)), 1).groups[0]


def commit(target: Target, member: Member) -> None:
    """It commits for everything it has."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=100 + p, committed_metadata="said")
        for some in member.owns.values()
        for p in some
    )
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.epoch,
        member_id=member.member_id,
        topics=(OffsetCommitRequestTopic(name="orders", partitions=partitions),),
    )
    answer = target.ask(request, 9)
    assert {p.error_code for p in answer.topics[0].partitions} == {Errors.NONE}


def describe_all(target: Target) -> list[Any]:
    """Return a broker's descriptions of all groups: types, states, members with epochs and partitions, and
    commits."""
    listed = sorted(target.ask(ListGroupsRequest(), 5).groups, key=lambda g: g.group_id)
    assert {g.group_id: (g.group_type, g.group_state) for g in listed} == STATES
    descriptions: list[Any] = []
    for group in listed:
        descriptions.append((group.group_id, group.group_type, group.group_state, group.protocol_type))
        if group.group_type == "consumer":
            description = describe_group(target, group.group_id)
        else:
            (description,) = target.ask(DescribeGroupsRequest(groups=(group.group_id,)), 5).groups
        descriptions.append(as_plain(description))
        wanted = (OffsetFetchRequestGroup(group_id=group.group_id, topics=None),)
        (fetched,) = target.ask(OffsetFetchRequest(groups=wanted), 9).groups
        descriptions.append(as_plain(fetched))
    return descriptions


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    """Apache Kafka, stopped, with the topics."""
    return stopped_kafka(tmp_path, SETTINGS, TOPICS)


def test_kafka_goes_on_with_the_groups_that_konvene_wrote(tmp_path: Path, kafka: Kafka) -> None:
    konvene = beside(kafka, tmp_path)
    with running(konvene, "names") as target:
        groups = Groups(target)
        ours = describe_all(target)
    assert {key for key, _ in dumped(log_of(konvene))} == COMMIT | CLASSIC | CONSUMER | TOMBSTONE_ONLY
    hand_over(konvene, kafka)
    with running(kafka, "names") as target:
        assert describe_all(target) == ours
        groups.go_on(target)


def test_konvene_goes_on_with_the_groups_that_kafka_wrote(tmp_path: Path, kafka: Kafka) -> None:
    with running(kafka, "names") as target:
        groups = Groups(target)
        theirs = describe_all(target)
    assert {key for key, _ in dumped(log_of(kafka))} == COMMIT | CLASSIC | CONSUMER | TOMBSTONE_ONLY
    with running(beside(kafka, tmp_path), "names") as target:
        assert describe_all(target) == theirs
        groups.go_on(target)
