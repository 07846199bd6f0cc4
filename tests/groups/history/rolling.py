"""An application of Kafka Streams whose threads roll to the streams protocol and back, on the coordinator
itself: its log, and what it told live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.groups.history.walking import SUMS, Walk, Walker
from tests.groups.streams.classic.threads import Thread

from konvene.errors import Errors
from konvene.groups.classic.subscriptions import write_assignment
from konvene.groups.streams.classic.user_data import AssignmentInfo, write_assignment_info
from konvene.messages.leave_group import LeaveGroupRequest, MemberIdentity
from konvene.messages.sync_group import SyncGroupRequestAssignment

SIZE = 4
MOST = 4


@dataclass
class Rolled(Thread):
    """A thread of the classic protocol that takes one step at a time, and leads where it is to."""

    instance: str | None = None
    leads: tuple[str, ...] = ()
    """The members that it is to give tasks to."""

    def step(self, roll: Roll) -> None:
        """Hear what there is to hear; then beat, join or sync."""
        if self.name in roll.life.waiting.values():
            return
        answer = roll.life.answers.pop(self.name, None)
        if answer is not None and type(answer).__name__ == "JoinGroupResponse":
            self._enters(roll, answer)
        elif answer is not None and type(answer).__name__ == "SyncGroupResponse":
            self._takes(roll, answer)
        elif self.generation < 0:
            self._joins(roll)
        else:
            answer = roll.life.ask(self.name, self.beat_request(), 4)
            error = answer if isinstance(answer, Errors) else Errors(answer.error_code)
            if error is Errors.REBALANCE_IN_PROGRESS:
                self._joins(roll)
            elif error is not Errors.NONE:
                self._forgets()

    def _joins(self, roll: Roll) -> None:
        request = self.join_request().replace(group_instance_id=self.instance)
        answer = roll.life.ask(self.name, request, 9)
        if answer is not None:
            self._enters(roll, answer)

    def _enters(self, roll: Roll, answer: Any) -> None:
        if isinstance(answer, Errors):
            self._forgets()
        elif self.joined(answer):
            self._joins(roll)
        elif answer.error_code:
            self._forgets()
        else:
            self.leads = tuple(member.member_id for member in answer.members)
            request = self.sync_request().replace(assignments=self._plan())
            given = roll.life.ask(self.name, request, 4)
            if given is not None:
                self._takes(roll, given)

    def _takes(self, roll: Roll, answer: Any) -> None:
        error = answer if isinstance(answer, Errors) else self.synced(answer)
        if error is Errors.REBALANCE_IN_PROGRESS:
            self._joins(roll)
        elif error is not Errors.NONE:
            self._forgets()

    def _forgets(self) -> None:
        self.member_id, self.generation, self.has = "", -1, None

    def _plan(self) -> tuple[SyncGroupRequestAssignment, ...]:
        """Tasks in turn, each with a copy at whoever comes next."""
        found = []
        for i, member_id in enumerate(self.leads):
            active = [p for p in range(SIZE) if p % len(self.leads) == i]
            copies = [p for p in range(SIZE) if (p + 1) % len(self.leads) == i and len(self.leads) > 1]
            info = AssignmentInfo(
                11, 11,
                active=tuple((("0", p), ("orders", p)) for p in active),
                standby={("0", p): (("orders", p),) for p in copies},
            )  # fmt: skip
            told = write_assignment([("orders", tuple(active))], b"\0\1", write_assignment_info(info))
            found.append(SyncGroupRequestAssignment(member_id=member_id, assignment=told))
        return tuple(found)

    def leave(self, roll: Roll) -> None:
        left = (MemberIdentity(member_id=self.member_id, group_instance_id=self.instance),)
        roll.life.ask(self.name, LeaveGroupRequest(group_id="g", members=left), 5)


class Roll(Walk):
    """One group. `threads` speak the classic protocol, `walkers` that of streams groups."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.life.set_config(
            ("konvene.streams.mode", "kip"), ("group.initial.rebalance.delay.ms", "0"),
            ("group.streams.num.standby.replicas", self.random.choice("01")),
            ("group.streams.num.warmup.replicas", self.random.choice("02")),
        )  # fmt: skip
        self.sizes = {"orders": SIZE, "sums": SIZE}
        self._topics()
        self.threads: list[Rolled] = []

    def roll(self, steps: int) -> None:
        self.old()
        self.turn()
        for _ in range(steps):
            self.random.choice(WAYS)(self)
            self.life.advance(self.random.choice((0, 7, 900)))

    @property
    def is_full(self) -> bool:
        return len(self.threads) + len(self.walkers) >= MOST

    def turn(self) -> None:
        """Everybody says what there is to say."""
        for thread in self.threads:
            thread.step(self)
        self.beat()

    def turns(self) -> None:
        for _ in range(6):
            self.turn()
            self.life.advance(1_000)

    def old(self, instance: str | None = None) -> Rolled | None:
        """One that speaks the classic protocol."""
        if self.is_full:
            return None
        self.count += 1
        if instance is None and self.random.random() < 0.5:
            instance = f"i{self.count}"
        thread = Rolled(f"t{self.count}", instance=instance)
        self.threads.append(thread)
        thread.step(self)
        return thread

    def new(self, instance: str | None = None) -> Walker | None:
        if self.is_full:
            return None
        self.count += 1
        if instance is None and self.random.random() < 0.5:
            instance = f"i{self.count}"
        walker = Walker(f"w{self.count}", "g", SUMS, instance=instance, process=f"p{self.count}")
        walker.member_id = self.life.own_id(walker.name)
        self.walkers.append(walker)
        self._beat(walker)
        return walker

    def forth(self) -> None:
        """One is rolled; a static one takes its own place."""
        settled = [thread for thread in self.threads if thread.generation >= 0 and thread.member_id]
        if not settled:
            return
        thread = self.random.choice(settled)
        if thread.instance is None:
            thread.leave(self)
        self.threads.remove(thread)
        self.new(thread.instance)

    def back(self) -> None:
        walker = self._any()
        if walker is None or walker.epoch <= 0:
            return
        if walker.instance is None:
            self._say(walker, -1)
        elif self.random.random() < 0.5:
            self._say(walker, -2)
        self.walkers.remove(walker)
        self.old(walker.instance)

    def stop(self) -> None:
        """Who speaks the classic protocol leaves, or is silent."""
        if self.threads:
            thread = self.random.choice(self.threads)
            if thread.member_id and self.random.random() < 0.5:
                thread.leave(self)
            self.threads.remove(thread)


WAYS = (
    Roll.turns, Roll.turns, Roll.turns, Roll.turns, Roll.turn, Roll.turn, Roll.old, Roll.new, Roll.forth,
    Roll.forth, Roll.back, Roll.back, Roll.leave, Roll.stop, Roll.report,
)  # fmt: skip
"""What may happen next, as often as it stands here."""
