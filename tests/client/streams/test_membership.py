"""What a member of a streams group says and when, as transcripts of the pure machine.

A line `->` is a heartbeat with what it carries beside group and member, `<-` an answer, `..` a state.
"""

from __future__ import annotations

from typing import Any

import pytest

from konvene.client.errors import BadResponse, ConnectionLost, KafkaError, Misconfigured
from konvene.client.membership.state_machine import MembershipSettings, MemberState
from konvene.client.net.cluster import TopicPartition
from konvene.client.streams.membership import (
    NO_STREAMS_PROTOCOL,
    EndpointPartitions,
    Status,
    StreamsMembership,
)
from konvene.client.streams.settings import StreamsMemberSettings, streams_settings
from konvene.client.streams.tasks import Assignment, InternalTopic, Role, Subtopology, Task, Topology
from konvene.errors import Errors
from konvene.messages import streams_group_heartbeat as wire
from konvene.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

TOPOLOGY = Topology((Subtopology("0", ("t",)), Subtopology("1", ("u",))), epoch=3)


def tasks(text: str) -> frozenset[Task]:
    """`0_0 0_1`."""
    return frozenset(Task(each.partition("_")[0], int(each.partition("_")[2])) for each in text.split())


def having(active: str = "", standby: str = "", warmup: str = "") -> Assignment:
    return Assignment(tasks(active), tasks(standby), tasks(warmup))


def rows(some: frozenset[Task]) -> tuple[wire.TaskIds, ...]:
    return tuple(
        wire.TaskIds(subtopology_id=t.subtopology, partitions=(t.partition,))
        for t in sorted(some, key=lambda t: t.sort_key)
    )


def told(request: StreamsGroupHeartbeatRequest) -> str:
    """What it carries."""
    words = [f"epoch {request.member_epoch}"]
    if request.topology is not None:
        words.append(f"topology {request.topology.epoch}, process {request.process_id}")
        words.append(f"rebalance {request.rebalance_timeout_ms}")
    if request.active_tasks is not None:
        own = Assignment.from_message(request.active_tasks, request.standby_tasks, request.warmup_tasks)
        words.append(f"owns {own}")
    for name, offsets in (("at", request.task_offsets), ("ends", request.task_end_offsets)):
        if offsets is not None:
            words.append(
                f"{name} "
                + (",".join(f"{o.subtopology_id}_{o.partition}:{o.offset}" for o in offsets) or "nothing")
            )
    if request.shutdown_application:
        words.append("shutdown")
    return ", ".join(words)


class Talk:
    """A member and its coordinator's lines, with the time; the interval is 5 s, that of offsets 60 s."""

    def __init__(
        self, endpoint: tuple[str, int] | None = None, tags: dict[str, str] | None = None, **options: Any
    ) -> None:
        self.member = StreamsMembership(
            "g", "m", TOPOLOGY, MembershipSettings(**options), process_id="p", endpoint=endpoint, tags=tags
        )
        self.now_ms = 0
        self.lines: list[str] = []
        self.last = StreamsGroupHeartbeatRequest()

    def beat(self) -> None:
        due = self.member.due_ms
        assert due is not None, f"{self.member} has nothing to say"
        self.now_ms = max(self.now_ms, due)
        self.last = self.member.request(self.now_ms)
        self.lines.append(f"{self.now_ms:>5} -> {told(self.last)}")

    def answer(self, epoch: int, given: Assignment | None = None, **more: Any) -> None:
        parts = (None,) * 3 if given is None else tuple(rows(given.of(role)) for role in Role)
        answer = StreamsGroupHeartbeatResponse(
            member_id="m", member_epoch=epoch, heartbeat_interval_ms=5_000, task_offset_interval_ms=60_000,
            acceptable_recovery_lag=100, status=(), active_tasks=parts[0], standby_tasks=parts[1],
            warmup_tasks=parts[2],
        ).replace(**more)  # fmt: skip
        self.lines.append(f"      <- epoch {epoch}, {'unchanged' if given is None else given}")
        self.member.handle_response(answer, self.now_ms)

    def refuse(self, error: Errors, message: str | None = None) -> None:
        self.lines.append(f"      <- {error.name}")
        answer = StreamsGroupHeartbeatResponse(error_code=error, error_message=message)
        self.member.handle_response(answer, self.now_ms)

    def lose_the_answer(self) -> None:
        self.lines.append("      <- nothing")
        self.member.handle_failure(ConnectionLost("the broker went away"), self.now_ms)

    def take(self) -> None:
        """The caller has what it is meant to have."""
        m = self.member
        assert m.confirm_owned(m.incarnation, m.target_version, m.target)
        self.lines.append(f"      .. {m.state.value}, has {m.owned}")

    def settle(self, given: Assignment) -> None:
        self.beat()
        self.answer(1, given)
        self.take()
        self.beat()
        self.answer(1)
        assert self.member.state is MemberState.STABLE
        self.lines.clear()


def test_it_joins_takes_over_confirms_and_is_silent_of_what_was_told() -> None:
    talk = Talk()
    talk.beat()
    talk.answer(4, having("0_0 1_0", standby="0_1"))
    talk.take()
    talk.beat()
    talk.answer(4)
    talk.beat()
    assert talk.lines == [
        "    0 -> epoch 0, topology 3, process p, rebalance 300000, owns none",
        "      <- epoch 4, active 0_0,1_0; standby 0_1",
        "      .. acknowledging, has active 0_0,1_0; standby 0_1",
        "    0 -> epoch 4, owns active 0_0,1_0; standby 0_1",
        "      <- epoch 4, unchanged",
        " 5000 -> epoch 4",
    ]


def test_it_confirms_what_it_gave_up_at_once_and_not_before() -> None:
    """While it gives up, it heartbeats at its interval, with nothing new."""
    talk = Talk()
    talk.settle(having("0_0 0_1"))
    talk.beat()
    talk.answer(1, having("0_0", warmup="0_1"))
    assert talk.member.state is MemberState.RECONCILING
    talk.beat()
    talk.answer(1)
    talk.take()
    talk.beat()
    assert talk.lines == [
        " 5000 -> epoch 1",
        "      <- epoch 1, active 0_0; warmup 0_1",
        "10000 -> epoch 1",
        "      <- epoch 1, unchanged",
        "      .. acknowledging, has active 0_0; warmup 0_1",
        "10000 -> epoch 1, owns active 0_0; warmup 0_1",
    ]


def test_after_a_lost_answer_it_says_again_what_it_has() -> None:
    talk = Talk()
    talk.settle(having("0_0"))
    talk.beat()
    talk.lose_the_answer()
    talk.beat()
    assert talk.lines == [
        " 5000 -> epoch 1",
        "      <- nothing",
        " 5100 -> epoch 1, owns active 0_0",
    ]


def test_offsets_are_told_at_their_interval_and_when_they_changed() -> None:
    """And at once where a warm-up has nearly caught up: the group waits for that."""
    talk = Talk()
    talk.settle(having(warmup="0_0"))
    talk.member.report({Task("0", 0): 5}, {Task("0", 0): 500})
    talk.beat()
    talk.answer(1)
    talk.now_ms = 60_000
    talk.beat()
    talk.answer(1)
    talk.member.report({Task("0", 0): 300}, {Task("0", 0): 500})
    talk.beat()
    talk.answer(1)
    talk.member.report({Task("0", 0): 450}, {Task("0", 0): 500})
    talk.beat()
    assert [line for line in talk.lines if "->" in line] == [
        " 5000 -> epoch 1",
        "60000 -> epoch 1, at 0_0:5, ends 0_0:500",
        "65000 -> epoch 1",
        "70000 -> epoch 1, at 0_0:450",
    ]


def test_who_reports_tells_of_an_empty_disk_as_it_joins() -> None:
    """So that the group waits for its copies; who never reports says nothing of offsets, and is not waited
    for."""
    for reports in (True, False):
        talk = Talk()
        if reports:
            talk.member.report({}, {})
        talk.beat()
        talk.answer(1)
        talk.beat()
        ends = ", at nothing, ends nothing" if reports else ""
        assert [line for line in talk.lines if "->" in line] == [
            f"    0 -> epoch 0, topology 3, process p, rebalance 300000, owns none{ends}",
            " 5000 -> epoch 1",
        ]


def test_a_shutdown_is_asked_for_at_once_and_with_every_heartbeat() -> None:
    talk = Talk()
    talk.settle(having("0_0"))
    talk.member.request_shutdown()
    talk.beat()
    talk.answer(1, status=(wire.Status(status_code=4, status_detail="m wants it"),))
    assert talk.member.shutdown_requested
    assert talk.member.is_ready
    talk.member.leave(talk.now_ms)
    talk.beat()
    assert talk.lines == [
        "    0 -> epoch 1, shutdown",
        "      <- epoch 1, unchanged",
        "    0 -> epoch -1, shutdown",
    ]
    assert talk.member.state is MemberState.LEFT


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_it_leaves_for_good_or_for_a_while(instance: str | None, epoch: int) -> None:
    talk = Talk(instance_id=instance)
    talk.settle(having("0_0"))
    talk.member.leave(talk.now_ms)
    talk.beat()
    assert (talk.last.member_epoch, talk.last.instance_id) == (epoch, instance)
    assert talk.member.due_ms is None


@pytest.mark.parametrize("error", [Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID])
def test_thrown_out_it_lets_go_and_joins_with_everything(error: Errors) -> None:
    talk = Talk(endpoint=("h", 80), tags={"b": "2", "a": "1"}, rack_id="r")
    talk.settle(having("0_0"))
    talk.beat()
    talk.refuse(error)
    assert (talk.member.state, talk.member.due_ms, talk.member.owned) == (
        MemberState.FENCED,
        None,
        having("0_0"),
    )
    talk.member.rejoin_fenced(talk.now_ms)
    talk.beat()
    assert talk.lines[-1] == (" 5000 -> epoch 0, topology 3, process p, rebalance 300000, owns none")
    assert [(tag.key, tag.value) for tag in talk.last.client_tags or ()] == [("a", "1"), ("b", "2")]
    assert (talk.last.user_endpoint, talk.last.rack_id) == (wire.Endpoint(host="h", port=80), "r")
    assert talk.last.topology == TOPOLOGY.to_message()


def test_what_nothing_can_help_is_the_end() -> None:
    for error, words in (
        (Errors.STREAMS_INVALID_TOPOLOGY, "no"),
        (Errors.UNSUPPORTED_VERSION, NO_STREAMS_PROTOCOL),
        (Errors.GROUP_AUTHORIZATION_FAILED, "Not authorized to access group: g"),
    ):
        talk = Talk()
        talk.beat()
        talk.refuse(error, "no")
        assert (talk.member.state, talk.member.due_ms) == (MemberState.FATAL, None)
        assert isinstance(talk.member.error, KafkaError)
        assert talk.member.error.message == words


def test_an_answer_that_cannot_be_is_the_end() -> None:
    """Tasks of a subtopology that it does not have; tasks in some roles alone."""
    talk = Talk()
    talk.beat()
    talk.answer(1, having("7_0"))
    assert talk.member.state is MemberState.FATAL
    assert str(talk.member.error) == "group g: tasks of subtopologies not known here: 7"
    talk = Talk()
    talk.beat()
    talk.answer(1, having("0_0"), standby_tasks=None)
    assert isinstance(talk.member.error, BadResponse)


def test_a_group_that_is_not_ready_says_why_until_it_is() -> None:
    talk = Talk()
    talk.beat()
    talk.answer(1, having(), status=(wire.Status(status_code=1, status_detail="t is missing"),))
    assert talk.member.statuses == (Status(1, "t is missing"),)
    assert not talk.member.is_ready
    talk.take()
    talk.beat()
    talk.answer(2, having("0_0"))
    assert talk.member.is_ready
    assert talk.member.target == having("0_0")


def test_endpoints_of_one_process_add_up_and_are_kept_until_others_come() -> None:
    def at(host: str, partition: int) -> wire.EndpointToPartitions:
        served = (wire.TopicPartition(topic="t", partitions=(partition,)),)
        where = wire.Endpoint(host=host, port=80)
        return wire.EndpointToPartitions(user_endpoint=where, active_partitions=served)

    talk = Talk()
    talk.beat()
    assert talk.last.endpoint_information_epoch == -1
    everywhere = (at("a", 0), at("b", 1), at("a", 2))
    talk.answer(1, having(), endpoint_information_epoch=7, partitions_by_user_endpoint=everywhere)
    both = {
        ("a", 80): EndpointPartitions((TopicPartition("t", 0), TopicPartition("t", 2)), ()),
        ("b", 80): EndpointPartitions((TopicPartition("t", 1),), ()),
    }
    assert talk.member.endpoints == both
    talk.take()
    talk.beat()
    assert talk.last.endpoint_information_epoch == 7
    talk.answer(1, endpoint_information_epoch=7)
    assert talk.member.endpoints == both


def test_an_instance_that_is_still_taken_is_waited_for_a_while() -> None:
    talk = Talk(instance_id="i", unreleased_timeout_ms=1_000)
    while talk.member.state is MemberState.JOINING:
        talk.beat()
        talk.refuse(Errors.UNRELEASED_INSTANCE_ID)
    assert talk.member.state is MemberState.FATAL
    assert 1_000 <= talk.now_ms <= 2_000


def test_a_topology_is_told_as_java_tells_it() -> None:
    """Sorted, and with indexes for the names of copartition groups."""
    topology = Topology(
        (
            Subtopology("1", ("b", "a"), ("s2", "s1"), (InternalTopic("c", configs={"z": "1", "y": "2"}),),
                        (InternalTopic("r2", 4), InternalTopic("r1", 2, 3)), (frozenset({"b", "r2"}),)),
            Subtopology("0", ("x",)),
        )
    )  # fmt: skip
    first, second = topology.to_message().subtopologies
    assert (first.subtopology_id, second.subtopology_id) == ("0", "1")
    assert (second.source_topics, second.repartition_sink_topics) == (("a", "b"), ("s1", "s2"))
    assert [(t.name, t.partitions, t.replication_factor) for t in second.repartition_source_topics] == [
        ("r1", 2, 3), ("r2", 4, 0),
    ]  # fmt: skip
    assert [kv.key for kv in second.state_changelog_topics[0].topic_configs] == ["y", "z"]
    (group,) = second.copartition_groups
    assert (group.source_topics, group.repartition_source_topics) == ((1,), (1,))
    assert topology.internal_topics == ("c", "r1", "r2")
    with pytest.raises(Misconfigured, match="Source topic not found in subtopology 0: q"):
        Topology((Subtopology("0", ("x",), copartition_groups=(frozenset({"q"}),)),)).to_message()


def test_expressions_are_sent_and_joined_by_their_places() -> None:
    """In order, as all else is; what is said for a name and for an expression is both."""
    told = Subtopology(
        "0", ("x",), copartition_groups=(frozenset({"x", "b.*"}),), source_topic_regex=("b.*", "a.*")
    ).to_message()
    assert (told.source_topics, told.source_topic_regex) == (("x",), ("a.*", "b.*"))
    (group,) = told.copartition_groups
    assert (group.source_topics, group.source_topic_regex) == ((0,), (1,))


def test_tasks_are_in_the_order_of_their_numbers() -> None:
    found = Assignment(active=tasks("10_0 9_11 9_2"), standby=frozenset({Task("named", 0)}))
    assert str(found) == "active 9_2,9_11,10_0; standby named_0"
    assert str(Assignment()) == "none"
    assert found - Assignment(active=tasks("9_2")) == Assignment(tasks("10_0 9_11"), found.standby)


def test_settings_are_those_of_kafka_streams() -> None:
    found = streams_settings(
        {
            "application.id": "app", "client.id": "c", "group.protocol": "Streams", "topology.epoch": "4",
            "max.poll.interval.ms": "1000", "application.server": "[::1]:80", "client.tag.zone": "a",
            "client.rack": "r", "group.instance.id": "i", "state.dir": "/tmp", "empty": " ",
        }
    )  # fmt: skip
    assert found.member == StreamsMemberSettings(
        1000, 4, ("::1", 80), {"zone": "a"}, client_rack="r", group_instance_id="i"
    )
    assert (found.application_id, found.client_id, found.unknown) == ("app", "c", ("state.dir",))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, 'Missing required configuration "application.id"'),
        ({"application.id": "a", "group.protocol": "classic"}, "group.protocol=classic"),
        (
            {"application.id": "a", "topology.epoch": "-1"},
            "Invalid value -1 for configuration topology.epoch",
        ),
        ({"application.id": "a", "application.server": "host"}, "application.server=host is not host:port"),
        ({"application.id": "a", "application.server": "h:65536"}, "is not host:port"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(Misconfigured, match=words):
        streams_settings(given)
