"""Runs a shard: decides requests, appends and replays their records, and replies when they are durable.

One coordinator owns one shard and the log of its partition. Decisions are made one after another on the event
loop. Syncing runs beside it, one sync for everything appended meanwhile (group commit). Each reply waits for
the last record appended before it, so no client sees what a crash could take back.

Where the disk is fast and requests are spread out, each sync would serve few of them. So when a sync ends and
all replies that wait for the next one may wait (`Outcome.may_wait`), the next sync starts after `LINGER_S`,
or as soon as a reply arrives that may not. A reply that finds the disk idle waits for its own sync only.

If an append or a sync fails, every waiting request is answered with the error `unavailable`, and the shard is
dropped and loaded again from the log: reload rather than rewind.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from konvene.codec.errors import CodecError
from konvene.codec.schema import Struct
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.records.transactional import InTransaction, TransactionEnded
from konvene.runtime.deferred import Deferred
from konvene.runtime.ports import AppendRefused, ExplainedRebalance, Ports, RecordSerde, RecordTooLarge
from konvene.runtime.timers import Alarm, Timers
from konvene.security.session import ANONYMOUS_SESSION, Session
from konvene.shard.contract import (
    Arm,
    Configs,
    Context,
    Core,
    Disarm,
    Effect,
    Mutations,
    Outcome,
    Reply,
    TimerKey,
)
from konvene.shard.errors import Refusal

log = logging.getLogger("konvene.coordinator")

LOAD_SLICE_S = 0.005
"""Longest time for which loading blocks the event loop, in seconds."""

LINGER_S = 0.04
"""Delay of a sync that only serves replies that may wait, in seconds.

A sync costs the event loop as much as deciding two heartbeats. When ten thousand members learn of an epoch
within five seconds, and the disk is fast, every fourth would get a sync of its own. The members whose replies
may wait do nothing with the response but heartbeat again later."""

TIMER_RETRY_MS = 10_000
"""Delay after which a timer fires again if its outcome did not fit into the log."""


class RequestContext(NamedTuple):
    """What a coordinator is given besides a request: API version, client, listener, and ids to use."""

    api_version: int = 0
    client_id: str = ""
    client_host: str = ""
    """In Kafka's notation: a slash and the address."""
    fresh_ids: tuple[str, ...] = ()
    """Random ids, as many as the request can need."""
    session: Session = ANONYMOUS_SESSION
    """Principal, listener and security protocol of the connection."""
    api_key: int = -1
    deadline_ms: int = 0
    connection: object = None
    """The connection that the request arrived on, as an opaque key."""
    fresh_producer_id: int = -1
    may_have_lost_response: bool = False
    """As in `Context`."""
    usage: Any = None
    """What the request uses of its client's quotas (`broker.net.client_quotas`); None without quotas."""
    mutation_tokens: float | None = None
    """As in `Context`."""
    count_mutations: Callable[[Mutations], None] | None = None
    """Counts what the decision creates and deletes against the quota; called at once."""


class CachedDecision(NamedTuple):
    """A decision that may be repeated for an equal request, as long as `value` is current for the core.

    `timers`: those that each repetition arms again."""

    core: Core
    value: object
    timers: tuple[Arm | Disarm, ...]


class _Held(NamedTuple):
    """Replies, effects and rebalances that are held back until the log is durable up to `offset`."""

    offset: int
    replies: tuple[Reply, ...] | tuple[tuple[int, Errors], ...]
    effects: tuple[Effect, ...]
    why: tuple[ExplainedRebalance, ...]
    may_wait: bool = False


def _broker_defaults(config: Callable[[], Configs]) -> Callable[[], GroupConfigs]:
    """Return a provider of group configs that are the broker's configs for every group.

    It returns the same object until `config()` returns another one."""
    cached: tuple[Configs, GroupConfigs] | None = None

    def provide() -> GroupConfigs:
        nonlocal cached
        current = config()
        if cached is None or cached[0] is not current:
            cached = current, GroupConfigs(current)
        return cached[1]

    return provide


class Coordinator:
    """The runner of one shard: passes it requests and expired timers, and carries out its outcomes.

    `state` is "loading", "active", "failed" or "closed"."""

    def __init__(
        self,
        name: str,
        make_core: Callable[[], Core],
        serde: RecordSerde,
        ports: Ports,
        *,
        unavailable: Errors = Errors.NOT_COORDINATOR,
    ) -> None:
        """`name` appears in log lines; `unavailable` is the error for requests that reach no active shard."""
        self.name = name
        self.core = make_core()
        self.state = "loading"
        self._make_core = make_core
        self._serde = serde
        self._unavailable = unavailable
        # The ports are unpacked: they are used for each request.
        self._journal = ports.journal
        self._loop = ports.loop
        self._wall_clock_ms = ports.wall_clock_ms
        self._config = ports.config
        self._group_configs = ports.group_configs or _broker_defaults(ports.config)
        self._topics = ports.topics
        self._features = ports.features
        self._member_count = ports.member_count
        self._assignors = ports.assignors
        self._task_assignors = ports.task_assignors
        self._perform = ports.perform
        self._on_rebalance = ports.on_rebalance
        self._on_outcome = ports.on_outcome
        self._on_stop = ports.on_stop
        self._observe_batch = ports.observe_batch
        self._timers = Timers(ports.loop, self._fire)
        self._waiting: dict[int, Deferred[Any]] = {}
        self._last_waiter = 0
        self._held: deque[_Held] = deque()
        self._syncing: asyncio.Task[None] | None = None
        self._lingering: Alarm | None = None
        """Timer of the next sync, while only replies that may wait are held."""
        self._loading: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<coordinator {self.name}: {self.state}, {len(self._waiting)} waiting>"

    @property
    def deadlines(self) -> Mapping[TimerKey, float]:
        """Return the deadlines of armed timers by key, in the loop's time."""
        return self._timers.deadlines

    @property
    def group_configs(self) -> GroupConfigs:
        """Return the present configs of all groups."""
        return self._group_configs()

    # --- requests ---

    def submit(self, request: object, origin: RequestContext) -> Deferred[Any]:
        """Decide a request; the result is resolved with the response, or with the error that rejects it."""
        answer: Deferred[Any] = Deferred()
        if self.state != "active":
            busy = Errors.COORDINATOR_LOAD_IN_PROGRESS if self.state == "loading" else self._unavailable
            answer.resolve(busy)
            return answer
        self._last_waiter += 1
        waiter = self._last_waiter
        self._waiting[waiter] = answer
        context = Context(
            self._wall_clock_ms(), self._config(), waiter,
            origin.api_version, origin.client_id, origin.client_host, origin.fresh_ids,
            self._topics(), self._group_configs(), self._assignors, self._task_assignors,
            origin.session.principal, self._member_count(), origin.fresh_producer_id,
            features=self._features(), end_offset=self._journal.end_offset,
            may_have_lost_response=origin.may_have_lost_response, mutation_tokens=origin.mutation_tokens,
        )  # fmt: skip
        try:
            outcome = self.core.handle(request, context)
        except Refusal as refused:
            self._refuse(waiter, refused.error)
        except Exception:
            log.exception("%s: %s could not be decided", self.name, type(request).__name__)
            self._refuse(waiter, Errors.UNKNOWN_SERVER_ERROR)
        else:
            if outcome.mutations is not None and origin.count_mutations is not None:
                origin.count_mutations(outcome.mutations)
            if outcome.records or outcome.soft_records or outcome.ending is not None or self._held:
                self._carry_out(outcome, waiter)
            else:  # The common heartbeat: nothing to write, nothing to wait for.
                self._set_timers(outcome.timers)
                self._release(_Held(0, outcome.replies, outcome.effects, ()))
        return answer

    def inform(self, event: object) -> bool:
        """Decide an event that gets no reply, such as the result of an effect.

        The event is dropped unless the coordinator is active. Return False if its outcome does not fit into
        the log; then nothing has changed."""
        if self.state != "active":
            return True
        try:
            outcome = self.core.handle(event, self._internal_context())
        except Exception:
            log.exception("%s: %s could not be decided", self.name, type(event).__name__)
            return True
        return self._carry_out(outcome, None)

    def cacheable_decision(self, request: Struct) -> CachedDecision | None:
        """Return the decision about a request that was just accepted, if it may be repeated, else None."""
        same = self.core.cacheable(request, self._internal_context())
        return None if same is None else CachedDecision(self.core, *same)

    def is_current(self, cached: CachedDecision) -> bool:
        """Return whether deciding the request anew would give the same outcome."""
        return self.state == "active" and cached.core is self.core and self.core.is_current(cached.value)

    def repeat(self, cached: CachedDecision, *, was_held: bool = False) -> bool:
        """Arm the timers of a cached decision again; return False if the request must be decided anew.

        Replies leave in order, so a cached one may not overtake replies that wait for the disk, unless the
        request arrived before them (`was_held`): its state was durable then and has not changed."""
        if (self._held and not was_held) or not self.is_current(cached):
            return False
        self._set_timers(cached.timers)
        return True

    def _fire(self, key: TimerKey) -> None:
        if self.state != "active":
            return
        try:
            outcome = self.core.expire(key, self._internal_context())
        except Exception:
            log.exception("%s: timer %s could not be decided", self.name, key)
        else:
            if self._carry_out(outcome, None):
                return
        self._timers.arm(key, TIMER_RETRY_MS)

    def _internal_context(self) -> Context:
        return Context(
            self._wall_clock_ms(), self._config(), topics=self._topics(),
            group_configs=self._group_configs(), assignors=self._assignors,
            task_assignors=self._task_assignors, members=self._member_count(), features=self._features(),
            end_offset=self._journal.end_offset,
        )  # fmt: skip

    def fire_timer(self, key: TimerKey) -> bool:
        """Fire a timer before its deadline; return False if it is not armed."""
        if not self._timers.disarm(key):
            return False
        self._fire(key)
        return True

    # --- outcomes ---

    def _carry_out(self, outcome: Outcome, waiter: int | None) -> bool:
        """Append and replay the records of an outcome and set its timers; reply once the records are durable.

        Return False if the records do not fit into the log or the log rejects them; nothing changes then.
        `waiter`: the id of the waiting request; None for a timer or an event."""
        base = end = self._journal.end_offset
        if outcome.records or outcome.ending is not None:
            try:
                end = self._append(outcome)
            except AppendRefused as refused:
                log.warning("%s: refused, nothing changed: %s", self.name, refused)
                if waiter is not None:
                    self._refuse(waiter, refused.error)
                return False
            except (RecordTooLarge, CodecError) as error:
                log.error("%s: refused, nothing changed: %s", self.name, error)
                if waiter is not None:
                    self._refuse(waiter, Errors.UNKNOWN_SERVER_ERROR)
                return False
            except Exception as error:
                self._fail(error)
                return True
        producer, ending = outcome.producer, outcome.ending
        for record in outcome.records:
            self.core.replay(record if producer is None else InTransaction(producer.producer_id, record))
        if ending is not None:
            self.core.replay(TransactionEnded(ending.producer_id, ending.committed))
        for record in outcome.soft_records:
            self.core.replay(record)
        self._on_outcome(outcome)
        self._set_timers(outcome.timers)
        why: tuple[ExplainedRebalance, ...] = ()
        if outcome.why:
            last = end - 1 if outcome.records else -1
            why = tuple(ExplainedRebalance(r, base if outcome.records else -1, last) for r in outcome.why)
        held = _Held(end, outcome.replies, outcome.effects, why, outcome.may_wait)
        if outcome.when_written and not self._held:  # Replies leave in order.
            self._release_when_written(held)
        else:
            self._release_or_hold(held)
        return True

    def _release_when_written(self, held: _Held) -> None:
        try:
            self._journal.write()
        except Exception as error:
            self._fail(error)
            return
        self._release(held)
        if held.offset > self._journal.synced_offset and self._syncing is None and self._lingering is None:
            self._linger()

    def _set_timers(self, timers: tuple[Arm | Disarm, ...]) -> None:
        for timer in timers:
            if type(timer) is Arm:
                self._timers.arm(*timer)
            else:
                self._timers.disarm(timer.key)

    def _append(self, outcome: Outcome) -> int:
        if outcome.ending is not None:
            return self._journal.append_marker(outcome.ending, self._wall_clock_ms())
        encode = self._serde.encode
        pairs = [encode(r) for r in outcome.records]
        return self._journal.append_pairs(pairs, self._wall_clock_ms(), outcome.producer)

    def _release_or_hold(self, held: _Held) -> None:
        if not self._held and held.offset <= self._journal.synced_offset:
            self._release(held)
            return
        self._held.append(held)
        if self._syncing is None and (self._lingering is None or not held.may_wait):
            self._begin_sync()

    @property
    def lingers(self) -> bool:
        """Return whether the next sync is delayed although replies wait for it."""
        return self._lingering is not None

    def _begin_sync(self) -> None:
        self._cancel_linger()
        self._syncing = self._loop.create_task(self._sync())

    def _linger(self) -> None:
        self._lingering = self._loop.call_at(self._loop.time() + LINGER_S, self._begin_sync)

    def _cancel_linger(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None

    async def _sync(self) -> None:
        """Sync the log until no reply waits for it, or only replies that may wait for a later sync.

        Records that are appended during a sync are covered by the next one."""
        try:
            while True:
                await self._journal.sync()
                durable = self._journal.synced_offset
                while self._held and self._held[0].offset <= durable:
                    self._release(self._held.popleft())
                if all(held.may_wait for held in self._held):
                    if self._held or self._journal.end_offset > durable:
                        self._linger()
                    return
        except Exception as error:
            self._fail(error)
        finally:
            self._syncing = None

    def _release(self, held: _Held) -> None:
        for effect in held.effects:
            self._perform(effect)
        for waiter, response in held.replies:
            answer = self._waiting.pop(waiter, None)
            if answer is not None:
                answer.resolve(response)
        for explained in held.why:
            self._on_rebalance(explained)

    def _refuse(self, waiter: int, error: Errors) -> None:
        """Reply with an error, after the replies that wait for the disk.

        The error may depend on records that are not durable yet."""
        self._release_or_hold(_Held(self._journal.end_offset, ((waiter, error),), (), ()))

    # --- loading, failing, closing ---

    def load(self) -> asyncio.Task[None]:
        """Start replaying the log into a new shard, a few milliseconds at a time; then serve requests."""
        self.state = "loading"
        self._loading = self._loop.create_task(self._load())
        return self._loading

    async def _load(self) -> None:
        started_s = pause_s = self._loop.time()
        core = self._make_core()
        read, replay, observe_batch = self._serde.read, core.replay, self._observe_batch
        count = 0
        try:
            for header, batch in self._journal.read_back():
                observe_record = observe_batch(header)
                for offset, timestamp_ms, record in read(batch, header):
                    replay(record)
                    if observe_record is not None:
                        observe_record(offset, timestamp_ms, record)
                count += header.record_count
                if self._loop.time() - pause_s > LOAD_SLICE_S:
                    await asyncio.sleep(0)
                    pause_s = self._loop.time()
        except Exception:
            self.state = "failed"
            log.exception(
                "%s: its log cannot be loaded; the partition stays without a coordinator", self.name
            )
            return
        self.core = core
        self.state = "active"
        self._carry_out(self.core.load(self._internal_context()), None)
        if count:
            took_s = self._loop.time() - started_s
            log.info("%s: loaded %d records in %.3f s: %r", self.name, count, took_s, core)

    def _fail(self, error: BaseException) -> None:
        """Stop serving after a failed append or sync, and load the shard again if its log is still online.

        Waiting requests are answered with `unavailable`."""
        log.error("%s: failed, its state is loaded again from the log: %r", self.name, error)
        self._stop_serving("failed")
        if self._journal.online:
            self.load()

    def reload(self, after_ms: int = 0) -> None:
        """Drop the shard and load it again from the log, as after a restart.

        Waiting requests are answered with `unavailable`. Loading starts after `after_ms`."""
        self._stop_serving("loading")
        self._loop.call_later(after_ms / 1000, self._load_unless_started)

    def _load_unless_started(self) -> None:
        if self.state == "loading" and (self._loading is None or self._loading.done()):
            self.load()

    def _stop_serving(self, state: str) -> None:
        self.state = state
        self._timers.clear()
        self._held.clear()
        self._cancel_linger()
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.resolve(self._unavailable)
        self._on_stop()

    async def close(self) -> None:
        """Stop serving: make appended records durable and answer waiting requests with `unavailable`."""
        if self._loading is not None:
            self._loading.cancel()
        while self._syncing is not None or self._lingering is not None:
            if self._syncing is None:
                self._begin_sync()
            assert self._syncing is not None
            await asyncio.wait([self._syncing])
        self._stop_serving("closed")
