"""Checks changed TLS settings of this broker before the catalogue decides about them.

The catalogue reads no files. As in Kafka, a key store or trust store that a listener could not use rejects
the change of the settings that name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from konvene.cluster.state import ResourceType
from konvene.configs.alter import Alteration, Operation, altered, validate_broker
from konvene.configs.broker.table import BROKER
from konvene.configs.errors import ConfigError, RefusedForBroker
from konvene.errors import Errors

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.listener_security import ListenerSecurity
    from konvene.broker.settings import BrokerSettings


def unusable_tls(
    security: ListenerSecurity,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    resources: tuple[Any, ...],
    *,
    replaces_all: bool,
) -> dict[tuple[int, str], tuple[Errors, str | None]]:
    """Return error and message of each resource whose change would leave a listener without usable TLS
    material, by its type and name.

    `replaces_all`: the resources are those of AlterConfigs, which resets settings that it does not name."""
    refused: dict[tuple[int, str], tuple[Errors, str | None]] = {}
    if not security.has_tls:
        return refused
    name = str(catalogue.node_id)
    current = {} if replaces_all else catalogue.settings_of(ResourceType.BROKER, name)
    for resource in resources:
        if (resource.resource_type, resource.resource_name) != (ResourceType.BROKER, name):
            continue
        changes = [
            Alteration(one.name, getattr(one, "config_operation", Operation.SET), one.value)
            for one in resource.configs
        ]
        try:
            texts = altered(BROKER, current, changes)
            changed, _ = validate_broker(settings.config, texts, per_broker=True)
        except ConfigError:
            continue  # The catalogue rejects it.
        try:
            security.check(changed)
        except RefusedForBroker as error:
            refused[ResourceType.BROKER, name] = Errors(error.code), str(error)
    return refused
