"""`konvene groups delete-offsets`, `remove-members`, `delete`: each thing is told what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import Serving, call, serving


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("data")) as broker:
        broker.create("orders", 3, 3)
        broker.create("payments", 3)
        yield broker


# delete-offsets -----------------------------------------------------------------------------------


def test_offsets_of_topics_and_single_partitions_are_deleted(broker: Serving) -> None:
    broker.commit("readers", "orders", p0=1, p1=2)
    broker.commit("readers", "payments", p0=3)
    said = call(broker, "groups", "delete-offsets", "readers", "--topic", "orders:1", "--topic", "payments")
    assert (said.code, said.err) == (0, "")
    assert said.lines == [
        ["TOPIC", "PARTITION", "STATUS"],
        ["orders", "1", "Successful"],
        ["payments", "0", "Successful"],
    ]
    assert broker.committed("readers") == {"orders-0": 1}


def test_each_partition_that_is_refused_is_told_beside_those_that_are_not(broker: Serving) -> None:
    """A topic that is not there, a partition that is not, and one that members subscribe to."""
    broker.join("subscribed", ["orders"], None)
    words = ("--topic", "orders", "--topic", "payments:0,7", "--topic", "nowhere", "--topic", "gone:0")
    said = call(broker, "groups", "delete-offsets", "subscribed", *words)
    assert said.code == 1
    assert said.lines == [
        ["TOPIC", "PARTITION", "STATUS"],
        ["nowhere", "-", "Error:", "there", "is", "no", "topic", "nowhere"],
        ["gone", "0", "Error:", "UNKNOWN_TOPIC_OR_PARTITION"],
        ["orders", "0", "Error:", "GROUP_SUBSCRIBED_TO_TOPIC"],
        ["orders", "1", "Error:", "GROUP_SUBSCRIBED_TO_TOPIC"],
        ["payments", "0", "Successful"],
        ["payments", "7", "Error:", "UNKNOWN_TOPIC_OR_PARTITION"],
    ]
    assert said.err.startswith("konvene: 5 offsets of group subscribed were not deleted\n  ")
    document = call(broker, "groups", "delete-offsets", "subscribed", *words, "--json")
    assert document.code == 1
    assert document.json[3:5] == [
        {"topic": "orders", "partition": 1, "error": "GROUP_SUBSCRIBED_TO_TOPIC"},
        {"topic": "payments", "partition": 0, "error": None},
    ]


def test_offsets_of_no_group(broker: Serving) -> None:
    said = call(broker, "groups", "delete-offsets", "--group", "nobody", "--topic", "orders")
    assert said == (
        1,
        "",
        "konvene: group nobody: GROUP_ID_NOT_FOUND\n  `konvene groups list` shows the existing groups.\n",
    )


# remove-members -----------------------------------------------------------------------------------


def member_count(broker: Serving, group: str) -> int:
    (found,) = call(broker, "groups", "describe", group, "--state", "--json").json
    return int(found["member_count"])


def test_members_are_removed_by_id_and_by_instance(broker: Serving) -> None:
    ann, *_ = broker.join("three", ["orders"], None, "bob", "cat")
    said = call(
        broker, "groups", "remove-members", "three", "--member", ann, "--instance", "bob",
        "--instance", "dan", "--member", "eve",
    )  # fmt: skip
    assert said.code == 1
    head, *rows = said.lines
    assert head == ["CONSUMER-ID", "GROUP-INSTANCE-ID", "STATUS"]
    assert [(row[0], row[1], row[2:]) for row in rows] == [
        (ann, "-", ["Successful"]),
        ("eve", "-", ["Error:", "UNKNOWN_MEMBER_ID"]),
        ("-", "bob", ["Successful"]),
        ("-", "dan", ["Error:", "UNKNOWN_MEMBER_ID"]),
    ]
    assert said.err.startswith("konvene: 2 members of group three were not removed\n")
    assert member_count(broker, "three") == 1
    assert call(broker, "groups", "remove-members", "three", "--instance", "cat", "--json").json == [
        {"member_id": None, "instance_id": "cat", "error": None}
    ]
    assert member_count(broker, "three") == 0


def test_all_members_are_removed_and_the_reason_is_kept(broker: Serving) -> None:
    """The history tells the reason that was given, or Kafka's words where there was none."""
    broker.join("leavers", ["orders"], None, "bob")
    said = call(broker, "groups", "remove-members", "leavers", "--all-members", "--reason", "it is late")
    assert (said.code, [line[-1] for line in said.lines]) == (0, ["STATUS", "Successful", "Successful"])
    assert member_count(broker, "leavers") == 0
    last = call(broker, "groups", "history", "leavers", "--limit", "1", "--json").json[-1]
    assert {cause["reason"] for cause in last["causes"]} == {"it is late"}
    broker.join("leavers", ["orders"], None)
    call(broker, "groups", "remove-members", "leavers", "--all-members")
    last = call(broker, "groups", "history", "leavers", "--limit", "1", "--json").json[-1]
    assert {cause["reason"] for cause in last["causes"]} == {"member was removed by an admin"}


def test_a_long_reason_is_cut_where_kafka_cuts_it(broker: Serving) -> None:
    broker.join("wordy", ["orders"], None)
    call(broker, "groups", "remove-members", "wordy", "--all-members", "--reason", "x" * 300)
    last = call(broker, "groups", "history", "wordy", "--limit", "1", "--json").json[-1]
    assert {cause["reason"] for cause in last["causes"]} == {"x" * 255}


def test_nobody_is_removed_from_groups_without_members(broker: Serving) -> None:
    broker.commit("empty", "orders", p0=1)
    said = call(broker, "groups", "remove-members", "empty", "--all-members")
    assert said == (0, "", "Consumer group 'empty' has no active members.\n")
    said = call(broker, "groups", "remove-members", "nobody", "--all-members")
    assert (said.code, said.err.splitlines()[0]) == (
        1,
        "konvene: there is no classic or consumer group nobody",
    )


# delete -------------------------------------------------------------------------------------------


def test_groups_are_deleted_and_those_with_members_are_told(broker: Serving) -> None:
    broker.commit("old", "orders", p0=1)
    broker.join("alive", ["orders"], None)
    said = call(broker, "groups", "delete", "old", "alive", "--group", "nobody")
    assert (said.code, said.out) == (1, "Deleted group old.\n")
    assert said.err == (
        "konvene: group alive: NON_EMPTY_GROUP\n"
        "  The group has members: stop them first.\n"
        "konvene: group nobody: GROUP_ID_NOT_FOUND\n"
        "  `konvene groups list` shows the existing groups.\n"
    )
    assert broker.committed("old") == {}


def test_all_groups_can_be_deleted_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as broker:
        broker.create("orders", 1)
        for name in ("a", "b"):
            broker.commit(name, "orders", p0=1)
        assert call(broker, "groups", "delete", "--all-groups", "--json").json == {
            "deleted": ["a", "b"], "failed": {},
        }  # fmt: skip
        assert call(broker, "groups", "list", "--json").json == []
        assert call(broker, "groups", "delete", "--all-groups") == (0, "", "")


@pytest.mark.parametrize(
    "words",
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
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...]) -> None:
    """Exit code 2, and no broker is needed to say so."""
    said = call(None, "groups", *words)
    assert (said.code, said.out) == (2, "")
    assert "Usage: konvene groups" in said.err
