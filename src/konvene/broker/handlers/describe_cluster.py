"""DescribeCluster: this node, as the only broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.handlers.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from konvene.errors import Errors
from konvene.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from konvene.broker.broker import Broker
    from konvene.runtime.coordinator import Call

BROKERS = 1


def handle(broker: Broker, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=Errors.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of"
            " type CONTROLLER",
            endpoint_type=request.endpoint_type,
            cluster_id=broker.cluster_id,
        )
    host, port = broker.advertised
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=(
            DescribeClusterBroker(
                broker_id=broker.node_id, host=host, port=port, rack=broker.config["broker.rack"]
            ),
        ),
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
