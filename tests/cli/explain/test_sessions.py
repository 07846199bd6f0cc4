"""`konvene explain` of members whose sessions expired: the time before is a bound, or unknown."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.cli.explain.test_explain import CLASSIC, CONSUMER, lines, run

from konvene.client.net.connection import Connection
from konvene.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from konvene.testing import broker


def test_killed_member_of_a_broker_has_a_bound(tmp_path: Path) -> None:
    """The audit has the session timeout of the group, also for groups whose records lack it."""
    joins = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m1", member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",), topic_partitions=(),
    )  # fmt: skip
    with broker({"offsets.topic.num.partitions": "1"}, {"orders": 2}, tmp_path / "data") as konvene:

        async def join() -> None:
            connection = await Connection.open("127.0.0.1", konvene.port, client_id="c")
            await connection.send(joins, 1)
            connection.close()
            await asyncio.sleep(0.01)  # The expiry is later than the assignment, in milliseconds.

        asyncio.run(join())
        konvene.faults.run("expire the session of member m1 now")
        konvene.wait_group("g", lambda found: found.state == "Empty", timeout=30)
    expired = lines(run(str(tmp_path / "data"), "--json"))[0]
    assert (expired["cause"], expired["evidence"]) == ("session-expired", "observed")
    assert (expired["silent_units"], expired["session_timeout_ms"]) == (2, 45_000)
    assert 0 < expired["silent_ms"] <= 90_000
    assert "2 partitions may have had no reader before, for up to" in expired["sentence"]


def test_summary_has_the_time_before_sessions_expired() -> None:
    """As a bound for classic groups, and as unknown for a log of Kafka's without their timeouts."""
    bounded = run(CLASSIC).out
    assert re.search(
        r"PARTITION-SECONDS without the time before a session expired: at most [\d.,]+ in ", bounded
    )
    unknown = run(CONSUMER, "--group", "basic")
    assert (
        "PARTITION-SECONDS without the time before a session expired: unknown in 4 rebalances, since the log "
        "does not record the session timeout.\n"
    ) in unknown.out
    assert "session expired" not in run(CONSUMER, "--group", "basic", "--until", "2026-11-21T02:17:10").out
