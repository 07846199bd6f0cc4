"""Client metrics (KIP-714) on a broker that has nobody to give them to, as Apache Kafka without a plugin.

Such a broker does not advertise the two APIs, and no client calls them; who does all the same is answered.
It is subscribed to no metric, and what it pushes is weighed and dropped. A client's instance is remembered
with its connection, 16 384 of them at most, so that one that asks or pushes too often can be told.
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
REMEMBERED_MS = 3 * PUSH_INTERVAL_MS
MOST_REMEMBERED = 16_384
RESERVED = frozenset((ZERO_UUID, Uuid(bytes(15) + b"\1")))
"""Ids that no client may have."""

ACCEPTED = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
_LENIENT = frozenset((Errors.UNKNOWN_SUBSCRIPTION_ID, Errors.UNSUPPORTED_COMPRESSION_TYPE))
"""After these a client may ask again at once."""

_NOTHING = crc32c(b"[]%d" % PUSH_INTERVAL_MS)
"""What Kafka makes of the list of metrics, which is empty, and the interval."""


class Instance:
    """What is known of one client."""

    __slots__ = ("asked_ms", "error", "expires_ms", "pushed_ms", "subscription_id", "terminating")

    def __init__(self, client_instance_id: Uuid) -> None:
        self.subscription_id = _signed(_NOTHING ^ _hash(client_instance_id))
        self.asked_ms = self.pushed_ms = self.expires_ms = 0
        self.terminating = False
        self.error = Errors.NONE

    def __repr__(self) -> str:
        ends = ", terminating" if self.terminating else ""
        return f"<subscription {self.subscription_id}: {self.error.name}{ends}>"

    def may_ask(self, now_ms: int) -> bool:
        """Once in an interval; sooner only after an error that asking mends."""
        if now_ms - max(self.asked_ms, self.pushed_ms) >= PUSH_INTERVAL_MS:
            self.asked_ms = now_ms
            return True
        return self.error in _LENIENT

    def may_push(self, now_ms: int) -> bool:
        """Once in an interval, and once after each time that it asked."""
        if self.asked_ms > self.pushed_ms or now_ms - self.pushed_ms >= PUSH_INTERVAL_MS:
            self.pushed_ms = now_ms
            return True
        return False


class Telemetry:
    """The clients that have asked, the one that was heard of last at the end."""

    __slots__ = ("_by_connection", "_fresh_id", "_instances", "_max_bytes", "_now_ms")

    def __init__(self, now_ms: Callable[[], int], fresh_id: Callable[[], Uuid], max_bytes: int) -> None:
        self._now_ms = now_ms
        self._fresh_id = fresh_id
        self._max_bytes = max_bytes
        self._instances: OrderedDict[Uuid, Instance] = OrderedDict()
        self._by_connection: dict[object, Uuid] = {}

    def __repr__(self) -> str:
        return f"<telemetry: {len(self._instances)} clients>"

    def subscriptions(
        self, client_instance_id: Uuid, connection: object
    ) -> GetTelemetrySubscriptionsResponse:
        """No metrics at all. A client without an id gets one."""
        if client_instance_id == ZERO_UUID:
            client_instance_id = self._fresh_id()
        now_ms = self._now_ms()
        instance = self._instance(client_instance_id, connection, now_ms)
        if not instance.may_ask(now_ms):
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
        """Weighed, and dropped."""
        if request.client_instance_id in RESERVED:
            return PushTelemetryResponse(error_code=Errors.INVALID_REQUEST)
        now_ms = self._now_ms()
        instance = self._instance(request.client_instance_id, connection, now_ms)
        instance.error = self._fault(request, instance, now_ms)
        instance.terminating = request.terminating
        return PushTelemetryResponse(error_code=instance.error)

    def forget(self, connection: object) -> None:
        """The connection has ended, and with it the last client that was heard of on it."""
        client_instance_id = self._by_connection.pop(connection, None)
        if client_instance_id is not None:
            self._instances.pop(client_instance_id, None)

    def _fault(self, request: PushTelemetryRequest, instance: Instance, now_ms: int) -> Errors:
        if instance.terminating:
            return Errors.INVALID_REQUEST
        if not instance.may_push(now_ms) and not request.terminating:
            return Errors.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscription_id:
            return Errors.UNKNOWN_SUBSCRIPTION_ID
        if not 0 <= request.compression_type <= max(Compression):
            return Errors.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self._max_bytes:
            return Errors.TELEMETRY_TOO_LARGE
        return Errors.NONE

    def _instance(self, client_instance_id: Uuid, connection: object, now_ms: int) -> Instance:
        instance = self._instances.get(client_instance_id)
        if instance is None or instance.expires_ms <= now_ms:
            instance = self._instances[client_instance_id] = Instance(client_instance_id)
            self._by_connection[connection] = client_instance_id
            if len(self._instances) > MOST_REMEMBERED:
                self._instances.popitem(last=False)
        self._instances.move_to_end(client_instance_id)
        instance.expires_ms = now_ms + REMEMBERED_MS
        return instance


def _hash(id_: Uuid) -> int:
    """Java's hash of it."""
    both = int.from_bytes(id_[:8], "big") ^ int.from_bytes(id_[8:], "big")
    return both >> 32 ^ both & 0xFFFF_FFFF


def _signed(number: int) -> int:
    return number - 0x1_0000_0000 if number & 0x8000_0000 else number
