"""DescribeCluster: describe the cluster, whose only broker is this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from konvene.broker.net.authorization import NOT_REQUESTED, Authorization
from konvene.errors import Errors
from konvene.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from konvene.security.resources import CLUSTER, Operation

if TYPE_CHECKING:
    from konvene.broker.catalogue import ClusterCatalogue
    from konvene.broker.settings import BrokerSettings
    from konvene.runtime.coordinator import RequestContext

BROKERS = 1


def handle(
    authorization: Authorization,
    settings: BrokerSettings,
    catalogue: ClusterCatalogue,
    request: DescribeClusterRequest,
    context: RequestContext,
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=Errors.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, but we wanted an endpoint of"
            " type CONTROLLER",
            endpoint_type=request.endpoint_type,
            cluster_id=catalogue.cluster_id,
        )
    host, port = catalogue.advertised_to(context.session.listener)
    return DescribeClusterResponse(
        cluster_id=catalogue.cluster_id,
        controller_id=catalogue.node_id,
        brokers=(
            DescribeClusterBroker(
                broker_id=catalogue.node_id, host=host, port=port, rack=settings.config["broker.rack"]
            ),
        ),
        cluster_authorized_operations=(
            cluster_operations(authorization, context)
            if request.include_cluster_authorized_operations
            else NOT_REQUESTED
        ),
    )


def cluster_operations(authorization: Authorization, context: RequestContext) -> int:
    """Return the operations that the client may perform on the cluster; 0 without DESCRIBE."""
    if not authorization.permits_cluster(context, Operation.DESCRIBE):
        return 0
    return authorization.operations(context, CLUSTER)
