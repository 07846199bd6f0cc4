"""Share fetches of clients with a quota."""

from __future__ import annotations

from pathlib import Path

from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.shares.test_fetch import QUICK, TOPIC, acquired, joined


def test_a_throttled_fetch_has_the_records_that_were_acquired(tmp_path: Path) -> None:
    """They count against `consumer_byte_rate`, and a fetch acquires no more than the quota ever permits."""

    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        quotas, now_ms = broker_client.broker.client_quotas, 1_000
        quotas.clock_ms = lambda: now_ms
        quotas.update([((("user", "ANONYMOUS"),), {"consumer_byte_rate": 100.0})])
        for _ in range(4):
            broker_client.write(TOPIC, bytes(300))
        first = await one.fetch(wait_ms=1000)
        assert (acquired(first), first.throttle_time_ms) == ([(0, 1, 1)], 0)
        second = await one.fetch(wait_ms=1000)
        assert acquired(second) == [(2, 3, 1)]
        assert second.throttle_time_ms > 0

    run_with_broker(tmp_path, scenario, QUICK)
