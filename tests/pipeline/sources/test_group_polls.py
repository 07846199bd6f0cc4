"""Groups of a live broker are described beside its log, which settles how members departed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.explain.test_explain import lines, run

from konvene.client.consumer.classic_member import Member
from konvene.client.consumer.fetch import OffsetAt
from konvene.client.consumer.modern_member import ConsumerMember
from konvene.client.errors import CannotConnect, ClientError, UnsupportedVersion
from konvene.client.net.cluster import Cluster, Metadata, Node, Partition, Topic, TopicPartition
from konvene.codec.uuid import ZERO_UUID
from konvene.errors import Errors
from konvene.internal_topics import OFFSETS_TOPIC
from konvene.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from konvene.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from konvene.messages.consumer_group_describe import Member as DescribedMember
from konvene.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from konvene.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from konvene.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from konvene.pipeline.answers.observations.evidence import OBSERVATIONS_NAME
from konvene.pipeline.answers.observations.observation import Observation, ObservedMember, decode
from konvene.pipeline.sources import group_polls
from konvene.pipeline.sources.group_polls import GroupPoller
from konvene.pipeline.sources.live import LiveReader
from konvene.testing import Konvene


def written(path: Path) -> list[Observation]:
    found = [decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    assert None not in found
    return [each for each in found if each is not None]


@pytest.mark.konvene(topics={"orders": 2})
def test_descriptions_show_that_members_left(konvene: Konvene, tmp_path: Path) -> None:
    """Without the audit, the records alone name both causes."""
    spool = tmp_path / "spool"
    path = spool / OBSERVATIONS_NAME

    async def members() -> None:
        poller = GroupPoller(path)
        async with Cluster(konvene.bootstrap) as cluster:
            joined: Sequence[Any] = (
                Member(cluster, "old", ["orders"]), ConsumerMember(cluster, "new", ["orders"]),
            )  # fmt: skip
            for member in joined:
                while not member.assignment:
                    await member.ensure()
            await cluster.refresh()
            assert await poller.poll(cluster) == []
            for member in joined:
                await member.leave()
            for _ in range(3):  # The group is empty; the third one is not written.
                assert await poller.poll(cluster) == []

    with LiveReader(konvene.bootstrap, spool) as reader:
        asyncio.run(members())
        reader.catch_up()
    first, second, *empty = written(path)
    assert {first.group_type, second.group_type} == {"classic", "consumer"}
    for each in (first, second):
        [member] = each.members.values()
        assert member.heartbeat_age_ms >= 0
        assert member.session_timeout_ms == (45_000 if each.group_type == "consumer" else -1)
    assert [(each.state, each.members) for each in empty] == [("Empty", {})] * 4
    assert all(each.first_offset <= each.next_offset for each in (first, second, *empty))

    def departures(*paths: str) -> dict[str, str]:
        rows = lines(run(*paths, "--no-audit", "--json"))
        return {row["group"]: row["cause"] for row in rows if row["gone"]}

    assert departures(str(spool)) == {"old": "member-left", "new": "member-left"}
    path.unlink()
    assert departures(str(spool))["new"] == "member-left|session-expired"


# a scripted cluster -----------------------------------------------------------------------------------


class Scripted:
    """A cluster of one broker, with these groups by id: type, state and member ids."""

    def __init__(self, **groups: tuple[str, str, Sequence[str]]) -> None:
        partition = Partition(0, 1, 0, (1,), (1,), (), 0)
        self.metadata = Metadata(
            "c", 1, {1: Node(1, "b", 1)},
            {OFFSETS_TOPIC: Topic(OFFSETS_TOPIC, ZERO_UUID, True, (partition,), 0)},
        )  # fmt: skip
        self.groups = groups
        self.code = 0
        self.failure: ClientError | None = None
        self.requests: list[Any] = []
        self.end = 0
        self.leader_epochs = [5] * 20

    async def ask(self, request: Any, **_: object) -> Any:
        self.requests.append(request)
        if isinstance(request, ListGroupsRequest):
            rows = [ListedGroup(group_id=g, group_state=s, group_type=t.title())
                    for g, (t, s, _) in self.groups.items()]  # fmt: skip
            return ListGroupsResponse(groups=tuple(rows))
        if self.failure is not None:
            raise self.failure
        if isinstance(request, DescribeGroupsRequest):
            return DescribeGroupsResponse(groups=tuple(self._classic(name) for name in request.groups))
        if isinstance(request, ConsumerGroupDescribeRequest):
            return ConsumerGroupDescribeResponse(groups=tuple(map(self._consumer, request.group_ids)))
        name = request.resources[0].configuration_keys[0]
        row = DescribeConfigsResourceResult(name=name, value="9000")
        results = (
            DescribeConfigsResult(error_code=self.code, resource_name=each.resource_name, configs=(row,))
            for each in request.resources
        )
        return DescribeConfigsResponse(results=tuple(results))

    def _classic(self, name: str) -> DescribedGroup:
        _, state, members = self.groups[name]
        rows = tuple(DescribedGroupMember(member_id=each) for each in members)
        return DescribedGroup(error_code=self.code, group_id=name, group_state=state, members=rows)

    def _consumer(self, name: str) -> DescribedConsumerGroup:
        _, state, members = self.groups[name]
        rows = tuple(
            DescribedMember(member_id=each, member_epoch=3, member_type=each.startswith("new"))
            for each in members
        )
        return DescribedConsumerGroup(group_id=name, group_state=state, members=rows)


@pytest.fixture
def poller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GroupPoller:
    async def ends(cluster: Scripted, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        cluster.end += 1
        return dict.fromkeys(wanted, OffsetAt(cluster.end, -1, cluster.leader_epochs.pop(0)))

    monkeypatch.setattr(group_polls, "list_offsets", ends)
    now = iter(range(1000, 100_000))
    return GroupPoller(tmp_path / OBSERVATIONS_NAME, clock=lambda: next(now))


def polled(poller: GroupPoller, cluster: Scripted, times: int = 1) -> list[str]:
    return [text for _ in range(times) for text in asyncio.run(poller.poll(cluster))]  # type: ignore[arg-type]


def test_what_changes_is_written_with_the_last_description_before(
    poller: GroupPoller, tmp_path: Path
) -> None:
    cluster = Scripted(g=("classic", "Stable", ["a", "b"]))
    polled(poller, cluster, 5)
    cluster.groups["g"] = ("classic", "PreparingRebalance", ["b"])
    polled(poller, cluster)
    cluster.groups["g"] = ("classic", "Empty", [])
    polled(poller, cluster, 3)
    found = written(tmp_path / OBSERVATIONS_NAME)
    assert [(each.first_offset, each.state, sorted(each.members)) for each in found] == [
        (1, "Stable", ["a", "b"]), (3, "Stable", ["a", "b"]), (9, "Stable", ["a", "b"]),
        (11, "PreparingRebalance", ["b"]), (13, "Empty", []), (15, "Empty", []),
    ]  # fmt: skip
    assert all(each.begin_ms < each.end_ms and each.next_offset == each.first_offset + 1 for each in found)
    assert len({each.run_ms for each in found}) == 1


def test_a_description_while_the_coordinator_changes_is_left_out(poller: GroupPoller, tmp_path: Path) -> None:
    cluster = Scripted(g=("classic", "Stable", ["a"]))
    cluster.leader_epochs = [5, 5, 5, 6, 6, 6]
    polled(poller, cluster, 3)
    assert [each.leader_epoch for each in written(tmp_path / OBSERVATIONS_NAME)] == [5, 6]


def test_session_timeouts_are_those_of_members_of_the_groups_protocol(
    poller: GroupPoller, tmp_path: Path
) -> None:
    polled(poller, Scripted(g=("consumer", "Stable", ["new-1", "old-1"])))
    [found] = written(tmp_path / OBSERVATIONS_NAME)
    assert found.members == {"new-1": ObservedMember(3, 9000), "old-1": ObservedMember(3)}


def test_requests_are_bounded(poller: GroupPoller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll describes at most so many groups of a broker, and the next one continues."""
    monkeypatch.setattr(group_polls, "BATCH", 2)
    monkeypatch.setattr(group_polls, "MAX_GROUPS", 3)
    cluster = Scripted(**{name: ("classic", "Stable", ["m"]) for name in "abcd"})
    polled(poller, cluster, 2)
    described = [each.groups for each in cluster.requests if isinstance(each, DescribeGroupsRequest)]
    assert described == [("a", "b"), ("c",), ("d", "a"), ("b",)]


def test_what_the_cluster_refuses_is_noted_once(poller: GroupPoller, tmp_path: Path) -> None:
    cluster = Scripted(g=("classic", "Stable", ["a"]), h=("classic", "Stable", ["b"]))
    cluster.code = Errors.GROUP_AUTHORIZATION_FAILED
    [text] = polled(poller, cluster, 2)
    assert text.startswith("group g: GROUP_AUTHORIZATION_FAILED")
    assert text.endswith("causes of its rebalances are inferred without descriptions.")
    cluster.failure = UnsupportedVersion("the broker at b:1 does not offer DescribeGroups")
    assert polled(poller, cluster, 2) == [
        "Groups of type classic cannot be described: the broker at b:1 does not offer DescribeGroups."
    ]
    cluster.failure = CannotConnect("cannot connect to b:1")
    assert polled(poller, cluster, 2) == []
    assert written(tmp_path / OBSERVATIONS_NAME) == []


def test_a_large_file_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / OBSERVATIONS_NAME
    path.write_bytes(b"".join(b"%08d\n" % n for n in range(100)))
    monkeypatch.setattr(group_polls, "MAX_BYTES", 900)
    GroupPoller(path)
    assert len(path.read_bytes()) == 900
    monkeypatch.setattr(group_polls, "MAX_BYTES", 400)
    GroupPoller(path)
    assert path.read_bytes() == b"".join(b"%08d\n" % n for n in range(78, 100))
