"""Random runs of one streams group against its invariants.

Up to four well-behaved members (`members`) on three processes, two of them static; lost responses, slow or
silent members, topics that are created, grow and are deleted, internal topics that are created or not,
changed settings, targets that are late or fail, restarts with a compacted log, and the classic protocol in an
empty group. After each step every invariant (`sim.invariants.streams.state`) is checked, and the tasks that
members run are compared with the coordinator's state. In `HostileStreamsMachine` former heartbeats are sent
again, with other epochs, other tasks or missing fields.

A failure is reported as a scenario that can be replayed. `KONVENE_INVARIANTS=2000` plays that many random
runs instead of a few fixed ones.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests import depth
from tests.groups.streams.members import Member, Play

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup

EXAMPLES = int(os.environ.get("KONVENE_INVARIANTS", "0"))
MEMBERS = 4
MEMBER = st.integers(0, MEMBERS - 1)
ODDS = st.sampled_from((False, False, True))

TOPOLOGIES = (
    "0:orders",
    "0:orders!c0",
    "0:orders>rep|1:<rep!counts",
    "0:orders!c0|1:audit",
    "0:orders+audit!c0&",
    "0:orders>rep!c0|1:<rep!counts|2:audit",
)
METADATA = st.sampled_from(("rack=r1", "rack=r2", "tags=zone:a", "tags=-", "endpoint=x:9", "rebalance=20000"))
TOPICS = ("orders", "audit", "rep", "c0", "counts")


class StreamsGroupMachine(RuleBasedStateMachine):
    """Random events of members, administrators and failures."""

    def __init__(self) -> None:
        super().__init__()
        self.play = Play()
        self.members: list[Member] = []

    @initialize(
        topology=st.sampled_from(TOPOLOGIES),
        processes=st.sampled_from(("pppp", "pqpq", "ppqq", "pqrp", "pqpr")),
        standbys=st.sampled_from((0, 1, 1, 2)),
        delay=st.sampled_from((0, 0, 3_000)),
        interval=st.sampled_from((0, 0, 5_000)),
        in_background=st.booleans(),
        endpoints=st.booleans(),
        topics_exist=st.booleans(),
    )
    def begin(
        self, topology: str, processes: str, standbys: int, delay: int, interval: int, in_background: bool,
        endpoints: bool, topics_exist: bool,
    ) -> None:  # fmt: skip
        """Choose the topology, the processes, whether targets are computed in the background, the interval,
        and whether internal topics exist already."""
        self.play.run(
            f"config group.streams.num.standby.replicas={standbys} "
            f"group.streams.initial.rebalance.delay.ms={delay} "
            f"group.streams.assignment.interval.ms={interval} group.streams.max.size=4"
        )
        for name, count in (("orders", 3), ("audit", 2)):
            self.play.run(f"topic {name} partitions=0")
            self.play.run(f"topic {name} partitions={count}")
        for name in ("c0", "rep", "counts") if topics_exist else ():
            self.play.run(f"topic {name} partitions=3")
        if in_background:
            self.play.run("heavy 0")
        names = (("ann", None), ("bob", "i2"), ("cid", None), ("dan", "i4"))
        self.members = [
            Member(name, process, topology, instance, f"{name}:80" if endpoints and name != "bob" else None)
            for (name, instance), process in zip(names, processes, strict=True)
        ]

    # --- members ---

    @rule(who=MEMBER, lost=ODDS, slow=ODDS, reports_owned=st.booleans())
    def act(self, who: int, lost: bool, slow: bool, reports_owned: bool) -> None:
        """A member sends a heartbeat."""
        member, group = self.members[who], self.play.group
        known = group is not None and member.member_id in group.members
        joins = member.epoch <= 0
        code = member.beat(self.play, lost=lost, slow=slow, reports_owned=reports_owned)
        if known and joins and member.instance is None:
            assert code in (Errors.NONE, Errors.INVALID_REQUEST), f"{member.name} may not rejoin: {code}"

    @rule(rounds=st.sampled_from((1, 1, 2, 6)), ms=st.sampled_from((0, 500, 1_500)))
    def all_act(self, rounds: int, ms: int) -> None:
        """All members heartbeat, some time apart; six rounds are enough for a rebalance."""
        for _ in range(rounds):
            for member in self.members:
                member.beat(self.play)
                self.each_task_runs_once()
            self.play.run(f"advance {ms}")

    @rule(who=st.sets(MEMBER, min_size=1, max_size=3), lost=ODDS)
    def some_act(self, who: set[int], lost: bool) -> None:
        """Some members heartbeat; the response to the last one may be lost."""
        for nth in sorted(who):
            self.members[nth].beat(self.play, lost=lost and nth == max(who))

    @rule(who=MEMBER)
    def revokes(self, who: int) -> None:
        """A slow member has revoked the tasks that it had to."""
        self.members[who].apply_assignment()

    @rule(who=MEMBER, leaves=st.booleans(), moves=ODDS)
    def process_restarts(self, who: int, leaves: bool, moves: bool) -> None:
        """A process ends, with or without leaving, and another one starts, maybe on another process id."""
        member = self.members[who]
        if leaves:
            member.leave(self.play)
        member.forget(anew=True)
        if moves:
            member.process = {"p": "q", "q": "r", "r": "p"}[member.process]

    @rule(leaves=st.booleans())
    def rolling(self, leaves: bool) -> None:
        """One process after another is bounced."""
        for who in range(MEMBERS):
            self.process_restarts(who, leaves=leaves, moves=False)
            self.all_act(rounds=2, ms=500)

    @rule(who=st.sampled_from((1, 3)), back=st.booleans())
    def leaves_temporarily(self, who: int, back: bool) -> None:
        """M13: a static member that leaves temporarily keeps its instance id and its tasks."""
        member, group = self.members[who], self.play.group
        if member.epoch <= 0 or group is None:
            return
        known = group.members.get(member.member_id)
        member_id, held = member.member_id, known and known.current.assigned.tasks
        member.leave(self.play, "away")
        if held is not None:
            assert group.members[member_id].current.assigned.tasks == held, "M13: its tasks were not kept"
            assert group.instances[member.instance or ""] == member_id, "M13: its instance id was taken over"
        if back:
            member.beat(self.play)

    @rule(changes=st.lists(st.tuples(MEMBER, METADATA), min_size=1, max_size=3))
    def changes_metadata(self, changes: list[tuple[int, str]]) -> None:
        """Members report changed metadata: it is logged, and may bump the epoch."""
        for who, change in changes:
            key, _, value = change.partition("=")
            self.members[who].beat(self.play, **{key: value})

    @rule(who=MEMBER, task=st.integers(0, 2), lag=st.integers(0, 5))
    def reports(self, who: int, task: int, lag: int) -> None:
        """T13: a report of task offsets does not bump the epoch."""
        member, group = self.members[who], self.play.group
        epoch = group.epoch if group is not None else 0
        quiet = member.epoch > 0 and group is not None and group.epoch == group.assignment_epoch
        topics = self.play.life.topics
        code = member.beat(self.play, offsets=f"0-{task}:{lag}", ends=f"0-{task}:9")
        if code is not Errors.NONE or not quiet or group is None or group is not self.play.group:
            return
        if group.soft.hashed_topics is topics:
            known = group.members.get(member.member_id)
            assert group.epoch <= epoch + 1, "T13: offsets moved the epoch"
            assert known is None or group.reported_by(member.member_id).offsets["0"] == {task: lag}

    @rule(who=MEMBER, behind=st.integers(-1, 2), partition=st.integers(0, 2))
    def commits(self, who: int, behind: int, partition: int) -> None:
        """O1: a commit at the member's epoch, or at another one."""
        member = self.members[who]
        named = f" instance={member.instance}" if member.instance is not None else ""
        self.play.run(
            f"commit {member.name} orders-{partition}:5 member={member.member_id or '-'}{named} "
            f"generation={member.epoch - behind}"
        )

    @rule(who=MEMBER, leaves=st.booleans())
    def requests_shutdown(self, who: int, leaves: bool) -> None:
        """T16: every later heartbeat is answered with the shutdown."""
        member = self.members[who]
        if leaves and member.epoch > 0:
            named = f" instance={member.instance}" if member.instance is not None else ""
            self.play.run(
                f"streams-heartbeat {member.name} leave member={member.member_id}{named} shutdown=yes"
            )
            member.forget(anew=True)
        elif not leaves:
            member.beat(self.play, shutdown="yes")

    # --- topics, time and failures ---

    @rule(name=st.sampled_from(TOPICS), count=st.integers(0, 4), anew=ODDS)
    def topic(self, name: str, count: int, anew: bool) -> None:
        """A topic is created, grows, is recreated, or is deleted."""
        known = self.play.life.topics.by_name.get(name)
        if known is None or anew or not count:
            self.play.run(f"topic {name}{' recreate' if anew and known else ''} partitions={count}")
        else:
            self.play.run(f"topic {name} partitions={max(count, known.partitions)}")

    @rule(how=st.sampled_from(("create", "create", "create", "create fails", "create denied")))
    def create(self, how: str) -> None:
        """Internal topics are created, or their creation fails."""
        self.play.run(how)

    @rule(
        standbys=st.integers(0, 2),
        tags=st.sampled_from(("", "", "zone")),
        interval=st.sampled_from((0, 0, 5_000)),
    )
    def configures(self, standbys: int, tags: str, interval: int) -> None:
        """An administrator changes settings that targets depend on."""
        self.play.run(
            f"config group.streams.num.standby.replicas={standbys} "
            f"group.streams.rack.aware.assignment.tags={tags} "
            f"group.streams.assignment.interval.ms={interval}"
        )

    @rule(ms=st.sampled_from((500, 1_000, 3_000, 5_001, 10_001, 30_000, 45_000)))
    def time(self, ms: int) -> None:
        """Time passes; members whose session expires may release tasks."""
        self.play.run(f"advance {ms}")

    @rule(fails=ODDS, drops=ODDS)
    def work(self, fails: bool, drops: bool) -> None:
        """A requested target is computed, or dropped by a coordinator restart."""
        if drops:
            self.play.run("restart")
        self.play.run("work fails" if fails else "work")

    @rule(compact=st.sampled_from(("restart", "compact", "compact tombstones=yes")))
    def restart(self, compact: str) -> None:
        """The coordinator reloads its log, which may have been compacted; no logged state is lost (G1,
        G2)."""
        self.play.run(compact)

    @rule(how=st.sampled_from(("too-large", "fail")), who=MEMBER)
    def append_fails(self, how: str, who: int) -> None:
        """The next decision cannot be written: none of it is applied, and its request gets no response."""
        self.play.run(how)
        self.members[who].beat(self.play, lost=True)
        self.play.run("durable")

    @rule(does=st.sampled_from(("join", "join", "leave", "commit", "delete")))
    def classic(self, does: str) -> None:
        """MG4: an empty group may change its type, which removes its former state."""
        group = self.play.group
        line = {
            "join": "join old reads=orders",
            "leave": "leave old",
            "commit": "commit tool orders-0:7 generation=-1 member=-",
            "delete": "delete g",
        }[does]
        self.play.run(line)
        if group is not None and group.members:
            assert self.play.group is group, f"MG4: {group!r} was removed by {line}"
        elif group is not None and does == "join" and self.play.error("old") is Errors.NONE:
            group_now = self.play.life.shard.groups.get("g")
            assert isinstance(group_now, ClassicGroup), f"{group_now!r} is still no classic group"

    # --- invariants ---

    def agreeing_members(self) -> list[tuple[Member, Any]]:
        """Return the members whose epochs the group and the member agree to be positive, with their group
        state."""
        group = self.play.group
        found = []
        for member in self.members if group is not None else ():
            known = group.members.get(member.member_id) if group is not None else None
            if known is not None and member.epoch > 0 and known.current.epoch > 0:
                found.append((member, known))
        return found

    @invariant()
    def each_task_runs_once(self) -> None:
        """T1, T2 as seen by members: no task runs twice, and no process has the state of one task twice."""
        runs: dict[Any, str] = {}
        disks: dict[Any, str] = {}
        for member, known in self.agreeing_members():
            held = {(unit[0].name.lower(), *unit[1:]) for unit in known.current.assigned.units()}
            held |= {(unit[0].name.lower(), *unit[1:]) for unit in known.current.pending_revocation.units()}
            tasks = {unit[1:] for unit in held}
            for role, name, partition in sorted(member.owns):
                task = name, partition
                assert task in tasks, f"M6: {member.name} has {role} {task} on its disk, it holds {held}"
                if role == "active":
                    other = runs.setdefault(task, member.name)
                    assert other == member.name, f"T1: {other} and {member.name} run {task}"
                if known.process_id == member.process:
                    other = disks.setdefault((member.process, task), member.name)
                    assert other == member.name, f"T2: {other} and {member.name} have {task} on one disk"


AGAIN = st.tuples(
    st.integers(0, 30),
    st.sampled_from(("", "", "0", "1", "2", "3", "99", "-1", "-2", "-3")),
    st.sampled_from(("", "", "owns=-", "owns=0:0", "owns=unsaid", "active=0:0-1", "owns=9:9", "owns=0:9")),
    st.sampled_from(
        ("", "", "process=q", "rebalance=30000", "instance=i2", "instance=-", "tags=a:b,a:c",
         "offsets=0-0:1,0-0:2", "topology=7:audit", "topology=0:orders!c0 topology-epoch=1")
    ),
)  # fmt: skip
"""Which of the last heartbeats to resend, its epoch, its tasks, and other changed fields."""


class HostileStreamsMachine(StreamsGroupMachine):
    """Random runs with arbitrary heartbeats. What members run is not checked: others may speak for them."""

    @rule(again=st.lists(AGAIN, min_size=1, max_size=6))
    def resend_heartbeats(self, again: list[tuple[int, str, str, str]]) -> None:
        """Heartbeats are sent again, late, or with changed fields."""
        for back, epoch, owns, more in again:
            self.resend_heartbeat(back, epoch, owns, more)

    @rule(who=MEMBER, task=st.sampled_from(("0:9", "9:0")), sent=st.sampled_from(("0:audit", "0:orders!c1")))
    def reports_nonexistent_tasks(self, who: int, task: str, sent: str) -> None:
        """A member reports tasks that do not exist, and a member with another topology joins."""
        member = self.members[who]
        named = f" instance={member.instance}" if member.instance is not None else ""
        fields = f"member={member.member_id or '-'}{named} epoch={member.epoch} owns={task}"
        self.play.run(f"streams-heartbeat {member.name} stay {fields}")
        self.play.run(f"streams-heartbeat eve join member=eve-9 topology={sent} process=q")

    def resend_heartbeat(self, back: int, epoch: str, owns: str, more: str) -> None:
        """Send one former heartbeat again."""
        sent = [line for line in self.play.commands if line.startswith("streams-heartbeat")]
        if not sent:
            return
        verb, who, does, *arguments = sent[-1 - back % len(sent)].split()
        fields = dict(argument.split("=", 1) for argument in arguments)
        if owns:
            fields = {
                key: value for key, value in fields.items() if key not in ("active", "standby", "warmup")
            }
        fields |= dict(argument.split("=", 1) for argument in (*owns.split(), *more.split()))
        if epoch:
            fields["epoch"] = epoch
        text = " ".join(f"{key}={value}" for key, value in fields.items())
        self.play.run(f"{verb} {who} {does} {text}")

    def each_task_runs_once(self) -> None:
        """Not checked."""


UNSHRUNK = (Phase.explicit, Phase.generate)
"""Phases for runs where it is enough to know that something fails."""

FEW = {
    "phases": UNSHRUNK if os.environ.get("KONVENE_UNSHRUNK") else tuple(Phase),
    "stateful_step_count": 40,
    "deadline": None,
    "derandomize": not EXAMPLES,
    "database": None,
    "print_blob": True,
    "suppress_health_check": list(HealthCheck),
}
TestStreamsGroups = StreamsGroupMachine.TestCase
TestStreamsGroups.settings = settings(max_examples=EXAMPLES or depth.examples(50), **FEW)  # type: ignore[arg-type]
TestHostileStreamsGroups = HostileStreamsMachine.TestCase
TestHostileStreamsGroups.settings = settings(max_examples=EXAMPLES or depth.examples(50), **FEW)  # type: ignore[arg-type]
