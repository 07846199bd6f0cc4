"""Entities that have quotas, and which quotas each may have, as Kafka's `ClientQuotaControlManager`.

An entity is a user, a client id, both, or an IP address. A name of None is the default of its type.

    user, client-id, both   producer_byte_rate, consumer_byte_rate, request_percentage,
                            controller_mutation_rate
    ip                      connection_creation_rate
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, TypeAlias

__all__ = [
    "CLIENT_ID", "CONNECTION_CREATION_RATE", "CONSUMER_BYTE_RATE", "CONTROLLER_MUTATION_RATE", "IP",
    "PRODUCER_BYTE_RATE", "REQUEST_PERCENTAGE", "TYPES", "USER", "InvalidQuota", "QuotaEntity",
    "check_entity", "check_value", "java_text", "quota_entity", "valid_keys",
]  # fmt: skip

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

TYPES: Final = (CLIENT_ID, IP, USER)
"""The types of entities, in the order in which Kafka writes those of one entity."""

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"


class ValueType(Enum):
    """Types of quota values: the name of the type in messages, and the largest value of an integral one."""

    DOUBLE = None
    LONG = float(2**63 - 1)
    INT = float(2**31 - 1)


USER_AND_CLIENT_KEYS: Final[Mapping[str, ValueType]] = {
    PRODUCER_BYTE_RATE: ValueType.LONG,
    CONSUMER_BYTE_RATE: ValueType.LONG,
    REQUEST_PERCENTAGE: ValueType.DOUBLE,
    CONTROLLER_MUTATION_RATE: ValueType.DOUBLE,
}
IP_KEYS: Final[Mapping[str, ValueType]] = {CONNECTION_CREATION_RATE: ValueType.INT}

QuotaEntity: TypeAlias = tuple[tuple[str, str | None], ...]
"""Pairs of type and name, at most one of each type, in the order of `TYPES`; other types come last."""

MAX_FRACTION: Final = 1e-6
"""Largest fraction of a value that counts as integral."""


class InvalidQuota(Exception):
    """An entity or a quota is invalid; the message is Kafka's."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of these types and names. Of a repeated type the last name counts."""
    order = {kind: index for index, kind in enumerate(TYPES)}
    return tuple(sorted(dict(parts).items(), key=lambda part: (order.get(part[0], len(order)), part[0])))


def java_text(entity: QuotaEntity) -> str:
    """Return an entity as Java's `ClientQuotaEntity.toString` writes it."""
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{entries}}})"


def check_entity(entity: QuotaEntity) -> None:
    """Raise `InvalidQuota` if the entity has an unknown type or an empty name, or is empty."""
    if not entity:
        raise InvalidQuota("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in TYPES:
            raise InvalidQuota(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidQuota(f"Empty {kind} not supported")


def valid_keys(entity: QuotaEntity, unresolvable: frozenset[str] = frozenset()) -> Mapping[str, ValueType]:
    """Return the keys of the quotas that the entity may have, with the types of their values.

    `unresolvable`: names of the type ip that are neither an address nor a host. Raises `InvalidQuota`."""
    names = dict(entity)
    if IP not in names:
        return USER_AND_CLIENT_KEYS
    if len(names) > 1:
        raise InvalidQuota(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    if names[IP] in unresolvable:
        raise InvalidQuota(f"{names[IP]} is not a valid IP or resolvable host.")
    return IP_KEYS


def check_value(keys: Mapping[str, ValueType], key: str, value: float) -> None:
    """Raise `InvalidQuota` if the key is not one of `keys`, or if the value is invalid for it."""
    kind = keys.get(key)
    if kind is None:
        raise InvalidQuota(f"Invalid configuration key {key}")
    if value <= 0:
        raise InvalidQuota(f"Quota {key} must be greater than 0")
    if kind.value is None:
        return
    if value > kind.value:
        article = "an" if kind is ValueType.INT else "a"
        raise InvalidQuota(f"Proposed value for {key} is too large for {article} {kind.name}.")
    if value % 1.0 > MAX_FRACTION:
        raise InvalidQuota(f"{key} cannot be a fractional value.")
