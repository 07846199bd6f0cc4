"""How the group APIs ask the coordinator of a group, and turn its refusal into their response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

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


WORDS: Final[Mapping[Errors, str]] = {
    Errors.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    Errors.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    Errors.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is loading and hence can't process requests.",
    Errors.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    Errors.NOT_COORDINATOR: "This is not the correct coordinator.",
    Errors.INVALID_GROUP_ID: "The group id is invalid.",
    Errors.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    Errors.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    Errors.UNSUPPORTED_VERSION: "The version of API is not supported.",
    Errors.KAFKA_STORAGE_ERROR: "Disk error when trying to access log file on the disk.",
    Errors.NON_EMPTY_GROUP: "The group is not empty.",
}
"""Kafka's words for errors where its answers have them."""


def ask(
    broker: Broker, group_id: str, request: Struct, call: Call, refused: Callable[[Errors], Struct]
) -> Any:
    """The coordinator's response, or what `refused` makes of its error."""
    coordinator = broker.groups.of(group_id)
    if coordinator is None:
        return refused(Errors.NOT_COORDINATOR)
    answer = coordinator.submit(request, call)
    return then(answer, lambda value: refused(value) if isinstance(value, Errors) else value)
