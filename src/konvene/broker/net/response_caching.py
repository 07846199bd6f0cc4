"""Decides whether the response to a request that was just decided is cached (`response_cache`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from konvene.broker.net.heartbeat_purgatory import set_hold_time
from konvene.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from konvene.broker.net.frames import Route
    from konvene.broker.net.member_heartbeats import MemberHeartbeats
    from konvene.broker.net.network import Network

__all__ = ["cache_response"]

SENT_ONCE: Final = "assignment", "active_tasks", "partitions_by_user_endpoint"
"""Fields that a member receives once: a heartbeat response with one of them is not cached."""


def cache_response(
    network: Network,
    heartbeats: MemberHeartbeats,
    identity: bytes,
    frame: bytes,
    route: Route,
    request: Any,
    response: Any,
) -> None:
    """Cache the response if a repetition of the request would get the same response.

    `heartbeats` and `identity` are those of the connection."""
    cache = network.response_cache
    if isinstance(response, ApiVersionsResponse):
        if isinstance(request, ApiVersionsRequest):
            heartbeats.software = request.client_software_name, request.client_software_version
            cache.add_constant(frame, route, response, heartbeats.software, identity)
        return
    coordinator = network.groups.of(request.group_id)
    if coordinator is None or any(getattr(response, name, None) is not None for name in SENT_ONCE):
        return
    if getattr(response, "topology_description_required", False):
        return
    cached = cache.add_heartbeat(frame, route, response, coordinator, request, identity)
    if cached is None:
        return
    heartbeats.last = cached
    cached.group_id, cached.member_id = request.group_id, request.member_id
    if network.settings.holds_heartbeats:
        set_hold_time(cached, response)
