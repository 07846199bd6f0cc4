"""GetTelemetrySubscriptions and PushTelemetry (KIP-714): subscribe to no metrics, discard pushed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.codec.uuid import Uuid
from konvene.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from konvene.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from konvene.broker.net.client_metrics import Telemetry
    from konvene.runtime.coordinator import RequestContext


def handle_get_telemetry_subscriptions(
    telemetry: Telemetry, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    return telemetry.subscriptions(Uuid(request.client_instance_id), context.connection)


def handle_push_telemetry(
    telemetry: Telemetry, request: PushTelemetryRequest, context: RequestContext
) -> PushTelemetryResponse:
    return telemetry.push(request, context.connection)
