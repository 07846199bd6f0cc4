"""ListPartitionReassignments: with one node no partition is ever on its way to another."""

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
