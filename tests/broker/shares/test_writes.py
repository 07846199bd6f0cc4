"""What becomes of records while their state is being written, cannot be written, or is another's by now."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.handlers.broker_client import BrokerClient, run_with_broker
from tests.broker.shares.test_fetch import (
    ACCEPT,
    GROUP,
    QUICK,
    REJECT,
    TOPIC,
    acknowledge_errors,
    acquired,
    errors,
    joined,
)

from konvene.errors import Errors
from konvene.runtime.deferred import Deferred
from konvene.share_state.requests import Answer, SharePartitionKey, Write


class Keeper:
    """Stands before the share coordinators: writes fail, or wait until they are let go."""

    def __init__(self, broker_client: BrokerClient) -> None:
        self._states: Any = broker_client.broker.share_coordinators
        self._submit = self._states.submit
        self._states.submit = self.submit
        self.error = Errors.NONE
        self.waits = False
        self.held: list[tuple[Write, Deferred[Answer]]] = []

    def submit(self, request: Any) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        if not isinstance(request, Write):
            return self._submit(request)  # type: ignore[no-any-return]
        if self.waits:
            self.held.append((request, answer))
            return answer
        if self.error:
            answer.resolve(Answer(self.error, "not now"))
            return answer
        return self._submit(request)  # type: ignore[no-any-return]

    def let_go(self, error: Errors) -> None:
        """Answer what waits."""
        self.waits = False
        held, self.held = self.held, []
        for request, answer in held:
            if error:
                answer.resolve(Answer(error, "too late"))
            else:
                self._submit(request).listen(answer.resolve)


@pytest.mark.parametrize(
    ("error", "told_error"),
    [
        (Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.INVALID_REQUEST, Errors.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_cannot_be_written_is_the_members_again(
    tmp_path: Path, error: Errors, told_error: Errors
) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        keeper = Keeper(broker_client)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        keeper.error = error
        assert errors(await one.acknowledge([(0, 0, ACCEPT)])) == [told_error]
        assert acknowledge_errors(await one.fetch([(0, 0, ACCEPT)])) == [told_error]
        assert acquired(await other.fetch()) == []
        keeper.error = Errors.NONE
        assert errors(await one.acknowledge([(0, 0, ACCEPT)])) == [0]

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize("error", [Errors.FENCED_STATE_EPOCH, Errors.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_state_that_is_anothers_is_read_anew(tmp_path: Path, error: Errors) -> None:
    """The member is told who leads, and asks again; whoever fetches then begins with the new state."""

    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        keeper = Keeper(broker_client)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        waiting = asyncio.ensure_future(other.fetch(wait_ms=9000))
        await asyncio.sleep(0.1)
        keeper.error = error
        answer = await one.acknowledge([(0, 0, ACCEPT)])
        moved = error is Errors.FENCED_STATE_EPOCH
        told_error = Errors.NOT_LEADER_OR_FOLLOWER if moved else error
        assert errors(answer) == [told_error]
        assert [node.node_id for node in answer.node_endpoints] == ([1] if moved else [])
        assert errors(await waiting) == [told_error]
        keeper.error = Errors.NONE
        assert acquired(await other.fetch(wait_ms=1000)) == [(0, 0, 1)]

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize("error", [Errors.NONE, Errors.COORDINATOR_NOT_AVAILABLE])
def test_a_lock_that_ends_while_an_acceptance_is_written(tmp_path: Path, error: Errors) -> None:
    """Bug 74: written, the record is done; not written, it is available, and never both."""

    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        keeper = Keeper(broker_client)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        keeper.waits = True
        saying = asyncio.ensure_future(one.acknowledge([(0, 0, ACCEPT)]))
        await asyncio.sleep(1.3)  # The lock is over.
        assert acquired(await other.fetch()) == []
        keeper.let_go(error)
        assert errors(await saying) == [error]
        assert acquired(await other.fetch(wait_ms=500)) == ([(0, 0, 2)] if error else [])

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize(
    ("settings", "topic"),
    [
        ({"errors.deadletterqueue.auto.create.topics.enable": "false"}, "dlq.orders"),
        ({"errors.deadletterqueue.auto.create.topics.enable": "true"}, "letters"),
    ],
)
def test_a_dead_letter_topic_that_cannot_be_used_stops_nobody(
    tmp_path: Path, settings: dict[str, str], topic: str
) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client, errors_deadletterqueue_topic_name=topic)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        assert errors(await one.acknowledge([(0, 0, REJECT)])) == [0]
        sharing = broker_client.broker.share_partitions
        served = sharing.served[SharePartitionKey(GROUP, one.topic_id, 0)]
        for _ in range(100):
            if served.core.start_offset == 1:
                break
            await asyncio.sleep(0.02)
        assert served.core.start_offset == 1
        assert (sharing.dead_letters.failed[GROUP], sharing.dead_letters.written[GROUP]) == (1, 0)
        assert topic not in broker_client.broker.catalogue.topics.by_name

    run_with_broker(tmp_path, scenario, QUICK | settings)


def test_a_log_that_loses_its_beginning_lets_the_group_go_on_behind_it(tmp_path: Path) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client)
        for value in b"abc":
            broker_client.write(TOPIC, bytes((value,)))
        assert acquired(await one.fetch(wait_ms=1000, most=1)) == [(0, 0, 1)]
        partition = broker_client.broker.partitions.get(TOPIC, 0)
        assert partition is not None
        partition.delete_before(2)
        given = acquired(await one.fetch(wait_ms=300)) or acquired(await one.fetch(wait_ms=1000))
        assert given == [(2, 2, 1)]

    run_with_broker(tmp_path, scenario, QUICK)
