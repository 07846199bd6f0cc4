"""UpdateFeatures: raise a feature's level, or lower it if no metadata in the log would be lost.

The updates of a request are decided together: the first invalid one rejects all. `SUPPORTED` lists the
levels that a cluster may have; a new cluster starts with `LATEST`.
"""

from __future__ import annotations

from collections.abc import Mapping

from konvene.cluster.state import CatalogueState
from konvene.errors import Errors
from konvene.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from konvene.records.metadata import FeatureLevelRecord
from konvene.shard.contract import Context, Effect, Outcome, Reply
from konvene.shard.errors import ClusterError

METADATA_VERSION = "metadata.version"
GROUP_VERSION = "group.version"
"""1 is consumer groups (KIP-848); at 0 their requests are answered UNSUPPORTED_VERSION."""

STREAMS_VERSION = "streams.version"
"""1 is streams groups (KIP-1071)."""

SHARE_VERSION = "share.version"
"""1 is share groups (KIP-932), 2 their dead letter topics (KIP-1191)."""

TRANSACTION_VERSION = "transaction.version"
"""1: the log has flexible record versions; 2: every transaction has an epoch of its own (KIP-890)."""

SUPPORTED: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (7, 33),
    GROUP_VERSION: (0, 1),
    STREAMS_VERSION: (0, 1),
    SHARE_VERSION: (0, 2),
    TRANSACTION_VERSION: (0, 2),
}
"""Features and the lowest and highest level at which this broker can run."""

LATEST: Mapping[str, int] = {name: high for name, (_, high) in SUPPORTED.items()}
"""Feature levels of a new cluster. `metadata.version` 33 is 4.4-IV2."""

METADATA_CHANGED = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33})
"""Levels of `metadata.version` that introduced records: a downgrade may not cross one of them."""

FEATURES_CHANGED = "features-changed"
"""Effect: the feature levels in ApiVersions changed. Subject: the names of the features."""

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
FIRST_VERSION_WITH_UPGRADE_TYPE = 1
FIRST_VERSION_WITHOUT_RESULTS = 2


def update(state: CatalogueState, request: UpdateFeaturesRequest, context: Context) -> Outcome:
    """Set the levels of all features of an UpdateFeatures request, or of none if an update is invalid."""
    updates = {u.feature: u for u in request.feature_updates}
    changed: dict[str, int] = {}
    try:
        for name, wanted in updates.items():
            level = _decide(state, wanted, context)
            if level != state.features.get(name, 0):
                changed[name] = level
    except ClusterError as refusal:
        prefix = "The update failed for all features since the following feature had an error: "
        response = UpdateFeaturesResponse(
            error_code=refusal.error, error_message=f"{prefix}{refusal.message}"
        )
        return Outcome((Reply(context.waiter, response),))
    results: tuple[UpdatableFeatureResult, ...] = ()
    if context.api_version < FIRST_VERSION_WITHOUT_RESULTS:
        results = tuple(UpdatableFeatureResult(feature=name, error_message="NONE") for name in updates)
    reply = Reply(context.waiter, UpdateFeaturesResponse(error_message=None, results=results))
    if request.validate_only or not changed:
        return Outcome((reply,))
    return Outcome(
        (reply,),
        tuple(FeatureLevelRecord(name=name, feature_level=level) for name, level in changed.items()),
        effects=(Effect(FEATURES_CHANGED, tuple(changed)),),
    )


def _decide(state: CatalogueState, wanted: FeatureUpdateKey, context: Context) -> int:
    """Return the feature's new level. Raises `ClusterError` if the update is not permitted."""
    name, level = wanted.feature, wanted.max_version_level
    kind = wanted.upgrade_type
    if context.api_version < FIRST_VERSION_WITH_UPGRADE_TYPE:
        kind = SAFE_DOWNGRADE if wanted.allow_downgrade else UPGRADE
    current = state.features.get(name, 0)
    reason = _invalid_update_message(name, level, current, kind, context.config["node.id"])
    if reason is not None:
        raise ClusterError(
            Errors.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}"
        )
    if name == METADATA_VERSION and any(level < changed <= current for changed in METADATA_CHANGED):
        if kind == UNSAFE_DOWNGRADE:
            reason = "Unsafe metadata downgrade is not supported in this version."
        else:
            reason = (
                "Refusing to perform the requested downgrade because it might delete metadata information."
            )
        raise ClusterError(
            Errors.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
        )
    return level


def _invalid_update_message(name: str, level: int, current: int, kind: int, node_id: int) -> str | None:
    supported = SUPPORTED.get(name)
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if supported is None:
        if level == 0:
            return f"Feature {name} not found."
        return f"Local controller {node_id} does not support this feature."
    if not supported[0] <= level <= supported[1]:
        return f"Local controller {node_id} only supports versions {supported[0]}-{supported[1]}"
    if level < current and kind == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
            " unsafe downgrade."
        )
    if level > current and kind != UPGRADE:
        return "Can't downgrade to a newer version."
    return None
