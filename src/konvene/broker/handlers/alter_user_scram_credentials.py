"""AlterUserScramCredentials: authorize the request and submit it to the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


async def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: AlterUserScramCredentialsRequest,
    context: RequestContext,
) -> AlterUserScramCredentialsResponse:
    if not authorization.permits_cluster(context, Operation.ALTER):
        return _failed(request, Errors.CLUSTER_AUTHORIZATION_FAILED)
    response = await catalogue.submit(request, context)
    if isinstance(response, Errors):
        return _failed(request, response)
    assert isinstance(response, AlterUserScramCredentialsResponse)
    return response


def _failed(request: AlterUserScramCredentialsRequest, error: Errors) -> AlterUserScramCredentialsResponse:
    """Return the error for each user that the request names."""
    deleted = [deletion.name for deletion in request.deletions]
    users = dict.fromkeys([*deleted, *(upsertion.name for upsertion in request.upsertions)])
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user=user, error_code=error, error_message=None) for user in users
        )
    )
