"""DescribeUserScramCredentials: respond with RESOURCE_NOT_FOUND for each user; there are no credentials."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from konvene.errors import Errors
from konvene.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from konvene.runtime.coordinator import RequestContext


def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    counts = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        results=tuple(_result(user, count) for user, count in counts.items())
    )


def _result(user: str, count: int) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return DescribeUserScramCredentialsResult(
            user=user,
            error_code=Errors.DUPLICATE_RESOURCE,
            error_message="Cannot describe SCRAM credentials for the same user twice in a single request:"
            f" {user}",
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=Errors.RESOURCE_NOT_FOUND,
        error_message=f"Attempt to describe a user credential that does not exist: {user}",
    )
