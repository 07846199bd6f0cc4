"""Where tasks are to be found: what is told of members that have not moved is kept, and of no others."""

from __future__ import annotations

from tests.groups.streams.members import Member, Play


def instances(*names: str) -> tuple[Member, ...]:
    return tuple(Member(name, name, "0:orders", endpoint=f"{name}:80") for name in names)


def hosts(play: Play, member: Member) -> list[str]:
    """Whose endpoints a member is told when it has never heard of any."""
    play.say(f"streams-heartbeat {member.name} endpoint-epoch=-1")
    return [told.user_endpoint.host for told in play.answer(member.name).partitions_by_user_endpoint]


def test_what_is_kept_goes_with_its_member() -> None:
    """And what did not move is the very same for the next one who asks."""
    play = Play()
    ann, bob, cid = members = instances("ann", "bob", "cid")
    for member in 7 * members:
        member.beat(play)
    group = play.group
    assert group is not None
    assert hosts(play, ann) == ["bob", "cid", "ann"]
    kept = group.endpoints[bob.member_id]
    assert hosts(play, cid) == ["ann", "bob", "cid"]
    assert group.endpoints[bob.member_id] is kept
    bob.leave(play)
    for member in 4 * (ann, cid):
        member.beat(play)
    assert hosts(play, ann) == ["cid", "ann"]
    assert group.endpoints.keys() == {ann.member_id, cid.member_id}
