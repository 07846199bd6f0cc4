"""ApiVersions (API key 18): lists the supported APIs and features.

Errors: UNSUPPORTED_VERSION, INVALID_REQUEST, REBOOTSTRAP_REQUIRED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Struct, key=18, versions="0-5", flexible="3+"):
    client_software_name: str = string("3+", ignorable=True)
    """Name of the client library."""
    client_software_version: str = string("3+", ignorable=True)
    """Version of the client library."""
    cluster_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    """Cluster id that the client expects; None if it expects none."""
    node_id: int = int32("5+", default=-1, ignorable=True)
    """Node id that the client expects; -1 if it expects none."""


class ApiVersion(Struct):
    api_key: int = int16("0+")
    """Key of the API."""
    min_version: int = int16("0+")
    """Lowest supported version."""
    max_version: int = int16("0+")
    """Highest supported version."""


class SupportedFeatureKey(Struct):
    name: str = string("3+")
    """Name of the feature."""
    min_version: int = int16("3+")
    """Lowest supported level."""
    max_version: int = int16("3+")
    """Highest supported level."""


class FinalizedFeatureKey(Struct):
    name: str = string("3+")
    """Name of the feature."""
    max_version_level: int = int16("3+")
    """Highest finalized level."""
    min_version_level: int = int16("3+")
    """Lowest finalized level."""


class ApiVersionsResponse(Struct, key=18, versions="0-5", flexible="3+"):
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    api_keys: tuple[ApiVersion, ...] = array(ApiVersion, "0+")
    """Supported APIs and their versions."""
    throttle_time_ms: int = int32("1+", ignorable=True)
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    supported_features: tuple[SupportedFeatureKey, ...] = array(
        SupportedFeatureKey, "3+", tag=0, ignorable=True
    )
    """Features that the broker supports."""
    finalized_features_epoch: int = int64("3+", default=-1, tag=1, ignorable=True)
    """Epoch of the finalized features; -1 if it is not known."""
    finalized_features: tuple[FinalizedFeatureKey, ...] = array(
        FinalizedFeatureKey, "3+", tag=2, ignorable=True
    )
    """Features that are finalized in the cluster."""
    zk_migration_ready: bool = boolean("3+", tag=3, ignorable=True)
    """True if the node supports the migration from ZooKeeper."""
