"""Client metrics on a broker without a receiver: the responses of Apache Kafka 4.4 without a plugin.

`KONVENE_AGAINST=kafka` asks Kafka again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.broker.hostile.wire import Target, started

from konvene.broker.net.client_metrics import INSTANCE_TTL_MS, MAX_INSTANCES, PUSH_INTERVAL_MS, Telemetry
from konvene.codec.schema import Struct
from konvene.codec.uuid import ZERO_UUID, Uuid
from konvene.errors import Errors
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from konvene.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

NONE, INVALID, THROTTLED = Errors.NONE, Errors.INVALID_REQUEST, Errors.THROTTLING_QUOTA_EXCEEDED
UNKNOWN, NO_CODEC = Errors.UNKNOWN_SUBSCRIPTION_ID, Errors.UNSUPPORTED_COMPRESSION_TYPE
MAX_BYTES = 1 << 20
ONE_TO_SIXTEEN = Uuid(bytes(range(16)))

Step = tuple[Callable[[Uuid, int], Struct], Errors]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with started(tmp_path_factory.mktemp("telemetry")) as target:
        yield target


def asks(client: Uuid, _: int = 0) -> GetTelemetrySubscriptionsRequest:
    return GetTelemetrySubscriptionsRequest(client_instance_id=client)


def pushes(off: int = 0, **fields: Any) -> Callable[[Uuid, int], PushTelemetryRequest]:
    """Return a function that builds a push with the subscription id, changed by `off`."""
    return lambda client, subscription: PushTelemetryRequest(
        **{"client_instance_id": client, "subscription_id": subscription + off} | fields
    )


def subscribed(client: Uuid, subscription_id: int) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client,
        subscription_id=subscription_id,
        accepted_compression_types=(4, 3, 1, 2),
        push_interval_ms=300_000,
        telemetry_max_bytes=MAX_BYTES,
        delta_temporality=True,
    )


def test_client_metrics_are_not_advertised(target: Target) -> None:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    keys = {api.api_key for api in target.ask(request, 3).api_keys}
    assert 18 in keys
    assert not keys & {71, 72}


def test_subscription_has_no_metrics(target: Target) -> None:
    """The subscription id is derived from the client instance id."""
    assert target.ask(asks(ONE_TO_SIXTEEN), 0) == subscribed(ONE_TO_SIXTEEN, -725132322)
    one = Uuid(bytes(15) + b"\1")
    assert target.ask(asks(one), 0) == subscribed(one, -725132321)


def test_a_client_without_an_id_gets_one(target: Target) -> None:
    first, second = (target.ask(asks(ZERO_UUID), 0) for _ in range(2))
    assert first == subscribed(first.client_instance_id, first.subscription_id)
    assert len({ZERO_UUID, first.client_instance_id, second.client_instance_id}) == 3


def test_push_with_a_reserved_instance_id_is_rejected(target: Target) -> None:
    for last, error in ((0, INVALID), (1, INVALID), (2, UNKNOWN)):
        client = Uuid(bytes(15) + bytes([last]))
        assert target.ask(pushes()(client, 1), 0) == PushTelemetryResponse(error_code=error)


SCENARIOS: dict[str, list[Step]] = {
    "asking twice": [(asks, NONE), (asks, THROTTLED), (pushes(), NONE)],
    "pushing twice": [(asks, NONE), (pushes(), NONE), (pushes(), THROTTLED)],
    "asking after a push": [(asks, NONE), (pushes(), NONE), (asks, THROTTLED)],
    "pushing before asking": [(pushes(), UNKNOWN), (asks, NONE), (pushes(), THROTTLED)],
    "another subscription": [(asks, NONE), (pushes(1), UNKNOWN), (asks, NONE), (pushes(), THROTTLED)],
    "a codec that does not exist": [
        (asks, NONE), (pushes(compression_type=9), NO_CODEC), (asks, NONE), (asks, THROTTLED)],
    "a negative codec": [(asks, NONE), (pushes(compression_type=-1), NO_CODEC)],
    "too much": [
        (asks, NONE), (pushes(metrics=bytes(MAX_BYTES + 1)), Errors.TELEMETRY_TOO_LARGE), (asks, THROTTLED)],
    "as much as may be": [(asks, NONE), (pushes(metrics=bytes(MAX_BYTES)), NONE)],
    "the end, and something after it": [
        (asks, NONE), (pushes(), NONE), (pushes(terminating=True), NONE), (pushes(), INVALID),
        (asks, THROTTLED)],
    "two ends": [
        (asks, NONE), (pushes(terminating=True), NONE), (pushes(terminating=True), INVALID),
        (pushes(), INVALID), (pushes(), THROTTLED)],
    "an end of another subscription": [
        (asks, NONE), (pushes(1, terminating=True), UNKNOWN), (pushes(), INVALID)],
}  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_request_limits_of_a_client(scenario: str, target: Target) -> None:
    """The requests of a client on one connection, and the error of each."""
    client_id, subscription = Uuid(os.urandom(16)), 1
    with target.client() as client:
        for ask, error in SCENARIOS[scenario]:
            answer = client.ask(ask(client_id, subscription), 0)
            assert Errors(answer.error_code) is error
            subscription = getattr(answer, "subscription_id", 0) or subscription


def test_client_instance_is_removed_with_its_connection(target: Target) -> None:
    """On another connection it may fetch its subscription at once."""
    client_id = Uuid(os.urandom(16))
    assert not target.ask(asks(client_id), 0).error_code
    deadline = time.monotonic() + 10
    while target.ask(asks(client_id), 0).error_code:
        assert time.monotonic() < deadline


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def test_client_instances_expire_and_are_limited() -> None:
    """An instance expires three push intervals after its last request, or is evicted above the limit."""
    clock = Clock()
    telemetry = Telemetry(clock, lambda: Uuid(os.urandom(16)), MAX_BYTES)
    first = Uuid(b"f" * 16)
    subscription = telemetry.subscriptions(first, "a").subscription_id
    ends: Any = pushes(terminating=True)(first, subscription)
    for wait, error in ((0, NONE), (PUSH_INTERVAL_MS, INVALID), (INSTANCE_TTL_MS, NONE)):
        clock.now_ms += wait
        assert telemetry.push(ends, "a").error_code == error
    for number in range(MAX_INSTANCES):
        telemetry.subscriptions(Uuid((1 << 64 | number).to_bytes(16, "big")), number)
    assert repr(telemetry) == f"<telemetry: {MAX_INSTANCES} clients>"
    assert not telemetry.push(ends, "a").error_code
