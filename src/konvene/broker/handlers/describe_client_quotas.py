"""DescribeClientQuotas: return the quotas of the entities that match the filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.cluster.client_quotas import describe
from konvene.errors import Errors
from konvene.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from konvene.security.resources import Operation
from konvene.shard.errors import ClusterError

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: DescribeClientQuotasRequest,
    context: RequestContext,
) -> DescribeClientQuotasResponse:
    if not authorization.permits_cluster(context, Operation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(
            error_code=Errors.CLUSTER_AUTHORIZATION_FAILED, error_message=None, entries=None
        )
    try:
        found = describe(catalogue.state, request.components, strict=request.strict)
    except ClusterError as invalid:
        return DescribeClientQuotasResponse(
            error_code=invalid.error, error_message=invalid.message, entries=None
        )
    return DescribeClientQuotasResponse(
        entries=tuple(
            EntryData(
                entity=tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity),
                values=tuple(ValueData(key=key, value=value) for key, value in quotas.items()),
            )
            for entity, quotas in found
        )
    )
