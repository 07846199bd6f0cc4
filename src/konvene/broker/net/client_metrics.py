"""Client metrics (KIP-714) on a broker without a receiver for them, like Apache Kafka without a plugin.

The broker does not advertise the two APIs, so regular clients do not call them. A client that does gets a
subscription without metrics, and its pushes are validated and discarded. Client instances are kept with their
connections, 16 384 at most, to throttle those that send requests too often.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from crc32c import crc32c

from konvene.codec.compression import Compression
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from konvene.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

PUSH_INTERVAL_MS = 5 * 60 * 1000
INSTANCE_TTL_MS = 3 * PUSH_INTERVAL_MS
MAX_INSTANCES = 16_384
RESERVED = frozenset((ZERO_UUID, Uuid(bytes(15) + b"\1")))
"""Client instance ids that clients may not use."""

ACCEPTED = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
_UNTHROTTLED = frozenset((Errors.UNKNOWN_SUBSCRIPTION_ID, Errors.UNSUPPORTED_COMPRESSION_TYPE))
"""Errors after which a client may fetch its subscription again at once."""

_NO_METRICS_HASH = crc32c(b"[]%d" % PUSH_INTERVAL_MS)
"""Kafka's hash of the subscribed metrics (none) and the push interval."""


class ClientInstance:
    """A client's metrics subscription, and the times of its requests, by which it is throttled."""

    __slots__ = ("error", "expires_ms", "fetched_ms", "pushed_ms", "subscription_id", "terminating")

    def __init__(self, client_instance_id: Uuid) -> None:
        self.subscription_id = _signed(_NO_METRICS_HASH ^ _hash(client_instance_id))
        self.fetched_ms = self.pushed_ms = self.expires_ms = 0
        self.terminating = False
        self.error = Errors.NONE

    def __repr__(self) -> str:
        suffix = ", terminating" if self.terminating else ""
        return f"<subscription {self.subscription_id}: {self.error.name}{suffix}>"

    def try_fetch(self, now_ms: int) -> bool:
        """Return True if the client may fetch its subscription now, and record a fetch that is on time.

        It may `PUSH_INTERVAL_MS` after its last fetch or push, or at once on an error of `_UNTHROTTLED`."""
        if now_ms - max(self.fetched_ms, self.pushed_ms) >= PUSH_INTERVAL_MS:
            self.fetched_ms = now_ms
            return True
        return self.error in _UNTHROTTLED

    def try_push(self, now_ms: int) -> bool:
        """Return True, and record the push, if the client may push metrics now.

        It may once per `PUSH_INTERVAL_MS`, and once after each fetch of its subscription."""
        if self.fetched_ms > self.pushed_ms or now_ms - self.pushed_ms >= PUSH_INTERVAL_MS:
            self.pushed_ms = now_ms
            return True
        return False


class Telemetry:
    """Answers GetTelemetrySubscriptions and PushTelemetry, and keeps the most recent client instances."""

    __slots__ = ("_by_connection", "_fresh_id", "_instances", "_max_bytes", "_now_ms")

    def __init__(self, now_ms: Callable[[], int], fresh_id: Callable[[], Uuid], max_bytes: int) -> None:
        self._now_ms = now_ms
        self._fresh_id = fresh_id
        self._max_bytes = max_bytes
        self._instances: OrderedDict[Uuid, ClientInstance] = OrderedDict()
        self._by_connection: dict[object, Uuid] = {}

    def __repr__(self) -> str:
        return f"<telemetry: {len(self._instances)} clients>"

    def subscriptions(
        self, client_instance_id: Uuid, connection: object
    ) -> GetTelemetrySubscriptionsResponse:
        """Return a subscription without metrics, or THROTTLING_QUOTA_EXCEEDED if it is fetched too often.

        If `client_instance_id` is zero, the client is assigned a new id."""
        if client_instance_id == ZERO_UUID:
            client_instance_id = self._fresh_id()
        now_ms = self._now_ms()
        instance = self._instance(client_instance_id, connection, now_ms)
        if not instance.try_fetch(now_ms):
            return GetTelemetrySubscriptionsResponse(error_code=Errors.THROTTLING_QUOTA_EXCEEDED)
        instance.error = Errors.NONE
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=client_instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=tuple(int(codec) for codec in ACCEPTED),
            push_interval_ms=PUSH_INTERVAL_MS,
            telemetry_max_bytes=self._max_bytes,
            delta_temporality=True,
        )

    def push(self, request: PushTelemetryRequest, connection: object) -> PushTelemetryResponse:
        """Validate pushed metrics and discard them; the response has an error if they are invalid."""
        if request.client_instance_id in RESERVED:
            return PushTelemetryResponse(error_code=Errors.INVALID_REQUEST)
        now_ms = self._now_ms()
        instance = self._instance(request.client_instance_id, connection, now_ms)
        instance.error = self._error(request, instance, now_ms)
        instance.terminating = request.terminating
        return PushTelemetryResponse(error_code=instance.error)

    def disconnected(self, connection: object) -> None:
        """Remove the client instance that was created last on a closed connection."""
        client_instance_id = self._by_connection.pop(connection, None)
        if client_instance_id is not None:
            self._instances.pop(client_instance_id, None)

    def _error(self, request: PushTelemetryRequest, instance: ClientInstance, now_ms: int) -> Errors:
        if instance.terminating:
            return Errors.INVALID_REQUEST
        if not instance.try_push(now_ms) and not request.terminating:
            return Errors.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscription_id:
            return Errors.UNKNOWN_SUBSCRIPTION_ID
        if not 0 <= request.compression_type <= max(Compression):
            return Errors.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self._max_bytes:
            return Errors.TELEMETRY_TOO_LARGE
        return Errors.NONE

    def _instance(self, client_instance_id: Uuid, connection: object, now_ms: int) -> ClientInstance:
        instance = self._instances.get(client_instance_id)
        if instance is None or instance.expires_ms <= now_ms:
            instance = self._instances[client_instance_id] = ClientInstance(client_instance_id)
            self._by_connection[connection] = client_instance_id
            if len(self._instances) > MAX_INSTANCES:
                self._instances.popitem(last=False)
        self._instances.move_to_end(client_instance_id)
        instance.expires_ms = now_ms + INSTANCE_TTL_MS
        return instance


def _hash(id_: Uuid) -> int:
    """Return the hash of Java's `Uuid.hashCode`."""
    bits = int.from_bytes(id_[:8], "big") ^ int.from_bytes(id_[8:], "big")
    return bits >> 32 ^ bits & 0xFFFF_FFFF


def _signed(number: int) -> int:
    return number - 0x1_0000_0000 if number & 0x8000_0000 else number
