"""`VirtualKonvene`: virtual time, faults, killed hosts, and determinism by seed."""

from __future__ import annotations

import asyncio

import pytest

from konvene.client import Admin, ClientError, Consumer, MemberSettings
from konvene.shard import causes
from konvene.testing import Record, VirtualKonvene, virtual

pytestmark = pytest.mark.konvene(topics={"orders": 4})


async def read(konvene: VirtualKonvene, client: str, got: list[bytes], **member: str) -> None:
    """Consume `orders` as a member of the group readers, for ever."""
    async with konvene.cluster(client) as cluster:
        settings = MemberSettings(**member)  # type: ignore[arg-type]
        async with Consumer(cluster, "readers", auto_offset_reset="earliest", member=settings) as consumer:
            consumer.subscribe(["orders"])
            while True:
                got += [record.value or b"" for record in await consumer.poll()]


def test_session_expiry_in_virtual_time(virtual_konvene: VirtualKonvene) -> None:
    """A killed member is removed after its session timeout, after an hour of virtual time."""

    async def main() -> str:
        got: list[bytes] = []
        virtual_konvene.spawn("ann", read(virtual_konvene, "ann", got))
        await virtual_konvene.wait_stable("readers", 1)
        await virtual_konvene.produce("orders", ["a", "b", "c"])
        await virtual_konvene.until(lambda: sorted(got) == [b"a", b"b", b"c"])
        await asyncio.sleep(3600)
        assert virtual_konvene.group("readers").generation == 1
        virtual_konvene.kill_host("ann")
        died = virtual_konvene.now
        await virtual_konvene.until(lambda: virtual_konvene.group("readers").state == "Empty")
        assert 40 < virtual_konvene.now - died < 46
        return "done"

    assert virtual_konvene.run(main) == "done"
    assert virtual_konvene.now > 3600
    rebalances = virtual_konvene.rebalances("readers")
    assert [row.causes for row in rebalances] == [(causes.MEMBER_JOINED,), (causes.SESSION_EXPIRED,)]


def test_faults_work_in_virtual_time(virtual_konvene: VirtualKonvene) -> None:
    """Lost and held messages and expired sessions, by methods and by sentences."""
    faults = virtual_konvene.faults

    async def main() -> None:
        virtual_konvene.spawn("ann", read(virtual_konvene, "ann", [], group_instance_id="a"))
        await virtual_konvene.wait_stable("readers", 1)
        (lost,) = faults.run("lose the next heartbeat response of instance a")
        await virtual_konvene.until(lambda: lost.applied)
        held = faults.hold("Heartbeat", client="ann")
        await virtual_konvene.until(lambda: held.applied)
        held.release()
        await asyncio.sleep(60)
        assert virtual_konvene.group("readers").generation == 1
        faults.run("expire the session of instance a now")
        await virtual_konvene.until(lambda: virtual_konvene.group("readers").generation == 3)
        await virtual_konvene.wait_stable("readers", 1)

    virtual_konvene.run(main)
    assert [row.causes for row in virtual_konvene.rebalances()][1] == (causes.SESSION_EXPIRED,)
    assert len(faults.log) == 3


@pytest.mark.parametrize("how", ["stop", "kill", "power cut", "fault"])
def test_groups_survive_a_broker_restart(virtual_konvene: VirtualKonvene, how: str) -> None:
    """The member stays in its generation after a stop, a kill, a power cut and a restart fault."""

    async def main() -> None:
        got: list[bytes] = []
        virtual_konvene.spawn("ann", read(virtual_konvene, "ann", got))
        await virtual_konvene.wait_stable("readers", 1)
        if how == "fault":
            virtual_konvene.faults.run("kill and restart the broker")
        elif how == "power cut":
            virtual_konvene.kill(power_cut=True)
            await asyncio.sleep(5)
            await virtual_konvene.start()
        else:
            await virtual_konvene.restart(kill=how == "kill")
        await virtual_konvene.until(lambda: virtual_konvene.group("readers").members != ())
        await virtual_konvene.produce("orders", ["after"])
        await virtual_konvene.until(lambda: got == [b"after"])
        assert [r.value for r in await virtual_konvene.records("orders")] == [b"after"]
        assert virtual_konvene.group("readers").generation == 1

    virtual_konvene.run(main)


def test_held_request_is_dropped_when_the_broker_is_killed(virtual_konvene: VirtualKonvene) -> None:
    """A request released after the kill is not delivered to the restarted broker."""

    async def main() -> None:
        held = virtual_konvene.faults.hold("CreateTopics", client="bob")
        async with virtual_konvene.cluster("bob") as cluster:
            creating = asyncio.ensure_future(Admin(cluster).create_topic("late"))
            await virtual_konvene.until(lambda: held.applied)
            virtual_konvene.kill()
            held.release()
            with pytest.raises(ClientError):
                await creating
            await virtual_konvene.start()
            await Admin(cluster).create_topic("later")
            assert sorted(virtual_konvene.with_broker(lambda b: [*b.catalogue.topics.by_name]))[-2:] == [
                "later",
                "orders",
            ]

    virtual_konvene.run(main)


def test_wait_stable_times_out_in_virtual_time(virtual_konvene: VirtualKonvene) -> None:
    """The error names the condition and the time limit."""

    async def main() -> None:
        with pytest.raises(TimeoutError, match=r"not group readers Stable with 2 members within 300.0 s"):
            await virtual_konvene.wait_stable("readers", 2)

    virtual_konvene.run(main)
    assert virtual_konvene.now > 300


def test_same_seed_gives_the_same_run() -> None:
    """Member ids, offsets and times are equal; another seed gives other ids."""

    def once(seed: int) -> object:
        with virtual(topics={"orders": 2}, seed=seed) as konvene:

            async def main() -> object:
                for name in ("ann", "bob"):
                    konvene.spawn(name, read(konvene, name, []))
                group = await konvene.wait_stable("readers", 2)
                await konvene.produce("orders", ["a", "b"])
                return group, await konvene.records("orders"), konvene.now

            return konvene.run(main)

    assert once(1) == once(1)
    assert once(1) != once(2)


def test_records_and_committed_offsets_are_seeded(virtual_konvene: VirtualKonvene) -> None:
    """As in real time; timestamps are virtual by default."""

    async def main() -> None:
        await asyncio.sleep(60)
        began_ms = virtual_konvene.clock_ms()
        (made, _) = await virtual_konvene.produce(
            "orders", ["a", Record("b", headers={"n": "1"}, timestamp_ms=5)], key="k", partition=1
        )
        assert made.partition == 1
        assert began_ms <= made.timestamp <= virtual_konvene.clock_ms()
        first, second = await virtual_konvene.records("orders")
        assert (first.key, first.timestamp) == (b"k", made.timestamp)
        assert (second.headers, second.timestamp) == ((("n", b"1"),), 5)
        await virtual_konvene.commit("readers", {("orders", 1): 1})
        group = virtual_konvene.group("readers")
        assert (group.state, group.offsets) == ("Empty", {"orders": {1: 1}})
        got: list[bytes] = []
        virtual_konvene.spawn("ann", read(virtual_konvene, "ann", got))
        await virtual_konvene.until(lambda: got == [b"b"])

    virtual_konvene.run(main)


def test_reserved_host_names_are_rejected(virtual_konvene: VirtualKonvene) -> None:
    """The hosts of the broker and of the test cannot be used for `spawn`."""
    work = asyncio.sleep(0)
    with pytest.raises(ValueError, match="the host name broker is reserved"):
        virtual_konvene.spawn("broker", work)
    work.close()
