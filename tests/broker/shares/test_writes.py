"""Delivery while a state write is pending, after it failed, and after it was fenced."""

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


class StateWriteFaults:
    """Wraps the share coordinators: state writes fail with `error`, or are held until `finish`."""

    def __init__(self, broker_client: BrokerClient) -> None:
        self._states: Any = broker_client.broker.share_coordinators
        self._submit = self._states.submit
        self._states.submit = self.submit
        self.error = Errors.NONE
        self.hold = False
        self.held: list[tuple[Write, Deferred[Answer]]] = []

    def submit(self, request: Any) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        if not isinstance(request, Write):
            return self._submit(request)  # type: ignore[no-any-return]
        if self.hold:
            self.held.append((request, answer))
            return answer
        if self.error:
            answer.resolve(Answer(self.error, "not now"))
            return answer
        return self._submit(request)  # type: ignore[no-any-return]

    def finish(self, error: Errors) -> None:
        """Complete the held writes with an error, or by writing them."""
        self.hold = False
        held, self.held = self.held, []
        for request, answer in held:
            if error:
                answer.resolve(Answer(error, "too late"))
            else:
                self._submit(request).listen(answer.resolve)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.INVALID_REQUEST, Errors.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_member_keeps_records_whose_acknowledgement_cannot_be_written(
    tmp_path: Path, error: Errors, expected: Errors
) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        faults = StateWriteFaults(broker_client)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        faults.error = error
        assert errors(await one.acknowledge([(0, 0, ACCEPT)])) == [expected]
        assert acknowledge_errors(await one.fetch([(0, 0, ACCEPT)])) == [expected]
        assert acquired(await other.fetch()) == []
        faults.error = Errors.NONE
        assert errors(await one.acknowledge([(0, 0, ACCEPT)])) == [0]

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize("error", [Errors.FENCED_STATE_EPOCH, Errors.UNKNOWN_TOPIC_OR_PARTITION])
def test_state_with_a_newer_epoch_or_another_topic_id_is_read_again(tmp_path: Path, error: Errors) -> None:
    """The member receives the leader's endpoint; the next fetch reads the new state."""

    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        faults = StateWriteFaults(broker_client)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        waiting = asyncio.ensure_future(other.fetch(wait_ms=9000))
        await asyncio.sleep(0.1)
        faults.error = error
        answer = await one.acknowledge([(0, 0, ACCEPT)])
        moved = error is Errors.FENCED_STATE_EPOCH
        expected = Errors.NOT_LEADER_OR_FOLLOWER if moved else error
        assert errors(answer) == [expected]
        assert [node.node_id for node in answer.node_endpoints] == ([1] if moved else [])
        assert errors(await waiting) == [expected]
        faults.error = Errors.NONE
        assert acquired(await other.fetch(wait_ms=1000)) == [(0, 0, 1)]

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize("error", [Errors.NONE, Errors.COORDINATOR_NOT_AVAILABLE])
def test_a_lock_that_expires_while_an_acceptance_is_written(tmp_path: Path, error: Errors) -> None:
    """Bug 74: the record is either completed (write succeeded) or available (write failed), never both."""

    async def scenario(broker_client: BrokerClient) -> None:
        one, other = await joined(broker_client, 2)
        faults = StateWriteFaults(broker_client)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        faults.hold = True
        acknowledging = asyncio.ensure_future(one.acknowledge([(0, 0, ACCEPT)]))
        await asyncio.sleep(1.3)  # The lock expires.
        assert acquired(await other.fetch()) == []
        faults.finish(error)
        assert errors(await acknowledging) == [error]
        assert acquired(await other.fetch(wait_ms=500)) == ([(0, 0, 2)] if error else [])

    run_with_broker(tmp_path, scenario, QUICK)


@pytest.mark.parametrize(
    ("settings", "topic"),
    [
        ({"errors.deadletterqueue.auto.create.topics.enable": "false"}, "dlq.orders"),
        ({"errors.deadletterqueue.auto.create.topics.enable": "true"}, "letters"),
    ],
)
def test_an_unusable_dead_letter_topic_does_not_block_delivery(
    tmp_path: Path, settings: dict[str, str], topic: str
) -> None:
    async def scenario(broker_client: BrokerClient) -> None:
        (one,) = await joined(broker_client, errors_deadletterqueue_topic_name=topic)
        broker_client.write(TOPIC, b"a")
        assert acquired(await one.fetch(wait_ms=1000)) == [(0, 0, 1)]
        assert errors(await one.acknowledge([(0, 0, REJECT)])) == [0]
        share_partitions = broker_client.broker.share_partitions
        served = share_partitions.served[SharePartitionKey(GROUP, one.topic_id, 0)]
        for _ in range(100):
            if served.core.start_offset == 1:
                break
            await asyncio.sleep(0.02)
        assert served.core.start_offset == 1
        assert (
            share_partitions.dead_letters.failed[GROUP],
            share_partitions.dead_letters.written[GROUP],
        ) == (1, 0)
        assert topic not in broker_client.broker.catalogue.topics.by_name

    run_with_broker(tmp_path, scenario, QUICK | settings)


def test_delivery_continues_at_the_new_log_start_offset(tmp_path: Path) -> None:
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
