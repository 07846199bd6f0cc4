"""`StreamsMembership`: heartbeats and state changes of the pure state machine, as transcripts.

A line `->` is a heartbeat with its fields besides group and member, `<-` a response, `..` a state.
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
    """Parse tasks such as `0_0 0_1`."""
    return frozenset(Task(each.partition("_")[0], int(each.partition("_")[2])) for each in text.split())


def assignment(active: str = "", standby: str = "", warmup: str = "") -> Assignment:
    return Assignment(tasks(active), tasks(standby), tasks(warmup))


def rows(tasks_of_role: frozenset[Task]) -> tuple[wire.TaskIds, ...]:
    return tuple(
        wire.TaskIds(subtopology_id=t.subtopology, partitions=(t.partition,))
        for t in sorted(tasks_of_role, key=lambda t: t.sort_key)
    )


def described(request: StreamsGroupHeartbeatRequest) -> str:
    """Describe the fields of a heartbeat."""
    parts = [f"epoch {request.member_epoch}"]
    if request.topology is not None:
        parts.append(f"topology {request.topology.epoch}, process {request.process_id}")
        parts.append(f"rebalance {request.rebalance_timeout_ms}")
    if request.active_tasks is not None:
        own = Assignment.from_message(request.active_tasks, request.standby_tasks, request.warmup_tasks)
        parts.append(f"owns {own}")
    for name, offsets in (("at", request.task_offsets), ("ends", request.task_end_offsets)):
        if offsets is not None:
            parts.append(
                f"{name} "
                + (",".join(f"{o.subtopology_id}_{o.partition}:{o.offset}" for o in offsets) or "nothing")
            )
    if request.shutdown_application:
        parts.append("shutdown")
    return ", ".join(parts)


class MemberFixture:
    """A member with a virtual clock and a transcript; heartbeats every 5 s, offsets every 60 s."""

    def __init__(
        self, endpoint: tuple[str, int] | None = None, tags: dict[str, str] | None = None, **options: Any
    ) -> None:
        self.member = StreamsMembership(
            "g", "m", TOPOLOGY, MembershipSettings(**options), process_id="p", endpoint=endpoint, tags=tags
        )
        self.now_ms = 0
        self.lines: list[str] = []
        self.last = StreamsGroupHeartbeatRequest()

    def heartbeat(self) -> None:
        due = self.member.due_ms
        assert due is not None, f"{self.member} has no heartbeat due"
        self.now_ms = max(self.now_ms, due)
        self.last = self.member.request(self.now_ms)
        self.lines.append(f"{self.now_ms:>5} -> {described(self.last)}")

    def respond(self, epoch: int, given: Assignment | None = None, **more: Any) -> None:
        parts = (None,) * 3 if given is None else tuple(rows(given.of(role)) for role in Role)
        response = StreamsGroupHeartbeatResponse(
            member_id="m", member_epoch=epoch, heartbeat_interval_ms=5_000, task_offset_interval_ms=60_000,
            acceptable_recovery_lag=100, status=(), active_tasks=parts[0], standby_tasks=parts[1],
            warmup_tasks=parts[2],
        ).replace(**more)  # fmt: skip
        self.lines.append(f"      <- epoch {epoch}, {'unchanged' if given is None else given}")
        self.member.handle_response(response, self.now_ms)

    def reject(self, error: Errors, message: str | None = None) -> None:
        self.lines.append(f"      <- {error.name}")
        response = StreamsGroupHeartbeatResponse(error_code=error, error_message=message)
        self.member.handle_response(response, self.now_ms)

    def lose_response(self) -> None:
        self.lines.append("      <- nothing")
        self.member.handle_failure(ConnectionLost("the broker closed the connection"), self.now_ms)

    def confirm(self) -> None:
        """Confirm that the caller owns the target."""
        m = self.member
        assert m.confirm_owned(m.incarnation, m.target_version, m.target)
        self.lines.append(f"      .. {m.state.value}, has {m.owned}")

    def settle(self, given: Assignment) -> None:
        self.heartbeat()
        self.respond(1, given)
        self.confirm()
        self.heartbeat()
        self.respond(1)
        assert self.member.state is MemberState.STABLE
        self.lines.clear()


def test_join_confirm_and_keep_alive() -> None:
    fixture = MemberFixture()
    fixture.heartbeat()
    fixture.respond(4, assignment("0_0 1_0", standby="0_1"))
    fixture.confirm()
    fixture.heartbeat()
    fixture.respond(4)
    fixture.heartbeat()
    assert fixture.lines == [
        "    0 -> epoch 0, topology 3, process p, rebalance 300000, owns none",
        "      <- epoch 4, active 0_0,1_0; standby 0_1",
        "      .. acknowledging, has active 0_0,1_0; standby 0_1",
        "    0 -> epoch 4, owns active 0_0,1_0; standby 0_1",
        "      <- epoch 4, unchanged",
        " 5000 -> epoch 4",
    ]


def test_revocation_is_confirmed_once_complete() -> None:
    """While it revokes tasks it sends keep-alive heartbeats at its interval."""
    fixture = MemberFixture()
    fixture.settle(assignment("0_0 0_1"))
    fixture.heartbeat()
    fixture.respond(1, assignment("0_0", warmup="0_1"))
    assert fixture.member.state is MemberState.RECONCILING
    fixture.heartbeat()
    fixture.respond(1)
    fixture.confirm()
    fixture.heartbeat()
    assert fixture.lines == [
        " 5000 -> epoch 1",
        "      <- epoch 1, active 0_0; warmup 0_1",
        "10000 -> epoch 1",
        "      <- epoch 1, unchanged",
        "      .. acknowledging, has active 0_0; warmup 0_1",
        "10000 -> epoch 1, owns active 0_0; warmup 0_1",
    ]


def test_owned_tasks_are_sent_again_after_a_lost_response() -> None:
    fixture = MemberFixture()
    fixture.settle(assignment("0_0"))
    fixture.heartbeat()
    fixture.lose_response()
    fixture.heartbeat()
    assert fixture.lines == [
        " 5000 -> epoch 1",
        "      <- nothing",
        " 5100 -> epoch 1, owns active 0_0",
    ]


def test_changed_offsets_are_sent_at_their_interval() -> None:
    """Offsets are sent at once when a warm-up has nearly caught up, since the group waits for it."""
    fixture = MemberFixture()
    fixture.settle(assignment(warmup="0_0"))
    fixture.member.report({Task("0", 0): 5}, {Task("0", 0): 500})
    fixture.heartbeat()
    fixture.respond(1)
    fixture.now_ms = 60_000
    fixture.heartbeat()
    fixture.respond(1)
    fixture.member.report({Task("0", 0): 300}, {Task("0", 0): 500})
    fixture.heartbeat()
    fixture.respond(1)
    fixture.member.report({Task("0", 0): 450}, {Task("0", 0): 500})
    fixture.heartbeat()
    assert [line for line in fixture.lines if "->" in line] == [
        " 5000 -> epoch 1",
        "60000 -> epoch 1, at 0_0:5, ends 0_0:500",
        "65000 -> epoch 1",
        "70000 -> epoch 1, at 0_0:450",
    ]


def test_empty_offsets_are_sent_with_the_join() -> None:
    """An empty report makes the group wait for its copies; a member that never reports sends no offsets."""
    for reports in (True, False):
        fixture = MemberFixture()
        if reports:
            fixture.member.report({}, {})
        fixture.heartbeat()
        fixture.respond(1)
        fixture.heartbeat()
        ends = ", at nothing, ends nothing" if reports else ""
        assert [line for line in fixture.lines if "->" in line] == [
            f"    0 -> epoch 0, topology 3, process p, rebalance 300000, owns none{ends}",
            " 5000 -> epoch 1",
        ]


def test_shutdown_request_is_sent_at_once_and_repeated() -> None:
    fixture = MemberFixture()
    fixture.settle(assignment("0_0"))
    fixture.member.request_shutdown()
    fixture.heartbeat()
    fixture.respond(1, status=(wire.Status(status_code=4, status_detail="m wants it"),))
    assert fixture.member.shutdown_requested
    assert fixture.member.is_ready
    fixture.member.leave(fixture.now_ms)
    fixture.heartbeat()
    assert fixture.lines == [
        "    0 -> epoch 1, shutdown",
        "      <- epoch 1, unchanged",
        "    0 -> epoch -1, shutdown",
    ]
    assert fixture.member.state is MemberState.LEFT


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_leave_epochs(instance: str | None, epoch: int) -> None:
    fixture = MemberFixture(instance_id=instance)
    fixture.settle(assignment("0_0"))
    fixture.member.leave(fixture.now_ms)
    fixture.heartbeat()
    assert (fixture.last.member_epoch, fixture.last.instance_id) == (epoch, instance)
    assert fixture.member.due_ms is None


@pytest.mark.parametrize("error", [Errors.FENCED_MEMBER_EPOCH, Errors.UNKNOWN_MEMBER_ID])
def test_fenced_member_rejoins_with_all_fields(error: Errors) -> None:
    fixture = MemberFixture(endpoint=("h", 80), tags={"b": "2", "a": "1"}, rack_id="r")
    fixture.settle(assignment("0_0"))
    fixture.heartbeat()
    fixture.reject(error)
    assert (fixture.member.state, fixture.member.due_ms, fixture.member.owned) == (
        MemberState.FENCED,
        None,
        assignment("0_0"),
    )
    fixture.member.rejoin_fenced(fixture.now_ms)
    fixture.heartbeat()
    assert fixture.lines[-1] == (" 5000 -> epoch 0, topology 3, process p, rebalance 300000, owns none")
    assert [(tag.key, tag.value) for tag in fixture.last.client_tags or ()] == [("a", "1"), ("b", "2")]
    assert (fixture.last.user_endpoint, fixture.last.rack_id) == (wire.Endpoint(host="h", port=80), "r")
    assert fixture.last.topology == TOPOLOGY.to_message()


def test_fatal_errors() -> None:
    for error, message in (
        (Errors.STREAMS_INVALID_TOPOLOGY, "no"),
        (Errors.UNSUPPORTED_VERSION, NO_STREAMS_PROTOCOL),
        (Errors.GROUP_AUTHORIZATION_FAILED, "Not authorized to access group: g"),
    ):
        fixture = MemberFixture()
        fixture.heartbeat()
        fixture.reject(error, "no")
        assert (fixture.member.state, fixture.member.due_ms) == (MemberState.FATAL, None)
        assert isinstance(fixture.member.error, KafkaError)
        assert fixture.member.error.message == message


def test_invalid_response_is_fatal() -> None:
    """Tasks of an unknown subtopology, and tasks in some roles only."""
    fixture = MemberFixture()
    fixture.heartbeat()
    fixture.respond(1, assignment("7_0"))
    assert fixture.member.state is MemberState.FATAL
    assert str(fixture.member.error) == "group g: tasks of subtopologies not known here: 7"
    fixture = MemberFixture()
    fixture.heartbeat()
    fixture.respond(1, assignment("0_0"), standby_tasks=None)
    assert isinstance(fixture.member.error, BadResponse)


def test_statuses_last_until_the_group_is_ready() -> None:
    fixture = MemberFixture()
    fixture.heartbeat()
    fixture.respond(1, assignment(), status=(wire.Status(status_code=1, status_detail="t is missing"),))
    assert fixture.member.statuses == (Status(1, "t is missing"),)
    assert not fixture.member.is_ready
    fixture.confirm()
    fixture.heartbeat()
    fixture.respond(2, assignment("0_0"))
    assert fixture.member.is_ready
    assert fixture.member.target == assignment("0_0")


def test_endpoints_are_merged_and_kept_until_changed() -> None:
    def at(host: str, partition: int) -> wire.EndpointToPartitions:
        served = (wire.TopicPartition(topic="t", partitions=(partition,)),)
        where = wire.Endpoint(host=host, port=80)
        return wire.EndpointToPartitions(user_endpoint=where, active_partitions=served)

    fixture = MemberFixture()
    fixture.heartbeat()
    assert fixture.last.endpoint_information_epoch == -1
    everywhere = (at("a", 0), at("b", 1), at("a", 2))
    fixture.respond(1, assignment(), endpoint_information_epoch=7, partitions_by_user_endpoint=everywhere)
    both = {
        ("a", 80): EndpointPartitions((TopicPartition("t", 0), TopicPartition("t", 2)), ()),
        ("b", 80): EndpointPartitions((TopicPartition("t", 1),), ()),
    }
    assert fixture.member.endpoints == both
    fixture.confirm()
    fixture.heartbeat()
    assert fixture.last.endpoint_information_epoch == 7
    fixture.respond(1, endpoint_information_epoch=7)
    assert fixture.member.endpoints == both


def test_unreleased_instance_id_is_retried_for_a_while() -> None:
    fixture = MemberFixture(instance_id="i", unreleased_timeout_ms=1_000)
    while fixture.member.state is MemberState.JOINING:
        fixture.heartbeat()
        fixture.reject(Errors.UNRELEASED_INSTANCE_ID)
    assert fixture.member.state is MemberState.FATAL
    assert 1_000 <= fixture.now_ms <= 2_000


def test_topology_message_matches_javas() -> None:
    """Sorted, with indexes in copartition groups."""
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


def test_source_topic_expressions_in_the_topology_message() -> None:
    """Expressions are sorted; copartition groups refer to names and expressions by index."""
    message = Subtopology(
        "0", ("x",), copartition_groups=(frozenset({"x", "b.*"}),), source_topic_regex=("b.*", "a.*")
    ).to_message()
    assert (message.source_topics, message.source_topic_regex) == (("x",), ("a.*", "b.*"))
    (group,) = message.copartition_groups
    assert (group.source_topics, group.source_topic_regex) == ((0,), (1,))


def test_tasks_are_sorted_numerically() -> None:
    found = Assignment(active=tasks("10_0 9_11 9_2"), standby=frozenset({Task("named", 0)}))
    assert str(found) == "active 9_2,9_11,10_0; standby named_0"
    assert str(Assignment()) == "none"
    assert found - Assignment(active=tasks("9_2")) == Assignment(tasks("10_0 9_11"), found.standby)


def test_settings_have_kafka_streams_names() -> None:
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
    ("given", "message"),
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
def test_invalid_settings_are_rejected(given: dict[str, str], message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        streams_settings(given)
