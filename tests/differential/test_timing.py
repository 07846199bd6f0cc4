"""Members are told when to heartbeat as by Kafka wherever answers are compared, whatever is the default."""

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
def test_every_conversation_is_in_kafkas_time(profile: str) -> None:
    """The policy is said, for the default is another; so members are told what is configured."""
    config, _ = BrokerConfig.load(overrides=list((PROFILES[profile] | ONLY[Konvene]).items()))
    assert (config[POLICY], BROKER[POLICY].default) == ("kafka", "responsive")
    assert {heartbeat_interval_ms(5000, config, 1, waits=waits) for waits in (True, False)} == {5000}


def test_the_interval_is_compared() -> None:
    """Kafka's recorded answers tell it: with the other policy they would differ."""
    intervals = [
        int(interval)
        for page in sorted(RECORDED.glob("*/*.txt"))
        for interval in re.findall(r"heartbeat_interval_ms=(\d+)", page.read_text("utf-8"))
    ]
    assert len(intervals) > 100
    assert 5000 in intervals
