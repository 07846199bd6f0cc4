"""The first heartbeat of a connection is answered with the assignment: the response before it may be lost.

librdkafka closes its connection when a heartbeat times out, and repeats the heartbeat on the next one without
asking for the assignment.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.net.holds import join_and_hold, responsive
from tests.broker.net.raw_connections import Line, joining, staying
from tests.broker.net.test_hold_share import AT_ONCE, SHARE_HEARTBEAT, heartbeat, partitions
from tests.broker.net.test_hold_share import join_and_hold as share_join_and_hold


@pytest.mark.parametrize("policy", ["responsive", "kafka"])
def test_first_heartbeat_of_a_connection_gets_the_assignment(tmp_path: Path, policy: str) -> None:
    """Only once, and not with Kafka's policy."""

    async def main() -> None:
        async with responsive(tmp_path, konvene_heartbeat_policy=policy) as broker:
            a = await Line.to(broker, None)
            joined = await a.beat(joining("a", "orders"))
            assert joined.assignment is not None
            for _ in range(2):
                assert (await a.beat(staying("a", joined.member_epoch))).assignment is None
            again = await Line.to(broker, None)
            first = await again.beat(staying("a", joined.member_epoch))
            assert first.assignment == (joined.assignment if policy == "responsive" else None)
            assert first.member_epoch == joined.member_epoch
            for _ in range(2):
                assert (await again.beat(staying("a", joined.member_epoch))).assignment is None

    asyncio.run(main())


def test_rejected_heartbeat_does_not_count(tmp_path: Path) -> None:
    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, again = await Line.to(broker, None), await Line.to(broker, None)
            joined = await a.beat(joining("a", "orders"))
            assert (await again.beat(staying("a", joined.member_epoch + 1))).error_code
            assert (await again.beat(staying("a", joined.member_epoch))).assignment == joined.assignment

    asyncio.run(main())


def test_member_that_moves_to_a_new_epoch_gets_its_unchanged_assignment(tmp_path: Path) -> None:
    """Such a heartbeat is usually answered by the fast path, without the assignment."""

    async def main() -> None:
        async with responsive(tmp_path, num_partitions="1") as broker:
            a, b = await Line.to(broker, None), await Line.to(broker, None)
            joined = await a.beat(joining("a", "orders"))
            await b.beat(joining("b", "orders"))
            again = await Line.to(broker, None)
            first = await again.beat(staying("a", joined.member_epoch))
            assert (first.member_epoch, first.assignment) == (joined.member_epoch + 1, joined.assignment)

    asyncio.run(main())


def test_held_member_that_reconnects_gets_its_assignment(tmp_path: Path) -> None:
    """Although the response to its heartbeat is cached."""

    async def main() -> None:
        async with responsive(tmp_path) as broker:
            a, again = await Line.to(broker), await Line.to(broker)
            epoch = await join_and_hold(broker, a)
            assert (await again.beat(staying("a", epoch))).assignment is not None

    asyncio.run(main())


def test_share_member_that_reconnects_gets_its_assignment(tmp_path: Path) -> None:
    async def main() -> None:
        async with responsive(tmp_path, **AT_ONCE) as broker:
            a, again = await Line.to(broker), await Line.to(broker)
            epoch = await share_join_and_hold(broker, a)
            first = await again.ask(SHARE_HEARTBEAT, 1, heartbeat("a", epoch))
            assert partitions(first) == [0, 1]
            assert (await again.ask(SHARE_HEARTBEAT, 1, heartbeat("a", epoch))).assignment is None

    asyncio.run(main())
