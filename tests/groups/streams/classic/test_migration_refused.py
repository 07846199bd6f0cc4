"""Protocol changes that are refused: the reason, and that the group is unchanged."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
from tests.groups.consumer.harness import GroupHarness
from tests.groups.streams.classic.test_older_clients import beat, stable_member_and_waiting_join
from tests.groups.streams.classic.threads import Thread
from tests.groups.streams.topology.topologies import sent, sub

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

HEAD = "Cannot upgrade classic group g to streams group because "


def classic() -> tuple[GroupHarness, Thread]:
    """Return a classic group in which ann is alone and runs all six tasks."""
    harness, ann, _, _ = stable_member_and_waiting_join(11)
    return harness, ann


def join_with(harness: GroupHarness, topology: Any) -> Any:
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id="c" * 22,
        member_epoch=0,
        topology=topology,
        process_id=str(uuid5(NAMESPACE_DNS, "cid")),
        rebalance_timeout_ms=60_000,
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
    )
    return harness.ask(request, 1, "cid")


def assert_refused(harness: GroupHarness, response: Any, reason: str) -> None:
    assert Errors(response.error_code) is Errors.GROUP_ID_NOT_FOUND
    assert response.error_message == HEAD + reason
    assert isinstance(harness.group, ClassicGroup)
    assert not harness.last.records and not harness.last.soft_records and not harness.last.timers


@pytest.mark.parametrize("policy", ["disabled", "downgrade", "DOWNGRADE"])
def test_policies_that_forbid_an_upgrade(policy: str) -> None:
    harness, _ = classic()
    harness.configure({"konvene_streams_migration_policy": policy})
    assert_refused(harness, beat(harness), "online upgrade is disabled.")


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade", "Upgrade"])
def test_policies_that_allow_an_upgrade(policy: str) -> None:
    harness, _ = classic()
    harness.configure({"konvene_streams_migration_policy": policy})
    assert not beat(harness).error_code
    assert isinstance(harness.group, StreamsGroup)


def test_mode_kafka_refuses_with_kafkas_message() -> None:
    harness, _ = classic()
    harness.configure({"konvene_streams_mode": "kafka"})
    response = beat(harness)
    assert Errors(response.error_code) is Errors.GROUP_ID_NOT_FOUND
    assert response.error_message == "Group g is not a streams group."


def test_a_group_above_the_streams_limit_is_refused() -> None:
    harness, _ = classic()
    harness.configure({"group_streams_max_size": "1"})
    assert_refused(harness, beat(harness), "the group size exceeds the streams group maximum size.")


def test_tasks_of_another_topology_are_refused() -> None:
    harness, _ = classic()
    topology = sent(sub("0", "audit"), sub("1", "orders"))
    response = join_with(harness, topology)
    assert "a member's tasks are not those of the topology: " in response.error_message
    assert "task 0_0 does not read orders-0" in response.error_message
    assert isinstance(harness.group, ClassicGroup) and not harness.last.records


def test_a_subscription_unlike_the_topology_is_refused() -> None:
    harness, _ = classic()
    reason = "a member subscribes to [orders], and the topology reads [audit, orders]."
    assert_refused(harness, join_with(harness, sent(sub("0", "orders"), sub("1", "audit"))), reason)


def test_a_topology_with_missing_topics_is_refused() -> None:
    """Otherwise all tasks would be revoked until the topics are created."""
    harness, _ = classic()
    response = join_with(harness, sent(sub("0", "orders none")))
    assert response.error_message.startswith(HEAD + "the topology cannot run: ")
    assert "none" in response.error_message
    assert isinstance(harness.group, ClassicGroup) and not harness.last.records


def test_subtopologies_without_a_number_are_refused() -> None:
    harness, _ = classic()
    reason = "subtopologies are numbers in the classic protocol, and those of the topology are not."
    assert_refused(harness, join_with(harness, sent(sub("counts", "orders"))), reason)


# --- into a streams group --------------------------------------------------------------------------


def streams_group() -> GroupHarness:
    """Return a streams group in which cid is alone."""
    harness = GroupHarness(
        konvene_streams_mode="kip",
        group_streams_initial_rebalance_delay_ms="0",
        group_streams_assignment_interval_ms="0",
    )
    assert not beat(harness).error_code
    return harness


def error_of(harness: GroupHarness, thread: Thread, **other: Any) -> Errors:
    """Return the error of a join with the assigned member id, if one is needed."""
    response = harness.ask(thread.join_request().replace(**other), 3, thread.name)
    return Errors(response.error_code)


def test_a_member_of_the_classic_protocol_joins_a_streams_group() -> None:
    harness = streams_group()
    assert error_of(harness, Thread("ann")) is Errors.NONE
    assert harness.group.classic_members == 1


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"konvene_streams_mode": "kafka"}, Errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"konvene_streams_migration_policy": "disabled"}, Errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_streams_max_size": "1"}, Errors.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_settings_that_forbid_classic_members(settings: dict[str, str], error: Errors) -> None:
    harness = streams_group()
    harness.configure(settings)
    assert error_of(harness, Thread("ann")) is error
    assert not harness.last.records


def test_members_that_are_no_stream_threads_are_refused() -> None:
    harness, ann = streams_group(), Thread("ann")
    protocols = ann.join_request().protocols
    other_assignor = (protocols[0].replace(name="range"),)
    no_user_data = (protocols[0].replace(metadata=b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0"),)
    for other in (
        {"protocol_type": "connect"},
        {"protocols": other_assignor},
        {"protocols": no_user_data},
        {"protocols": (protocols[0].replace(metadata=b"\1"),)},
    ):
        assert error_of(harness, ann, **other) is Errors.INCONSISTENT_GROUP_PROTOCOL
        assert not harness.last.records
    assert error_of(harness, ann) is Errors.NONE


def test_a_topology_update_is_refused_while_classic_members_exist() -> None:
    harness = streams_group()
    assert error_of(harness, Thread("ann")) is Errors.NONE
    response = join_with(harness, sent(sub("0", "orders"), sub("1", "audit"), epoch=1))
    assert Errors(response.error_code) is Errors.STREAMS_INVALID_TOPOLOGY_EPOCH
    assert "while 1 of its members speak the classic protocol" in response.error_message
