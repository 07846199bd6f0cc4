"""Recorded results of Kafka 4.4.0's assignors, and the orders in which Kafka iterated members and topics.

Kafka's uniform assignor iterates members and topics in the order of its hash maps. Both orders follow from
the names, so that results can be compared exactly: by the hash modulo the size of a table that doubles when
it is three quarters full (a copied table is made for its size).
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from konvene.codec.uuid import Uuid
from konvene.groups.assignors import (
    GroupAssignment,
    GroupSpec,
    MemberAssignment,
    MemberSpec,
    SubscriptionType,
    TopicSpec,
)

VECTORS = Path(__file__).parents[2] / "vectors" / "assignors"


class Case(NamedTuple):
    number: int
    event: str
    spec: GroupSpec
    """Members in the order in which they joined."""
    output: GroupAssignment
    figures: Mapping[str, int]

    def __repr__(self) -> str:
        return f"{self.number}-{self.event}"


def cases(assignor: str, only: SubscriptionType | None = None) -> list[Case]:
    return [case for case in _all_cases(assignor) if only in (None, case.spec.subscription_type)]


@cache
def _all_cases(assignor: str) -> list[Case]:
    lines = gzip.decompress((VECTORS / f"server-{assignor}.jsonl.gz").read_bytes()).splitlines()
    return [_case(json.loads(line)) for line in lines]


def _case(case: dict[str, Any]) -> Case:
    members = {
        name: MemberSpec(
            frozenset(map(Uuid.parse, of["subscribed"])),
            _assignment(of["assigned"]),
            of.get("instanceId"),
            of.get("rackId"),
        )
        for name, of in case["members"].items()
    }
    topics = {
        Uuid.parse(topic["id"]): TopicSpec(topic["partitions"], tuple(map(frozenset, topic.get("racks", ()))))
        for topic in case["topics"]
    }
    spec = GroupSpec(members, topics, SubscriptionType[case["subscriptionType"]])
    output = {name: _assignment(mine) for name, mine in case["output"].items()}
    return Case(case["case"], case["event"], spec, output, case["figures"])


def _assignment(by_topic: dict[str, list[int]]) -> MemberAssignment:
    return {Uuid.parse(topic): tuple(some) for topic, some in by_topic.items() if some}


def kafkas_members(members: Iterable[str]) -> list[str]:
    """Return members in the order of a HashMap that grew with them."""
    names, size = list(members), 16
    while len(names) > size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: _spread(_string_hash(name)) % size)


def kafkas_topics(topics: Iterable[Uuid]) -> list[Uuid]:
    """Return topics in the order of a copied HashSet; colliding topics keep their order."""
    ids, size = list(topics), 16
    while size < int(len(ids) / 0.75) + 1:
        size *= 2
    return sorted(ids, key=lambda topic: _spread(_id_hash(topic)) % size)


def _string_hash(text: str) -> int:
    code = 0
    for unit in struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be")):
        code = (code * 31 + unit) & 0xFFFFFFFF
    return code


def _id_hash(topic: Uuid) -> int:
    high, low = struct.unpack(">QQ", topic)
    return ((high ^ low) >> 32) ^ (high ^ low) & 0xFFFFFFFF


def _spread(code: int) -> int:
    return code ^ code >> 16


# Measures of an assignment --------------------------------------------------------------------


def units(given: MemberAssignment) -> set[tuple[Uuid, int]]:
    return {(topic, partition) for topic, some in given.items() for partition in some}


def sizes(given: GroupAssignment) -> list[int]:
    """Return the sizes of the assignments, largest first: the lexicographically smaller list is more
    balanced."""
    return sorted((sum(map(len, mine.values())) for mine in given.values()), reverse=True)


def kept(spec: GroupSpec, given: GroupAssignment) -> int:
    """Return how many partitions stay with their former owner."""
    return sum(len(units(of.assigned) & units(given[name])) for name, of in spec.members.items())


def moved(spec: GroupSpec, given: GroupAssignment) -> int:
    """Return how many partitions move from one member to another."""
    before = {unit: name for name, of in spec.members.items() for unit in units(of.assigned)}
    return sum(before.get(unit, name) != name for name, mine in given.items() for unit in units(mine))


def near(spec: GroupSpec, given: GroupAssignment) -> int:
    """Return how many partitions have a replica in the rack of their owner."""
    return sum(
        spec.members[name].rack_id in spec.topics[topic].racks[partition]
        for name, mine in given.items()
        for topic, partition in units(mine)
        if spec.topics[topic].racks
    )
