"""Assignor for searches with interchangeable members: it depends on their order in the group, not on names.

The production assignors sort members by name, so that states that differ in names only could behave
differently.
"""

from __future__ import annotations

from konvene.groups.assignors import GroupAssignment, GroupSpec


def assign_symmetrically(spec: GroupSpec) -> GroupAssignment:
    """Assign the partitions of the only topic evenly.

    Each member keeps partitions up to its quota; the others go to the member with the fewest partitions, the
    first one of equals."""
    (topic,) = spec.topics
    count, members = spec.topics[topic].partitions, list(spec.members)
    quota, remainder = divmod(count, len(members))
    assignment: dict[str, list[int]] = {}
    for member in members:
        owned = [p for p in spec.members[member].assigned.get(topic, ()) if p < count]
        exceeds = len(owned) > quota and remainder > 0
        remainder -= exceeds
        assignment[member] = owned[: quota + exceeds]
    free = [p for p in range(count) if not any(p in owned for owned in assignment.values())]
    while free:
        member = min(members, key=lambda name: len(assignment[name]))
        assignment[member].append(free.pop(0))
    return {member: {topic: tuple(sorted(owned))} if owned else {} for member, owned in assignment.items()}
