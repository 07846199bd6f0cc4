"""Offsets of a share group, described, altered and deleted by Java's admin client."""

from typing import Any

import pytest

from ..clients import Client, Refused, eventually
from .queues import EXPLICIT, Queue, poll

pytestmark = pytest.mark.java


def stands(java_admin: Client, queue: Queue) -> list[list[Any]]:
    rows: list[list[Any]] = java_admin.call("share_offsets", group=queue.name)
    return [row[1:] for row in rows]


def refusal(client: Client, verb: str, **fields: Any) -> str:
    with pytest.raises(Refused) as deliveries:
        client.call(verb, **fields)
    return deliveries.value.name


def test_a_group_is_described(queue: Queue, java_admin: Client) -> None:
    """A description has the members with their partitions, each partition's start offset as last persisted,
    and the lag, which counts records in flight."""
    queue.write("a", "b", "c", "d", "e")
    member = queue.member("java", **EXPLICIT)
    assert [value for value, _ in poll(member)] == ["a", "b", "c", "d", "e"]
    queue.acknowledge(member, "accept", 0, 3)
    queue.acknowledge(member, "release", 1, 2, 4)
    assert queue.commit(member) is None
    assert stands(java_admin, queue) == [[0, 0, 3]]
    described = java_admin.call("describe_share", group=queue.name)
    (row,) = described["members"]
    assert (described["state"], described["group_epoch"]) == ("Stable", described["target_epoch"])
    assert (row["partitions"], row["epoch"]) == ([[queue.name, 0]], described["group_epoch"])
    listed = [group for group in java_admin.call("list_groups") if group["group"] == queue.name]
    assert [(group["type"], group["state"]) for group in listed] == [("Share", "Stable")]
    member.call("leave")
    empty = java_admin.call("describe_share", group=queue.name)
    assert (empty["state"], empty["members"]) == ("Empty", [])
    assert stands(java_admin, queue) == [[0, 0, 3]]


@pytest.mark.parametrize("library", ["java", "confluent-kafka"])
def test_an_empty_group_is_moved(library: str, queue: Queue, java_admin: Client) -> None:
    """Back and forth, but not while it has members; what it reads then begins there, as never delivered."""
    queue.write("a", "b", "c", "d")
    member = queue.member(library)
    assert len(poll(member)) == 4
    moving = {"group": queue.name, "offsets": [[queue.name, 0, 1]]}
    assert refusal(java_admin, "alter_share_offsets", **moving) == "NON_EMPTY_GROUP"
    assert refusal(java_admin, "delete_share_groups", groups=[queue.name]) == "NON_EMPTY_GROUP"
    member.call("leave")
    java_admin.call("alter_share_offsets", **moving)
    assert stands(java_admin, queue) == [[0, 1, 3]]
    again = queue.member(library, **EXPLICIT)
    assert poll(again) == [("b", 1), ("c", 1), ("d", 1)]
    queue.acknowledge(again, "accept", 1, 2)
    queue.acknowledge(again, "reject", 3)
    assert queue.commit(again) is None
    again.call("leave")
    java_admin.call("alter_share_offsets", group=queue.name, offsets=[[queue.name, 0, 3]])
    assert poll(queue.member(library)) == [("d", 1)]


@pytest.mark.parametrize("library", ["java", "confluent-kafka"])
def test_offsets_are_forgotten(library: str, queue: Queue, java_admin: Client) -> None:
    """The group starts again at the position of `share.auto.offset.reset`."""
    queue.write("a", "b")
    member = queue.member(library)
    assert len(poll(member)) == 2
    forgetting = {"group": queue.name, "topics": [queue.name]}
    assert refusal(java_admin, "delete_share_offsets", **forgetting) == "NON_EMPTY_GROUP"
    member.call("leave")
    java_admin.call("delete_share_offsets", **forgetting)
    assert stands(java_admin, queue) == []
    assert poll(queue.member(library)) == [("a", 1), ("b", 1)]
    queue.crew.rest()
    java_admin.call("delete_share_groups", groups=[queue.name])
    eventually(
        "no group",
        lambda: queue.name not in [group["group"] for group in java_admin.call("list_groups")],
        10,
    )
    assert refusal(java_admin, "describe_share", group=queue.name) == "GROUP_ID_NOT_FOUND"
    assert poll(queue.member(library)) == [("a", 1), ("b", 1)]
