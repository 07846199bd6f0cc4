"""Share groups under `Konvene`: views, faults, and removal by `clean`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from konvene.client import (
    AcknowledgeType,
    Admin,
    Cluster,
    ShareConsumer,
    StreamsMember,
    Subtopology,
    Topology,
)
from konvene.client.admin.admin import GROUP_CONFIG
from konvene.testing import Konvene

LONG_S = 30


@contextmanager
def worker(konvene: Konvene, *kinds: AcknowledgeType | None) -> Iterator[None]:
    """Run a member of the group `workers` that acquires one record per kind and acknowledges it; None leaves
    it acquired."""
    acknowledged, finished = threading.Event(), threading.Event()

    async def job() -> None:
        async with Cluster(konvene.bootstrap) as cluster:
            earliest = {"share.auto.offset.reset": "earliest"}
            await Admin(cluster).alter_configs(GROUP_CONFIG, "workers", earliest)
            consumer = ShareConsumer(cluster, "workers", explicit=True, member_id="ann")
            consumer.subscribe(["jobs"])
            records = []
            while len(records) < len(kinds):
                records += await consumer.poll()
            for record, kind in zip(records, kinds, strict=True):
                if kind is not None:
                    consumer.acknowledge(record, kind)
            await consumer.commit()
            acknowledged.set()
            await asyncio.to_thread(finished.wait, LONG_S)
            await consumer.close()

    thread = threading.Thread(target=asyncio.run, args=(job(),))
    thread.start()
    try:
        assert acknowledged.wait(LONG_S)
        yield
    finally:
        finished.set()
        thread.join(LONG_S)


@pytest.mark.konvene(topics={"jobs": 1})
def test_share_group_view_shows_acquired_records(konvene: Konvene) -> None:
    konvene.produce("jobs", ["a", "b", "c", "d"])
    with worker(konvene, AcknowledgeType.ACCEPT, None, None, AcknowledgeType.RELEASE):
        group = konvene.wait_stable("workers", 1)
        assert group.protocol == "simple"
        assert group.member("ann").assignment == {"jobs": (0,)}
        assert group.offsets == {"jobs": {0: 1}}
        acquired = [r for r in group.records if r.state == "acquired"]
        assert sorted(o for r in acquired for o in range(r.first_offset, r.last_offset + 1)) == [1, 2]
        assert {(r.topic, r.partition, r.member_id, r.delivery_count) for r in acquired} == {
            ("jobs", 0, "ann", 1)
        }
        description = str(group)
        assert "  delivered: jobs-0 1.." in description
        assert "acquired by ann, delivery 1" in description
        assert "  delivered: jobs-0 3..3 available, delivery 1" in description
    (first, *_) = konvene.rebalances("workers")
    assert first.causes == ("member-joined",)


@pytest.mark.konvene(topics={"jobs": 1})
def test_faults_match_share_group_requests(konvene: Konvene) -> None:
    konvene.faults.run("lose the next ShareFetch response of group workers")
    konvene.produce("jobs", ["a"])
    with worker(konvene, AcknowledgeType.ACCEPT):
        assert konvene.faults.armed == ()


@pytest.mark.konvene(topics={"jobs": 1})
def test_clean_removes_share_groups(konvene: Konvene) -> None:
    konvene.produce("jobs", ["a"])
    with worker(konvene, None):
        konvene.clean()
        assert konvene.group("workers").state in ("Dead", "Empty")


@pytest.mark.konvene(topics={"lines": 1})
def test_clean_removes_streams_groups(konvene: Konvene) -> None:
    """Streams groups have an API of their own for describing, and members leave only by heartbeats."""

    async def job() -> None:
        async with Cluster(konvene.bootstrap) as cluster:
            member = StreamsMember(cluster, "app", Topology((Subtopology("0", ("lines",)),)))
            await member.ensure()
            assert (await asyncio.to_thread(konvene.group, "app")).members
            await asyncio.to_thread(konvene.clean)
            assert not (await asyncio.to_thread(konvene.group, "app")).members
            await member.leave()

    asyncio.run(job())
