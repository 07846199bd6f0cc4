"""UpdateFeatures (API key 57): changes feature levels.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, INVALID_REQUEST, INVALID_UPDATE_VERSION,
FEATURE_UPDATE_FAILED.
"""

from __future__ import annotations

from konvene.codec.schema import Struct, array, boolean, int8, int16, int32, string


class FeatureUpdateKey(Struct):
    feature: str = string("0+")
    """Name of the feature."""
    max_version_level: int = int16("0+")
    """New level of the feature; 0 removes it."""
    allow_downgrade: bool = boolean("0")
    """If true, the level may be lowered (version 0)."""
    upgrade_type: int = int8("1+", default=1)
    """1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""


class UpdateFeaturesRequest(Struct, key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    """Time after which the request gives up, in milliseconds."""
    feature_updates: tuple[FeatureUpdateKey, ...] = array(FeatureUpdateKey, "0+")
    """Features to change."""
    validate_only: bool = boolean("1+")
    """If true, the request is checked and nothing is changed."""


class UpdatableFeatureResult(Struct):
    feature: str = string("0+")
    """Name of the feature."""
    error_code: int = int16("0+")
    """Error of the feature; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""


class UpdateFeaturesResponse(Struct, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    """Time for which the broker throttles the client because of a quota, in milliseconds."""
    error_code: int = int16("0+")
    """Error of the whole request; 0 if there is none."""
    error_message: str | None = string("0+", nullable="0+")
    """Explanation of the error; None if there is none."""
    results: tuple[UpdatableFeatureResult, ...] = array(UpdatableFeatureResult, "0-1", ignorable=True)
    """Results, in the order of the request."""
