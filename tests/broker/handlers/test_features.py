"""UpdateFeatures: accepted and rejected levels, and their effect on ApiVersions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker

from konvene.cluster.catalogue import Catalogue
from konvene.configs import BrokerConfig
from konvene.errors import Errors
from konvene.messages.api_versions import ApiVersionsRequest
from konvene.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from konvene.records.metadata import FeatureLevelRecord
from konvene.shard.contract import Context, Outcome

UP, DOWN, DOWN_UNSAFELY = 1, 2, 3
MV = "metadata.version"


def request(*updates: tuple[str, int, int], validate_only: bool = False) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        validate_only=validate_only,
        feature_updates=tuple(
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ),
    )


def decide(now: int, request: UpdateFeaturesRequest, version: int = 2) -> Outcome:
    """Return the decision of a cluster whose `metadata.version` is `now`."""
    catalogue = Catalogue()
    catalogue.replay(FeatureLevelRecord(name=MV, feature_level=now))
    config, _ = BrokerConfig.load(overrides=[])
    return catalogue.handle(request, Context(0, config, api_version=version))


def answer(outcome: Outcome) -> Any:
    return outcome.replies[0].response


@pytest.mark.parametrize(("now", "level", "kind"), [(30, 33, UP), (31, 30, DOWN), (31, 30, DOWN_UNSAFELY)])
def test_allowed_level_is_written(now: int, level: int, kind: int) -> None:
    """Upgrades to any supported level, and downgrades that lose no record."""
    outcome = decide(now, request((MV, level, kind)))
    assert outcome.records == (FeatureLevelRecord(name=MV, feature_level=level),)
    assert answer(outcome).error_code == Errors.NONE


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ((MV, 99, UP), "only supports versions 7-33"),
        ((MV, -1, UP), "cannot be less than 0"),
        ((MV, 32, UP), "without setting the upgrade type"),
        ((MV, 32, DOWN), "might delete metadata information"),
        ((MV, 32, DOWN_UNSAFELY), "Unsafe metadata downgrade is not supported"),
        ((MV, 33, 9), "does not support the given upgrade type"),
        (("what.version", 1, UP), "does not support this feature"),
        (("what.version", 0, DOWN), "not found"),
    ],
)
def test_invalid_level_rejects_the_request(update: tuple[str, int, int], message: str) -> None:
    """With a message and without results; the other updates are not written either."""
    outcome = decide(33, request((MV, 33, UP), update))
    assert (outcome.records, outcome.effects) == ((), ())
    response = answer(outcome)
    assert (response.error_code, response.results) == (Errors.INVALID_UPDATE_VERSION, ())
    assert message in response.error_message


def test_validating_writes_nothing() -> None:
    outcome = decide(30, request((MV, 33, UP), validate_only=True))
    assert (outcome.records, answer(outcome).error_code) == ((), Errors.NONE)


def test_older_versions_have_a_result_for_each() -> None:
    """As in Kafka. Version 0 has `allow_downgrade` instead of an upgrade type."""
    for version in (0, 1):
        (result,) = answer(decide(33, request((MV, 33, UP)), version)).results
        assert (result.feature, result.error_code, result.error_message) == (MV, 0, "NONE")
    allowed = FeatureUpdateKey(feature=MV, max_version_level=30, allow_downgrade=True)
    assert decide(31, UpdateFeaturesRequest(feature_updates=(allowed,)), 0).records


GV = "group.version"
SV = "streams.version"
SHARE = "share.version"
TV = "transaction.version"


@pytest.mark.parametrize(("now", "level", "kind"), [(0, 1, UP), (1, 0, DOWN), (1, 0, DOWN_UNSAFELY)])
def test_consumer_groups_can_be_enabled_and_disabled(now: int, level: int, kind: int) -> None:
    """At any `metadata.version`, without losing records."""
    catalogue = Catalogue()
    catalogue.replay(FeatureLevelRecord(name=GV, feature_level=now))
    config, _ = BrokerConfig.load(overrides=[])
    outcome = catalogue.handle(request((GV, level, kind)), Context(0, config, api_version=2))
    assert outcome.records == (FeatureLevelRecord(name=GV, feature_level=level),)
    assert answer(outcome).error_code == Errors.NONE


@pytest.mark.parametrize(
    ("update", "message"),
    [((GV, 2, UP), "only supports versions 0-1"), ((GV, 1, DOWN), "to a newer version")],
)
def test_consumer_groups_have_two_levels(update: tuple[str, int, int], message: str) -> None:
    assert message in answer(decide(33, request(update))).error_message


def test_missing_levels_are_added_at_the_start() -> None:
    """A new directory gets all levels, an older one those of newer features. A level of 0 is kept."""
    config, _ = BrokerConfig.load(overrides=[])
    mv, gv, sv, shared, tv = (
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in ((MV, 33), (GV, 1), (SV, 1), (SHARE, 2), (TV, 2))
    )
    lowered = FeatureLevelRecord(name=GV, feature_level=0)
    for log, expected in (
        ((), (mv, gv, sv, shared, tv)),
        ((mv,), (gv, sv, shared, tv)),
        ((mv, gv), (sv, shared, tv)),
        ((mv, lowered, sv, shared, tv), ()),
    ):
        catalogue = Catalogue()
        for record in log:
            catalogue.replay(record)
        assert catalogue.load(Context(0, config)).records == expected


def test_level_0_is_not_finalized_and_hidden_from_older_clients(tmp_path: Path) -> None:
    """A supported range that begins at 0 is returned since version 4."""

    known = {MV, GV, SV, SHARE, TV}

    async def features(client: BrokerClient, version: int) -> tuple[set[str], dict[str, int]]:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        response = await client.send(request, version)
        ranges = {f.name for f in response.supported_features}
        return ranges, {f.name: f.max_version_level for f in response.finalized_features}

    async def first(client: BrokerClient) -> None:
        assert await features(client, 4) == (known, {MV: 33, GV: 1, SV: 1, SHARE: 2, TV: 2})
        assert await features(client, 3) == ({MV}, {MV: 33, GV: 1, SV: 1, SHARE: 2, TV: 2})
        assert (await client.send(request((GV, 0, DOWN)))).error_code == Errors.NONE
        assert await features(client, 4) == (known, {MV: 33, SV: 1, SHARE: 2, TV: 2})

    async def second(client: BrokerClient) -> None:
        assert await features(client, 3) == ({MV}, {MV: 33, SV: 1, SHARE: 2, TV: 2})

    run_with_broker(tmp_path, first)
    run_with_broker(tmp_path, second)


def test_new_level_is_returned_and_survives_a_restart(tmp_path: Path) -> None:
    """ApiVersions has the new level at once, and after a restart."""

    async def level(client: BrokerClient) -> int:
        request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
        (feature,) = [f for f in (await client.send(request)).finalized_features if f.name == MV]
        return int(feature.max_version_level)

    async def first(client: BrokerClient) -> None:
        client.broker.catalogue.state.features[MV] = 31
        assert await level(client) == 31
        response = await client.send(request((MV, 30, DOWN)))
        assert response.error_code == Errors.NONE
        assert await level(client) == 30

    async def second(client: BrokerClient) -> None:
        assert await level(client) == 30

    run_with_broker(tmp_path, first)
    run_with_broker(tmp_path, second)
