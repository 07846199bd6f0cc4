"""AlterClientQuotas, as Kafka's `ClientQuotaControlManager`, and the filter of DescribeClientQuotas.

Each entity has its own result, and either all of its changes are made or none. A quota that has the value
already, or that is removed and does not exist, writes no record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from konvene.cluster.state import CatalogueState
from konvene.errors import Errors
from konvene.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    ResponseEntryData,
)
from konvene.messages.describe_client_quotas import ComponentData
from konvene.records.metadata import ClientQuotaRecord
from konvene.records.metadata import EntityData as RecordEntity
from konvene.security.quotas.entities import (
    CLIENT_ID,
    IP,
    USER,
    InvalidQuota,
    QuotaEntity,
    check_entity,
    check_value,
    java_text,
    quota_entity,
    valid_keys,
)
from konvene.shard.contract import Context, Effect, Outcome, Reply
from konvene.shard.errors import ClusterError

__all__ = ["CLIENT_QUOTAS_CHANGED", "QuotaAlterations", "alter", "describe", "replay"]

CLIENT_QUOTAS_CHANGED: Final = "client-quotas-changed"
"""Effect: client quotas were set or removed. Subject: the changed entities."""

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""Match types of DescribeClientQuotas."""


class QuotaAlterations(NamedTuple):
    """An AlterClientQuotas request, and what the broker knows of the hosts in it."""

    request: AlterClientQuotasRequest
    unresolvable_hosts: frozenset[str] = frozenset()
    """Names of the type ip that are neither an address nor a host that can be resolved."""


def alter(state: CatalogueState, alterations: QuotaAlterations, context: Context) -> Outcome:
    """Set and remove the quotas of an AlterClientQuotas request; with `validate_only` only check them."""
    results: dict[QuotaEntity, str | None] = {}
    records: list[ClientQuotaRecord] = []
    for entry in alterations.request.entries:
        entity = quota_entity((part.entity_type, part.entity_name) for part in entry.entity)
        changes = {op.key: None if op.remove else op.value for op in entry.ops}
        if entity in results or len(changes) < len(entry.ops):  # In Kafka also for a repeated key.
            results[entity] = f"Ignoring duplicate entity {java_text(entity)}"
            continue
        try:
            records += _records(state, entity, changes, alterations.unresolvable_hosts)
        except InvalidQuota as invalid:
            results[entity] = str(invalid)
        else:
            results[entity] = None
    response = AlterClientQuotasResponse(entries=tuple(map(_result, results.items())))
    reply = Reply(context.waiter, response)
    if alterations.request.validate_only or not records:
        return Outcome((reply,))
    changed = tuple(dict.fromkeys(_entity(record) for record in records))
    return Outcome((reply,), tuple(records), effects=(Effect(CLIENT_QUOTAS_CHANGED, changed),))


def _records(
    state: CatalogueState,
    entity: QuotaEntity,
    changes: Mapping[str, float | None],
    unresolvable_hosts: frozenset[str],
) -> list[ClientQuotaRecord]:
    """Return the records of the changes. Raises `InvalidQuota` if the entity or one of them is invalid."""
    check_entity(entity)
    keys = valid_keys(entity, unresolvable_hosts)
    current = state.client_quotas.get(entity, {})
    parts = tuple(RecordEntity(entity_type=kind, entity_name=name) for kind, name in entity)
    records: list[ClientQuotaRecord] = []
    for key, value in changes.items():
        if value is None:
            if key in current:
                records.append(ClientQuotaRecord(entity=parts, key=key, remove=True))
            continue
        check_value(keys, key, value)
        if current.get(key) != value:
            records.append(ClientQuotaRecord(entity=parts, key=key, value=value))
    return records


def _result(result: tuple[QuotaEntity, str | None]) -> ResponseEntryData:
    entity, message = result
    return ResponseEntryData(
        error_code=Errors.NONE if message is None else Errors.INVALID_REQUEST,
        error_message=message,
        entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
    )


def _entity(record: ClientQuotaRecord) -> QuotaEntity:
    return quota_entity((part.entity_type, part.entity_name) for part in record.entity)


def replay(state: CatalogueState, record: ClientQuotaRecord) -> None:
    """Set or remove a quota."""
    entity = _entity(record)
    quotas = state.client_quotas.setdefault(entity, {})
    if record.remove:
        quotas.pop(record.key, None)
        if not quotas:
            del state.client_quotas[entity]
    else:
        quotas[record.key] = record.value


def describe(
    state: CatalogueState, components: Iterable[ComponentData], *, strict: bool
) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
    """Return the entities that match all components, with their quotas, as Kafka's `ClientQuotasImage`.

    `strict`: an entity that has other types as well does not match. Raises `ClusterError`."""
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in components:
        _check_component(component, exact.keys() | specified)
        if component.match_type == SPECIFIED:
            specified.add(component.entity_type)
        else:
            exact[component.entity_type] = component.match
    wanted = exact.keys() | specified
    if IP in wanted and wanted & {USER, CLIENT_ID}:
        raise ClusterError(
            Errors.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or"
            " clientId filter component.",
        )
    return [
        (entity, quotas)
        for entity, quotas in state.client_quotas.items()
        if _matches(dict(entity), exact, specified, strict=strict)
    ]


def _matches(
    names: Mapping[str, str | None], exact: Mapping[str, str | None], specified: set[str], *, strict: bool
) -> bool:
    wanted = exact.keys() | specified
    if not wanted <= names.keys() or (strict and wanted != names.keys()):
        return False
    return all(names[kind] == name for kind, name in exact.items())


def _check_component(component: ComponentData, seen: set[str]) -> None:
    """Raise `ClusterError` with Kafka's message if a component is invalid, or if its type was `seen`."""
    kind, match = component.entity_type, component.match
    message = None
    if not kind:
        message = "Invalid empty entity type."
    elif kind in seen:
        message = f"Entity type {kind} cannot appear more than once in the filter."
    elif kind not in (USER, CLIENT_ID, IP):
        raise ClusterError(Errors.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
    elif component.match_type == EXACT:
        if match is None:
            message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
    elif component.match_type in (DEFAULT, SPECIFIED):
        if match is not None:
            name = "DEFAULT" if component.match_type == DEFAULT else "SPECIFIED"
            message = f"Request specified MATCH_TYPE_{name}, but also specified a match string."
    else:
        message = f"Unknown match type {component.match_type}"
    if message is not None:
        raise ClusterError(Errors.INVALID_REQUEST, message)
