"""DescribeClientQuotas (API key 48): lists client quotas.

Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, float64, int8, int16, int32, string


class ComponentData(Struct):
    entity_type: str = string("0+")
    """Type of the entity, such as `user` or `client-id`."""
    match_type: int = int8("0+")
    """How to match the name: 0 exact, 1 default, 2 any."""
    match: str | None = string("0+", nullable="0+")
    """Name to match; None for the other match types."""


class DescribeClientQuotasRequest(Struct, key=48, versions="0-1", flexible="1+"):
    components: tuple[ComponentData, ...] = array(ComponentData, "0+")
    """Entity filters that must all match."""
    strict: bool = boolean("0+")
    """If true, entities with further components do not match."""


class EntityData(Struct):
    entity_type: str = string("0+")
    """Type of the entity, such as `user` or `client-id`."""
    entity_name: str | None = string("0+", nullable="0+")
    """Name of the entity; None for the default of its type."""


class ValueData(Struct):
    key: str = string("0+")
    """Name of the quota."""
    value: float = float64("0+")
    """Value of the quota."""


class EntryData(Struct):
    entity: tuple[EntityData, ...] = array(EntityData, "0+")
    """Components of the entity."""
    values: tuple[ValueData, ...] = array(ValueData, "0+")
    """Quotas of the entity."""


class DescribeClientQuotasResponse(Struct, key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    entries: tuple[EntryData, ...] | None = array(EntryData, "0+", nullable="0+")
    """Entities and their quotas; None after an error."""
