"""Changes through the console, against a broker: previews, confirmations, results and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.commands import RunningBroker, running_broker

from konvene.client.admin.admin import TOPIC, Admin
from konvene.client.errors import KafkaError
from konvene.client.net.cluster import Cluster, TopicPartition
from konvene.client.share.consumer import ShareConsumer
from konvene.console.actions import (
    ACTIONS,
    delete_group,
    preview_reset,
    remove_members,
    reset_offsets,
    set_config,
)
from konvene.console.failure import Failure

Action = Callable[[Admin, dict[str, Any]], Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Topic `orders` with 10 and 6 records, at 1000, 2000, … ms; `payments` with 2."""
    with running_broker(tmp_path_factory.mktemp("data")) as broker:
        broker.create("orders", 10, 6)
        broker.create("payments", 2)
        yield broker


def perform(broker: RunningBroker, action: Action, **body: Any) -> dict[str, Any]:
    async def job() -> dict[str, Any]:
        async with Cluster(broker.address) as cluster:
            return await action(Admin(cluster), body)

    return asyncio.run(job())


def refused(broker: RunningBroker, action: Action, **body: Any) -> Failure:
    with pytest.raises(Failure) as caught:
        perform(broker, action, **body)
    return caught.value


# offset resets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("earliest", (0, 0)),
        ("latest", (10, 6)),
        ("offset:5", (5, 5)),
        ("time:3500", (3, 3)),
        ("shift:-2", (2, 3)),
        ("shift:+1", (5, 6)),
    ],
)
def test_preview_shows_the_plan_and_commits_nothing(
    broker: RunningBroker, to: str, expected: tuple[int, int]
) -> None:
    broker.commit("previewed", "orders", p0=4, p1=5)
    result = perform(broker, preview_reset, group="previewed", topics=None, to=to)
    assert result == {
        "plan": [
            {
                "partition": f"orders:{partition}", "current": current, "new": new, "end": end,
                "lag_after": end - new,
            }
            for partition, current, new, end in zip((0, 1), (4, 5), expected, (10, 6), strict=True)
        ],
        "problems": [],
    }  # fmt: skip
    assert broker.committed("previewed") == {"orders-0": 4, "orders-1": 5}


def test_preview_reports_problems_and_partitions_without_an_offset(broker: RunningBroker) -> None:
    broker.commit("partly", "orders", p0=4)
    result = perform(broker, preview_reset, group="partly", topics=["orders:1", "payments"], to="offset:5")
    assert [(r["partition"], r["current"], r["new"]) for r in result["plan"]] == [
        ("orders:1", None, 5),
        ("payments:0", None, 2),
    ]
    assert result["problems"] == [
        "New offset (5) is higher than latest offset for topic partition payments-0. Value will be set to 2."
    ]


def test_reset_commits_what_the_preview_shows(broker: RunningBroker) -> None:
    broker.commit("reset", "orders", p0=4, p1=5)
    body = {"group": "reset", "topics": ["orders:0"], "to": "earliest"}
    result = perform(broker, reset_offsets, **body, confirm="reset")
    assert result == {
        "done": [{"partition": "orders:0", "offset": 0}],
        "failed": [],
        "problems": [],
    }
    assert broker.committed("reset") == {"orders-0": 0, "orders-1": 5}


def test_start_offsets_of_a_share_group_are_reset(broker: RunningBroker) -> None:
    async def join() -> None:
        async with Cluster(broker.address) as cluster, ShareConsumer(cluster, "shared") as consumer:
            consumer.subscribe(["payments"])
            async with asyncio.timeout(60):
                while not await described(Admin(cluster)):
                    await consumer.poll(100)

    async def described(admin: Admin) -> bool:
        with suppress(KafkaError):  # The group does not exist yet.
            return (
                TopicPartition("payments", 0)
                in (await admin.list_share_group_offsets({"shared": None}))["shared"]
            )
        return False

    asyncio.run(join())
    body = {"group": "shared", "topics": ["payments"], "to": "earliest", "confirm": "shared"}
    result = perform(broker, reset_offsets, **body)
    assert result["done"] == [{"partition": "payments:0", "offset": 0}]
    (row,) = perform(broker, preview_reset, group="shared", topics=None, to="latest")["plan"]
    assert (row["current"], row["new"], row["lag_after"]) == (0, 2, 0)


def test_group_with_members_cannot_be_reset(broker: RunningBroker) -> None:
    broker.join("active", ["orders"], None)
    for action in (preview_reset, reset_offsets):
        failed = refused(broker, action, group="active", to="earliest", topics=["orders"], confirm="active")
        assert failed.status == 409
        assert failed.error.startswith("Assignments can only be reset if the group 'active' is inactive")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"group": "nope", "to": "latest"}, 404, "There is no group nope."),
        ({"group": "bad", "to": "soon"}, 400, "to=soon is not a target."),
        ({"group": "bad", "to": "offset:-1"}, 400, "to=offset:-1 is not a target."),
        ({"group": "bad"}, 400, "to is missing."),
        ({"to": "latest"}, 400, "group is missing."),
        ({"group": "bad", "to": "latest", "topics": "orders"}, 400, "topics is not a list of names."),
        (
            {"group": "bad", "to": "latest", "topics": ["orders:x"]},
            400,
            "Invalid partition 'x' specified in topic arg 'orders:x'.",
        ),
        ({"group": "bad", "to": "latest", "topics": ["nope"]}, 409, "there is no topic nope"),
        (
            {"group": "bad", "to": "shift:1", "topics": ["payments"]},
            400,
            "Cannot shift offset for partition payments-0 since there is no current committed offset.",
        ),
    ],
)
def test_reset_that_cannot_be_planned_is_an_error(
    broker: RunningBroker, body: dict[str, Any], status: int, error: str
) -> None:
    broker.commit("bad", "orders", p0=1)
    failed = refused(broker, preview_reset, **body)
    assert (failed.status, failed.error) == (status, error)


# confirmation ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "body"),
    [
        (reset_offsets, {"group": "kept", "topics": None, "to": "earliest"}),
        (delete_group, {"group": "kept"}),
        (remove_members, {"group": "kept", "members": ["m"]}),
        (set_config, {"resource": "topic", "name": "orders", "key": "retention.ms", "value": "1"}),
    ],
)
@pytest.mark.parametrize("confirm", [None, "", "KEPT", True])
def test_every_change_needs_its_confirmation(
    broker: RunningBroker, action: Action, body: dict[str, Any], confirm: object
) -> None:
    broker.commit("kept", "orders", p0=4)
    failed = refused(broker, action, **body, confirm=confirm)
    assert (failed.status, failed.error) == (400, "The change is not confirmed.")
    assert broker.committed("kept") == {"orders-0": 4}


def test_actions_have_the_paths_of_the_page(broker: RunningBroker) -> None:
    """Each path runs its function with the clients of the watch."""

    async def job() -> list[dict[str, Any]]:
        async with Cluster(broker.address) as cluster:
            watch: Any = SimpleNamespace(cluster=cluster, admin=Admin(cluster))
            reset = {"group": "paths", "topics": None, "to": "latest", "confirm": "paths"}
            setting = {"resource": "topic", "name": "routed", "key": "retention.ms", "value": "-1"}
            bodies: dict[str, dict[str, Any]] = {
                "produce": {"topic": "routed", "value": "x"},
                "actions/reset-offsets/preview": reset,
                "actions/reset-offsets": reset,
                "actions/remove-members": {"group": "paths", "members": ["m"], "confirm": "paths"},
                "actions/delete-group": {"group": "paths", "confirm": "paths"},
                "actions/set-config": setting | {"confirm": "routed"},
            }
            assert bodies.keys() == ACTIONS.keys()
            return [await ACTIONS[path](watch, body) for path, body in bodies.items()]

    broker.create("routed", 0)
    broker.commit("paths", "routed", p0=0)
    written, preview, done, removed, deleted, changed = asyncio.run(job())
    assert (written["partition"], written["offset"]) == (0, 0)
    assert [row["partition"] for row in (*preview["plan"], *done["done"])] == ["routed:0", "routed:0"]
    assert [each["member"] for each in removed["failed"]] == ["m"]
    assert (deleted["done"], changed["done"]) == (["paths"], ["retention.ms"])


# groups and settings --------------------------------------------------------------------------


def test_members_are_removed_one_by_one(broker: RunningBroker) -> None:
    ann, ben = broker.join("crowd", ["orders"], None, None)
    body = {"group": "crowd", "members": [ann, "unknown"], "confirm": "crowd"}
    result = perform(broker, remove_members, **body)
    assert result["done"] == [ann]
    assert [(each["member"], "UNKNOWN_MEMBER_ID" in each["error"]) for each in result["failed"]] == [
        ("unknown", True)
    ]

    async def members() -> list[str]:
        async with Cluster(broker.address) as cluster:
            return [m.member_id for m in (await Admin(cluster).describe_group("crowd")).members]

    assert asyncio.run(members()) == [ben]


@pytest.mark.parametrize("members", [None, [], "m", [1]])
def test_members_must_be_a_list_of_ids(broker: RunningBroker, members: object) -> None:
    failed = refused(broker, remove_members, group="crowd", members=members, confirm="crowd")
    assert (failed.status, failed.error) == (400, "members is not a list of member ids.")


def test_group_is_deleted_unless_it_has_members(broker: RunningBroker) -> None:
    broker.commit("old", "orders", p0=4)
    assert perform(broker, delete_group, group="old", confirm="old") == {"done": ["old"], "failed": []}
    assert refused(broker, delete_group, group="old", confirm="old").status == 404
    broker.join("used", ["orders"], None)
    failed = refused(broker, delete_group, group="used", confirm="used")
    assert (failed.status, failed.hint) == (409, "The group has members: stop them first.")


def test_settings_are_set_and_reset(broker: RunningBroker) -> None:
    async def retention() -> tuple[str | None, str]:
        async with Cluster(broker.address) as cluster:
            found = await Admin(cluster).describe_configs(TOPIC, "payments")
            (entry,) = [each for each in found if each.name == "retention.ms"]
            return entry.value, entry.source

    body = {"resource": "topic", "name": "payments", "key": "retention.ms", "confirm": "payments"}
    assert perform(broker, set_config, **body, value="5000") == {"done": ["retention.ms"], "failed": []}
    assert asyncio.run(retention()) == ("5000", "DYNAMIC_TOPIC_CONFIG")
    perform(broker, set_config, **body, value=None)
    assert asyncio.run(retention())[1] == "DEFAULT_CONFIG"
    group = {"resource": "group", "name": "g", "key": "consumer.session.timeout.ms", "confirm": "g"}
    assert perform(broker, set_config, **group, value="50000")["done"] == ["consumer.session.timeout.ms"]


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"resource": "cluster", "name": "x"}, 400, "cluster is not topic, group or broker."),
        ({"resource": ["topic"], "name": "x"}, 400, "resource is not text."),
        ({"resource": "broker", "name": "one"}, 400, "one is not the id of a broker."),
        ({"resource": "broker", "name": "77"}, 404, "There is no broker 77."),
        ({"resource": "topic", "name": "orders", "value": 5}, 400, "value is neither text nor null."),
        ({"resource": "topic", "name": "nope"}, 404, "the settings of nope: UNKNOWN_TOPIC_OR_PARTITION"),
        ({"resource": "topic", "name": "orders"}, 400, "the settings of orders: INVALID_CONFIG"),
    ],
)
def test_setting_that_cannot_be_changed_is_an_error(
    broker: RunningBroker, body: dict[str, Any], status: int, error: str
) -> None:
    given = {"key": "retention.ms", "value": "x", "confirm": body["name"]} | body
    failed = refused(broker, set_config, **given)
    assert (failed.status, failed.error[: len(error)]) == (status, error)
