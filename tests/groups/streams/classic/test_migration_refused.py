"""What may not change its protocol, why, and that nothing has changed where it was refused."""

from __future__ import annotations

from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
from tests.groups.consumer.room import Room
from tests.groups.streams.classic.test_older_clients import beat, stable_one_and_another_that_waits
from tests.groups.streams.classic.threads import Thread
from tests.groups.streams.topology.topologies import sent, sub

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup
from konvene.groups.streams.group import StreamsGroup
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

HEAD = "Cannot upgrade classic group g to streams group because "


def classic() -> tuple[Room, Thread]:
    """ann is alone in a classic group and runs all six tasks."""
    room, ann, _, _ = stable_one_and_another_that_waits(11)
    return room, ann


def joins_with(room: Room, topology: Any) -> Any:
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
    return room.ask(request, 1, "cid")


def is_refused(room: Room, answer: Any, why: str) -> None:
    assert Errors(answer.error_code) is Errors.GROUP_ID_NOT_FOUND
    assert answer.error_message == HEAD + why
    assert isinstance(room.group, ClassicGroup)
    assert not room.last.records and not room.last.soft_records and not room.last.timers


@pytest.mark.parametrize("policy", ["disabled", "downgrade", "DOWNGRADE"])
def test_a_policy_that_does_not_let_it(policy: str) -> None:
    room, _ = classic()
    room.configure({"konvene_streams_migration_policy": policy})
    is_refused(room, beat(room), "online upgrade is disabled.")


@pytest.mark.parametrize("policy", ["bidirectional", "upgrade", "Upgrade"])
def test_a_policy_that_lets_it(policy: str) -> None:
    room, _ = classic()
    room.configure({"konvene_streams_migration_policy": policy})
    assert not beat(room).error_code
    assert isinstance(room.group, StreamsGroup)


def test_apache_kafkas_own_words_where_its_word_counts() -> None:
    room, _ = classic()
    room.configure({"konvene_streams_mode": "kafka"})
    answer = beat(room)
    assert Errors(answer.error_code) is Errors.GROUP_ID_NOT_FOUND
    assert answer.error_message == "Group g is not a streams group."


def test_more_members_than_a_streams_group_may_have() -> None:
    room, _ = classic()
    room.configure({"group_streams_max_size": "1"})
    is_refused(room, beat(room), "the group size exceeds the streams group maximum size.")


def test_tasks_of_another_topology() -> None:
    room, _ = classic()
    topology = sent(sub("0", "audit"), sub("1", "orders"))
    answer = joins_with(room, topology)
    assert "a member's tasks are not those of the topology: " in answer.error_message
    assert "task 0_0 does not read orders-0" in answer.error_message
    assert isinstance(room.group, ClassicGroup) and not room.last.records


def test_topics_that_are_not_the_topologys() -> None:
    room, _ = classic()
    why = "a member subscribes to [orders], and the topology reads [audit, orders]."
    is_refused(room, joins_with(room, sent(sub("0", "orders"), sub("1", "audit"))), why)


def test_topics_that_are_not_there() -> None:
    """All tasks would be taken away until somebody has made them."""
    room, _ = classic()
    answer = joins_with(room, sent(sub("0", "orders none")))
    assert answer.error_message.startswith(HEAD + "the topology cannot run: ")
    assert "none" in answer.error_message
    assert isinstance(room.group, ClassicGroup) and not room.last.records


def test_subtopologies_without_a_number() -> None:
    room, _ = classic()
    why = "subtopologies are numbers in the classic protocol, and those of the topology are not."
    is_refused(room, joins_with(room, sent(sub("counts", "orders"))), why)


# --- into a streams group --------------------------------------------------------------------------


def streams() -> Room:
    """cid is alone in a streams group."""
    room = Room(
        konvene_streams_mode="kip",
        group_streams_initial_rebalance_delay_ms="0",
        group_streams_assignment_interval_ms="0",
    )
    assert not beat(room).error_code
    return room


def error_of(room: Room, thread: Thread, **other: Any) -> Errors:
    """To who joins with the id that it was handed, if it needs one."""
    answer = room.ask(thread.join_request().replace(**other), 3, thread.name)
    return Errors(answer.error_code)


def test_a_member_of_the_classic_protocol_joins_a_streams_group() -> None:
    room = streams()
    assert error_of(room, Thread("ann")) is Errors.NONE
    assert room.group.classic_members == 1


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"konvene_streams_mode": "kafka"}, Errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"konvene_streams_migration_policy": "disabled"}, Errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_streams_max_size": "1"}, Errors.GROUP_MAX_SIZE_REACHED),
    ],
)
def test_settings_that_do_not_let_it(settings: dict[str, str], error: Errors) -> None:
    room = streams()
    room.configure(settings)
    assert error_of(room, Thread("ann")) is error
    assert not room.last.records


def test_members_that_are_no_threads_of_the_application() -> None:
    room, ann = streams(), Thread("ann")
    protocols = ann.join_request().protocols
    other_assignor = (protocols[0].replace(name="range"),)
    no_user_data = (protocols[0].replace(metadata=b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0"),)
    for other in (
        {"protocol_type": "connect"},
        {"protocols": other_assignor},
        {"protocols": no_user_data},
        {"protocols": (protocols[0].replace(metadata=b"\1"),)},
    ):
        assert error_of(room, ann, **other) is Errors.INCONSISTENT_GROUP_PROTOCOL
        assert not room.last.records
    assert error_of(room, ann) is Errors.NONE


def test_another_topology_waits_until_all_are_rolled() -> None:
    room = streams()
    assert error_of(room, Thread("ann")) is Errors.NONE
    answer = joins_with(room, sent(sub("0", "orders"), sub("1", "audit"), epoch=1))
    assert Errors(answer.error_code) is Errors.STREAMS_INVALID_TOPOLOGY_EPOCH
    assert "while 1 of its members speak the classic protocol" in answer.error_message
