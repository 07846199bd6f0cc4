"""T9: random applications are rolled to their next topology, member by member, and never stand still.

Two to five members on processes of their own or shared, with standbys or without, that are bounced in any
order while others are slow, or say nothing, and while the coordinator begins anew. With each assignor there
is. After every message

    who is behind      has, and is to have, nothing that it had not before
    every task         is to be active exactly once, where somebody is up to date and the topology is ready
    everybody          who was not bounced is a member still, at its epoch

and once all are rolled nobody has more active tasks than its share. More than that the sticky assignor does
not promise, for it is Kafka's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil
from random import Random

import pytest
from tests.groups.streams.members import Member, Play, Unit

from konvene.errors import Errors
from konvene.groups.streams.assignors import TASK_ASSIGNORS
from konvene.groups.streams.current_assignment import Role
from konvene.groups.streams.current_assignment import units as of_target
from konvene.groups.streams.group import State, StreamsGroup

SEEDS = range(20)
END = 100_000
"""How long the changelogs of each task are."""

STATELESS = ("0:orders", "0:orders|1:audit", "0:orders+audit", "1:orders", "0:audit|2:orders")
STATEFUL = ("0:orders!so", "0:orders!so|1:audit!sa", "0:orders!sx", "1:orders!so", "0:audit!sa|2:orders!so")


class Roll:
    """One application, from its first topology to its second."""

    def __init__(self, seed: int, assignor: str) -> None:
        self.random = Random(seed)
        chance = self.random
        topologies = chance.choice((STATELESS, STATEFUL))
        self.before, self.after = chance.choice(topologies), chance.choice(topologies)
        self.play = Play(konvene_streams_mode="kip")
        self.play.life.task_assignors[assignor] = TASK_ASSIGNORS[assignor]
        self.play.say(f"config group.streams.num.standby.replicas={chance.choice((0, 0, 1, 2))}")
        for topic, partitions in (("orders", chance.randint(3, 9)), ("audit", chance.randint(1, 3))):
            self.play.say(f"topic {topic} partitions=0")
            self.play.say(f"topic {topic} partitions={partitions}")
        processes = chance.choice(("abcde", "abcde", "aabbc"))
        count = chance.randint(2, 5)
        self.members = [
            Member(f"m{n}", processes[n], self.before, f"i{n}" if chance.random() < 0.3 else None)
            for n in range(count)
        ]
        self.disks: dict[str, dict[tuple[str, int], int]] = {}
        self.had: dict[str, set[Unit]] = {}

    @property
    def group(self) -> StreamsGroup:
        assert self.play.group is not None
        return self.play.group

    # --- what members do ---

    def beat(self, member: Member, *, slow: bool = False, says: bool = True) -> None:
        """A heartbeat that reports how far its copies have come; then the rules are looked at."""
        assert member.beat(self.play, slow=slow, says=says, **self.reports(member)) is Errors.NONE
        self.look()

    def reports(self, member: Member) -> dict[str, str]:
        """Active tasks are at the end; copies come nearer with every heartbeat. State stays on the disk."""
        disk = self.disks.setdefault(member.process, {})
        for role, name, partition in sorted(member.owns):
            restored = disk.get((name, partition), 0) + 45_000
            disk[name, partition] = END if role == "active" else min(END, restored)
        if self.after in STATELESS or not disk:
            return {}
        tasks = sorted(disk)
        return {
            "offsets": ",".join(f"{name}-{partition}:{disk[name, partition]}" for name, partition in tasks),
            "ends": ",".join(f"{name}-{partition}:{END}" for name, partition in tasks),
        }

    def rounds(self, count: int) -> None:
        """All are heard, in any order; some are slow, some say nothing of what they have."""
        for _ in range(count):
            for member in self.random.sample(self.members, len(self.members)):
                if member.epoch > 0:
                    self.beat(member, slow=self.random.random() < 0.2, says=self.random.random() < 0.7)
            if self.random.random() < 0.1:
                self.play.say(self.random.choice(("restart", "compact", "create")))
            self.play.say("create")

    def settle(self) -> None:
        """Until nothing moves any more."""
        for _ in range(40):
            before = [(set(member.owns), member.epoch) for member in self.members]
            for member in self.members:
                if member.epoch > 0:
                    member.give_up()
                    self.beat(member)
            self.play.say("create")
            if before == [(set(member.owns), member.epoch) for member in self.members]:
                return
        raise AssertionError(f"{self.group!r} does not come to rest")

    def bounce(self, member: Member) -> None:
        """It goes, for good or for a while, and is back with the next topology."""
        member.leave(self.play, "away" if member.instance and self.random.random() < 0.5 else "leave")
        self.had.pop(member.name, None)
        self.rounds(self.random.randint(0, 2))
        member.topology = f"{self.after} topology-epoch=1"
        self.beat(member)
        self.rounds(self.random.randint(0, 3))

    # --- the rules ---

    def look(self) -> None:
        group = self.group
        known = {member.member_id: member for member in self.members if member.epoch > 0}
        assert known.keys() <= group.members.keys(), f"{sorted(known.keys() - group.members.keys())} are lost"
        for member_id, member in known.items():
            has = {(Role(role).name.lower(), *rest) for role, *rest in self.units(member_id)}
            if group.members[member_id].topology_epoch < group.topology_epoch:
                new = has - self.had.get(member.name, has)
                assert not new, f"{member.name} is behind, and has {sorted(new)} by now"
            self.had[member.name] = {
                (role.name.lower(), *rest)
                for role, *rest in group.members[member_id].current.assigned.units()
            }
        up_to_date = any(m.topology_epoch == group.topology_epoch for m in group.members.values())
        if up_to_date and group.state in (State.STABLE, State.RECONCILING):
            given = Counter(
                unit[1:] for target in group.targets.values() for unit in of_target(target.active, {}, {})
            )
            assert given == dict.fromkeys(self.tasks(), 1)

    def units(self, member_id: str) -> Iterator[tuple[Role, str, int]]:
        """What a member has, and what it is to have by the group's last target."""
        group = self.group
        yield from group.members[member_id].current.assigned.units()
        if group.epoch == group.assignment_epoch:
            target = group.target_of(member_id)
            yield from of_target(target.active, target.standby, target.warmup)

    def tasks(self) -> list[tuple[str, int]]:
        topology, by_name = self.group.topology, self.play.life.topics.by_name
        assert topology is not None
        return [
            (name, partition)
            for name, each in topology.subtopologies.items()
            for partition in range(max(by_name[topic].partitions for topic in each.source_topics))
        ]


@pytest.mark.parametrize("assignor", sorted(TASK_ASSIGNORS))
@pytest.mark.parametrize("seed", SEEDS)
def test_a_roll_goes_on_all_the_time_and_ends_balanced(seed: int, assignor: str) -> None:
    """See the top of this file."""
    roll = Roll(seed, assignor)
    for member in roll.members:
        roll.beat(member)
    roll.settle()
    for member in roll.random.sample(roll.members, len(roll.members)):
        roll.bounce(member)
        if roll.random.random() < 0.5:
            roll.settle()
    roll.settle()
    assert roll.group.state is State.STABLE
    assert all(member.status == () for member in roll.members)
    assert "warmup" not in {unit[0] for member in roll.members for unit in member.owns}
    counts = [sum(unit[0] == "active" for unit in member.owns) for member in roll.members]
    assert sum(counts) == len(roll.tasks())
    assert max(counts) <= ceil(len(roll.tasks()) / len(roll.members))
    assert assignor == "sticky" or max(counts) - min(counts) <= 1
