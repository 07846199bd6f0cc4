"""Which quota applies to a client, as Kafka's `ClientQuotaManager`: the most specific one of eight levels.

    user and client-id, user and default client-id, user,
    default user and client-id, default user and default client-id, default user,
    client-id, default client-id

The level that applies also decides which clients share a quota: one of a user is shared by all clients of the
user. `QuotaTable.tags` returns user and client id of the sensor that measures a client; the one that does not
matter is empty. While quotas have only one form (user, client-id, or both), clients without a quota are
measured in that form as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote

from konvene.security.quotas.entities import CLIENT_ID, USER, QuotaEntity

__all__ = ["NO_QUOTAS", "QuotaTable", "Tags", "quota_table", "sanitized"]


class _Default(Enum):
    """The type of `DEFAULT`, its only member."""

    DEFAULT = "<default>"


DEFAULT: Final = _Default.DEFAULT

Name: TypeAlias = str | _Default | None
"""A user or client id, the default of its type, or None if the entity has no part of this type."""


class Tags(NamedTuple):
    """User and client id that a sensor measures; one of them is empty if it does not matter."""

    user: str
    client_id: str


class QuotaTable:
    """The quotas of one key, such as `producer_byte_rate`, by entity: an immutable value."""

    __slots__ = ("_forms", "_limits")

    def __init__(self, limits: Mapping[tuple[Name, Name], float]) -> None:
        """`limits`: values by user and client id."""
        self._limits = dict(limits)
        self._forms = {(user is not None, client_id is not None) for user, client_id in limits}

    def __repr__(self) -> str:
        return f"<{len(self._limits)} quotas>"

    def __bool__(self) -> bool:
        return bool(self._limits)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QuotaTable) and self._limits == other._limits

    __hash__ = None  # type: ignore[assignment]

    def tags(self, user: str, client_id: str) -> Tags:
        """Return the sensor that measures a client."""
        forms = self._forms
        if len(forms) <= 1:
            has_user, has_client_id = next(iter(forms), (False, True))
            return Tags(user if has_user else "", client_id if has_client_id else "")
        limits = self._limits
        if (user, client_id) in limits or (user, DEFAULT) in limits:
            return Tags(user, client_id)
        if (user, None) in limits:
            return Tags(user, "")
        if (DEFAULT, client_id) in limits or (DEFAULT, DEFAULT) in limits:
            return Tags(user, client_id)
        if (DEFAULT, None) in limits:
            return Tags(user, "")
        return Tags("", client_id)

    def limit(self, tags: Tags) -> float | None:
        """Return the quota of a sensor; None if it has none."""
        user, client_id = tags
        candidates: tuple[tuple[Name, Name], ...]
        if user and client_id:
            candidates = (user, client_id), (user, DEFAULT), (DEFAULT, client_id), (DEFAULT, DEFAULT)
        elif user:
            candidates = (user, None), (DEFAULT, None)
        elif client_id:
            candidates = (None, client_id), (None, DEFAULT)
        else:
            return None
        limits = self._limits
        return next((limits[entity] for entity in candidates if entity in limits), None)


NO_QUOTAS: Final = QuotaTable({})


def quota_table(key: str, quotas: Iterable[tuple[QuotaEntity, Mapping[str, float]]]) -> QuotaTable:
    """Return the table of one key from the quotas of all entities; those of addresses are left out."""
    limits: dict[tuple[Name, Name], float] = {}
    for entity, values in quotas:
        names = dict(entity)
        if key in values and names.keys() <= {USER, CLIENT_ID}:
            limits[_name(names, USER), _name(names, CLIENT_ID)] = values[key]
    return QuotaTable(limits) if limits else NO_QUOTAS


def _name(names: Mapping[str, str | None], kind: str) -> Name:
    if kind not in names:
        return None
    name = names[kind]
    return DEFAULT if name is None else name


def sanitized(user: str) -> str:
    """Return a user as in the tags of metrics: encoded as in a URL (Kafka's `Sanitizer`)."""
    return quote(user, safe="").replace("~", "%7E")
