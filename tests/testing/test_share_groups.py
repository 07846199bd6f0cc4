"""Share groups in a test: what is seen of them, what is done to them, and that they can be removed."""

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
    """A member of the group `workers` that has taken as many records as there are kinds, and decided."""
    at_work, enough = threading.Event(), threading.Event()

    async def job() -> None:
        async with Cluster(konvene.bootstrap) as cluster:
            earliest = {"share.auto.offset.reset": "earliest"}
            await Admin(cluster).alter_configs(GROUP_CONFIG, "workers", earliest)
            consumer = ShareConsumer(cluster, "workers", explicit=True, member_id="ann")
            consumer.subscribe(["jobs"])
            got = []
            while len(got) < len(kinds):
                got += await consumer.poll()
            for record, kind in zip(got, kinds, strict=True):
                if kind is not None:
                    consumer.acknowledge(record, kind)
            await consumer.commit()
            at_work.set()
            await asyncio.to_thread(enough.wait, LONG_S)
            await consumer.close()

    thread = threading.Thread(target=asyncio.run, args=(job(),))
    thread.start()
    try:
        assert at_work.wait(LONG_S)
        yield
    finally:
        enough.set()
        thread.join(LONG_S)


@pytest.mark.konvene(topics={"jobs": 1})
def test_a_share_group_shows_who_has_which_records(konvene: Konvene) -> None:
    konvene.produce("jobs", ["a", "b", "c", "d"])
    with worker(konvene, AcknowledgeType.ACCEPT, None, None, AcknowledgeType.RELEASE):
        group = konvene.wait_stable("workers", 1)
        assert group.protocol == "simple"
        assert group.member("ann").assignment == {"jobs": (0,)}
        assert group.offsets == {"jobs": {0: 1}}
        held = [r for r in group.records if r.state == "acquired"]
        assert sorted(o for r in held for o in range(r.first_offset, r.last_offset + 1)) == [1, 2]
        assert {(r.topic, r.partition, r.member_id, r.delivery_count) for r in held} == {
            ("jobs", 0, "ann", 1)
        }
        words = str(group)
        assert "  delivered: jobs-0 1.." in words
        assert "acquired by ann, try 1" in words
        assert "  delivered: jobs-0 3..3 available, try 1" in words
    (first, *_) = konvene.rebalances("workers")
    assert first.causes == ("member-joined",)


@pytest.mark.konvene(topics={"jobs": 1})
def test_faults_are_done_to_members_of_share_groups(konvene: Konvene) -> None:
    konvene.faults.run("lose the next ShareFetch response of group workers")
    konvene.produce("jobs", ["a"])
    with worker(konvene, AcknowledgeType.ACCEPT):
        assert konvene.faults.armed == ()


@pytest.mark.konvene(topics={"jobs": 1})
def test_it_is_removed_with_the_others(konvene: Konvene) -> None:
    konvene.produce("jobs", ["a"])
    with worker(konvene, None):
        konvene.clean()
        assert konvene.group("workers").state in ("Dead", "Empty")


@pytest.mark.konvene(topics={"lines": 1})
def test_streams_groups_are_removed_as_well(konvene: Konvene) -> None:
    """They, too, are described by an API of their own, and have members that nobody can remove by another."""

    async def job() -> None:
        async with Cluster(konvene.bootstrap) as cluster:
            member = StreamsMember(cluster, "app", Topology((Subtopology("0", ("lines",)),)))
            await member.ensure()
            assert (await asyncio.to_thread(konvene.group, "app")).members
            await asyncio.to_thread(konvene.clean)
            assert not (await asyncio.to_thread(konvene.group, "app")).members
            await member.leave()

    asyncio.run(job())
