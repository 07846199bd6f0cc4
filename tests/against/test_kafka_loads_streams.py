"""Streams groups change hands, from konvene to Apache Kafka and from Apache Kafka to konvene: the records of
`__consumer_offsets`, keys 17 and 19 to 23 with classic groups before and after, are read by the other broker.

The same groups are made on either broker: members of three processes with tasks and standbys, static ones of
which one is away, one that has yet to give up what another waits for, a group whose source topic is missing,
one that was a classic group before and one that became one, one that all members left, and one that was
deleted. Then the broker stops, the other one is given its log, must describe every group as the first one
does that has read its own, and each member goes on with the epoch and the tasks it has.

Internal topics are there from the beginning: who made them would give them ids of its own.

The history that konvene infers from Kafka's records equals the history that konvene recorded live.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.broker.hostile.wire import Target
from tests.groups.streams.classic.threads import Thread

from konvene.errors import Errors
from konvene.messages.delete_groups import DeleteGroupsRequest
from konvene.messages.describe_groups import DescribeGroupsRequest
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.list_groups import ListGroupsRequest
from konvene.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from konvene.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from konvene.messages.streams_group_describe import StreamsGroupDescribeRequest
from konvene.messages.streams_group_heartbeat import (
    CopartitionGroup,
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from konvene.messages.sync_group import SyncGroupRequestAssignment

from .brokers import Broker, Kafka
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
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.session.timeout.ms": "60000",
    "group.streams.num.standby.replicas": "1",
}
TOPICS = {"orders": 6, "prices": 4, "words": 4, "counts": 4}

# The keys of the records of these groups' log: commits, classic groups, streams groups.
COMMIT, CLASSIC, STREAMS = {"1"}, {"2"}, {"17", "19", "20", "21", "22", "23"}

# What the groups are when they change hands.
STATES = {
    "down": ("classic", "Stable"),
    "emptied": ("streams", "Empty"),
    "missing": ("streams", "NotReady"),
    "owing": ("streams", "Reconciling"),
    "static": ("streams", "Reconciling"),
    "tasks": ("streams", "Stable"),
    "up": ("streams", "Stable"),
}

COUNTS = Topology(
    epoch=0,
    subtopologies=(
        Subtopology(subtopology_id="0", source_topics=("orders",), repartition_sink_topics=("words",)),
        Subtopology(
            subtopology_id="1",
            source_topics=("prices",),
            repartition_source_topics=(
                TopicInfo(
                    name="words", partitions=4, topic_configs=(KeyValue(key="retention.ms", value="-1"),)
                ),
            ),
            state_changelog_topics=(
                TopicInfo(name="counts", topic_configs=(KeyValue(key="cleanup.policy", value="compact"),)),
            ),
            copartition_groups=(CopartitionGroup(source_topics=(0,), repartition_source_topics=(0,)),),
        ),
    ),
)
"""Ten tasks, of which four have state."""

READS = Topology(epoch=0, subtopologies=(Subtopology(subtopology_id="0", source_topics=("orders",)),))
NOWHERE = Topology(epoch=3, subtopologies=(Subtopology(subtopology_id="0", source_topics=("nowhere",)),))
HERE = Endpoint(host="here", port=40_000)
ROLES = ("active_tasks", "standby_tasks", "warmup_tasks")

Owned = dict[str, tuple[TaskIds, ...]]
NOTHING: Owned = dict.fromkeys(ROLES, ())


@dataclass
class Member:
    """One member of a streams group, with its epoch and tasks."""

    group: str
    member_id: str
    topology: Topology = READS
    instance: str | None = None
    endpoint: Endpoint | None = HERE
    epoch: int = 0
    stubborn: bool = False
    """Whether it keeps tasks whose revocation was requested."""
    owns: Owned = field(default_factory=lambda: dict(NOTHING))
    assigned: Owned = field(default_factory=lambda: dict(NOTHING))

    def beat(self, target: Target, epoch: int | None = None) -> Errors:
        """Send a heartbeat, a full one when it joins, and take over the assignment unless `stubborn`."""
        fields: dict[str, Any] = {}
        if self.epoch <= 0:
            fields = {
                "topology": self.topology,
                "process_id": f"process of {self.member_id}",
                "rack_id": "a rack",
                "user_endpoint": self.endpoint,
                "client_tags": (KeyValue(key="zone", value="z"),),
                "rebalance_timeout_ms": LONG_MS,
            }
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance,
            **fields,
            **self.owns,
        )
        answer = target.ask(request, 1, self.member_id)
        if answer.error_code == Errors.NONE and epoch is None:
            self.epoch = answer.member_epoch
            for role in ROLES:
                if getattr(answer, role) is not None:
                    self.assigned[role] = getattr(answer, role)
            if not self.stubborn:
                self.owns = dict(self.assigned)
        return Errors(answer.error_code)

    def leave(self, target: Target) -> None:
        assert self.beat(target, -2 if self.instance else -1) is Errors.NONE

    def count(self, role: str) -> int:
        return sum(len(tasks.partitions) for tasks in self.assigned[role])


class Groups:
    """All of them, as their members know them; see the top of this file."""

    def __init__(self, target: Target) -> None:
        self.tasks = [Member("tasks", name, COUNTS) for name in ("ann", "bob", "cid")]
        self.static = [Member("static", f"m{i}", COUNTS, instance=f"i{i}") for i in (1, 2)]
        self.owing = [Member("owing", "has"), Member("owing", "waits")]
        self.missing = Member("missing", "asks", NOWHERE, endpoint=None)  # With one, Kafka fails.
        self.up = Member("up", "new", COUNTS)
        self.last = Classic("down", "old")
        self.make(target)

    @property
    def members(self) -> list[Member]:
        """All members that have not left."""
        return [*self.tasks, self.static[1], *self.owing, self.missing, self.up]

    def make(self, target: Target) -> None:
        self.settle(target, self.tasks)
        assert sum(member.count("standby_tasks") for member in self.tasks) == 4
        self.settle(target, self.static)
        self.static[0].leave(target)
        has, waits = self.owing
        self.settle(target, [has])
        has.stubborn = True
        for _ in range(3):
            assert waits.beat(target) is has.beat(target) is Errors.NONE
        for _ in range(2):
            assert self.missing.beat(target) is Errors.NONE
        before = Classic("up", "old")
        before.step(target)
        commit(target, "up", before.member_id, before.generation)
        left = (MemberIdentity(member_id=before.member_id),)
        assert target.ask(LeaveGroupRequest(group_id="up", members=left)).error_code == Errors.NONE
        self.settle(target, [self.up])
        for group in ("emptied", "deleted", "down"):
            member = Member(group, "m", COUNTS)
            self.settle(target, [member])
            commit(target, group, "m", member.epoch)
            member.leave(target)
        deleted = target.ask(DeleteGroupsRequest(groups_names=("deleted",)))
        assert [r.error_code for r in deleted.results] == [Errors.NONE]
        self.last.step(target)
        commit(target, "tasks", self.tasks[0].member_id, self.tasks[0].epoch)

    def settle(self, target: Target, members: list[Member]) -> None:
        """Let them join, and beat until the group is stable."""
        group = members[0].group

        def stable() -> bool:
            for member in members:
                assert member.beat(target) is Errors.NONE, member
            return bool(
                describe_group(target, group).group_state == "Stable" and all(m.assigned for m in members)
            )

        eventually(stable, lambda: repr(describe_group(target, group)))

    def go_on(self, target: Target) -> None:
        """Check that each member keeps its epoch and tasks, that a pending revocation completes, that the
        static member that is away can return, and that another member can join each group."""
        for member in self.members:
            before = member.epoch, dict(member.assigned)
            assert member.beat(target) is Errors.NONE, member
            assert (member.epoch, member.assigned) == before, member
        assert self.last.beat(target) is Errors.NONE
        has = self.owing[0]
        has.stubborn, has.owns = False, dict(has.assigned)
        self.settle(target, self.owing)
        assert [member.count("active_tasks") for member in self.owing] == [3, 3]
        away = self.static[0]
        back = Member("static", "m3", COUNTS, instance=away.instance)
        self.settle(target, [back, self.static[1]])
        assert tuple(map(back.count, ROLES)) == tuple(map(away.count, ROLES))
        for group, there in (("tasks", self.tasks), ("emptied", []), ("up", [self.up])):
            group_members = [*there, Member(group, "new-here", COUNTS)]
            self.settle(target, group_members)
            assert sum(member.count("active_tasks") for member in group_members) == 10
        target.topic("nowhere", 2)
        self.settle(target, [self.missing])
        assert self.missing.count("active_tasks") == 2


def describe_group(target: Target, group: str) -> Any:
    return target.ask(StreamsGroupDescribeRequest(group_ids=(group,)), 1).groups[0]


def commit(target: Target, group: str, member_id: str, epoch: int) -> None:
    """A member commits for two partitions."""
    partitions = tuple(
        OffsetCommitRequestPartition(partition_index=p, committed_offset=100 + p, committed_metadata="said")
        for p in (0, 1)
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=(OffsetCommitRequestTopic(name="orders", partitions=partitions),),
    )
    answer = target.ask(request, 9)
    assert {p.error_code for p in answer.topics[0].partitions} == {Errors.NONE}


def describe_all(target: Target) -> list[Any]:
    """Return a broker's descriptions of all groups: types, states, members with epochs and tasks, and
    commits."""
    listed = sorted(target.ask(ListGroupsRequest(), 5).groups, key=lambda g: g.group_id)
    assert {g.group_id: (g.group_type, g.group_state) for g in listed} == STATES
    descriptions: list[Any] = []
    for group in listed:
        descriptions.append((group.group_id, group.group_type, group.group_state, group.protocol_type))
        if group.group_type == "streams":
            description = describe_group(target, group.group_id)
        else:
            (description,) = target.ask(DescribeGroupsRequest(groups=(group.group_id,)), 5).groups
        descriptions.append(as_plain(description))
        wanted = (OffsetFetchRequestGroup(group_id=group.group_id, topics=None),)
        (fetched,) = target.ask(OffsetFetchRequest(groups=wanted), 9).groups
        descriptions.append(as_plain(fetched))
    return descriptions


DEPARTURES = ("member-left", "removed-by-admin", "session-expired")


def why(broker: Broker, group: str) -> list[Any]:
    """Return the rebalances of a group: state, causes, members and numbers of moved tasks. Kinds of departure
    are merged, since no log distinguishes them."""
    words = [sys.executable, "-m", "konvene", "groups", "history", "--json"]
    words += ["--bootstrap-server", broker.bootstrap, "--group", group]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows, group
    assert {row["inferred"] for row in rows} == {not broker.explains}
    return [
        (
            row["group_type"],
            row.get("epoch", row.get("generation")),
            row["state"],
            [
                ("member-gone" if c["kind"] in DEPARTURES else c["kind"], c["client_id"])
                for c in row["causes"]
            ],
            [m["client_id"] for m in row["members"]],
            row["tasks_moved"],
        )
        for row in rows
    ]


@pytest.fixture
def kafka(tmp_path: Path) -> Kafka:
    """Apache Kafka, stopped, with the topics."""
    return stopped_kafka(tmp_path, SETTINGS, TOPICS)


def test_kafka_goes_on_with_the_streams_groups_that_konvene_wrote(tmp_path: Path, kafka: Kafka) -> None:
    konvene = beside(kafka, tmp_path)
    with running(konvene, "tasks") as target:
        groups = Groups(target)
    with running(konvene, "tasks") as target:
        ours = describe_all(target)
    assert {key for key, _ in dumped(log_of(konvene))} == COMMIT | CLASSIC | STREAMS
    hand_over(konvene, kafka)
    with running(kafka, "tasks") as target:
        assert describe_all(target) == ours
        groups.go_on(target)


def test_konvene_goes_on_with_the_streams_groups_that_kafka_wrote(tmp_path: Path, kafka: Kafka) -> None:
    with running(kafka, "tasks") as target:
        groups = Groups(target)
    with running(kafka, "tasks") as target:
        theirs = describe_all(target)
    assert {key for key, _ in dumped(log_of(kafka))} == COMMIT | CLASSIC | STREAMS
    with running(beside(kafka, tmp_path), "tasks") as target:
        assert describe_all(target) == theirs
        groups.go_on(target)


def test_history_inferred_from_kafkas_records_equals_konvenes(tmp_path: Path, kafka: Kafka) -> None:
    konvene = beside(kafka, tmp_path)
    histories = []
    for broker in (konvene, kafka):
        with running(broker, "tasks") as target:
            Groups(target)
            histories.append({group: why(broker, group) for group in (*STATES, "deleted")})
    live, inferred = histories
    assert inferred == live
    assert next(row[-1] for row in live["tasks"] if row[2] == "Stable") == {
        "active": 10, "standby": 0, "warmup": 0,
    }  # fmt: skip


def test_kafka_reads_over_what_is_kept_of_members_of_the_classic_protocol(
    tmp_path: Path, kafka: Kafka
) -> None:
    """A group in the midst of a migration: Kafka and its tool take every member for one of the streams
    protocol. Members of the streams protocol go on; the classic one is rejected."""
    konvene = beside(kafka, tmp_path)
    konvene.settings |= {"konvene.streams.mode": "kip"}
    old, new = Thread("old"), Member("g", "new")
    with running(konvene, "g") as target:
        while old.joined(target.ask(old.join_request(), 9, "old")):
            pass
        nothing = SyncGroupRequestAssignment(member_id=old.member_id, assignment=b"")
        synced = target.ask(old.sync_request().replace(assignments=(nothing,)), 4, "old")
        assert synced.error_code == Errors.NONE
        assert new.beat(target) is Errors.NONE
        ours = describe_group(target, "g")
    assert {member.member_id: member.is_classic for member in ours.members} == {
        old.member_id: True, "new": False,
    }  # fmt: skip
    assert "19" in {key for key, _ in dumped(log_of(konvene))}
    hand_over(konvene, kafka)
    with running(kafka, "g") as target:
        theirs = describe_group(target, "g")
        assert (theirs.group_epoch, theirs.assignment_epoch) == (ours.group_epoch, ours.assignment_epoch)
        assert {member.member_id: member.is_classic for member in theirs.members} == {
            old.member_id: False, "new": False,
        }  # fmt: skip
        has, had = (
            {m.member_id: m.assignment for m in description.members} for description in (theirs, ours)
        )
        assert has == had
        assert new.beat(target) is Errors.NONE
        assert Errors(target.ask(old.beat_request(), 4, "old").error_code) is Errors.UNKNOWN_MEMBER_ID
        refused = target.ask(old.join_request(), 9, "old")
        assert Errors(refused.error_code) is Errors.INCONSISTENT_GROUP_PROTOCOL
