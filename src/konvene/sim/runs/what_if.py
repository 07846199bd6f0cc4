"""Predict how a group behaves under a plan: the real coordinator, honest members, and a list of disturbances.

A plan gives the number of members and partitions, the members' settings, and what happens to them: some die
and return, all are restarted one after another, the coordinator fails over. It is run once per seed.
Measurement begins when the group is stable with all members, and ends after the plan's minutes.

The model: members behave as Kafka's consumer as far as group membership is concerned; they take over assigned
partitions at once, and read nothing. A partition is unavailable while it has no owner; a new owner would
still have to fetch its offset and records, which costs two more round trips. A member that dies owns nothing
from that moment on, whatever the coordinator believes. Revocation takes up to `revoke_ms`, during which
partitions are still processed. The coordinator and the assignors take no time; the network, the disk and the
protocol do. A request times out after five seconds, where Kafka's clients would wait for thirty.
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

__all__ = ["Plan", "PlanRun", "option_name", "run_job", "run_plan", "run_scene"]

STABLE_TIMEOUT_MS = 30 * 60_000
"""Time within which a group must become stable at the start."""

SPREAD_MS = 2_000
"""Time within which the members start."""


# --- the plan ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """The input of a prediction: members, partitions, settings and disturbances.

    The defaults of settings are those of Kafka's clients."""

    members: int = 20
    partitions: int = 100
    protocol: str = "classic"
    static: bool = False
    assignor: str = ""
    """Empty: the protocol's first assignor."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    revoke_ms: int = 1_000
    """Maximum time that a member needs to revoke partitions: to finish its batch and clean up."""
    minutes: float = 30.0
    kill_rate: float = 0.0
    """Members that die per minute."""
    down_for_s: float = 20.0
    """Time until a dead or restarted member is back."""
    rolling_restart: bool = False
    at_once: int = 1
    """Number of members that are restarted at the same time."""
    deploy_pause_s: float = 10.0
    """Pause between the return of restarted members and the next restart."""
    coordinator_failovers: int = 0
    loss: float = 0.0
    """Fraction of requests, and of responses, that are lost."""
    latency_ms: int = 1
    """Mean one-way latency of a message."""
    load_ms: int = 1_000
    """Mean time that a new coordinator needs to load its log."""
    settings: tuple[tuple[str, str], ...] = ()
    """Broker settings."""

    def check(self) -> None:
        """Raise ValueError, with the reason, if a field of the plan has an impossible value."""
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"unknown protocol {self.protocol}; known protocols: {', '.join(PROTOCOLS)}")
        known = PROTOCOLS[self.protocol].assignors
        if self.effective_assignor not in known:
            raise ValueError(
                f"unknown assignor {self.assignor}; {self.protocol} members have {', '.join(known)}"
            )
        for name, minimum in MINIMUM.items():
            if getattr(self, name) < minimum:
                raise ValueError(f"{option_name(name)}={getattr(self, name)}: must be at least {minimum}")
        if self.minutes <= 0 or self.loss >= 1:
            raise ValueError("minutes must be greater than 0, and loss less than 1")
        config = BrokerConfig.load(overrides=list(self.settings))[0]
        low, high = config["group.min.session.timeout.ms"], config["group.max.session.timeout.ms"]
        if not low <= self.session_timeout_ms <= high:
            raise ValueError(
                f"session-timeout-ms={self.session_timeout_ms}: the broker allows {low} to {high}"
                " (group.min.session.timeout.ms, group.max.session.timeout.ms)"
            )

    def changed(self, name: str, text: str) -> Plan:
        """Return a copy in which `name`, a field or a broker config, has the value in `text`.

        Raises ValueError for an unknown name or an invalid value."""
        key = name.replace("-", "_")
        known = {f.name: f.type for f in dataclasses.fields(self) if f.name != "settings"}
        key = {"down_for": "down_for_s", "deploy_pause": "deploy_pause_s"}.get(key, key)
        if key not in known:
            if "." not in name:
                names = ", ".join(option_name(each) for each in known)
                raise ValueError(f"{name} is neither a setting of the broker nor one of {names}")
            return dataclasses.replace(self, settings=(*self.settings, (name, text)))
        try:
            value = PARSERS[str(known[key])](text)
        except (KeyError, ValueError):
            raise ValueError(f"{name}={text}: not a valid {known[key]}") from None
        return dataclasses.replace(self, **{key: value})

    @property
    def effective_assignor(self) -> str:
        return self.assignor or PROTOCOLS[self.protocol].assignors[0]

    def options(self) -> Options:
        """Return the simulator's parameters for this plan: fault-free except for the plan's message loss."""
        parameters = Options.without_faults().parameters | {
            "members": self.members, "partitions": self.partitions,
            PROTOCOLS[self.protocol].parameter: self.effective_assignor,
            "session.ms": self.session_timeout_ms, "rebalance.ms": self.max_poll_interval_ms,
            "heartbeat.ms": self.heartbeat_interval_ms, "max.size": 2**31 - 1,
            "request.loss": self.loss, "response.loss": self.loss, "latency.ms": self.latency_ms,
            "load.ms": self.load_ms, "slow.callback": self.revoke_ms / self.max_poll_interval_ms,
        }  # fmt: skip
        return Options(parameters, {})

    def as_dict(self) -> dict[str, object]:
        fields = {**dataclasses.asdict(self), "settings": dict(self.settings)}
        return fields | {"assignor": self.effective_assignor}


class Protocol(NamedTuple):
    """What the simulator needs for a group protocol: the kinds of its dynamic and static members, its
    assignors, and the name of the parameter that selects one of these assignors."""

    kinds: tuple[str, str]
    parameter: str
    assignors: tuple[str, ...]


PROTOCOLS = {
    "classic": Protocol(("classic", "static"), "assignor", tuple(ASSIGNORS)),
    "consumer": Protocol(("consumer", "consumer-static"), "server.assignor", tuple(OFFERED)),
}

MINIMUM = {
    "members": 1, "partitions": 1, "at_once": 1, "session_timeout_ms": 1, "heartbeat_interval_ms": 1,
    "max_poll_interval_ms": 1, "latency_ms": 0, "coordinator_failovers": 0, "kill_rate": 0, "down_for_s": 0,
    "deploy_pause_s": 0, "loss": 0, "revoke_ms": 0,
}  # fmt: skip
"""Minimum values of numeric fields."""

PARSERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
}
"""Parsers by type of a field."""


def option_name(name: str) -> str:
    """Return the name of the command line option for a field of `Plan`, without dashes before it."""
    return name.removesuffix("_s").replace("_", "-")


# --- the run -------------------------------------------------------------------------------------


class Scene(World):
    """The simulated world in which a plan is run: one group that reads one topic, and the plan's
    disturbances.

    There are no hostile members, no producers and no invariants."""

    def __init__(self, seed: int, plan: Plan, outcome: Outcome) -> None:
        self.plan = plan
        self.outcome = outcome
        self.meter = Meter(outcome, plan.partitions)
        kind = PROTOCOLS[plan.protocol].kinds[plan.static]
        self._disturbance_random = Random(f"deeds {seed}")
        """Draws the disturbances, which are the same for every plan as far as possible."""
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
        """Return True if the group is Stable with all members of the plan, and every partition has an
        owner."""
        if self.meter.missing:
            return False
        group = self.runtime.core.groups.get("g1")
        if group is None or len(group.members) != self.plan.members:
            return False
        return str(group.state) == State.STABLE

    def _observe(self, event: Event) -> None:
        pass

    # --- disturbances ---

    def start(self, member: Member) -> None:
        if not member.alive:
            self.meter.started(member)
            if not self.plan.static:  # Members with one client id: the order of their member ids is random.
                member.name = f"{self.random.getrandbits(32):08x}"
            member.start()

    def member_stopped(self, member: Member) -> None:
        """Schedule the return of a member that stopped because of an error, after the time `down_for_s`."""
        self.outcome.stopped += 1
        self.meter.died(member)
        self._schedule_return(member)

    def _schedule_return(self, member: Member) -> None:
        self.event_queue.after(round(self.plan.down_for_s * 1000), self.start, member)

    def schedule_kill(self) -> None:
        """Schedule the death of a random member, after a random time whose mean follows from `kill_rate`."""
        mean_ms = 60_000 / self.plan.kill_rate
        self.event_queue.after(round(self._disturbance_random.expovariate(1 / mean_ms)), self._kill)

    def _kill(self) -> None:
        member = self._disturbance_random.choice(self.members)
        if member.alive:
            self.outcome.killed += 1
            member.die()
            self.meter.died(member)
            self._schedule_return(member)
        self.schedule_kill()

    def restart_batch(self, first: int = 0) -> None:
        """Restart `at_once` members, starting with number `first`, and schedule the next batch.

        The members leave the group properly and return after a while."""
        plan = self.plan
        restarting = [m for m in self.members[first : first + plan.at_once] if m.alive]
        for member in restarting:
            self.outcome.restarted += 1
            member.leave()
            self.meter.died(member)
            self._schedule_return(member)
        if first + plan.at_once < len(self.members):
            after_ms = round((plan.down_for_s + plan.deploy_pause_s) * 1000)
            self.event_queue.after(after_ms, self.restart_batch, first + plan.at_once)

    def schedule_failover(self) -> None:
        self.event_queue.after(
            self._disturbance_random.randrange(round(self.plan.minutes * 60_000)), self._failover
        )

    def _failover(self) -> None:
        self.outcome.failovers += 1
        FAULT_ACTIONS["failover"](self)


def run_plan(plan: Plan, seed: int, *, stopwatch: Callable[[], float] = time.perf_counter) -> Outcome:
    """Run the plan with this seed and return its figures.

    Raises ValueError if the group does not become stable at the start."""
    return run_scene(plan, seed, stopwatch=stopwatch).outcome


def run_scene(plan: Plan, seed: int, *, stopwatch: Callable[[], float] = time.perf_counter) -> Scene:
    """Run the plan with this seed and return its world; its `outcome` has the figures, its `meter` all
    explained rebalances.

    Raises ValueError if the group does not become stable at the start."""
    began_s = stopwatch()
    outcome = Outcome(seed)
    scene = Scene(seed, plan, outcome)
    began_ms = scene.event_queue.now_ms
    scene.begin()
    if not scene.run_until(scene.is_stable, began_ms + STABLE_TIMEOUT_MS):
        raise ValueError(
            f"seed {seed}: after {STABLE_TIMEOUT_MS // 60_000} min the group is not stable: {scene!r}"
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
    """Schedule all disturbances of the plan."""
    if plan.kill_rate:
        scene.schedule_kill()
    if plan.rolling_restart:
        scene.event_queue.after(round(plan.deploy_pause_s * 1000), scene.restart_batch)
    for _ in range(plan.coordinator_failovers):
        scene.schedule_failover()


class PlanRun(NamedTuple):
    """A plan with one of its seeds: a job for a worker process."""

    plan: Plan
    seed: int
    with_timeline: bool


def run_job(turn: PlanRun) -> Outcome:
    """Run the plan with the seed of `turn` and return its outcome; the timeline in it, which only a plot
    needs, is empty unless `turn.with_timeline` is set."""
    outcome = run_plan(turn.plan, turn.seed)
    if not turn.with_timeline:
        outcome.timeline = []
    return outcome
