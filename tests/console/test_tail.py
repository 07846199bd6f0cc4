"""The console's reader of the coordinators' logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import RunningBroker, running_broker
from tests.console.running import DEADLINE_S, kill, port_of, served_on

from konvene.client.admin.admin import Admin
from konvene.client.net.cluster import Cluster
from konvene.console.tail import LogTail
from konvene.internal_topics import AUDIT_TOPIC


async def run_until(tail: LogTail, condition: Callable[[], object]) -> None:
    """Read the logs until the condition is fulfilled."""
    running = asyncio.ensure_future(tail.run())
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 (what is awaited has no event)
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait([running])


def test_the_first_group_of_a_cluster_is_found_before_the_interval_of_metadata_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its logs do not exist before."""
    monkeypatch.setattr("konvene.console.tail.METADATA_S", 3600)

    async def job(broker: RunningBroker) -> None:
        async with Cluster(broker.address) as cluster:
            tail = LogTail(cluster, lambda: None)
            await run_until(tail, lambda: tail.state.state == "live")
            await asyncio.to_thread(broker.join, "app", ["orders"], "one")
            await run_until(tail, lambda: tail.history.rebalances_of("app"))

    with running_broker(tmp_path) as broker:
        broker.create("orders", 1)
        asyncio.run(job(broker))


def test_rebalances_before_the_audit_topic_was_found_are_explained_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit topic is created with the first group, so it can be found after the group's records."""
    monkeypatch.setattr("konvene.console.tail.METADATA_S", 3600)

    async def job(broker: RunningBroker) -> None:
        async with Cluster(broker.address) as cluster:
            refresh, refreshes = cluster.refresh, []

            async def without_audit_at_first(*args: Any) -> Any:
                await refresh(*args)
                refreshes.append(args)
                if len(refreshes) == 1:
                    cluster.forget_topic(AUDIT_TOPIC)
                return cluster.metadata

            monkeypatch.setattr(cluster, "refresh", without_audit_at_first)
            tail = LogTail(cluster, lambda: None)
            await run_until(
                tail, lambda: {r.evidence for r in tail.history.rebalances_of("app")} == {"observed"}
            )
            assert ([AUDIT_TOPIC],) in refreshes

    with running_broker(tmp_path) as broker:
        broker.create("orders", 1)
        broker.join("app", ["orders"], "one")
        asyncio.run(job(broker))


def test_another_cluster_is_noticed_although_a_view_read_its_metadata_first(tmp_path: Path) -> None:
    """Its logs are longer than those that were read, so that reading could go on in them."""

    async def job(first: RunningBroker, replace: Callable[[], None]) -> None:
        async with Cluster(first.address) as cluster:
            tail = LogTail(cluster, lambda: None)
            await run_until(tail, lambda: tail.state.state == "live" and tail.history.rebalances_of("app"))
            await asyncio.to_thread(replace)
            await Admin(cluster).list_topics()
            await run_until(tail, lambda: tail.history.rebalances_of("other"))
            assert not tail.history.rebalances_of("app")

    with served_on(tmp_path / "first") as served:
        first = RunningBroker(served.address)
        first.create("orders", 1)
        first.join("app", ["orders"], "one")
        other = served_on(tmp_path / "second", port_of(served))

        def replace() -> None:
            kill(served)
            other.__enter__()
            first.create("orders", 1)
            for offset in range(8):
                for group in ("app", "longer", "log"):
                    first.commit(group, "orders", p0=offset % 2)
            first.join("other", ["orders"], "two")

        try:
            asyncio.run(job(first, replace))
        finally:
            other.__exit__(None, None, None)
