"""AlterClientQuotas (API key 49): changes client quotas.

Errors: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, float64, int16, int32, string


class EntityData(Struct):
    entity_type: str = string("0+")
    """Type of the entity, such as `user` or `client-id`."""
    entity_name: str | None = string("0+", nullable="0+")
    """Name of the entity; None for the default of its type."""


class OpData(Struct):
    key: str = string("0+")
    """Name of the quota."""
    value: float = float64("0+")
    """New value; ignored for a removal."""
    remove: bool = boolean("0+")
    """True to remove the quota."""


class EntryData(Struct):
    entity: tuple[EntityData, ...] = array(EntityData, "0+")
    """Entity whose quotas are changed."""
    ops: tuple[OpData, ...] = array(OpData, "0+")
    """Changes to the entity's quotas."""


class AlterClientQuotasRequest(Struct, key=49, versions="0-1", flexible="1+"):
    entries: tuple[EntryData, ...] = array(EntryData, "0+")
    """Entities and their changes."""
    validate_only: bool = boolean("0+")
    """If true, the request is checked and nothing is changed."""


class ResponseEntryData(Struct):
    error_code: int = int16("0+")
    """Error of the entity; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    entity: tuple[EntityData, ...] = array(EntityData, "0+")
    """Entity whose quotas are changed."""


class AlterClientQuotasResponse(Struct, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    entries: tuple[ResponseEntryData, ...] = array(ResponseEntryData, "0+")
    """Entities and their changes."""
