"""Hypothesis strategies for groups: small, unusual, with or without racks, with any former assignment."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from konvene.codec.uuid import Uuid
from konvene.groups.assignors import GroupAssignment, GroupSpec, MemberSpec, TopicSpec

TOPICS = [Uuid(random.Random(number).randbytes(16)) for number in range(7)]
RACKS = ("a", "b", "c")


@st.composite
def groups(draw: st.DrawFn, *, alike: bool | None = None, racks: bool | None = None) -> GroupSpec:
    """A group whose members subscribe alike or not, with a valid former assignment or any other."""
    topics = {topic: draw(st.integers(0, 9)) for topic in TOPICS[: draw(st.integers(1, 7))]}
    names = draw(
        st.lists(st.text("abxé\U0001f600", min_size=1, max_size=3), min_size=1, max_size=7, unique=True)
    )
    some = st.frozensets(st.sampled_from(list(topics)))
    one = draw(some)
    mixed = draw(st.booleans()) if alike is None else not alike
    racked = draw(st.booleans()) if racks is None else racks
    had: dict[str, dict[Uuid, tuple[int, ...]]] = {name: {} for name in names}
    for topic in TOPICS[: draw(st.integers(0, 7))]:  # with topics that are not there any more
        owners = draw(st.lists(st.sampled_from([None, *names]), max_size=topics.get(topic, 3)))
        for name in names:
            mine = tuple(partition for partition, owner in enumerate(owners) if owner == name)
            if mine:
                had[name][topic] = mine
    members = {
        name: MemberSpec(
            draw(some) if mixed else one,
            had[name],
            f"i{number}" if draw(st.booleans()) else None,
            draw(st.sampled_from([None, *RACKS])) if racked else None,
        )
        for number, name in enumerate(names)
    }
    replicas = st.frozensets(st.sampled_from(RACKS), max_size=2)
    return GroupSpec.of(
        members,
        {
            topic: TopicSpec(count, tuple(draw(replicas) for _ in range(count)) if racked else ())
            for topic, count in topics.items()
        },
    )


def having(spec: GroupSpec, given: GroupAssignment) -> GroupSpec:
    """Return the group with this assignment as the members' current one."""
    members = {name: replace(of, assigned=given[name]) for name, of in spec.members.items()}
    return replace(spec, members=members)


def with_member(spec: GroupSpec, name: str, member: MemberSpec) -> GroupSpec:
    return GroupSpec.of({**spec.members, name: member}, spec.topics)


def without(spec: GroupSpec, name: str) -> GroupSpec:
    return GroupSpec.of({key: of for key, of in spec.members.items() if key != name}, spec.topics)


def shuffled(spec: GroupSpec, seed: int) -> GroupSpec:
    """Return an equal group whose maps have another order."""
    chance = random.Random(seed)

    def other(of: dict[Any, Any]) -> dict[Any, Any]:
        return dict(chance.sample(list(of.items()), len(of)))

    members = {name: replace(of, assigned=other(dict(of.assigned))) for name, of in spec.members.items()}
    return replace(spec, members=other(members), topics=other(dict(spec.topics)))
