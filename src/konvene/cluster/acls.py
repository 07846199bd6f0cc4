"""CreateAcls and DeleteAcls, as Kafka's `AclControlManager`.

Each ACL and each filter has its own result. An ACL that exists already is not created again: a success.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, TypeVar

from konvene.cluster.state import CatalogueState
from konvene.codec.uuid import Uuid
from konvene.errors import Errors
from konvene.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from konvene.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from konvene.messages.describe_acls import DescribeAclsRequest
from konvene.records.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from konvene.security.acls import WILDCARD, Acl, AclFilter, PatternType, PermissionType
from konvene.security.hosts import check_range
from konvene.security.resources import CLUSTER_NAME, Operation, ResourceType
from konvene.shard.contract import Context, Effect, Outcome, Reply
from konvene.shard.errors import ClusterError

__all__ = ["ACLS_CHANGED", "acl_filter", "create", "delete", "replay", "replay_removal"]

ACLS_CHANGED: Final = "acls-changed"
"""Effect: ACLs were created and deleted. Subject: the created and the deleted ones."""

E = TypeVar("E", bound=IntEnum)


def create(state: CatalogueState, request: CreateAclsRequest, context: Context) -> Outcome:
    """Create the valid ACLs of a CreateAcls request. `context.fresh_ids` has an id for each."""
    results: list[AclCreationResult] = []
    created: dict[Acl, str] = {}
    existing = set(state.acls.values())
    for creation, fresh_id in zip(request.creations, context.fresh_ids, strict=True):
        acl = _acl(creation)
        try:
            _check(acl)
        except ClusterError as invalid:
            results.append(AclCreationResult(error_code=invalid.error, error_message=invalid.message))
            continue
        results.append(AclCreationResult(error_message=None))
        if acl not in existing:
            created.setdefault(acl, fresh_id)
    records = tuple(_record(acl, fresh_id) for acl, fresh_id in created.items())
    return _changed(context, CreateAclsResponse(results=tuple(results)), records, (tuple(created), ()))


def delete(state: CatalogueState, request: DeleteAclsRequest, context: Context) -> Outcome:
    """Delete all ACLs that a filter of a DeleteAcls request selects."""
    results: list[DeleteAclsFilterResult] = []
    deleted: dict[Uuid, Acl] = {}
    for wanted in request.filters:
        selected = acl_filter(wanted)
        if selected.is_unknown:
            is_pattern = 0 in (selected.resource_type, selected.pattern_type)
            message = "Unknown patternFilter." if is_pattern else "Unknown entryFilter."
            results.append(DeleteAclsFilterResult(error_code=Errors.INVALID_REQUEST, error_message=message))
            continue
        matching = {id_: acl for id_, acl in state.acls.items() if selected.matches(acl)}
        deleted |= matching
        results.append(
            DeleteAclsFilterResult(
                error_message=None, matching_acls=tuple(map(_matching, sorted(matching.values())))
            )
        )
    records = tuple(RemoveAccessControlEntryRecord(id=id_) for id_ in deleted)
    response = DeleteAclsResponse(filter_results=tuple(results))
    return _changed(context, response, records, ((), tuple(deleted.values())))


def _changed(
    context: Context,
    response: object,
    records: tuple[object, ...],
    changes: tuple[Iterable[Acl], Iterable[Acl]],
) -> Outcome:
    effects = (Effect(ACLS_CHANGED, changes),) if records else ()
    return Outcome((Reply(context.waiter, response),), records, effects=effects)


def _known(kind: type[E], code: int) -> E:
    """Return the member with this code, the one with code 0 (UNKNOWN) if there is none."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def _acl(creation: AclCreation) -> Acl:
    return Acl(
        _known(ResourceType, creation.resource_type),
        creation.resource_name,
        _known(PatternType, creation.resource_pattern_type),
        creation.principal,
        creation.host,
        _known(Operation, creation.operation),
        _known(PermissionType, creation.permission_type),
    )


def has_unknown_codes(request: AclCreation | DeleteAclsFilter | DescribeAclsRequest) -> bool:
    """Return True if a code is that of no resource type, pattern type, operation or permission.

    Kafka cannot parse such a request, and closes the connection."""
    named = AclFilter(*_acl(request)) if isinstance(request, AclCreation) else acl_filter(request)
    return named.is_unknown


def acl_filter(wanted: DeleteAclsFilter | DescribeAclsRequest) -> AclFilter:
    """Return the filter of a request."""
    return AclFilter(
        _known(ResourceType, wanted.resource_type_filter),
        wanted.resource_name_filter,
        _known(PatternType, wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        _known(Operation, wanted.operation),
        _known(PermissionType, wanted.permission_type),
    )


def _check(acl: Acl) -> None:
    """Raise `ClusterError` with Kafka's message if the ACL is invalid."""
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _invalid(f"Invalid resourceType {acl.resource_type.name}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation in (Operation.UNKNOWN, Operation.ANY):
        raise _invalid(f"Invalid operation {acl.operation.name}")
    if acl.permission_type not in (PermissionType.DENY, PermissionType.ALLOW):
        raise _invalid(f"Invalid permissionType {acl.permission_type.name}")
    if ":" not in acl.principal:
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal"
            " type from the principal name)"
        )
    if not acl.host:
        raise _invalid("Host pattern cannot be null or empty")
    if acl.host != WILDCARD and "/" in acl.host:
        try:
            check_range(acl.host)
        except ValueError as error:
            raise _invalid(f"Invalid CIDR notation '{acl.host}': {error}") from None


def _invalid(message: str) -> ClusterError:
    return ClusterError(Errors.INVALID_REQUEST, message)


def _record(acl: Acl, acl_id: str) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=Uuid.parse(acl_id),
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def replay(state: CatalogueState, record: AccessControlEntryRecord) -> None:
    """Add an ACL."""
    state.acls[record.id] = Acl(
        _known(ResourceType, record.resource_type),
        record.resource_name,
        _known(PatternType, record.pattern_type),
        record.principal,
        record.host,
        _known(Operation, record.operation),
        _known(PermissionType, record.permission_type),
    )


def replay_removal(state: CatalogueState, record: RemoveAccessControlEntryRecord) -> None:
    """Remove an ACL."""
    state.acls.pop(record.id, None)
