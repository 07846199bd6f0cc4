"""`konvene groups` for share groups: describe, reset-offsets, delete-offsets and delete."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.commands import CommandResult, RunningBroker, call, running_broker

from konvene.client.admin.admin import GROUP_CONFIG, Admin
from konvene.client.net.cluster import Cluster
from konvene.client.net.settings import ClientSettings
from konvene.client.share.consumer import AcknowledgeType, ShareConsumer

SETTINGS = {
    "group.share.heartbeat.interval.ms": "50", "group.share.min.heartbeat.interval.ms": "50",
    "group.share.assignment.interval.ms": "0", "share.coordinator.state.topic.num.partitions": "2",
}  # fmt: skip
TIMEOUT_S = 30


class ShareEnvironment:
    """A broker, and a share group member that runs until a test stops it."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker

    def groups(self, *args: str) -> CommandResult:
        return call(self.broker, "groups", *args)

    @contextmanager
    def working(self, group: str, topic: str, *types: AcknowledgeType | None) -> Iterator[str]:
        """Run a member that acquires one record per entry of `types` and acknowledges those that are not
        None.
        """
        acknowledged, stopping = threading.Event(), threading.Event()

        async def job() -> None:
            async with Cluster(self.broker.address, ClientSettings(client_id="ann")) as cluster:
                earliest = {"share.auto.offset.reset": "earliest"}
                await Admin(cluster).alter_configs(GROUP_CONFIG, group, earliest)
                consumer = ShareConsumer(cluster, group, explicit=True, member_id=f"{group}-ann")
                consumer.subscribe([topic])
                acquired = []
                while len(acquired) < len(types):
                    acquired += await consumer.poll()
                for record, type_ in zip(acquired, types, strict=True):
                    if type_ is not None:
                        consumer.acknowledge(record, type_)
                await consumer.commit()
                acknowledged.set()
                await asyncio.to_thread(stopping.wait, TIMEOUT_S)
                await consumer.close()

        thread = threading.Thread(target=asyncio.run, args=(job(),))
        thread.start()
        try:
            assert acknowledged.wait(TIMEOUT_S)
            yield f"{group}-ann"
        finally:
            stopping.set()
            thread.join(TIMEOUT_S)

    def leave(self, group: str, topic: str, *types: AcknowledgeType | None) -> None:
        """Run such a member once and let it leave the group."""
        with self.working(group, topic, *types):
            pass

    def start_offsets(self, group: str) -> dict[str, int | None]:
        async def job() -> dict[str, int | None]:
            async with Cluster(self.broker.address) as cluster:
                offsets = (await Admin(cluster).list_share_group_offsets({group: None}))[group]
                return {str(tp): offset.start_offset for tp, offset in offsets.items()}

        return self.broker.run(job())  # type: ignore[no-any-return]


ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShareEnvironment]:
    with running_broker(tmp_path_factory.mktemp("data"), SETTINGS) as broker:
        broker.create("jobs", 5)
        broker.create("orders", 3, 3)
        yield ShareEnvironment(broker)


# describe ---------------------------------------------------------------------------------------


def test_start_offsets_table_equals_kafkas(env: ShareEnvironment) -> None:
    env.leave("stands", "jobs", ACCEPT, ACCEPT, None, None, None)
    result = env.groups("describe", "stands")
    assert result.err == "Share group 'stands' has no active members.\n"
    assert result.lines == [
        ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"],
        ["stands", "jobs", "0", "2", "3"],
    ]
    assert env.groups("describe", "stands", "--offsets", "--verbose").lines == [
        ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG"],
        ["stands", "jobs", "0", "0", "2", "3"],
    ]
    (document,) = env.groups("describe", "stands", "--json").json
    assert document["offsets"] == [
        {"topic": "jobs", "partition": 0, "start_offset": 2, "leader_epoch": 0, "lag": 3, "error": None}
    ]
    assert (document["type"], document["state"], document["members"]) == ("share", "Empty", [])


def test_members_and_state_are_described(env: ShareEnvironment) -> None:
    with env.working("busy", "jobs", None, None, None, None, None) as ann:
        head, row = env.groups("describe", "busy", "--members", "--verbose").lines
        assert head == [
            "GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "MEMBER-EPOCH", "ASSIGNMENT",
            "HEARTBEAT-MS", "HELD", "HEARTBEAT-AGE-MS",
        ]  # fmt: skip
        assert row[:-2] == ["busy", ann, "/127.0.0.1", "ann", "1", "3", "jobs:0", "50"]
        assert (row[-2] in ("true", "false"), row[-1].isdigit()) == (True, True)
        state = env.groups("describe", "busy", "--state", "--verbose")
        assert re.match(
            r"GROUP +COORDINATOR \(ID\) +STATE +GROUP-EPOCH +ASSIGNMENT-EPOCH +#MEMBERS\n"
            r"busy +127\.0\.0\.1:\d+ \(1\) +Stable +3 +3 +1\n$",
            state.out,
        )
        (document,) = env.groups("describe", "busy", "--members", "--json").json
        assert document["members"] == [
            {
                "member_id": ann, "client_id": "ann", "client_host": "/127.0.0.1", "rack_id": None,
                "epoch": 3, "subscribed_topics": ["jobs"],
                "assignment": [{"topic": "jobs", "partition": 0}],
            }
        ]  # fmt: skip


def test_in_flight_records_have_owner_and_lock_times(env: ShareEnvironment) -> None:
    with env.working("holds", "jobs", ACCEPT, RELEASE, None, None, ACCEPT) as ann:
        result = env.groups("describe", "holds", "--in-flight")
        assert result.err == ""
        assert result.lines[0] == [
            "GROUP", "TOPIC", "PARTITION", "FIRST-OFFSET", "LAST-OFFSET", "STATE", "DELIVERY-COUNT",
            "CONSUMER-ID", "HOST", "CLIENT-ID", "HELD", "LOCK-LEFT",
        ]  # fmt: skip
        expected = ["holds", "jobs", "0", "2", "3", "acquired", "1", ann, "/127.0.0.1", "ann"]
        rows = [line[:10] for line in result.lines[1:]]
        assert [row for row in rows if row[5] == "acquired"] in (
            [expected],
            [[*expected[:3], "2", "2", *expected[5:]], [*expected[:3], "3", "3", *expected[5:]]],
        )
        assert re.search(r" \d+\.\d s +\d+\.\d s\n", result.out)
        (document,) = env.groups("describe", "holds", "--in-flight", "--json").json
        acquired = next(entry for entry in document["in_flight"] if entry["state"] == "acquired")
        assert (acquired["member_id"], acquired["client_id"], acquired["delivery_count"]) == (ann, "ann", 1)
        assert 0 <= acquired["held_ms"] < 30_000 and 0 < acquired["lock_left_ms"] <= 30_000
        verbose = env.groups("describe", "holds", "--in-flight", "--verbose")
        assert [line[3:8] for line in verbose.lines if "available" in line] == [
            ["1", "1", "available", "1", "-"]
        ]


def test_in_flight_of_an_idle_group_is_empty(env: ShareEnvironment) -> None:
    env.leave("idle", "jobs", *[ACCEPT] * 5)
    result = env.groups("describe", "idle", "--in-flight")
    assert (result.code, result.out) == (0, "")
    assert result.err.endswith("No member of share group 'idle' has acquired any records.\n")


def test_parts_of_other_group_types_are_explained(env: ShareEnvironment) -> None:
    env.leave("plain", "jobs", *[ACCEPT] * 5)
    assert "a share group: its assignments need no reconciliation" in (
        env.groups("describe", "plain", "--reconciliation").err
    )
    assert env.groups("describe", "plain", "--topology").err == (
        "Group 'plain' is a share group: only streams groups have a topology.\n"
    )
    env.broker.commit("readers", "jobs", p0=1)
    assert env.groups("describe", "readers", "--in-flight").err == (
        "Group 'readers' is a classic group: only share groups have in-flight records.\n"
    )


def test_groups_are_found_by_their_type(env: ShareEnvironment) -> None:
    env.leave("typed", "jobs", *[ACCEPT] * 5)
    env.broker.commit("readers", "jobs", p0=1)
    listed = {line[0] for line in env.groups("list", "--share").lines[1:]}
    assert "typed" in listed and "readers" not in listed
    described = env.groups("describe", "--all-groups", "--share", "--state").lines
    assert {line[0] for line in described if line and line[0] != "GROUP"} == listed
    assert env.groups("describe", "nobody", "--share").err.startswith(
        "konvene: there is no share group nobody\n"
    )
    assert env.groups("describe", "readers", "--share").code == 1
    for args in (["list", "--share", "--type", "share"], ["describe", "x", "--share", "--streams"]):
        assert env.groups(*args).code == 2


# reset-offsets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "start_offset"),
    [
        (["--to-earliest"], 0), (["--to-latest"], 3), (["--to-offset", "1"], 1), (["--to-offset", "9"], 3),
        (["--to-current"], 2), (["--shift-by", "-1"], 1),
        (["--to-datetime", "1970-01-01T00:00:01.500Z"], 1),
    ],
)  # fmt: skip
def test_start_offset_is_reset(env: ShareEnvironment, args: list[str], start_offset: int) -> None:
    initialized = env.groups("reset-offsets", "moved", "--share", "--topic", "orders:1", "--to-offset", "2",
                        "--execute")  # fmt: skip
    assert initialized.code == 0
    planned = env.groups("reset-offsets", "moved", "--all-topics", *args, "--dry-run")
    assert planned.lines == [
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        ["moved", "orders", "1", str(start_offset)],
    ]
    assert env.start_offsets("moved") == {"orders-1": 2}
    assert env.groups("reset-offsets", "moved", "--all-topics", *args, "--execute").code == 0
    assert env.start_offsets("moved") == {"orders-1": start_offset}
    env.groups("delete", "moved")


def test_plan_is_exported_and_read_as_by_kafkas_tool(env: ShareEnvironment, tmp_path: Path) -> None:
    env.groups("reset-offsets", "filed", "--share", "--topic", "orders", "--to-latest", "--execute")
    result = env.groups("reset-offsets", "filed", "--all-topics", "--to-current", "--export", "--dry-run")
    assert result.out == "orders,0,3\norders,1,3\n"
    plan = tmp_path / "plan.csv"
    plan.write_text("orders,0,1\n")
    assert env.groups("reset-offsets", "filed", "--from-file", str(plan), "--execute").code == 0
    assert env.start_offsets("filed") == {"orders-0": 1, "orders-1": 3}


def test_active_group_is_not_changed(env: ShareEnvironment) -> None:
    with env.working("at-work", "jobs", None, None, None, None, None):
        result = env.groups("reset-offsets", "at-work", "--all-topics", "--to-latest", "--execute")
        assert result.code == 1
        assert "the group 'at-work' is inactive, but the current state is Stable" in result.err
        deleted = env.groups("delete-offsets", "at-work", "--topic", "jobs")
        assert (deleted.code, "NON_EMPTY_GROUP" in deleted.err) == (1, True)
        assert env.groups("delete", "at-work").code == 1


def test_share_option_rejects_groups_of_other_types(env: ShareEnvironment) -> None:
    env.broker.commit("others", "jobs", p0=1)
    result = env.groups("reset-offsets", "others", "--share", "--topic", "jobs", "--to-latest", "--execute")
    assert result.code == 1
    assert "group others is a classic group; --share needs a share group" in result.err


# delete -----------------------------------------------------------------------------------------


def test_offsets_are_deleted_by_topic(env: ShareEnvironment) -> None:
    for topic in ("orders", "jobs"):
        env.groups("reset-offsets", "forgets", "--share", "--topic", topic, "--to-earliest", "--execute")
    result = env.groups("delete-offsets", "forgets", "--topic", "orders", "--topic", "nowhere")
    assert result.code == 1
    assert result.lines == [
        ["TOPIC", "STATUS"], ["nowhere", "Error:", "UNKNOWN_TOPIC_OR_PARTITION"], ["orders", "Successful"],
    ]  # fmt: skip
    assert env.start_offsets("forgets") == {"jobs-0": 0}
    single_partition = env.groups("delete-offsets", "forgets", "--topic", "jobs:0")
    assert "group forgets is a share group: its offsets can only be deleted by topic" in single_partition.err
    all_topics = env.groups("delete-offsets", "forgets", "--all-topics", "--json")
    assert all_topics.json == [{"topic": "jobs", "partition": None, "error": None}]
    assert env.start_offsets("forgets") == {}


def test_all_share_groups_are_deleted_and_no_others(env: ShareEnvironment) -> None:
    env.groups("reset-offsets", "last", "--share", "--topic", "jobs", "--to-earliest", "--execute")
    env.broker.commit("readers", "jobs", p0=1)
    assert env.groups("delete", "--all-groups", "--share").code == 0
    assert env.groups("list", "--share", "--json").json == []
    assert "readers" in env.groups("list").out
