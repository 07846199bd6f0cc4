"""What the server-side assignors cost: CPU of one answer, for a new group and for one that a member has
joined.

No broker is needed. Groups are made as in Kafka's own benchmark of its assignors: members subscribe to all
topics, or, where a group is mixed, in five kinds to a fifth each. Kafka's figures are of its own classes,
warm.
"""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import NamedTuple

from bench.figures import Figure, less
from bench.systems import Lab
from konvene.codec.uuid import Uuid
from konvene.groups.assignors import ASSIGNORS, GroupAssignment, GroupSpec, MemberSpec, TopicSpec

ROUNDS = 11
RACKS = ("a", "b", "c")


class Size(NamedTuple):
    """A group: so many members, who subscribe in so many kinds, of so many topics with so many partitions."""

    assignor: str
    members: int
    topics: int
    partitions: int
    kinds: int = 1

    @property
    def says(self) -> str:
        mixed = " mixed" if self.kinds > 1 else ""
        return f"{self.assignor}{mixed} {self.members:,}x{self.topics:,}x{self.partitions}"


SIZES = (
    Size("uniform", 10_000, 1_000, 100),
    Size("uniform", 1_000, 1_000, 50, kinds=5),
    Size("uniform", 100, 10, 100),
    Size("range", 10_000, 1_000, 100),
    Size("rack-aware", 10_000, 1_000, 100),
    Size("rack-aware", 100, 10, 100),
)


def figures(lab: Lab) -> list[Figure]:
    """CPU milliseconds of one answer, the middle of some."""
    found = []
    for size in SIZES:
        assign = ASSIGNORS[size.assignor].assign
        new = _group(size, lab)
        found.append(less(f"{size.says}, ms", _measured(size, new, lab)))
        joined = _joined(new, assign(new))
        found.append(less(f"{size.says}, one joins, ms", _measured(size, joined, lab)))
    return found


def _measured(size: Size, spec: GroupSpec, lab: Lab) -> list[float]:
    assign = ASSIGNORS[size.assignor].assign
    times = max(1, 2_000 // size.members)  # the clock ticks in milliseconds on some machines
    took = []
    for _ in range(lab.of(ROUNDS)):
        began = time.process_time()
        for _ in range(times):
            assign(spec)
        took.append((time.process_time() - began) / times * 1000)
    return took


def _group(size: Size, lab: Lab) -> GroupSpec:
    """Nobody has anything yet. Each partition is in two of three racks."""
    chance = random.Random(size.members)
    count = size.kinds * max(1, lab.of(size.topics) // size.kinds)
    racks = [frozenset(RACKS) - {rack} for rack in RACKS]
    topics = {
        Uuid(chance.randbytes(16)): TopicSpec(
            size.partitions, tuple(chance.choice(racks) for _ in range(size.partitions))
        )
        for _ in range(count)
    }
    ids = list(topics)
    each = count // size.kinds
    subscribed = [frozenset(ids[kind * each : (kind + 1) * each]) for kind in range(size.kinds)]
    members = max(size.kinds, lab.of(size.members))
    return GroupSpec.of(
        {
            f"member{n}": MemberSpec(subscribed[n * size.kinds // members], rack_id=RACKS[n % 3])
            for n in range(members)
        },
        topics,
    )


def _joined(spec: GroupSpec, given: GroupAssignment) -> GroupSpec:
    """The same group later, with a member that is new and reads what the last one reads."""
    members = {name: replace(of, assigned=given[name]) for name, of in spec.members.items()}
    *_, last = spec.members.values()
    return replace(spec, members=members | {"newMember": MemberSpec(last.subscribed, rack_id=last.rack_id)})
