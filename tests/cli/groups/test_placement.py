"""Placement of a streams group's task copies in `konvene groups describe`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import running_broker
from tests.cli.office import SETTINGS, StreamsEnvironment
from tests.client.admin.test_pending_tasks import group

from konvene.cli.groups.placement import describe_placement, placement_document
from konvene.client.admin.streams_groups import Placement
from konvene.client.streams.member import StreamsMember
from konvene.client.streams.tasks import InternalTopic, Subtopology, Topology


@pytest.mark.parametrize(
    ("placement", "lines"),
    [
        (None, []),
        (Placement((), 0, 0, 0, 0, 0, 4), []),
        (
            Placement(("zone",), 0, 0, 0, 0, 4, 4),
            ["tasks whose copies are spread by zone: 4 of 4"],
        ),
        (
            Placement(("zone", "row"), 0, 0, 1, 2, 1, 4),
            [
                "tasks whose copies are spread by zone, row: 1 of 4",
                "copies of one task on members with equal tags: 1 pair (all tags), 2 pairs (some tags)",
            ],
        ),
        (
            Placement((), 0, 3, 0, 0, 0, 4),
            ["tasks outside the racks of their input partitions: 0 active, 3 standby or warm-up"],
        ),
    ],
)
def test_placement_is_described(placement: Placement | None, lines: list[str]) -> None:
    assert describe_placement(group()._replace(placement=placement)) == lines


def test_json_document_has_every_count() -> None:
    assert placement_document(group()) is None
    assert placement_document(group()._replace(placement=Placement(("zone",), 1, 2, 3, 4, 5, 6))) == {
        "tags": ["zone"], "actives_outside": 1, "copies_outside": 2, "pairs_sharing_all": 3,
        "pairs_sharing_some": 4, "tasks_apart": 5, "tasks_with_copies": 6,
    }  # fmt: skip


def test_broker_describes_the_placement_of_a_group(tmp_path: Path) -> None:
    """Two members in one zone, neither in the rack of the broker, so that no better placement exists."""
    settings = SETTINGS | {
        "group.streams.num.standby.replicas": "1", "group.streams.assignors": "sticky",
        "group.streams.rack.aware.assignment.tags": "zone", "broker.rack": "r1",
    }  # fmt: skip
    topology = Topology((Subtopology("0", ("lines",), (), (InternalTopic("w-counts-changelog"),)),))

    def have_all_tasks(*members: StreamsMember) -> bool:
        return all(m.assignment.active and m.assignment.standby for m in members)

    with running_broker(tmp_path, settings) as broker:
        env = StreamsEnvironment(broker)
        broker.create("lines", 0, 0)
        env.run(
            "w", topology, "ann", "bob", until=have_all_tasks, client_tags={"zone": "a"}, client_rack="r2",
        )  # fmt: skip
        state = env.groups("describe", "w", "--state").out.splitlines()
        assert [line.strip() for line in state[-3:]] == [
            "tasks whose copies are spread by zone: 0 of 2",
            "copies of one task on members with equal tags: 2 pairs (all tags)",
            "tasks outside the racks of their input partitions: 2 active, 2 standby or warm-up",
        ]
        (output,) = env.groups("describe", "w", "--json").json
        assert output["placement"]["pairs_sharing_all"] == 2
