"""Background work of groups: results reach the coordinator that requested them, or are dropped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.rights import Rights
from tests.broker.running import running

from konvene.broker.broker import Broker
from konvene.broker.groups import background_work
from konvene.broker.groups.background_work import GroupWork, compute_assignment, resolve_regexes
from konvene.broker.net.authorization import Authorization
from konvene.codec.uuid import Uuid
from konvene.configs import BrokerConfig
from konvene.configs.group_configs import GroupConfigs
from konvene.errors import Errors
from konvene.groups.assignors import (
    Assignor,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    TopicSpec,
)
from konvene.groups.consumer import targets
from konvene.groups.consumer.work import (
    COMPUTE_ASSIGNMENT,
    RESOLVE_REGEXES,
    AssignmentComputed,
    AssignmentToCompute,
    RegexesResolved,
    RegexesToResolve,
)
from konvene.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from konvene.runtime.coordinator import Coordinator, RequestContext
from konvene.security.principal import KafkaPrincipal
from konvene.security.resources import Operation, topic
from konvene.shard.contract import NOTHING, Effect, Outcome
from konvene.shard.image import Topic, Topics
from konvene.sim.machine.loop import SimLoop

ORDERS = Uuid(b"o" * 16)
TOPICS = Topics([Topic("orders", ORDERS, 2), Topic("__consumer_offsets", Uuid(b"i" * 16), 1)], version=7)
SPEC = GroupSpec.of({"m": MemberSpec(frozenset([ORDERS]))}, {ORDERS: TopicSpec(2)})
ANN = KafkaPrincipal("User", "ann")
EVERYTHING = RegexesToResolve("g", (".*s", "or.*", "none"), TOPICS)


def fails(spec: GroupSpec) -> GroupAssignment:
    raise KeyError("m")


def refuses(spec: GroupSpec) -> GroupAssignment:
    raise PartitionAssignorError("no")


def group_before(assign: Callable[[GroupSpec], GroupAssignment]) -> AssignmentToCompute:
    return AssignmentToCompute("g", 3, Assignor("mine", assign), SPEC)


def test_regexes_match_all_topics_that_may_be_described() -> None:
    """Internal topics match too, as in Kafka; the result has the version of the topics image."""
    everything = resolve_regexes(EVERYTHING, None)
    assert everything == RegexesResolved(
        "g",
        {
            ".*s": frozenset(["orders", "__consumer_offsets"]),
            "or.*": frozenset(["orders"]),
            "none": frozenset(),
        },
        7,
    )
    rights = Rights((Operation.DESCRIBE, topic("__consumer_offsets")), principal=ANN, host="10.0.0.1")
    hidden = resolve_regexes(replace(EVERYTHING, principal=ANN, host="/10.0.0.1"), rights)
    assert hidden.matches[".*s"] == frozenset(["__consumer_offsets"])
    assert hidden.matches["or.*"] == frozenset()
    assert resolve_regexes(EVERYTHING, rights).matches[".*s"] == frozenset()


def test_failed_matching_is_reported_without_matches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The group receives an empty result, and the failure is logged."""

    def breaks(patterns: Any, names: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(background_work, "matching", breaks)
    assert resolve_regexes(EVERYTHING, None) == RegexesResolved("g", {}, 7)
    assert "matching its regular expressions failed" in caplog.text


def test_errors_of_an_assignor_are_a_result() -> None:
    """An assignor's own error has its message; other exceptions are described."""
    given = {"m": {ORDERS: (0, 1)}}
    assert compute_assignment(group_before(lambda spec: given), lambda *q: True) == AssignmentComputed(
        "g", 3, "mine", given
    )
    for assign, why in ((refuses, "no"), (fails, "Assignor mine: KeyError: 'm'")):
        failed = compute_assignment(group_before(assign), lambda *q: True).result
        assert isinstance(failed, PartitionAssignorError)
        assert failed.message == why


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("the condition did not become true")


async def ready(broker: Broker) -> Coordinator:
    await broker.groups.make_ready()
    await broker.groups.loaded()
    await broker.topic_creator.create_missing(["orders"])
    coordinator = broker.groups.of("g")
    assert coordinator is not None
    return coordinator


@pytest.mark.parametrize(
    "subscription", [{"subscribed_topic_names": ("orders",)}, {"subscribed_topic_regex": "ord.*"}]
)
def test_results_of_threads_reach_the_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subscription: dict[str, Any]
) -> None:
    """End to end: topics of a regular expression, and a target that is too expensive for the loop."""
    monkeypatch.setattr(targets, "OFFLOAD_WEIGHT", 0)

    async def main() -> None:
        async with running(tmp_path, {"group.consumer.assignment.interval.ms": "0"}) as broker:
            coordinator = await ready(broker)
            beat = ConsumerGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=9000, topic_partitions=(),
                **subscription,
            )  # fmt: skip
            given: list[Any] = []
            async with asyncio.timeout(20):
                while not given:
                    answer = await coordinator.submit(beat, RequestContext(api_version=1, client_id="c"))
                    assert isinstance(answer, ConsumerGroupHeartbeatResponse)
                    assert answer.error_code == Errors.NONE, answer.error_message
                    given = list(answer.assignment.topic_partitions) if answer.assignment else []
                    beat = ConsumerGroupHeartbeatRequest(
                        group_id="g", member_id="m", member_epoch=answer.member_epoch
                    )
                    await asyncio.sleep(0.005)
            orders = broker.catalogue.topics.by_name["orders"]
            assert [(t.topic_id, t.partitions) for t in given] == [
                (orders.id, tuple(range(orders.partitions)))
            ]
            assert coordinator._waiting == {}
            await until(lambda: repr(broker.groups._work) == "<group work: 0 running>")

    asyncio.run(main())


def test_a_group_config_disables_offloading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group's config overrides the broker's: the first response has the assignment."""
    monkeypatch.setattr(targets, "OFFLOAD_WEIGHT", 0)

    async def main() -> None:
        async with running(tmp_path, {"group.consumer.assignment.interval.ms": "0"}) as broker:
            coordinator = await ready(broker)
            overrides = {"g": {"consumer.assignor.offload.enable": "false"}}
            broker.settings.group_configs = GroupConfigs(broker.settings.config, overrides)
            join = ConsumerGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=9000, topic_partitions=(),
                subscribed_topic_names=("orders",),
            )  # fmt: skip
            answer = await coordinator.submit(join, RequestContext(api_version=1, client_id="c"))
            assert isinstance(answer, ConsumerGroupHeartbeatResponse)
            assert answer.assignment is not None
            assert [t.topic_id for t in answer.assignment.topic_partitions] == [
                broker.catalogue.topics.by_name["orders"].id
            ]

    asyncio.run(main())


@pytest.mark.parametrize("end", ["reloaded", "stopped", "nothing"])
def test_late_results_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """A reloaded coordinator does not receive the result; a stopping broker does not wait for it."""
    resume, events, started = threading.Event(), [], threading.Event()

    def waits(spec: GroupSpec) -> GroupAssignment:
        started.set()
        assert resume.wait(20)
        return {}

    monkeypatch.setattr(Coordinator, "inform", lambda self, event: events.append(event))

    async def main() -> None:
        async with running(tmp_path) as broker:
            coordinator = await ready(broker)
            work = broker.groups._work
            work.perform(coordinator, Effect(COMPUTE_ASSIGNMENT, group_before(waits)))
            await until(started.is_set)
            if end == "stopped":
                return
            if end == "reloaded":
                coordinator.reload()
                await until(lambda: coordinator.state == "active")
            resume.set()
            await until(lambda: repr(work) == "<group work: 0 running>")

    asyncio.run(main(), debug=True)
    resume.set()
    assert events == ([AssignmentComputed("g", 3, "mine", {})] if end == "nothing" else [])
    assert not [r for r in caplog.records if "never retrieved" in r.message or "destroyed" in r.message]


@pytest.mark.parametrize("state", ["loading", "failed", "closed"])
def test_inactive_coordinators_ignore_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    events: list[Any] = []

    def handle(self: Any, event: Any, context: Any) -> Outcome:
        events.append(event)
        return NOTHING

    async def main() -> None:
        async with running(tmp_path) as broker:
            coordinator = await ready(broker)
            monkeypatch.setattr(type(coordinator.core), "handle", handle)
            for coordinator.state in (state, "active"):
                coordinator.inform(coordinator.state)

    asyncio.run(main())
    assert events == ["active"]


def test_a_simulated_loop_runs_work_in_virtual_time() -> None:
    """No thread is started: the simulated loop runs the work later, deterministically."""
    config, _ = BrokerConfig.load(overrides=[])
    threads = threading.active_count()

    def run() -> list[Any]:
        loop = SimLoop(disk_latency=lambda: 0.25)
        node: Any = SimpleNamespace(
            loop=loop, settings=SimpleNamespace(config=config), authorization=Authorization()
        )
        share_state_work: Any = SimpleNamespace(perform=lambda coordinator, effect: False)
        work = GroupWork(node, share_state_work)
        results: list[Any] = []
        coordinator: Any = SimpleNamespace(core=1, inform=lambda event: results.append((loop.now, event)))

        async def main() -> None:
            for verb, subject in (
                (RESOLVE_REGEXES, EVERYTHING),
                (COMPUTE_ASSIGNMENT, group_before(lambda s: {})),
            ):
                work.perform(coordinator, Effect(verb, subject))
            await asyncio.sleep(1)
            await work.close()

        loop.run_until_complete(main())
        loop.close()
        return results

    results = run()
    assert [type(event) for _, event in results] == [RegexesResolved, AssignmentComputed]
    assert {at for at, _ in results} == {1000.5}
    assert results == run()
    assert threading.active_count() == threads
