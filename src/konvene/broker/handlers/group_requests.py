"""Submits requests to the coordinator of a group, and checks which group types are enabled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from konvene.cluster.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from konvene.errors import Errors
from konvene.runtime.deferred import Deferred, then

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.groups.coordinators import GroupCoordinators
    from konvene.broker.settings import BrokerSettings
    from konvene.codec.schema import Struct
    from konvene.runtime.coordinator import RequestContext

R = TypeVar("R", bound="Struct")


def consumer_groups_enabled(settings: BrokerSettings, catalogue: ClusterCatalogue) -> bool:
    """Return True if the settings list the consumer protocol and the level of `group.version` enables it."""
    return _is_enabled(settings, catalogue, "consumer", GROUP_VERSION)


def streams_groups_enabled(settings: BrokerSettings, catalogue: ClusterCatalogue) -> bool:
    """Return True if the settings list the streams protocol and the level of `streams.version` enables it."""
    return _is_enabled(settings, catalogue, "streams", STREAMS_VERSION)


def share_groups_enabled(catalogue: ClusterCatalogue) -> bool:
    """Return True if the level of `share.version` enables share groups. As in Kafka, no setting matters."""
    return catalogue.feature_level(SHARE_VERSION) >= 1


def _is_enabled(settings: BrokerSettings, catalogue: ClusterCatalogue, protocol: str, feature: str) -> bool:
    return (
        protocol in settings.config["group.coordinator.rebalance.protocols"]
        and catalogue.feature_level(feature) >= 1
    )


def submit_to_group_coordinator(
    groups: GroupCoordinators,
    group_id: str,
    request: Struct,
    context: RequestContext,
    error_response: Callable[[Errors], R],
) -> R | Deferred[R]:
    """Submit a request; return the coordinator's response, or `error_response` of the error it returns."""
    coordinator = groups.of(group_id)
    if coordinator is None:
        return error_response(Errors.NOT_COORDINATOR)
    result: Deferred[R | Errors] = coordinator.submit(request, context)

    def response_of(value: R | Errors) -> R:
        return error_response(value) if isinstance(value, Errors) else value

    return then(result, response_of)
