"""`konvene groups delete-offsets`, `remove-members` and `delete`: each object has its own result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import RunningBroker, call, running_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("data")) as broker:
        broker.create("orders", 3, 3)
        broker.create("payments", 3)
        yield broker


# delete-offsets -----------------------------------------------------------------------------------


def test_offsets_of_topics_and_single_partitions_are_deleted(broker: RunningBroker) -> None:
    broker.commit("readers", "orders", p0=1, p1=2)
    broker.commit("readers", "payments", p0=3)
    result = call(broker, "groups", "delete-offsets", "readers", "--topic", "orders:1", "--topic", "payments")
    assert (result.code, result.err) == (0, "")
    assert result.lines == [
        ["TOPIC", "PARTITION", "STATUS"],
        ["orders", "1", "Successful"],
        ["payments", "0", "Successful"],
    ]
    assert broker.committed("readers") == {"orders-0": 1}


def test_failed_partitions_are_listed_beside_deleted_ones(broker: RunningBroker) -> None:
    """Unknown topics, unknown partitions and subscribed topics fail; the rest succeeds."""
    broker.join("subscribed", ["orders"], None)
    args = ("--topic", "orders", "--topic", "payments:0,7", "--topic", "nowhere", "--topic", "gone:0")
    result = call(broker, "groups", "delete-offsets", "subscribed", *args)
    assert result.code == 1
    assert result.lines == [
        ["TOPIC", "PARTITION", "STATUS"],
        ["nowhere", "-", "Error:", "there", "is", "no", "topic", "nowhere"],
        ["gone", "0", "Error:", "UNKNOWN_TOPIC_OR_PARTITION"],
        ["orders", "0", "Error:", "GROUP_SUBSCRIBED_TO_TOPIC"],
        ["orders", "1", "Error:", "GROUP_SUBSCRIBED_TO_TOPIC"],
        ["payments", "0", "Successful"],
        ["payments", "7", "Error:", "UNKNOWN_TOPIC_OR_PARTITION"],
    ]
    assert result.err.startswith("konvene: 5 offsets of group subscribed were not deleted\n  ")
    document = call(broker, "groups", "delete-offsets", "subscribed", *args, "--json")
    assert document.code == 1
    assert document.json[3:5] == [
        {"topic": "orders", "partition": 1, "error": "GROUP_SUBSCRIBED_TO_TOPIC"},
        {"topic": "payments", "partition": 0, "error": None},
    ]


def test_deleting_offsets_of_an_unknown_group_fails(broker: RunningBroker) -> None:
    result = call(broker, "groups", "delete-offsets", "--group", "nobody", "--topic", "orders")
    assert result == (
        1,
        "",
        "konvene: group nobody: GROUP_ID_NOT_FOUND\n  `konvene groups list` shows the existing groups.\n",
    )


# remove-members -----------------------------------------------------------------------------------


def member_count(broker: RunningBroker, group: str) -> int:
    (described,) = call(broker, "groups", "describe", group, "--state", "--json").json
    return int(described["member_count"])


def test_members_are_removed_by_id_and_by_instance(broker: RunningBroker) -> None:
    ann, *_ = broker.join("three", ["orders"], None, "bob", "cat")
    result = call(
        broker, "groups", "remove-members", "three", "--member", ann, "--instance", "bob",
        "--instance", "dan", "--member", "eve",
    )  # fmt: skip
    assert result.code == 1
    head, *rows = result.lines
    assert head == ["CONSUMER-ID", "GROUP-INSTANCE-ID", "STATUS"]
    assert [(row[0], row[1], row[2:]) for row in rows] == [
        (ann, "-", ["Successful"]),
        ("eve", "-", ["Error:", "UNKNOWN_MEMBER_ID"]),
        ("-", "bob", ["Successful"]),
        ("-", "dan", ["Error:", "UNKNOWN_MEMBER_ID"]),
    ]
    assert result.err.startswith("konvene: 2 members of group three were not removed\n")
    assert member_count(broker, "three") == 1
    assert call(broker, "groups", "remove-members", "three", "--instance", "cat", "--json").json == [
        {"member_id": None, "instance_id": "cat", "error": None}
    ]
    assert member_count(broker, "three") == 0


def test_removal_of_all_members_records_the_reason(broker: RunningBroker) -> None:
    """The history has the given reason, or Kafka's default."""
    broker.join("leavers", ["orders"], None, "bob")
    result = call(broker, "groups", "remove-members", "leavers", "--all-members", "--reason", "it is late")
    assert (result.code, [line[-1] for line in result.lines]) == (0, ["STATUS", "Successful", "Successful"])
    assert member_count(broker, "leavers") == 0
    last = call(broker, "groups", "history", "leavers", "--limit", "1", "--json").json[-1]
    assert {cause["reason"] for cause in last["causes"]} == {"it is late"}
    broker.join("leavers", ["orders"], None)
    call(broker, "groups", "remove-members", "leavers", "--all-members")
    last = call(broker, "groups", "history", "leavers", "--limit", "1", "--json").json[-1]
    assert {cause["reason"] for cause in last["causes"]} == {"member was removed by an admin"}


def test_long_reason_is_truncated_as_in_kafka(broker: RunningBroker) -> None:
    broker.join("wordy", ["orders"], None)
    call(broker, "groups", "remove-members", "wordy", "--all-members", "--reason", "x" * 300)
    last = call(broker, "groups", "history", "wordy", "--limit", "1", "--json").json[-1]
    assert {cause["reason"] for cause in last["causes"]} == {"x" * 255}


def test_remove_members_of_empty_and_unknown_groups(broker: RunningBroker) -> None:
    broker.commit("empty", "orders", p0=1)
    result = call(broker, "groups", "remove-members", "empty", "--all-members")
    assert result == (0, "", "Consumer group 'empty' has no active members.\n")
    result = call(broker, "groups", "remove-members", "nobody", "--all-members")
    assert (result.code, result.err.splitlines()[0]) == (
        1,
        "konvene: there is no classic or consumer group nobody",
    )


# delete -------------------------------------------------------------------------------------------


def test_active_and_unknown_groups_are_not_deleted(broker: RunningBroker) -> None:
    broker.commit("old", "orders", p0=1)
    broker.join("alive", ["orders"], None)
    result = call(broker, "groups", "delete", "old", "alive", "--group", "nobody")
    assert (result.code, result.out) == (1, "Deleted group old.\n")
    assert result.err == (
        "konvene: group alive: NON_EMPTY_GROUP\n"
        "  The group has members: stop them first.\n"
        "konvene: group nobody: GROUP_ID_NOT_FOUND\n"
        "  `konvene groups list` shows the existing groups.\n"
    )
    assert broker.committed("old") == {}


def test_all_groups_can_be_deleted_at_once(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.create("orders", 1)
        for name in ("a", "b"):
            broker.commit(name, "orders", p0=1)
        assert call(broker, "groups", "delete", "--all-groups", "--json").json == {
            "deleted": ["a", "b"], "failed": {},
        }  # fmt: skip
        assert call(broker, "groups", "list", "--json").json == []
        assert call(broker, "groups", "delete", "--all-groups") == (0, "", "")


@pytest.mark.parametrize(
    "args",
    [
        ("delete",),
        ("delete", "g", "--all-groups"),
        ("delete-offsets", "g"),
        ("delete-offsets", "--topic", "t"),
        ("delete-offsets", "g", "--group", "h", "--topic", "t"),
        ("delete-offsets", "g", "--topic", "t:x"),
        ("remove-members", "g"),
        ("remove-members", "--all-members"),
        ("remove-members", "g", "--all-members", "--member", "m"),
    ],
)
def test_invalid_options_are_usage_errors(args: tuple[str, ...]) -> None:
    """Exit code 2, without a connection to a broker."""
    result = call(None, "groups", *args)
    assert (result.code, result.out) == (2, "")
    assert "Usage: konvene groups" in result.err
