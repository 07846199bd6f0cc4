"""ListPartitionReassignments: return none, since the cluster has one node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from konvene.runtime.coordinator import RequestContext


def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
