"""How the group APIs ask the coordinator of a group, and turn its refusal into their response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from konvene.cluster.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from konvene.errors import Errors
from konvene.runtime.deferred import then

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.codec.schema import Struct
    from konvene.runtime.coordinator import Call


def consumer_groups_are_on(broker: Broker) -> bool:
    """Whether the settings list the protocol and the feature is at a level that has it."""
    return _is_on(broker, "consumer", GROUP_VERSION)


def streams_groups_are_on(broker: Broker) -> bool:
    """The same for streams groups."""
    return _is_on(broker, "streams", STREAMS_VERSION)


def share_groups_are_on(broker: Broker) -> bool:
    """Whether the feature is at a level that has them. No list of protocols counts here, as in Kafka."""
    return broker.level(SHARE_VERSION) >= 1


def _is_on(broker: Broker, protocol: str, feature: str) -> bool:
    return protocol in broker.config["group.coordinator.rebalance.protocols"] and broker.level(feature) >= 1


def ask(
    broker: Broker, group_id: str, request: Struct, call: Call, refused: Callable[[Errors], Struct]
) -> Any:
    """The coordinator's response, or what `refused` makes of its error."""
    coordinator = broker.groups.of(group_id)
    if coordinator is None:
        return refused(Errors.NOT_COORDINATOR)
    answer = coordinator.submit(request, call)
    return then(answer, lambda value: refused(value) if isinstance(value, Errors) else value)
