"""T9: random applications are upgraded to their next topology in a rolling bounce without standing still.

Two to five members on processes of their own or shared, with or without standbys, are bounced in any order,
while others are slow or report nothing, and while the coordinator restarts. With each available assignor.
After every message:

- a member behind the topology has, and is to have, only tasks that it had before
- every task has exactly one active target, if some member is up to date and the topology is ready
- every member that was not bounced is still a member, at its epoch

Once all are upgraded, no member has more active tasks than its share. The sticky assignor, which is Kafka's,
guarantees no more than that.
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
from konvene.groups.streams.current_assignment import units as units_of
from konvene.groups.streams.group import State, StreamsGroup

SEEDS = range(20)
END = 100_000
"""Length of the changelogs of each task."""

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
        self.play.run(f"config group.streams.num.standby.replicas={chance.choice((0, 0, 1, 2))}")
        for topic, partitions in (("orders", chance.randint(3, 9)), ("audit", chance.randint(1, 3))):
            self.play.run(f"topic {topic} partitions=0")
            self.play.run(f"topic {topic} partitions={partitions}")
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

    def beat(self, member: Member, *, slow: bool = False, reports_owned: bool = True) -> None:
        """Send a heartbeat that reports the progress of copies; then check the rules."""
        assert (
            member.beat(self.play, slow=slow, reports_owned=reports_owned, **self.reports(member))
            is Errors.NONE
        )
        self.check()

    def reports(self, member: Member) -> dict[str, str]:
        """Return the report: active tasks are at the end, copies advance with every heartbeat, disks keep
        their state."""
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
        """Let all members heartbeat in any order; some are slow, some do not report their tasks."""
        for _ in range(count):
            for member in self.random.sample(self.members, len(self.members)):
                if member.epoch > 0:
                    self.beat(
                        member, slow=self.random.random() < 0.2, reports_owned=self.random.random() < 0.7
                    )
            if self.random.random() < 0.1:
                self.play.run(self.random.choice(("restart", "compact", "create")))
            self.play.run("create")

    def settle(self) -> None:
        """Heartbeat until nothing changes any more."""
        for _ in range(40):
            before = [(set(member.owns), member.epoch) for member in self.members]
            for member in self.members:
                if member.epoch > 0:
                    member.apply_assignment()
                    self.beat(member)
            self.play.run("create")
            if before == [(set(member.owns), member.epoch) for member in self.members]:
                return
        raise AssertionError(f"{self.group!r} does not come to rest")

    def bounce(self, member: Member) -> None:
        """Restart a member with the next topology, after leaving for good or temporarily."""
        member.leave(self.play, "away" if member.instance and self.random.random() < 0.5 else "leave")
        self.had.pop(member.name, None)
        self.rounds(self.random.randint(0, 2))
        member.topology = f"{self.after} topology-epoch=1"
        self.beat(member)
        self.rounds(self.random.randint(0, 3))

    # --- the rules ---

    def check(self) -> None:
        group = self.group
        known = {member.member_id: member for member in self.members if member.epoch > 0}
        assert known.keys() <= group.members.keys(), f"{sorted(known.keys() - group.members.keys())} are lost"
        for member_id, member in known.items():
            current = {(Role(role).name.lower(), *rest) for role, *rest in self.units(member_id)}
            if group.members[member_id].topology_epoch < group.topology_epoch:
                new = current - self.had.get(member.name, current)
                assert not new, f"{member.name} is behind, and has {sorted(new)} by now"
            self.had[member.name] = {
                (role.name.lower(), *rest)
                for role, *rest in group.members[member_id].current.assigned.units()
            }
        up_to_date = any(m.topology_epoch == group.topology_epoch for m in group.members.values())
        if up_to_date and group.state in (State.STABLE, State.RECONCILING):
            active = Counter(
                unit[1:] for target in group.targets.values() for unit in units_of(target.active, {}, {})
            )
            assert active == dict.fromkeys(self.tasks(), 1)

    def units(self, member_id: str) -> Iterator[tuple[Role, str, int]]:
        """Yield the tasks that a member has, and those of its latest target."""
        group = self.group
        yield from group.members[member_id].current.assigned.units()
        if group.epoch == group.assignment_epoch:
            target = group.target_of(member_id)
            yield from units_of(target.active, target.standby, target.warmup)

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
def test_a_rolling_upgrade_keeps_every_task_running_and_ends_balanced(seed: int, assignor: str) -> None:
    """See the module's docstring."""
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
