"""Enforces client quotas: measures requests, and decides how long clients are throttled (KIP-219).

As in Kafka, a throttled client gets its response at once, with `throttle_time_ms`. The connection is muted
for that time: nothing is read from it. A request is measured by what its API uses:

    bytes of the request         Produce                                         producer_byte_rate
    bytes of the response        Fetch, ShareFetch                               consumer_byte_rate
    processing time              all but WriteTxnMarkers and acks=0              request_percentage
    partitions                   CreateTopics, DeleteTopics, CreatePartitions    controller_mutation_rate

The throttle time is the longest one. Processing time is the time that the event loop spends on decoding the
request, deciding it and encoding its response; not the work of other tasks and threads, such as syncs. One
percent is a hundredth of the event loop, as it is a hundredth of one thread in Kafka.

While no client has a quota, nothing is measured: `ClientQuotas.is_enabled` is False.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from konvene.security.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from konvene.security.quotas.precedence import quota_table
from konvene.security.quotas.rates import QuotaWindows, mutation_throttle_ms
from konvene.security.quotas.sensors import BucketSensor, BucketSensors, RateSensors

if TYPE_CHECKING:
    from konvene.codec.schema import Struct
    from konvene.configs import BrokerConfig
    from konvene.runtime.coordinator import RequestContext
    from konvene.security.session import Session
    from konvene.shard.contract import Mutations

__all__ = ["ClientQuotas", "MutationQuota", "RequestUsage", "timed", "within_mutation_quota"]

PRODUCE = 0
EXEMPT = frozenset((27,))
"""Keys of the APIs whose processing time does not count: WriteTxnMarkers."""

PERCENT_PER_NS = 100 / 1e9

MAX_INT = 2**31 - 1

R = TypeVar("R", bound="Struct")
T = TypeVar("T")


class ClientQuotas:
    """The quotas of users and client ids, and the sensors that measure their use."""

    __slots__ = (
        "clock_ms",
        "clock_ns",
        "fetch",
        "is_enabled",
        "limits_requests",
        "mutation",
        "produce",
        "request",
    )

    def __init__(
        self, config: BrokerConfig, clock_ms: Callable[[], int], clock_ns: Callable[[], int]
    ) -> None:
        """`clock_ms`: a monotonic clock; `clock_ns`: the one that measures processing time."""
        self.clock_ms, self.clock_ns = clock_ms, clock_ns
        windows = QuotaWindows(config["quota.window.num"], config["quota.window.size.seconds"] * 1000)
        mutation_windows = QuotaWindows(
            config["controller.quota.window.num"], config["controller.quota.window.size.seconds"] * 1000
        )
        self.produce = RateSensors(windows)
        self.fetch = RateSensors(windows)
        self.request = RateSensors(windows, max_throttle_ms=windows.size_ms)
        self.mutation = BucketSensors(mutation_windows)
        self.is_enabled = False
        """Whether any user or client id has a quota."""
        self.limits_requests = False
        """Whether any has a quota on processing time."""

    def __repr__(self) -> str:
        return f"<client quotas: {'enabled' if self.is_enabled else 'none'}>"

    def update(self, quotas: Iterable[tuple[QuotaEntity, Mapping[str, float]]]) -> None:
        """Replace all quotas. Sensors stay: what clients have used counts against the new ones."""
        quotas = tuple(quotas)
        self.produce.table = quota_table(PRODUCER_BYTE_RATE, quotas)
        self.fetch.table = quota_table(CONSUMER_BYTE_RATE, quotas)
        self.request.table = quota_table(REQUEST_PERCENTAGE, quotas)
        self.mutation.table = quota_table(CONTROLLER_MUTATION_RATE, quotas)
        self.limits_requests = bool(self.request.table)
        self.is_enabled = self.limits_requests or any(
            sensors.table for sensors in (self.produce, self.fetch, self.mutation)
        )

    def usage(self, session: Session, client_id: str, size: int, started_ns: int) -> RequestUsage:
        """Return what a request of `size` bytes uses, whose processing began at `started_ns` (0: unknown)."""
        return RequestUsage(self, session.principal.name, client_id, size, started_ns)

    def remove_unused_sensors(self) -> None:
        """Remove the sensors of clients that have been idle for an hour."""
        now_ms = self.clock_ms()
        for sensors in (self.produce, self.fetch, self.request):
            sensors.remove_unused(now_ms)
        self.mutation.remove_unused(now_ms)


class RequestUsage:
    """What one request uses of its client's quotas.

    Its processing time is measured between `resume` and `pause`."""

    __slots__ = (
        "_client_id", "_is_measured", "_processing_ns", "_quotas", "_resumed_ns", "_size", "_throttle_ms",
        "_user", "is_exempt",
    )  # fmt: skip

    def __init__(self, quotas: ClientQuotas, user: str, client_id: str, size: int, resumed_ns: int) -> None:
        """`size`: bytes of the request. `resumed_ns`: when its processing began."""
        self._quotas = quotas
        self._user, self._client_id = user, client_id
        self._size = size
        self._resumed_ns = resumed_ns
        self._processing_ns = self._throttle_ms = 0
        self._is_measured = False
        self.is_exempt = False
        """True if its processing time does not count."""

    def __repr__(self) -> str:
        return f"<usage of {self._user} as {self._client_id!r}: throttled for {self._throttle_ms} ms>"

    def resume(self) -> None:
        """Begin to measure processing time, unless it is being measured."""
        if not self._resumed_ns:
            self._resumed_ns = self._quotas.clock_ns()

    def pause(self) -> None:
        """Stop measuring processing time."""
        if self._resumed_ns:
            self._processing_ns += self._quotas.clock_ns() - self._resumed_ns
            self._resumed_ns = 0

    # --- quotas ---

    def max_fetch_bytes(self) -> int:
        """Return the largest response to a fetch that is not throttled for sure."""
        quotas = self._quotas
        if not quotas.fetch.table:
            return MAX_INT
        limit = quotas.fetch.max_value(self._user, self._client_id, quotas.clock_ms())
        return MAX_INT if limit is None else min(int(limit), MAX_INT)

    def throttle_fetch(self, size: int) -> int:
        """Count a response with fetched records, and return for how long the client is throttled, in ms.

        A response that is throttled must be sent without its records; it does not count."""
        quotas, user, client_id = self._quotas, self._user, self._client_id
        now_ms = quotas.clock_ms()
        request_ms = self._measure_processing(now_ms)
        fetch_ms = quotas.fetch.record(user, client_id, size, now_ms) if quotas.fetch.table else 0
        self._throttled(fetch_ms, request_ms, quotas.fetch)
        if self._throttle_ms and quotas.fetch.table:
            quotas.fetch.record_unthrottled(user, client_id, -size, now_ms)
        return self._throttle_ms

    def count_fetched(self, size: int) -> None:
        """Count a response with records that are sent even if the client is throttled."""
        quotas = self._quotas
        if quotas.fetch.table:
            now_ms = quotas.clock_ms()
            fetch_ms = quotas.fetch.record(self._user, self._client_id, size, now_ms)
            self._throttled(fetch_ms, 0, quotas.fetch)

    def mutation_quota(self, *, strict: bool) -> MutationQuota | None:
        """Return the client's quota on created and deleted partitions; None if it has none."""
        quotas = self._quotas
        if not quotas.mutation.table:
            return None
        sensor, limit = quotas.mutation.of(self._user, self._client_id, quotas.clock_ms())
        if limit is None:
            sensor.bucket.fill()
            return None
        return MutationQuota(sensor, limit, quotas.clock_ms, strict=strict)

    def finish(self, api_key: int, response: Any) -> tuple[Any, int]:
        """Return the response with its throttle time, and that time, for which the connection is muted.

        `response` is None if the client expects none."""
        quotas = self._quotas
        self.pause()
        now_ms = quotas.clock_ms()
        if api_key in EXEMPT or response is None:
            self.is_exempt = True
        produce_ms = 0
        if api_key == PRODUCE and quotas.produce.table:
            produce_ms = quotas.produce.record(self._user, self._client_id, self._size, now_ms)
        self._throttled(produce_ms, self._measure_processing(now_ms), quotas.produce)
        mutation_ms = getattr(response, "throttle_time_ms", 0)
        self._throttle_ms = max(self._throttle_ms, mutation_ms)
        if self._throttle_ms > mutation_ms and hasattr(response, "throttle_time_ms"):
            response = response.replace(throttle_time_ms=self._throttle_ms)
        self.resume()
        return response, self._throttle_ms

    def sent(self) -> None:
        """Count the time for encoding and sending the response; it throttles the next request."""
        self.pause()
        quotas = self._quotas
        if quotas.limits_requests and not self.is_exempt and self._processing_ns:
            value = self._processing_ns * PERCENT_PER_NS
            self._processing_ns = 0
            quotas.request.record_unthrottled(self._user, self._client_id, value, quotas.clock_ms())

    def throttle_cached(self) -> int:
        """Count the time of a request that is answered from a cache; return the throttle time in ms."""
        self.pause()
        request_ms = self._measure_processing(self._quotas.clock_ms())
        self.resume()
        return request_ms

    def _measure_processing(self, now_ms: int) -> int:
        """Count the processing time so far, once; return the throttle time for it."""
        quotas = self._quotas
        if self._is_measured or self.is_exempt or not quotas.limits_requests:
            return 0
        self._is_measured = True
        is_running = bool(self._resumed_ns)
        self.pause()
        value = self._processing_ns * PERCENT_PER_NS
        self._processing_ns = 0
        if is_running:
            self.resume()
        return quotas.request.record(self._user, self._client_id, value, now_ms)

    def _throttled(self, bandwidth_ms: int, request_ms: int, bandwidth: RateSensors) -> None:
        """Set the longer one of two throttle times, and record it in the sensor of its quota."""
        throttle_ms = max(bandwidth_ms, request_ms)
        if throttle_ms:
            self._throttle_ms = max(self._throttle_ms, throttle_ms)
            sensors = bandwidth if bandwidth_ms > request_ms else self._quotas.request
            now_ms = self._quotas.clock_ms()
            sensor, _ = sensors.of(self._user, self._client_id, now_ms)
            sensor.throttle_times.record(throttle_ms, now_ms)


class MutationQuota:
    """A client's quota on created and deleted partitions, for one request (KIP-599).

    A strict quota rejects what is requested after the tokens were used up. A permissive one accepts it, and
    throttles the client."""

    __slots__ = ("_clock_ms", "_limit", "_recorded_ms", "_sensor", "_strict", "_throttle_ms", "tokens")

    def __init__(
        self, sensor: BucketSensor, limit: float, clock_ms: Callable[[], int], *, strict: bool
    ) -> None:
        self._sensor, self._limit, self._clock_ms, self._strict = sensor, limit, clock_ms, strict
        self._throttle_ms = self._recorded_ms = 0
        self.tokens = sensor.bucket.tokens(limit, clock_ms()) if strict else None
        """Tokens left, which a decision may use up; None if the quota is permissive."""

    def __repr__(self) -> str:
        return f"<{'strict' if self._strict else 'permissive'} mutation quota of {self._limit:g}>"

    def record(self, mutations: Mutations) -> None:
        """Take the tokens of a decision that was just made."""
        self._recorded_ms = now_ms = self._clock_ms()
        tokens = self._sensor.bucket.take(mutations.accepted, self._limit, now_ms)
        self._sensor.rate.record(mutations.accepted, now_ms)
        if mutations.rejected or not self._strict:
            self._throttle_ms = mutation_throttle_ms(tokens, self._limit)

    def throttle_ms(self) -> int:
        """Return the rest of the throttle time, and record it as a metric."""
        now_ms = self._clock_ms()
        throttle_ms = max(0, self._throttle_ms - (now_ms - self._recorded_ms))
        if throttle_ms:
            self._sensor.throttle_times.record(throttle_ms, now_ms)
        return throttle_ms


async def within_mutation_quota(
    context: RequestContext, decide: Callable[[RequestContext], Awaitable[R]], *, first_strict_version: int
) -> R:
    """Let `decide` answer a request within the client's quota, and return the response.

    Since `first_strict_version` the quota is strict, before that permissive."""
    usage = context.usage
    if usage is None:
        return await decide(context)
    quota = usage.mutation_quota(strict=context.api_version >= first_strict_version)
    if quota is None:
        return await decide(context)
    response = await decide(limited_by(context, quota))
    throttle_ms = quota.throttle_ms()
    return response.replace(throttle_time_ms=throttle_ms) if throttle_ms else response


def limited_by(context: RequestContext, quota: MutationQuota) -> RequestContext:
    """Return the context of a decision that counts against a quota."""
    return context._replace(mutation_tokens=quota.tokens, count_mutations=quota.record)


@coroutine
def timed(answer: Coroutine[Any, Any, T], usage: RequestUsage) -> Generator[Any, Any, T]:
    """Run a coroutine, and measure the processing time of each of its steps."""
    send, argument = answer.send, None
    while True:
        usage.resume()
        try:
            waits_for = send(argument)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            usage.pause()
        try:
            argument = yield waits_for
            send = answer.send
        except GeneratorExit:
            answer.close()
            raise
        except BaseException as error:
            send, argument = answer.throw, error
