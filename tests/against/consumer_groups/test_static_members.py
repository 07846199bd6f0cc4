"""Static members of consumer groups: who closes only steps out (member epoch −2) and finds everything as it
left it; and of two at one desk the newcomer is refused, not the one who sits there (unlike the classic
protocol)."""

from typing import Any

import pytest

from ..clients import Client
from ..stories import moves_within
from .group import CONFLUENT, JAVA, Group, is_refused
from .test_members import EACH


def at_desks(group: Group, library: str) -> tuple[Client, Client, dict[str, Any]]:
    """Start two static members with half of the partitions each; return them and the group's description."""
    group.has()
    group.is_fed()
    other = group.launch(CONFLUENT, "other")
    member = group.launch(library, "member")
    group.give(other, instance_id="desk-0")
    group.give(member, instance_id="desk-1")
    group.share(other, member)
    return other, member, group.settled(2)


def epochs(description: dict[str, Any]) -> tuple[int, int]:
    return description["group_epoch"], description["target_epoch"]


def targets(description: dict[str, Any]) -> dict[str, Any]:
    return {row["instance_id"]: sorted(row["target"]) for row in description["members"]}


@pytest.mark.java
@pytest.mark.parametrize("library", EACH)
def test_restarted_static_member_causes_no_movement(library: str, group: Group) -> None:
    """Closed and started again, with a new member id, it has the same partitions; the other has not moved,
    and no epoch either."""
    other, member, before = at_desks(group, library)
    began_ns = other.events[-1]["at"]
    had, past = member.holds(), group.past()
    member.close()

    def away() -> bool:
        return {row["instance_id"]: row["epoch"] for row in group.describe()["members"]}["desk-1"] == -2

    other.until("the empty desk", away)
    stepped_out = group.describe()
    assert (epochs(stepped_out), targets(stepped_out)) == (epochs(before), targets(before))
    again = group.join(library, "again", instance_id="desk-1")
    again.until("what it had", lambda: again.holds() == had)
    group.is_read_by(again, other)
    after = group.settled(2)
    assert (epochs(after), targets(after)) == (epochs(before), targets(before))
    ids = [
        {row["instance_id"]: row["member_id"] for row in description["members"]}
        for description in (before, after)
    ]
    assert ids[0]["desk-0"] == ids[1]["desk-0"] and ids[0]["desk-1"] != ids[1]["desk-1"]
    assert moves_within([other], began_ns, other.events[-1]["at"]) == []
    assert group.past() == past
    group.keeps()


@pytest.mark.java
@pytest.mark.parametrize("library", EACH)
def test_who_sits_there_stays(library: str, group: Group) -> None:
    """A second member with the same instance id gets UNRELEASED_INSTANCE_ID (111), which is fatal, and the
    first one is not disturbed."""
    other, member, before = at_desks(group, library)
    second = group.join(library, "second", instance_id="desk-1")
    is_refused(second, 111, "instance")
    group.is_read_by(other, member)
    after = group.settled(2)
    assert (epochs(after), targets(after)) == (epochs(before), targets(before))
    group.keeps()


@pytest.mark.java
def test_a_desk_is_given_up_for_good(group: Group) -> None:
    """Java's member may leave although it is static: the other has everything at once."""
    group.has()
    group.is_fed()
    other = group.join(CONFLUENT, "other", instance_id="desk-0")
    member = group.join(JAVA, "member", instance_id="desk-1", on_close="leave_group")
    group.share(other, member)
    member.close()
    group.share(other, within_s=20)
    assert [row["instance_id"] for row in group.settled(1)["members"]] == ["desk-0"]
    group.keeps()


@pytest.mark.java
@pytest.mark.parametrize("library", EACH)
def test_an_empty_desk_is_cleared_when_its_session_is_over(library: str, group: Group) -> None:
    """A static member that does not return within its session is removed."""
    group.expires_soon()
    other, member, before = at_desks(group, library)
    member.close()
    group.share(other)
    after = group.settled(1)
    assert after["group_epoch"] == before["group_epoch"] + 1
    group.keeps()


@pytest.mark.java
def test_an_admin_removes_a_static_member(group: Group) -> None:
    """By its instance id, while it is away; the other has everything."""
    other, member, _ = at_desks(group, CONFLUENT)
    member.close()
    group.admins[JAVA].call("remove_members", group=group.name, instance_ids=["desk-1"])
    group.share(other, within_s=20)
    assert len(group.settled(1)["members"]) == 1
    group.keeps()
