"""Endpoints of tasks: the part of a member whose tasks did not change is cached."""

from __future__ import annotations

from tests.groups.streams.members import Member, Play


def instances(*names: str) -> tuple[Member, ...]:
    return tuple(Member(name, name, "0:orders", endpoint=f"{name}:80") for name in names)


def hosts(play: Play, member: Member) -> list[str]:
    """Return the hosts sent to a member that has no endpoint information yet."""
    play.run(f"streams-heartbeat {member.name} endpoint-epoch=-1")
    return [entry.user_endpoint.host for entry in play.answer(member.name).partitions_by_user_endpoint]


def test_a_cached_endpoint_is_removed_with_its_member() -> None:
    """The entry of a member whose tasks did not change is reused for the next request."""
    play = Play()
    ann, bob, cid = members = instances("ann", "bob", "cid")
    for member in 7 * members:
        member.beat(play)
    group = play.group
    assert group is not None
    assert hosts(play, ann) == ["bob", "cid", "ann"]
    cached = group.endpoints[bob.member_id]
    assert hosts(play, cid) == ["ann", "bob", "cid"]
    assert group.endpoints[bob.member_id] is cached
    bob.leave(play)
    for member in 4 * (ann, cid):
        member.beat(play)
    assert hosts(play, ann) == ["cid", "ann"]
    assert group.endpoints.keys() == {ann.member_id, cid.member_id}
