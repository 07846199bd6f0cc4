"""Differential tests run konvene with Kafka's heartbeat intervals, whatever its default policy is."""

from __future__ import annotations

import re

import pytest
from tests.against.brokers import Konvene
from tests.differential.recordings import RECORDED
from tests.differential.stage import ONLY, PROFILES

from konvene.configs.broker.table import BROKER
from konvene.configs.config import BrokerConfig
from konvene.groups.heartbeat_intervals import heartbeat_interval_ms

POLICY = "konvene.heartbeat.policy"


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_uses_kafkas_heartbeat_policy(profile: str) -> None:
    """The profile overrides the `responsive` default, so responses carry the configured interval."""
    config, _ = BrokerConfig.load(overrides=list((PROFILES[profile] | ONLY[Konvene]).items()))
    assert (config[POLICY], BROKER[POLICY].default) == ("kafka", "responsive")
    assert {heartbeat_interval_ms(5000, config, 1, waits=waits) for waits in (True, False)} == {5000}


def test_recordings_contain_heartbeat_intervals() -> None:
    """Kafka's recorded responses carry the interval, so the other policy would be a difference."""
    intervals = [
        int(interval)
        for page in sorted(RECORDED.glob("*/*.txt"))
        for interval in re.findall(r"heartbeat_interval_ms=(\d+)", page.read_text("utf-8"))
    ]
    assert len(intervals) > 100
    assert 5000 in intervals
