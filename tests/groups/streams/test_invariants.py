"""Random lives of one streams group, and what always holds.

Up to four members on three processes, two of them static, that behave (`members`), answers that are lost,
members that are slow or silent, topics that come, grow and go, internal topics that are made or not, settings
that change, targets that come late or do not come, restarts with a compacted log, and the classic protocol in
a group that is empty. Each step is held against every invariant (`sim.invariants.streams.state`), and what
members run
against what the coordinator knows. In `HostileLives` somebody sends again what was sent before, at other
epochs, with other tasks, or with parts of it left out.

What fails is told as a scenario, which can be played. `KONVENE_INVARIANTS=2000` plays so many lives,
differently each time, instead of the few that are always the same.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.groups.streams.members import Member, Play

from konvene.errors import Errors
from konvene.groups.classic.group import ClassicGroup

LIVES = int(os.environ.get("KONVENE_INVARIANTS", "0"))
MEMBERS = 4
WHO = st.integers(0, MEMBERS - 1)
ODDS = st.sampled_from((False, False, True))

TOPOLOGIES = (
    "0:orders",
    "0:orders!c0",
    "0:orders>rep|1:<rep!counts",
    "0:orders!c0|1:audit",
    "0:orders+audit!c0&",
    "0:orders>rep!c0|1:<rep!counts|2:audit",
)
SAID = st.sampled_from(("rack=r1", "rack=r2", "tags=zone:a", "tags=-", "endpoint=x:9", "rebalance=20000"))
TOPICS = ("orders", "audit", "rep", "c0", "counts")


class Lives(RuleBasedStateMachine):
    """Members, administrators and accidents."""

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
        elsewhere=st.booleans(),
        endpoints=st.booleans(),
        there=st.booleans(),
    )
    def begin(
        self, topology: str, processes: str, standbys: int, delay: int, interval: int, elsewhere: bool,
        endpoints: bool, there: bool,
    ) -> None:  # fmt: skip
        """Which topology, on which processes; whether targets are computed elsewhere; how often; whether
        internal topics are there already."""
        self.play.say(
            f"config group.streams.num.standby.replicas={standbys} "
            f"group.streams.initial.rebalance.delay.ms={delay} "
            f"group.streams.assignment.interval.ms={interval} group.streams.max.size=4"
        )
        for name, count in (("orders", 3), ("audit", 2)):
            self.play.say(f"topic {name} partitions=0")
            self.play.say(f"topic {name} partitions={count}")
        for name in ("c0", "rep", "counts") if there else ():
            self.play.say(f"topic {name} partitions=3")
        if elsewhere:
            self.play.say("heavy 0")
        names = (("ann", None), ("bob", "i2"), ("cid", None), ("dan", "i4"))
        self.members = [
            Member(name, process, topology, instance, f"{name}:80" if endpoints and name != "bob" else None)
            for (name, instance), process in zip(names, processes, strict=True)
        ]

    # --- members ---

    @rule(who=WHO, lost=ODDS, slow=ODDS, says=st.booleans())
    def acts(self, who: int, lost: bool, slow: bool, says: bool) -> None:
        """A member sends a heartbeat."""
        member, group = self.members[who], self.play.group
        known = group is not None and member.member_id in group.members
        joins = member.epoch <= 0
        wrong = member.beat(self.play, lost=lost, slow=slow, says=says)
        if known and joins and member.instance is None:
            assert wrong in (Errors.NONE, Errors.INVALID_REQUEST), f"{member.name} may not come back: {wrong}"

    @rule(rounds=st.sampled_from((1, 1, 2, 6)), ms=st.sampled_from((0, 500, 1_500)))
    def all_act(self, rounds: int, ms: int) -> None:
        """All send what they have to, some time apart; six rounds are enough for a rebalance."""
        for _ in range(rounds):
            for member in self.members:
                member.beat(self.play)
                self.nobody_runs_what_another_has()
            self.play.say(f"advance {ms}")

    @rule(who=st.sets(WHO, min_size=1, max_size=3), lost=ODDS)
    def some_act(self, who: set[int], lost: bool) -> None:
        """Some do; the last one may not hear what comes of it."""
        for nth in sorted(who):
            self.members[nth].beat(self.play, lost=lost and nth == max(who))

    @rule(who=WHO)
    def gives_up(self, who: int) -> None:
        """A slow member has given up what it was told to."""
        self.members[who].give_up()

    @rule(who=WHO, leaves=st.booleans(), moves=ODDS)
    def comes_anew(self, who: int, leaves: bool, moves: bool) -> None:
        """A process ends, with or without saying so, and another one begins, maybe elsewhere."""
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
            self.comes_anew(who, leaves=leaves, moves=False)
            self.all_act(rounds=2, ms=500)

    @rule(who=st.sampled_from((1, 3)), back=st.booleans())
    def leaves_for_a_while(self, who: int, back: bool) -> None:
        """M13: a static member keeps its place and its tasks."""
        member, group = self.members[who], self.play.group
        if member.epoch <= 0 or group is None:
            return
        known = group.members.get(member.member_id)
        member_id, held = member.member_id, known and known.current.assigned.tasks
        member.leave(self.play, "away")
        if held is not None:
            assert group.members[member_id].current.assigned.tasks == held, "M13: its tasks were not kept"
            assert group.instances[member.instance or ""] == member_id, "M13: its name was given away"
        if back:
            member.beat(self.play)

    @rule(said=st.lists(st.tuples(WHO, SAID), min_size=1, max_size=3))
    def say_something_else(self, said: list[tuple[int, str]]) -> None:
        """Of themselves: it is written down, and may move the epoch."""
        for who, what in said:
            key, _, value = what.partition("=")
            self.members[who].beat(self.play, **{key: value})

    @rule(who=WHO, task=st.integers(0, 2), lag=st.integers(0, 5))
    def reports(self, who: int, task: int, lag: int) -> None:
        """T13: how far a task has come moves nothing."""
        member, group = self.members[who], self.play.group
        epoch = group.epoch if group is not None else 0
        quiet = member.epoch > 0 and group is not None and group.epoch == group.assignment_epoch
        topics = self.play.life.topics
        wrong = member.beat(self.play, offsets=f"0-{task}:{lag}", ends=f"0-{task}:9")
        if wrong is not Errors.NONE or not quiet or group is None or group is not self.play.group:
            return
        if group.soft.seen is topics:
            known = group.members.get(member.member_id)
            assert group.epoch <= epoch + 1, "T13: offsets moved the epoch"
            assert known is None or group.reported_by(member.member_id).offsets["0"] == {task: lag}

    @rule(who=WHO, behind=st.integers(-1, 2), partition=st.integers(0, 2))
    def commits(self, who: int, behind: int, partition: int) -> None:
        """O1: at its epoch, or at another one."""
        member = self.members[who]
        named = f" instance={member.instance}" if member.instance is not None else ""
        self.play.say(
            f"commit {member.name} orders-{partition}:5 member={member.member_id or '-'}{named} "
            f"generation={member.epoch - behind}"
        )

    @rule(who=WHO, leaves=st.booleans())
    def asks_for_a_shutdown(self, who: int, leaves: bool) -> None:
        """T16: everybody who is heard from then on hears of it."""
        member = self.members[who]
        if leaves and member.epoch > 0:
            named = f" instance={member.instance}" if member.instance is not None else ""
            self.play.say(
                f"streams-heartbeat {member.name} leave member={member.member_id}{named} shutdown=yes"
            )
            member.forget(anew=True)
        elif not leaves:
            member.beat(self.play, shutdown="yes")

    # --- the world ---

    @rule(name=st.sampled_from(TOPICS), count=st.integers(0, 4), anew=ODDS)
    def topic(self, name: str, count: int, anew: bool) -> None:
        """A topic is made, grows, is made anew, or goes."""
        known = self.play.life.topics.by_name.get(name)
        if known is None or anew or not count:
            self.play.say(f"topic {name}{' recreate' if anew and known else ''} partitions={count}")
        else:
            self.play.say(f"topic {name} partitions={max(count, known.partitions)}")

    @rule(how=st.sampled_from(("create", "create", "create", "create fails", "create denied")))
    def create(self, how: str) -> None:
        """Internal topics are made, or cannot be."""
        self.play.say(how)

    @rule(
        standbys=st.integers(0, 2),
        tags=st.sampled_from(("", "", "zone")),
        interval=st.sampled_from((0, 0, 5_000)),
    )
    def configures(self, standbys: int, tags: str, interval: int) -> None:
        """An administrator changes what targets rest on."""
        self.play.say(
            f"config group.streams.num.standby.replicas={standbys} "
            f"group.streams.rack.aware.assignment.tags={tags} "
            f"group.streams.assignment.interval.ms={interval}"
        )

    @rule(ms=st.sampled_from((500, 1_000, 3_000, 5_001, 10_001, 30_000, 45_000)))
    def time(self, ms: int) -> None:
        """Time passes. Whoever expires may release what it has."""
        self.play.say(f"advance {ms}")

    @rule(fails=ODDS, drops=ODDS)
    def work(self, fails: bool, drops: bool) -> None:
        """A target that was asked for is there; or the coordinator was restarted meanwhile."""
        if drops:
            self.play.say("restart")
        self.play.say("work fails" if fails else "work")

    @rule(compact=st.sampled_from(("restart", "compact", "compact tombstones=yes")))
    def restart(self, compact: str) -> None:
        """The coordinator reads its log, which may have been compacted: what it knew it knows (G1, G2)."""
        self.play.say(compact)

    @rule(how=st.sampled_from(("too-large", "fail")), who=WHO)
    def does_not_fit(self, how: str, who: int) -> None:
        """What is decided next cannot be written: nothing of it is known, and who asked has no answer."""
        self.play.say(how)
        self.members[who].beat(self.play, lost=True)
        self.play.say("durable")

    @rule(does=st.sampled_from(("join", "join", "leave", "commit", "delete")))
    def classic(self, does: str) -> None:
        """MG4: a group without members may be of another kind, and what it was is gone."""
        group = self.play.group
        line = {
            "join": "join old reads=orders",
            "leave": "leave old",
            "commit": "commit tool orders-0:7 generation=-1 member=-",
            "delete": "delete g",
        }[does]
        self.play.say(line)
        if group is not None and group.members:
            assert self.play.group is group, f"MG4: {group!r} is gone by {line}"
        elif group is not None and does == "join" and self.play.error("old") is Errors.NONE:
            there = self.play.life.shard.groups.get("g")
            assert isinstance(there, ClassicGroup), f"{there!r} did not give way"

    # --- what always holds ---

    def live(self) -> list[tuple[Member, Any]]:
        """Members that the group knows as they know themselves."""
        group = self.play.group
        found = []
        for member in self.members if group is not None else ():
            known = group.members.get(member.member_id) if group is not None else None
            if known is not None and member.epoch > 0 and known.current.epoch > 0:
                found.append((member, known))
        return found

    @invariant()
    def nobody_runs_what_another_has(self) -> None:
        """T1, T2 in fact: no task runs twice, and no process has the state of one twice."""
        runs: dict[Any, str] = {}
        disks: dict[Any, str] = {}
        for member, known in self.live():
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
"""Which of the last heartbeats, at which epoch, with which tasks, and with what else."""


class HostileLives(Lives):
    """With somebody who sends what it likes. What others run is not looked at: they may be spoken for."""

    @rule(again=st.lists(AGAIN, min_size=1, max_size=6))
    def are_sent_again(self, again: list[tuple[int, str, str, str]]) -> None:
        """Heartbeats come once more, late, or with something else in them."""
        for back, epoch, owns, more in again:
            self.is_sent_again(back, epoch, owns, more)

    @rule(who=WHO, task=st.sampled_from(("0:9", "9:0")), sent=st.sampled_from(("0:audit", "0:orders!c1")))
    def says_what_there_is_not(self, who: int, task: str, sent: str) -> None:
        """A member has tasks that there are not; and somebody joins who runs something else."""
        member = self.members[who]
        named = f" instance={member.instance}" if member.instance is not None else ""
        told = f"member={member.member_id or '-'}{named} epoch={member.epoch} owns={task}"
        self.play.say(f"streams-heartbeat {member.name} stay {told}")
        self.play.say(f"streams-heartbeat eve join member=eve-9 topology={sent} process=q")

    def is_sent_again(self, back: int, epoch: str, owns: str, more: str) -> None:
        """One does."""
        sent = [line for line in self.play.said if line.startswith("streams-heartbeat")]
        if not sent:
            return
        verb, who, does, *words = sent[-1 - back % len(sent)].split()
        told = dict(word.split("=", 1) for word in words)
        if owns:
            told = {key: value for key, value in told.items() if key not in ("active", "standby", "warmup")}
        told |= dict(word.split("=", 1) for word in (*owns.split(), *more.split()))
        if epoch:
            told["epoch"] = epoch
        said = " ".join(f"{key}={value}" for key, value in told.items())
        self.play.say(f"{verb} {who} {does} {said}")

    def nobody_runs_what_another_has(self) -> None:
        """Not asked."""


UNSHRUNK = (Phase.explicit, Phase.generate)
"""Where it is enough to know that something fails."""

FEW = {
    "phases": UNSHRUNK if os.environ.get("KONVENE_UNSHRUNK") else tuple(Phase),
    "stateful_step_count": 40,
    "deadline": None,
    "derandomize": not LIVES,
    "database": None,
    "print_blob": True,
    "suppress_health_check": list(HealthCheck),
}
TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=LIVES or 50, **FEW)  # type: ignore[arg-type]
TestHostileLives = HostileLives.TestCase
TestHostileLives.settings = settings(max_examples=LIVES or 50, **FEW)  # type: ignore[arg-type]
