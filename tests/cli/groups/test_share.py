"""`konvene groups` of share groups, against a broker of ours: what is shown, who has what, what is moved."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.commands import Said, Serving, call, serving

from konvene.client.admin.admin import GROUP_CONFIG, Admin
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.share.consumer import AcknowledgeType, ShareConsumer

SETTINGS = {
    "group.share.heartbeat.interval.ms": "50", "group.share.min.heartbeat.interval.ms": "50",
    "group.share.assignment.interval.ms": "0", "share.coordinator.state.topic.num.partitions": "2",
}  # fmt: skip
LONG_S = 30


class Workshop:
    """A broker, and a member of a share group that works for as long as it is asked to."""

    def __init__(self, broker: Serving) -> None:
        self.broker = broker

    def groups(self, *said: str) -> Said:
        return call(self.broker, "groups", *said)

    @contextmanager
    def working(self, group: str, topic: str, *kinds: AcknowledgeType | None) -> Iterator[str]:
        """A member that has taken as many records as there are kinds, and decided on the first of them."""
        at_work, enough = threading.Event(), threading.Event()

        async def job() -> None:
            async with Cluster(self.broker.address, ClientSettings(client_id="ann")) as cluster:
                earliest = {"share.auto.offset.reset": "earliest"}
                await Admin(cluster).alter_configs(GROUP_CONFIG, group, earliest)
                consumer = ShareConsumer(cluster, group, explicit=True, member_id=f"{group}-ann")
                consumer.subscribe([topic])
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
            yield f"{group}-ann"
        finally:
            enough.set()
            thread.join(LONG_S)

    def leave(self, group: str, topic: str, *kinds: AcknowledgeType | None) -> None:
        """A group that has worked, and has nobody now."""
        with self.working(group, topic, *kinds):
            pass

    def start_offsets(self, group: str) -> dict[str, int | None]:
        async def job() -> dict[str, int | None]:
            async with Cluster(self.broker.address) as cluster:
                found = (await Admin(cluster).list_share_group_offsets({group: None}))[group]
                return {str(tp): at.start_offset for tp, at in found.items()}

        return self.broker.run(job())  # type: ignore[no-any-return]


ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with serving(tmp_path_factory.mktemp("data"), SETTINGS) as broker:
        broker.create("jobs", 5)
        broker.create("orders", 3, 3)
        yield Workshop(broker)


# describe ---------------------------------------------------------------------------------------


def test_where_a_group_stands_is_shown_as_kafkas_tool_shows_it(shop: Workshop) -> None:
    shop.leave("stands", "jobs", ACCEPT, ACCEPT, None, None, None)
    said = shop.groups("describe", "stands")
    assert said.err == "Share group 'stands' has no active members.\n"
    assert said.lines == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        ["stands", "jobs", "0", "2", "3"],
    ]
    assert shop.groups("describe", "stands", "--offsets", "--verbose").lines == [
        ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG"],
        ["stands", "jobs", "0", "0", "2", "3"],
    ]
    (document,) = shop.groups("describe", "stands", "--json").json
    assert document["offsets"] == [
        {"topic": "jobs", "partition": 0, "start_offset": 2, "leader_epoch": 0, "lag": 3, "error": None}
    ]
    assert (document["type"], document["state"], document["members"]) == ("share", "Empty", [])


def test_members_and_state(shop: Workshop) -> None:
    with shop.working("busy", "jobs", None, None, None, None, None) as ann:
        assert shop.groups("describe", "busy", "--members", "--verbose").lines == [
            ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT"],
            ["busy", ann, "/127.0.0.1", "ann", "1", "3", "jobs:0"],
        ]
        state = shop.groups("describe", "busy", "--state", "--verbose")
        assert re.match(
            r"GROUP +COORDINATOR \(ID\) +STATE +GROUP-EPOCH +ASSIGNMENT-EPOCH +#MEMBERS\n"
            r"busy +127\.0\.0\.1:\d+ \(1\) +Stable +3 +3 +1\n$",
            state.out,
        )
        (document,) = shop.groups("describe", "busy", "--members", "--json").json
        assert document["members"] == [
            {
                "member_id": ann, "client_id": "ann", "client_host": "/127.0.0.1", "rack_id": None,
                "epoch": 3, "subscribed_topics": ["jobs"],
                "assignment": [{"topic": "jobs", "partition": 0}],
            }
        ]  # fmt: skip


def test_who_has_which_records_since_when_and_for_how_long(shop: Workshop) -> None:
    with shop.working("holds", "jobs", ACCEPT, RELEASE, None, None, ACCEPT) as ann:
        said = shop.groups("describe", "holds", "--in-flight")
        assert said.err == ""
        assert said.lines[0] == [
            "GROUP", "TOPIC", "PARTITION", "FIRST-OFFSET", "LAST-OFFSET", "STATE", "DELIVERY-COUNT",
            "CONSUMER-ID", "HOST", "CLIENT-ID", "HELD", "LOCK-LEFT",
        ]  # fmt: skip
        taken = ["holds", "jobs", "0", "2", "3", "acquired", "1", ann, "/127.0.0.1", "ann"]
        rows = [line[:10] for line in said.lines[1:]]
        assert [row for row in rows if row[5] == "acquired"] in (
            [taken],
            [[*taken[:3], "2", "2", *taken[5:]], [*taken[:3], "3", "3", *taken[5:]]],
        )
        assert re.search(r" \d+\.\d s +\d+\.\d s\n", said.out)
        (document,) = shop.groups("describe", "holds", "--in-flight", "--json").json
        one = next(each for each in document["in_flight"] if each["state"] == "acquired")
        assert (one["member_id"], one["client_id"], one["delivery_count"]) == (ann, "ann", 1)
        assert 0 <= one["held_ms"] < 30_000 and 0 < one["lock_left_ms"] <= 30_000
        free = shop.groups("describe", "holds", "--in-flight", "--verbose")
        assert [line[3:8] for line in free.lines if "available" in line] == [
            ["1", "1", "available", "1", "-"]
        ]


def test_a_group_whose_records_nobody_has(shop: Workshop) -> None:
    shop.leave("idle", "jobs", *[ACCEPT] * 5)
    said = shop.groups("describe", "idle", "--in-flight")
    assert (said.code, said.out) == (0, "")
    assert said.err.endswith("No member of share group 'idle' has acquired any records.\n")


def test_what_share_groups_and_others_do_not_have(shop: Workshop) -> None:
    shop.leave("plain", "jobs", *[ACCEPT] * 5)
    assert "a share group: its assignments need no reconciliation" in (
        shop.groups("describe", "plain", "--reconciliation").err
    )
    assert shop.groups("describe", "plain", "--topology").err == (
        "Group 'plain' is a share group: only streams groups have a topology.\n"
    )
    shop.broker.commit("readers", "jobs", p0=1)
    assert shop.groups("describe", "readers", "--in-flight").err == (
        "Group 'readers' is a classic group: only share groups have in-flight records.\n"
    )


def test_groups_are_found_by_their_type(shop: Workshop) -> None:
    shop.leave("typed", "jobs", *[ACCEPT] * 5)
    shop.broker.commit("readers", "jobs", p0=1)
    listed = {line[0] for line in shop.groups("list", "--share").lines[1:]}
    assert "typed" in listed and "readers" not in listed
    described = shop.groups("describe", "--all-groups", "--share", "--state").lines
    assert {line[0] for line in described if line and line[0] != "GROUP"} == listed
    assert shop.groups("describe", "nobody", "--share").err.startswith(
        "konvene: there is no share group nobody\n"
    )
    assert shop.groups("describe", "readers", "--share").code == 1
    for words in (["list", "--share", "--type", "share"], ["describe", "x", "--share", "--streams"]):
        assert shop.groups(*words).code == 2


# reset-offsets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "stands"),
    [
        (["--to-earliest"], 0), (["--to-latest"], 3), (["--to-offset", "1"], 1), (["--to-offset", "9"], 3),
        (["--to-current"], 2), (["--shift-by", "-1"], 1),
        (["--to-datetime", "1970-01-01T00:00:01.500Z"], 1),
    ],
)  # fmt: skip
def test_where_a_group_stands_is_moved(shop: Workshop, way: list[str], stands: int) -> None:
    asked = shop.groups("reset-offsets", "moved", "--share", "--topic", "orders:1", "--to-offset", "2",
                        "--execute")  # fmt: skip
    assert asked.code == 0
    planned = shop.groups("reset-offsets", "moved", "--all-topics", *way, "--dry-run")
    assert planned.lines == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        ["moved", "orders", "1", str(stands)],
    ]
    assert shop.start_offsets("moved") == {"orders-1": 2}
    assert shop.groups("reset-offsets", "moved", "--all-topics", *way, "--execute").code == 0
    assert shop.start_offsets("moved") == {"orders-1": stands}
    shop.groups("delete", "moved")


def test_a_plan_is_written_and_read_as_kafkas_tool_does(shop: Workshop, tmp_path: Path) -> None:
    shop.groups("reset-offsets", "filed", "--share", "--topic", "orders", "--to-latest", "--execute")
    said = shop.groups("reset-offsets", "filed", "--all-topics", "--to-current", "--export", "--dry-run")
    assert said.out == "orders,0,3\norders,1,3\n"
    plan = tmp_path / "plan.csv"
    plan.write_text("orders,0,1\n")
    assert shop.groups("reset-offsets", "filed", "--from-file", str(plan), "--execute").code == 0
    assert shop.start_offsets("filed") == {"orders-0": 1, "orders-1": 3}


def test_a_group_with_members_stays_where_it_is(shop: Workshop) -> None:
    with shop.working("at-work", "jobs", None, None, None, None, None):
        said = shop.groups("reset-offsets", "at-work", "--all-topics", "--to-latest", "--execute")
        assert said.code == 1
        assert "the group 'at-work' is inactive, but the current state is Stable" in said.err
        deleted = shop.groups("delete-offsets", "at-work", "--topic", "jobs")
        assert (deleted.code, "NON_EMPTY_GROUP" in deleted.err) == (1, True)
        assert shop.groups("delete", "at-work").code == 1


def test_a_group_of_another_type_does_not_become_a_share_group(shop: Workshop) -> None:
    shop.broker.commit("others", "jobs", p0=1)
    said = shop.groups("reset-offsets", "others", "--share", "--topic", "jobs", "--to-latest", "--execute")
    assert said.code == 1
    assert "group others is a classic group; --share needs a share group" in said.err


# delete -----------------------------------------------------------------------------------------


def test_a_group_forgets_topics(shop: Workshop) -> None:
    for topic in ("orders", "jobs"):
        shop.groups("reset-offsets", "forgets", "--share", "--topic", topic, "--to-earliest", "--execute")
    said = shop.groups("delete-offsets", "forgets", "--topic", "orders", "--topic", "nowhere")
    assert said.code == 1
    assert said.lines == [
        ["TOPIC", "STATUS"], ["nowhere", "Error:", "UNKNOWN_TOPIC_OR_PARTITION"], ["orders", "Successful"],
    ]  # fmt: skip
    assert shop.start_offsets("forgets") == {"jobs-0": 0}
    parts = shop.groups("delete-offsets", "forgets", "--topic", "jobs:0")
    assert "group forgets is a share group: its offsets can only be deleted by topic" in parts.err
    every = shop.groups("delete-offsets", "forgets", "--all-topics", "--json")
    assert every.json == [{"topic": "jobs", "partition": None, "error": None}]
    assert shop.start_offsets("forgets") == {}


def test_all_share_groups_are_deleted_and_no_others(shop: Workshop) -> None:
    shop.groups("reset-offsets", "last", "--share", "--topic", "jobs", "--to-earliest", "--execute")
    shop.broker.commit("readers", "jobs", p0=1)
    assert shop.groups("delete", "--all-groups", "--share").code == 0
    assert shop.groups("list", "--share", "--json").json == []
    assert "readers" in shop.groups("list").out
