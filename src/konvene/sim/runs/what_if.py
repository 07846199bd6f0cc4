"""What would happen to a group: the coordinator that serves, honest members, and what is done to them.

A plan says how many members and partitions there are, what the members are set to, and what happens to them:
some die and come back, all are restarted one after another, the coordinator fails over. It is played once for
each seed. What is measured begins when the group is stable with all its members, and ends after the plan's
minutes.

The model: members are Kafka's consumer as far as its group is concerned; they take what they are given at
once, and read nothing. A partition is unavailable from when nobody owns it until somebody does; who owns it
has still to ask for its offset and to fetch, which costs two trips to a broker more. A member that dies
owns nothing from that moment on, whatever the coordinator thinks. Giving up partitions takes up to
`revoke_ms`, in which they are still worked on. The coordinator and the assignors decide in no time: what
takes time is the network, the disk, and the protocol. A client gives up a request after five seconds, where
Kafka's would wait for thirty.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from konvene.client.consumer.assignors import ASSIGNORS
from konvene.configs import BrokerConfig
from konvene.groups.assignors import OFFERED
from konvene.groups.classic.group import State
from konvene.shard.image import Topics
from konvene.sim.runs.meter import Meter, Outcome
from konvene.sim.world.event import Event
from konvene.sim.world.fault_actions import FAULT_ACTIONS
from konvene.sim.world.faults import Options
from konvene.sim.world.world import ORDERS, World

if TYPE_CHECKING:
    from konvene.sim.members.member import Member

__all__ = ["Plan", "Turn", "play", "play_turn", "spoken", "staged"]

PATIENCE_MS = 30 * 60_000
"""A group that is not stable by then at first will not be."""

SPREAD_MS = 2_000
"""Members start within this time at first."""


# --- the plan ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is and what happens to it. Defaults are those of Kafka's clients."""

    members: int = 20
    partitions: int = 100
    protocol: str = "classic"
    static: bool = False
    assignor: str = ""
    """Empty for the first of the protocol's."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    revoke_ms: int = 1_000
    """How long a member takes at most to give up partitions: to finish its batch, and to clean up."""
    minutes: float = 30.0
    kill_rate: float = 0.0
    """Members that die, a minute."""
    down_for_s: float = 20.0
    """How long a member is away that died or is restarted."""
    rolling_restart: bool = False
    at_once: int = 1
    """How many members are restarted at the same moment."""
    deploy_pause_s: float = 10.0
    """Between members that came back and the next that are restarted."""
    coordinator_failovers: int = 0
    loss: float = 0.0
    """The part of the requests, and of the answers, that is lost."""
    latency_ms: int = 1
    """The mean time that a message takes, one way."""
    load_ms: int = 1_000
    """The mean time that a new coordinator needs to read its log."""
    settings: tuple[tuple[str, str], ...] = ()
    """Of the broker."""

    def check(self) -> None:
        """Raises ValueError that says what cannot be."""
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"there is no protocol {self.protocol}; there are {', '.join(PROTOCOLS)}")
        known = PROTOCOLS[self.protocol].assignors
        if self.assigned_by not in known:
            raise ValueError(
                f"there is no assignor {self.assignor}; {self.protocol} members have {', '.join(known)}"
            )
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{spoken(name)}={getattr(self, name)}: this is less than {least}")
        if self.minutes <= 0 or self.loss >= 1:
            raise ValueError("minutes have to be more than 0, and loss has to be less than 1")
        config = BrokerConfig.load(overrides=list(self.settings))[0]
        low, high = config["group.min.session.timeout.ms"], config["group.max.session.timeout.ms"]
        if not low <= self.session_timeout_ms <= high:
            raise ValueError(
                f"session-timeout-ms={self.session_timeout_ms}: the broker allows {low} to {high}"
                " (group.min.session.timeout.ms, group.max.session.timeout.ms)"
            )

    def changed(self, name: str, text: str) -> Plan:
        """The same but for one thing: a field of the plan, or a setting of the broker. Raises ValueError."""
        key = name.replace("-", "_")
        known = {f.name: f.type for f in dataclasses.fields(self) if f.name != "settings"}
        key = {"down_for": "down_for_s", "deploy_pause": "deploy_pause_s"}.get(key, key)
        if key not in known:
            if "." not in name:
                names = ", ".join(spoken(each) for each in known)
                raise ValueError(f"{name} is neither a setting of the broker nor one of {names}")
            return dataclasses.replace(self, settings=(*self.settings, (name, text)))
        try:
            value = PARSED[str(known[key])](text)
        except (KeyError, ValueError):
            raise ValueError(f"{name}={text}: this is no {known[key]}") from None
        return dataclasses.replace(self, **{key: value})

    @property
    def assigned_by(self) -> str:
        return self.assignor or PROTOCOLS[self.protocol].assignors[0]

    def options(self) -> Options:
        """As the world knows it: nothing goes wrong but what was asked for."""
        parameters = Options.without_faults().parameters | {
            "members": self.members, "partitions": self.partitions,
            PROTOCOLS[self.protocol].parameter: self.assigned_by,
            "session.ms": self.session_timeout_ms, "rebalance.ms": self.max_poll_interval_ms,
            "heartbeat.ms": self.heartbeat_interval_ms, "max.size": 2**31 - 1,
            "request.loss": self.loss, "response.loss": self.loss, "latency.ms": self.latency_ms,
            "load.ms": self.load_ms, "slow.callback": self.revoke_ms / self.max_poll_interval_ms,
        }  # fmt: skip
        return Options(parameters, {})

    def as_dict(self) -> dict[str, Any]:
        told = {**dataclasses.asdict(self), "settings": dict(self.settings)}
        return told | {"assignor": self.assigned_by}


class Protocol(NamedTuple):
    """What there is of a protocol: kinds of members, dynamic and static; the knob of assignors, and these."""

    kinds: tuple[str, str]
    parameter: str
    assignors: tuple[str, ...]


PROTOCOLS = {
    "classic": Protocol(("classic", "static"), "assignor", tuple(ASSIGNORS)),
    "consumer": Protocol(("consumer", "consumer-static"), "server.assignor", tuple(OFFERED)),
}

LEAST = {
    "members": 1, "partitions": 1, "at_once": 1, "session_timeout_ms": 1, "heartbeat_interval_ms": 1,
    "max_poll_interval_ms": 1, "latency_ms": 0, "coordinator_failovers": 0, "kill_rate": 0, "down_for_s": 0,
    "deploy_pause_s": 0, "loss": 0, "revoke_ms": 0,
}  # fmt: skip
"""What a plan's numbers must be at least."""

PARSED: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
}
"""By the type of a plan's field."""


def spoken(name: str) -> str:
    """A field's name as its option."""
    return name.removesuffix("_s").replace("_", "-")


# --- the play ------------------------------------------------------------------------------------


class Scene(World):
    """A world of one topic and honest members, in which nobody looks at invariants and nothing is
    produced."""

    def __init__(self, seed: int, plan: Plan, outcome: Outcome) -> None:
        self.plan = plan
        self.outcome = outcome
        self.meter = Meter(outcome, plan.partitions)
        kind = PROTOCOLS[plan.protocol].kinds[plan.static]
        self._deeds = Random(f"deeds {seed}")
        """What is done to members is the same in every plan, as far as it can be."""
        random = Random(f"what if {seed}")
        super().__init__(random, plan.options(), kinds=(kind,), settings=plan.settings, measure=self.meter)
        self.topics = Topics()
        self.set_topic(ORDERS, plan.partitions)
        self.meter.clock(lambda: self.event_queue.now_ms)

    def subscription(self) -> tuple[str, ...]:
        return (ORDERS,)

    def leaves_permanently(self) -> bool:
        return False

    def begin(self) -> None:
        self.runtime.load()
        for _ in range(self.plan.members):
            member = self.new_member()
            self.event_queue.after(self.random.randint(0, SPREAD_MS), self.start, member)

    def is_stable(self) -> bool:
        """All are in, and every partition is somebody's."""
        if self.meter.missing:
            return False
        group = self.runtime.core.groups.get("g1")
        if group is None or len(group.members) != self.plan.members:
            return False
        return str(group.state) == State.STABLE

    def _observe(self, event: Event) -> None:
        """Nobody looks."""

    # --- what is done to members ---

    def start(self, member: Member) -> None:
        if not member.alive:
            self.meter.started(member)
            if not self.plan.static:  # As where all have one client id: their member ids sort by chance.
                member.name = f"{self.random.getrandbits(32):08x}"
            member.start()

    def stopped(self, member: Member) -> None:
        """It gave up by itself; whoever looks after it starts it again."""
        self.outcome.stopped += 1
        self.meter.died(member)
        self._back_later(member)

    def _back_later(self, member: Member) -> None:
        self.event_queue.after(round(self.plan.down_for_s * 1000), self.start, member)

    def kills(self) -> None:
        """The next one dies after a while, and so on."""
        mean_ms = 60_000 / self.plan.kill_rate
        self.event_queue.after(round(self._deeds.expovariate(1 / mean_ms)), self._kill)

    def _kill(self) -> None:
        member = self._deeds.choice(self.members)
        if member.alive:
            self.outcome.killed += 1
            member.die()
            self.meter.died(member)
            self._back_later(member)
        self.kills()

    def restarts(self, first: int = 0) -> None:
        """From this member on, so many at once: they stop properly and come back."""
        plan = self.plan
        some = [m for m in self.members[first : first + plan.at_once] if m.alive]
        for member in some:
            self.outcome.restarted += 1
            member.leave()
            self.meter.died(member)
            self._back_later(member)
        if first + plan.at_once < len(self.members):
            after_ms = round((plan.down_for_s + plan.deploy_pause_s) * 1000)
            self.event_queue.after(after_ms, self.restarts, first + plan.at_once)

    def fails_over_some_time(self) -> None:
        self.event_queue.after(self._deeds.randrange(round(self.plan.minutes * 60_000)), self._fails_over)

    def _fails_over(self) -> None:
        self.outcome.failovers += 1
        FAULT_ACTIONS["failover"](self)


def play(plan: Plan, seed: int, *, stopwatch: Callable[[], float] = time.perf_counter) -> Outcome:
    """Play it with this seed. Raises ValueError if the group never becomes stable at first."""
    return staged(plan, seed, stopwatch=stopwatch).outcome


def staged(plan: Plan, seed: int, *, stopwatch: Callable[[], float] = time.perf_counter) -> Scene:
    """The same; with what the coordinator wrote and said."""
    began_s = stopwatch()
    outcome = Outcome(seed)
    scene = Scene(seed, plan, outcome)
    began_ms = scene.event_queue.now_ms
    scene.begin()
    if not scene.run_until(scene.is_stable, began_ms + PATIENCE_MS):
        raise ValueError(
            f"seed {seed}: after {PATIENCE_MS // 60_000} minutes the group is not stable: {scene!r}"
        )
    outcome.stable_after_s = (scene.event_queue.now_ms - began_ms) / 1000
    scene.meter.begin()
    _disturb(scene, plan)
    scene.run_for(round(plan.minutes * 60_000))
    scene.meter.end()
    outcome.steps = scene.steps
    outcome.wall_s = stopwatch() - began_s
    return scene


def _disturb(scene: Scene, plan: Plan) -> None:
    """Put on the agenda what happens to the group."""
    if plan.kill_rate:
        scene.kills()
    if plan.rolling_restart:
        scene.event_queue.after(round(plan.deploy_pause_s * 1000), scene.restarts)
    for _ in range(plan.coordinator_failovers):
        scene.fails_over_some_time()


class Turn(NamedTuple):
    """One seed of one plan: what a process is given."""

    plan: Plan
    seed: int
    with_timeline: bool


def play_turn(turn: Turn) -> Outcome:
    """Play it; only where somebody draws it, with its timeline."""
    outcome = play(turn.plan, turn.seed)
    if not turn.with_timeline:
        outcome.timeline = []
    return outcome
