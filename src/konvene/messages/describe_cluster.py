"""DescribeCluster (API key 60): lists the brokers or controllers of the cluster.

Errors: MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE, INVALID_REQUEST.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, string


class DescribeClusterRequest(Struct, key=60, versions="0-2", flexible="0+"):
    include_cluster_authorized_operations: bool = boolean("0+")
    """True to include the operations that the caller may perform."""
    endpoint_type: int = int8("1+", default=1)
    """Type of the endpoints: 1 brokers, 2 controllers."""
    include_fenced_brokers: bool = boolean("2+")
    """True to include fenced brokers."""


class DescribeClusterBroker(Struct):
    broker_id: int = int32("0+")
    """Id of the broker."""
    host: str = string("0+")
    """Host name of the endpoint."""
    port: int = int32("0+")
    """Port of the endpoint."""
    rack: str | None = string("0+", nullable="0+", default=None)
    """Rack of the broker; None if it is not configured."""
    is_fenced: bool = boolean("2+")
    """True if the broker is fenced."""


class DescribeClusterResponse(Struct, key=60, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+", default=None)
    """Explanation of the error; None if there is none."""
    endpoint_type: int = int8("1+", default=1)
    """Type of the endpoints: 1 brokers, 2 controllers."""
    cluster_id: str = string("0+")
    """Id of the cluster; None if it is not known."""
    controller_id: int = int32("0+", default=-1)
    """Id of the controller; -1 if there is none."""
    brokers: tuple[DescribeClusterBroker, ...] = array(DescribeClusterBroker, "0+")
    """Brokers or controllers of the cluster."""
    cluster_authorized_operations: int = int32("0+", default=-2147483648)
    """Bit set of the operations on the cluster that the caller may perform."""
