"""DescribeUserScramCredentials: list the mechanisms and iterations of users; salts and keys stay here."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from konvene.cluster.scram import MECHANISM_CODES
from konvene.errors import Errors
from konvene.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from konvene.security.resources import Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.net.authorization import Authorization
    from konvene.runtime.coordinator import RequestContext


def handle(
    authorization: Authorization,
    catalogue: ClusterCatalogue,
    request: DescribeUserScramCredentialsRequest,
    context: RequestContext,
) -> DescribeUserScramCredentialsResponse:
    if not authorization.permits_cluster(context, Operation.DESCRIBE):
        denied = Errors.CLUSTER_AUTHORIZATION_FAILED
        unnamed = DescribeUserScramCredentialsResult(error_code=denied, error_message=None)  # As in Kafka.
        return DescribeUserScramCredentialsResponse(
            error_code=denied, error_message=None, results=(unnamed,) * len(request.users or ())
        )
    counts = Counter(user.name for user in request.users or ())
    if not counts:
        counts = Counter({user for user, _ in catalogue.state.scram})
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=tuple(_result(catalogue, user, count) for user, count in sorted(counts.items())),
    )


def _result(catalogue: ClusterCatalogue, user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=Errors.DUPLICATE_RESOURCE,
            error_message="Cannot describe SCRAM credentials for the same user twice in a single request:"
            f" {user}",
        )
    credentials = tuple(
        CredentialInfo(mechanism=code, iterations=credential.iterations)
        for code, mechanism in MECHANISM_CODES.items()
        if (credential := catalogue.state.scram.get((user, mechanism))) is not None
    )
    if not credentials:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=Errors.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=credentials)
