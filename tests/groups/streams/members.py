"""A streams group with members that behave, as a scenario: what they say can be played again.

Each member knows only what it was told. An answer may be lost on the way; then it says everything with its
next heartbeat, as Kafka's client does. What a member `owns` is what is on its disk or runs at that moment,
whatever the coordinator thinks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from konvene.errors import Errors
from konvene.groups.streams.group import StreamsGroup
from konvene.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse
from konvene.sim.transcript.scenario import Scenario
from konvene.sim.transcript.streams_commands import ROLES

Unit = tuple[str, str, int]
"""A role, a subtopology's id, a partition."""

DROPS = (Errors.UNKNOWN_MEMBER_ID, Errors.FENCED_MEMBER_EPOCH, Errors.FENCED_INSTANCE_ID)


class Play:
    """A scenario that ends at the first invariant that is violated, and then tells all that was said."""

    def __init__(self, **settings: str) -> None:
        self.scenario = Scenario()
        self.said: list[str] = []
        told = {
            "konvene.heartbeat.policy": "kafka",
            "group.streams.initial.rebalance.delay.ms": "0",
            "group.streams.assignment.interval.ms": "0",
            "group.initial.rebalance.delay.ms": "0",
        } | {name.replace("_", "."): value for name, value in settings.items()}
        self.say(f"config {' '.join(f'{name}={value}' for name, value in told.items())}")

    @property
    def life(self) -> Any:
        return self.scenario.life

    @property
    def group(self) -> StreamsGroup | None:
        """The streams group, if there is one."""
        found = self.life.shard.groups.get("g")
        return found if isinstance(found, StreamsGroup) else None

    def say(self, command: str) -> list[str]:
        """Play a command; the lines that tell what followed."""
        self.said.append(command)
        lines = self.scenario.run([command])
        if self.scenario.broken is not None:
            raise AssertionError("\n".join([*self.said, "----", *lines])) from self.scenario.broken
        return lines

    def answer(self, who: str) -> Any:
        """What somebody was answered last."""
        return self.life.answers.get(who)

    def error(self, who: str) -> Errors | None:
        """With which error; None while the answer is not there."""
        answer = self.answer(who)
        if answer is None or isinstance(answer, Errors):
            return answer
        return Errors(answer.error_code)


@dataclass
class Member:
    """One stream thread, of one process. `epoch` is 0 where it is to join."""

    name: str
    process: str
    topology: str
    instance: str | None = None
    endpoint: str | None = None
    member_id: str = ""
    epoch: int = 0
    endpoint_epoch: int = 0
    owns: set[Unit] = field(default_factory=set)
    told: set[Unit] = field(default_factory=set)
    unsure: bool = False
    """Whether it has to say everything: an answer was lost."""
    made: int = 0
    status: tuple[int, ...] = ()

    def forget(self, *, anew: bool = False) -> None:
        """It runs nothing any more; `anew`: and it is another member from here on."""
        self.owns, self.told, self.epoch, self.unsure, self.endpoint_epoch = set(), set(), 0, False, 0
        if anew:
            self.member_id = ""

    def give_up(self) -> None:
        """What it was told to give up, it has; and takes what it was told to have."""
        if self.epoch > 0:
            self.owns = set(self.told)

    def beat(
        self, play: Play, *, lost: bool = False, slow: bool = False, says: bool = True, **more: str
    ) -> Errors | None:
        """One heartbeat. `slow`: it runs on what it is told to give up; `says`: it says what it owns."""
        if not self.member_id:
            self.made += 1
            self.member_id = f"{self.name}-{self.made}"
        told = {"member": self.member_id, "epoch": str(self.epoch), **more}
        told["endpoint-epoch"] = str(self.endpoint_epoch)
        if self.instance is not None:
            told["instance"] = self.instance
        if self.endpoint is not None and self.epoch <= 0:
            told["endpoint"] = self.endpoint
        if self.epoch <= 0:
            told |= {"topology": self.topology, "process": self.process}
        elif says or self.unsure:
            told |= {role: spelled(u for u in self.owns if u[0] == role) for role in ROLES}
        if self.unsure and self.epoch > 0:
            told["rebalance"] = "30000"
        words = " ".join(f"{key}={value}" for key, value in told.items())
        play.say(f"streams-heartbeat {self.name} {'join' if self.epoch <= 0 else 'stay'} {words}")
        self.unsure = lost
        if not lost:
            self._hears(play.answer(self.name), play.error(self.name), slow)
        return play.error(self.name)

    def _hears(self, answer: Any, wrong: Errors | None, slow: bool) -> None:
        if wrong in DROPS:
            self.forget(anew=wrong is Errors.FENCED_INSTANCE_ID)
        elif wrong is not Errors.NONE:
            if self.epoch <= 0 or wrong is Errors.GROUP_ID_NOT_FOUND:
                self.forget()
            else:
                self.unsure = True
        else:
            assert isinstance(answer, StreamsGroupHeartbeatResponse)
            self.epoch, self.endpoint_epoch = answer.member_epoch, answer.endpoint_information_epoch
            self.status = tuple(each.status_code for each in answer.status or ())
            if answer.active_tasks is not None:
                self.told = told_in(answer)
                if not slow or not self.owns - self.told:
                    self.give_up()

    def leave(self, play: Play, does: str = "leave") -> None:
        """It leaves for good, or is `away` for a while. It may not be heard."""
        if self.epoch > 0:
            named = f" instance={self.instance}" if self.instance is not None else ""
            play.say(f"streams-heartbeat {self.name} {does} member={self.member_id}{named}")
        self.forget(anew=True)


def told_in(answer: StreamsGroupHeartbeatResponse) -> set[Unit]:
    """The tasks in an answer, by role."""
    lists = answer.active_tasks, answer.standby_tasks, answer.warmup_tasks
    return {
        (role, each.subtopology_id, partition)
        for role, some in zip(ROLES, lists, strict=True)
        for each in some or ()
        for partition in each.partitions
    }


def spelled(units: Iterable[Unit]) -> str:
    """Tasks of one role in a scenario's words."""
    return ",".join(f"{name}:{partition}" for _, name, partition in sorted(units)) or "-"
