"""How the group APIs ask the coordinator of a group, and turn its refusal into their response."""

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


def consumer_groups_are_on(settings: BrokerSettings, catalogue: ClusterCatalogue) -> bool:
    """Whether the settings list the protocol and the feature is at a level that has it."""
    return _is_on(settings, catalogue, "consumer", GROUP_VERSION)


def streams_groups_are_on(settings: BrokerSettings, catalogue: ClusterCatalogue) -> bool:
    """The same for streams groups."""
    return _is_on(settings, catalogue, "streams", STREAMS_VERSION)


def share_groups_are_on(catalogue: ClusterCatalogue) -> bool:
    """Whether the feature is at a level that has them. No list of protocols counts here, as in Kafka."""
    return catalogue.feature_level(SHARE_VERSION) >= 1


def _is_on(settings: BrokerSettings, catalogue: ClusterCatalogue, protocol: str, feature: str) -> bool:
    return (
        protocol in settings.config["group.coordinator.rebalance.protocols"]
        and catalogue.feature_level(feature) >= 1
    )


def ask(
    groups: GroupCoordinators,
    group_id: str,
    request: Struct,
    context: RequestContext,
    refused: Callable[[Errors], R],
) -> R | Deferred[R]:
    """The coordinator's response, or what `refused` makes of its error."""
    coordinator = groups.of(group_id)
    if coordinator is None:
        return refused(Errors.NOT_COORDINATOR)
    answer: Deferred[R | Errors] = coordinator.submit(request, context)

    def response_of(value: R | Errors) -> R:
        return refused(value) if isinstance(value, Errors) else value

    return then(answer, response_of)
