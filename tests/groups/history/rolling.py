"""A Kafka Streams application whose threads roll to the streams protocol and back: the coordinator's log and
the rebalances that it reported."""

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
class RollingThread(Thread):
    """A thread of the classic protocol that takes one step at a time, and assigns tasks if it is the
    leader."""

    instance: str | None = None
    leads: tuple[str, ...] = ()
    """The members that it assigns tasks to as the leader."""

    def step(self, roll: Roll) -> None:
        """Handle a pending response; otherwise send a heartbeat, join or sync."""
        if self.name in roll.life.waiting.values():
            return
        response = roll.life.answers.pop(self.name, None)
        if response is not None and type(response).__name__ == "JoinGroupResponse":
            self._handle_join(roll, response)
        elif response is not None and type(response).__name__ == "SyncGroupResponse":
            self._handle_sync(roll, response)
        elif self.generation < 0:
            self._join(roll)
        else:
            response = roll.life.ask(self.name, self.beat_request(), 4)
            error = response if isinstance(response, Errors) else Errors(response.error_code)
            if error is Errors.REBALANCE_IN_PROGRESS:
                self._join(roll)
            elif error is not Errors.NONE:
                self._forget()

    def _join(self, roll: Roll) -> None:
        request = self.join_request().replace(group_instance_id=self.instance)
        response = roll.life.ask(self.name, request, 9)
        if response is not None:
            self._handle_join(roll, response)

    def _handle_join(self, roll: Roll, response: Any) -> None:
        if isinstance(response, Errors):
            self._forget()
        elif self.joined(response):
            self._join(roll)
        elif response.error_code:
            self._forget()
        else:
            self.leads = tuple(member.member_id for member in response.members)
            request = self.sync_request().replace(assignments=self._plan())
            response = roll.life.ask(self.name, request, 4)
            if response is not None:
                self._handle_sync(roll, response)

    def _handle_sync(self, roll: Roll, response: Any) -> None:
        error = response if isinstance(response, Errors) else self.synced(response)
        if error is Errors.REBALANCE_IN_PROGRESS:
            self._join(roll)
        elif error is not Errors.NONE:
            self._forget()

    def _forget(self) -> None:
        self.member_id, self.generation, self.has = "", -1, None

    def _plan(self) -> tuple[SyncGroupRequestAssignment, ...]:
        """Return assignments that deal out the tasks in turn, each with a standby on the next member."""
        found = []
        for i, member_id in enumerate(self.leads):
            active = [p for p in range(SIZE) if p % len(self.leads) == i]
            copies = [p for p in range(SIZE) if (p + 1) % len(self.leads) == i and len(self.leads) > 1]
            info = AssignmentInfo(
                11, 11,
                active=tuple((("0", p), ("orders", p)) for p in active),
                standby={("0", p): (("orders", p),) for p in copies},
            )  # fmt: skip
            assignment = write_assignment([("orders", tuple(active))], b"\0\1", write_assignment_info(info))
            found.append(SyncGroupRequestAssignment(member_id=member_id, assignment=assignment))
        return tuple(found)

    def leave(self, roll: Roll) -> None:
        left = (MemberIdentity(member_id=self.member_id, group_instance_id=self.instance),)
        roll.life.ask(self.name, LeaveGroupRequest(group_id="g", members=left), 5)


class Roll(Walk):
    """One group. `threads` speak the classic protocol, `walkers` the streams protocol."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.life.set_config(
            ("konvene.streams.mode", "kip"), ("group.initial.rebalance.delay.ms", "0"),
            ("group.streams.num.standby.replicas", self.random.choice("01")),
            ("group.streams.num.warmup.replicas", self.random.choice("02")),
        )  # fmt: skip
        self.sizes = {"orders": SIZE, "sums": SIZE}
        self._topics()
        self.threads: list[RollingThread] = []

    def roll(self, steps: int) -> None:
        self.add_classic()
        self.act_all()
        for _ in range(steps):
            self.random.choice(EVENTS)(self)
            self.life.advance(self.random.choice((0, 7, 900)))

    @property
    def is_full(self) -> bool:
        return len(self.threads) + len(self.walkers) >= MOST

    def act_all(self) -> None:
        """Let every member act once."""
        for thread in self.threads:
            thread.step(self)
        self.beat()

    def act_repeatedly(self) -> None:
        for _ in range(6):
            self.act_all()
            self.life.advance(1_000)

    def add_classic(self, instance: str | None = None) -> RollingThread | None:
        """Start a member of the classic protocol."""
        if self.is_full:
            return None
        self.count += 1
        if instance is None and self.random.random() < 0.5:
            instance = f"i{self.count}"
        thread = RollingThread(f"t{self.count}", instance=instance)
        self.threads.append(thread)
        thread.step(self)
        return thread

    def add_streams(self, instance: str | None = None) -> Walker | None:
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

    def upgrade_one(self) -> None:
        """Restart a member with the streams protocol; a static one replaces itself."""
        settled = [thread for thread in self.threads if thread.generation >= 0 and thread.member_id]
        if not settled:
            return
        thread = self.random.choice(settled)
        if thread.instance is None:
            thread.leave(self)
        self.threads.remove(thread)
        self.add_streams(thread.instance)

    def downgrade_one(self) -> None:
        walker = self._any()
        if walker is None or walker.epoch <= 0:
            return
        if walker.instance is None:
            self._heartbeat_with(walker, -1)
        elif self.random.random() < 0.5:
            self._heartbeat_with(walker, -2)
        self.walkers.remove(walker)
        self.add_classic(walker.instance)

    def stop(self) -> None:
        """Let a classic member leave, or stop without leaving."""
        if self.threads:
            thread = self.random.choice(self.threads)
            if thread.member_id and self.random.random() < 0.5:
                thread.leave(self)
            self.threads.remove(thread)


EVENTS = (
    Roll.act_repeatedly, Roll.act_repeatedly, Roll.act_repeatedly, Roll.act_repeatedly, Roll.act_all,
    Roll.act_all, Roll.add_classic, Roll.add_streams, Roll.upgrade_one,
    Roll.upgrade_one, Roll.downgrade_one, Roll.downgrade_one, Roll.leave, Roll.stop, Roll.report,
)  # fmt: skip
"""The possible events, as often as they are likely."""
