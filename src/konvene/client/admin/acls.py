"""Admin methods for ACLs: Kafka's `describeAcls`, `createAcls` and `deleteAcls`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from konvene.client.errors import raise_for
from konvene.client.net.cluster import Cluster
from konvene.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from konvene.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from konvene.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from konvene.security.acls import Acl, AclFilter, PatternType, PermissionType
from konvene.security.resources import Operation, ResourceType

__all__ = ["AclAdmin", "creation_of", "deletion_of"]


def creation_of(acl: Acl) -> AclCreation:
    """Return an ACL as CreateAcls names it."""
    return AclCreation(
        resource_type=acl.resource_type, resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host,
        operation=acl.operation, permission_type=acl.permission_type,
    )  # fmt: skip


def deletion_of(selected: AclFilter | Acl) -> DeleteAclsFilter:
    """Return a filter, or one that selects exactly an ACL, as DeleteAcls names it."""
    return DeleteAclsFilter(**_filter_fields(selected))


def _filter_fields(selected: AclFilter | Acl) -> dict[str, Any]:
    """Return the fields of a filter in DescribeAcls and DeleteAcls."""
    return {
        "resource_type_filter": selected.resource_type,
        "resource_name_filter": selected.resource_name,
        "pattern_type_filter": selected.pattern_type,
        "principal_filter": selected.principal,
        "host_filter": selected.host,
        "operation": selected.operation,
        "permission_type": selected.permission_type,
    }


class AclAdmin:
    """The methods of `Admin` for ACLs."""

    cluster: Cluster

    async def describe_acls(self, acl_filter: AclFilter | None = None) -> list[Acl]:
        """Return the ACLs that the filter selects, all without one, in order. Raises `KafkaError`."""
        request = DescribeAclsRequest(**_filter_fields(acl_filter or AclFilter()))
        response: DescribeAclsResponse = await self.cluster.ask(request)
        raise_for(response.error_code, response.error_message, about="the ACLs")
        return sorted(
            Acl(
                ResourceType(resource.resource_type), resource.resource_name,
                PatternType(resource.pattern_type), acl.principal, acl.host, Operation(acl.operation),
                PermissionType(acl.permission_type),
            )
            for resource in response.resources
            for acl in resource.acls
        )  # fmt: skip

    async def create_acls(self, acls: Sequence[Acl]) -> None:
        """Create ACLs; one that exists stays as it is. Raises `KafkaError` for the first that fails."""
        creations = tuple(map(creation_of, acls))
        response: CreateAclsResponse = await self.cluster.ask(CreateAclsRequest(creations=creations))
        for acl, result in zip(acls, response.results, strict=True):
            raise_for(result.error_code, result.error_message, about=f"the ACL of {acl.principal}")

    async def delete_acls(self, filters: Sequence[AclFilter]) -> int:
        """Delete the ACLs that any of the filters selects; return their number. Raises `KafkaError`."""
        rows = tuple(map(deletion_of, filters))
        response: DeleteAclsResponse = await self.cluster.ask(DeleteAclsRequest(filters=rows))
        for result in response.filter_results:
            raise_for(result.error_code, result.error_message, about="the ACLs")
            for matching in result.matching_acls:
                raise_for(matching.error_code, matching.error_message, about="an ACL")
        return sum(len(result.matching_acls) for result in response.filter_results)
