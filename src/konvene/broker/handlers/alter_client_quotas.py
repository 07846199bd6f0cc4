"""AlterClientQuotas: authorize the request, resolve the hosts in it, and submit it to the catalogue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from konvene.broker.net.host_names import addresses_of
from konvene.cluster.client_quotas import QuotaAlterations
from konvene.errors import MESSAGES, Errors
from konvene.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    ResponseEntryData,
)
from konvene.security.quotas.entities import IP
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    loop: asyncio.AbstractEventLoop,
    catalogue: ClusterCatalogue,
    request: AlterClientQuotasRequest,
    context: RequestContext,
) -> AlterClientQuotasResponse:
    if not authorization.permits_cluster(context, Operation.ALTER_CONFIGS):
        return _failed(request, Errors.CLUSTER_AUTHORIZATION_FAILED)
    hosts = {
        part.entity_name
        for entry in request.entries
        for part in entry.entity
        if part.entity_type == IP and part.entity_name
    }
    unresolvable = frozenset([host for host in sorted(hosts) if not await addresses_of(loop, host)])
    response = await catalogue.submit(QuotaAlterations(request, unresolvable), context)
    if isinstance(response, Errors):
        return _failed(request, response)
    assert isinstance(response, AlterClientQuotasResponse)
    return response


def _failed(request: AlterClientQuotasRequest, error: Errors) -> AlterClientQuotasResponse:
    """Return the error for each entity that the request names."""
    return AlterClientQuotasResponse(
        entries=tuple(
            ResponseEntryData(
                error_code=error,
                error_message=MESSAGES.get(error),
                entity=tuple(
                    EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ),
            )
            for entry in request.entries
        )
    )
