"""Admin methods for client quotas: Kafka's `describeClientQuotas` and `alterClientQuotas`.

An entity is a mapping of entity types (`USER`, `CLIENT_ID`, `IP`) to names; the name None is the default of
its type. `{"user": "alice", "client-id": None}` is the default of all client ids of the user alice.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from konvene.client.errors import raise_for
from konvene.client.net.cluster import Cluster
from konvene.messages import alter_client_quotas, describe_client_quotas
from konvene.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from konvene.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

__all__ = ["ANY_NAME", "CLIENT_ID", "IP", "USER", "ClientQuotaAdmin", "ClientQuotas", "quota_entity_name"]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""Match types of DescribeClientQuotas."""


class AnyName(Enum):
    """The type of `ANY_NAME`, its only member."""

    ANY_NAME = "any name"


ANY_NAME: Final = AnyName.ANY_NAME
"""In a filter: any name of the entity type, and its default."""

NameFilter: TypeAlias = str | AnyName | None
"""A name, None for the default, or `ANY_NAME`."""


class ClientQuotas(NamedTuple):
    """An entity with its quotas by key, such as `producer_byte_rate`."""

    entity: dict[str, str | None]
    values: dict[str, float]


class ClientQuotaAdmin:
    """The methods of `Admin` for client quotas."""

    cluster: Cluster

    async def describe_client_quotas(
        self, components: Mapping[str, NameFilter] | None = None, *, strict: bool = False
    ) -> list[ClientQuotas]:
        """Return the entities that match all components of a filter, with their quotas, ordered by entity.

        Without components all entities match. `strict`: an entity with other types as well does not match.
        Raises `KafkaError`, such as INVALID_REQUEST."""
        request = DescribeClientQuotasRequest(
            components=tuple(_component(kind, name) for kind, name in (components or {}).items()),
            strict=strict,
        )
        response: DescribeClientQuotasResponse = await self.cluster.ask(request)
        raise_for(response.error_code, response.error_message, about="client quotas")
        found = [
            ClientQuotas(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: value.value for value in entry.values},
            )
            for entry in response.entries or ()
        ]
        return sorted(found, key=lambda quotas: quota_entity_name(quotas.entity))

    async def alter_client_quotas(
        self,
        entity: Mapping[str, str | None],
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change quotas of an entity; None removes one. Raises `KafkaError`, such as INVALID_REQUEST."""
        entry = alter_client_quotas.EntryData(
            entity=tuple(
                alter_client_quotas.EntityData(entity_type=kind, entity_name=name)
                for kind, name in entity.items()
            ),
            ops=tuple(
                alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
                for key, value in changes.items()
            ),
        )
        request = AlterClientQuotasRequest(entries=(entry,), validate_only=validate_only)
        response: AlterClientQuotasResponse = await self.cluster.ask(request)
        result = response.entries[0]
        raise_for(result.error_code, result.error_message, about=f"the quotas of {quota_entity_name(entity)}")


def _component(kind: str, name: NameFilter) -> describe_client_quotas.ComponentData:
    if name is ANY_NAME:
        return describe_client_quotas.ComponentData(entity_type=kind, match_type=SPECIFIED, match=None)
    match_type = DEFAULT if name is None else EXACT
    return describe_client_quotas.ComponentData(entity_type=kind, match_type=match_type, match=name)


def quota_entity_name(entity: Mapping[str, str | None]) -> str:
    """Return an entity as text, such as `user 'alice', the default client-id`."""
    order = {USER: 0, CLIENT_ID: 1, IP: 2}
    parts = sorted(entity.items(), key=lambda part: order.get(part[0], len(order)))
    return ", ".join(f"the default {kind}" if name is None else f"{kind} '{name}'" for kind, name in parts)
