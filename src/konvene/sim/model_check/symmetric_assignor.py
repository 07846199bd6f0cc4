"""An assignor for searches in which members stand for one another: it knows them by their order alone.

Whoever has another's place in the group is given what that one would be given. The assignors that serve look
at names; with them two states that differ by names may go on differently.
"""

from __future__ import annotations

from konvene.groups.assignors import GroupAssignment, GroupSpec


def in_turn(spec: GroupSpec) -> GroupAssignment:
    """Each member keeps what it has as far as its share goes; the rest goes to whoever has less, the first
    ones first. All read the one topic that there is."""
    (topic,) = spec.topics
    count, members = spec.topics[topic].partitions, list(spec.members)
    least, more = divmod(count, len(members))
    given: dict[str, list[int]] = {}
    for member in members:
        had = [p for p in spec.members[member].assigned.get(topic, ()) if p < count]
        quota = least + (len(had) > least and more > 0)
        more -= quota > least
        given[member] = had[:quota]
    free = [p for p in range(count) if not any(p in had for had in given.values())]
    while free:
        member = min(members, key=lambda name: len(given[name]))
        given[member].append(free.pop(0))
    return {member: {topic: tuple(sorted(had))} if had else {} for member, had in given.items()}
