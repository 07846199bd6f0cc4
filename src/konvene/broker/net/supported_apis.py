"""Builds the ApiVersions response: the versions of APIs and the features that this broker supports."""

from __future__ import annotations

from collections.abc import Collection

from konvene.broker.catalogue import ClusterCatalogue
from konvene.cluster.features import SUPPORTED
from konvene.errors import Errors
from konvene.messages import API_KEYS, API_VERSIONS
from konvene.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

PRODUCE = 0

MIN_ADVERTISED_VERSIONS = {PRODUCE: 0}
"""As Kafka since 4.0: some clients take a missing Produce 0 for a broker that cannot compress."""

FIRST_VERSION_WITH_LEVEL_0 = 4
"""Older clients cannot parse a feature whose range begins at level 0, so it is left out (KAFKA-17492)."""


class SupportedApis:
    """The versions of each API and the features that are advertised."""

    def __init__(self, api_keys: Collection[int], catalogue: ClusterCatalogue) -> None:
        self._catalogue = catalogue
        self._advertised = tuple(_versions(key) for key in sorted(api_keys))

    def __repr__(self) -> str:
        return f"<{len(self._advertised)} advertised APIs>"

    def response(self, api_version: int) -> ApiVersionsResponse:
        """Return the response to an ApiVersions request of this version."""
        return ApiVersionsResponse(
            api_keys=self._advertised,
            supported_features=tuple(
                SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in SUPPORTED.items()
                if low > 0 or api_version >= FIRST_VERSION_WITH_LEVEL_0
            ),
            finalized_features_epoch=self._catalogue.end_offset,
            finalized_features=tuple(
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in sorted(self._catalogue.state.features.items())
                if level > 0
            ),
        )


def unsupported_version() -> ApiVersionsResponse:
    """Return the response to an ApiVersions request of an unknown version, with the supported versions."""
    api = API_KEYS[API_VERSIONS]
    known = ApiVersion(api_key=API_VERSIONS, min_version=api.versions.first, max_version=api.latest_stable)
    return ApiVersionsResponse(error_code=Errors.UNSUPPORTED_VERSION, api_keys=(known,))


def _versions(key: int) -> ApiVersion:
    api = API_KEYS[key]
    first = MIN_ADVERTISED_VERSIONS.get(key, api.versions.first)
    return ApiVersion(api_key=key, min_version=first, max_version=api.latest_stable)
