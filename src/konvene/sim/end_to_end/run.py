"""An end-to-end run: one broker and its clients on a simulated machine, first with faults, then without.

Everything that runs is production code: the broker from its sockets to its files, and `konvene.client`. The
fault phase lasts `steps` steps, where a step is one delivery of bytes, one timer, one disk completion or one
fault (`chaos`, with `parameters`). Then all faults end, all hosts are restarted, and within bounded time each
group has to be stable with all its members, to have read everything, and to stay so; finally the clients
leave, and nothing of them may remain. The invariants are in `konvene.sim.end_to_end.invariants`.

Faults. Network: latency, split writes, delays, resets at any byte, refused connects, partitions in one or
both directions, peers that do not read. So a request or its response may be lost. Broker: killed between two
steps or at any disk operation, stopped properly, paused, or powered off with any torn prefix of unsynced
writes. Disk: EIO and ENOSPC. Clients: crash, leave, pause, restart. The wall clock steps by up to an hour.
Not here: reordering within one sync on a thread, and bit rot of old records, which has a test of its own.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from random import Random

from konvene.client.admin.admin import GROUP_CONFIG, Admin
from konvene.client.consumer.consumer import Consumed
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.net.settings import ClientSettings
from konvene.client.share.consumer import ShareRecord
from konvene.codec.schema import Struct
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.groups.shard import GroupShard
from konvene.log.disk.memory import PowerCut
from konvene.runtime.journal import Journal
from konvene.sim.end_to_end.acl_churn import Secured, set_up_security
from konvene.sim.end_to_end.broker import BROKER, DATA, LISTENERS, PORT, SASL_LISTENER, BrokerHost
from konvene.sim.end_to_end.chaos import Chaos
from konvene.sim.end_to_end.clients import Client
from konvene.sim.end_to_end.history import History, recording_connector
from konvene.sim.end_to_end.invariants import INVARIANTS, Invariant, ReadAtLeastOnce, Violation
from konvene.sim.end_to_end.liveness import LivenessPhase
from konvene.sim.end_to_end.mirror import Mirror
from konvene.sim.end_to_end.parameters import Parameters, draw
from konvene.sim.end_to_end.report import EndToEndReport
from konvene.sim.end_to_end.security_invariants import SECURITY_INVARIANTS
from konvene.sim.end_to_end.share_clients import SHARES
from konvene.sim.end_to_end.share_invariants import SHARE_INVARIANTS
from konvene.sim.end_to_end.transactional_clients import OUTPUT, PARTITIONS
from konvene.sim.end_to_end.wire_observer import WireObserver
from konvene.sim.machine.disk import SimDisk
from konvene.sim.machine.loop import Host, SimLoop

__all__ = ["EndToEndReport", "EndToEndRun", "Violation", "groups_option", "run_end_to_end"]

LAST_EVENTS = 30
CALLS = (
    "began", "started", "settled", "came", "read", "offsets", "released", "failed", "liveness", "ended",
    "answered", "shared", "acknowledged", "exchanged",
)  # fmt: skip
"""Callbacks that an invariant may define; see `invariants`."""
GC_INTERVAL = 20_000

Trace = Callable[[str], None]


class EndToEndRun:
    """One run: the broker, the clients and the faults, and the state that invariants check."""

    def __init__(self, seed: int, steps: int, parameters: Parameters, trace: Trace | None) -> None:
        self.seed = seed
        self.steps = steps
        self.parameters = parameters
        self.chance = Random(f"world {seed}")
        sync_ms, clock_read_ms = parameters.sync_ms, parameters.clock_read_ms
        disk_chance, clock_random = Random(f"threads {seed}"), Random(f"looks {seed}")
        self.loop = SimLoop(
            Random(f"loop {seed}"), order=parameters.order,
            disk_latency=lambda: disk_chance.expovariate(1.0) * sync_ms / 1000,
            time_costs=(lambda: clock_random.random() ** 4 * clock_read_ms / 1000) if clock_read_ms else None,
        )  # fmt: skip
        self.loop.note, self.loop.after, self.loop.errors = self._note, self._after, self._error
        self.counts: Counter[str] = Counter()
        self.history = History(lambda: self.loop.now)
        self.timeouts = parameters.timeouts
        self.topics = parameters.topics
        self.faults_disabled = False
        self.last_error: BaseException | None = None
        config, _ = BrokerConfig.load(overrides=list(parameters.settings.items()))
        self._disk_failed = False
        self.host = BrokerHost(self.loop, config, SimDisk(Random(f"disk {seed}")), seed)
        self.host.disk.counts = self.counts
        self.loop.network.counts = self.counts
        self.mirror = Mirror(self.host.disk, DATA)
        self.clients = {spec.name: Client(self, spec, seed) for spec in parameters.clients}
        self.heartbeats: dict[str, Struct] = {}
        self.topic_ids: dict[str, Uuid] = {}
        self.observer = WireObserver(
            lambda: self.loop.now, lambda exchange: self.notify("exchanged", exchange)
        )
        if parameters.secured is not None:
            self.host.listeners = (*LISTENERS, SASL_LISTENER)
            self.host.accept_of = self.observer.accept
        self.invariants: list[Invariant] = [invariant(self) for invariant in _invariants(parameters)]
        self.checks = self.records_shared = 0
        self.may_lose_records = False
        self._events: deque[tuple[int, float, str, str]] = deque(maxlen=LAST_EVENTS)
        self._trace = trace
        self._next_check = parameters.check_every
        self._when_loaded: list[Callable[[], None]] = []
        self._calls = {
            name: [getattr(p, name) for p in self.invariants if hasattr(p, name)] for name in CALLS
        }
        self.history.on_offsets = lambda place, offset, began: self.notify("offsets", place, offset, began)
        self.host.on_release = lambda coordinator, held: self.notify("released", coordinator, held)
        self.history.on_answer = lambda names, answer: self.notify("answered", names, answer)
        self.host.on_ready = self._ready
        self.host.on_end = self._broker_ended
        self.paused_since: dict[str, float] = {}
        self.resumed_at: dict[str, float] = {}
        self.idle_s = self.idle_wall_s = self.empty_s = self.empty_wall_s = 0.0
        self.chaos = Chaos(self)

    def __repr__(self) -> str:
        return f"<whole run of seed {self.seed}: step {self.loop.steps}, {self.host!r}>"

    # --- callbacks of clients ---

    @property
    def secured(self) -> Secured:
        assert self.parameters.secured is not None, "the run has no authorizer"
        return self.parameters.secured

    def wall_ms(self) -> int:
        return self.host.wall_ms()

    def read(self, client: Client, record: Consumed) -> None:
        self.notify("read", client, record)

    def shared(self, client: Client, record: ShareRecord) -> None:
        self.records_shared += 1
        self.notify("shared", client, record)

    def acknowledged(self, client: Client, place: TopicPartition, offsets: tuple[int, ...]) -> None:
        self.notify("acknowledged", client, place, offsets)

    # --- invariants ---

    def notify(self, name: str, *args: object) -> None:
        """Call the method `name` of every invariant that defines it; a violation ends the run at once."""
        try:
            for call in self._calls[name]:
                call(*args)
        except Violation as violation:
            self.loop.halt(violation)

    def shards(self) -> list[tuple[int, GroupShard]]:
        """Return (partition of `__consumer_offsets`, shard) for each active group coordinator."""
        found = []
        if self.host.broker is not None and self.host.is_up:
            for index, coordinator in enumerate(self.host.broker.groups._coordinators):
                if coordinator is not None and coordinator.state == "active":
                    core = coordinator.core
                    assert isinstance(core, GroupShard)
                    found.append((index, core))
        return found

    def has_buffered_records(self, index: int) -> bool:
        """Return True if the coordinator of partition `index` of `__consumer_offsets` has applied records to
        its shard that its journal has not written to the log yet."""
        assert self.host.broker is not None
        coordinator = self.host.broker.groups._coordinators[index]
        assert coordinator is not None
        journal = coordinator._journal
        assert isinstance(journal, Journal)
        return bool(journal.buffered)

    def groups(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return (group, topics) for each group whose members commit offsets, which share groups and
        groups of users do not do regularly."""
        commits = [c for c in self.parameters.clients if c.group and c.job != SHARES and not c.user]
        found = {client.group: client.topics for client in commits}
        return sorted(found.items())

    def places(self, topics: tuple[str, ...]) -> list[TopicPartition]:
        """Return all partitions of those topics that exist on the broker."""
        assert self.host.broker is not None
        topics_by_name = self.host.broker.catalogue.topics.by_name
        return [
            TopicPartition(t, i)
            for t in topics
            if t in topics_by_name
            for i in range(topics_by_name[t].partitions)
        ]

    def look(self, place: TopicPartition) -> None:
        """Read the new records of a partition's log, and pass them to the invariants."""
        for offset, value in self.mirror.look(place):
            for call in self._calls["came"]:
                call(place, offset, value)

    def read_all_logs(self) -> None:
        broker = self.host.broker
        if broker is not None and self.host.is_up:
            for place in self.places(tuple(self.topics)):
                self.look(place)

    def check_when_loaded(self, check: Callable[[], None]) -> None:
        """Schedule one call of `check`, when all group coordinators of this broker life are active."""
        self._when_loaded.append(check)

    @property
    def disk_has_failed(self) -> bool:
        """Whether the disk has failed in this life of the broker, so that errors of the disk are expected."""
        return self._disk_failed or self.host.disk_failed or self.host.disk_is_offline

    def was_paused(self, client_id: str, since_s: float) -> bool:
        """Return True if the host of a client is paused, or was at any time since 10 s before `since_s`."""
        name = client_id.partition(".")[0]
        return name in self.paused_since or self.resumed_at.get(name, 0.0) + 10.0 > since_s

    # --- callbacks of the loop and the broker ---

    def count_fault(self, kind: str) -> None:
        self.counts[kind] += 1

    def _note(self, kind: str, what: str) -> None:
        event = (self.loop.steps, self.loop.now, kind, what)
        self._events.append(event)
        if self._trace is not None:
            self._trace(_line(event))

    def _after(self) -> None:
        loop = self.loop
        if loop.steps < self._next_check:
            return
        self._next_check = loop.steps + self.parameters.check_every
        self.check()
        if loop.steps % GC_INTERVAL < self.parameters.check_every:
            gc.collect()

    def check(self) -> None:
        """Read all logs, and let every invariant compare them with the state of the broker."""
        self.checks += 1
        self.host.watch()
        self._disk_failed = self.disk_has_failed
        try:
            if not self.host.disk.dead:
                self.read_all_logs()
                self._check_loaded()
            for call in self._calls["settled"]:
                call()
        except Violation as violation:
            self.loop.halt(violation)

    def _check_loaded(self) -> None:
        broker = self.host.broker
        if self._when_loaded and broker is not None and self.host.ready:
            coordinators = broker.groups.all()
            if coordinators and len(self.shards()) == len(coordinators):
                checks, self._when_loaded = self._when_loaded, []
                for check in checks:
                    check()

    def _ready(self) -> None:
        """Called when a new life of the broker is ready: read all logs anew and check them."""
        self._note("broker", f"is ready in life {self.host.lives}")
        self.mirror = Mirror(self.host.disk, DATA)
        self._when_loaded.clear()
        self._disk_failed = False
        self.host.watch()
        self.notify("began")
        try:
            self.read_all_logs()
        except Violation as violation:
            self.loop.halt(violation)
        self.notify("started")

    def _broker_ended(self, why: str) -> None:
        self._note("broker", why)
        self._disk_failed = True  # Errors of a dying broker are expected until its next life begins.
        self.host.disk.counts = self.counts
        self.chaos.broker_ended(why)

    def _error(self, host: Host, context: dict[str, object]) -> None:
        error = context.get("exception")
        if "handle" in context and isinstance(error, BaseException):
            if isinstance(error, Violation):
                self.loop.halt(error)
            else:
                self.notify("failed", host, error, context.get("message", ""))

    # --- report ---

    def describe(self, violation: Violation) -> str:
        """Return a violation as text, with everything that is needed to analyse it."""
        rows = [
            violation.message,
            f"seed {self.seed}, step {self.loop.steps}, {self.loop.now:.3f} s",
            "the last events:",
            *(f"  {_line(event)}" for event in self._events),
            f"konvene sim run --level 2 --seed {self.seed} --steps {self.steps}"
            + groups_option(
                transactions=bool(self.parameters.transactors),
                share=bool(self.parameters.share.groups),
                secured=self.parameters.secured is not None,
            ),
        ]
        return "\n".join(rows)

    def report(self, wall_s: float) -> EndToEndReport:
        simulated_s = self.loop.now - self.loop.began
        seen = next(p for p in self.invariants if isinstance(p, ReadAtLeastOnce)).seen
        return EndToEndReport(
            seed=self.seed,
            steps=self.loop.steps,
            simulated_s=simulated_s,
            wall_s=wall_s,
            steps_per_s=self.loop.steps / wall_s,
            speed=simulated_s / wall_s,
            idle_speed=self.idle_s / self.idle_wall_s if self.idle_wall_s else 0.0,
            idle_wall_s=self.idle_wall_s,
            empty_speed=self.empty_s / self.empty_wall_s if self.empty_wall_s else 0.0,
            broker_lives=self.host.lives,
            records_acknowledged=sum(map(len, self.history.acknowledged.values())),
            records_read=sum(map(len, seen.values())),
            records_shared=self.records_shared,
            commits_acknowledged=self.history.commits_acknowledged,
            checks=self.checks,
            faults=dict(sorted(self.counts.items())),
            answers=dict(sorted(self.history.answers.items())),
            parameters=tuple(self.parameters.rows()),
        )

    # --- the run ---

    async def run(self) -> None:
        self.host.start()
        await self.host.served.wait()
        await self.loop.spawn("setup", self._set_up())
        self.loop.kill("setup")
        self.history.client_died("setup")
        self.loop.network.faults = self.parameters.network
        for name in self.clients:
            self.start_client(name)
        await self.chaos.run()
        await LivenessPhase(self).run()

    def start_client(self, name: str) -> None:
        if not self.loop.is_up(name):
            client = self.clients[name]
            self.loop.spawn(name, client.live(), name=f"{name}/{client.life + 1}")

    def kill_client(self, name: str, *, silently: bool = False) -> None:
        self.loop.kill(name, silently=silently)
        self.history.client_died(self.clients[name].client_id)
        self.clients[name].consumer = self.clients[name].sharer = None

    async def _set_up(self) -> None:
        async with Cluster(
            [(BROKER, PORT)], connect=recording_connector(self.history, "setup", ClientSettings())
        ) as cluster:
            for topic, partitions in self.topics.items():
                await Admin(cluster).create_topic(topic, partitions=partitions)
            if self.parameters.transactors:
                await Admin(cluster).create_topic(OUTPUT, partitions=PARTITIONS)
            for group, settings in self.parameters.share.groups.items():
                await Admin(cluster).alter_configs(GROUP_CONFIG, group, settings)
            if self.parameters.secured is not None:
                self.topic_ids = await set_up_security(cluster, self.parameters.secured)


def _invariants(parameters: Parameters) -> list[type[Invariant]]:
    """Return the invariants of a run; the ledgers of share groups are not for those of users."""
    if parameters.secured is None:
        return list(INVARIANTS)
    others = [invariant for invariant in INVARIANTS if invariant not in SHARE_INVARIANTS]
    return [*others, *SECURITY_INVARIANTS]


def groups_option(*, transactions: bool, share: bool, secured: bool = False) -> str:
    """Return the option ` --groups ...` of `konvene sim run` for these clients; empty without any."""
    kinds = (("transactional", transactions), ("share", share), ("secured", secured))
    names = "+".join(kind for kind, is_requested in kinds if is_requested)
    return f" --groups {names}" if names else ""


def run_end_to_end(
    seed: int,
    steps: int = 20_000,
    *,
    trace: Trace | None = None,
    fault_free: bool = False,
    transactions: bool = False,
    share: bool = False,
    secured: bool = False,
) -> EndToEndReport:
    """Run once and return the report. Raises `Violation`, whose text ends with the command that reproduces
    it.

    `trace` receives a line for each step; `fault_free`: the same clients without faults; `transactions` adds
    transactional clients, `share` share groups; `secured`: users of a broker with an authorizer instead."""
    parameters = draw(seed, fault_free=fault_free, transactions=transactions, share=share, secured=secured)
    began = time.perf_counter()
    with _quiet() as runs:
        run = EndToEndRun(seed, steps, parameters, trace)
        runs.append(run)
        try:
            run.loop.run_until_complete(run.run())
        except Violation as violation:
            raise Violation(violation.invariant, run.describe(violation)) from run.last_error
        finally:
            run.loop.close()
        report = run.report(time.perf_counter() - began)
        del run
    return report


class _Listener(logging.Handler):
    """A log handler that passes each exception in a log record to the method `failed` of the invariants."""

    def __init__(self, runs: list[EndToEndRun]) -> None:
        super().__init__(logging.ERROR)
        self._runs = runs

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        for run in self._runs:
            if error is not None and run.loop.here().alive:
                run.notify("failed", run.loop.here(), error, record.getMessage())


def _ignoring_killed_hosts(
    hook: Callable[[sys.UnraisableHookArgs], object],
) -> Callable[[sys.UnraisableHookArgs], object]:
    """Return an unraisable hook that ignores the errors of killed hosts and passes others to `hook`.

    An interrupted cleaning leaves open files behind, whose finalizers raise them."""
    return lambda runs: None if isinstance(runs.exc_value, PowerCut) else hook(runs)


@contextlib.contextmanager
def _quiet() -> Iterator[list[EndToEndRun]]:
    """Context manager of a run: konvene's log records go to the runs in the yielded list only, and Python
    collects garbage only when a run requests it."""
    runs: list[EndToEndRun] = []
    log, listener = logging.getLogger("konvene"), _Listener(runs)
    before = log.level, log.propagate, gc.isenabled()
    previous_hook, sys.unraisablehook = sys.unraisablehook, _ignoring_killed_hosts(sys.unraisablehook)
    gc.disable()
    log.addHandler(listener)
    log.propagate = False
    log.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():  # Killed hosts leave coroutines that never started.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            try:
                yield runs
            finally:
                runs.clear()
                gc.collect()
    finally:
        sys.unraisablehook = previous_hook
        log.removeHandler(listener)
        log.setLevel(before[0])
        log.propagate = before[1]
        if before[2]:
            gc.enable()


def _line(event: tuple[int, float, str, str]) -> str:
    step, now, kind, what = event
    return f"{step} {now:.6f} {kind} {what}"
