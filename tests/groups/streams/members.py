"""A streams group with well-behaved members, played as a scenario whose commands can be replayed.

Each member knows only the responses that it received. If a response is lost, its next heartbeat is a full
one, as with Kafka's client. What a member `owns` is on its disk or runs at that moment, whatever the
coordinator's state.
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
    """A scenario that stops at the first violated invariant and then reports all of its commands."""

    def __init__(self, **settings: str) -> None:
        self.scenario = Scenario()
        self.commands: list[str] = []
        configs = {
            "konvene.heartbeat.policy": "kafka",
            "group.streams.initial.rebalance.delay.ms": "0",
            "group.streams.assignment.interval.ms": "0",
            "group.initial.rebalance.delay.ms": "0",
        } | {name.replace("_", "."): value for name, value in settings.items()}
        self.run(f"config {' '.join(f'{name}={value}' for name, value in configs.items())}")

    @property
    def life(self) -> Any:
        return self.scenario.life

    @property
    def group(self) -> StreamsGroup | None:
        """The streams group, if there is one."""
        found = self.life.shard.groups.get("g")
        return found if isinstance(found, StreamsGroup) else None

    def run(self, command: str) -> list[str]:
        """Run a command and return the transcript lines that followed."""
        self.commands.append(command)
        lines = self.scenario.run([command])
        if self.scenario.broken is not None:
            raise AssertionError("\n".join([*self.commands, "----", *lines])) from self.scenario.broken
        return lines

    def answer(self, client: str) -> Any:
        """Return a client's last response."""
        return self.life.answers.get(client)

    def error(self, client: str) -> Errors | None:
        """Return the error of a client's last response; None while it has none."""
        answer = self.answer(client)
        if answer is None or isinstance(answer, Errors):
            return answer
        return Errors(answer.error_code)


@dataclass
class Member:
    """One stream thread of one process. `epoch` is 0 if it has to join."""

    name: str
    process: str
    topology: str
    instance: str | None = None
    endpoint: str | None = None
    member_id: str = ""
    epoch: int = 0
    endpoint_epoch: int = 0
    owns: set[Unit] = field(default_factory=set)
    assigned: set[Unit] = field(default_factory=set)
    full_heartbeat: bool = False
    """Whether the next heartbeat must be a full one, because a response was lost."""
    ids_used: int = 0
    status: tuple[int, ...] = ()

    def forget(self, *, anew: bool = False) -> None:
        """Drop all tasks and the epoch; with `anew` the member id too."""
        self.owns, self.assigned, self.epoch, self.full_heartbeat, self.endpoint_epoch = (
            set(),
            set(),
            0,
            False,
            0,
        )
        if anew:
            self.member_id = ""

    def apply_assignment(self) -> None:
        """Revoke and take over tasks so that `owns` equals the last received assignment."""
        if self.epoch > 0:
            self.owns = set(self.assigned)

    def beat(
        self, play: Play, *, lost: bool = False, slow: bool = False, reports_owned: bool = True, **more: str
    ) -> Errors | None:
        """Send one heartbeat. `slow`: keep running revoked tasks; `reports_owned`: report the owned tasks."""
        if not self.member_id:
            self.ids_used += 1
            self.member_id = f"{self.name}-{self.ids_used}"
        fields = {"member": self.member_id, "epoch": str(self.epoch), **more}
        fields["endpoint-epoch"] = str(self.endpoint_epoch)
        if self.instance is not None:
            fields["instance"] = self.instance
        if self.endpoint is not None and self.epoch <= 0:
            fields["endpoint"] = self.endpoint
        if self.epoch <= 0:
            fields |= {"topology": self.topology, "process": self.process}
        elif reports_owned or self.full_heartbeat:
            fields |= {role: spelled(u for u in self.owns if u[0] == role) for role in ROLES}
        if self.full_heartbeat and self.epoch > 0:
            fields["rebalance"] = "30000"
        arguments = " ".join(f"{key}={value}" for key, value in fields.items())
        play.run(f"streams-heartbeat {self.name} {'join' if self.epoch <= 0 else 'stay'} {arguments}")
        self.full_heartbeat = lost
        if not lost:
            self._handle_heartbeat(play.answer(self.name), play.error(self.name), slow)
        return play.error(self.name)

    def _handle_heartbeat(self, response: Any, code: Errors | None, slow: bool) -> None:
        if code in DROPS:
            self.forget(anew=code is Errors.FENCED_INSTANCE_ID)
        elif code is not Errors.NONE:
            if self.epoch <= 0 or code is Errors.GROUP_ID_NOT_FOUND:
                self.forget()
            else:
                self.full_heartbeat = True
        else:
            assert isinstance(response, StreamsGroupHeartbeatResponse)
            self.epoch, self.endpoint_epoch = response.member_epoch, response.endpoint_information_epoch
            self.status = tuple(each.status_code for each in response.status or ())
            if response.active_tasks is not None:
                self.assigned = tasks_in(response)
                if not slow or not self.owns - self.assigned:
                    self.apply_assignment()

    def leave(self, play: Play, action: str = "leave") -> None:
        """Leave for good, or temporarily with `away`. The request may be lost."""
        if self.epoch > 0:
            named = f" instance={self.instance}" if self.instance is not None else ""
            play.run(f"streams-heartbeat {self.name} {action} member={self.member_id}{named}")
        self.forget(anew=True)


def tasks_in(answer: StreamsGroupHeartbeatResponse) -> set[Unit]:
    """Return the tasks of a response, by role."""
    lists = answer.active_tasks, answer.standby_tasks, answer.warmup_tasks
    return {
        (role, each.subtopology_id, partition)
        for role, some in zip(ROLES, lists, strict=True)
        for each in some or ()
        for partition in each.partitions
    }


def spelled(units: Iterable[Unit]) -> str:
    """Return tasks of one role in the notation of scenarios."""
    return ",".join(f"{name}:{partition}" for _, name, partition in sorted(units)) or "-"
